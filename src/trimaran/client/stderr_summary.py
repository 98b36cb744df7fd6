"""Which lines of a program's stderr explain what became of it.

The cause rarely stands at the very end: tracebacks of Python, stack traces of Node and lists of validation errors follow
it, or usage texts do. So lines that name an error come first, whole, then the place in a Python file, and the last lines
fill what room is left. A tool that failed names its entry in the log of its server. Pure: it reads lines and decides
nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_SHOWN: Final = 5
_LONGEST: Final = 2000  # a line longer than this is a dump, not a sentence
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_CAUSE: Final = re.compile(
    # A level of a log, somewhere near the beginning.
    r".{0,100}?\b(?:ERROR|FATAL|CRITICAL|PANIC|npm error)\b|"
    # The name of an exception, or a plain word for a failure, at the head: inside an exception group behind its frame.
    r"[\s|+>*\[-]*(?:[\w.]*(?:Error|Exception|SystemExit)\b|"
    r"(?:[Ee]rror|[Ff]atal|[Cc]ritical|[Pp]anic|[Uu]ncaught|[Uu]nhandled|[Mm]issing|[Ff]ailed|[Cc]annot|[Cc]ould not|[Uu]nable to)\b)|"
    # An address that a person is to visit.
    r"(?!.*errors\.pydantic).*\b(?:[Vv]isit|[Oo]pen|[Ll]og ?in|[Ss]ign ?in|[Aa]uthori[sz]e)\b.*https?://",
)
_PLACE: Final = re.compile(r'[\s|]*File "[^"]+", line [0-9]+')
_FRAME: Final = re.compile(r'[\s|]*(?:at |File "|[\^~]+\s*$)|node:internal|Node\.js v')

_NUMBER: Final = re.compile(r"under error ([0-9a-f]{8})\b")  # as `server/tools.py` says it
_LOGGED: Final = re.compile(r"failed \[([0-9a-f]{8})\]$")  # as `server/handlers.py` logs it
# Code that is not the user's: packages, the standard library, and this library.
_INSTALLED: Final = ("site-packages", "/lib/python", str(Path(__file__).parents[1]))


def telling_lines(lines: Sequence[str], most: int = _SHOWN) -> list[str]:
    """At most this many lines, in their order: the first and the last that name a cause, where in Python, then the end."""
    numbered = [(number, _COLOUR.sub("", line).rstrip()) for number, line in enumerate(lines) if line.strip()]
    causes = [number for number, line in numbered if _CAUSE.match(line, 0, _LONGEST)]
    chosen = dict.fromkeys([*causes[:1], *causes[-(most // 2) :]][:most])
    places = [number for number, line in numbered if _PLACE.match(line) and causes and number < causes[-1]]
    if len(chosen) < most:
        chosen.update(dict.fromkeys(places[-1:]))
    for number, line in reversed(numbered):
        if len(chosen) >= most:
            break
        if not causes or not _FRAME.match(line):
            chosen[number] = None
    return [_whole(line) for number, line in numbered if number in chosen]


def explain_stderr(lines: Sequence[str]) -> str:
    """`; its stderr says:` and the lines that tell most, each on a line of its own; or that there are none."""
    excerpt = telling_lines(lines)
    if not excerpt:
        return "; it wrote nothing on stderr"
    return "; its stderr says:" + "".join(f"\n    {line}" for line in excerpt)


def failure_numbers(text: str) -> list[str]:
    """The numbers under which a server's log has the failures that a result tells of."""
    return _NUMBER.findall(text)


def lines_of_failure(failures: Iterable[str], log: Sequence[str]) -> list[str]:
    """The place where a tool failed, and its error, from the log that its process wrote to stderr.

    A failure names its entry in the log by a number, which stands there in brackets, above the traceback. The place is the
    last one in code that is not installed, if there is one: what people can change.
    """
    numbers = {number for text in failures for number in failure_numbers(text)}
    entries = [(at, match[1]) for at, line in enumerate(log) if (match := _LOGGED.search(line))]
    start = next((at for at, number in entries if number in numbers), len(log))
    lines = log[start : next((at for at, _ in entries if at > start), len(log))]
    places = [at for at, line in enumerate(lines) if line.startswith('  File "')]
    if not places:
        return []
    own = [at for at in places if not any(word in lines[at] for word in _INSTALLED)]
    place = (own or places)[-1]
    after = next((at for at in range(place + 1, len(lines)) if not lines[at].startswith("    ")), len(lines))
    error = next((line for line in lines[places[-1] :] if not line.startswith(" ")), "")
    return [line for line in (*lines[place:after], error) if line.strip(" ^~")]


def _whole(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} (and {len(line) - _LONGEST} characters more)"
