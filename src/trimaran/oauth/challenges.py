"""Read `WWW-Authenticate` (RFC 9110, section 11): what a server wants to see before it answers.

Pure, and never raises: the header comes from whoever answered, so what cannot be read is skipped and the rest is kept.
Each character is looked at a bounded number of times, however hostile the text.

Three leniencies, all met in the wild: parameters parted by blanks instead of commas, values that need quotes but have
none (`resource_metadata=https://host/path`), and prose where a parameter should be. One thing is not guessed: after
a quote that never ends, nothing more is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, final

from msgspec import Struct, field

__all__ = ["USUAL_KEY_HEADER", "Challenge", "challenge_for", "key_header", "parse_www_authenticate"]

USUAL_KEY_HEADER: Final = "X-API-Key"

# The quantifiers are possessive: nothing is read twice because something behind it does not fit.
_SEPARATOR: Final = re.compile(r"[ \t\r\n,]*+")
_WORD: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++")
_EQUALS: Final = re.compile(r"[ \t]*+=[ \t]*+")
_QUOTED: Final = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_UNQUOTED: Final = re.compile(r'[^ \t\r\n,"]++')
_TOKEN68: Final = re.compile(r"[ \t]++([A-Za-z0-9\-._~+/]++=*+)(?=[ \t]*+(?:,|\Z))")
# Two words and no "=": the rest of a sentence that someone forgot to quote, not a scheme.
_PROSE: Final = re.compile(r"[ \t]++[^ \t\r\n,=\"]++[ \t]++(?![=,]|\Z)")
_GARBAGE: Final = re.compile(r'[^ \t\r\n,"]++')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


@final
class Challenge(Struct, frozen=True):
    """One way to authenticate that a server offers."""

    scheme: str
    """In lower case: `bearer`, `dpop`, `basic`."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """By name in lower case; of two with one name, the first."""
    token: str | None = None
    """What schemes such as Negotiate have in place of parameters."""


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
    """The first challenge of the first scheme that is there: name the preferred scheme first."""
    offered = list(challenges)
    names = (scheme.lower() for scheme in schemes)
    return next((challenge for scheme in names for challenge in offered if challenge.scheme == scheme), None)


def key_header(challenge: Challenge) -> str | None:
    """The header that an API key goes into, by an `ApiKey` challenge; None if the challenge is for something else."""
    if challenge.scheme != "apikey":
        return None
    named = challenge.parameters.get("header", "")
    # People copy the name into a command, so it has to be one.
    return named if len(named) <= 100 and _WORD.fullmatch(named) else USUAL_KEY_HEADER


def _value(header: str, at: int) -> tuple[int, str | None]:
    """Where a parameter's value ends, and the value; None if it has none that can be read."""
    if quoted := _QUOTED.match(header, at):
        return quoted.end(), _ESCAPED.sub(r"\1", quoted[1])
    if plain := _UNQUOTED.match(header, at):
        return plain.end(), plain[0]
    return at, None


def _skip(header: str, at: int) -> int:
    """Past what is no word: a quoted string as a whole, so that commas in it part nothing."""
    if header.startswith('"', at):
        quoted = _QUOTED.match(header, at)
        return quoted.end() if quoted else len(header)
    garbage = _GARBAGE.match(header, at)
    return garbage.end() if garbage else at
