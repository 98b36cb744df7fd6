"""Answers over HTTP that look like something else: lost sessions, redirects, refused streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.peers import (
    Site,
    error,
    held,
    plain,
    stream,
)
from tests.support.until import until

from trimaran import connect, errors
from trimaran.legacy import client_http
from trimaran.legacy.client_http import SessionLink


async def test_a_400_is_not_taken_for_a_lost_session_because_of_the_word_in_the_url(site: Site) -> None:
    """The request is not repeated: nothing says that the session is gone."""
    site.legacy().on("tools/call", plain(400, "Bad Request"))
    async with connect(site.url + "/sessions", era="legacy") as client:
        with pytest.raises(errors.UnexpectedStatus):
            await client.call_tool("x")
    assert len(site.all("tools/call")) == 1


async def test_a_session_mentioned_by_an_answer_to_this_very_request_is_not_ours(site: Site) -> None:
    site.legacy().on("tools/call", error(-32602, "unknown argument: session_name", status=400))
    async with connect(site.url, era="legacy") as client:
        with pytest.raises(errors.CallError):
            await client.call_tool("x")
    assert len(site.all("tools/call")) == 1


async def test_a_redirect_that_only_one_parser_understands_is_refused(site: Site) -> None:
    there = site.url.replace("http://", "http://x\\@")
    site.on("server/discover", plain(307, headers={"Location": there}))
    with pytest.raises(errors.ConnectFailed):
        await connect(site.url, era="modern").open()


async def test_a_goodbye_cut_short_still_closes_the_connections() -> None:
    class Hanging:
        url = "http://x/"
        max_bytes = 100
        closed = False

        async def send(self, *args: Any, **options: Any) -> Any:
            await asyncio.Event().wait()

        async def close(self) -> None:
            self.closed = True

    wire: Any = Hanging()
    inbox: Any = None
    session = SessionLink(wire, inbox)
    session.session_id = "s"
    closing = asyncio.ensure_future(session.close())
    await asyncio.sleep(0.01)
    closing.cancel()
    await asyncio.wait((closing,))
    assert wire.closed


async def test_a_server_that_wants_no_pause_between_streams_gets_one(site: Site) -> None:
    site.legacy().on("GET", stream("retry: 0\n\n"))
    async with connect(site.url, era="legacy"):
        await until(lambda: site.all("GET"))
        await asyncio.sleep(0.3)
        assert len(site.all("GET")) < 20


async def test_a_standing_stream_refused_for_a_moment_is_asked_for_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_http, "_PAUSES", (0.01,))
    site.legacy().on("GET", plain(429, "slow down"), stream(held))
    async with connect(site.url, era="legacy"):
        await until(lambda: len(site.all("GET")) == 2)
