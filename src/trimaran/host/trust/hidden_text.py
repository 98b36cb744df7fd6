"""Characters that nobody sees: find them, read what they spell, and take them out.

Pure. A model reads every character of a text and a person does not, so a text can say one thing to each. Four alphabets are
known to carry whole sentences: the tags of plane 14 (an ASCII of their own), variation selectors (256 of them, so a byte
each), blanks without width (two or more of them spell bits), and the controls of writing direction, which show a text in
another order.

The same characters have honest uses, which stay: a selector after an emoji, joiners inside emoji and in Arabic and Indic
words, the tags of the three flags that have them, direction marks in a text that holds right-to-left letters, a byte order
mark at the start. Time is linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import Final, Literal, NamedTuple

HiddenKind = Literal["tags", "selectors", "zero-width", "direction", "blank"]

_TAGS: Final = "\U000e0000-\U000e007f"
_SELECTORS: Final = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_ZERO_WIDTH: Final = "\u200b\u200c\u200d\u2060\ufeff\u180e"
_DIRECTION: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_BLANK: Final = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u2061-\u2065\u206a-\u206f\u3164\uffa0\ufff0-\ufff8"
    "\U000e0080-\U000e00ff\U000e01f0-\U000e0fff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_RUN: Final = re.compile(f"[{_TAGS}{_SELECTORS}{_ZERO_WIDTH}{_DIRECTION}{_BLANK}]+")
# The kind of a run is that of its worst character, in this order.
_KINDS: Final[tuple[tuple[HiddenKind, re.Pattern[str]], ...]] = (
    ("tags", re.compile(f"[{_TAGS}]")),
    ("direction", re.compile("[\u202d\u202e]")),
    ("selectors", re.compile(f"[{_SELECTORS}]")),
    ("zero-width", re.compile(f"[{_ZERO_WIDTH}]")),
    ("direction", re.compile(f"[{_DIRECTION}]")),
    ("blank", re.compile(f"[{_BLANK}]")),
)
_FLAG: Final = re.compile("[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,7}\U000e007f")
_RIGHT_TO_LEFT: Final = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_DIRECTION_MARKS: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202c\u2066-\u2069]+")
_EMOJI_JOINT: Final = re.compile("\ufe0f?\u200d|\ufe0f\u20e3?")
_MOST_READ: Final = 4000  # characters of a run that are read; enough to show what it says


class HiddenRun(NamedTuple):
    """Characters next to each other that nobody sees."""

    kind: HiddenKind
    start: int
    length: int
    says: str
    """The text that they spell, as far as it can be read."""


def has_invisible(text: str) -> bool:
    """Whether any character of a text is not drawn, be that honest or not."""
    return not text.isascii() and _RUN.search(text) is not None


def find_hidden(text: str) -> list[HiddenRun]:
    """The runs of hidden characters that have no honest use where they stand."""
    if text.isascii():
        return []
    runs: list[HiddenRun] = []
    for match in _RUN.finditer(text):
        if not _is_honest(text, match):
            run = match[0]
            kind: HiddenKind = next(kind for kind, pattern in _KINDS if pattern.search(run))
            runs.append(HiddenRun(kind, match.start(), len(run), _read(kind, run[:_MOST_READ])))
    return runs


def strip_hidden(text: str) -> str:
    """The text without hidden characters that have no honest use where they stand."""
    if text.isascii():
        return text
    return _RUN.sub(lambda match: match[0] if _is_honest(text, match) and match.start() else "", text)


def _is_honest(text: str, match: re.Match[str]) -> bool:
    run, start, end = match[0], match.start(), match.end()
    before, after = text[start - 1 : start], text[end : end + 1]
    if start == 0:
        return run == "\ufeff"  # a byte order mark
    if before == "\U0001f3f4":
        return _FLAG.fullmatch(run) is not None
    if len(run) == 1 and "\ufe00" <= run <= "\ufe0f":
        return not before.isascii() or before in "#*0123456789"
    if len(run) == 1 and run >= "\U000e0100":
        return unicodedata.category(before) == "Lo" and before >= "\u3400"
    if _EMOJI_JOINT.fullmatch(run) and _is_pictorial(before):
        return run.startswith("\ufe0f") or _is_pictorial(after)
    if run in ("\u200c", "\u200d"):
        return _is_joining(before) or _is_joining(after)
    if _DIRECTION_MARKS.fullmatch(run) and len(run) <= 2:
        return _RIGHT_TO_LEFT.search(text) is not None
    return False


def _is_pictorial(character: str) -> bool:
    """Emoji, their skin tones, and arrows and the like that become emoji."""
    return bool(character) and (character >= "\U0001f000" or unicodedata.category(character) in ("So", "Sk", "Sm"))


def _is_joining(character: str) -> bool:
    """A letter of a script that writes letters differently when they are joined."""
    return "\u0600" <= character <= "\u1cff" or "\ua840" <= character <= "\uabff"


def _read(kind: HiddenKind, run: str) -> str:
    if kind == "tags":
        return "".join(chr(ord(sign) - 0xE0000) for sign in run if "\U000e0020" <= sign <= "\U000e007e")
    if kind == "selectors":
        return _printable(bytes(byte for sign in run if (byte := _selector_byte(sign)) is not None))
    return _read_bits(run) if kind == "zero-width" else ""


def _selector_byte(sign: str) -> int | None:
    if "\ufe00" <= sign <= "\ufe0f":
        return ord(sign) - 0xFE00
    return ord(sign) - 0xE0100 + 16 if "\U000e0100" <= sign <= "\U000e01ef" else None


def _read_bits(run: str) -> str:
    """Two signs that spell bits, eight to a letter; which of them is 1 is tried out."""
    pair = [sign for sign, _ in Counter(run).most_common(2)]
    if len(pair) < 2 or len(run) < 16:
        return ""
    signs = [sign for sign in run if sign in pair]
    for one_bit in pair:
        bits = "".join("1" if sign == one_bit else "0" for sign in signs)
        if text := _printable(bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))):
            return text
    return ""


def _printable(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    signs = sum(sign.isprintable() and sign.isascii() for sign in text)
    return text if signs >= 2 and signs >= 0.9 * len(text) else ""


# --- letters that look like others -----------------------------------------------------------------------------------

# Letters of other scripts that are drawn like a Latin one; NFKC knows the full-width and the mathematical ones.
_LOOKALIKES: Final = str.maketrans(
    "АВЕЅІЈКМНОРСТУХѴаеоорсухіјѕһԁԛԝүνοραιυτκΑΒΕΖΗΙΚΜΝΟΡΤΥΧɑɡɩӏΙօսՏցհոոլꓐꓓꓖꓗꓜꓡꓢꓣꓔꓴꓥꓦꓪꓫꓬꓮꓰꓲꓳᴀᴄᴅᴇᴊᴋᴍɴᴏᴘᴛᴜᴠᴡᴢ",
    "ABESIJKMHOPCTYXVaeoopcyxijshdqwyvopaiutkABEZHIKMNOPTYXagilIouSghnnlBDGKZLSRTUAVWXYAEIOacdejkmnoptuvwz",
)


def fold_lookalikes(text: str) -> str:
    """The text with letters of other scripts as the Latin letters that they look like."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_LOOKALIKES)
