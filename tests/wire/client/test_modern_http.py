"""2026-07-28 over HTTP: every word the client says, and what it makes of the answers (protocol.md 7.3)."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from tests.support.peers import (
    MODERN,
    P,
    Site,
    Wire,
    discovered,
    error,
    finishing,
    held,
    input_required,
    listed,
    plain,
    result,
    said,
    stream,
    streamed,
    tell,
    tool,
)
from tests.support.until import PATIENCE, soon, until

import trimaran
from trimaran import connect, errors

OURS = {"name": "trimaran", "version": trimaran.__version__}


# --- what is said on every request -----------------------------------------------------------------------------------


async def test_the_opening_word_for_word(site: Site) -> None:
    """protocol.md 7.3: required `_meta` and headers, clientInfo, Accept with both types. R203."""
    site.modern()
    async with connect(site.url) as client:
        assert (client.era, client.version) == ("modern", MODERN)
    (probe,) = site.heard
    assert probe.message == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "server/discover",
        "params": {
            "_meta": {
                P + "protocolVersion": MODERN,
                P + "clientInfo": OURS,
                P + "clientCapabilities": {},
            }
        },
    }
    assert probe.mcp() == {"mcp-protocol-version": MODERN, "mcp-method": "server/discover"}
    assert probe.headers["Content-Type"] == "application/json"
    assert probe.headers["Accept"] == "application/json, text/event-stream"


async def test_every_post_carries_meta_and_headers_that_agree(site: Site) -> None:
    """protocol.md 7.3, 3.1: `_meta` even where there is nothing else to say; the version header equals it; Mcp-Method = method;
    Mcp-Name where the method has a name, and nowhere else."""
    site.modern()
    answers: dict[str, Any] = {
        "tools/call": said("x"),
        "resources/list": {"resultType": "complete", "resources": []},
        "resources/templates/list": {"resultType": "complete", "resourceTemplates": []},
        "resources/read": {"resultType": "complete", "contents": [{"uri": "r:1", "text": "x"}]},
        "prompts/list": {"resultType": "complete", "prompts": []},
        "prompts/get": {"resultType": "complete", "messages": []},
        "completion/complete": {"resultType": "complete", "completion": {"values": []}},
        "tasks/get": {"resultType": "complete"},
        "vendor/thing": {"resultType": "complete"},
    }
    for method, answer in answers.items():
        site.on(method, result(answer))
    async with connect(site.url) as client:
        await client.list_tools()
        await client.call_tool("t")
        await client.list_resources()
        await client.list_resource_templates()
        await client.read_resource("r:1")
        await client.list_prompts()
        await client.get_prompt("p")
        await client.complete("p", "a", "v")
        await client.ping()
        await client.request("tasks/get", {"taskId": "k"})
        await client.request("vendor/thing")
    for exchange in site.heard:
        assert exchange.meta[P + "protocolVersion"] == exchange.headers["MCP-Protocol-Version"] == MODERN
        assert exchange.meta[P + "clientCapabilities"] == {}
        assert exchange.meta[P + "clientInfo"] == OURS
        assert exchange.headers["Mcp-Method"] == exchange.message["method"]
        assert "Mcp-Session-Id" not in exchange.headers
    names = {exchange.key: exchange.headers.get("Mcp-Name") for exchange in site.heard}
    assert names == {
        "server/discover": None,
        "tools/list": None,
        "tools/call": "t",
        "resources/list": None,
        "resources/templates/list": None,
        "resources/read": "r:1",
        "prompts/list": None,
        "prompts/get": "p",
        "completion/complete": None,
        "tasks/get": "k",
        "vendor/thing": None,
    }
    ids = [exchange.id for exchange in site.heard]
    assert len(set(ids)) == len(ids)


async def test_capabilities_are_objects_and_declared_on_each_request(site: Site) -> None:
    """protocol.md 7.3: capability values are objects. R190: booleans become objects, false ones disappear."""
    site.modern().on("prompts/list", result({"resultType": "complete", "prompts": []}))
    options: dict[str, Any] = {
        "on_elicit": lambda ask: ask.decline(),
        "on_sample": lambda ask: "x",
        "roots": [],
        "capabilities": {"sampling": {"tools": True}, "experimental": {"x": {}}, "logging": False},
    }
    async with connect(site.url, client_info={"name": "me", "version": "3"}, **options) as client:
        await client.list_prompts()
    for exchange in site.heard:
        assert exchange.meta[P + "clientInfo"] == {"name": "me", "version": "3"}
        assert exchange.meta[P + "clientCapabilities"] == {
            "elicitation": {"form": {}, "url": {}},
            "sampling": {"tools": {}},
            "roots": {},
            "experimental": {"x": {}},
        }


async def test_meta_of_the_caller_travels_along_but_cannot_lie(site: Site) -> None:
    """protocol.md 1.6: trace context and vendor keys pass; the reserved ones are ours."""
    site.modern().on("tools/call", result(said("x")))
    async with connect(site.url) as client:
        await client.call_tool("t", {}, meta={"traceparent": "00-1-2-01", P + "protocolVersion": "v999"})
    call = site.one("tools/call")
    assert call.meta["traceparent"] == "00-1-2-01"
    assert call.meta[P + "protocolVersion"] == MODERN
    assert call.body.count(b"protocolVersion") == 1


async def test_headers_and_credentials_of_the_caller_are_sent_with_everything(site: Site) -> None:
    """R186, R203, R209."""
    site.modern()
    async with connect(site.url, headers={"X-Tenant": "blue"}, auth="secret") as client:
        await client.list_tools()
    assert [exchange.headers["X-Tenant"] for exchange in site.heard] == ["blue", "blue"]
    assert [exchange.headers["Authorization"] for exchange in site.heard] == ["Bearer secret", "Bearer secret"]


# --- Mcp-Name and Mcp-Param ------------------------------------------------------------------------------------------


def wrapped(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("plain", "plain"),
        ("two words", "two words"),
        (" padded ", wrapped(" padded ")),
        ("tab\tinside", wrapped("tab\tinside")),
        ("größe", wrapped("größe")),
        ("line\nbreak", wrapped("line\nbreak")),
        ("=?base64?eA==?=", wrapped("=?base64?eA==?=")),
        ("=?BASE64?eA==?=", "=?BASE64?eA==?="),
        ("日本", wrapped("日本")),
    ],
)
async def test_mcp_name_is_encoded_where_plain_text_would_not_survive(site: Site, name: str, header: str) -> None:
    """protocol.md 3.3, 7.3: encoding rules."""
    site.modern().on("prompts/get", result({"resultType": "complete", "messages": []}))
    async with connect(site.url) as client:
        await client.get_prompt(name)
    call = site.one("prompts/get")
    assert call.params["name"] == name
    assert call.headers["Mcp-Name"] == header


ANNOTATED = {
    "region": {"type": "string", "x-mcp-header": "Region"},
    "count": {"type": "integer", "x-mcp-header": "Count"},
    "dry": {"type": "boolean", "x-mcp-header": "Dry"},
    "note": {"type": ["string", "null"], "x-mcp-header": "Note"},
    "deep": {"type": "object", "properties": {"id": {"type": "string", "x-mcp-header": "Deep-Id"}}},
    "quiet": {"type": "string"},
}


async def test_annotated_arguments_are_mirrored_and_no_others(site: Site) -> None:
    """protocol.md 7.3: mirrors annotated params only; omits null; empty string is a value; nested properties count; lists first."""
    site.modern().on("tools/list", result(listed(tool("t", ANNOTATED)))).on("tools/call", result(said("x")))
    arguments = {
        "region": "eu west",
        "count": 42,
        "dry": False,
        "note": None,
        "deep": {"id": "ä"},
        "quiet": "shh",
    }
    async with connect(site.url) as client:
        await client.call_tool("t", arguments)
        await client.call_tool("t", {"region": "", "count": -7.0, "dry": True})
    assert site.transcript() == ["POST server/discover", "POST tools/list", "POST tools/call", "POST tools/call"]
    first, second = site.all("tools/call")
    params = {name: value for name, value in first.mcp().items() if name.startswith("mcp-param-")}
    assert params == {
        "mcp-param-region": "eu west",
        "mcp-param-count": "42",
        "mcp-param-dry": "false",
        "mcp-param-deep-id": wrapped("ä"),
    }
    assert first.params["arguments"] == arguments
    params = {name: value for name, value in second.mcp().items() if name.startswith("mcp-param-")}
    assert params == {"mcp-param-region": "", "mcp-param-count": "-7", "mcp-param-dry": "true"}


async def test_a_tool_with_an_annotation_that_cannot_be_is_left_out_and_the_others_stay(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """protocol.md 7.3: drops invalid tools, keeps valid ones."""
    broken = [
        tool("number", {"a": {"type": "number", "x-mcp-header": "A"}}),
        tool("token", {"a": {"type": "string", "x-mcp-header": "not a token"}}),
        tool("twice", {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
        tool("items", {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}),
        tool("empty", {"a": {"type": "string", "x-mcp-header": ""}}),
    ]
    site.modern().on("tools/list", result(listed(tool("good", ANNOTATED), *broken, tool("plain"))))
    async with connect(site.url) as client:
        assert [one.name for one in await client.list_tools()] == ["good", "plain"]
    for one in broken:
        assert any(one["name"] in record.message for record in caplog.records)


async def test_stale_headers_are_mended_once(site: Site) -> None:
    """protocol.md 7.3: relist and retry on -32020; the second refusal is final."""
    site.modern().on("tools/list", result(listed(tool("t"))), result(listed(tool("t", ANNOTATED))))
    mismatch = error(-32020, "header mismatch", status=400)
    site.on("tools/call", mismatch, result(said("fine")))
    async with connect(site.url) as client:
        assert (await client.call_tool("t", {"region": "eu"})).text == "fine"
        first, second = site.all("tools/call")
        assert "Mcp-Param-Region" not in first.headers
        assert second.headers["Mcp-Param-Region"] == "eu"
        assert first.id != second.id
        site.on("tools/call", mismatch)
        with pytest.raises(errors.HeaderMismatch):
            await client.call_tool("t", {"region": "eu"})
    assert len(site.all("tools/call")) == 4


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [result, streamed], ids=["json", "stream"])
async def test_an_answer_may_be_a_body_or_a_stream(site: Site, reply: Any) -> None:
    """protocol.md 7.3: handles JSON and SSE; ignores comments. R204."""
    site.modern().on("tools/call", reply(said("x")))
    async with connect(site.url) as client:
        assert (await client.call_tool("t")).text == "x"


async def test_a_stream_may_be_cut_into_any_lines(site: Site) -> None:
    """protocol.md 3.4: several data lines are one message; comments, unknown fields, event names, CRLF and CR do not matter. R204."""

    async def reply(wire: Wire) -> None:
        text = json.dumps({"jsonrpc": "2.0", "id": wire.exchange.id, "result": said("x")}, indent=1)
        await wire.raw(":\r\n: ping\r\revent: something\r\nid: 7\nretry: 5\nfoo: bar\n")
        for line in text.split("\n"):
            await wire.raw(f"data:{line}\r\n")
        await wire.raw("\r\n")

    site.modern().on("tools/call", stream(reply))
    async with connect(site.url) as client:
        assert (await client.call_tool("t")).text == "x"


async def test_a_result_without_a_type_is_complete(site: Site) -> None:
    """protocol.md 7.3: absent resultType = complete."""
    site.modern().on("tools/call", result({"content": [{"type": "text", "text": "x"}]}))
    async with connect(site.url) as client:
        assert (await client.call_tool("t")).data == "x"


@pytest.mark.parametrize("kind", ["later", "", "Complete"])
async def test_a_result_of_an_unknown_type_is_invalid(site: Site, kind: str) -> None:
    """protocol.md 7.3: unknown = invalid."""
    site.modern().on("tools/call", result({**said("x"), "resultType": kind}))
    async with connect(site.url) as client:
        with pytest.raises(errors.RemoteProtocolError, match="unknown type"):
            await client.call_tool("t")


@pytest.mark.parametrize("status", [200, 400, 404, 409, 422, 500, 503])
async def test_a_json_rpc_error_counts_under_any_status(site: Site, status: int) -> None:
    """protocol.md 8.2: the client must parse a JSON-RPC body under any status."""
    site.modern().on("tools/call", error(-32602, "no such tool", {"name": "t"}, status=status))
    async with connect(site.url) as client:
        with pytest.raises(errors.CallError) as caught:
            await client.call_tool("t")
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32602, "no such tool", {"name": "t"})


@pytest.mark.parametrize("id", [None, ...], ids=["null", "own"])
async def test_an_error_may_have_no_id(site: Site, id: Any) -> None:
    """protocol.md 3.1: accept absent and null."""
    site.modern().on("tools/call", error(-32600, "unreadable", id=id, status=400))
    async with connect(site.url) as client:
        with pytest.raises(errors.CallError, match="unreadable"):
            await client.call_tool("t")


@pytest.mark.parametrize("id", [99, "3", None])
async def test_a_result_with_another_id_is_nobodys(site: Site, id: Any) -> None:
    site.modern().on(
        "tools/call",
        plain(200, json.dumps({"jsonrpc": "2.0", "id": id, "result": said("x")}), "application/json"),
    )
    async with connect(site.url) as client:
        with pytest.raises(errors.RemoteProtocolError, match="id"):
            await client.call_tool("t")


@pytest.mark.parametrize("status", [200, 202, 204])
async def test_any_2xx_is_fine_for_a_notification(site: Site, status: int) -> None:
    """protocol.md 7.3: any 2xx is success for a notification POST."""
    site.modern().on("notifications/x", plain(status))
    async with connect(site.url) as client:
        await client.notify("notifications/x", {"a": 1})
    told = site.one("notifications/x")
    assert told.message["params"]["a"] == 1
    assert "id" not in told.message
    assert told.headers["MCP-Protocol-Version"] == MODERN


async def test_what_comes_on_the_stream_reaches_the_handlers(site: Site) -> None:
    """R202: every notification; R197: progress only until the call settles, for its own token."""
    heard: list[Any] = []
    reports: list[Any] = []

    async def reply(wire: Wire) -> None:
        token = wire.exchange.meta["progressToken"]
        for value in (0.5, 1):
            await wire.say(
                tell("notifications/progress", {"progressToken": token, "progress": value, "total": 1, "message": "m"})
            )
        await wire.say(tell("notifications/progress", {"progressToken": "other", "progress": 9}))
        await wire.say(tell("notifications/message", {"level": "info", "data": {"x": 1}, "logger": "l"}))
        await wire.say(tell("notifications/vendor/thing", {"y": 2}))
        await wire.answer(said("x"))

    site.modern().on("tools/call", stream(reply))
    options: dict[str, Any] = {
        "on_log": lambda entry: heard.append((entry.level, entry.data, entry.logger)),
        "on_notification": lambda method, params: heard.append(method),
    }
    async with connect(site.url, **options) as client:
        await client.call_tool("t", on_progress=lambda *report: reports.append(report))
    assert reports == [(0.5, 1, "m"), (1, 1, "m")]
    assert ("info", {"x": 1}, "l") in heard
    assert heard.count("notifications/progress") == 3
    assert "notifications/vendor/thing" in heard


async def test_progress_tokens_are_unique_among_calls(site: Site) -> None:
    """protocol.md 1.4: unique among active; none where nobody listens."""
    site.modern().on("tools/call", result(said("x")))
    async with connect(site.url) as client:
        await asyncio.gather(*(client.call_tool("t", on_progress=lambda *_: None) for _ in range(5)))
        await client.call_tool("t")
    tokens = [exchange.meta.get("progressToken") for exchange in site.all("tools/call")]
    assert len(set(tokens)) == 6
    assert tokens[-1] is None


async def test_the_log_level_goes_with_each_request(site: Site) -> None:
    """protocol.md 1.4, 7.3: per request in this era; nothing without being asked; no setLevel on the wire."""
    site.modern().on("tools/call", result(said("x")))
    async with connect(site.url) as client:
        await client.call_tool("t")
        await client.set_log_level("warning")
        await client.call_tool("t")
    levels = [exchange.meta.get(P + "logLevel") for exchange in site.all("tools/call")]
    assert levels == [None, "warning"]
    assert not site.all("logging/setLevel")


async def test_a_level_that_is_none_is_refused_here(site: Site) -> None:
    site.modern()
    async with connect(site.url) as client:
        with pytest.raises(errors.LocalProtocolError, match="loud"):
            await client.set_log_level("loud")  # pyright: ignore[reportArgumentType] - the mistake in question


async def test_what_the_server_does_not_offer_is_not_asked(site: Site) -> None:
    """R192: unsupported(method), locally."""
    site.modern({"tools": {}})
    async with connect(site.url) as client:
        for call, method in (
            (client.list_prompts(), "prompts/list"),
            (client.get_prompt("p"), "prompts/get"),
            (client.read_resource("r:1"), "resources/read"),
            (client.list_resources(), "resources/list"),
            (client.list_resource_templates(), "resources/templates/list"),
            (client.complete("p", "a", "v"), "completion/complete"),
            (client.set_log_level("info"), "logging/setLevel"),
        ):
            with pytest.raises(errors.Unsupported) as caught:
                await call
            assert caught.value.method == method
    assert site.transcript() == ["POST server/discover"]


# --- input rounds ----------------------------------------------------------------------------------------------------

STATE = 'op"aque\\ \u00e9\u2028\U0001f600 =?base64?eA==?='
FORM = {
    "method": "elicitation/create",
    "params": {
        "message": "who?",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 7}},
        },
    },
}


async def test_an_input_round_word_for_word(site: Site) -> None:
    """protocol.md 7.3 MRTR: same params, new id, exact state, bare answers under their keys; the state is not kept afterwards."""
    site.modern().on(
        "tools/call",
        result(input_required({"who": FORM, "where": {"method": "roots/list"}}, STATE)),
        result(input_required(state="second")),
        result(said("done")),
        result(said("again")),
    )
    options: dict[str, Any] = {"on_elicit": lambda ask: {"name": "Ada"}, "roots": ["file:///tmp/x"]}
    async with connect(site.url, **options) as client:
        assert (await client.call_tool("t", {"a": 1}, meta={"traceparent": "tp"})).text == "done"
        assert (await client.call_tool("t", {"a": 1})).text == "again"
    first, second, third, other = site.all("tools/call")
    assert len({first.id, second.id, third.id, other.id}) == 4
    for exchange in (first, second, third):
        assert exchange.params["name"] == "t"
        assert exchange.params["arguments"] == {"a": 1}
        assert exchange.meta["traceparent"] == "tp"
        assert exchange.meta[P + "protocolVersion"] == MODERN
        assert exchange.headers["Mcp-Name"] == "t"
    assert "requestState" not in first.params
    assert "inputResponses" not in first.params
    assert second.params["requestState"] == STATE
    assert second.params["inputResponses"] == {
        "who": {"action": "accept", "content": {"name": "Ada", "age": 7}},
        "where": {"roots": [{"uri": "file:///tmp/x"}]},
    }
    assert third.params["requestState"] == "second"
    assert "inputResponses" not in third.params
    assert other.params.keys() == {"name", "arguments", "_meta"}


async def test_a_round_without_state_sends_none(site: Site) -> None:
    """protocol.md 7.3: none if none; also where an earlier round had one."""
    site.modern().on(
        "tools/call",
        result(input_required({"who": FORM}, "s")),
        result(input_required({"who": FORM})),
        result(said("done")),
    )
    async with connect(site.url, on_elicit=lambda ask: ask.decline()) as client:
        await client.call_tool("t")
    _, second, third = site.all("tools/call")
    assert second.params["requestState"] == "s"
    assert second.params["inputResponses"] == {"who": {"action": "decline"}}
    assert "requestState" not in third.params


async def test_state_does_not_leak_to_a_parallel_call(site: Site) -> None:
    """protocol.md 7.3: no leakage to parallel calls."""

    def play(exchange: Any) -> Any:
        who = exchange.params["arguments"]["who"]
        state = exchange.params.get("requestState")
        if state is None:
            return input_required({"q": FORM}, f"state of {who}")
        return said(f"{who}: {state}, {exchange.params['inputResponses']['q']['content']['name']}")

    site.modern().on("tools/call", result(play))
    gate = asyncio.Event()
    asked: list[Any] = []

    async def on_elicit(ask: Any) -> Any:
        asked.append(ask)
        if len(asked) == 4:
            gate.set()
        await gate.wait()
        return {"name": "Ada"}

    async with connect(site.url, on_elicit=on_elicit) as client:
        calls = [client.call_tool("t", {"who": who}) for who in "abcd"]
        found = [one.text for one in await soon(asyncio.gather(*calls))]
    assert found == [f"{who}: state of {who}, Ada" for who in "abcd"]


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
async def test_the_other_two_methods_may_ask_too(site: Site, method: str) -> None:
    """protocol.md 1.3: tools/call, prompts/get, resources/read."""
    final: Any = {"resultType": "complete", "messages": [], "contents": [{"uri": "r:1", "text": "x"}]}
    site.modern().on(method, result(input_required({"who": FORM})), result(final))
    async with connect(site.url, on_elicit=lambda ask: {"name": "A"}) as client:
        await (client.get_prompt("p") if method == "prompts/get" else client.read_resource("r:1"))
    _, second = site.all(method)
    assert second.params["inputResponses"]["who"]["action"] == "accept"


async def test_what_a_person_was_asked_for_is_never_kept(site: Site) -> None:
    """protocol.md 1.5: never cache results of requests carrying inputResponses or requestState."""
    final = {"resultType": "complete", "contents": [{"uri": "r:1", "text": "x"}], "ttlMs": 60_000}
    site.modern().on("resources/read", result(input_required(state="s")), result(final), result(final))
    async with connect(site.url) as client:
        await client.read_resource("r:1")
        await client.read_resource("r:1")
        assert len(site.all("resources/read")) == 3
        await client.read_resource("r:1")
    assert len(site.all("resources/read")) == 3


async def test_a_refused_ask_ends_the_call_without_a_retry(site: Site) -> None:
    """protocol.md 1.3: sampling or roots that cannot be obtained: the client simply does not retry."""
    site.modern().on("tools/call", result(input_required({"s": {"method": "sampling/createMessage", "params": {}}})))
    async with connect(site.url) as client:
        with pytest.raises(errors.ProtocolError):
            await client.call_tool("t")
    assert len(site.all("tools/call")) == 1


# --- no answers, ever ------------------------------------------------------------------------------------------------


async def test_requests_on_a_stream_are_not_answered(site: Site) -> None:
    """protocol.md 7.3: no responses ever sent."""

    async def reply(wire: Wire) -> None:
        await wire.say({"jsonrpc": "2.0", "id": "srv", "method": "ping"})
        await wire.say({"jsonrpc": "2.0", "id": "srv2", "method": "sampling/createMessage", "params": {}})
        await wire.answer(said("x"))

    site.modern().on("tools/call", stream(reply))
    async with connect(site.url, on_sample=lambda ask: "x") as client:
        assert (await client.call_tool("t")).text == "x"
        await client.list_tools(fresh=True)
    assert not site.all("answer")


# --- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["timeout", "cancel", "task"])
async def test_a_call_is_cancelled_by_leaving_its_stream(site: Site, way: str) -> None:
    """protocol.md 7.3: cancel per transport: over HTTP by closing the stream, with no message. R195, R196."""
    site.modern().on("tools/call", stream(held))
    async with connect(site.url) as client:
        await client.list_tools()
        timeout = 0.05 if way == "timeout" else None
        task = asyncio.ensure_future(client.call_tool("t", timeout=timeout))
        async with finishing(task):
            call = await until(lambda: site.all("tools/call"))
            if way == "cancel":
                (id,) = client.requests
                assert client.cancel(id, "enough")
            elif way == "task":
                task.cancel()
            wanted = {
                "timeout": errors.TimedOut,
                "cancel": errors.CallCancelled,
                "task": asyncio.CancelledError,
            }[way]
            with pytest.raises(wanted):
                await soon(task)
            await soon(call[0].left.wait())
        assert client.requests == ()
    assert not site.all("notifications/cancelled")


async def test_a_broken_stream_is_a_lost_request_and_a_repeat_has_a_new_id(site: Site) -> None:
    """protocol.md 7.3, 3.4: new id after a broken stream; never resumed, no Last-Event-ID; only what is safe is repeated."""

    async def broken(wire: Wire) -> None:
        await wire.raw("id: 17\ndata: \n\n")
        wire.cut()

    site.modern().on("tools/call", stream(broken), result(said("x")))
    async with connect(site.url) as client:
        assert (await client.call_tool("t", {"a": 1}, idempotent=True)).text == "x"
        first, second = site.all("tools/call")
        assert first.id != second.id
        assert first.params == second.params
        site.on("tools/call", stream(broken), result(said("x")))
        with pytest.raises(errors.ConnectionLost):
            await client.call_tool("t")
    assert len(site.all("tools/call")) == 3
    assert not any("Last-Event-ID" in exchange.headers for exchange in site.heard)
    assert not site.all("GET")


async def test_closing_says_nothing(site: Site) -> None:
    """protocol.md 1.1: there is no session to end."""
    site.modern()
    async with connect(site.url):
        pass
    assert site.transcript() == ["POST server/discover"]


# --- listening -------------------------------------------------------------------------------------------------------


def acknowledged(wire: Wire) -> dict[str, Any]:
    return tell(
        "notifications/subscriptions/acknowledged",
        {
            "notifications": wire.exchange.params["notifications"],
            "_meta": {P + "subscriptionId": wire.exchange.id},
        },
    )


def about(wire: Wire, method: str, **params: Any) -> dict[str, Any]:
    return tell(method, {**params, "_meta": {P + "subscriptionId": wire.exchange.id}})


async def test_listening_word_for_word_and_again_after_a_loss(site: Site) -> None:
    """protocol.md 7.3: listens are re-sent after a loss, with a new id; the watcher hears that it was deaf for a while."""

    async def first(wire: Wire) -> None:
        await wire.say(acknowledged(wire))
        await wire.say(about(wire, "notifications/tools/list_changed"))
        await wire.say(about(wire, "notifications/resources/updated", uri="config://app"))
        await wire.say(about(wire, "notifications/prompts/list_changed"))
        wire.cut()

    async def second(wire: Wire) -> None:
        await wire.say(acknowledged(wire))
        await wire.say(about(wire, "notifications/resources/updated", uri="config://app/part"))
        await wire.until_left()

    site.modern().on("subscriptions/listen", stream(first), stream(second))
    heard: list[Any] = []
    async with connect(site.url) as client:
        async with asyncio.timeout(PATIENCE):
            async for change in client.listen(tools=True, resources=["config://app"]):
                heard.append((change.kind, change.uri))
                if len(heard) == 4:
                    break
    assert heard == [
        ("tools", None),
        ("resource", "config://app"),
        ("reconnected", None),
        ("resource", "config://app/part"),
    ]
    one, two = site.all("subscriptions/listen")
    assert one.params["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["config://app"]}
    assert two.params["notifications"] == one.params["notifications"]
    assert one.id != two.id
    assert one.headers["Mcp-Method"] == "subscriptions/listen"
    assert "Mcp-Name" not in one.headers
    await soon(two.left.wait())


async def test_a_listen_that_ends_in_order_is_taken_up_again(site: Site) -> None:
    """protocol.md 1.4: the listen result is the graceful end."""

    async def first(wire: Wire) -> None:
        await wire.say(acknowledged(wire))
        await wire.answer({"resultType": "complete", "_meta": {P + "subscriptionId": wire.exchange.id}})

    async def second(wire: Wire) -> None:
        await wire.say(acknowledged(wire))
        await wire.until_left()

    site.modern().on("subscriptions/listen", stream(first), stream(second))
    async with connect(site.url) as client:
        changes: Any = client.listen(tools=True)
        assert (await soon(anext(changes))).kind == "reconnected"
        await changes.aclose()


async def test_a_refused_listen_is_an_error(site: Site) -> None:
    site.modern().on("subscriptions/listen", error(-32602, "no such resource", status=400))
    async with connect(site.url) as client:
        with pytest.raises(errors.CallError, match="no such resource"):
            await soon(anext(client.listen(resources=["x:1"])))  # pyright: ignore[reportArgumentType]
        with pytest.raises(errors.CallError, match="no such resource"):
            await soon(client.subscribe("x:1", print))


# --- lists and what may be kept --------------------------------------------------------------------------------------


async def test_cursors_are_opaque_and_an_empty_one_counts(site: Site) -> None:
    """protocol.md 1.5: EMPTY STRING IS A VALID CURSOR; missing nextCursor = end. R194."""
    odd = "\u00e9 =&?\n\u2028"
    site.modern().on(
        "tools/list",
        result(listed(tool("a"), nextCursor="")),
        result(listed(tool("b"), nextCursor=odd)),
        result(listed(tool("c"))),
    )
    async with connect(site.url) as client:
        assert [one.name for one in await client.list_tools_all()] == ["a", "b", "c"]
    first, second, third = site.all("tools/list")
    assert "cursor" not in first.params
    assert second.params["cursor"] == ""
    assert third.params["cursor"] == odd


async def test_what_may_be_kept_is_kept_until_it_changes(site: Site) -> None:
    """protocol.md 7.3 cache rules: ttl, notification invalidates, `fresh` asks again; each page by itself."""

    async def changing(wire: Wire) -> None:
        await wire.say(acknowledged(wire))
        await wire.say(about(wire, "notifications/tools/list_changed"))
        await wire.until_left()

    site.modern().on("tools/list", result(listed(tool("a"), ttlMs=60_000)))
    site.on("subscriptions/listen", stream(changing))
    async with connect(site.url) as client:
        await client.list_tools()
        await client.list_tools()
        assert len(site.all("tools/list")) == 1
        await client.list_tools(fresh=True)
        assert len(site.all("tools/list")) == 2
        await client.list_tools("2")
        assert len(site.all("tools/list")) == 3
        changes: Any = client.listen(tools=True)
        await soon(anext(changes))
        await client.list_tools()
        assert len(site.all("tools/list")) == 4
        await changes.aclose()


async def test_a_list_from_the_cache_is_the_callers_own(site: Site) -> None:
    """What one caller does to its list is not seen by the next."""
    site.modern().on("tools/list", result(listed(tool("a"), tool("b"), ttlMs=60_000)))
    async with connect(site.url) as client:
        (await client.list_tools()).clear()
        assert [one.name for one in await client.list_tools()] == ["a", "b"]


async def test_a_bad_cursor_drops_the_pages_there_are(site: Site) -> None:
    """protocol.md 1.5: bad cursor -32602 -> client drops all pages."""
    site.modern().on(
        "tools/list",
        result(listed(tool("a"), ttlMs=60_000, nextCursor="2")),
        error(-32602, "unknown cursor", status=400),
        result(listed(tool("b"), ttlMs=60_000)),
    )
    async with connect(site.url) as client:
        page = await client.list_tools()
        with pytest.raises(errors.CallError, match="unknown cursor"):
            await client.list_tools(page.next_cursor)
        assert [one.name for one in await client.list_tools()] == ["b"]


async def test_no_reference_in_a_schema_is_ever_fetched(site: Site) -> None:
    """protocol.md 7.3: no network $ref."""
    away = {"$ref": site.url.replace("/mcp", "/schema.json")}
    site.modern().on("tools/list", result(listed(tool("t", {"a": away}, outputSchema=away))))
    site.on("tools/call", result({**said("x"), "structuredContent": {"x": 1}}))
    async with connect(site.url) as client:
        (found,) = await client.list_tools()
        assert found.output_schema == away
        assert (await client.call_tool("t", {"a": 1})).structured == {"x": 1}
    assert not site.all("GET")


async def test_schemas_are_shown_as_they_came(site: Site) -> None:
    """protocol.md 7.3: schema keywords preserved when exposing tools."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": {"type": "string", "x-vendor": [1]}},
        "allOf": [{"if": {}, "then": {}, "else": False}],
        "$defs": {"d": True},
        "unevaluatedProperties": False,
    }
    site.modern().on("tools/list", result(listed({"name": "t", "inputSchema": schema, "outputSchema": schema})))
    async with connect(site.url) as client:
        (found,) = await client.list_tools()
    assert found.input_schema == schema
    assert found.output_schema == schema


# --- credentials, versions -------------------------------------------------------------------------------------------


class Keys:
    """Credentials that can be refreshed once."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.challenges: list[str] = []

    def header(self) -> str:
        return f"Bearer {self.tokens[0]}"

    async def refresh(self, www_authenticate: str) -> bool:
        self.challenges.append(www_authenticate)
        if len(self.tokens) > 1:
            self.tokens.pop(0)
            return True
        return False


async def test_a_401_refreshes_the_credentials_once_and_repeats_the_request_once(site: Site) -> None:
    """R206: 401 -> refresh once with the WWW-Authenticate value -> retry once."""
    refusal = plain(401, headers={"WWW-Authenticate": 'Bearer realm="x"'})
    site.modern().on("tools/list", refusal, result(listed()))
    keys = Keys("old", "new")
    async with connect(site.url, auth=keys) as client:
        await client.list_tools()
    first, second = site.all("tools/list")
    assert (first.headers["Authorization"], second.headers["Authorization"]) == ("Bearer old", "Bearer new")
    assert first.message == second.message
    assert keys.challenges == ['Bearer realm="x"']


async def test_a_second_401_is_final(site: Site) -> None:
    """R206, R209: otherwise unauthorized, with what the server asked for."""
    refusal = plain(401, headers={"WWW-Authenticate": 'Bearer realm="x"'})
    site.modern().on("tools/list", refusal)
    for auth, count in ((Keys("old", "new", "newer"), 2), (Keys("only"), 1), ("static", 1), (None, 1)):
        async with connect(site.url, auth=auth) as client:
            before = len(site.all("tools/list"))
            with pytest.raises(errors.Unauthorized) as caught:
                await client.list_tools()
            assert (caught.value.status, caught.value.www_authenticate) == (401, 'Bearer realm="x"')
            assert len(site.all("tools/list")) - before == count


async def test_the_very_version_a_server_refused_and_lists_is_tried_once_more(site: Site) -> None:
    """protocol.md 7.3: retry once with a supported version on -32022, even where it is the one just used."""
    refusal = error(-32022, "unsupported", {"supported": [MODERN], "requested": MODERN}, status=400)
    site.on("server/discover", refusal, result(discovered()))
    async with connect(site.url) as client:
        assert client.era == "modern"
    assert site.transcript() == ["POST server/discover", "POST server/discover"]
    site.on("server/discover", refusal)
    with pytest.raises(errors.UnsupportedVersion):
        await connect(site.url).open()
    assert len(site.heard) == 4


async def test_everything_is_seen_by_the_tap(site: Site) -> None:
    """Options.tap: sees every JSON message in either direction, refusals included."""
    site.modern().on("tools/call", error(-32602, "nope", status=400))
    seen: list[Any] = []
    async with connect(site.url, tap=lambda way, message: seen.append((way, json.loads(message)))) as client:
        with pytest.raises(errors.CallError):
            await client.call_tool("t")
    assert [way for way, _ in seen] == ["out", "in", "out", "in", "out", "in"]
    assert seen[-1][1]["error"]["message"] == "nope"


# --- a proxy whose server is away ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_what_may_be_repeated_is_repeated_when_a_proxy_says_that_its_server_is_away(
    site: Site, status: int
) -> None:
    site.modern().on("tools/list", plain(status, "Bad Gateway"), result(listed(tool("a"))))
    async with connect(site.url) as client:
        assert [found.name for found in await client.list_tools()] == ["a"]


async def test_a_call_that_may_have_been_done_is_not_repeated_after_a_proxys_502(site: Site) -> None:
    site.modern().on("tools/call", plain(502, "Bad Gateway"), result(said("twice")))
    async with connect(site.url) as client:
        with pytest.raises(errors.UnexpectedStatus):
            await client.call_tool("pay")
    assert len(site.all("tools/call")) == 1


async def test_a_proxy_that_keeps_saying_so_is_believed_in_the_end(site: Site) -> None:
    site.modern().on("tools/list", plain(502, "Bad Gateway"))
    async with connect(site.url, retries=1) as client:
        with pytest.raises(errors.UnexpectedStatus):
            await client.list_tools()
    assert len(site.all("tools/list")) == 2
