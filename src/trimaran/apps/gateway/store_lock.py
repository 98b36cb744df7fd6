"""A lock that the processes of a gateway share by way of their store.

It is a record with a lifetime, written only if it is not there. The holder renews it, so a slow issuer does not cost the
lock; the record of a process that was killed expires, and the next one goes on. Without a store it is a lock of this process.

It keeps two processes from showing an issuer the same refresh token: an issuer that rotates them ends the login then. It is
not fair, and must not be held while a person is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, final

from trimaran.state.contracts import SessionRecord, SessionStore, StoreConflict, StoreError, StoreUnavailable

_LIFETIME: Final = 15.0  # seconds after which the lock of a killed process is free; a refresh takes less than one
_RENEWAL: Final = _LIFETIME / 3
_PAUSES: Final = (0.02, 0.05, 0.1, 0.25)  # seconds between attempts; each costs the store one command
_PATIENCE: Final = 60.0  # seconds; two killed processes in a row, and an issuer that answers late


@final
class StoreLocks:
    """Locks by name.

    Args:
        store: The store of the processes, if there is one.
    """

    def __init__(self, store: Callable[[], Any]) -> None:
        self._store = store
        self._local: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def hold(self, name: str) -> AsyncGenerator[None]:
        """Hold the lock of this name, here and in every process that shares the store.

        Raises:
            StoreError: The store cannot be used, or another process has had the lock for a minute.
        """
        lock, users = self._local.get(name, (asyncio.Lock(), 0))
        self._local[name] = lock, users + 1
        try:
            async with lock:
                store = self._store()
                if store is None:
                    yield
                    return
                async with _hold(store.sessions, f"~lock.{hashlib.sha256(name.encode()).hexdigest()}"):
                    yield
        finally:
            lock, users = self._local[name]
            if users > 1:
                self._local[name] = lock, users - 1
            else:
                del self._local[name]


@contextlib.asynccontextmanager
async def _hold(records: SessionStore, id: str) -> AsyncGenerator[None]:
    token = secrets.token_bytes(16)
    await _take(records, SessionRecord(id=id, extra=token))
    renewing = asyncio.ensure_future(_renew(records, id))
    try:
        yield
    finally:
        renewing.cancel()
        with contextlib.suppress(StoreError):  # then it expires by itself
            record = await records.get(id)
            if record is not None and record.extra == token:
                await records.delete(id)


async def _take(records: SessionStore, record: SessionRecord) -> None:
    deadline = time.monotonic() + _PATIENCE
    attempt = 0
    while True:
        try:
            await records.create(record, ttl=_LIFETIME)
            return
        except StoreConflict:
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"another process has held a lock for {_PATIENCE:g} s; try again") from None
        await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
        attempt += 1


async def _renew(records: SessionStore, id: str) -> None:
    while True:
        await asyncio.sleep(_RENEWAL)
        with contextlib.suppress(StoreError):  # the next one may succeed before the lifetime is over
            await records.touch(id, ttl=_LIFETIME)
