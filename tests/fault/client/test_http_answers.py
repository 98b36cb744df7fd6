"""HTTP responses that are no MCP answer: each status, type, redirect and cut ends its call with an error that names it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.faults import turns
from tests.support.until import soon

from trimaran import connect
from trimaran.client.options import Era
from trimaran.errors import (
    ConnectFailed,
    ConnectionLost,
    Error,
    RemoteProtocolError,
    TimedOut,
    Unauthorized,
    UnexpectedStatus,
)

from . import evil
from .peers import ERAS, Dock, EvilHttp, Exchange, Override, assert_usable, failure_of, harmed, took

HTML = b"<!DOCTYPE html><html><head><title>Oops</title></head><body>It works!</body></html>"


def page(status: int, **headers: str) -> Override:
    async def serve(x: Exchange) -> None:
        await x.reply(HTML, status, "text/html; charset=utf-8", **headers)

    return serve


def bare(status: int, **headers: str) -> Override:
    async def serve(x: Exchange) -> None:
        await x.reply(b"", status, **headers)

    return serve


def typed(content_type: str) -> Override:
    async def serve(x: Exchange) -> None:
        await x.reply(evil.Call(x.peer.era, x.message, {}, lambda _: 0).text("hi"), 200, content_type)

    return serve


async def wrong_length(x: Exchange) -> None:
    "Says it will send more than it does."
    await x.head(200, {"Content-Type": "application/json", "Content-Length": "1000"})
    await x.send(b'{"jsonrpc":"2.0",')
    x.cut()


async def reset_in_body(x: Exchange) -> None:
    await x.head(200, {"Content-Type": "application/json", "Content-Length": "1000"})
    await x.send(b'{"jsonrpc":"2.0",')
    x.reset()


async def bad_chunk(x: Exchange) -> None:
    await x.stream("application/json")
    await x.send(b"zz\r\nwhat size is that?\r\n")
    x.cut()


async def no_http(x: Exchange) -> None:
    await x.send(b"SSH-2.0-OpenSSH_9.2p1\r\n")
    x.cut()


async def bad_gzip(x: Exchange) -> None:
    await x.reply(b"this is not gzip", 200, Content_Encoding="gzip")


async def empty_stream(x: Exchange) -> None:
    await x.stream()
    await x.end()


async def comments_only(x: Exchange) -> None:
    await x.stream()
    for _ in range(5):
        await x.chunk(b": keep-alive\n\n")
    await x.end()


async def endless_line(x: Exchange) -> None:
    "A line of a stream that does not end."
    await x.stream()
    await x.chunk(b"data: ")
    for _ in range(64):
        await x.chunk(b"x" * (1 << 20))
    await x.silence()


CASES: dict[str, tuple[Override, type[Error] | tuple[type[Error], ...], tuple[str, ...]]] = {
    "an HTML page": (page(200), RemoteProtocolError, ("text/html", "<!DOCTYPE html>")),
    "a 404 page": (page(404), UnexpectedStatus, ("404",)),
    "a 500 page": (page(500), UnexpectedStatus, ("500",)),
    "a 403 page": (page(403), Unauthorized, ("403",)),
    "a bare 401": (bare(401), Unauthorized, ("401",)),
    "a bare 400": (bare(400), UnexpectedStatus, ("400",)),
    "a bare 405": (bare(405), UnexpectedStatus, ("405",)),
    "a bare 500": (bare(500), UnexpectedStatus, ("500",)),
    "a 502 page": (page(502), UnexpectedStatus, ("502",)),
    "a 503 page": (page(503), UnexpectedStatus, ("503",)),
    "a 429": (page(429, Retry_After="120"), UnexpectedStatus, ("429",)),
    "a 202 to a call": (bare(202), RemoteProtocolError, ("202", "accepted")),
    "a 204 to a call": (bare(204), RemoteProtocolError, ("an empty text",)),
    "a bare 200": (bare(200), ConnectionLost, ("empty",)),  # a proxy whose server died says that
    "a body cut short": (wrong_length, ConnectionLost, ("",)),
    "a reset in the body": (reset_in_body, ConnectionLost, ("",)),
    "a broken chunk": (bad_chunk, (ConnectionLost, RemoteProtocolError), ("",)),
    "no HTTP": (no_http, (ConnectionLost, RemoteProtocolError), ("",)),
    "broken gzip": (bad_gzip, (ConnectionLost, RemoteProtocolError), ("",)),
    "an empty stream": (empty_stream, (ConnectionLost, RemoteProtocolError), ("stream", "answer")),
    "comments only": (comments_only, (ConnectionLost, RemoteProtocolError), ("stream", "answer")),
    "an endless line": (endless_line, RemoteProtocolError, ("bytes",)),
}


@ERAS
@pytest.mark.parametrize("case", sorted(CASES))
async def test_what_is_no_answer_is_named(dock: Dock, era: Era, case: str) -> None:
    serve, expected, words = CASES[case]
    async with dock.open("json", era) as (client, peer):
        assert isinstance(peer, EvilHttp)
        peer.overrides["echo"] = serve
        with took(most=4.0):
            if (case, era) == ("a 404 page", "legacy"):  # there it says that the session is gone, for all
                error = await failure_of(client.call_tool("echo"))
                await assert_usable(client)
                assert isinstance(error, (UnexpectedStatus, ConnectionLost)), repr(error)
                assert "session" in str(error) or "404" in str(error)
                return
            error = await harmed(client, client.call_tool("echo"))
        assert isinstance(error, expected), repr(error)
        assert any(word in str(error) for word in words), str(error)
        assert str(error).strip()
        if isinstance(error, (UnexpectedStatus, Unauthorized)):
            assert str(error.status) in case
        if not isinstance(error, UnexpectedStatus):
            assert peer.calls("echo") <= 2, "not repeated, but for one new session"
        assert client.state == "ready"


@ERAS
@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", "Application/JSON; charset=utf-8"])
async def test_an_answer_under_a_sloppy_type_is_used(dock: Dock, era: Era, content_type: str) -> None:
    """P32."""
    async with dock.open("json", era) as (client, peer):
        assert isinstance(peer, EvilHttp)
        peer.overrides["echo"] = typed(content_type)
        assert (await soon(client.call_tool("echo"))).text == "hi"


@ERAS
@pytest.mark.parametrize("case", ["a 503 page", "a 429", "a reset in the body", "a 500 page"])
async def test_a_call_that_is_not_safe_is_not_repeated(dock: Dock, era: Era, case: str) -> None:
    async with dock.open("json", era) as (client, peer):
        assert isinstance(peer, EvilHttp)
        peer.overrides["echo"] = CASES[case][0]
        await failure_of(client.call_tool("echo"))
        assert peer.calls("echo") == 1


async def test_a_401_shows_what_the_server_asked_for(dock: Dock) -> None:
    async with dock.open("json", "modern") as (client, peer):
        assert isinstance(peer, EvilHttp)
        peer.overrides["echo"] = bare(401, WWW_Authenticate='Bearer realm="harbour"')
        error = await harmed(client, client.call_tool("echo"))
        assert isinstance(error, Unauthorized)
        assert error.www_authenticate == 'Bearer realm="harbour"'


@ERAS
async def test_silence_after_the_headers_ends_with_the_deadline(dock: Dock, era: Era) -> None:
    async def stall(x: Exchange) -> None:
        await x.stream()
        await x.silence()

    async with dock.open("json", era) as (client, peer):
        assert isinstance(peer, EvilHttp)
        peer.overrides["echo"] = stall
        with took(0.2, 2.0):
            error = await harmed(client, client.call_tool("echo", timeout=0.25))
        assert isinstance(error, TimedOut), repr(error)


@ERAS
async def test_a_keep_alive_connection_the_server_has_closed_is_not_noticed(dock: Dock, era: Era) -> None:
    """Between two calls the server closes every idle connection, as servers do: the next call just works."""
    async with dock.open("json", era) as (client, peer):
        assert isinstance(peer, EvilHttp)
        for _ in range(5):
            await assert_usable(client)
            for writer in list(peer._writers):
                writer.close()
            await turns(8)
            await assert_usable(client)


# --- at the door -----------------------------------------------------------------------------------------------------

DOOR = (
    "a 404 page",
    "a 500 page",
    "a 503 page",
    "a bare 401",
    "a 403 page",
    "an HTML page",
    "no HTTP",
    "a broken chunk",
)


@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
@pytest.mark.parametrize("case", DOOR)
async def test_a_server_that_is_none_is_refused_at_the_door(dock: Dock, era: Era, case: str) -> None:
    peer = await dock.http()
    peer.overrides["POST"] = peer.overrides["GET"] = CASES[case][0]
    with took(most=4.0):
        error = await failure_of(connect(peer.url, era=era, timeout=5.0).__aenter__())
    if "401" in case or "403" in case:
        assert isinstance(error, Unauthorized), repr(error)
    else:
        assert isinstance(error, (ConnectFailed, UnexpectedStatus, RemoteProtocolError)), repr(error)
    for number in ("404", "500", "503", "401", "403"):
        assert number not in case or number in str(error), str(error)
    if "HTML" in case:
        assert "text/html" in str(error) or "<!DOCTYPE html>" in str(error)
    assert len(peer.seen) < 8


@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
async def test_a_server_that_never_answers_at_the_door_is_given_up(dock: Dock, era: Era) -> None:
    peer = await dock.http()
    peer.overrides["POST"] = peer.overrides["GET"] = Exchange.silence
    with took(0.3, 4.0):
        error = await failure_of(connect(peer.url, era=era, connect_timeout=0.5).__aenter__())
    assert isinstance(error, (TimedOut, ConnectFailed)), repr(error)
    assert "0.5" in str(error) or "second" in str(error) or " s" in str(error)


async def test_a_refused_port_is_named(free_port: int) -> None:
    """P5: never a group."""
    error = await failure_of(connect(f"http://127.0.0.1:{free_port}/mcp").__aenter__())
    assert isinstance(error, ConnectFailed), repr(error)
    assert str(free_port) in str(error)


async def test_a_name_that_does_not_exist_is_named() -> None:
    error = await failure_of(connect("http://no-such-host.invalid/mcp").__aenter__())
    assert isinstance(error, ConnectFailed), repr(error)
    assert "no-such-host.invalid" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
        {"capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
        {"protocolVersion": 7, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
        [],
    ],
    ids=["unknown", "missing", "number", "list"],
)
async def test_a_bad_handshake_is_refused(dock: Dock, answer: Any) -> None:
    """R188: distinct failures; no hang, nothing left."""
    peer = await dock.http("legacy")

    async def shake(x: Exchange) -> None:
        await x.reply(evil.encode({"jsonrpc": "2.0", "id": x.id, "result": answer}))

    peer.overrides["initialize"] = shake
    error = await failure_of(connect(peer.url, era="legacy").__aenter__())
    assert isinstance(error, Error), repr(error)
    if isinstance(answer, dict) and answer.get("protocolVersion") == "1999-01-01":
        assert "1999-01-01" in str(error)
    else:
        assert isinstance(error, RemoteProtocolError), repr(error)


@pytest.mark.parametrize(
    "session", ["with space", "tab\there", "\x80high", "x" * 100_000], ids=["space", "tab", "high", "long"]
)
async def test_a_session_id_that_is_none_does_no_harm(dock: Dock, session: str) -> None:
    """protocol.md 1.1: visible ASCII only; whatever comes, it ends soon and typed, or works."""
    peer = await dock.http("legacy")

    async def shake(x: Exchange) -> None:
        reply = evil.answer("legacy", x.message, "plain", {})
        assert reply is not None
        peer.sessions.add(session)
        await x.reply(reply, Mcp_Session_Id=session)

    peer.overrides["initialize"] = shake
    client = connect(peer.url, era="legacy", timeout=2.0)
    try:
        await soon(client.__aenter__(), 5)
        await assert_usable(client)
    except Error as error:
        assert not isinstance(error, TimedOut), repr(error)
    finally:
        await soon(client.close())


# --- redirects -------------------------------------------------------------------------------------------------------


def redirect(to: str, status: int = 307) -> Override:
    async def serve(x: Exchange) -> None:
        await x.reply(b"", status, Location=to)

    return serve


@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_elsewhere_is_not_followed(dock: Dock, era: Era, status: int) -> None:
    """The other place must not see the request: it may hold a token."""
    other = await dock.http()
    peer = await dock.http()
    peer.overrides["POST"] = peer.overrides["GET"] = redirect(other.url, status)
    error = await failure_of(connect(peer.url, era=era, auth="secret").__aenter__())
    assert isinstance(error, ConnectFailed), repr(error)
    assert str(other.port) in str(error)
    assert other.seen == []


@ERAS
async def test_a_redirect_elsewhere_in_mid_session_is_not_followed(dock: Dock, era: Era) -> None:
    other = await dock.http(era)
    async with dock.open("json", era) as (client, peer):
        assert isinstance(peer, EvilHttp)
        peer.overrides["echo"] = redirect(other.url)
        error = await harmed(client, client.call_tool("echo"))
        assert isinstance(error, (ConnectFailed, UnexpectedStatus, RemoteProtocolError)), repr(error)
        assert str(other.port) in str(error)
        assert other.seen == []


@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
async def test_a_redirect_loop_ends(dock: Dock, era: Era) -> None:
    peer = await dock.http()
    peer.overrides["POST"] = peer.overrides["GET"] = redirect("/mcp")
    error = await failure_of(connect(peer.url, era=era).__aenter__())
    assert isinstance(error, ConnectFailed), repr(error)
    assert "redirect" in str(error)
    assert len(peer.seen) < 60


@ERAS
@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_to_the_same_place_with_a_slash_is_followed(dock: Dock, era: Era, status: int) -> None:
    """P16."""
    peer = await dock.http(era)

    async def serve(x: Exchange) -> None:
        if x.path == "/mcp":
            await redirect("/mcp/", status)(x)
        else:
            await peer.honest(x)

    for verb in ("POST", "GET", "DELETE"):
        peer.overrides[verb] = serve
    async with connect(peer.url) as client:
        await assert_usable(client)
    assert client.era == era


@pytest.mark.parametrize("to", ["", "http://[", "ftp://127.0.0.1/x", "javascript:alert(1)", "http://127.0.0.1:99999/"])
async def test_a_redirect_to_nowhere_is_refused(dock: Dock, to: str) -> None:
    peer = await dock.http()
    peer.overrides["POST"] = peer.overrides["GET"] = redirect(to)
    error = await failure_of(connect(peer.url).__aenter__())
    assert isinstance(error, (ConnectFailed, UnexpectedStatus)), repr(error)


# --- HTTP+SSE --------------------------------------------------------------------------------------------------------


class OldSse:
    """Makes an `EvilHttp` speak HTTP+SSE of 2024-11-05."""

    def __init__(self, peer: EvilHttp, endpoint: str = "/messages?session=1", *, kind: str = "endpoint") -> None:
        self.peer = peer
        self.endpoint = endpoint
        self.kind = kind
        self.stream: Exchange | None = None
        self.opened = 0
        self.posted: list[Exchange] = []
        peer.overrides["GET"] = self.get
        peer.overrides["POST"] = self.post
        peer.overrides["initialize"] = peer.overrides["server/discover"] = self.post
        for name in ("tools/call", "tools/list", "ping", "notifications/initialized"):
            peer.overrides[name] = self.post

    async def get(self, x: Exchange) -> None:
        self.stream = x
        self.opened += 1
        await x.stream()
        await x.event(self.endpoint.encode(), kind=self.kind)
        await x.silence()

    async def post(self, x: Exchange) -> None:
        if not x.path.startswith("/messages"):
            await x.reply(b"Method Not Allowed", 405, "text/plain", Allow="GET")
            return
        self.posted.append(x)
        await x.reply(b"Accepted", 202, "text/plain")
        assert self.stream is not None
        if x.tool:
            act = evil.ACTS[x.tool](evil.Call("legacy", x.message, self.peer.memory, lambda _: 0))
            for step in act:
                if isinstance(step, bytes):
                    await self.stream.event(step, kind="message")
                elif isinstance(step, evil.Close):
                    self.stream.cut()
        elif x.method:
            reply = evil.answer("legacy", x.message, "plain", self.peer.memory)
            if reply is not None:
                await self.stream.event(reply, kind="message")


@pytest.mark.parametrize("way", ["auto", "sse"])
async def test_an_endpoint_on_another_origin_is_refused(dock: Dock, way: str) -> None:
    other = await dock.http()
    peer = await dock.http()
    OldSse(peer, f"http://127.0.0.1:{other.port}/messages")
    target: Any = peer.url if way == "auto" else {"url": peer.url, "transport": "sse"}
    with took(most=4.0):
        error = await failure_of(connect(target, auth="secret").__aenter__())
    assert isinstance(error, ConnectFailed), repr(error)
    assert str(other.port) in str(error)
    assert other.seen == []


@pytest.mark.parametrize("endpoint", ["", "http://[", "ftp://x/y", "//evil.invalid/x"])
async def test_an_endpoint_that_is_none_is_refused(dock: Dock, endpoint: str) -> None:
    peer = await dock.http()
    OldSse(peer, endpoint)
    error = await failure_of(connect({"url": peer.url, "transport": "sse"}, connect_timeout=2.0).__aenter__())
    # An event without data is none.
    assert isinstance(error, ConnectFailed if endpoint else (ConnectFailed, TimedOut)), repr(error)


async def test_a_stream_that_never_names_its_endpoint_is_given_up(dock: Dock) -> None:
    peer = await dock.http()
    OldSse(peer, "hello", kind="greeting")
    with took(0.3, 3.0):
        error = await failure_of(connect({"url": peer.url, "transport": "sse"}, connect_timeout=0.5).__aenter__())
    assert isinstance(error, (ConnectFailed, TimedOut)), repr(error)


@pytest.mark.parametrize("way", ["auto", "sse"])
async def test_http_and_sse_works_and_heals(dock: Dock, way: str) -> None:
    """R136: reconnect after a dropped stream. The call in flight is lost, the next one has a new stream."""
    peer = await dock.http()
    old = OldSse(peer)
    target: Any = peer.url if way == "auto" else {"url": peer.url, "transport": "sse"}
    async with connect(target, timeout=5.0, retries=0) as client:
        await assert_usable(client)
        assert client.era == "legacy"
        with took(most=1.5):
            error = await failure_of(client.call_tool("hang_up"))
        assert isinstance(error, ConnectionLost), repr(error)
        await assert_usable(client)
        assert old.opened == 2
        for act, word in (("garbage", "%PDF-1.7"), ("wrong_id", "987654")):
            error = await failure_of(client.call_tool(act, timeout=0.5))
            assert isinstance(error, (TimedOut, RemoteProtocolError)), repr(error)
            assert word in str(error)
        await assert_usable(client)
