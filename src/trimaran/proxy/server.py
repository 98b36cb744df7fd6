"""`Server.proxy(target)`: a server whose tools, resources and prompts are those of another one.

It is an ordinary Server: it can be run, mounted, guarded and given middleware. Its registries follow the target.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from trimaran.client.options import Options
from trimaran.connecting import Target
from trimaran.option_names import check_options
from trimaran.server.server import Server

from .upstream import Upstream

__all__ = ["build_proxy"]

START_TIMEOUT: Final = 15.0  # seconds; then the server serves without the target, and goes on trying


def build_proxy(target: Target, **options: Any) -> Server:
    """A server that stands for `target`."""
    check_options(options, Options.names() | {"name", "start_timeout"}, "Server.proxy")
    name: str | None = options.pop("name", None)
    start_timeout: float = options.pop("start_timeout", START_TIMEOUT)

    @asynccontextmanager
    async def live(_: Server) -> AsyncGenerator[Upstream]:
        await upstream.start()
        try:
            yield upstream
        finally:
            await upstream.close()

    server = Server(name or "proxy", lifespan=live)
    upstream = Upstream(server, target, start_timeout=start_timeout, name=name, **options)
    server.read_undeclared = upstream.read_undeclared
    return server
