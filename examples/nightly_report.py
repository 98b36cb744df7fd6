"""A program that lets a model work without a person: it runs `trimaran ask`, and acts on how that ended.

    ANTHROPIC_API_KEY=... MODEL=anthropic:claude-sonnet-5 python examples/nightly_report.py

The model may use two tools of examples/calculator.py, and nothing else: whatever no rule allows is denied. A person would
add that server to a program of theirs with `claude mcp add calculator -- python examples/calculator.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CALCULATOR = Path(__file__).with_name("calculator.py")
PROMPT = "We sold 19 tickets at 12.50. What did we earn? Use the tools, and answer in one sentence."


def main() -> int:
    command = [sys.executable, "-m", "trimaran", "ask", "--json", "--prompt", PROMPT]
    command += [
        "--model",
        os.environ.get("MODEL", "anthropic:claude-sonnet-5"),
        "--timeout",
        "120",
        "--max-turns",
        "10",
    ]
    command += ["--server", f"calculator={CALCULATOR}"]
    command += ["--allow", "mcp__calculator__add", "--allow", "mcp__calculator__multiply"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        return done.returncode  # the command could not work at all; stderr says why
    report = json.loads(done.stdout)
    for call in report["calls"]:
        print(f"{call['name']} {json.dumps(call['arguments'])}: {call['outcome']}")
    print(report["answer"] or f"no answer: {report['error']}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
