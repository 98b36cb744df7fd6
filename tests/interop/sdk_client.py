# pyright: reportMissingImports=false
"""The official Python SDK's client at work, run by `.tools/peers/sdk`: sdk_client.py ERA (URL | COMMAND ARG...).

ERA is what the SDK calls `mode`: `legacy` shakes hands, `auto` asks `server/discover` first, a version is taken as given.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.subscriptions import ToolsListChanged
from peer_checks import LIMIT, Peer, PeerChecks, Progress
from report import Report, listing, plain

warnings.simplefilter("ignore")  # the SDK deprecates the legacy methods as they are used

URI = "config://app"


class SdkPeer(Peer):
    async def elicit(self, context: Any, params: Any) -> Any:
        action, content = self.decide(params)
        return types.ElicitResult(action=action, content=content)

    async def sample(self, context: Any, params: Any) -> Any:
        return self.write(params)

    async def roots(self, context: Any) -> Any:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada", name="home")])

    async def message(self, message: Any) -> None:
        method = getattr(message, "method", None)
        if method in ("notifications/tools/list_changed", "notifications/resources/updated"):
            uri = getattr(message.params, "uri", None)
            self.notices.put_nowait(f"{method} {uri}" if uri else method)


class SdkChecks(PeerChecks):
    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, progress: Progress | None = None
    ) -> Any:
        return await self.client.call_tool(name, arguments, progress_callback=progress)

    async def tools(self) -> Any:
        page = await self.client.list_tools()
        return {**listing(plain(page.tools)), "next": page.next_cursor}

    async def listed(self, kind: str) -> Any:
        return plain(getattr(await getattr(self.client, f"list_{kind}")(), kind))

    async def contents(self, uri: str) -> Any:
        return plain((await self.client.read_resource(uri)).contents)

    async def completed(self, ref: Any, argument: dict[str, str]) -> Any:
        return (await self.client.complete(ref, argument)).completion.values

    async def ping(self) -> Any:
        return plain(await self.client.send_ping())

    async def changes(self) -> Any:
        client, peer = self.client, self.peer
        if client.protocol_version < "2026":
            await client.subscribe_resource(URI)
            while not peer.notices.empty():
                peer.notices.get_nowait()
            await client.call_tool("grow")
            seen = [await peer.next_notice()]
            await client.call_tool("touch", {"uri": URI})
            seen.append(await peer.next_notice())
            await client.unsubscribe_resource(URI)
            return seen
        async with client.listen(tools_list_changed=True, resource_subscriptions=[URI]) as subscription:
            async with asyncio.timeout(LIMIT):
                await client.call_tool("grow")
                first = await anext(subscription)
                await client.call_tool("touch", {"uri": URI})
                second = await anext(subscription)
        return [notification_of(first), notification_of(second)]


def notification_of(event: Any) -> str:
    """The notification that the SDK made its event of."""
    if isinstance(event, ToolsListChanged):
        return "notifications/tools/list_changed"
    return f"notifications/resources/updated {event.uri}"


async def main(era: str, target: str, arguments: list[str]) -> None:
    peer, report = SdkPeer(), Report()
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
        await SdkChecks(client, peer, report).run(over_sse=target.endswith("/sse"))
    report.print()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
