"""Files of configuration on the disk: read as text, replaced as a whole.

Before a file is replaced it is copied to `NAME.trimaran-bak`. The new text is written to another file, flushed to the
disk and renamed, so a reader finds the old file or the new one, never half of one. A symbolic link stays:
its target is replaced. A file that changed between reading and writing is not overwritten. A new file is for its
owner alone, since it may hold secrets; an existing file keeps its mode.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import stat
import tempfile
from pathlib import Path, PurePath
from typing import Final

from trimaran.files import read_file

from .model import ConfigUnusable, Problem
from .tomltext import MAX_TOML

BACKUP: Final = ".trimaran-bak"
# Claude Code's own file grows to some MiB, and JSON is read at 5 MiB/s at worst. The readers of TOML and YAML take longer,
# and what people write by hand has a hundredth of these.
_LARGEST: Final = 16 * 1024 * 1024
_LARGEST_OF: Final = {".toml": MAX_TOML, ".yaml": 64 * 1024, ".yml": 64 * 1024}


def _io(path: PurePath, message: str) -> Problem:
    return Problem(str(path), message, kind="io")


def read_text(path: PurePath) -> str | None:
    """The file's text, without a byte order mark; None if there is no file."""
    file = Path(path)
    try:
        data = read_file(file, _LARGEST_OF.get(path.suffix.lower(), _LARGEST))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.EINVAL):
            raise ConfigUnusable(_io(path, "this is not a file: move it away, or name another")) from None
        raise ConfigUnusable(_io(path, f"this cannot be read: {error.strerror or error}")) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = Problem(str(path), "this is not UTF-8: save the file as UTF-8", line=line, kind="config_parse")
        raise ConfigUnusable(problem) from None


def replace_text(path: PurePath, text: str, before: str | None) -> Path | None:
    """Replace `before`, the text that was read, by the new text. Returns the backup, if there was a file."""
    file = Path(path)
    try:
        file = file.resolve() if file.is_symlink() else file
        file.parent.mkdir(parents=True, exist_ok=True)
        if read_text(file) != before:
            raise ConfigUnusable(_io(path, "this was changed by somebody else meanwhile: run it again"))
        mode = None if before is None else stat.S_IMODE(file.stat().st_mode)
        backup = None
        if before is not None:
            backup = file.with_name(file.name + BACKUP)
            write_whole(backup, file.read_bytes(), mode)
        write_whole(file, text.encode(), mode)
    except OSError as error:
        raise ConfigUnusable(_io(path, f"this cannot be written: {error.strerror or error}")) from None
    return backup


def write_whole(file: Path, data: bytes, mode: int | None = None) -> None:
    """Replace or create a file in one step; by default for its owner alone."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            os.chmod(name, mode)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def remove_unfinished(file: Path) -> None:
    """Remove what `write_whole` leaves of a file when its process is killed. Only for who holds a lock on writing it."""
    for leftover in file.parent.glob(f".{glob.escape(file.name)}.*"):
        with contextlib.suppress(OSError):
            leftover.unlink()
