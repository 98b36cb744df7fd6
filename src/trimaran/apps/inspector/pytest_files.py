"""A recording as a test file for pytest: each call once more, with assertions about what came."""

from __future__ import annotations

from typing import Any, Final

from .copying import assertions, call_expression, identifier, python_of
from .recording import RecordedCall, RecordedSession

__all__ = ["write_tests"]

_HEAD: Final = '''"""{name}: made by `trimaran inspect` of a recorded session.

Run it against the recorded target, or another: MCP_TARGET=http://127.0.0.1:9090/mcp pytest {file}
"""

import asyncio
import os

from trimaran import connect

TARGET = os.environ.get("MCP_TARGET") or {target}
'''


def write_tests(session: RecordedSession, server: str | None = None) -> str:
    """The test file for one server of a recording."""
    chosen = session.server(server)
    target = chosen.target or chosen.name
    head = _HEAD.format(
        name=_plain(session.name or chosen.name),
        file=f"test_{identifier(chosen.name)}.py",
        target=repr(target) if "://" in target else python_of(target.split()),
    )
    parts = [head]
    names: dict[str, int] = {}
    for call in session.calls_of(chosen):
        if call.state not in ("ok", "tool-error", "invalid"):
            continue
        name = identifier(call.name)
        names[name] = names.get(name, 0) + 1
        parts.append(_test(call, name if names[name] == 1 else f"{name}_{names[name]}"))
    return "\n\n".join(parts)


def _plain(text: str) -> str:
    return "".join(char for char in text if char.isprintable() and char not in '\\"')[:100]


def _test(call: RecordedCall, name: str) -> str:
    options = ""
    lines: list[str] = []
    if call.answers:
        lines = [
            f"    answers = iter({python_of(call.answers)})",
            "",
            "    def answer(question):",
            "        return next(answers)",
            "",
        ]
        options = ", on_elicit=answer"
    checks: list[Any] = assertions(call.kind, call.result)
    body = "\n".join(
        [
            *lines,
            "    async def main():",
            f"        async with connect(TARGET{options}) as client:",
            f"            result = await {call_expression(call.kind, call.name, call.arguments)}",
            *(f"            {line}" for line in checks),
            "",
            "    asyncio.run(main())",
        ]
    )
    return f"def test_{name}():\n{body}\n"
