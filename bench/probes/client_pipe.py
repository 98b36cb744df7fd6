"""No client at all: blocking writes and reads on the child's pipes, one call after the other. What the pipes alone cost."""

import json
import subprocess
import sys
import time
from pathlib import Path

from common import arguments, expect, report

sys.path.append(str(Path(__file__).parents[1]))

import messages


def main() -> None:
    command, seconds, _ = arguments()
    params = {"name": "add", "arguments": messages.ARGUMENTS, "_meta": messages.META}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        made, started = 0, time.perf_counter()
        while time.perf_counter() < started + seconds:
            message = {"jsonrpc": "2.0", "id": made, "method": "tools/call", "params": params}
            child.stdin.write(json.dumps(message).encode() + b"\n")
            child.stdin.flush()
            answer = child.stdout.readline()
            if not made:
                expect(answer)
                started = time.perf_counter()
            made += 1
        report({"rate": made / (time.perf_counter() - started)})
        child.stdin.close()


if __name__ == "__main__":
    main()
