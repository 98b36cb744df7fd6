"""ServerRuntime: a server as the rest of the library sees it.

`Server` is what authors declare things on; this is what transports, sessions, extensions, proxies and workers use to serve
it: the dispatcher, the encoder, the threads, the listeners of changes, start and stop. It has no options of its own and
knows no transport and no revision.

The keeper of a running server: itself (`Server.start`), the servers it is mounted on, and clients in this process. Servers are
counted as users, in-memory clients as holders; `stop_for` of the last user ends everything, `release` of the last holder ends
what a call has started, unless there is a user.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, cast, final

from trimaran.protocol.outbound import Writer
from trimaran.protocol.seal import Sealer
from trimaran.schema import enc_hook

from .changes import Changes
from .dispatch import Dispatcher
from .input_rounds import ModernVoice
from .routes import CustomRoutes
from .startup import Startup
from .threads import ThreadPool

if TYPE_CHECKING:
    from trimaran.types import Implementation, Json

    from .context import Context
    from .seams import ServerFleet, ServerSessions
    from .server import Server


@final
class ServerRuntime:
    def __init__(
        self,
        server: Server,
        lifespan: Callable[[Server], AbstractAsyncContextManager[object]] | None,
        wait_for: Callable[[], object] | None,
        secret_keys: Sequence[bytes | str],
        *,
        cache_ttl: float,
        cache_scope: Literal["public", "private"],
    ) -> None:
        self._server = server
        self._secret_keys = [key.encode() if isinstance(key, str) else key for key in secret_keys]
        self._sealer: Sealer | None = None
        self._holders = 0
        self._users: set[Server] = set()
        self.mounted: list[Server] = []
        """The servers that are mounted here; they start and stop with this one."""
        self.startup: Startup = Startup(server, self.mounted, lifespan, wait_for)
        self.threads: ThreadPool = ThreadPool(server.limits.tool_threads)
        self.changes: Changes = Changes()
        self.writer: Writer = Writer(server.info, enc_hook)
        self.voice: ModernVoice = ModernVoice(self.writer, self._get_sealer, input_ttl=server.limits.input_ttl)
        self.custom_routes: CustomRoutes = CustomRoutes()
        self.dispatcher: Dispatcher = Dispatcher(
            server, self.startup, self.threads, cache_ttl=cache_ttl, cache_scope=cache_scope
        )
        self.fleet: ServerFleet | None = None
        """The processes that serve this server on one store, if it is given one (see `trimaran.fleet`)."""
        self.sessions: ServerSessions | None = None
        """The legacy sessions, once the server is served to legacy clients."""
        self.read_undeclared: Callable[[str, Context], Awaitable[Any]] | None = None
        """Reads resources that are declared nowhere; None if there is no such resource. For proxies."""
        self.modern_only: set[str] = set()
        """The extensions that handshakes do not mention."""
        self.legacy_capabilities: dict[str, Json] = {}
        """Capabilities that are advertised in handshakes only: 2026-07-28 does not have them."""
        self.on_start: list[Callable[[], None]] = []
        """Called after every start, even if the server has started already."""
        self.on_stop: list[Callable[[], Awaitable[None]]] = []
        """Called when the server stops, before its lifespan ends."""
        self.shortages: list[Callable[[], str | None]] = []
        """Each says what the server has too little of at the moment, in words for anyone; None if it has enough."""

    def publish_change(self, kind: str) -> None:
        """A registry has changed: encode its lists again and tell those who listen."""
        self.dispatcher.refresh()
        self.changes.publish(kind)

    def refresh_tasks(self) -> None:
        """Enable tasks if a long-running tool came by another way than `add_tool`."""
        if any(entry.long_running for entry in self._server.tools.entries()):
            self.enable_tasks()

    def enable_tasks(self) -> None:
        """Enable tasks with default settings, unless the author has enabled them already."""
        from trimaran.ext.tasks import EXTENSION, Tasks

        if not self._server.has_extension(EXTENSION):
            Tasks().attach(self._server)

    def describe_as(self, info: Implementation | None, instructions: str | None) -> None:
        """Take over what another server says of itself: for a proxy, once its target has answered."""
        server = self._server
        if info is not None:
            server.info = info
            self.writer.sign(info)
            for registry in (server.tools, server.resources, server.templates, server.prompts):
                registry.owner = info.name
        if instructions is not None:
            server.instructions = instructions

    def handshake_capabilities(self) -> dict[str, Json]:
        """The capabilities as a handshake tells them."""
        capabilities = {**self._server.capabilities(), **self.legacy_capabilities}
        extensions = cast("dict[str, Json]", capabilities.pop("extensions", {}))
        if offered := {name: settings for name, settings in extensions.items() if name not in self.modern_only}:
            capabilities["extensions"] = offered
        return capabilities

    # Starting and stopping

    def hold(self) -> None:
        """A client in this process begins to use the server; `release` says that it no longer does."""
        self._holders += 1

    async def release(self) -> None:
        self._holders -= 1
        if self._holders == 0 and not self._users:
            await self.startup.stop()

    async def start_for(self, user: Server) -> None:
        """Start the server on behalf of itself or of one that it is mounted on."""
        self._users.add(user)
        await self.get_ready()

    async def stop_for(self, user: Server) -> None:
        self._users.discard(user)
        if self._users:
            return
        for put_away in self.on_stop:
            await put_away()
        await self.startup.stop()
        if self.fleet is not None:
            await self.fleet.close()

    async def get_ready(self) -> None:
        """Start what one call needs; it stays started."""
        if self.fleet is not None:
            await self.fleet.start()
        await self.startup.start()
        for begin in self.on_start:
            begin()

    # The keys of sealed state

    def _get_sealer(self) -> Sealer:
        if self._sealer is None:
            # Without configured keys a state lives as long as this process: made before workers fork, they share it.
            self._sealer = Sealer(self._secret_keys or [os.urandom(32)], random=os.urandom)
        return self._sealer

    def share_secret_keys(self, keys: Sequence[bytes] = ()) -> list[bytes]:
        """The keys that all workers must use: those of the code, else those given, else new ones."""
        if not self._secret_keys:
            self._secret_keys = list(keys) or [os.urandom(32)]
        return self._secret_keys
