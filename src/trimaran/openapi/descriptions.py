"""Texts of a document made short and plain, since a model reads them with every message.

Markup is left out: tags of HTML, and the targets of links. A text that is too long ends with a sentence where it can.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["shorten"]

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
