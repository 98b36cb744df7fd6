"""A client in memory for the unit tests: both eras, JSON in and out, every wait bounded."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from typing import Any

from tests.support.until import PATIENCE

from trimaran import Server
from trimaran.legacy.duplex import LegacyDuplex
from trimaran.transports.memory import MemoryChannel

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
P = "io.modelcontextprotocol/"
ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}


class Peer:
    """`async with Peer(server) as peer`: modern calls at once, legacy ones after `await peer.initialize()`."""

    def __init__(self, server: Server, *, legacy: bool = True) -> None:
        self._channel = MemoryChannel(server, legacy=LegacyDuplex if legacy else None)
        self._ids = itertools.count(1)
        self.heard: list[Any] = []
        """Notifications that came before a reply."""

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._channel.close()

    async def send(self, message: Any) -> None:
        await self._channel.send(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def receive(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            data = await self._channel.receive()
        return None if data is None else json.loads(data)

    async def reply(self, id: Any) -> Any:
        """The response to a request; what comes before it is kept in `heard`. Plain functions end in any order."""
        for message in self.heard:
            if _answers(message, id):
                self.heard.remove(message)
                return message
        while not _answers(message := await self.receive(), id):
            self.heard.append(message)
        return message

    async def notice(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    async def start(
        self, method: str, params: Mapping[str, Any] | None = None, *, caps: Any = None, **meta: Any
    ) -> int:
        """Send a modern request without waiting for its end."""
        id = next(self._ids)
        whole = {P + "protocolVersion": MODERN, P + "clientCapabilities": caps or {}}
        whole.update({(P + k if k == "logLevel" else k): v for k, v in meta.items()})
        await self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": whole}})
        return id

    async def modern(
        self, method: str, params: Mapping[str, Any] | None = None, *, caps: Any = None, **meta: Any
    ) -> Any:
        return await self.reply(await self.start(method, params, caps=caps, **meta))

    async def call(
        self, name: str, arguments: Any = None, *, more: Mapping[str, Any] | None = None, **rest: Any
    ) -> Any:
        """A modern `tools/call`: its result, or its error under "error"."""
        params: dict[str, Any] = {"name": name, **(more or {})}
        if arguments is not None:
            params["arguments"] = arguments
        message = await self.modern("tools/call", params, **rest)
        return message.get("result", message)

    async def start_legacy(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        id = next(self._ids)
        body = {} if params is None else {"params": params}
        await self.send({"jsonrpc": "2.0", "id": id, "method": method, **body})
        return id

    async def legacy(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        return await self.reply(await self.start_legacy(method, params))

    async def initialize(self, version: str = LEGACY[0], caps: Any = None, *, ready: bool = True) -> Any:
        params = {
            "protocolVersion": version,
            "capabilities": caps or {},
            "clientInfo": {"name": "peer", "version": "1"},
        }
        message = await self.legacy("initialize", params)
        if ready:
            await self.notice("notifications/initialized")
        return message

    async def answer(self, request: Any, result: Any) -> None:
        await self.send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def texts(result: Any) -> list[str]:
    """The texts of a result, from the wire or from a local call."""
    content = result["content"] if isinstance(result, dict) else result.to_json()["content"]
    return [block["text"] for block in content]


def _answers(message: Any, id: Any) -> bool:
    return "method" not in message and message["id"] == id
