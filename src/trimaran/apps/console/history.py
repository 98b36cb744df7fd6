"""The lines that the person typed, for Up and Down; stored in a file of the person's, if there is one.

A line with an argument that looks like a secret (`token=...`, a key as services make them) is remembered for as long as the
console runs, and never written. The file is readable by its owner alone, is replaced as a whole, and is no reason to
fail: where it cannot be read or written there is no history, and that is all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Final, cast, final

from trimaran.depth import check_depth
from trimaran.files import read_file
from trimaran.host.config import Machine
from trimaran.protocol.mask import TOKEN

_MOST: Final = 500  # lines
_LONGEST: Final = 10_000  # characters of a line that is kept: pasted pages are not for up and down
_LARGEST: Final = 4 * 1024 * 1024  # bytes of a file that is ours

# An argument, `api_key=...` or `"api_key": ...`, by its name; and addresses with a password in them.
_NAME: Final = re.compile(
    r"""(?:secret|token|passw(?:or)?d|passphrase|api[-_]?key|private[-_]?key|credential|auth(?!or)|bearer|cookie
        |(?<![a-z])(?:pin|otp|pwd)(?![a-z]))[\w-]*(?:["']\s*:|\s*:?=)""",
    re.IGNORECASE | re.VERBOSE,
)
_LOGIN: Final = re.compile(r"://[^/\s]*@")


def looks_secret(line: str) -> bool:
    """True if a line may hold a secret, which must not be stored in a file."""
    return any(pattern.search(line) is not None for pattern in (_NAME, _LOGIN, TOKEN))


def default_file() -> Path:
    """In the user's directory for state: `$XDG_STATE_HOME/trimaran/console-history.json`."""
    machine = Machine.here()
    base = machine.app_data if machine.is_windows else machine.named_by("XDG_STATE_HOME")
    return Path(base or machine.in_home(".local", "state")) / "trimaran" / "console-history.json"


@final
class History:
    """Lines, the oldest first, and a place among them.

    Args:
        file: Where they are kept; None keeps them in memory.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lines: list[str] = _read(file) if file is not None else []
        self._at = len(self._lines)
        self._draft = ""
        self._unwritten: set[str] = set()

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, line: str, *, is_written: bool = True) -> None:
        """Remember a line that was sent; in memory alone, if it is not to be written. The same line twice in a row is one."""
        if not is_written:
            self._unwritten.add(line)
        if line.strip() and len(line) <= _LONGEST and self._lines[-1:] != [line]:
            self._lines = [*self._lines, line][-_MOST:]
        self._at = len(self._lines)
        self._draft = ""

    def older(self, draft: str) -> str | None:
        """The line before; None at the beginning. The typed text comes back at the end of the history."""
        if self._at == 0:
            return None
        if self._at == len(self._lines):
            self._draft = draft
        self._at -= 1
        return self._lines[self._at]

    def newer(self) -> str | None:
        """The line after; after the last one, what was being typed; None if that is it already."""
        if self._at == len(self._lines):
            return None
        self._at += 1
        return self._draft if self._at == len(self._lines) else self._lines[self._at]

    def save(self) -> None:
        """Write the file, if there is one. Another console may have written it meanwhile: the last one to end wins."""
        if self._file is None:
            return
        lines = [line for line in self._lines if line not in self._unwritten and not looks_secret(line)]
        text = json.dumps(lines, ensure_ascii=False)
        with contextlib.suppress(OSError, UnicodeError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # mkstemp makes it 0600 from the beginning.
            handle, name = tempfile.mkstemp(prefix=".console-history-", dir=self._file.parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(name, self._file)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise


def _read(file: Path) -> list[str]:
    try:
        raw = read_file(file, _LARGEST)
        check_depth(raw)
        stored: Any = json.loads(raw)  # msgspec would refuse the file for half of a character in one line
    except (OSError, ValueError):
        return []
    lines = cast("list[Any]", stored) if isinstance(stored, list) else []
    return [line for line in lines if isinstance(line, str) and _can_be_typed(line)][-_MOST:]


def _can_be_typed(line: str) -> bool:
    """True if a line can be typed. Anything else in the file would reach the terminal unchanged."""
    return len(line) <= _LONGEST and all(character in "\n\t" or character.isprintable() for character in line)
