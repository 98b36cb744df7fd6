"""Several endpoints on one port, chosen by path: what a carrier is given in place of a single engine.

Every endpoint keeps its own engine, with its own server, sessions and admission. The main one also answers all that belongs
to none of them: health, custom routes, public documents, and the 404 for an unknown path. Endpoints come and go while the
port is open; one that is removed takes no new request, and `Engine.drain` ends it after its calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any, final

from trimaran.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    from trimaran.protocol.outbound import Writer
    from trimaran.server.server import Server

    from .engine import Engine, HttpRequestHead, Pairs
    from .health import HealthRoutes
    from .unfinished_bodies import UnfinishedBodies


@final
class Endpoints:
    """The engines of one port, by path."""

    def __init__(self, main: Engine) -> None:
        self.main = main
        self._by_path: dict[str, Engine] = {}
        self.add(main)

    def add(self, engine: Engine) -> None:
        """Serve one more endpoint.

        Raises:
            ConfigError: another endpoint has one of its paths.
        """
        for path in engine.paths:
            if path in self._by_path:
                raise ConfigError(f"two endpoints cannot have the path {path}; give one of them another path")
        self._by_path.update(dict.fromkeys(engine.paths, engine))

    def remove(self, engine: Engine) -> None:
        """Take no new request for an endpoint. Its calls go on."""
        for path in engine.paths:
            if self._by_path.get(path) is engine:
                del self._by_path[path]

    def __iter__(self) -> Iterator[Engine]:
        return iter(dict.fromkeys(self._by_path.values()))

    def _of(self, request: HttpRequestHead) -> Engine:
        return self._by_path.get(request.path, self.main)

    # The questions of a carrier to an engine

    @property
    def path(self) -> str:
        return self.main.path

    @property
    def server(self) -> Server:
        return self.main.server

    @property
    def servers(self) -> tuple[Server, ...]:
        return tuple(dict.fromkeys(engine.server for engine in self))

    @property
    def health(self) -> HealthRoutes | None:
        return self.main.health

    @property
    def bodies(self) -> UnfinishedBodies:
        return self.main.bodies

    @property
    def writer(self) -> Writer:
        return self.main.writer

    @property
    def max_body_bytes(self) -> int:
        return self.main.max_body_bytes

    @property
    def is_started(self) -> bool:
        return self.main.is_started

    @property
    def closing(self) -> bool:
        return self.main.closing

    @property
    def tls_failures(self) -> int:
        return self.main.tls_failures

    @tls_failures.setter
    def tls_failures(self, count: int) -> None:
        self.main.tls_failures = count

    may_relay = True

    def relays(self, path: str) -> Engine | None:
        engine = self._by_path.get(path)
        return None if engine is None else engine.relays(path)

    def owns(self, path: str) -> bool:
        engine = self._by_path.get(path)
        return engine is not None and engine.owns(path)

    def admit(self, request: HttpRequestHead) -> Coroutine[Any, Any, None] | None:
        return self._of(request).admit(request)

    def post(self, request: HttpRequestHead, body: bytes) -> Coroutine[Any, Any, None]:
        engine = self._by_path.get(request.path)
        if engine is None:  # removed since a request with the same head was admitted
            return self.dispatch(request, body)
        return engine.post(request, body)

    async def dispatch(self, request: HttpRequestHead, body: bytes) -> None:
        engine = self._of(request)
        refused = engine.admit(request) if engine is self.main and not engine.takes(request.path) else None
        if refused is not None:
            await refused
        else:
            await engine.dispatch(request, body)

    async def too_large(self, request: HttpRequestHead) -> None:
        await self._of(request).too_large(request)

    async def refuse(self, request: HttpRequestHead, error: ProtocolError, headers: Pairs | None = None) -> None:
        await self._of(request).refuse(request, error, headers)

    def refuse_headers(self, request: HttpRequestHead) -> Coroutine[Any, Any, None] | None:
        return self._of(request).refuse_headers(request)

    async def start(self) -> None:
        """Start every endpoint. One that fails keeps the port closed."""
        for engine in self:
            await engine.start()

    async def drain(self, patience: float) -> None:
        """Stop every endpoint, all at the same time."""
        await asyncio.gather(*(engine.drain(patience) for engine in self))
