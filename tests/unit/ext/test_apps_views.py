"""A view read from a server that nobody vouches for (protocol.md 5.3, host)."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from trimaran import Server, connect
from trimaran.errors import LocalProtocolError, RemoteProtocolError
from trimaran.ext.apps import CAPABILITY, MIME_TYPE, Apps, Csp, View, read_view, ui_tool, view_from
from trimaran.ext.apps import views as module
from trimaran.types import BlobResourceContents, Resource, TextResourceContents

URI = "ui://weather/dashboard"
PAGE = "<!doctype html><p>Grüße"
ASKING = {"csp": {"connectDomains": ["https://api.example"]}, "permissions": {"camera": {}}}


def item(**changes: Any) -> dict[str, Any]:
    whole = {"uri": URI, "mimeType": MIME_TYPE, "text": PAGE, **changes}
    return {k: v for k, v in whole.items() if v is not None}


def test_a_view_is_ready_to_be_shown() -> None:
    meta = {"ui": {**ASKING, "domain": "a.views.example", "prefersBorder": True}}
    view = view_from(URI, [item(_meta=meta)])
    assert view == View(
        uri=URI,
        html=PAGE,
        csp=Csp(connect_domains=("https://api.example",)),
        permissions=("camera",),
        domain="a.views.example",
        prefers_border=True,
    )
    assert "connect-src 'self' https://api.example" in view.policy
    assert view.allow == "camera"
    assert view.digest == hashlib.sha256(PAGE.encode()).hexdigest()


def test_a_view_without_metadata_gets_the_strictest_policy() -> None:
    view = view_from(URI, [item()])
    assert view.csp is None
    assert view.policy == Csp().policy
    assert view.allow == ""


def test_typed_contents_do_as_well() -> None:
    blob = base64.b64encode(PAGE.encode()).decode()
    assert view_from(URI, [TextResourceContents(uri=URI, text=PAGE, mime_type=MIME_TYPE)]).html == PAGE
    assert view_from(URI, [BlobResourceContents(uri=URI, blob=blob, mime_type=MIME_TYPE)]).html == PAGE


def test_other_contents_are_not_looked_at() -> None:
    assert view_from(URI, [item(uri="ui://other", text="<p>evil"), item()]).html == PAGE


REFUSED: dict[str, tuple[list[Any], str]] = {
    "no contents": ([], "0 items"),
    "another URI": ([item(uri="ui://weather/other")], "0 items"),
    "the URI twice": ([item(), item()], "2 items"),
    "another type": ([item(mimeType="text/html")], "'text/html'"),
    "the type in capitals": ([item(mimeType=MIME_TYPE.upper())], "type"),
    "the type with a space": ([item(mimeType="text/html; profile=mcp-app")], "type"),
    "no type": ([item(mimeType=None)], "'None'"),
    "neither text nor blob": ([item(text=None)], "either text or a blob"),
    "both": ([item(blob="PA==")], "either text or a blob"),
    "no base64": ([item(text=None, blob="<p>")], "base64"),
    "base64 with line breaks": ([item(text=None, blob="PHA+\nPHA+")], "base64"),
    "not ASCII": ([item(text=None, blob="ü")], "base64"),
    "a blob that is a number": ([item(text=None, blob=7)], "base64"),
    "not UTF-8": ([item(text=None, blob="/w==")], "UTF-8"),
    "empty": ([item(text=" ")], "empty"),
    "an empty blob": ([item(text=None, blob="")], "empty"),
    "a number": ([item(text=7)], "empty"),
    "half a character": ([item(text="<p>\ud800")], "Unicode"),
    "no object": (["<p>"], "0 items"),
}


@pytest.mark.parametrize(("contents", "part"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_view_is_refused(contents: list[Any], part: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        view_from(URI, contents)
    assert part in caught.value.message
    assert repr(URI) in caught.value.message


def test_a_page_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HTML_BYTES", len(PAGE.encode()))
    assert view_from(URI, [item()]).html == PAGE
    with pytest.raises(RemoteProtocolError, match="bytes"):
        view_from(URI, [item(text=PAGE + " ")])


def test_the_contents_win_over_the_listing_as_a_whole() -> None:
    listed = Resource(uri=URI, meta={"ui": {**ASKING, "prefersBorder": True}})
    fallback = view_from(URI, [item()], listed=listed)
    assert (fallback.permissions, fallback.prefers_border) == (("camera",), True)
    assert view_from(URI, [item()], listed={"_meta": listed.meta}) == fallback
    winner = view_from(URI, [item(_meta={"ui": {"prefersBorder": False}})], listed=listed)
    assert (winner.permissions, winner.prefers_border, winner.csp) == ((), False, None)
    assert view_from(URI, [item(_meta={"ui": {}})], listed=listed).csp is None


def test_what_a_view_may_not_have_is_left_out_and_noted(caplog: pytest.LogCaptureFixture) -> None:
    greedy = {"csp": {"connectDomains": ["*", "https://api.example"]}, "permissions": {"usb": {}}}
    view = view_from(URI, [item(_meta={"ui": greedy})])
    assert view.csp == Csp(connect_domains=("https://api.example",))
    assert view.permissions == ()
    assert len(view.notes) == 2
    assert "'*'" in caplog.text


@pytest.mark.parametrize("uri", ["https://evil.example", "file:///etc/passwd", "ui://"])
async def test_only_views_are_read_as_views(uri: str) -> None:
    with pytest.raises(LocalProtocolError, match="ui://"):
        view_from(uri, [item(uri=uri)])


async def test_a_view_is_read_through_the_client_of_its_server() -> None:
    server = Server("weather", version="1.0.0")
    apps = Apps()
    apps.attach(server)
    apps.add_view(URI, PAGE, csp={"connectDomains": ["https://api.example"]})
    server.add_tool(lambda: "sun", name="forecast", meta=ui_tool(URI))
    server.add_tool(lambda: "rain", name="plain")
    for version in ("2026-07-28", "2025-11-25"):
        async with connect(server, version=version, capabilities=CAPABILITY) as client:
            forecast, plain = await client.list_tools()
            view = await read_view(client, forecast)
            assert (view.html, view.csp) == (PAGE, Csp(connect_domains=("https://api.example",)))
            assert await read_view(client, URI) == view
            with pytest.raises(LocalProtocolError, match="no view"):
                await read_view(client, plain)
