"""A server's text for a person's terminal: control characters are escaped, and long texts are cut.

A server's text is not trusted. Control characters would move the cursor and change the title; marks
that turn the direction of writing, and invisible characters, would make a text look like another. They are written
as escapes, as in source code.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

# C0 without tab and newline, DEL, C1; the marks that turn the direction of what follows; line ends of other kinds; halves of
# a pair, which no terminal can be sent; the tags and selectors of plane 14, which spell out text that is not shown; and what
# else nobody sees, soft hyphens, blanks without width and fillers, but for the joiners that scripts and emoji need.
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
    "\U000e0000-\U000e0fff\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u2800\u3164\ufeff"
    "\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]"
)


def safe(text: str) -> str:
    """The text with control characters escaped."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))


def safe_json(text: str) -> str:
    """JSON with control characters as JSON escapes: it has the same meaning."""

    def escape(match: re.Match[str]) -> str:
        units = match[0].encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return _CONTROL.sub(escape, text)


def visible(text: str) -> str:
    """The text with everything that a terminal would act on, or not show, spelled out, line ends too."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in safe(text))


def in_one_line(text: str, most: int = 200) -> str:
    """The same, short and without line ends: for the middle of a sentence of ours."""
    # Cut first, so that a text of megabytes costs little; blanks may shrink to nothing.
    line = " ".join(safe(text[: 4 * most]).split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 3]}..."


def shortened(text: str, most: int) -> str:
    """The safe text, cut to a length; the end says how much is missing."""
    if len(text) <= most:
        return safe(text)
    return f"{safe(text[:most])}\n... and {len(text) - most:,} more characters"


def to_json(value: Any) -> str:
    """JSON as it is shown to people."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
