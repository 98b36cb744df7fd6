"""A recording as a test file for pytest: each call once more, with assertions about what came."""

from __future__ import annotations

import shlex
from textwrap import indent
from typing import Any, Final

from .copying import answering, assertions, call_expression, identifier, python_of
from .recording import RecordedCall, RecordedServer, RecordedSession

_HEAD: Final = '''"""{name}: made by `trimaran inspect` of a recorded session.

Run it against the recorded target, or against another, which may be a URL, a script or a command:
{variable}="trimaran serve recording.json" pytest {file}
"""

import asyncio
import os
import shlex

from trimaran import connect


def target(variable, recorded):
    chosen = os.environ.get(variable, "")
    return shlex.split(chosen) if " " in chosen else chosen or recorded


{targets}
'''
_TESTED: Final = ("ok", "tool-error", "invalid")


def write_tests(session: RecordedSession, server: str | None = None) -> str:
    """The test file for one server of a recording, or for all that were called."""
    called = [tested for tested in session.servers if any(call.state in _TESTED for call in session.calls_of(tested))]
    chosen = [session.server(server)] if server is not None or not called else called
    suffixes = [""] if len(chosen) == 1 else _suffixes(chosen)
    head = _HEAD.format(
        name=_plain(session.name or chosen[0].name),
        variable=f"MCP_TARGET{suffixes[0]}",
        file=f"test_{identifier(chosen[0].name if len(chosen) == 1 else session.name)}.py",
        targets="\n".join(_target(*pair) for pair in zip(chosen, suffixes, strict=True)),
    )
    parts = [head]
    names: dict[str, int] = {}
    for tested, suffix in zip(chosen, suffixes, strict=True):
        for call in session.calls_of(tested):
            if call.state not in _TESTED:
                continue
            name = identifier(call.name) + suffix.lower()
            names[name] = names.get(name, 0) + 1
            numbered = name if names[name] == 1 else f"{name}_{names[name]}"
            parts.append(_test(call, numbered, f"TARGET{suffix}", tested.roots))
    return "\n\n".join(parts)


def _suffixes(servers: list[RecordedServer]) -> list[str]:
    """What tells the targets of several servers apart."""
    names = [f"_{identifier(server.name)}".upper() for server in servers]
    return [name if names.count(name) == 1 else f"{name}_{number}" for number, name in enumerate(names, 1)]


def _target(server: RecordedServer, suffix: str) -> str:
    target = server.target or server.name
    value = repr(target) if "://" in target else python_of(_words(target))
    return f'TARGET{suffix} = target("MCP_TARGET{suffix}", {value})'


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote without its end, which some program was content with
        return command.split()


def _plain(text: str) -> str:
    return "".join(char for char in text if char.isprintable() and char not in '\\"')[:100]


def _test(call: RecordedCall, name: str, target: str, roots: list[dict[str, str]] | None) -> str:
    lines, options = answering(call.answers, call.samples, roots, as_task=call.as_task)
    # Inside a function one blank line is enough.
    answers = indent("\n".join(lines).replace("\n\n\n", "\n\n").removesuffix("\n"), "    ")
    checks: list[Any] = assertions(call.kind, call.result)
    body = "\n".join(
        [
            *([answers] if answers else []),
            "    async def main():",
            f"        async with connect({target}{options}) as client:",
            f"            result = await {call_expression(call.kind, call.name, call.arguments)}",
            *(f"            {line}" for line in checks),
            "",
            "    asyncio.run(main())",
        ]
    )
    return f"def test_{name}():\n{body}\n"
