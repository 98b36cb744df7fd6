"""Storage for logins: in the system's keyring, in a file that only the user can read, or in memory (R248).

A record is a JSON object as bytes; `trimaran.oauth` defines its content. Its key is made of the server's name and
a hash of its URL (C33), so another URL under the same name does not get the record.

A write makes a new file, flushes it to the disk and renames it. A writer holds `<file>.lock`, so no
update of another process is lost; a reader needs no lock. A file that others could read gets mode 0600, a file that is not
JSON is renamed, and the log reports both. A symbolic link, or a file of another user, is refused.

`lock(key)` allows one refresh at a time, across tasks, threads and processes. It is a lock of the operating system on a
separate file, so it ends with the process that holds it. Lock files are not deleted: if one is deleted while another
process opens it, two processes get the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import logging
import os
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast, final, runtime_checkable

import msgspec

from trimaran.depth import check_depth, decode_json
from trimaran.errors import ConfigError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = [
    "FileTokens",
    "KeyringTokens",
    "MemoryTokens",
    "StoreUnusable",
    "TokenStore",
    "default_tokens",
    "keys_of_url",
    "token_key",
]

logger: Final = logging.getLogger("trimaran.state")

T = TypeVar("T")

SERVICE: Final = "trimaran-mcp"
WRITE_SECONDS: Final = (
    10.0  # an update of the file takes milliseconds: a process that holds the lock for longer is stuck
)
REFRESH_SECONDS: Final = 60.0  # a refresh is a few requests of at most 20 s each
KEYRING_SECONDS: Final = 60.0  # a person may be asked to unlock it
_POLL: Final = (0.005, 0.1)  # seconds between two tries for a lock, at first and at most
_FILE: Final = "mcp-tokens.json"
_LARGEST: Final = 16 * 1024 * 1024  # bytes; a login takes about 4 KiB
# Windows keeps at most 2560 bytes in a credential, as UTF-16.
_WINDOWS_ASCII, _WINDOWS_ANY = 1200, 600
_INDEX: Final = "index"
_PARTS: Final = "parts:"


class StoreUnusable(ConfigError):
    """The storage for logins cannot be used. The message names it and says what to do."""

    kind = "token_store"


@final
class KeyringUnusable(StoreUnusable):
    """The keyring of the system cannot be used."""

    kind = "keyring"


@runtime_checkable
class TokenStore(Protocol):
    """Stores records by key. Any object with these five methods can be used."""

    async def load(self, key: str) -> bytes | None:
        """The record, or None."""
        ...

    async def save(self, key: str, record: bytes) -> None:
        """Store the record, in place of an earlier one."""
        ...

    async def delete(self, key: str) -> bool:
        """Delete the record; returns whether there was one."""
        ...

    async def keys(self) -> list[str]:
        """The keys of all records."""
        ...

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """A lock that one task of all processes holds at a time. A task must not take it twice."""
        ...


def token_key(name: str, url: str) -> str:
    """The key of a server's record: its name and the SHA-256 of its URL exactly as configured."""
    return f"{name}:{hashlib.sha256(url.encode()).hexdigest()}"


def keys_of_url(keys: Iterable[str], url: str) -> list[str]:
    """The keys for this URL, under any name."""
    ending = token_key("", url)
    return [key for key in keys if key.endswith(ending)]


def default_tokens(*, warn: bool = True) -> TokenStore:
    """The system's keyring, if `keyring` is installed and finds one; else the file, with one warning."""
    if KeyringTokens.is_usable():
        return KeyringTokens(fallback=FileTokens())
    tokens = FileTokens()
    if warn:
        _warn_once(
            f"there is no keyring for logins: they are stored in {tokens.path}, readable by you alone, but not encrypted "
            '(pip install "trimaran[keyring]" on a system that has a keyring)'
        )
    return tokens


_warned: Final[set[str]] = set()


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        logger.warning("%s", text)


# --- locks -----------------------------------------------------------------------------------------------------------


class _Waiter(NamedTuple):
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]


@final
class _Turns:
    """A fair lock for each key, across tasks, event loops and threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # A key is here while it is locked.
        self._waiting: dict[str, deque[_Waiter]] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None]:
        await self._take(key)
        try:
            yield
        finally:
            self._pass_on(key)

    async def _take(self, key: str) -> None:
        loop = asyncio.get_running_loop()
        with self._guard:
            queue = self._waiting.get(key)
            if queue is None:
                self._waiting[key] = deque()
                return
            waiter = _Waiter(loop, loop.create_future())
            queue.append(waiter)
        try:
            await waiter.turn
        except BaseException:
            with self._guard:
                has_turn = waiter not in queue
                if not has_turn:
                    queue.remove(waiter)
            if has_turn:
                self._pass_on(key)
            raise

    def _pass_on(self, key: str) -> None:
        with self._guard:
            queue = self._waiting[key]
            while queue:
                waiter = queue.popleft()
                try:
                    waiter.loop.call_soon_threadsafe(_set, waiter.turn)
                except RuntimeError:  # its loop is closed
                    continue
                return
            del self._waiting[key]


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@asynccontextmanager
async def _file_lock(path: Path, seconds: float) -> AsyncGenerator[None]:
    """Hold a lock of the operating system on this file, without blocking the event loop."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _NO_FOLLOW | _CLOSE_ON_EXEC, 0o600)
    except OSError as error:
        raise StoreUnusable(f"the lock {path} cannot be opened: {_reason(error)}") from None
    try:
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + seconds, _POLL[0]
        while not _try_lock(descriptor, path):
            if loop.time() >= deadline:
                raise StoreUnusable(
                    f"another process has held {path} for more than {seconds:g} s: wait for it, or end it (its locks are released then)"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, _POLL[1])
        try:
            yield
        finally:
            _unlock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK):
            return False
        raise StoreUnusable(
            f"{path} cannot be locked ({_reason(error)}): keep the logins on another file system, FileTokens(path)"
        ) from None
    return True


def _unlock(descriptor: int) -> None:
    # Closing the file is not enough: a forked process shares the lock and would keep it.
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


async def _finish_despite_cancel(work: Coroutine[Any, Any, T]) -> T:
    """The result of work in a thread. If the caller is cancelled, wait for the thread first, since it relies on the caller's locks."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        with contextlib.suppress(Exception):
            task.result()
        raise cancelled
    return task.result()


# --- in memory -------------------------------------------------------------------------------------------------------


@final
class MemoryTokens:
    """Records for as long as the process lives."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}
        self._turns = _Turns()

    def __repr__(self) -> str:
        return f"<MemoryTokens: {len(self._records)} records>"

    async def load(self, key: str) -> bytes | None:
        return self._records.get(key)

    async def save(self, key: str, record: bytes) -> None:
        self._records[key] = bytes(record)

    async def delete(self, key: str) -> bool:
        return self._records.pop(key, None) is not None

    async def keys(self) -> list[str]:
        return list(self._records)

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        return self._turns.hold(key)


# --- in a file -------------------------------------------------------------------------------------------------------

_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_CLOSE_ON_EXEC: Final = getattr(os, "O_CLOEXEC", 0)
_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)  # a FIFO in place of the file must not block us


def data_directory(environ: Mapping[str, str], platform: str, home: str) -> PurePath:
    """The directory for a user's data on this platform."""
    if platform == "win32":
        named, default = PureWindowsPath(environ.get("LOCALAPPDATA", "")), PureWindowsPath(home, "AppData", "Local")
    else:
        named, default = PurePosixPath(environ.get("XDG_DATA_HOME", "")), PurePosixPath(home, ".local", "share")
    return (named if named.is_absolute() else default) / "trimaran"  # XDG: a relative path is ignored


def _own_directory() -> Path:
    try:
        return Path(data_directory(os.environ, sys.platform, str(Path.home())))
    except RuntimeError:
        raise StoreUnusable(
            "there is no home directory for logins: set HOME or XDG_DATA_HOME, or give a path, store='tokens.json'"
        ) from None


@final
class FileTokens:
    """Records in one JSON file, mode 0600, shared by all processes of a user.

    Without a path it is `$XDG_DATA_HOME/trimaran/mcp-tokens.json` (`~/.local/share`; on Windows `%LOCALAPPDATA%`), in a
    directory of mode 0700. The directory of another path gets that mode if it is created, and keeps its own if it exists.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._is_own = path is None
        self.path: Final = _own_directory() / _FILE if path is None else Path(path).expanduser().absolute()
        self._locks = self.path.with_name(f"{self.path.name}.locks")
        self._turns = _Turns()

    def __repr__(self) -> str:
        return f"FileTokens({str(self.path)!r})"

    def is_used(self) -> bool:
        """A quick check whether anything was ever stored or locked here."""
        return os.path.lexists(self.path) or self._locks.is_dir()

    async def load(self, key: str) -> bytes | None:
        return (await self._records()).get(key)

    async def save(self, key: str, record: bytes) -> None:
        checked = _check(record)

        def put(records: dict[str, bytes]) -> bool:
            records[key] = checked
            return True

        await self._update(put)

    async def delete(self, key: str) -> bool:
        if key not in await self._records():
            return False
        return await self._update(lambda records: records.pop(key, None) is not None)

    async def keys(self) -> list[str]:
        return list(await self._records())

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncGenerator[None]:
        async with self._turns.hold(key):
            await asyncio.to_thread(self._make_directories, self._locks)
            name = f"{hashlib.sha256(key.encode()).hexdigest()}.lock"
            async with _file_lock(self._locks / name, REFRESH_SECONDS):
                yield

    async def _records(self) -> dict[str, bytes]:
        records = await asyncio.to_thread(self._read)
        if records is None:  # damaged; read again under the lock, since another process may be repairing it
            async with self._alone():
                records = await _finish_despite_cancel(asyncio.to_thread(self._read_or_move_aside))
        return records

    async def _update(self, change: Callable[[dict[str, bytes]], bool]) -> bool:
        def work() -> bool:
            records = self._read_or_move_aside()
            is_changed = change(records)
            if is_changed:
                self._write(records)
            return is_changed

        async with self._alone():
            return await _finish_despite_cancel(asyncio.to_thread(work))

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        async with self._turns.hold(""):
            await asyncio.to_thread(self._make_directories)
            async with _file_lock(self.path.with_name(f"{self.path.name}.lock"), WRITE_SECONDS):
                yield

    # In a thread

    def _make_directories(self, inner: Path | None = None) -> None:
        directory = self.path.parent
        try:
            if not directory.is_dir():
                directory.parent.mkdir(parents=True, exist_ok=True)
                directory.mkdir(mode=0o700, exist_ok=True)
            elif self._is_own and os.name != "nt" and stat.S_IMODE(directory.stat().st_mode) & 0o077:
                directory.chmod(0o700)
                logger.warning("%s was open to others: its mode is 0700 now", directory)
            if inner is not None:
                inner.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreUnusable(f"logins cannot be stored in {directory}: {_reason(error)}") from None

    def _read(self) -> dict[str, bytes] | None:
        """The records in the file; None if it is damaged."""
        if os.name == "nt" and self.path.is_symlink():
            raise self._refused_link()
        try:
            descriptor = _retry_on_windows(
                lambda: os.open(self.path, os.O_RDONLY | _NO_FOLLOW | _CLOSE_ON_EXEC | _NO_WAIT)
            )
        except FileNotFoundError:
            return {}
        except OSError as error:
            if error.errno in (errno.ELOOP, getattr(errno, "EMLINK", errno.ELOOP)) and self.path.is_symlink():
                raise self._refused_link() from None
            raise StoreUnusable(f"{self.path} cannot be read: {_reason(error)}") from None
        try:
            self._inspect(os.fstat(descriptor), descriptor)
            with open(descriptor, "rb", closefd=False) as file:
                text = file.read(_LARGEST + 1)
        except OSError as error:
            raise StoreUnusable(f"{self.path} cannot be read: {_reason(error)}") from None
        finally:
            os.close(descriptor)
        if len(text) > _LARGEST:
            raise StoreUnusable(f"{self.path} is larger than {_LARGEST >> 20} MiB, so it is not a file of logins")
        if not text.strip():
            return {}
        try:
            check_depth(text)
            return {key: bytes(raw) for key, raw in _decoder.decode(text).items()}
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    def _inspect(self, status: os.stat_result, descriptor: int) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise StoreUnusable(f"{self.path} is not a file: move it away, or store the logins elsewhere")
        if sys.platform == "win32":
            return
        if status.st_uid != os.geteuid():
            raise StoreUnusable(
                f"{self.path} belongs to another user (uid {status.st_uid}): remove it, or set XDG_DATA_HOME to a directory of your own"
            )
        if stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
            logger.warning(
                "%s could be read by others: its mode is 0600 now. If others use this machine, log in again", self.path
            )

    def _refused_link(self) -> StoreUnusable:
        return StoreUnusable(
            f"{self.path} is a symbolic link, and logins are not written through one: put a file there, or give the path it leads to"
        )

    def _read_or_move_aside(self) -> dict[str, bytes]:
        records = self._read()
        if records is not None:
            return records
        number = 1
        while os.path.lexists(aside := self.path.with_name(f"{self.path.name}.damaged-{number}")):
            number += 1
        try:
            os.replace(self.path, aside)
        except OSError as error:
            raise StoreUnusable(f"{self.path} is damaged and cannot be moved away: {_reason(error)}") from None
        logger.warning("%s is damaged: it is now %s, log in again to the servers in it", self.path, aside)
        return {}

    def _write(self, records: Mapping[str, bytes]) -> None:
        text = msgspec.json.encode({key: msgspec.Raw(record) for key, record in records.items()}) + b"\n"
        # A fixed name is enough, because only the holder of the lock writes: an old file is from a process that died.
        beside = self.path.with_name(f"{self.path.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _CLOSE_ON_EXEC
        try:
            beside.unlink(missing_ok=True)
            with open(os.open(beside, flags, 0o600), "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            _retry_on_windows(lambda: os.replace(beside, self.path))
            _flush_directory(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise StoreUnusable(f"{self.path} cannot be written: {_reason(error)}") from None


_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _check(record: bytes) -> bytes:
    try:
        decode_json(record, dict[str, Any])
    except ValueError:
        # Not quoted: it is full of secrets.
        raise ConfigError("a record must be a JSON object as bytes, msgspec.json.encode(...)") from None
    return bytes(record).strip()


def _retry_on_windows(action: Callable[[], T]) -> T:
    """Retry: on Windows an open file cannot be replaced, and a file cannot be opened while it is replaced."""
    for _ in range(50 if os.name == "nt" else 0):
        try:
            return action()
        except PermissionError:
            time.sleep(0.02)
    return action()


def _flush_directory(path: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _CLOSE_ON_EXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush a directory; the file itself is safe.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


# --- in the keyring --------------------------------------------------------------------------------------------------


class Keyring(Protocol):
    """The methods of `keyring`, or of one of its backends, that are used here."""

    def get_password(self, service: str, username: str, /) -> str | None: ...
    def set_password(self, service: str, username: str, password: str, /) -> None: ...
    def delete_password(self, service: str, username: str, /) -> None: ...


@final
class KeyringTokens:
    """Records in the keyring of the operating system, by way of the package `keyring`.

    A keyring cannot list its entries, so one entry holds the keys. Windows accepts only short entries:
    there a record is split. A record that the keyring refuses goes to `fallback`, which is read first, since its records
    are newer. Without a fallback the refusal is raised.
    """

    def __init__(
        self, backend: Keyring | None = None, *, fallback: TokenStore | None = None, most: int | None = None
    ) -> None:
        self._backend = backend if backend is not None else _keyring()
        self._fallback = fallback
        self._most = most
        self._files = FileTokens()  # for its locks only

    def __repr__(self) -> str:
        return f"KeyringTokens({_name_of(self._backend)})"

    @staticmethod
    def is_usable() -> bool:
        """Whether `keyring` is installed with a backend that stores secrets safely."""
        try:
            backend: Any = _keyring().get_keyring()
            # Backends that fail, forget, or write plain files have a priority below 1.
            return bool(backend.priority >= 1)
        except Exception:  # a backend may raise anything
            return False

    async def load(self, key: str) -> bytes | None:
        if self._fallback is not None:
            credentials = await self._fallback.load(key)
            if credentials is not None:
                return credentials
        return await self._attempt(lambda: self._get(key), None)

    async def save(self, key: str, record: bytes) -> None:
        text = _check(record).decode()

        def put() -> bool:
            self._put(key, text)
            return True

        is_kept = await self._attempt(put, False)
        if self._fallback is None:
            return
        if is_kept:
            await self._fallback.delete(key)
        else:
            await self._fallback.save(key, record)

    async def delete(self, key: str) -> bool:
        was_there = await self._attempt(lambda: self._remove(key), False)
        return (self._fallback is not None and await self._fallback.delete(key)) or was_there

    async def keys(self) -> list[str]:
        keys = await self._attempt(self._index, [])
        more = await self._fallback.keys() if self._fallback is not None else []
        return list(dict.fromkeys([*keys, *more]))

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        return self._files.lock(key)

    async def _attempt(self, action: Callable[[], T], otherwise: T) -> T:
        """Run `work` with the keyring under its lock; if the keyring refuses and there is a fallback, return None."""
        try:
            async with self._files.lock(f"{SERVICE} {_INDEX}"):
                return await _finish_despite_cancel(_in_daemon_thread(action))
        except StoreUnusable:
            raise
        except Exception as error:
            # The text of the error is the backend's own, and might quote a secret.
            message = f"the keyring ({_name_of(self._backend)}) does not answer ({type(error).__name__})"
            if self._fallback is None:
                raise KeyringUnusable(f"{message}: unlock it, or store logins in a file, store='tokens.json'") from None
            _warn_once(f"{message}: logins are stored in {self._fallback!r} instead")
            return otherwise

    # In a thread

    def _get(self, key: str) -> bytes | None:
        text = self._backend.get_password(SERVICE, key)
        if text is None:
            return None
        if text.startswith(_PARTS):
            pieces = [self._backend.get_password(SERVICE, name) for name in _part_names(key, text)]
            whole = "".join(piece or "" for piece in pieces)
            if _digest(whole) != text.split(":")[2]:
                logger.warning("the login %s in the keyring is damaged: log in again", key)
                return None
            text = whole
        return text.encode()

    def _put(self, key: str, text: str) -> None:
        """Write the parts, then the entry that names them, then remove the old parts: a reader finds the old record or the new."""
        old = self._backend.get_password(SERVICE, key) or ""
        most = self._limit(text)
        head = text
        if most is not None and len(text) > most:
            pieces = [text[at : at + most] for at in range(0, len(text), most)]
            head = f"{_PARTS}{len(pieces)}:{_digest(text)}"
            for name, piece in zip(_part_names(key, head), pieces, strict=True):
                self._backend.set_password(SERVICE, name, piece)
        keys = self._index()
        if key not in keys:
            self._set_index([*keys, key])
        self._backend.set_password(SERVICE, key, head)
        if old != head:
            self._remove_parts(key, old)

    def _remove(self, key: str) -> bool:
        text = self._backend.get_password(SERVICE, key)
        if text is not None:
            self._backend.delete_password(SERVICE, key)
            self._remove_parts(key, text)
        keys = self._index()
        if key in keys:
            self._set_index([other for other in keys if other != key])
        return text is not None

    def _remove_parts(self, key: str, text: str) -> None:
        for name in _part_names(key, text):
            if self._backend.get_password(SERVICE, name) is not None:
                self._backend.delete_password(SERVICE, name)

    def _limit(self, text: str) -> int | None:
        if self._most is not None or sys.platform != "win32":
            return self._most
        return _WINDOWS_ASCII if text.isascii() else _WINDOWS_ANY

    def _index(self) -> list[str]:
        """The keys. If they are too many for one entry on Windows, further entries continue."""
        keys: list[str] = []
        number = 0
        while text := self._backend.get_password(SERVICE, _index_name(number)):
            with contextlib.suppress(msgspec.MsgspecError):
                keys += decode_json(text, list[str])
            number += 1
        return keys

    def _set_index(self, keys: list[str]) -> None:
        pages = list(_pages(keys, self._limit("".join(keys))))
        for number, page in enumerate(pages):
            self._backend.set_password(SERVICE, _index_name(number), page)
        number = len(pages)
        while self._backend.get_password(SERVICE, _index_name(number)) is not None:
            self._backend.delete_password(SERVICE, _index_name(number))
            number += 1


def _keyring() -> Any:
    try:
        import keyring  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError:
        raise KeyringUnusable(
            'the keyring needs the package keyring: pip install "trimaran[keyring]", or store logins in a file, FileTokens()'
        ) from None
    return cast("Any", keyring)


def _name_of(backend: Any) -> str:
    """The name of the backend; of the module `keyring`, the name of the backend it chose."""
    with contextlib.suppress(Exception):
        backend = backend.get_keyring() if hasattr(backend, "get_keyring") else backend
    return type(backend).__module__.removeprefix("keyring.backends.")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _part_names(key: str, head: str) -> list[str]:
    """The entries of a split record; empty if it is whole. Their names depend on the content, so old and new parts never mix."""
    if not head.startswith(_PARTS):
        return []
    count, _, digest = head.removeprefix(_PARTS).partition(":")
    return [f"{key}#{digest[:16]}.{number}" for number in range(1, int(count) + 1)] if count.isdecimal() else []


def _index_name(number: int) -> str:
    return _INDEX if number == 0 else f"{_INDEX}#{number}"


def _pages(keys: list[str], most: int | None) -> Iterable[str]:
    page: list[str] = []
    for key in keys:
        if most is not None and page and len(_listed([*page, key])) > most:
            yield _listed(page)
            page = []
        page.append(key)
    if page:
        yield _listed(page)


def _listed(keys: list[str]) -> str:
    return msgspec.json.encode(keys).decode()


async def _in_daemon_thread(action: Callable[[], T]) -> T:
    """Run in a thread that is abandoned if it does not return: a keyring may wait for an absent person."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("T", result))

    def work() -> None:
        result, failure = None, None
        try:
            result = action()
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(deliver, result, failure)

    threading.Thread(target=work, name="trimaran keyring", daemon=True).start()
    async with asyncio.timeout(KEYRING_SECONDS):
        return await done
