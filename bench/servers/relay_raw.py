"""A relay that only passes bytes on, with a connection to the target for each of its own: the floor of every proxy.

It reads nothing, so it checks nothing, shares nothing and survives nothing. What it costs is two system calls more each way.
"""

import asyncio
from typing import cast
from urllib.parse import urlsplit

import uvloop
from common import parse


class Side(asyncio.Protocol):
    """One side of a relayed connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self.early = b""
        """Bytes that came before the other side was connected."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self.other is not None and self.other.early:
            self.transport.write(self.other.early)

    def data_received(self, data: bytes) -> None:
        other = self.other
        if other is None or other.transport is None:
            self.early += data
        else:
            other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Near(Side):
    """The caller's side; it connects to the target."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self.target = (host, port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.opening = asyncio.ensure_future(self.connect())

    async def connect(self) -> None:
        far = Side()
        self.other, far.other = far, self
        await asyncio.get_running_loop().create_connection(lambda: far, *self.target)


async def serve(port: int, upstream: str) -> None:
    parts = urlsplit(upstream)
    host, target_port = parts.hostname or "127.0.0.1", parts.port or 80
    server = await asyncio.get_running_loop().create_server(lambda: Near(host, target_port), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    options = parse(__doc__ or "")
    uvloop.run(serve(options.port, options.upstream))
