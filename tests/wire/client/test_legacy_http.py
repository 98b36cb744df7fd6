"""2025-03-26 to 2025-11-25 over HTTP, and HTTP+SSE of 2024: sessions, streams, resuming (protocol.md 7.4)."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from typing import Any

import pytest
from tests.support.peers import (
    MODERN,
    V03,
    V06,
    V11,
    V24,
    Exchange,
    Pipe,
    Reply,
    Site,
    Wire,
    ask,
    discovered,
    encode,
    error,
    finishing,
    held,
    initialized,
    listed,
    ok,
    plain,
    result,
    said,
    stream,
    streamed,
    tell,
    tool,
)
from tests.support.until import soon, until

from trimaran import Server, connect, connecting, errors
from trimaran.legacy import client_http as legacy_link

GONE = plain(404, json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "gone"}}))


def is_up(site: Site) -> Any:
    """The standing stream has been asked for, so the opening is over."""
    return site.all("GET")


# --- the opening -----------------------------------------------------------------------------------------------------


async def test_a_session_word_for_word(site: Site) -> None:
    """protocol.md 7.4: handshake order; session id and version header afterwards, on every verb; DELETE on close. R189, R203, R204, R205."""
    site.legacy(V11, "s-1").on("tools/call", result(said("x")))
    async with connect(site.url) as client:
        assert (client.era, client.version, client.session_id) == ("legacy", V11, "s-1")
        await until(lambda: is_up(site))
        await client.call_tool("t")
    assert site.transcript() == [
        "POST server/discover",
        "POST initialize",
        "POST notifications/initialized",
        "GET GET",
        "POST tools/list",
        "POST tools/call",
        "DELETE DELETE",
    ]
    probe, hello, *later = site.heard
    assert hello.mcp() == {}
    assert hello.headers["Accept"] == "application/json, text/event-stream"
    assert hello.headers["Content-Type"] == "application/json"
    assert hello.params["protocolVersion"] == V11
    for exchange in later:
        assert exchange.mcp() == {"mcp-session-id": "s-1", "mcp-protocol-version": V11}
    assert site.one("GET").headers["Accept"] == "text/event-stream"
    assert "_meta" not in site.one("tools/call").params


@pytest.mark.parametrize("version", [V06, V03, V24])
async def test_the_version_header_names_what_was_agreed(site: Site, version: str) -> None:
    """protocol.md 3.2: SHOULD equal the negotiated one."""
    site.legacy(version)
    async with connect(site.url) as client:
        await client.list_tools()
    assert site.one("tools/list").headers["MCP-Protocol-Version"] == version


async def test_a_server_without_sessions_gets_no_session_id_and_no_delete(site: Site) -> None:
    """protocol.md 1.1: the server MAY return one."""
    site.legacy(session=None)
    async with connect(site.url) as client:
        assert client.session_id is None
        await client.list_tools()
    assert not any("Mcp-Session-Id" in exchange.headers for exchange in site.heard)
    assert not site.all("DELETE")


@pytest.mark.parametrize("status", [200, 202, 204, 404, 405, 500])
async def test_no_answer_to_delete_disturbs_the_end(site: Site, status: int) -> None:
    """protocol.md 1.1: server may 405."""
    site.legacy().on("DELETE", plain(status))
    async with connect(site.url):
        pass
    assert len(site.all("DELETE")) == 1


@pytest.mark.parametrize("status", [200, 202, 204])
async def test_any_2xx_is_fine_for_notifications_and_answers(site: Site, status: int) -> None:
    """protocol.md 7.3, R204."""
    site.legacy().on("notifications/initialized", plain(status)).on("answer", plain(status))
    site.on("GET", stream(ask("p", "ping"), held))
    async with connect(site.url):
        answer = await until(lambda: site.all("answer"))
    assert answer[0].message == ok("p", {})
    assert answer[0].mcp() == {"mcp-session-id": "s-1", "mcp-protocol-version": V11}


# --- which era, over HTTP --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "probe",
    [
        plain(400),
        plain(404),
        plain(405),
        plain(400, "<html>Bad Request</html>", "text/html"),
        plain(404, "{}", "application/json"),
        plain(406),
        plain(200, "<html>hello</html>", "text/html"),
        plain(202),
        plain(200, "[]", "application/json"),
        error(-32601, status=404),
        error(-32601, status=200),
        error(-32602, status=400),
        error(-32600, "Bad Request: Server not initialized", status=400, id=None),
        error(-32000, status=400, id=None),
        error(-32001, status=404, id=None),
        result({"tools": []}),
        stream(),
    ],
    ids=[
        "400",
        "404",
        "405",
        "html-400",
        "json-404",
        "406",
        "html-200",
        "202",
        "array",
        "unknown-method-404",
        "unknown-method-200",
        "invalid-params",
        "not-initialized",
        "sdk-400",
        "sdk-404",
        "no-discover-result",
        "empty-stream",
    ],
)
async def test_what_is_no_modern_answer_means_the_handshake(site: Site, probe: Reply) -> None:
    """protocol.md 2.6: steps 2 and 3; 8.3: -32602 is legacy evidence."""
    site.legacy().on("server/discover", probe)
    async with connect(site.url) as client:
        assert client.era == "legacy"
    assert len(site.all("initialize")) == 1


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_a_modern_error_means_no_handshake(site: Site, code: int) -> None:
    """protocol.md 2.6: a recognised modern error body -> modern."""
    site.legacy().on("server/discover", error(code, status=400))
    with pytest.raises(errors.CallError) as caught:
        await connect(site.url).open()
    assert caught.value.code == code
    assert not site.all("initialize")


async def test_a_dual_server_that_names_only_old_versions_gets_the_handshake(site: Site) -> None:
    """protocol.md 2.6: if the only mutual version in supportedVersions is a legacy one, use `initialize` with it."""
    site.legacy(V06).on("server/discover", result(discovered(supportedVersions=[V06, V03])))
    async with connect(site.url) as client:
        assert client.version == V06
    assert site.one("initialize").params["protocolVersion"] == V06


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_for_want_of_credentials_says_nothing_about_the_era(site: Site, status: int) -> None:
    """protocol.md 2.6: 401 -> authorization first."""
    site.legacy().on("server/discover", plain(status, headers={"WWW-Authenticate": "Bearer"}))
    with pytest.raises(errors.Unauthorized) as caught:
        await connect(site.url).open()
    assert caught.value.status == status
    assert site.transcript() == ["POST server/discover"]


async def test_a_server_error_is_no_evidence_and_not_remembered(site: Site) -> None:
    """protocol.md 2.6: 5xx is not era evidence: a modern server that was unwell for a moment is not taken for an old one for good."""
    site.legacy().on("server/discover", plain(503), result(discovered()))
    try:
        async with connect(site.url):
            pass
    except errors.UnexpectedStatus:
        pass
    async with connect(site.url) as client:
        assert client.era == "modern"


async def test_a_server_that_is_unwell_is_told_as_such(site: Site) -> None:
    site.on("server/discover", plain(503, "try later")).on("initialize", plain(503, "try later"))
    with pytest.raises(errors.UnexpectedStatus) as caught:
        await connect(site.url).open()
    assert caught.value.status == 503
    assert not site.all("GET")


async def test_the_verdict_is_remembered_and_doubted_when_it_fails(site: Site) -> None:
    """protocol.md 2.6: cache the verdict; re-probe when it later fails."""
    site.legacy()
    for _ in range(2):
        async with connect(site.url) as client:
            assert client.era == "legacy"
    assert len(site.all("server/discover")) == 1
    site.modern().on("initialize", error(-32601, status=404))
    async with connect(site.url) as client:
        assert client.era == "modern"
    assert len(site.all("server/discover")) == 2


async def test_what_one_channel_speaks_says_nothing_about_another() -> None:
    """protocol.md 2.6: the verdict belongs to a target; channels and servers in memory are targets of their own."""
    async with connect(Pipe().legacy()) as client:
        assert client.era == "legacy"
    gc.collect()
    for _ in range(3):
        dual = Pipe().modern().on("initialize", initialized())
        async with connect(dual) as client:
            assert client.era == "modern"
    async with connect(Server("s", version="1")) as client:
        assert client.era == "modern"


# --- answers on streams ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [result, streamed], ids=["json", "stream"])
async def test_an_answer_may_be_a_body_or_a_stream(site: Site, reply: Any) -> None:
    """R204."""
    site.legacy().on("tools/call", reply(said("x")))
    async with connect(site.url) as client:
        assert (await client.call_tool("t")).text == "x"


async def test_an_answer_may_come_on_any_stream(site: Site) -> None:
    """protocol.md 7.4: accepts messages on any stream."""
    called = asyncio.Event()

    async def standing(wire: Wire) -> None:
        await called.wait()
        (call,) = site.all("tools/call")
        await wire.say(ok(call.id, said("elsewhere")))
        await wire.until_left()

    async def silent(wire: Wire) -> None:
        called.set()
        await wire.until_left()

    site.legacy().on("GET", stream(standing)).on("tools/call", stream(silent))
    async with connect(site.url) as client:
        await until(lambda: is_up(site))
        assert (await soon(client.call_tool("t"))).text == "elsewhere"


async def test_a_batch_of_replies_is_taken_apart(site: Site) -> None:
    """protocol.md 1.1: a 2025-03-26 server may answer in batches."""

    async def reply(exchange: Exchange) -> Any:
        batch = [tell("notifications/x"), ok(exchange.id, said("x")), ask("p", "ping")]
        return await plain(200, encode(batch), "application/json")(exchange)

    site.legacy(V03).on("tools/call", reply)
    heard: list[str] = []
    async with connect(site.url, on_notification=lambda method, params: heard.append(method)) as client:
        assert (await client.call_tool("t")).text == "x"
        await until(lambda: site.all("answer"))
    assert heard == ["notifications/x"]


async def test_what_a_server_asks_on_the_stream_of_a_call_is_answered_by_a_post(site: Site) -> None:
    """protocol.md 1.3: requests ride the stream of the call that causes them; 7.4."""

    async def reply(wire: Wire) -> None:
        await wire.say(ask("e", "elicitation/create", {"message": "m", "requestedSchema": {"type": "object"}}))
        await until(lambda: site.all("answer"))
        await wire.answer(said("thanks"))

    site.legacy().on("tools/call", stream(reply))
    async with connect(site.url, on_elicit=lambda ask: ask.decline()) as client:
        assert (await soon(client.call_tool("t"))).text == "thanks"
    assert site.one("answer").message == ok("e", {"action": "decline"})


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_an_answer_that_a_proxy_could_not_deliver_is_sent_again(site: Site, status: int) -> None:
    """The process behind it was replaced at that moment; the question's id makes two answers one."""

    async def reply(wire: Wire) -> None:
        await wire.say(ask("e", "elicitation/create", {"message": "m", "requestedSchema": {"type": "object"}}))
        await until(lambda: len(site.all("answer")) > 1)
        await wire.answer(said("thanks"))

    site.legacy().on("tools/call", stream(reply)).on("answer", plain(status), plain(202))
    async with connect(site.url, on_elicit=lambda ask: ask.decline()) as client:
        assert (await soon(client.call_tool("t"))).text == "thanks"
    assert [sent.message for sent in site.all("answer")] == [ok("e", {"action": "decline"})] * 2


async def test_an_answer_that_the_server_refuses_is_not_sent_again(site: Site) -> None:
    async def reply(wire: Wire) -> None:
        await wire.say(ask("e", "elicitation/create", {"message": "m", "requestedSchema": {"type": "object"}}))
        await until(lambda: site.all("answer"))
        await wire.answer(said("thanks"))

    site.legacy().on("tools/call", stream(reply)).on("answer", plain(400))
    async with connect(site.url, on_elicit=lambda ask: ask.decline()) as client:
        assert (await soon(client.call_tool("t"))).text == "thanks"
    assert len(site.all("answer")) == 1


async def test_a_change_heard_while_the_list_is_read_does_not_spoil_the_call_that_reads_it(site: Site) -> None:
    wrapped = {"type": "object", "properties": {"result": {}}, "x-fastmcp-wrap-result": True}
    site.legacy(capabilities={"tools": {"listChanged": True}})
    site.on("tools/list", result({"tools": [{**tool("t"), "outputSchema": wrapped}]}))
    site.on("tools/call", result({"content": [], "structuredContent": {"result": 12}}))
    async with connect(site.url) as client:
        learn = client._calling._learn_tools

        async def disturbed() -> Any:
            found = await learn()
            client._tools.forget()
            return found

        client._calling._learn_tools = disturbed
        assert (await client.call_tool("t")).data == 12


# --- resuming --------------------------------------------------------------------------------------------------------


def primed(id: str, retry: int | None = None) -> str:
    return f"id: {id}\n" + ("" if retry is None else f"retry: {retry}\n") + "data: \n\n"


async def test_a_stream_that_ends_early_is_resumed_after_the_pause_it_asked_for(site: Site) -> None:
    """protocol.md 7.4: honours `retry`, resumes by GET + Last-Event-ID; the priming event is no message."""
    resumed: list[float] = []

    async def rest(wire: Wire) -> None:
        resumed.append(time.monotonic())
        if wire.exchange.headers.get("Last-Event-ID") == "a-1":
            await wire.say(tell("notifications/x"), id="a-2")
            return
        (call,) = site.all("tools/call")
        await wire.say(ok(call.id, said("at last")), id="a-3")

    site.legacy().on("tools/call", stream(primed("a-1", 60)))
    async with connect(site.url) as client:
        await until(lambda: is_up(site))
        await client.list_tools()
        site.on("GET", stream(rest))
        begun = time.monotonic()
        assert (await soon(client.call_tool("t"))).text == "at last"
    gets = site.all("GET")[1:]
    assert [exchange.headers.get("Last-Event-ID") for exchange in gets] == ["a-1", "a-2"]
    for exchange in gets:
        assert exchange.headers["Accept"] == "text/event-stream"
        assert exchange.headers["Mcp-Session-Id"] == "s-1"
        assert exchange.headers["MCP-Protocol-Version"] == V11
    assert resumed[0] - begun >= 0.055
    assert resumed[1] - resumed[0] >= 0.055
    assert len(site.all("tools/call")) == 1


async def test_a_stream_that_breaks_is_resumed_too(site: Site) -> None:
    """protocol.md 1.2: resume = GET + Last-Event-ID; a disconnect is not a cancellation."""

    async def broken(wire: Wire) -> None:
        await wire.raw(primed("b-1", 1))
        wire.cut()

    async def rest(wire: Wire) -> None:
        (call,) = site.all("tools/call")
        await wire.say(ok(call.id, said("x")))

    site.legacy().on("tools/call", stream(broken))
    async with connect(site.url) as client:
        await until(lambda: is_up(site))
        await client.list_tools()
        site.on("GET", stream(rest))
        assert (await soon(client.call_tool("t"))).text == "x"
    assert not site.all("notifications/cancelled")


async def test_a_stream_that_ends_without_an_id_is_lost(site: Site) -> None:
    """Nothing to resume from: ConnectionLost, at once; not repeated."""
    site.legacy().on("tools/call", stream(tell("notifications/x")))
    async with connect(site.url) as client:
        with pytest.raises(errors.ConnectionLost):
            await soon(client.call_tool("t"))
    assert len(site.all("tools/call")) == 1


async def test_the_late_answer_to_one_call_is_not_blamed_on_another(site: Site) -> None:
    """protocol.md 3.6: late responses to cancelled ids are dropped silently."""
    late = asyncio.Event()

    async def standing(wire: Wire) -> None:
        await late.wait()
        await wire.say(ok(site.all("tools/call")[0].id, said("late")))
        await wire.say(tell("notifications/said"))
        await wire.until_left()

    heard: list[str] = []
    site.legacy().on("GET", stream(standing)).on("tools/call", stream(held), stream(tell("notifications/x")))
    async with connect(site.url, on_notification=lambda method, params: heard.append(method)) as client:
        await client.list_tools()
        with pytest.raises(errors.TimedOut):
            await client.call_tool("t", timeout=0.02)
        late.set()
        await until(lambda: heard)
        with pytest.raises(errors.ConnectionLost):
            await soon(client.call_tool("t"))


@pytest.mark.parametrize(
    "answer",
    [
        plain(405),
        plain(400),
        plain(500),
        plain(307, headers={"Location": "http://elsewhere.invalid/"}),
        plain(200, "{}", "application/json"),
    ],
    ids=["405", "400", "500", "elsewhere", "no-stream"],
)
async def test_a_stream_that_cannot_be_resumed_is_lost_and_its_call_not_repeated(site: Site, answer: Reply) -> None:
    """A request is repeated only where that cannot do harm. The server has seen this one."""
    site.legacy().on("tools/call", stream(primed("c-1", 1)), result(said("twice")))
    async with connect(site.url) as client:
        await until(lambda: is_up(site))
        await client.list_tools()
        site.on("GET", answer)
        with pytest.raises(errors.ConnectionLost):
            await soon(client.call_tool("t"))
    assert len(site.all("tools/call")) == 1


async def test_the_standing_stream_is_reopened_where_it_left_off(site: Site) -> None:
    """R204: a closed GET stream is reopened with Last-Event-ID, after the pause the server asked for, each time."""
    heard: list[str] = []
    site.legacy().on(
        "GET",
        stream("id: g-1\nretry: 10\ndata: " + json.dumps(tell("notifications/one")) + "\n\n"),
        stream("id: g-2\ndata: " + json.dumps(tell("notifications/two")) + "\n\n"),
        stream(tell("notifications/three"), held),
    )
    begun = time.monotonic()
    async with connect(site.url, on_notification=lambda method, params: heard.append(method)):
        await until(lambda: len(heard) == 3)
    assert heard == ["notifications/one", "notifications/two", "notifications/three"]
    assert [exchange.headers.get("Last-Event-ID") for exchange in site.all("GET")] == [None, "g-1", "g-2"]
    assert time.monotonic() - begun < 0.9, "the pause of an earlier stream holds until another one is asked for"


async def test_the_standing_stream_is_reopened_after_a_second_by_default(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R204: 1 s."""
    assert legacy_link._RETRY == 1.0
    monkeypatch.setattr(legacy_link, "_RETRY", 0.02)
    site.legacy().on("GET", stream(), stream(held))
    async with connect(site.url):
        await until(lambda: len(site.all("GET")) == 2)


@pytest.mark.parametrize("status", [405, 404, 400, 501])
async def test_a_server_without_a_standing_stream_is_left_in_peace(site: Site, status: int) -> None:
    """R204: GET 405 is silently accepted."""
    site.legacy(session=None).on("GET", plain(status))
    async with connect(site.url) as client:
        await until(lambda: is_up(site))
        for _ in range(3):
            await client.list_tools()
    assert len(site.all("GET")) == 1


# --- the end of a session --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gone",
    [
        plain(404),
        GONE,
        plain(400, "Bad Request: No valid session ID provided"),
        error(-32600, "Bad Request: Session not found", status=400, id=None),
        error(-32001, "Session not found", status=404, id=None),
    ],
    ids=["404", "404-json", "400-text", "400-json", "sdk"],
)
async def test_a_forgotten_session_is_begun_anew_and_the_call_repeated(site: Site, gone: Reply) -> None:
    """protocol.md 7.4, R206: 404 -> new session, without the old id. Some servers say 400."""
    site.legacy().on("tools/call", gone, result(said("x")))
    async with connect(site.url) as client:
        await client.list_tools()
        site.on("initialize", result(initialized(), headers={"Mcp-Session-Id": "s-2"}))
        assert (await soon(client.call_tool("t", {"a": 1}))).text == "x"
        assert client.session_id == "s-2"
        assert client.state == "ready"
    first, second = site.all("tools/call")
    assert first.headers["Mcp-Session-Id"] == "s-1"
    assert second.headers["Mcp-Session-Id"] == "s-2"
    _, again = site.all("initialize")
    assert "Mcp-Session-Id" not in again.headers
    assert [exchange.headers["Mcp-Session-Id"] for exchange in site.all("DELETE")] == ["s-2"]


async def test_many_calls_in_a_forgotten_session_begin_one_new_one(site: Site) -> None:
    """A lost session is re-initialised once under a lock."""

    async def play(exchange: Exchange) -> Any:
        known = exchange.headers["Mcp-Session-Id"] == "s-2"
        return await (result(said("x")) if known else plain(404))(exchange)

    site.legacy().on("tools/call", play)
    async with connect(site.url) as client:
        await client.list_tools()
        site.on("initialize", result(initialized(), headers={"Mcp-Session-Id": "s-2"}))
        found = await soon(asyncio.gather(*(client.call_tool("t") for _ in range(20))))
    assert {one.text for one in found} == {"x"}
    assert len(site.all("initialize")) == 2


@pytest.mark.parametrize(
    "refusal",
    [error(-32601, "no such method", status=404), error(-32602, "unknown tool", status=400), plain(400, "nope")],
    ids=["unknown-method", "invalid-params", "400"],
)
async def test_an_error_that_is_no_end_of_a_session_does_not_end_it(site: Site, refusal: Reply) -> None:
    site.legacy().on("tools/call", refusal)
    async with connect(site.url) as client:
        with pytest.raises((errors.CallError, errors.UnexpectedStatus)):
            await client.call_tool("t")
        assert client.session_id == "s-1"
    assert len(site.all("initialize")) == 1


async def test_a_forgotten_session_is_noticed_by_the_standing_stream(site: Site) -> None:
    """R206."""
    site.legacy().on("GET", stream(primed("g", 1)), plain(404), stream(held))
    async with connect(site.url) as client:
        await until(lambda: len(site.all("initialize")) == 2)
        await until(lambda: client.state == "ready")


async def test_a_cancelled_call_is_told_by_a_post(site: Site) -> None:
    """protocol.md 1.4: notifications/cancelled on all transports; leaving the stream says nothing here. R195."""
    site.legacy().on("tools/call", stream(held))
    async with connect(site.url) as client:
        await client.list_tools()
        with pytest.raises(errors.TimedOut):
            await client.call_tool("t", timeout=0.03)
        told = await until(lambda: site.all("notifications/cancelled"))
    assert told[0].params["requestId"] == site.one("tools/call").id
    assert told[0].headers["Mcp-Session-Id"] == "s-1"


@pytest.mark.parametrize("status", [200, 400, 404, 422, 500])
async def test_a_json_rpc_error_counts_under_any_status(site: Site, status: int) -> None:
    """protocol.md 8.2."""
    code = -32601 if status == 404 else -32002
    site.legacy().on("resources/read", error(code, "not there", {"uri": "r:1"}, status=status))
    async with connect(site.url) as client:
        with pytest.raises(errors.CallError) as caught:
            await client.read_resource("r:1")
    assert (caught.value.code, caught.value.data) == (code, {"uri": "r:1"})


async def test_a_resource_that_is_missing_under_404_is_no_end_of_a_session(site: Site) -> None:
    """protocol.md 1.7: -32002 is legacy's "resource not found"; a server that answers it with 404 still knows the session."""
    site.legacy().on("resources/read", error(-32002, "resource not found", {"uri": "r:1"}, status=404))
    async with connect(site.url) as client:
        with pytest.raises(errors.CallError) as caught:
            await client.read_resource("r:1")
        assert caught.value.code == -32002
    assert len(site.all("initialize")) == 1


async def test_refreshed_credentials_are_used_in_a_session_too(site: Site) -> None:
    """R206, R208: header() consulted on every request."""

    class Keys:
        token = 0

        def header(self) -> str:
            return f"Bearer {self.token}"

        def refresh(self, www_authenticate: str) -> bool:
            self.token += 1
            return True

    site.legacy().on("tools/list", plain(401, headers={"WWW-Authenticate": "Bearer"}), result({"tools": []}))
    async with connect(site.url, auth=Keys()) as client:
        await client.list_tools()
    assert [exchange.headers["Authorization"] for exchange in site.all("tools/list")] == ["Bearer 0", "Bearer 1"]
    assert site.one("DELETE").headers["Authorization"] == "Bearer 1"


# --- HTTP+SSE --------------------------------------------------------------------------------------------------------


class Post:
    """The old transport: what is posted is answered on the one stream."""

    def __init__(self, site: Site, endpoint: str = "/messages?id=1") -> None:
        self.site = site
        self.endpoint = endpoint
        self.wire: Wire | None = None
        self.roots_first = False
        site.on("server/discover", plain(405)).on("initialize", self.take).on("GET", stream(self.stand))
        for method in ("tools/list", "tools/call", "ping", "answer", "notifications/initialized"):
            site.on(method, self.take)
        self.results: dict[str, Any] = {
            "initialize": initialized(V24),
            "tools/list": {"tools": []},
            "tools/call": said("x"),
            "ping": {},
        }

    async def stand(self, wire: Wire) -> None:
        self.wire = wire
        await wire.raw(f"event: endpoint\ndata: {self.endpoint}\n\n")
        await wire.until_left()

    async def take(self, exchange: Exchange) -> Any:
        if not exchange.path.startswith("/messages"):
            return await plain(405)(exchange)
        assert self.wire is not None
        if exchange.key == "notifications/initialized" and self.roots_first:
            await self.wire.say(ask("r", "roots/list"))
            await asyncio.sleep(0.03)
        if exchange.key in self.results:
            await self.wire.raw(f"event: message\ndata: {json.dumps(ok(exchange.id, self.results[exchange.key]))}\n\n")
        return await plain(202, "Accepted")(exchange)


async def test_http_with_sse_word_for_word(site: Site) -> None:
    """protocol.md 7.4: SSE fallback by GET; 1.2: messages go to the address the first event names, answers come on the stream."""
    Post(site)
    async with connect(site.url) as client:
        assert (client.era, client.version) == ("legacy", V24)
        assert (await client.call_tool("t")).text == "x"
        await client.ping()
    assert [f"{exchange.verb} {exchange.path} {exchange.key}" for exchange in site.heard] == [
        "POST /mcp server/discover",
        "POST /mcp initialize",
        "GET /mcp GET",
        "POST /messages?id=1 initialize",
        "POST /messages?id=1 notifications/initialized",
        "POST /messages?id=1 tools/list",
        "POST /messages?id=1 tools/call",
        "POST /messages?id=1 ping",
    ]
    assert site.one("GET").headers["Accept"] == "text/event-stream"


async def test_http_with_sse_on_demand(site: Site) -> None:
    """A config that says so is not probed."""
    Post(site, "messages?relative")
    async with connect({"url": site.url, "transport": "sse"}) as client:
        await client.list_tools()
    assert [exchange.path for exchange in site.heard[:2]] == ["/mcp", "/messages?relative"]


async def test_a_request_before_the_handshakes_post_returns_is_answered(site: Site) -> None:
    """protocol.md 7.4: a server may ask the moment it hears `initialized`: the stream is quicker than the POST's own answer."""
    Post(site).roots_first = True
    async with connect({"url": site.url, "transport": "sse"}, roots=["file:///tmp"]):
        (answer,) = await until(lambda: site.all("answer"))
    assert answer.message == ok("r", {"roots": [{"uri": "file:///tmp"}]})


async def test_a_broken_stream_of_the_old_transport_is_opened_again(site: Site) -> None:
    """Connection = session: a new stream is a new handshake."""
    post = Post(site)
    async with connect({"url": site.url, "transport": "sse"}) as client:
        assert post.wire is not None
        post.wire.cut()
        await until(lambda: len(site.all("initialize")) == 2)
        await until(lambda: client.state == "ready")
        assert (await client.call_tool("t")).text == "x"


async def test_an_endpoint_nobody_speaks_at_is_told_by_what_it_said_first(site: Site) -> None:
    """protocol.md 2.6: the last failure (GET) says less than the one before."""
    site.on("server/discover", plain(404, "nothing here")).on("initialize", plain(404, "nothing here"))
    with pytest.raises(errors.UnexpectedStatus, match="nothing here") as caught:
        await connect(site.url).open()
    assert caught.value.status == 404


async def test_a_pinned_era_does_not_wander(site: Site) -> None:
    """era="modern": no handshake is tried; 2.7 modern->legacy fails clearly."""
    site.legacy()
    with pytest.raises(errors.Error):
        await connect(site.url, era="modern").open()
    assert site.transcript() == ["POST server/discover"]
    assert connecting._memory.recall(site.url) is None


async def test_a_pinned_version_is_asked_for_and_no_other_taken(site: Site) -> None:
    """version=: R188 unsupported version reports both."""
    site.legacy(V11)
    with pytest.raises(errors.UnsupportedVersion) as caught:
        await connect(site.url, version=V06).open()
    assert V11 in str(caught.value)
    assert V06 in str(caught.value)
    assert site.one("initialize").params["protocolVersion"] == V06
    assert not site.all("server/discover")


async def test_invalid_annotations_do_no_harm_where_no_headers_are_mirrored(site: Site) -> None:
    """protocol.md 3.3: only the modern HTTP client must drop the tool; x-mcp-header means nothing here (1.5)."""
    broken = tool("t", {"a": {"type": "number", "x-mcp-header": "A"}})
    good = tool("u", {"a": {"type": "string", "x-mcp-header": "A"}})
    site.legacy().on("tools/list", result(listed(broken, good))).on("tools/call", result(said("x")))
    async with connect(site.url) as client:
        assert [one.name for one in await client.list_tools()] == ["t", "u"]
        await client.call_tool("u", {"a": "b"})
    assert "Mcp-Param-A" not in site.one("tools/call").headers
    assert MODERN not in site.one("tools/call").headers.values()


async def test_a_call_that_waits_for_a_person_has_all_the_time_they_need(site: Site) -> None:
    """protocol.md 3.6: a person's time is not the server's; the hard maximum counts the server's time only."""

    async def reply(wire: Wire) -> None:
        await wire.say(ask("e", "elicitation/create", {"message": "m", "requestedSchema": {"type": "object"}}))
        await until(lambda: site.all("answer"))
        await wire.answer(said("thanks"))

    async def on_elicit(ask: Any) -> Any:
        await asyncio.sleep(0.15)
        return ask.accept()

    site.legacy().on("tools/call", stream(reply))
    async with connect(site.url, on_elicit=on_elicit) as client:
        await client.list_tools()
        task = asyncio.ensure_future(client.call_tool("t", timeout=0.1))
        async with finishing(task):
            assert (await soon(task)).text == "thanks"


async def test_a_list_that_is_refused_for_a_moment_does_not_make_a_tool_unknown(site: Site) -> None:
    """A server whose store is away says 503; what was known of the tool before still holds."""
    wrapped = {"type": "object", "properties": {"result": {}}, "x-fastmcp-wrap-result": True}
    listing = result({"tools": [{**tool("t"), "outputSchema": wrapped}]})
    site.legacy(capabilities={"tools": {"listChanged": True}})
    site.on("tools/list", listing, error(-32603, "not now", status=503), listing)
    site.on("tools/call", result({"content": [], "structuredContent": {"result": 12}}))
    async with connect(site.url) as client:
        assert (await client.call_tool("t")).data == 12
        client._tools.forget()
        assert (await client.call_tool("t")).data == 12, "the list was refused"
        assert (await client.call_tool("t")).data == 12
        assert (await client.call_tool("t")).data == 12
    assert len(site.all("tools/list")) == 3, "asked again after the refusal, and then not any more"
