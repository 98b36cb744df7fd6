"""What is written down of what was asked, what nobody is asked at all, and answers that come too late."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.until import soon

from trimaran import Context, Host, Server, ToolError
from trimaran.client import Sampling
from trimaran.errors import LocalProtocolError, ProtocolError
from trimaran.host import ConsentBridge, ConsentLost, PermissionDenied, Question
from trimaran.host.permissions import Decision

ERAS = ["modern", "legacy"]


class Book:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def record(self, decision: Decision, arguments: Mapping[str, Any] | None = None) -> None:
        self.decisions.append(decision)

    def about(self, name: str) -> list[tuple[str, str]]:
        return [(one.action, one.by) for one in self.decisions if one.act.name == name]


def make_server(url: str = "https://id.example/login") -> Server:
    server = Server("desk", version="1")

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("What is a sail?", max_tokens=10)).text

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return answer.action

    @server.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit("Sign in", url=url)).action

    server.add_tool(lambda: "said", name="say")
    return server


def make_host(book: Book | None = None, **options: Any) -> Host:
    options = {"allow": ["*"], "environ": {}, "on_sample": lambda server, ask: "cloth", **options}
    servers = options.pop("servers", None) or {"desk": make_server()}
    return Host(servers, audit=book, **options)


async def thought(host: Host) -> Any:
    """What the server made of our model; None, where it may not use it."""
    try:
        found = await soon(host.call("mcp__desk__think"))
    except ProtocolError:
        return None
    return None if found.is_error else found.data


# --- what is written down --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("reply", "written"),
    [
        (lambda question: question.allow(), [("allow", "person"), ("allow", "person")]),
        (lambda question: question.allow("always"), [("allow", "person"), ("allow", "remembered")]),
        (lambda question: question.deny(), [("deny", "person"), ("deny", "person")]),
        (lambda question: question.deny("always"), [("deny", "person"), ("deny", "remembered")]),
    ],
    ids=["once", "always", "no", "never"],
)
async def test_who_let_a_server_use_our_model_is_written_down(era: str, reply: Any, written: Any) -> None:
    book = Book()
    async with make_host(book, on_question=reply, options={"era": era}) as host:
        for _ in range(2):
            assert await thought(host) == ("cloth" if written[0][0] == "allow" else None)
    assert book.about("Sample(desk)") == written


async def test_so_is_what_happens_with_nobody_there() -> None:
    book = Book()
    async with make_host(book, bridge=ConsentBridge()) as host:
        assert await thought(host) is None
    async with make_host(book, auto_allow=True) as host:
        assert await thought(host) == "cloth"
    assert book.about("Sample(desk)") == [("deny", "nobody"), ("allow", "auto-allow")]


async def test_a_person_who_does_not_answer_has_not_said_no() -> None:
    book = Book()
    bridge = ConsentBridge(on_question=lambda question: None, cap=0.01)
    async with make_host(book, bridge=bridge) as host:
        assert await thought(host) is None
    assert book.about("Sample(desk)") == [("deny", "nobody")]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("tool", "act", "before"),
    [
        ("think", "Sample(desk)", []),
        ("ask", "Elicit(desk)", [("allow", "rule")]),
        ("visit", "Elicit(desk)", [("allow", "rule")]),
    ],
    ids=["sampling", "form", "page"],
)
async def test_what_ends_because_a_person_left_is_written_down_as_a_no(
    era: str, tool: str, act: str, before: list[tuple[str, str]]
) -> None:
    """R259."""
    book, bridge = Book(), ConsentBridge()
    async with make_host(book, bridge=bridge, options={"era": era}) as host:
        async with bridge.attend() as questions:
            calling = asyncio.ensure_future(host.call(f"mcp__desk__{tool}"))
            await soon(anext(questions))
        with pytest.raises(ConsentLost, match="the one who answers questions left: the question of the server 'desk'"):
            await soon(calling)
    assert book.about(act) == [*before, ("deny", "nobody")]


async def test_a_server_that_does_without_the_answer_has_its_result() -> None:
    """R259: an older server is told that the person left, and may go on."""
    server = make_server()

    @server.tool
    async def ask_kindly(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Your name?", {"type": "object", "properties": {}})).action
        except ProtocolError as error:
            return f"stranger ({error.code})"

    bridge = ConsentBridge()
    async with make_host(servers={"desk": server}, bridge=bridge, options={"era": "legacy"}) as host:
        async with bridge.attend() as questions:
            calling = asyncio.ensure_future(host.call("mcp__desk__ask_kindly"))
            await soon(anext(questions))
        assert (await soon(calling)).data == "stranger (-32603)"


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_fails_by_itself_says_so_though_another_lost_its_person(era: str) -> None:
    """R259."""
    server, began, end = make_server(), asyncio.Event(), asyncio.Event()

    @server.tool
    async def stumble() -> str:
        began.set()
        await end.wait()
        raise ToolError("a rope broke")

    bridge = ConsentBridge()
    async with make_host(servers={"desk": server}, bridge=bridge, options={"era": era}) as host:
        stumbling = asyncio.ensure_future(host.call("mcp__desk__stumble"))
        await soon(began.wait())
        async with bridge.attend() as questions:
            calling = asyncio.ensure_future(host.call("mcp__desk__ask"))
            await soon(anext(questions))
        with pytest.raises(ConsentLost):
            await soon(calling)
        end.set()
        assert (await soon(stumbling)).text == "a rope broke"


async def test_a_call_whose_person_left_is_written_down_as_a_no() -> None:
    book, bridge = Book(), ConsentBridge()
    async with make_host(book, bridge=bridge, allow=[]) as host:
        async with bridge.attend() as questions:
            calling = asyncio.ensure_future(host.call("mcp__desk__say"))
            await soon(anext(questions))
        with pytest.raises(ConsentLost):
            await soon(calling)
    assert book.about("mcp__desk__say") == [("ask", "default"), ("deny", "nobody")]


# --- pages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "vscode://install?x=1",
        "ms-settings:",
        "\\\\share\\x",
        "https:evil.example",
        "https:///evil.example",
        " https://id.example/",
        "https://id.example/\n",
        "https://id.example/\u202egnp.",
        "",
    ],
    ids=[
        "file",
        "javascript",
        "vscode",
        "settings",
        "share",
        "no-host",
        "no-host-2",
        "blank",
        "line",
        "turned",
        "none",
    ],
)
async def test_a_page_that_is_no_web_page_is_declined_and_nobody_is_asked(
    era: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Question] = []
    servers = {"desk": make_server(url)}
    async with make_host(servers=servers, on_question=asked.append, options={"era": era}) as host:
        assert (await soon(host.call("mcp__desk__visit"))).data == "decline"
    assert asked == []
    assert "the server 'desk' asks for a visit of something that is not a web page" in caplog.text


@pytest.mark.parametrize("url", ["http://localhost:8/x", "HTTPS://id.example?x=1", "https://xn--bcher-kva.example/#a"])
async def test_a_web_page_is_asked_about(url: str) -> None:
    servers = {"desk": make_server(url)}
    seen: list[str | None] = []

    def person(question: Question) -> None:
        seen.append(question.url)
        question.accept()

    async with make_host(servers=servers, on_question=person) as host:
        assert (await soon(host.call("mcp__desk__visit"))).data == "accept"
    assert seen == [url]


# --- answers about a server that is gone -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["once", "always"])
async def test_a_yes_that_comes_after_the_server_was_replaced_allows_nothing(how: Any) -> None:
    """The new one has the same name and the same tools, but nobody was asked about it."""
    book, bridge = Book(), ConsentBridge()
    called: list[str] = []

    def make(name: str) -> Server:
        server = Server(name, version="1")
        server.add_tool(lambda: called.append(name), name="say")
        return server

    async with Host({"desk": make("old")}, bridge=bridge, audit=book, environ={}) as host:
        async with bridge.attend() as questions:
            calling = asyncio.ensure_future(host.call("mcp__desk__say"))
            question = await soon(anext(questions))
            await soon(host.stop_server("desk"))
            await soon(host.start_server("desk", make("new")))
            assert question.allow(how)
            with pytest.raises(LocalProtocolError, match="was replaced while"):
                await soon(calling)
            again = asyncio.ensure_future(host.call("mcp__desk__say"))
            question = await soon(anext(questions))
            question.deny()
            with pytest.raises(PermissionDenied):
                await soon(again)
    assert called == []
    assert host.gate.standing.rules == ()
    assert book.about("mcp__desk__say") == [
        ("ask", "default"),
        ("deny", "nobody"),
        ("ask", "default"),
        ("deny", "person"),
    ]


async def test_a_no_that_comes_after_the_server_was_replaced_is_still_one() -> None:
    bridge = ConsentBridge()
    async with make_host(bridge=bridge, allow=[]) as host:
        async with bridge.attend() as questions:
            calling = asyncio.ensure_future(host.call("mcp__desk__say"))
            question = await soon(anext(questions))
            await soon(host.stop_server("desk"))
            await soon(host.start_server("desk", make_server()))
            question.deny("always")
            with pytest.raises(PermissionDenied):
                await soon(calling)
        assert host.explain("mcp__desk__say").decision.is_denied


async def test_our_model_is_not_lent_to_who_took_the_name_meanwhile() -> None:
    bridge = ConsentBridge()
    async with make_host(bridge=bridge) as host:
        asking = host._asking  # pyright: ignore[reportPrivateUsage]
        on_sample = asking.handlers("desk")["on_sample"]

        ask = Sampling([{"role": "user", "content": {"type": "text", "text": "What is a sail?"}}], 100)

        async with bridge.attend() as questions:
            sampling = asyncio.ensure_future(on_sample(ask))
            question = await soon(anext(questions))
            asking.forget("desk")
            question.allow("always")
            assert await soon(sampling) is None
            calling = asyncio.ensure_future(host.call("mcp__desk__think"))
            (await soon(anext(questions))).allow()
            assert (await soon(calling)).data == "cloth"
