"""Names that squat on another server's, and descriptions that talk of another server's tools.

Pure. A host names every tool with its server, so the same name twice is no accident waiting to happen, and only noted. What a
person cannot tell apart is another matter: letters of other scripts that look the same, hidden characters, mixed scripts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Final

from trimaran.types import Tool

from ..terminal_text import in_one_line
from .hidden_text import fold_lookalikes, strip_hidden
from .scan import ScanFinding
from .scan_rules import Severity

# id: severity, message, remedy.
SHADOWING_RULES: Final[Mapping[str, tuple[Severity, str, str]]] = {
    "confusable-name": (
        "ask",
        "has a name that looks like another's, or like plain letters, and is not",
        "use the other",
    ),
    "same-name": ("note", "has the name of another server's tool", "look at the server before you allow it"),
    "names-other-tool": ("warn", "speaks of a tool of another server", "a tool has no say in the calls of others"),
    "orders-other-tool": (
        "ask",
        "says how a tool of another server is to be used",
        "a tool has no say in the calls of others",
    ),
    "like-server": ("warn", "is called almost like another server", "check that it is the one you mean"),
}
# From where a word begins only: from each letter of a long one it would be looked at again.
_WORD: Final = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9]*(?:[_.-][A-Za-z0-9]+)+|(?<![a-z])[a-z]+(?:[A-Z][a-z0-9]+)+"
)
_ORDER: Final = re.compile(
    r"\b(?:must|has to|have to|should|shall|always|never|instead|first|needs? to|only works|please|changes?|changed|replaces?|redirect\w*)\b"
)
_AROUND: Final = 100  # characters before and behind the name of a tool
_DISTINCT: Final = 8  # characters of a name that is not also an ordinary word
_DIGITS_AS_LETTERS: Final = str.maketrans("01", "ol")
_LONG_NAME: Final = 5  # characters of a server's name; shorter ones are alike by chance


def scan_names(
    server: str,
    tools: Mapping[str, Tool],
    others: Collection[tuple[str, str]],
    *,
    allow: Container[str] = (),
) -> Iterator[ScanFinding]:
    """The findings in the names of a server's tools, beside those of the others' tools."""
    by_look: dict[str, tuple[str, str]] = {}
    names: dict[str, str] = {}
    for other, name in others:
        by_look.setdefault(_look(name), (other, name))
        names.setdefault(name, other)
    for name, tool in tools.items():
        finds = [
            *_name_findings(name, by_look, names),
            *_mentions(tool.description or "", names, tools),
        ]
        for rule, excerpt in finds:
            if rule not in allow:
                yield _finding(rule, server, name, excerpt)


def scan_server_names(server: str, others: Iterable[str], *, allow: Container[str] = ()) -> Iterator[ScanFinding]:
    """Whether a server is called almost like another."""
    look = _look(server)
    for other in others:
        if other == server:
            continue
        is_near = min(len(look), len(_look(other))) >= _LONG_NAME and _is_one_edit(look, _look(other))
        if (look == _look(other) or is_near) and "like-server" not in allow:
            yield _finding("like-server", server, "", in_one_line(other, 60))


def _finding(rule: str, server: str, subject: str, excerpt: str) -> ScanFinding:
    severity, message, remedy = SHADOWING_RULES[rule]
    return ScanFinding(
        id=rule,
        severity=severity,
        place="tool",
        server=server,
        subject=subject,
        where="description" if rule.endswith("-other-tool") else "name",
        message=message,
        remedy=remedy,
        excerpt=excerpt,
    )


def _name_findings(
    name: str, by_look: Mapping[str, tuple[str, str]], names: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    twin = by_look.get(_look(name))
    is_odd = not name.isascii() and (_has_mixed_scripts(name) or strip_hidden(name) != name)
    if is_odd or (twin is not None and _spelling(twin[1]) != _spelling(name)):
        yield "confusable-name", f"{name!a}" + (f" beside {twin[1]} of {twin[0]}" if twin is not None else "")
    elif name in names:
        yield "same-name", f"{name} of {names[name]}"


def _mentions(text: str, names: Mapping[str, str], own: Container[str]) -> Iterator[tuple[str, str]]:
    if names:
        for word in dict.fromkeys(_WORD.findall(text[:100_000])):
            if len(word) >= _DISTINCT and word in names and word not in own:
                around = text[max(0, (at := text.find(word)) - _AROUND) : at + len(word) + _AROUND].lower()
                rule = "orders-other-tool" if _ORDER.search(around) else "names-other-tool"
                yield rule, f"{word} of {names[word]}"
                return


def _look(name: str) -> str:
    """What a person sees of a name: without case, without separators, with plain letters, and digits as letters."""
    plain = _spelling(fold_lookalikes(strip_hidden(name)))
    return plain.translate(_DIGITS_AS_LETTERS).replace("rn", "m").replace("vv", "w")


def _spelling(name: str) -> str:
    """A name without case and separators."""
    return re.sub(r"[\s._-]+", "", name).casefold()


def _has_mixed_scripts(name: str) -> bool:
    """Whether Latin letters stand beside letters of scripts that look like them."""
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in name if letter.isalpha()}
    return "LATIN" in scripts and bool(scripts & {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "LISU", "COPTIC"})


def _is_one_edit(left: str, right: str) -> bool:
    """Whether one letter more, less, or other turns one into the other."""
    if abs(len(left) - len(right)) > 1 or left == right:
        return False
    short, long = sorted((left, right), key=len)
    at = next((place for place, letter in enumerate(short) if letter != long[place]), len(short))
    return short[at:] == long[at + 1 :] or (len(short) == len(long) and short[at + 1 :] == long[at + 1 :])
