"""Texts of a document made short and plain, since a model reads them with every message.

Markup is left out: tags of HTML, and the targets of links. A text that is too long ends with a sentence where it can.
"""

from __future__ import annotations

import re
from typing import Final

MAX_DESCRIPTION: Final = 200
"""Characters that describe one argument: what it is, and an example."""

# By name: in "GET /users/<id>" the brackets are the message.
_INLINE_TAGS: Final = re.compile(r"</?(?:code|b|i|em|strong|a|span|sup|sub|var)(?:\s[^<>]*)?>", re.I)
_BLOCK_TAGS: Final = re.compile(
    r"</?(?:p|br|ul|ol|li|div|pre|h[1-6]|table|tbody|thead|tr|td|th|dl|dt|dd|note|important|fullname)(?:\s[^<>]*)?/?>",
    re.I,
)
_LINKS: Final = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_ENDS: Final = re.compile(r"(?<!\bi\.e)(?<!\be\.g)[.!?](?=\s)")
_NO_LETTERS: Final = re.compile(r"[\W_]+")
_ARTICLES: Final = re.compile(r"^(?:the|an?)\s+", re.I)


def describe(text: str, name: str) -> str:
    """The text about a member, or nothing if it only repeats the name ("The first name." of `first_name`)."""
    text = shorten(text)
    if len(text) > len(name) * 2 + 8:
        return text
    bare = _NO_LETTERS.sub("", _ARTICLES.sub("", text))
    return "" if bare.casefold() == _NO_LETTERS.sub("", name).casefold() else text


def shorten(text: str, most: int = MAX_DESCRIPTION) -> str:
    """The text in one line of at most `most` characters."""
    if "<" in text:
        text = _BLOCK_TAGS.sub(" ", _INLINE_TAGS.sub("", text))
    if "](" in text:
        text = _LINKS.sub(r"\1", text)
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    ends = [match.end() for match in _ENDS.finditer(text, most // 2, most)]
    return text[: ends[-1]] if ends else text[: most - 4].rsplit(" ", 1)[0] + " ..."
