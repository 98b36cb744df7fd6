"""The frame of a store on a database: started, checked, closed. The databases themselves are in `redis.py` and `sqlite.py`."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any, Final, Generic, Self, TypeVar

from trimaran.errors import ConfigError, Error

from .bus import StoreBus
from .contracts import StoreHealth, StoreUnavailable
from .health import DatabaseHealth
from .records import store_closed


class Database(ABC):
    """A database that may be away, full, read-only, or closed.

    Args:
        where: Its name in messages and in the log; without a password.
    """

    def __init__(self, where: str) -> None:
        self.where: Final = where
        self._health: Final = DatabaseHealth(where)
        self._is_hopeless = False  # waiting alone will not fix the last failure
        self._is_closed = False

    @abstractmethod
    async def _connect(self) -> None: ...
    @abstractmethod
    async def _try_read(self) -> None: ...
    @abstractmethod
    async def _try_write(self) -> None:
        """Write something that nobody reads. Nothing less shows that the database takes writes."""

    @abstractmethod
    async def close(self) -> None: ...

    def _require_open(self) -> None:
        if self._is_closed:
            raise store_closed()

    def refuse(self) -> None:
        """Start no more operations."""
        self._is_closed = True

    async def start(self) -> None:
        self._health.is_starting = True
        try:
            await self._connect()
        except StoreUnavailable as error:
            if self._is_hopeless:
                raise ConfigError(str(error)) from None
            raise
        finally:
            self._health.is_starting = False

    async def check(self) -> StoreHealth:
        began = time.monotonic()
        is_read = False
        try:
            await self._try_read()
            is_read = True
            await self._try_write()
        except Error as error:
            return StoreHealth(False, time.monotonic() - began, str(error), is_read)
        return StoreHealth(True, time.monotonic() - began)


D = TypeVar("D", bound=Database)


class DatabaseStore(Generic[D]):
    """A store that other processes share and that outlives this one."""

    is_shared = True
    is_durable = True

    def __init__(self, database: D, bus: StoreBus) -> None:
        self._database = database
        self._bus = bus

    async def start(self) -> None:
        await self._database.start()

    async def close(self) -> None:
        self._database.refuse()
        await self._bus.close()
        await self._database.close()

    async def check(self) -> StoreHealth:
        return await self._database.check()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database.where!r})"
