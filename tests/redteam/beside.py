"""cisco-ai-mcp-scanner beside our scan: the same texts, its YARA rules, offline."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

_PROGRAM = """
import asyncio, json, logging, sys
logging.disable(logging.CRITICAL)
from mcpscanner.core.analyzers.yara_analyzer import YaraAnalyzer
async def main():
    analyzer, counts = YaraAnalyzer(), []
    for text in json.load(open(sys.argv[1])):
        counts.append(len(await analyzer.analyze(text, {"tool_name": "tool"})) if text.strip() else 0)
    print("RESULT" + json.dumps(counts))
asyncio.run(main())
"""


async def flagged(texts: Sequence[str], environment: Path, folder: Path) -> list[bool]:
    """Which of the texts it flags."""
    listed = folder / "texts.json"
    listed.write_text(json.dumps(list(texts)))
    command = [str(environment / "bin" / "python"), "-c", _PROGRAM, str(listed)]
    done = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)
    return [count > 0 for count in json.loads(done.stdout.partition("RESULT")[2])]
