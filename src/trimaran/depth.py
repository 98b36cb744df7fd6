"""How deep JSON may nest, and the check of that before anything parses it.

An interpreter has a limit of its own: 1,000 levels on Python 3.11, 1,500 on 3.12 and 10,000 on 3.13, less the frames that
are on the stack already. One worker would refuse what another one reads, and code that walks a value recursively gives
up earlier than the parser. So the library has one limit, for every door and on every version.

The check costs two `bytes.count`: JSON with no more than `MAX_DEPTH` opening brackets cannot be deeper. Only beyond that
it looks at the text itself, without a loop per character: it takes the strings out, keeps nothing but brackets, and then
removes the innermost pairs, level by level. The cost is linear in the length, whatever the text says.

Numbers at the very ends of a double's range (1e300) take the parser five hundred times as long as others. Here, too, the
text is looked at only if it is long enough to hold too many of them.

Names that an object has twice: the last one counts, in `msgspec`, in `json` and in JavaScript alike. Nothing here or
elsewhere looks at undecoded bytes to learn what a name says.

Pure.
"""

from __future__ import annotations

import re
from itertools import accumulate, islice
from typing import Any, Final, TypeVar, overload

import msgspec

MAX_DEPTH: Final = 128
"""Levels of arrays and objects in one text. serde_json, and so the Rust SDK, stops there as well; .NET stops at 64. The
deepest of a thousand published tool lists has 28. The most expensive walk here takes three frames per level, so 128 levels
leave more than half of the interpreter's 1,000 frames to whoever calls."""

T = TypeVar("T")


MAX_CONTAINERS: Final = 200_000
"""Arrays and objects in one message, in either direction. Each takes 64 bytes and more where the text has two, and the parser
does not let go of the event loop: 8 MiB of `[]` are half a gigabyte and more than a second. 200,000 take up to 0.1 s."""


MAX_MEMBERS: Final = 100_000
MAX_ANSWER_MEMBERS: Final = 400_000
"""In one message of a server: tables are answers more often than arguments, and few of their names are new."""
MAX_VALUES: Final = 500_000
"""Members of objects, and values, in one message to a server. Reading a member takes up to 1 us and a value 0.1 us: 8 MiB
of them would be a second. So many take up to 0.1 s. A hundred embeddings of 1,536 numbers pass."""

MAX_EXTREME_NUMBERS: Final = 2_000
"""Numbers beyond 1e200 or below 1e-200 in one text. Each of 1e290 and more, or of 1e-308, takes the parser 20 us and six
bytes: 8 MiB of them are half a minute. 2,000 take 40 ms."""


class TooDeep(msgspec.DecodeError):
    """The text nests deeper than `MAX_DEPTH`, has too many parts, or numbers that are slow to read.

    It was not parsed.
    """

    def __init__(self, reason: str = f"nested too deeply: more than {MAX_DEPTH} levels of arrays and objects") -> None:
        super().__init__(reason)


_SMALL: Final = 4096  # bytes; up to here counting is quicker than hopping from bracket to bracket
_NOT_STRUCTURE: Final = bytes(code for code in range(256) if code not in b'[]{}"')
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NOT_COUNTED: Final = bytes(code for code in range(256) if code not in b'":,')
_FIRST_LOOK: Final = 1_500_000  # bytes
_RUN: Final = re.compile(rb"\[+|\]+")
_EXTREMES_BYTES: Final = MAX_EXTREME_NUMBERS * len("1e300,")  # the shortest text with so many
_EXPONENTS: Final = bytes.maketrans(b"E2", b"e3")
_SIGNS_AND_ZEROS: Final = b"+-0"
_EXTREME: Final = re.compile(rb"[eE][+-]?0*[23][0-9]{2}")


def check_depth(
    data: bytes | bytearray | memoryview | msgspec.Raw | str,
    *,
    inside: int = 0,
    max_containers: int | None = None,
    max_members: int = MAX_MEMBERS,
) -> None:
    """Refuse JSON that nests too deeply, or is slow to parse. Invalid JSON may pass: a parser stops at the first error.

    Args:
        data: the text.
        inside: levels around it, for a part of a text.
        max_containers: arrays and objects there may be; then members and values are counted, too.
        max_members: members of objects there may be, then.

    Raises:
        TooDeep: It does.
    """
    levels = MAX_DEPTH - inside
    if len(data) <= 2 * levels:
        return
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    elif not isinstance(data, bytes):
        data = bytes(data)
    if _has_many_brackets(data, levels):
        structure = _structure(data)
        if max_containers is not None and structure.count(b"[") > max_containers:
            raise TooDeep(f"more than {max_containers} arrays and objects in one message")
        if count_levels(structure) > levels:
            raise TooDeep
    if len(data) > _EXTREMES_BYTES and _has_more(data, (b",",), MAX_EXTREME_NUMBERS):
        if max_containers is not None:
            _count_parts(data, max_members)
        _count_extremes(data)


@overload
def decode_json(data: bytes | bytearray | memoryview | msgspec.Raw | str) -> Any: ...
@overload
def decode_json(data: bytes | bytearray | memoryview | msgspec.Raw | str, type: type[T]) -> T: ...
def decode_json(data: bytes | bytearray | memoryview | msgspec.Raw | str, type: Any = Any) -> Any:
    """Decode JSON that comes from outside, within the limit.

    Raises:
        msgspec.DecodeError: It is not JSON, not of this type (ValidationError), or nests too deeply (TooDeep). All of
            them, and UnicodeDecodeError, are ValueErrors.
    """
    check_depth(data)
    try:
        return msgspec.json.decode(data, type=type)
    except RecursionError:  # the caller itself is near the end of the stack
        raise TooDeep from None


def _has_many_brackets(data: bytes, levels: int) -> bool:
    """Whether there are more opening brackets than levels allowed."""
    if len(data) <= _SMALL:
        return data.count(b"[") + data.count(b"{") > levels
    return _has_more(data, (b"[", b"{"), levels)


def _has_more(data: bytes, marks: tuple[bytes, ...], limit: int) -> bool:
    """Are there more of these characters? By memchr: twenty times as fast as count, for a picture in base64, say."""
    occurrences = 0
    for mark in marks:
        position = data.find(mark)
        while position >= 0:
            occurrences += 1
            if occurrences > limit:
                return True
            position = data.find(mark, position + 1)
    return False


def _count_extremes(data: bytes) -> None:
    """Refuse a text with too many numbers that have an exponent of 200 to 399."""
    most = MAX_EXTREME_NUMBERS
    # "e-0308" becomes "e38", and "E+299" "e399". Text has such places as well, so many of them only mean: look closer.
    if (
        data.count(b"e") + data.count(b"E") > most
        and data.translate(_EXPONENTS, _SIGNS_AND_ZEROS).count(b"e3") > most
        and next(islice(_EXTREME.finditer(_outside_strings(_without_escapes(data))), most, None), None)
    ):
        raise TooDeep(f"more than {most} numbers beyond 1e200 or below 1e-200 in one message")


def _without_escapes(data: bytes) -> bytes:
    """Without those that matter for where a string ends."""
    return data.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in data else data


def _count_parts(data: bytes, max_members: int) -> None:
    """Refuse a text with too many members or values. A colon or a comma in a string does not count."""
    counted = ((b":", max_members, "members of objects"), (b",", MAX_VALUES, "values"))
    if not any(len(data) > 2 * most and data.count(mark) > most for mark, most, _ in counted):
        return
    for part in (data[:_FIRST_LOOK], data):  # what is made to be slow is so from its beginning
        marks = _without_escapes(part).translate(None, _NOT_COUNTED)
        if marks.count(b'"') > 2 * (
            MAX_MEMBERS + MAX_VALUES
        ):  # so many strings are slow to take out, and too many values
            raise TooDeep(f"more than {MAX_VALUES} values in one message")
        marks = _outside_strings(marks)
        for mark, most, label in counted:
            if marks.count(mark) > most:
                raise TooDeep(f"more than {most} {label} in one message")


def _structure(data: bytes) -> bytes:
    """The brackets outside of strings, all of them written as square ones."""
    return _outside_strings(_without_escapes(data).translate(_ONE_KIND, _NOT_STRUCTURE))


def _outside_strings(marks: bytes) -> bytes:
    """The parts of a text outside of its strings, or of the quotes and some other marks of it."""
    if b'"' not in marks:
        return marks
    # Two adjacent quotes, of one string or of two, can go: what is inside of a string stays inside.
    return b"".join(marks.replace(b'""', b"").split(b'"')[::2])


def count_levels(structure: bytes) -> int:
    """The most square brackets open at the same time, in a text of nothing else."""
    depth = 0
    while structure:
        outer = structure.replace(b"[]", b"")
        if len(outer) > len(structure) * 7 // 8:
            # Few innermost pairs among many brackets: long runs, which are quicker to add up than to peel.
            runs = (len(run) if run[0] == 0x5B else -len(run) for run in _RUN.findall(structure))
            return depth + max(accumulate(runs), default=0)
        structure = outer
        depth += 1
    return depth
