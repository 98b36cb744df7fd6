"""Whom a rule is for, where several callers share one host: `mcp__github__* to group:dev, user:ann`.

Pure. A rule without `to` is for everybody. The names after it are of callers, and any of them is enough:

    group:NAME    somebody in this group        user:NAME    this subject         scope:NAME    somebody with this scope

`*` in a NAME stands for anything. A program that does not know its caller, such as a host of one person, keeps a rule with
`to` as far as it denies or asks: what cannot be told is never allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, final

from msgspec import Struct

from trimaran.errors import ConfigError

KINDS: Final = ("group", "user", "scope")
# No parenthesis after it: within one, " to " belongs to an argument.
_TO: Final = re.compile(r"(?P<rule>\S.*?)\s+to\s+(?P<callers>[^()]+)")


@final
class Caller(Struct, frozen=True):
    """Somebody who calls, as far as rules know."""

    user: str = ""
    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()


def split_callers(text: str) -> tuple[str, tuple[str, ...]]:
    """A rule without its `to`, and the callers after that; none if it is for everybody.

    Raises:
        ConfigError: a caller cannot be read.
    """
    match = _TO.fullmatch(text)
    if match is None:
        return text, ()
    return match["rule"], check_callers(part.strip() for part in match["callers"].split(","))


def check_callers(callers: Iterable[str]) -> tuple[str, ...]:
    """The callers as written, if each can be read; ConfigError otherwise."""
    listed = tuple(callers)
    for caller in listed:
        kind, colon, name = caller.partition(":")
        if kind not in KINDS or not colon or not name:
            raise ConfigError(f"{caller[:60]!r} is not a caller: write group:NAME, user:NAME or scope:NAME")
    return listed


def fits_caller(callers: Iterable[str], caller: Caller) -> bool:
    """Is the caller one of these?"""
    for text in callers:
        kind, _, pattern = text.partition(":")
        names = caller.groups if kind == "group" else caller.scopes if kind == "scope" else (caller.user,)
        if any(name and fnmatchcase(name, pattern) for name in names):
            return True
    return False
