"""A program at the inspector's interface: real HTTP, real events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import aiohttp

from trimaran.apps.cli.inspect import make_inspector
from trimaran.apps.inspector.inspector import Inspector
from trimaran.apps.inspector.servers import InspectedServer, Reach, ServerSource
from trimaran.apps.inspector.site import Site

SECONDS = 20.0


class Bench:
    """An inspector that runs, and a session with it."""

    def __init__(self, inspector: Inspector, site: Site, http: aiohttp.ClientSession) -> None:
        self.inspector = inspector
        self.site = site
        self.http = http
        self.url = site.url.rstrip("/")
        self.headers: dict[str, str] = {}

    async def log_in(self) -> None:
        answer = await self.call("POST", "/api/login", {"token": self.inspector.access.token})
        self.headers = {"Authorization": f"Bearer {answer['session']}"}

    async def raw(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any, str]:
        """Status, headers and text of an answer."""
        headers = {**self.headers, **options.pop("headers", {})}
        async with self.http.request(
            method, self.url + path, json=body, headers=headers, allow_redirects=False, **options
        ) as response:
            return response.status, response.headers, await response.text()

    async def call(self, method: str, path: str, body: Any = None, *, status: int | None = None) -> Any:
        """The JSON of an answer, which must be a good one, or have this status."""
        code, _, text = await self.raw(method, path, body)
        assert code == status if status is not None else code < 300, (code, text[:2000])
        return json.loads(text) if text else None

    async def get(self, path: str) -> Any:
        return await self.call("GET", path)

    async def post(self, path: str, body: Any = None, *, status: int | None = None) -> Any:
        return await self.call("POST", path, body if body is not None else {}, status=status)

    async def add(self, target: Any, name: str = "boats", **options: Any) -> InspectedServer:
        """A server in this process, or whatever `connect` takes, connected and read."""
        transport = "http" if isinstance(target, str) else "stdio" if isinstance(target, list) else "memory"
        reach = Reach(target=target, name=name, text=str(target), transport=transport, options=options)
        server = self.inspector.add(reach, ServerSource(kind="process", label="a test"))
        await server.connect()
        await self.until(lambda: server.state != "ready" or server.catalog.is_complete)
        return server

    async def until(self, is_true: Callable[[], Any]) -> Any:
        async with asyncio.timeout(SECONDS):
            while not (value := is_true()):
                await asyncio.sleep(0.01)
        return value

    async def finish(self, call: dict[str, Any]) -> Any:
        """A call, whole, when it is over."""
        book = self.inspector.calls
        await self.until(lambda: book.get(call["id"]).is_over)
        return await self.get(f"/api/calls/{call['id']}")

    async def tool(self, server: str, name: str, arguments: Any = None, **more: Any) -> Any:
        """The end of a tool's call."""
        new = {"server": server, "kind": "tool", "name": name, "arguments": arguments, **more}
        return await self.finish(await self.post("/api/calls", new))

    @contextlib.asynccontextmanager
    async def events(self, after: int = 0) -> AsyncGenerator[list[dict[str, Any]]]:
        """The events of the stream, as they come."""
        events: list[dict[str, Any]] = []
        url = f"{self.url}/api/events?after={after}"
        async with self.http.get(url, headers=self.headers) as response:

            async def read() -> None:
                async for line in response.content:
                    if line.startswith(b"data: "):
                        events.extend(json.loads(line[6:]))

            reading = asyncio.ensure_future(read())
            try:
                yield events
            finally:
                reading.cancel()
                await asyncio.wait((reading,))


@contextlib.asynccontextmanager
async def open_bench() -> AsyncGenerator[Bench]:
    inspector = make_inspector()
    async with (
        Site(inspector) as site,
        aiohttp.ClientSession(read_bufsize=2**26, max_line_size=2**26) as http,
    ):
        bench = Bench(inspector, site, http)
        await bench.log_in()
        yield bench
