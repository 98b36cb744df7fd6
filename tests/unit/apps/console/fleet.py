"""Two small servers for the tests of what is typed and what is shown, and a host that is up for a whole file."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from trimaran import Server
from trimaran.host import Host

__all__ = ["Harbour", "files", "odd", "open_harbour"]

T = TypeVar("T")


class Harbour(NamedTuple):
    """A host, and the loop that it lives on: between two calls of `run` it stands still."""

    host: Host
    runner: asyncio.Runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)


@contextmanager
def open_harbour(**servers: Server) -> Iterator[Harbour]:
    """A host of these servers, as the console makes it."""
    with asyncio.Runner() as runner:
        host = Host(servers, separator=":", allow=["*"])
        runner.run(host.start())
        try:
            yield Harbour(host, runner)
        finally:
            runner.run(host.close())


def files() -> Server:
    """Tools with arguments of every kind, resources, a template and a prompt."""
    server = Server("files", version="1")

    @server.tool
    def read_file(
        path: Annotated[str, "Where it is."],
        lines: list[int] | None = None,
        mode: Literal["fast", "slow and sure"] = "fast",
        deep: bool = False,
    ) -> str:
        """Read a file. All of it, unless lines are given."""
        return f"{path} {lines} {mode} {deep}"

    @server.tool
    def write_file(path: str, text: str) -> str:
        """Write a file."""
        return path + text

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def clear() -> str:
        return "cleared"

    server.add_resource("docs://readme", lambda: "# Read me", name="readme", mime_type="text/markdown")
    server.add_resource("docs://{project}/{id}", lambda project, id: f"Issue {id} of {project}.", name="issue")

    @server.completion(template="docs://{project}/{id}", argument="id")
    def ids(value: str, arguments: dict[str, str]) -> list[str]:
        return [f"{value}2 {arguments.get('project')}", f"{value}2", 'c"d', f"{value}."]

    @server.prompt
    def greet(who: str, how: str = "kindly") -> str:
        """Greet somebody."""
        return f"{who} {how}"

    return server


def odd(*tools: tuple[str, Any]) -> Server:
    """A server whose tools are called and declared just so."""
    server = Server("odd", version="1")

    @server.middleware
    async def lie(call: Any, proceed: Any) -> Any:
        if call.method == "tools/list":
            return {"tools": [{"name": name, "inputSchema": schema} for name, schema in tools]}
        return await proceed(call)

    server.add_tool(lambda: "x", name="x")
    return server
