"""Lists and caches that change while they are read."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.support.peers import (
    Pipe,
    listed,
    ok,
    said,
    tell,
    tool,
)

from trimaran import connect, errors


async def test_a_list_that_changes_while_it_is_read_is_not_taken_for_complete() -> None:
    wrapped = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}

    def page(pipe: Pipe, message: Any) -> None:
        if "cursor" not in message["params"]:
            one = tool("one", outputSchema={**wrapped, "title": "oneOutput"})
            pipe.say(ok(message["id"], listed(one, nextCursor="2")))
            return
        if len(pipe.all("tools/list")) == 2:
            pipe.say(tell("notifications/tools/list_changed"))
        pipe.say(ok(message["id"], listed(tool("two"))))

    pipe = Pipe().modern().on("tools/list", page)
    pipe.on("tools/call", said("3", structuredContent={"result": 3}))
    async with connect(pipe) as client:
        await client.call_tool("two")
        assert (await client.call_tool("one")).data == 3


async def test_what_changed_while_it_was_asked_for_is_not_kept() -> None:
    def answer(pipe: Pipe, message: Any) -> None:
        if len(pipe.all("prompts/list")) == 1:
            pipe.say(tell("notifications/prompts/list_changed"))
        body = {"resultType": "complete", "prompts": [], "ttlMs": 60_000, "cacheScope": "private"}
        pipe.say(ok(message["id"], body))

    pipe = Pipe().modern().on("prompts/list", answer)
    async with connect(pipe) as client:
        await client.list_prompts()
        await client.list_prompts()
        assert len(pipe.all("prompts/list")) == 2


async def test_a_time_to_live_beyond_all_numbers_does_no_harm() -> None:
    pipe = Pipe().modern()
    number = "9" * 400

    def answer(pipe: Pipe, message: Any) -> None:
        pipe.shout(
            f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{{"resultType":"complete","tools":[],"ttlMs":{number}}}}}'.encode()
        )

    pipe.on("tools/list", answer)
    async with connect(pipe) as client:
        with contextlib.suppress(errors.Error):
            await client.list_tools()
