# pyright: reportMissingImports=false
"""The official Python SDK's client, 1.x or 2.x, that cancels calls and leaves in the middle of them: cancel_client.py URL.

Prints one JSON object: how each call ended, and everything that the SDK complained about.
"""

from __future__ import annotations

import json
import logging
import sys
from importlib.metadata import version
from typing import Any

import anyio
from mcp import ClientSession

IS_FIRST = version("mcp").startswith("1.")
LIMIT = 20  # seconds for everything


class Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"log: {record.name}: {record.getMessage()}"[:300])

    async def hear(self, message: Any) -> None:
        """What the SDK hands to its message handler is an exception where something went wrong."""
        if isinstance(message, Exception):
            self.texts.append(f"handler: {message!r}"[:300])


complaints = Complaints()
report: dict[str, Any] = {}


async def cancel(session: Any, name: str, *, streams: bool) -> None:
    """Begin a call, tell the server that it is cancelled, and stop waiting for it."""
    scope, heard = anyio.CancelScope(), anyio.Event()
    ids: list[Any] = []

    async def progress(*_: Any) -> None:
        heard.set()  # asked for, so that the server streams

    async def call() -> None:
        ids.append(getattr(session, "_request_id", None))
        with scope:
            await session.call_tool("hold", {"name": name}, progress_callback=progress if streams else None)

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await session.call_tool("wait_until_begun", {"name": name})
        if streams:
            await heard.wait()
        if IS_FIRST:  # 2.x tells the server by itself
            await tell(session, ids[0])
        scope.cancel()
    report[name] = (await session.call_tool("wait_until_ended", {"name": name})).content[0].text


async def tell(session: Any, id: Any) -> None:
    from mcp import types

    params = types.CancelledNotificationParams(requestId=id)
    notice = types.CancelledNotification(method="notifications/cancelled", params=params)
    await session.send_notification(types.ClientNotification(notice))


async def leave(session: Any) -> None:
    """Stop waiting for a call that goes on; what is left to do is to close the session."""
    scope = anyio.CancelScope()

    async def stop() -> None:
        await session.call_tool("wait_until_begun", {"name": "left"})
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(stop)
        with scope:
            await session.call_tool("hold", {"name": "left"})


async def converse(session: Any) -> None:
    await cancel(session, "whole", streams=False)
    await cancel(session, "stream", streams=True)
    await anyio.sleep(0.5)  # an SDK that comes back for the stream does so ten times in this
    report["after"] = (await session.call_tool("add", {"a": 2, "b": 3})).content[0].text
    await leave(session)


async def connect(url: str) -> None:
    if IS_FIRST:
        from mcp.client.streamable_http import streamablehttp_client

        async with (
            streamablehttp_client(url) as (read, write, _),
            ClientSession(read, write, message_handler=complaints.hear) as session,
        ):
            await session.initialize()
            await converse(session)
        return
    from mcp import Client

    async with Client(url, mode="legacy", message_handler=complaints.hear) as client:
        await converse(client)


async def main(url: str) -> None:
    logging.getLogger().addHandler(complaints)
    try:
        with anyio.fail_after(LIMIT):
            await connect(url)
    except Exception as error:
        complaints.texts.append(f"the end: {error!r}"[:600])
    print(json.dumps({**report, "complaints": complaints.texts}))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
