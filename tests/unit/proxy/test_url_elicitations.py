"""The ends of URL elicitations, through a proxy. 2025-11-25 alone has the notification."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran import Context, Server, connect
from trimaran.errors import CallError, ProtocolError
from trimaran.proxy import url_elicitations
from trimaran.serve import HttpServer


class Somebody:
    """Agrees to whatever page there is, and hears what is complete."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.complete: list[str] = []
        self.options: dict[str, Any] = {"era": "legacy", "on_elicit": self.agree, "on_notification": self.hear}

    def agree(self, question: Any) -> str:
        self.pages.append(question.elicitation_id)
        return "accept"

    def hear(self, method: str, params: Any) -> None:
        if method == "notifications/elicitation/complete":
            self.complete.append(params["elicitationId"])


@pytest.fixture(params=["memory", "http"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """A proxy, before a server of 2025-11-25 that sends people to pages."""
    server = Server("pages", version="1")

    @server.tool
    async def sign_in(ctx: Context) -> str:
        return (await ctx.elicit("Sign in.", url="https://example.com/sign-in")).action

    @server.tool
    async def open_locked() -> str:
        page = {"mode": "url", "message": "First this.", "url": "https://example.com/key", "elicitationId": "key-1"}
        raise ProtocolError(-32042, "a page first", {"elicitations": [page]})

    @server.tool
    async def finish(ids: list[str]) -> str:
        for id in [*ids, "never-asked"]:
            server.broadcast("notifications/elicitation/complete", {"elicitationId": id})
        return "told"

    front = Server.proxy(server, era="legacy")
    if request.param == "memory":
        yield front
        return
    async with HttpServer(front, port=0) as http:
        yield http.url


async def test_the_end_is_told_to_the_session_that_was_asked_under_the_id_that_it_knows(place: Any) -> None:
    ann, bob = Somebody(), Somebody()
    async with connect(place, **ann.options) as of_ann, connect(place, **bob.options) as of_bob:
        assert (await soon(of_ann.call_tool("sign_in"))).data == "accept"
        with pytest.raises(CallError) as refused:
            await soon(of_ann.call_tool("open_locked"))
        assert refused.value.code == -32042
        for _ in range(2):  # each end is told once
            await soon(of_bob.call_tool("finish", {"ids": ann.pages}))
        await until(lambda: len(ann.complete) >= 2, "both ends are told")
        await soon(of_ann.call_tool("finish", {"ids": []}))
        assert ann.pages[1:] == ["key-1"]
        assert (ann.complete, bob.complete) == (ann.pages, [])


async def test_pages_of_which_no_end_is_told_are_bounded(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_elicitations, "_MAX_OPEN", 2)
    ann = Somebody()
    async with connect(place, **ann.options) as client:
        for _ in range(3):
            await soon(client.call_tool("sign_in"))
        await soon(client.call_tool("finish", {"ids": ann.pages}))
        await until(lambda: len(ann.complete) >= 2, "the newer ones are told")
        assert ann.complete == ann.pages[1:]


@pytest.mark.parametrize("data", [None, {}, {"elicitations": 5}, {"elicitations": [5, {}, {"elicitationId": 5}]}])
async def test_a_refusal_that_names_no_page_is_passed_on(data: Any) -> None:
    server = Server("pages", version="1")

    @server.tool
    async def open_locked() -> str:
        raise ProtocolError(-32042, "a page first", data)

    async with connect(Server.proxy(server, era="legacy"), era="legacy") as client:
        with pytest.raises(CallError) as refused:
            await soon(client.call_tool("open_locked"))
        assert refused.value.data == data
