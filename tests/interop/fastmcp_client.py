# pyright: reportMissingImports=false
"""FastMCP's client at work, run by `.tools/peers/fastmcp`: fastmcp_client.py ERA (URL | COMMAND ARG...).

ERA is what FastMCP calls `mode`: `legacy` shakes hands, `auto` asks `server/discover` first, a version is taken as given.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.messages import MessageHandler
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from report import Report, answer, listing, measured, plain, tool_result

warnings.simplefilter("ignore")  # it deprecates the legacy methods as they are used

LIMIT = 10  # seconds for what is waited for


class Notices(MessageHandler):
    def __init__(self) -> None:
        self.queue: asyncio.Queue[str] = asyncio.Queue()

    async def on_tool_list_changed(self, message: Any) -> None:
        self.queue.put_nowait(message.method)

    async def on_resource_updated(self, message: Any) -> None:
        self.queue.put_nowait(f"{message.method} {message.params.uri}")


class Peer:
    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []
        self.prompts: list[Any] = []
        self.logs: list[dict[str, Any]] = []
        self.notices = Notices()

    async def elicit(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        schema = plain(params)["requestedSchema"]
        self.questions.append({"message": message, "schema": schema})
        action, content = answer(message, schema["properties"])
        # FastMCP makes a dataclass of the form; that it could is part of the check.
        return response_type(**content) if content is not None else ElicitResult(action=action)

    async def sample(self, messages: Any, params: Any, context: Any) -> Any:
        self.prompts.append(plain(params))
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text="short"),
            model="fake-1",
            stop_reason="endTurn",
        )

    async def log(self, message: Any) -> None:
        self.logs.append(plain(message))


async def main(era: str, target: str, arguments: list[str]) -> None:
    peer, report = Peer(), Report()
    transport: Any
    if arguments:
        transport = StdioTransport(command=target, args=arguments, keep_alive=False)
    else:
        transport = SSETransport(target) if target.endswith("/sse") else StreamableHttpTransport(target)
    client = Client(
        transport,
        mode=era,
        elicitation_handler=peer.elicit,
        sampling_handler=peer.sample,
        roots=[types.Root(uri="file:///home/ada", name="home")],
        log_handler=peer.log,
        message_handler=peer.notices,
    )
    async with client:
        await checks(client, peer, report, over_sse=target.endswith("/sse"))
    report.print()


async def checks(client: Any, peer: Peer, report: Report, *, over_sse: bool) -> None:
    async def connect() -> Any:
        return {
            "version": client.protocol_version,
            "server": plain(client.server_info) if client.server_info else None,
            "instructions": client.instructions,
            "capabilities": plain(client.server_capabilities),
        }

    async def tools() -> Any:
        return listing(plain(await client.list_tools()))

    async def call(name: str, arguments: dict[str, Any] | None = None) -> Any:
        return tool_result(await client.call_tool(name, arguments, raise_on_error=False))

    async def typed(name: str, arguments: dict[str, Any]) -> Any:
        data = (await client.call_tool(name, arguments)).data
        return {"city": data.city, "speed": data.wind.speed}

    async def raised() -> Any:
        await client.call_tool("fail", {"reason": "tired"})

    async def count(hold: bool) -> Any:
        seen: list[Any] = []
        heard = asyncio.Event()
        peer.logs.clear()

        async def progress(value: float, total: float | None, message: str | None) -> None:
            seen.append([value, total, message])
            if value == total:
                heard.set()

        running = asyncio.ensure_future(client.call_tool("count", {"to": 5, "hold": hold}, progress_handler=progress))
        if hold:
            await asyncio.wait_for(heard.wait(), LIMIT)
            await client.call_tool("release")
        return {"result": tool_result(await running), "progress": seen, "logs": list(peer.logs)}

    async def order(item: str) -> Any:
        peer.questions.clear()
        return {"result": await call("order", {"item": item}), "questions": list(peer.questions)}

    async def summarise() -> Any:
        return {"result": await call("summarise", {"text": "a long story"}), "prompts": peer.prompts}

    async def big() -> Any:
        return measured(await client.call_tool("big", {"size": 5_000_000}))

    async def cancel() -> Any:
        began = asyncio.Event()

        async def progress(*_: Any) -> None:
            began.set()

        running = asyncio.ensure_future(client.call_tool("wait", {"name": "w"}, progress_handler=progress))
        await asyncio.wait_for(began.wait(), LIMIT)
        running.cancel()
        await asyncio.wait([running])
        return await call("has_stopped", {"name": "w"})

    async def changes() -> Any:
        await client.call_tool("grow")
        return [await asyncio.wait_for(peer.notices.queue.get(), LIMIT)]

    async def read(uri: str) -> Any:
        return plain(await client.read_resource(uri))

    async def prompt() -> Any:
        return plain((await client.get_prompt("greet", {"name": "Zoë", "style": "terse"})).messages)

    async def complete(ref: Any, argument: dict[str, str]) -> Any:
        return (await client.complete(ref, argument)).values

    async def listed(method: str) -> Any:
        return plain(await getattr(client, method)())

    greet = types.PromptReference(type="ref/prompt", name="greet")
    template = types.ResourceTemplateReference(type="ref/resource", uri="greeting://{name}")
    item = report.item
    await item("connect", connect)
    await item("tools", tools)
    await item("add", lambda: call("add", {"a": 2, "b": 3}))
    await item("weather", lambda: call("weather", {"city": "Zürich"}))
    await item("typed weather", lambda: typed("weather", {"city": "Zürich"}))
    await item("primes", lambda: call("primes", {"count": 4}))
    await item("picture", lambda: call("picture"))
    await item("echo", lambda: call("echo", {"text": "žluťoučký 你好 🛶 \u2028 \x00"}))
    await item("fifty", lambda: call("fifty", {f"n{i:02}": i for i in range(1, 51)}))
    await item("filler", lambda: call("filler_199"))
    if not over_sse:
        await item("big", big)
    await item("fail", lambda: call("fail", {"reason": "tired"}))
    await item("raised", raised)
    await item("crash", lambda: call("crash"))
    await item("bad arguments", lambda: call("add", {"a": "two", "b": 3}))
    await item("unknown tool", lambda: call("nonexistent"))
    await item("count", lambda: count(hold=True))
    await item("burst", lambda: count(hold=False))
    await item("order", lambda: order("a lamp"))
    await item("declined order", lambda: order("nothing"))
    await item("summarise", summarise)
    await item("folders", lambda: call("folders"))
    await item("resources", lambda: listed("list_resources"))
    await item("templates", lambda: listed("list_resource_templates"))
    await item("read text", lambda: read("config://app"))
    await item("read blob", lambda: read("image://pixel"))
    await item("read template", lambda: read("greeting://Ada%20L"))
    await item("read missing", lambda: read("config://nowhere"))
    await item("prompts", lambda: listed("list_prompts"))
    await item("prompt", prompt)
    await item("complete prompt", lambda: complete(greet, {"name": "style", "value": "p"}))
    await item("complete template", lambda: complete(template, {"name": "name", "value": "A"}))
    if client.protocol_version < "2026":
        await item("changes", changes)
    await item("ping", client.ping)
    await item("cancel", cancel)
    await item("after all that", lambda: call("add", {"a": 40, "b": 2}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
