# pyright: reportMissingImports=false
"""The official Python SDK's client at work, run by `.tools/peers/sdk`: sdk_client.py ERA (URL | COMMAND ARG...).

ERA is what the SDK calls `mode`: `legacy` shakes hands, `auto` asks `server/discover` first, a version is taken as given.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.subscriptions import ToolsListChanged
from report import Report, answer, listing, measured, plain, tool_result

warnings.simplefilter("ignore")  # the SDK deprecates the legacy methods as they are used

URI = "config://app"
LIMIT = 10  # seconds for what is waited for


class Peer:
    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []
        self.prompts: list[Any] = []
        self.logs: list[dict[str, Any]] = []
        self.notices: list[str] = []
        self.noticed = anyio.Event()

    async def elicit(self, context: Any, params: Any) -> Any:
        asked = plain(params)
        self.questions.append({"message": asked["message"], "schema": asked["requestedSchema"]})
        action, content = answer(asked["message"], asked["requestedSchema"]["properties"])
        return types.ElicitResult(action=action, content=content)

    async def sample(self, context: Any, params: Any) -> Any:
        self.prompts.append(plain(params))
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text="short"),
            model="fake-1",
            stop_reason="endTurn",
        )

    async def roots(self, context: Any) -> Any:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada", name="home")])

    async def log(self, params: Any) -> None:
        self.logs.append(plain(params))

    async def message(self, message: Any) -> None:
        method = getattr(message, "method", None)
        if method in ("notifications/tools/list_changed", "notifications/resources/updated"):
            uri = getattr(message.params, "uri", None)
            self.notices.append(f"{method} {uri}" if uri else method)
            self.noticed.set()

    async def next_notice(self) -> str:
        with anyio.fail_after(LIMIT):
            while not self.notices:
                self.noticed = anyio.Event()
                await self.noticed.wait()
        return self.notices.pop(0)


async def main(era: str, target: str, arguments: list[str]) -> None:
    peer, report = Peer(), Report()
    server: Any = sse_client(target) if target.endswith("/sse") else target
    if arguments:
        server = StdioServerParameters(command=target, args=arguments)
    client = Client(
        server,
        mode=era,
        elicitation_callback=peer.elicit,
        sampling_callback=peer.sample,
        list_roots_callback=peer.roots,
        logging_callback=peer.log,
        log_level="info",
        message_handler=peer.message,
        client_info=types.Implementation(name="sdk-driver", version="1"),
    )
    async with client:
        await checks(client, peer, report, over_sse=target.endswith("/sse"))
    report.print()


def told(event: Any) -> str:
    """The SDK's event, by the notification it was made of."""
    if isinstance(event, ToolsListChanged):
        return "notifications/tools/list_changed"
    return f"notifications/resources/updated {event.uri}"


async def checks(client: Any, peer: Peer, report: Report, *, over_sse: bool) -> None:
    modern = client.protocol_version >= "2026"

    async def connect() -> Any:
        return {
            "version": client.protocol_version,
            "server": plain(client.server_info) if client.server_info else None,
            "instructions": client.instructions,
            "capabilities": plain(client.server_capabilities),
        }

    async def tools() -> Any:
        page = await client.list_tools()
        return {**listing(plain(page.tools)), "next": page.next_cursor}

    async def call(name: str, arguments: dict[str, Any] | None = None) -> Any:
        return tool_result(await client.call_tool(name, arguments))

    async def count(hold: bool) -> Any:
        seen: list[Any] = []
        results: list[Any] = []
        heard = anyio.Event()
        peer.logs.clear()

        async def progress(value: float, total: float | None, message: str | None) -> None:
            seen.append([value, total, message])
            if value == total:
                heard.set()

        async def run() -> None:
            results.append(await client.call_tool("count", {"to": 5, "hold": hold}, progress_callback=progress))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            if hold:
                with anyio.fail_after(LIMIT):
                    await heard.wait()
                await client.call_tool("release")
        return {"result": tool_result(results[0]), "progress": seen, "logs": list(peer.logs)}

    async def order(item: str) -> Any:
        peer.questions.clear()
        return {"result": await call("order", {"item": item}), "questions": list(peer.questions)}

    async def summarise() -> Any:
        return {"result": await call("summarise", {"text": "a long story"}), "prompts": peer.prompts}

    async def big() -> Any:
        return measured(await client.call_tool("big", {"size": 5_000_000}))

    async def cancel() -> Any:
        began = anyio.Event()

        async def progress(*_: Any) -> None:
            began.set()

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: client.call_tool("wait", {"name": "w"}, progress_callback=progress))
            with anyio.fail_after(LIMIT):
                await began.wait()
            group.cancel_scope.cancel()
        return await call("has_stopped", {"name": "w"})

    async def changes() -> Any:
        if not modern:
            await client.subscribe_resource(URI)
            peer.notices.clear()
            await client.call_tool("grow")
            seen = [await peer.next_notice()]
            await client.call_tool("touch", {"uri": URI})
            seen.append(await peer.next_notice())
            await client.unsubscribe_resource(URI)
            return seen
        async with client.listen(tools_list_changed=True, resource_subscriptions=[URI]) as subscription:
            with anyio.fail_after(LIMIT):
                await client.call_tool("grow")
                first = await anext(subscription)
                await client.call_tool("touch", {"uri": URI})
                second = await anext(subscription)
        return [told(first), told(second)]

    async def ping() -> Any:
        return plain(await client.send_ping())

    async def read(uri: str) -> Any:
        return plain((await client.read_resource(uri)).contents)

    async def listed(method: str, field: str) -> Any:
        return plain(getattr(await getattr(client, method)(), field))

    async def prompt() -> Any:
        return plain((await client.get_prompt("greet", {"name": "Zoë", "style": "terse"})).messages)

    async def complete(ref: Any, argument: dict[str, str]) -> Any:
        return (await client.complete(ref, argument)).completion.values

    greet = types.PromptReference(type="ref/prompt", name="greet")
    template = types.ResourceTemplateReference(type="ref/resource", uri="greeting://{name}")
    item = report.item
    await item("connect", connect)
    await item("tools", tools)
    await item("add", lambda: call("add", {"a": 2, "b": 3}))
    await item("weather", lambda: call("weather", {"city": "Zürich"}))
    await item("primes", lambda: call("primes", {"count": 4}))
    await item("picture", lambda: call("picture"))
    await item("echo", lambda: call("echo", {"text": "žluťoučký 你好 🛶 \u2028 \x00"}))
    await item("fifty", lambda: call("fifty", {f"n{i:02}": i for i in range(1, 51)}))
    await item("filler", lambda: call("filler_199"))
    if not over_sse:
        await item("big", big)
    await item("fail", lambda: call("fail", {"reason": "tired"}))
    await item("crash", lambda: call("crash"))
    await item("bad arguments", lambda: call("add", {"a": "two", "b": 3}))
    await item("unknown tool", lambda: call("nonexistent"))
    await item("count", lambda: count(hold=True))
    await item("burst", lambda: count(hold=False))
    await item("order", lambda: order("a lamp"))
    await item("declined order", lambda: order("nothing"))
    await item("summarise", summarise)
    await item("folders", lambda: call("folders"))
    await item("resources", lambda: listed("list_resources", "resources"))
    await item("templates", lambda: listed("list_resource_templates", "resource_templates"))
    await item("read text", lambda: read("config://app"))
    await item("read blob", lambda: read("image://pixel"))
    await item("read template", lambda: read("greeting://Ada%20L"))
    await item("read missing", lambda: read("config://nowhere"))
    await item("prompts", lambda: listed("list_prompts", "prompts"))
    await item("prompt", prompt)
    await item("complete prompt", lambda: complete(greet, {"name": "style", "value": "p"}))
    await item("complete template", lambda: complete(template, {"name": "name", "value": "A"}))
    await item("changes", changes)
    await item("ping", ping)
    await item("cancel", cancel)
    await item("after all that", lambda: call("add", {"a": 40, "b": 2}))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3:])
