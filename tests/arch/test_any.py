"""`Any` in the public API: few lines, each with its reason.

`Any` switches the type checker off for whoever calls. `object` is the type of a parameter that takes everything, `Json` that of
JSON, a type variable that of a value which comes back as it went in, and a Protocol that of an object with certain methods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .test_api import SNAPSHOT

# Where `Any` says what is so, with the reason. A key is a function, a method (`Class.method`) or a class, for its constructor.
REASONS: dict[str, str] = {
    "walk_pages": "the entries of a page as it is on the wire are JSON, whose alias this layer cannot import",
}
MOST_REASONS = 5

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


def test_any_has_a_reason() -> None:
    """Whose rule: ours: a mistake in a call shows in the editor."""
    names = [f"{module}: {name}" for module, name, _ in LINES if name not in REASONS]
    assert not names, (
        f"`Any` stands in these lines of api.txt: {', '.join(names)}. Write the type, or the reason into REASONS"
    )


def test_reasons_are_few_and_all_of_them_needed() -> None:
    """Whose rule: ours."""
    assert not set(REASONS) - {name for _, name, _ in LINES}, "these need no reason any more"
    assert sum(name in REASONS for _, name, _ in LINES) <= MOST_REASONS


def test_names_in_the_record_are_read() -> None:
    api = "# m\n\nclass A(B)\n    (x: Any) -> None\n    async def f(self) -> Any\n    classmethod g() -> Any\ndef h() -> Any\n"
    assert [name for _, name, _ in lines_with_any(api)] == ["A", "A.f", "A.g", "h"]
