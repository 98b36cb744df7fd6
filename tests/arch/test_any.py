"""`Any` in the public API: few lines, each with its reason, and a count by module that may only shrink.

`Any` switches the type checker off for whoever calls. `object` is the type of a parameter that takes everything, `Json` that of
JSON, a type variable that of a value which comes back as it went in, and a Protocol that of an object with certain methods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .test_api import SNAPSHOT

# Where `Any` says what is so, with the reason. A key is a function, a method (`Class.method`) or a class, for its constructor.
REASONS: dict[str, str] = {}
MOST_REASONS = 20

# The most lines of a module in api.txt that have `Any` for no reason. A figure goes down, and never up; at 0 the row goes.
SLACK = 10  # how far a figure may lag behind, so that not every change touches this file
MOST: dict[str, int] = {
    "trimaran": 4,
    "trimaran.auth": 2,
    "trimaran.client": 2,
    "trimaran.ext": 8,
    "trimaran.format": 8,
    "trimaran.host": 10,
    "trimaran.host.permissions": 14,
    "trimaran.jsonrpc": 1,
    "trimaran.schema": 17,
    "trimaran.state": 2,
    "trimaran.testing": 11,
}

Line = tuple[str, str, str]
"""The module, the name that `REASONS` would have, and the line."""


def lines_with_any(api: str) -> Iterator[Line]:
    module = owner = ""
    for line in api.splitlines():
        if line.startswith("# "):
            module = line[2:]
        elif line.startswith("class "):
            owner = re.split(r"[ (:]", line)[1]
        if re.search(r"\bAny\b", line):
            member = re.match(r"\s*(?:async |classmethod |staticmethod |property )*(?:def )?(\w*)", line)
            name = member[1] if member else ""
            yield module, f"{owner}.{name}".removesuffix(".") if line.startswith(" ") else name, line.strip()


LINES = list(lines_with_any(SNAPSHOT.read_text()))


@pytest.mark.parametrize("module", sorted({module for module, _, _ in LINES} | set(MOST)))
def test_any_without_a_reason_only_becomes_rarer(module: str) -> None:
    """Whose rule: ours: a mistake in a call shows in the editor."""
    names = [name for where, name, _ in LINES if where == module and name not in REASONS]
    most = MOST.get(module, 0)
    assert len(names) <= most, (
        f"{module} has `Any` in {len(names)} lines of api.txt and may have it in {most}: {', '.join(names)}. "
        "Write the type, or the reason into REASONS"
    )
    assert len(names) >= most - SLACK, (
        f"{module} has `Any` in {len(names)} lines: write that down in MOST, in place of {most}"
    )


def test_reasons_are_few_and_all_of_them_needed() -> None:
    """Whose rule: ours."""
    assert not set(REASONS) - {name for _, name, _ in LINES}, "these need no reason any more"
    assert sum(name in REASONS for _, name, _ in LINES) <= MOST_REASONS


def test_names_in_the_record_are_read() -> None:
    api = "# m\n\nclass A(B)\n    (x: Any) -> None\n    async def f(self) -> Any\n    classmethod g() -> Any\ndef h() -> Any\n"
    assert [name for _, name, _ in lines_with_any(api)] == ["A", "A.f", "A.g", "h"]
