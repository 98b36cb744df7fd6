"""Whether the arguments of a call fit a glob: which values are meant, and what text each of them is.

Pure. One value can be written in several ways that mean the same to a server: `/srv/../etc/passwd` is `/etc/passwd`, and a
full-width letter looks like its plain one. All of these are tried, and where they disagree the answer is PERHAPS: a deny
holds for the roundabout way too, and an allow does not hold for it. A list fits if all of it fits, perhaps if some does.

This module does not know what a text *means* to the server: links, shells, encodings, upper and lower case are not looked through.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from .globs import Glob, Match, agree

_DEEPEST: Final = 64  # of lists and objects; what nests deeper is not looked at closely
_BITS: Final = 4096  # of an integer; much longer ones Python refuses to write out
# The part before a path that `..` cannot leave: for a URL, its host too.
_ROOT: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/]*)?[/\\]?")
# A path that has a shorter way: an empty segment, `.` or `..`.
_ROUNDABOUT: Final = re.compile(r"//|(?:^|[/\\])\.\.?(?:[/\\]|$)")
_SEPARATORS: Final = re.compile(r"[/\\]")


def fit_main(glob: Glob, main: str | None, arguments: Mapping[str, object]) -> Match:
    """The argument named `main`; all of them where that is None."""
    if main is None:
        return agree(fit_value(glob, value) for value in arguments.values())
    return fit_value(glob, arguments[main]) if main in arguments else Match.NO


def fit_key(glob: Glob, key: str, arguments: Mapping[str, object]) -> Match:
    """The argument under a dotted key; through lists, every element's."""
    value = arguments.get(key)
    if type(value) is str and "." not in key:
        return _fit_text(glob, value)
    return agree(_fits(glob, key.split("."), arguments, 0))


def _fits(glob: Glob, steps: list[str], node: Any, depth: int) -> Iterator[Match]:
    if not steps:
        yield fit_value(glob, node, depth)
    elif depth > _DEEPEST:
        yield Match.PERHAPS
    elif isinstance(node, list):
        for element in cast("list[Any]", node):
            yield from _fits(glob, steps, element, depth + 1)
    else:
        is_possible = False
        if isinstance(node, Mapping):
            inner = cast("Mapping[str, Any]", node)
            # A name may have dots of its own.
            for length in range(1, len(steps) + 1):
                name = ".".join(steps[:length])
                if name in inner:
                    is_possible = True
                    yield from _fits(glob, steps[length:], inner[name], depth + 1)
        if not is_possible:
            yield Match.NO


def fit_value(glob: Glob, value: Any, depth: int = 0) -> Match:
    """A value of JSON: a text as it is, other scalars as JSON writes them, lists and objects by what is in them."""
    if isinstance(value, str):
        return _fit_text(glob, value)
    match value:
        case list() | Mapping():
            if depth > _DEEPEST:
                return Match.PERHAPS
            inside = cast("list[Any]", value if isinstance(value, list) else list(value.values()))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            return agree(fit_value(glob, item, depth + 1) for item in inside)
        case bool() | None:
            return glob.fit({True: "true", False: "false", None: "null"}[value])
        case int():
            return glob.fit(str(value)) if value.bit_length() < _BITS else Match.PERHAPS
        case float():
            written = repr(value)
            short = written.removesuffix(".0")
            return glob.fit(written) if short == written else agree((glob.fit(written), glob.fit(short)))
        case _:
            return Match.PERHAPS


def _fit_text(glob: Glob, text: str) -> Match:
    # Most texts have one way to be written, and are done here.
    if plain_text(text) is not None:
        return glob.fit(text)
    return agree(glob.fit(form) for form in _forms(text))


def plain_text(value: object) -> str | None:
    """The value, if it is a text that can be written in one way only; may say None of such a one."""
    if not isinstance(value, str) or not value.isascii():
        return None
    is_roundabout = "//" in value or "/." in value or "\\." in value or value.startswith(".")
    return None if is_roundabout else value


def _forms(text: str) -> Iterator[str]:
    yield text
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    if plain != text:
        yield plain
    if _ROUNDABOUT.search(plain):
        straight = _straight(plain)
        if straight != plain:
            yield straight


def _straight(path: str) -> str:
    """A path or URL without its detours."""
    between = "/" if "/" in path else "\\"
    root = cast("re.Match[str]", _ROOT.match(path))[0]
    rest = path[len(root) :]
    steps: list[str] = []
    for segment in _SEPARATORS.split(rest):
        if segment in ("", "."):
            continue
        if segment != "..":
            steps.append(segment)
        elif steps and steps[-1] != "..":
            steps.pop()
        elif not root:
            steps.append("..")
    return root + between.join(steps) + (between if steps and rest[-1] in "/\\" else "")
