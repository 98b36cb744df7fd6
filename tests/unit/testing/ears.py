"""An owner of a channel that keeps what it is told, and waits for it within bounds."""

from __future__ import annotations

import json
from typing import Any

from tests.support.until import until

from trimaran.errors import Error


class Ears:
    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.losses: list[Error | None] = []
        self.oddities: list[str] = []

    def receive(self, message: bytes) -> None:
        self.raw.append(message)

    def lost(self, error: Error | None) -> None:
        self.losses.append(error)

    def odd(self, what: str) -> None:
        self.oddities.append(what)

    @property
    def messages(self) -> list[Any]:
        return [json.loads(message) for message in self.raw]

    @property
    def numbers(self) -> list[Any]:
        return [message["n"] for message in self.messages]

    async def until(self, count: int) -> list[Any]:
        await until(lambda: len(self.raw) >= count)
        return self.messages

    async def until_lost(self) -> Error | None:
        await until(lambda: bool(self.losses))
        return self.losses[0]


def numbered(n: int, **more: Any) -> bytes:
    return json.dumps({"n": n, **more}).encode()


def request(id: Any, method: str, params: Any = None) -> bytes:
    body = {} if params is None else {"params": params}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, **body}).encode()


def notice(method: str, params: Any = None) -> bytes:
    body = {} if params is None else {"params": params}
    return json.dumps({"jsonrpc": "2.0", "method": method, **body}).encode()
