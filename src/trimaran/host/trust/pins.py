"""Pins: the definitions of each server that a person has agreed to, kept on the disk.

A server that was harmless when it was approved can list other words later. So the host keeps a digest of each definition,
and the definition itself for the difference that a person is shown. `review.py` compares; this file only keeps.

One file per server and target, `pins/NAME-FINGERPRINT.json`, mode 0600, replaced as a whole under a lock that all processes
share, and signed: HMAC-SHA256 with a key of the user's, which lies in the system's keyring, or in a file of mode 0600 where
there is none. The fingerprint is that of the command, or of the URL and the issuer, so a server that changed them is a new
server. A file that is cut off, edited or anybody else's is damaged: it is left as it is, and pins nothing. So is all of
a folder that others may write to: they could take a file away, and the next list would be a first one.

    pins       what a person agreed to, or what the server listed first
    pending    what it lists now and nobody agreed to yet: `trimaran pins accept` works without the server
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import secrets
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimaran.depth import TooDeep, check_depth, decode_json
from trimaran.errors import ConfigError
from trimaran.files import read_file, why_folder_not_ours, why_not_ours
from trimaran.protocol.definition_digests import canonical_json
from trimaran.state.token_storage import FileTokens, KeyringTokens, TokenStore

from ..config.files import remove_unfinished, write_whole
from ..config.machine import Machine

_VERSION: Final = 1
_KEY: Final = "trimaran-pins:key"
# Bytes of a file; 10,000 definitions of 2 KiB, each pinned and pending, are 40 MB. Of a server that lists more, only digests
# are kept: a file that its next reader would refuse would hold all that a person has agreed to.
_LARGEST: Final = 64 * 1024 * 1024
# Bytes of a definition that is kept for the difference; the largest of a thousand published ones has 30 KB. Of a larger one
# the digest alone is kept.
_MOST_KEPT: Final = 64 * 1024
_MOST_NAME: Final = 40  # characters of a file's name that are the server's


class PinsDamaged(ConfigError):
    """The pins of a server cannot be believed, or be too many to keep. The message names the file, and says why."""

    kind = "pins_damaged"


class PinsUnwritable(ConfigError):
    """Pins cannot be written: a full disk, a folder that is not ours. Nothing was changed."""

    kind = "pins_unwritable"


@final
class PinTarget(Struct, frozen=True):
    """A server as pins know it: another command, URL or issuer under the same name is another server."""

    name: str
    address: str
    """The command line or URL for a person, secrets masked."""
    fingerprint: str
    """The SHA-256 of transport, command and folder; or of transport, URL and issuer."""

    @property
    def file_name(self) -> str:
        return f"{file_prefix(self.name)}{self.fingerprint[:16]}.json"


def file_prefix(name: str) -> str:
    """The beginning of the names of all files of a server, and of no other's."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:_MOST_NAME]
    return f"{safe}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}-"


@final
class Pin(Struct, frozen=True):
    """One definition: its digest, and what it says."""

    digest: str
    definition: dict[str, Any] | None = None
    """None if it, or all of its server together, is too long to keep."""
    size: int = 0
    """Bytes of the definition as canonical JSON."""


@final
class PinnedServer(Struct, frozen=True, kw_only=True):
    """The pins of one server. Definitions are named by kind and name: `tool:search`, `prompt:greet`."""

    name: str
    address: str
    fingerprint: str
    first_seen: str
    """When the server was first used, in UTC."""
    changed: str = ""
    """When a person last agreed to something."""
    kinds: tuple[str, ...] = ()
    """The kinds of definitions that were listed at least once: the first list of a kind is pinned as it is."""
    pins: Mapping[str, Pin] = {}
    pending: Mapping[str, Pin] = {}
    version: int = _VERSION


class PinFile(NamedTuple):
    """One file of the folder: the pins in it, or what is wrong with it."""

    path: Path
    server: PinnedServer | None
    problem: str


def pin_of(definition: Mapping[str, Any]) -> Pin:
    """The pin of a definition that is plain JSON without `_meta`.

    Raises:
        ValueError: it is no JSON.
    """
    text = canonical_json(definition)
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    return Pin(digest, dict(definition) if len(text) <= _MOST_KEPT else None, len(text))


@final
class Pins:
    """The pins of a user's servers, in a folder of the user's own. Several processes may use it at once.

    Args:
        path: The folder; None for `$XDG_DATA_HOME/trimaran/pins` (`~/.local/share`; on Windows `%LOCALAPPDATA%`).
        keys: Where the signing key is kept; None for the system's keyring, or a file in the folder where there is none.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, keys: TokenStore | None = None) -> None:
        folder = Path(Machine.here().trust_file).with_name("pins") if path is None else Path(path).expanduser()
        self.path: Final = folder.absolute()
        self._is_users = path is None
        self._files = FileTokens(self.path / "key" / "key.json")
        self._keys: TokenStore | None = keys
        self._key: bytes | None = None

    def __repr__(self) -> str:
        return f"Pins({str(self.path)!r})"

    def diff_command(self, server: str) -> str:
        """The command that shows what is held of a server."""
        place = [] if self._is_users else ["--path", str(self.path)]
        return shlex.join(["trimaran", "pins", "diff", *place, server])

    # --- read --------------------------------------------------------------------------------------------------------

    async def load(self, target: PinTarget) -> PinnedServer | None:
        """The pins of a server; None if it was never used.

        Raises:
            PinsDamaged: its file cannot be believed.
            StoreUnusable: the signing key cannot be read.
        """
        file = self.path / target.file_name
        if not await asyncio.to_thread(self._is_there, file):
            return None
        return await asyncio.to_thread(self._read, file, await self._signing_key(), target)

    async def files(self) -> list[PinFile]:
        """Every file of the folder, by the names of their servers.

        Raises:
            StoreUnusable: the signing key cannot be read.
        """
        paths = await asyncio.to_thread(lambda: sorted(self.path.glob("[!.]*.json")))
        if not paths:
            return []
        key = await self._signing_key()

        def look(path: Path) -> PinFile:
            try:
                return PinFile(path, self._read(path, key), "")
            except PinsDamaged as error:
                return PinFile(path, None, str(error))

        return await asyncio.to_thread(lambda: [look(path) for path in paths])

    def _is_there(self, file: Path) -> bool:
        self._check_folders()
        return os.path.lexists(file)

    def _check_folders(self) -> None:
        for folder in (self.path, self._files.path.parent):
            try:
                wrong = why_folder_not_ours(os.stat(folder))
            except FileNotFoundError:
                continue
            except OSError as error:
                wrong = f"it cannot be looked at: {error.strerror or error}"
            if wrong:
                raise PinsDamaged(f"the pins in the folder {folder} are not believed: {wrong}")

    def _read(self, file: Path, key: bytes, target: PinTarget | None = None) -> PinnedServer | None:
        self._check_folders()
        try:
            status = os.lstat(file)
            if wrong := why_not_ours(status):
                raise _damaged(file, wrong)
            document: Any = decode_json(read_file(file, _LARGEST))
            signature = document.pop("signature")
            expected = _sign(key, canonical_json(document))
            if not isinstance(signature, str) or not hmac.compare_digest(signature.encode(), expected.encode()):
                raise _damaged(file, "its signature does not fit: it was edited, or signed with another key")
            server = msgspec.convert(document, PinnedServer)
        except FileNotFoundError:
            return None
        except (AttributeError, KeyError, ValueError, RecursionError):  # decoding and converting fail with ValueErrors
            raise _damaged(file, "a part of it is missing or malformed") from None
        except OSError as error:
            raise _damaged(file, f"it cannot be read: {error.strerror or error}") from None
        if target is not None and (server.name, server.fingerprint) != (target.name, target.fingerprint):
            raise _damaged(file, f"it is about another server, {server.name!r}")
        return server

    # --- write -------------------------------------------------------------------------------------------------------

    async def update(
        self, target: PinTarget, change: Callable[[PinnedServer | None], PinnedServer | None]
    ) -> PinnedServer | None:
        """Change the pins of a server, alone among all processes; returns the pins afterwards.

        Args:
            change: Called with the present pins; returns the new ones, or the same object to leave them.

        Raises:
            PinsDamaged: the file cannot be believed; it stays as it is.
            PinsUnwritable: the new pins cannot be written; the old ones stay.
            StoreUnusable: the signing key cannot be read or made.
        """
        key = await self.prepare()
        file = self.path / target.file_name

        def work() -> PinnedServer | None:
            before = self._read(file, key, target)
            after = change(before)
            if after is not None and after is not before:
                self._write(file, key, after)
            return after

        async with self._lock(target):
            return await _finish(asyncio.to_thread(work))

    async def forget(self, file: Path) -> Path:
        """Move a file of pins aside, so that the next use of its server is the first; returns the new path.

        Raises:
            PinsUnwritable: it cannot be moved.
        """
        return await asyncio.to_thread(_move_aside, file)

    def _lock(self, target: PinTarget) -> AbstractAsyncContextManager[None]:
        return self._files.lock(target.file_name)

    async def prepare(self) -> bytes:
        """Make the folder and the signing key, each if it is not there; returns the key.

        Raises:
            PinsUnwritable, StoreUnusable: one of them cannot be made.
            PinsDamaged: others may write to the folder.
        """
        try:
            await asyncio.to_thread(self.path.mkdir, mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise PinsUnwritable(f"pins cannot be kept in {self.path}: {error.strerror or error}") from None
        await asyncio.to_thread(self._check_folders)
        return await self._signing_key()

    def _write(self, file: Path, key: bytes, server: PinnedServer) -> None:
        content = _as_file(key, server)
        if content is None:
            bare = {field: _without_definitions(getattr(server, field)) for field in ("pins", "pending")}
            content = _as_file(key, replace(server, **bare))
        if content is None:
            raise PinsDamaged(
                f"the server {server.name!r} lists too much to be pinned: {file} would have over {_LARGEST:,} bytes"
            )
        try:
            remove_unfinished(file)  # under the lock nobody else writes it
            write_whole(file, content)
        except OSError as error:
            raise PinsUnwritable(f"{file} cannot be written: {error.strerror or error}") from None

    # --- the key -----------------------------------------------------------------------------------------------------

    async def _signing_key(self) -> bytes:
        if self._key is None:
            store = await self._key_store()
            async with self._files.lock(_KEY):
                stored = await store.load(_KEY)
                key = _read_key(stored)
                if key is None:
                    key = secrets.token_bytes(32)
                    await store.save(_KEY, msgspec.json.encode({"key": key.hex()}))
            self._key = key
        return self._key

    async def _key_store(self) -> TokenStore:
        if self._keys is None:
            is_usable = await asyncio.to_thread(KeyringTokens.is_usable)
            self._keys = KeyringTokens(fallback=self._files) if is_usable else self._files
        return self._keys


def accepted(server: PinnedServer, names: frozenset[str] | None, now: str) -> PinnedServer:
    """The pins after a person agreed to what is pending: to these definitions, or to all."""
    chosen = {key: pin for key, pin in server.pending.items() if names is None or key in names}
    rest = {key: pin for key, pin in server.pending.items() if key not in chosen}
    return replace(server, pins={**server.pins, **chosen}, pending=rest, changed=now) if chosen else server


def _as_file(key: bytes, server: PinnedServer) -> bytes | None:
    """The content of a file; None if it could not be read again."""
    document: dict[str, Any] = msgspec.to_builtins(server)
    document["signature"] = _sign(key, canonical_json(document))
    content = msgspec.json.encode(document)
    if len(content) > _LARGEST:  # with blanks it is larger still
        return None
    content = msgspec.json.format(content) + b"\n"
    try:
        check_depth(content)
    except TooDeep:
        return None
    return content if len(content) <= _LARGEST else None


def _without_definitions(pins: Mapping[str, Pin]) -> dict[str, Pin]:
    return {name: replace(pin, definition=None) for name, pin in pins.items()}


def _sign(key: bytes, text: bytes) -> str:
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def _read_key(record: bytes | None) -> bytes | None:
    try:
        key = bytes.fromhex(decode_json(record, dict[str, str])["key"]) if record is not None else b""
    except (KeyError, ValueError):
        return None
    return key if len(key) == 32 else None


def _damaged(file: Path, why: str) -> PinsDamaged:
    return PinsDamaged(
        f"the pins in {file} are not believed: {why}. Look at what the server lists, then move the file away with "
        "`trimaran pins forget` and pin it anew"
    )


def _move_aside(file: Path) -> Path:
    number = 1
    while os.path.lexists(aside := file.with_name(f"{file.name}.old-{number}")):
        number += 1
    try:
        os.replace(file, aside)
    except OSError as error:
        raise PinsUnwritable(f"{file} cannot be moved away: {error.strerror or error}") from None
    return aside


async def _finish(work: Any) -> Any:
    """The result of a thread, also if the caller is cancelled meanwhile: the lock must not be released before."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()
        raise
