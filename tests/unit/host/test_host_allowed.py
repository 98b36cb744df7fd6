"""A host sends only what was allowed, to whom it was allowed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import pytest
from tests.support.until import soon

from trimaran import Context, Host, Server
from trimaran.errors import ConfigError
from trimaran.host import (
    ConsentBridge,
    PermissionDenied,
    Question,
    UnknownName,
)

from .echo import make_echo


def make_thinker() -> Server:
    server = Server("thinker", version="1")

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("What is a sail?", max_tokens=10)).text

    return server


async def test_whoever_shows_a_question_cannot_change_what_is_sent() -> None:
    """R239: the rules decided about these arguments, and about no others."""

    def person(question: Question) -> None:
        shown: Any = question.arguments
        shown["text"]["deep"] = "harmful"
        shown["more"] = 1
        question.allow()

    async with Host({"echo": make_echo()}, on_question=person, environ={}) as host:
        result = await soon(host.call("mcp__echo__say", {"text": {"deep": "harmless"}}))
    assert not result.is_error
    assert "harmless" in result.text


async def test_what_was_allowed_for_good_does_not_hold_for_another_server_of_the_same_name() -> None:
    """The same words of a tool, but not the same tool."""
    asked: list[str] = []

    def person(question: Question) -> None:
        asked.append(question.kind)
        question.allow("always")

    async with Host({"echo": make_echo()}, on_question=person, environ={}) as host:
        await soon(host.call("mcp__echo__say", {"text": "a"}))
        await soon(host.call("mcp__echo__say", {"text": "b"}))
        assert asked == ["permission"]
        await soon(host.stop_server("echo"))
        await soon(host.start_server("echo", make_echo()))
        await soon(host.call("mcp__echo__say", {"text": "c"}))
        assert asked == ["permission", "permission"]


async def test_what_was_denied_for_good_stays_denied_when_a_server_comes_back() -> None:
    def person(question: Question) -> None:
        question.deny("always", pattern="*")

    servers = {"echo": make_echo(), "other": make_echo()}
    async with Host(servers, on_question=person, environ={}) as host:
        with pytest.raises(PermissionDenied):
            await soon(host.call("mcp__echo__say", {"text": "a"}))
        await soon(host.stop_server("echo"))
        await soon(host.start_server("echo", make_echo()))
        for name in ("mcp__echo__say", "mcp__other__say"):
            assert host.explain(name, {"text": "a"}).decision.is_denied


async def test_our_model_is_not_lent_to_another_server_of_the_same_name() -> None:
    asked: list[str] = []

    def person(question: Question) -> None:
        asked.append(question.kind)
        question.allow("always")

    def sample(server: str, ask: Any) -> str:
        return "cloth"

    async with Host({"t": make_thinker()}, allow=["*"], on_question=person, on_sample=sample, environ={}) as host:
        for _ in range(2):
            assert (await soon(host.call("mcp__t__think"))).data == "cloth"
        assert asked == ["sampling"]
        await soon(host.stop_server("t"))
        await soon(host.start_server("t", make_thinker()))
        await soon(host.call("mcp__t__think"))
        assert asked == ["sampling", "sampling"]


@pytest.mark.parametrize("name", ["on_elicit", "on_sample"])
def test_no_option_leads_around_the_rules(name: str) -> None:
    """R260: `Elicit(server)` has a say in every question of a server's."""
    with pytest.raises(ConfigError, match=name):
        Host({}, options=cast("Any", {name: print}), environ={})


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://evil.example\\@good.example/", "evil.example"),
        ("https:\\\\evil.example/@good.example", "evil.example"),
        ("https://good.example@evil.example/", "evil.example"),
        ("https://evil.example#@good.example", "evil.example"),
    ],
    ids=["backslash", "backslashes", "user", "fragment"],
)
async def test_the_host_of_a_page_is_the_one_that_a_browser_goes_to(url: str, host: str) -> None:
    """R261."""
    question = Question("url", "x", "Sign in", url=url)
    assert question.host == host
    question.decline()


async def test_a_dialog_that_was_ended_from_outside_is_a_no() -> None:
    """R259: not a wait of five minutes."""

    async def dialog(question: Question) -> None:
        raise asyncio.CancelledError

    bridge = ConsentBridge(on_question=dialog)
    question = await soon(bridge.ask(Question("permission", "x", "Call?")))
    assert question.reply == "deny"
    assert question.note
    await soon(bridge.close())


async def test_a_closed_bridge_leaves_no_dialog_behind() -> None:
    ended = asyncio.Event()
    shown = asyncio.Event()

    async def dialog(question: Question) -> None:
        shown.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ended.set()

    bridge = ConsentBridge(on_question=dialog)
    asking = asyncio.ensure_future(bridge.ask(Question("permission", "x", "Call?")))
    await soon(shown.wait())
    await soon(bridge.close())
    assert ended.is_set()
    with contextlib.suppress(Exception):
        await soon(asking)


async def test_a_name_for_people_does_not_move_to_another_servers_tool() -> None:
    """C28: also where a separator can be part of a server's name."""

    def make(tool: str) -> Server:
        server = Server(tool, version="1")
        server.add_tool(lambda: tool, name=tool)
        return server

    async with Host({"a_b": make("c")}, separator="_", allow=["*"], environ={}) as host:
        assert (await soon(host.call("a_b_c"))).data == "c"
        await soon(host.start_server("a", make("b_c")))
        assert (await soon(host.call("a_b_c"))).data == "c"
        assert (await soon(host.call(host.tools()[0].name))).data == "b_c"
        await soon(host.stop_server("a_b"))
        with pytest.raises(UnknownName):
            await soon(host.call("a_b_c"))
