"""Read `WWW-Authenticate` (RFC 9110, section 11): the credentials that a server asks for.

Pure, and never raises: the header comes from a stranger, so unreadable parts are skipped and the others are used.
Each character is read a bounded number of times, so a hostile header costs no more than a long one.

Three faults of real servers are tolerated: parameters separated by blanks instead of commas, values that need quotes but have
none (`resource_metadata=https://host/path`), and prose in place of a parameter. After
a quote without an end, nothing more is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, final

from msgspec import Struct, field

USUAL_KEY_HEADER: Final = "X-API-Key"

# The quantifiers are possessive, so the expressions never backtrack.
_SEPARATOR: Final = re.compile(r"[ \t\r\n,]*+")
_WORD: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++")
_EQUALS: Final = re.compile(r"[ \t]*+=[ \t]*+")
_QUOTED: Final = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_UNQUOTED: Final = re.compile(r'[^ \t\r\n,"]++')
_TOKEN68: Final = re.compile(r"[ \t]++([A-Za-z0-9\-._~+/]++=*+)(?=[ \t]*+(?:,|\Z))")
# Two words and no "=": part of a sentence without quotes, not a scheme.
_PROSE: Final = re.compile(r"[ \t]++[^ \t\r\n,=\"]++[ \t]++(?![=,]|\Z)")
_GARBAGE: Final = re.compile(r'[^ \t\r\n,"]++')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


@final
class Challenge(Struct, frozen=True):
    """One way to authenticate that a server offers."""

    scheme: str
    """In lower case: `bearer`, `dpop`, `basic`."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """By name in lower case. If a name comes twice, the first value counts."""
    token: str | None = None
    """The token68 of schemes such as Negotiate, which have no parameters."""


def parse_www_authenticate(header: str) -> list[Challenge]:
    """The challenges of a header, or of several joined by commas, in their order."""
    challenges: list[Challenge] = []
    at, end = 0, len(header)
    while at < end:
        gap = _SEPARATOR.match(header, at)
        assert gap is not None
        is_after_comma = not challenges or "," in gap[0]
        at = gap.end()
        word = _WORD.match(header, at)
        if word is None:
            at = _skip(header, at)
        elif equals := _EQUALS.match(header, word.end()):
            at, value = _value(header, equals.end())
            if value is not None and challenges:
                challenges[-1].parameters.setdefault(word[0].lower(), value)
        elif not is_after_comma or (challenges and _PROSE.match(header, word.end())):
            at = _skip(header, word.end())
        else:
            token68 = _TOKEN68.match(header, word.end())
            challenges.append(Challenge(word[0].lower(), {}, token68[1] if token68 else None))
            at = token68.end() if token68 else word.end()
    return challenges


def challenge_for(challenges: Iterable[Challenge], *schemes: str) -> Challenge | None:
    """The first challenge of the first of these schemes that the header offers: name the preferred scheme first."""
    offered = list(challenges)
    names = (scheme.lower() for scheme in schemes)
    return next((challenge for scheme in names for challenge in offered if challenge.scheme == scheme), None)


def key_header(challenge: Challenge) -> str | None:
    """The header that an API key goes into, by an `ApiKey` challenge; None if the challenge is for something else."""
    if challenge.scheme != "apikey":
        return None
    named = challenge.parameters.get("header", "")
    # People copy the name into a command, so it must be a valid header name.
    return named if len(named) <= 100 and _WORD.fullmatch(named) else USUAL_KEY_HEADER


def _value(header: str, at: int) -> tuple[int, str | None]:
    """The end of a parameter's value, and the value; None if it cannot be read."""
    if quoted := _QUOTED.match(header, at):
        return quoted.end(), _ESCAPED.sub(r"\1", quoted[1])
    if plain := _UNQUOTED.match(header, at):
        return plain.end(), plain[0]
    return at, None


def _skip(header: str, at: int) -> int:
    """Skip one character, or a whole quoted string, whose commas separate nothing."""
    if header.startswith('"', at):
        quoted = _QUOTED.match(header, at)
        return quoted.end() if quoted else len(header)
    garbage = _GARBAGE.match(header, at)
    return garbage.end() if garbage else at
