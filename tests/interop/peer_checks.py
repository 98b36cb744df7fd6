# pyright: reportMissingImports=false
"""What the drivers of the Python peers do with our server, in the words of each peer's library.

Run by the peers' interpreters, beside the driver: nothing but the standard library and `mcp_types` may be imported here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from report import Report, answer, measured, plain, tool_result

LIMIT = 10  # seconds for what is waited for

Progress = Callable[[float, float | None, str | None], Awaitable[None]]


class Peer:
    """The person and the model at the client, and what they were asked and told."""

    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []
        self.prompts: list[Any] = []
        self.logs: list[dict[str, Any]] = []
        self.notices: asyncio.Queue[str] = asyncio.Queue()

    def decide(self, params: Any) -> tuple[str, dict[str, Any] | None]:
        question = plain(params)
        message, schema = question["message"], question["requestedSchema"]
        self.questions.append({"message": message, "schema": schema})
        return answer(message, schema["properties"])

    def write(self, params: Any) -> Any:
        self.prompts.append(plain(params))
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text="short"),
            model="fake-1",
            stop_reason="endTurn",
        )

    async def log(self, message: Any) -> None:
        self.logs.append(plain(message))

    async def next_notice(self) -> str:
        return await asyncio.wait_for(self.notices.get(), LIMIT)


class PeerChecks:
    """One client at work. What the libraries call differently is below, for each to say."""

    def __init__(self, client: Any, peer: Peer, report: Report) -> None:
        self.client = client
        self.peer = peer
        self.report = report

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, progress: Progress | None = None
    ) -> Any:
        raise NotImplementedError

    async def tools(self) -> Any:
        raise NotImplementedError

    async def listed(self, kind: str) -> Any:
        raise NotImplementedError

    async def contents(self, uri: str) -> Any:
        raise NotImplementedError

    async def completed(self, ref: Any, argument: dict[str, str]) -> Any:
        raise NotImplementedError

    async def ping(self) -> Any:
        raise NotImplementedError

    async def changes(self) -> Any:
        raise NotImplementedError

    async def more(self) -> None:
        """Checks of what only this library has."""

    # What every library does alike

    async def connect(self) -> Any:
        client = self.client
        return {
            "version": client.protocol_version,
            "server": plain(client.server_info) if client.server_info else None,
            "instructions": client.instructions,
            "capabilities": plain(client.server_capabilities),
        }

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        return tool_result(await self.call_tool(name, arguments))

    async def count(self, *, hold: bool) -> Any:
        seen: list[Any] = []
        is_counted = asyncio.Event()
        self.peer.logs.clear()

        async def progress(value: float, total: float | None, message: str | None) -> None:
            seen.append([value, total, message])
            if value == total:
                is_counted.set()

        running = asyncio.ensure_future(self.call_tool("count", {"to": 5, "hold": hold}, progress))
        if hold:
            await asyncio.wait_for(is_counted.wait(), LIMIT)
            await self.call_tool("release")
        return {"result": tool_result(await running), "progress": seen, "logs": list(self.peer.logs)}

    async def order(self, item: str) -> Any:
        self.peer.questions.clear()
        return {"result": await self.call("order", {"item": item}), "questions": list(self.peer.questions)}

    async def summarise(self) -> Any:
        return {"result": await self.call("summarise", {"text": "a long story"}), "prompts": self.peer.prompts}

    async def big(self) -> Any:
        return measured(await self.call_tool("big", {"size": 5_000_000}))

    async def cancel(self) -> Any:
        has_begun = asyncio.Event()

        async def progress(*_: Any) -> None:
            has_begun.set()

        running = asyncio.ensure_future(self.call_tool("wait", {"name": "w"}, progress))
        await asyncio.wait_for(has_begun.wait(), LIMIT)
        running.cancel()
        await asyncio.wait([running])
        return await self.call("has_stopped", {"name": "w"})

    async def prompt(self) -> Any:
        return plain((await self.client.get_prompt("greet", {"name": "Zoë", "style": "terse"})).messages)

    async def run(self, *, over_sse: bool, has_changes: bool = True) -> None:
        greet = types.PromptReference(type="ref/prompt", name="greet")
        template = types.ResourceTemplateReference(type="ref/resource", uri="greeting://{name}")
        item, call = self.report.item, self.call
        await item("connect", self.connect)
        await item("tools", self.tools)
        await item("add", lambda: call("add", {"a": 2, "b": 3}))
        await item("weather", lambda: call("weather", {"city": "Zürich"}))
        await item("primes", lambda: call("primes", {"count": 4}))
        await item("picture", lambda: call("picture"))
        await item("echo", lambda: call("echo", {"text": "žluťoučký 你好 🛶 \u2028 \x00"}))
        await item("fifty", lambda: call("fifty", {f"n{i:02}": i for i in range(1, 51)}))
        await item("filler", lambda: call("filler_199"))
        if not over_sse:
            await item("big", self.big)
        await item("fail", lambda: call("fail", {"reason": "tired"}))
        await item("crash", lambda: call("crash"))
        await item("bad arguments", lambda: call("add", {"a": "two", "b": 3}))
        await item("unknown tool", lambda: call("nonexistent"))
        await self.more()
        await item("count", lambda: self.count(hold=True))
        await item("burst", lambda: self.count(hold=False))
        await item("order", lambda: self.order("a lamp"))
        await item("declined order", lambda: self.order("nothing"))
        await item("summarise", self.summarise)
        await item("folders", lambda: call("folders"))
        await item("resources", lambda: self.listed("resources"))
        await item("templates", lambda: self.listed("resource_templates"))
        await item("read text", lambda: self.contents("config://app"))
        await item("read blob", lambda: self.contents("image://pixel"))
        await item("read template", lambda: self.contents("greeting://Ada%20L"))
        await item("read missing", lambda: self.contents("config://nowhere"))
        await item("prompts", lambda: self.listed("prompts"))
        await item("prompt", self.prompt)
        await item("complete prompt", lambda: self.completed(greet, {"name": "style", "value": "p"}))
        await item("complete template", lambda: self.completed(template, {"name": "name", "value": "A"}))
        if has_changes:
            await item("changes", self.changes)
        await item("ping", self.ping)
        await item("cancel", self.cancel)
        await item("after all that", lambda: call("add", {"a": 40, "b": 2}))
