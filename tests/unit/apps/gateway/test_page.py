from __future__ import annotations

import asyncio
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest

from trimaran import connect
from trimaran.apps.gateway.page import read_form, words_of_others

from .conftest import child, fetch, gateway_of, remote, url_of
from .test_call_control import KEYS

pytestmark = pytest.mark.slow


async def test_the_page_shows_servers_tools_calls_and_rules() -> None:
    text = child("boats") + remote("gone", "http://127.0.0.1:9/mcp") + '[view.a]\nservers = ["boats"]\n'
    text += '[permissions]\ndeny = ["mcp__boats__sink to user:<b>"]\n'
    async with gateway_of(text) as gateway:
        async with connect(gateway.url) as client:
            await client.call_tool("boats_sail", {"boat": "Ida"})
        status, page = await fetch(url_of(gateway, "/"))
    assert status == 200
    for part in (
        "/servers/boats/mcp",
        '<span class="badge bad">down</span>',
        "mcp__boats__sail",
        "/views/a/mcp",
        "user:&lt;b&gt;",
    ):
        assert part in page
    assert "<script" not in page


def test_words_of_servers_are_marked_where_they_hide_something() -> None:
    """As on the inspector's page."""
    shown = words_of_others("a<b>\u202egnp\U000e0041")
    assert shown.startswith('<bdi class="theirs">a&lt;b&gt;<b class="hidden-mark">U+202E</b>gnp')
    assert "U+E0041" in shown
    assert not words_of_others("")


def test_a_form_that_is_made_to_be_slow_is_not_read() -> None:
    """Anybody may send it, and everybody waited: half a minute for 8 MB."""
    assert read_form(b"credential=a+b%21&credential=c") == {"credential": "c"}
    for body in (b"%41=1&" * 1_300_000, b"a&" * 4_000_000, b"credential=" + b"%" * 8_000_000, b"a=1&" * 11):
        assert read_form(body) == {}


async def test_an_administrator_signs_in_with_a_key_and_nobody_else_sees_the_page() -> None:
    async with gateway_of('[gateway]\nadmins = ["user:bob"]\n' + child("boats") + KEYS) as gateway:
        url = url_of(gateway, "/")

        def post(credential: str) -> tuple[int, str]:
            class NoRedirect(urllib.request.HTTPRedirectHandler):
                def redirect_request(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
                    return None

            body = urllib.parse.urlencode({"credential": credential}).encode()
            opener = urllib.request.build_opener(NoRedirect)
            try:
                with opener.open(urllib.request.Request(url, body), timeout=30) as reply:
                    return reply.status, reply.headers.get("set-cookie") or ""
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.headers.get("set-cookie") or ""

        status, form = await fetch(url)
        assert status == 401
        assert "boats" not in form
        assert await asyncio.to_thread(post, "ann-key-123") == (401, "")
        status, cookie = await asyncio.to_thread(post, "bob-key-123")
        assert status == 303
        assert "HttpOnly; SameSite=Strict" in cookie
        assert "bob-key-123" not in cookie
        name, _, path = cookie.partition("; Path=")
        path = path.partition(";")[0]
        status, page = await fetch(url_of(gateway, path), Cookie=name)
        assert status == 200
        assert "/servers/boats/mcp" in page
        for link in ("/metrics", "/health"):
            assert f'href="{path}{link}"' in page
            assert "boats" in (await fetch(url_of(gateway, path + link), Cookie=name))[1]
        # Cookies know no port: another server of this host may have been sent one, and does not know the path.
        for other in ("/", "/page/made-up", "/metrics", f"{path}x"):
            status, page = await fetch(url_of(gateway, other), Cookie=name)
            assert status == 401
            assert "boats" not in page
        assert (await fetch(url_of(gateway, path), Cookie="trimaran_gateway=made-up"))[0] == 401
        assert "boats" not in (await fetch(url_of(gateway, "/health"), Cookie=name))[1]
