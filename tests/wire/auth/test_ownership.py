"""What a caller began is its own: to another it is what an unknown id is (R102, protocol.md 6.3, 6.4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.badges import ALICE, ALICE_ELSEWHERE, BOB, NOBODY, Badges, badge, demo
from tests.support.harness import Reply, Wire, encode, initialize, notification, serve

from trimaran import Context, Server

OTHERS: dict[str, dict[str, Any]] = {
    "another subject": BOB,
    "the same subject of another issuer": ALICE_ELSEWHERE,
    "nobody": NOBODY,
}
UNKNOWN = "mcp_" + "0" * 32


class Open(Badges):
    is_open = True


async def verb(wire: Wire, name: str, session: Any, who: dict[str, Any], id: str) -> Reply:
    """One use of a session id by somebody."""
    as_who = {**who, "Mcp-Session-Id": id}
    bare = [(k, v) for k, v in session.headers(as_who) if k.lower() not in ("content-type", "accept")]
    if name == "get":
        return await wire.send("GET", [*bare, ("Accept", "text/event-stream")])
    if name == "resume":
        return await wire.send("GET", [*bare, ("Accept", "text/event-stream"), ("Last-Event-ID", "g:0")])
    if name == "delete":
        return await wire.send("DELETE", bare)
    message = {
        "call": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        "ping": {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        "cancel": notification("notifications/cancelled", {"requestId": 5}),
        "answer": {"jsonrpc": "2.0", "id": "srv-1", "result": {"action": "accept"}},
        "batch": [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}],
        "initialize": initialize(),
    }[name]
    return await session.post(message, as_who)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", ["call", "ping", "cancel", "answer", "batch", "initialize", "get", "resume", "delete"])
async def test_a_session_of_somebody_else_is_an_unknown_one(binding: str, name: str, other: str) -> None:
    """R102: the same status and the same bytes; and its owner notices nothing."""
    async with serve(binding, demo(), auth=Open()) as wire:
        alice = await wire.initialize(headers=ALICE)
        unknown = await verb(wire, name, alice, OTHERS[other], UNKNOWN)
        foreign = await verb(wire, name, alice, OTHERS[other], alice.id)
        assert foreign.status == unknown.status == 404
        assert foreign.body == unknown.body
        assert (await alice.call("whoami")).result["content"][0]["text"] == "alice@None"


async def test_a_session_of_nobody_is_not_for_somebody(binding: str) -> None:
    """R102: an anonymous caller owns what it began, too."""
    async with serve(binding, demo(), auth=Open()) as wire:
        nobody = await wire.initialize()
        assert (await nobody.ask("ping")).status == 200
        assert (await nobody.ask("ping", headers=ALICE)).status == 404


async def test_other_credentials_of_the_same_caller_are_the_same_caller(binding: str) -> None:
    """R102: subject and issuer count, not the token, its scopes or its time."""
    async with serve(binding, demo(), auth=Badges()) as wire:
        alice = await wire.initialize(headers=badge("alice@here+read"))
        assert (await alice.ask("ping", headers=badge("alice@here+write~100"))).status == 200


async def test_what_was_streamed_to_one_caller_is_not_replayed_to_another(binding: str) -> None:
    """R102, R125: the events of a call that broke off, named by their id."""
    server = Server("slow", version="1")
    release = asyncio.Event()

    @server.tool
    async def secret(ctx: Context) -> str:
        await ctx.notify("notifications/message", {"level": "info", "data": "begun"})
        await release.wait()
        return "the secret"

    async with serve(binding, server, auth=Badges()) as wire:
        alice = await wire.initialize(headers=ALICE)
        stream = await alice.open_call("secret")
        event = await stream.next()
        await stream.close()
        release.set()
        async with await alice.get(last=event.id, headers=BOB) as refused:
            assert refused.status == 404
            assert b"secret" not in await refused.read()
        async with await alice.get(last=event.id) as resumed:
            assert (await resumed.message())["result"]["content"][0]["text"] == "the secret"


@pytest.mark.parametrize("other", OTHERS)
async def test_a_message_for_somebody_elses_stream_goes_nowhere(binding: str, other: str) -> None:
    """R102, R137: HTTP+SSE."""
    async with serve(binding, demo(), auth=Open(), sse_path="/sse") as wire:
        async with await wire.open("GET", {"Accept": "text/event-stream", **ALICE}, path="/sse") as stream:
            event = await stream.event()
            assert event is not None
            plain = {k: v for k, v in OTHERS[other].items() if v is not None}
            headers = {"Content-Type": "application/json", **plain}
            foreign = await wire.send("POST", headers, encode(initialize()), path=event.data)
            unknown = await wire.send("POST", headers, encode(initialize()), path="/sse/messages?sessionId=" + "0" * 32)
            assert foreign.status == unknown.status == 404
            assert foreign.body == unknown.body
            mine = {"Content-Type": "application/json", **ALICE}
            assert (await wire.send("POST", mine, encode(initialize()), path=event.data)).status == 202
            assert "result" in await stream.message()


@pytest.mark.parametrize("other", OTHERS)
async def test_a_state_is_good_only_for_who_got_it(binding: str, other: str) -> None:
    """protocol.md 6.4: requestState holds the principal, sealed."""
    server = Server("asking", version="1")

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"hello {answer.content}"

    caps = {"elicitation": {"form": {}}}
    async with serve(binding, server, auth=Open()) as wire:
        asked = (await wire.call("greet", caps=caps, headers=ALICE)).result
        key = next(iter(asked["inputRequests"]))
        answers = {key: {"action": "accept", "content": {"name": "Ann"}}}
        more = {"requestState": asked["requestState"], "inputResponses": answers}
        stolen = await wire.call("greet", more=more, caps=caps, headers=OTHERS[other])
        assert stolen.error["code"] == -32602
        forged = await wire.call(
            "greet", more={**more, "requestState": asked["requestState"][:-2]}, caps=caps, headers=OTHERS[other]
        )
        assert forged.error["code"] == -32602
        mine = await wire.call("greet", more=more, caps=caps, headers=badge("alice+read"))
        assert "Ann" in mine.result["content"][0]["text"]


async def test_a_listen_stream_cannot_be_ended_by_another(binding: str) -> None:
    """protocol.md 3.6: over HTTP only its own connection ends it, whatever id is named."""
    server = demo()
    async with serve(binding, server, auth=Badges()) as wire:
        wanted = {"notifications": {"toolsListChanged": True}}
        async with await wire.open_modern("subscriptions/listen", wanted, id="l1", headers=ALICE) as stream:
            await stream.message()
            cancel = notification("notifications/cancelled", {"requestId": "l1"})
            modern = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "notifications/cancelled"}
            assert (await wire.post(cancel, {**BOB, **modern})).status == 202
            server.notify.tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
