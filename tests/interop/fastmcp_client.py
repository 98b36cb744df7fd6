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
from peer_checks import Peer, PeerChecks, Progress
from report import Report, listing, plain

warnings.simplefilter("ignore")  # it deprecates the legacy methods as they are used


class Notices(MessageHandler):
    def __init__(self, queue: asyncio.Queue[str]) -> None:
        self.queue = queue

    async def on_tool_list_changed(self, message: Any) -> None:
        self.queue.put_nowait(message.method)

    async def on_resource_updated(self, message: Any) -> None:
        self.queue.put_nowait(f"{message.method} {message.params.uri}")


class FastMcpPeer(Peer):
    async def elicit(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        action, content = self.decide(params)
        # FastMCP makes a dataclass of the form; that it could is part of the check.
        return response_type(**content) if content is not None else ElicitResult(action=action)

    async def sample(self, messages: Any, params: Any, context: Any) -> Any:
        return self.write(params)


class FastMcpChecks(PeerChecks):
    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, progress: Progress | None = None
    ) -> Any:
        return await self.client.call_tool(name, arguments, progress_handler=progress, raise_on_error=False)

    async def tools(self) -> Any:
        return listing(plain(await self.client.list_tools()))

    async def listed(self, kind: str) -> Any:
        return plain(await getattr(self.client, f"list_{kind}")())

    async def contents(self, uri: str) -> Any:
        return plain(await self.client.read_resource(uri))

    async def completed(self, ref: Any, argument: dict[str, str]) -> Any:
        return (await self.client.complete(ref, argument)).values

    async def ping(self) -> Any:
        return await self.client.ping()

    async def changes(self) -> Any:
        await self.call_tool("grow")
        return [await self.peer.next_notice()]

    async def more(self) -> None:
        async def typed() -> Any:
            weather = (await self.client.call_tool("weather", {"city": "Zürich"})).data
            return {"city": weather.city, "speed": weather.wind.speed}

        await self.report.item("typed weather", typed)
        await self.report.item("raised", lambda: self.client.call_tool("fail", {"reason": "tired"}))


async def main(era: str, target: str, arguments: list[str]) -> None:
    peer, report = FastMcpPeer(), Report()
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
        message_handler=Notices(peer.notices),
    )
    async with client:
        checks = FastMcpChecks(client, peer, report)
        await checks.run(over_sse=target.endswith("/sse"), has_changes=client.protocol_version < "2026")
    report.print()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
