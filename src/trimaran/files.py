"""Read a file that somebody else may have written: whole, within a limit, and without waiting for it.

In the place of a file there may be anything: `/dev/zero`, which never ends; a pipe, which waits for a writer; a
gigabyte. The file is opened without waiting, must be a file, and is read up to its limit. All refusals are OSErrors, so
whoever reports that a file cannot be read reports these, too; `strerror` says what is wrong.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import PurePath
from typing import Final

_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def read_file(path: str | PurePath, most: int, *, at_least_head: bool = False) -> bytes:
    """The content of a regular file, a symbolic link to one included.

    Args:
        path: the file.
        most: bytes that it may have.
        at_least_head: of a larger one, give the first `most` bytes instead of refusing it.

    Raises:
        OSError: there is no such file, it is no regular file (EINVAL), or larger than that (EFBIG).
    """
    descriptor = os.open(path, _FLAGS)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, "it is a folder", str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a file", str(path))
        data = file.read(most) if at_least_head else file.read(most + 1)
    if len(data) > most:
        size = max(status.st_size, len(data))
        raise OSError(
            errno.EFBIG, f"it has {size} bytes, and at most {most} are read: is it the right file?", str(path)
        )
    return data


def why_not_ours(status: os.stat_result) -> str:
    """Why a file of the user's own must not be believed; empty if it may: it is no file, another's, or others may write it."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a file"
    return _why_others_may_write(status, "600")


def why_folder_not_ours(status: os.stat_result) -> str:
    """Why what is missing in a folder, or lies in it, tells nothing: another could have put or taken it. Empty if it does."""
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    return _why_others_may_write(status, "700")


def _why_others_may_write(status: os.stat_result, remedy: str) -> str:
    if sys.platform != "win32":
        if status.st_uid != os.geteuid():
            return f"it belongs to another user (uid {status.st_uid})"
        if stat.S_IMODE(status.st_mode) & 0o022:
            return f"others may write to it (chmod {remedy} it, if it is as you left it)"
    return ""
