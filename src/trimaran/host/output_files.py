"""Outputs that were cut, as files: for other processes of the same user, and for the time after this one.

A file has mode 0600, in a directory of mode 0700, and its name is the output's id, which nobody can guess. Files are
removed when they are old, and the oldest when there are too many or they are too large. Nothing here raises because of a
disk: an output that cannot be written is an output that only this process has.

`OutputStore` (`output_limits.py`) is the only caller. Writing is done in a thread of its own, reading where it is called.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Final, final

from trimaran.daemon_threads import DaemonExecutor
from trimaran.files import read_file

log: Final = logging.getLogger("trimaran.host")

_ID: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")
_MOST_LISTED: Final = 10_000  # files looked at when room is made; more are not ours


@final
class OutputFiles:
    """A directory of outputs.

    Args:
        folder: It is made if it is not there.
        most: Files at the same time.
        most_bytes: Bytes of all files together.
        ttl: Seconds that a file is kept.
        clock: Returns the time, in seconds since 1970.
    """

    def __init__(
        self, folder: Path, *, most: int, most_bytes: int, ttl: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._most = most
        self._most_bytes = most_bytes
        self._ttl = ttl
        self._clock = clock
        self._writer = DaemonExecutor(1, "trimaran-outputs")

    def keep(self, output_id: str, owner: str, text: str) -> Future[None]:
        """Write an output, in the background."""
        return self._writer.submit(self._keep, output_id, owner, text)

    def _keep(self, output_id: str, owner: str, text: str) -> None:
        temporary = self._folder / f".{output_id}.part"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            data = text.encode("utf-8", "surrogatepass")
            self._make_room(len(data))
            # Created with its mode, so that there is no moment in which others can read it.
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
            temporary.replace(self._place(output_id, owner))
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            log.warning("an output that was cut is not on disk, only in this process: %s", error)

    def read(self, output_id: str, owner: str) -> str | None:
        """An output that this or another process wrote; None if there is none, or it is too old."""
        if not _ID.fullmatch(output_id):
            return None
        place = self._place(output_id, owner)
        try:
            if place.stat().st_mtime + self._ttl <= self._clock():
                place.unlink(missing_ok=True)
                return None
            return read_file(place, self._most_bytes).decode("utf-8", "surrogatepass")
        except (OSError, ValueError):
            return None

    def _place(self, output_id: str, owner: str) -> Path:
        """Another owner has another name for the same id."""
        return self._folder / f"{output_id}.{hashlib.sha256(owner.encode()).hexdigest()[:16]}.txt"

    def _make_room(self, size: int) -> None:
        now = self._clock()
        files: list[tuple[float, int, Path]] = []
        for number, place in enumerate(self._folder.iterdir()):
            if number >= _MOST_LISTED:
                break
            with contextlib.suppress(OSError):
                status = place.stat()
                if status.st_mtime + self._ttl <= now:
                    place.unlink(missing_ok=True)
                elif place.suffix == ".txt":
                    files.append((status.st_mtime, status.st_size, place))
        files.sort()
        total = sum(length for _, length, _ in files)
        while files and (len(files) >= self._most or total + size > self._most_bytes):
            _, length, place = files.pop(0)
            total -= length
            with contextlib.suppress(OSError):
                place.unlink(missing_ok=True)

    def close(self) -> None:
        """Wait until everything is written."""
        self._writer.shutdown(wait=True)
