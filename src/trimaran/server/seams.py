"""The objects of higher layers that a server holds, as the server and the transports use them.

`legacy` and `fleet` stand above this layer, so their classes cannot be named here. Each Protocol has the members that are used
below the layer of its class, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from trimaran.protocol.inbound import RequestId
    from trimaran.types import Json

    from .exchange import Voice
    from .session_info import SessionInfo
    from .shortcuts import RunningCall


class SessionOutlet(Protocol):
    """The stream of a session's own."""

    def put(self, data: bytes) -> None: ...


class CallSession(Protocol):
    """The session of a legacy client (`legacy.session.Session`)."""

    @property
    def id(self) -> str: ...
    @property
    def initialized(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def log_level(self) -> str: ...
    @property
    def state(self) -> Any:
        """The value that the server's `init` returned; its type is the author's."""
        ...

    @property
    def principal(self) -> object: ...
    @property
    def owner_key(self) -> str | None: ...
    @property
    def calls(self) -> dict[RequestId, RunningCall]: ...
    @property
    def voice(self) -> Voice: ...
    @property
    def outlet(self) -> SessionOutlet: ...
    def send(self, method: str, params: Mapping[str, Json] | None = None) -> None: ...


class ServerSessions(Protocol):
    """All sessions of a server (`legacy.session.SessionTable`)."""

    def __len__(self) -> int: ...
    def broadcast(self, method: str, params: Mapping[str, Json] | None = None) -> int: ...
    def infos(self, capability: str | None = None) -> list[SessionInfo]: ...
    async def terminate(self, id: str, why: str) -> bool: ...
    async def reach(self, id: str) -> CallSession | None: ...


class FleetBus(Protocol):
    @property
    def poisoned(self) -> int: ...
    @property
    def overflowed(self) -> int: ...


class FleetStore(Protocol):
    @property
    def bus(self) -> FleetBus: ...


class StoreState(Protocol):
    @property
    def is_up(self) -> bool: ...
    @property
    def detail(self) -> str: ...
    @property
    def is_read(self) -> bool: ...


class ServerFleet(Protocol):
    """The processes that share a store (`fleet.Fleet`). The layers above get the class itself from `fleet.fleet_of`."""

    @property
    def poisoned(self) -> int: ...
    @property
    def store(self) -> FleetStore: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def check(self) -> StoreState: ...
