"""The modern validation ladder: each rung with its code, status and id, and their order (protocol.md 2.1, 2.2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.harness import BOTH, MODERN, Channel, P, Wire, encode, meta, notification, replace, request, serve

from trimaran import Server

PARSE, REQUEST, METHOD, PARAMS = -32700, -32600, -32601, -32602
HEADER, CAPABILITY, VERSION = -32020, -32021, -32022
SUPPORTED = [MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


def demo() -> Server:
    server = Server("demo", version="1.0.0")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool(name="naïve tool", inline=True)
    def naive() -> str:
        return "fine"

    return server


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["http", "asgi"])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """One server for all the cases that leave no trace in it."""
    async with serve(request.param, demo()) as wire:
        yield wire


module_loop = pytest.mark.asyncio(loop_scope="module")


def headers(method: str = "tools/list", version: str = MODERN, **more: str | None) -> dict[str, str | None]:
    found: dict[str, str | None] = {"MCP-Protocol-Version": version, "Mcp-Method": method}
    return {**found, **{k.replace("_", "-"): v for k, v in more.items()}}


ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}

DEEP = json.loads("[" * 127 + "]" * 127)  # 129 levels in params.v, 130 in its _meta

# name: (body, headers, status, code, id)
RUNGS: dict[str, tuple[Any, dict[str, str | None], int, int, Any]] = {
    # protocol.md 2.1.3 JSON
    "not json": (b"{nope", headers(), 400, PARSE, None),
    "empty": (b"", headers(), 400, PARSE, None),
    "not utf-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', headers(), 400, PARSE, None),
    "bottomless": (b"[" * 200_000, headers(), 400, PARSE, None),
    "too deep": (request("tools/list", {"_meta": meta(), "v": DEEP}), headers(), 400, PARSE, None),
    "too deep, in _meta": (request("tools/list", {"_meta": meta(v=DEEP)}), headers(), 400, PARSE, None),
    "trailing bytes": (encode(request("tools/list", {"_meta": meta()})) + b"x", headers(), 400, PARSE, None),
    # protocol.md 2.1.4 and 5
    "batch": ([request("tools/list", {"_meta": meta()})], headers(), 400, REQUEST, None),
    "empty batch": ([], headers(), 400, REQUEST, None),
    # a. envelope
    "a string": ("hello", headers(), 400, REQUEST, None),
    "null": (b"null", headers(), 400, REQUEST, None),
    "no jsonrpc": ({"id": 1, "method": "tools/list", "params": {"_meta": meta()}}, headers(), 400, REQUEST, 1),
    "jsonrpc 1.0": ({**request("tools/list", {"_meta": meta()}), "jsonrpc": "1.0"}, headers(), 400, REQUEST, 1),
    "id null": (request("tools/list", {"_meta": meta()}, None), headers(), 400, REQUEST, None),
    "id true": (request("tools/list", {"_meta": meta()}, True), headers(), 400, REQUEST, None),
    "id 1.5": (request("tools/list", {"_meta": meta()}, 1.5), headers(), 400, REQUEST, None),
    "id 1.0": (encode(request("tools/list", {"_meta": meta()})).replace(b'"id":1', b'"id":1.0'), headers(), 400, REQUEST, None),
    "id object": (request("tools/list", {"_meta": meta()}, {}), headers(), 400, REQUEST, None),
    "id array": (request("tools/list", {"_meta": meta()}, [1]), headers(), 400, REQUEST, None),
    "method number": ({"jsonrpc": "2.0", "id": 7, "method": 1}, headers(), 400, REQUEST, 7),
    "no method": ({"jsonrpc": "2.0", "id": 7}, headers(), 400, REQUEST, 7),
    # b. _meta
    "no params": (request("tools/list"), headers(), 400, PARAMS, 1),
    "params array": (request("tools/list", [1]), headers(), 400, PARAMS, 1),  # type: ignore[arg-type]
    "no _meta": (request("tools/list", {}), headers(), 400, PARAMS, 1),
    "_meta array": (request("tools/list", {"_meta": []}), headers(), 400, PARAMS, 1),
    "_meta null": (request("tools/list", {"_meta": None}), headers(), 400, PARAMS, 1),
    "no version": (request("tools/list", {"_meta": meta(None)}), headers(), 400, PARAMS, 1),
    "version number": (request("tools/list", {"_meta": meta(2026)}), headers(), 400, PARAMS, 1),  # type: ignore[arg-type]
    "no capabilities": (request("tools/list", {"_meta": {P + "protocolVersion": MODERN}}), headers(), 400, PARAMS, 1),
    "capabilities array": (request("tools/list", {"_meta": meta(caps=[1])}), headers(), 400, PARAMS, 1),
    "no _meta, unknown method": (request("no/such", {}), headers("no/such"), 400, PARAMS, 1),
    # c. version header
    "version header missing": (request("tools/list", {"_meta": meta()}), headers(MCP_Protocol_Version=None), 400, HEADER, 1),
    "version header other": (request("tools/list", {"_meta": meta()}), headers(version="2025-11-25"), 400, HEADER, 1),
    "header good, meta v999": (request("tools/list", {"_meta": meta("v999")}), headers(), 400, HEADER, 1),
    "header v999, meta good": (request("tools/list", {"_meta": meta()}), headers(version="v999"), 400, HEADER, 1),
    "header v999, no meta": (request("tools/list", {}), headers(version="v999"), 400, VERSION, 1),
    # d. version served
    "both v999": (request("tools/list", {"_meta": meta("v999")}), headers(version="v999"), 400, VERSION, 1),
    "both legacy": (request("tools/list", {"_meta": meta("2025-11-25")}), headers(version="2025-11-25"), 400, VERSION, 1),
    # e. Mcp-Method
    "method header missing": (request("tools/list", {"_meta": meta()}), headers(Mcp_Method=None), 400, HEADER, 1),
    "method header other": (request("tools/list", {"_meta": meta()}), headers("tools/call"), 400, HEADER, 1),
    "method header case": (request("tools/list", {"_meta": meta()}), headers("Tools/List"), 400, HEADER, 1),
    "method twice": (
        encode(request("tools/call", {**ADD, "_meta": meta()})).replace(b'"method"', b'"method":"tools/list","method"'),
        headers(), 400, HEADER, 1,
    ),
    # f. method
    "unknown method": (request("no/such", {"_meta": meta()}), headers("no/such"), 404, METHOD, 1),
    "unknown method, string id": (request("no/such", {"_meta": meta()}, "abc"), headers("no/such"), 404, METHOD, "abc"),
    "method without capability": (request("prompts/list", {"_meta": meta()}), headers("prompts/list"), 404, METHOD, 1),
    # g. Mcp-Name
    "name header missing": (request("tools/call", {**ADD, "_meta": meta()}), headers("tools/call"), 400, HEADER, 1),
    "name header other": (request("tools/call", {**ADD, "_meta": meta()}), headers("tools/call", Mcp_Name="sub"), 400, HEADER, 1),
    "name header case": (request("tools/call", {**ADD, "_meta": meta()}), headers("tools/call", Mcp_Name="Add"), 400, HEADER, 1),
    "name header bad base64": (
        request("tools/call", {**ADD, "_meta": meta()}), headers("tools/call", Mcp_Name="=?base64?YWRk!?="), 400, HEADER, 1
    ),
    "name twice": (
        encode(request("tools/call", {**ADD, "_meta": meta()})).replace(b'"name":"add"', b'"name":"sub","name":"add"'),
        headers("tools/call", Mcp_Name="sub"), 400, HEADER, 1,
    ),
    # i. params
    "no tool name": (request("tools/call", {"_meta": meta()}), headers("tools/call"), 400, PARAMS, 1),
    "cursor number": (request("tools/list", {"cursor": 5, "_meta": meta()}), headers(), 400, PARAMS, 1),
    "arguments array": (
        request("tools/call", {"name": "add", "arguments": [1], "_meta": meta()}), headers("tools/call", Mcp_Name="add"), 400, PARAMS, 1
    ),
    "bad log level": (request("tools/list", {"_meta": meta(**{P + "logLevel": "loud"})}), headers(), 400, PARAMS, 1),
    "unknown tool": (request("tools/call", {"name": "no", "_meta": meta()}), headers("tools/call", Mcp_Name="no"), 400, PARAMS, 1),
}  # fmt: skip


@module_loop
@pytest.mark.parametrize("rung", RUNGS)
async def test_each_rung_answers_with_its_code_status_and_id(shared: Wire, rung: str) -> None:
    """protocol.md 2.1, 2.2 a-i, R114-R116: the exact pair of code and status, and the id echoed where it could be read."""
    body, sent, status, code, id = RUNGS[rung]
    reply = await shared.post(body, sent)
    assert reply.verdict == (status, code, id)
    assert "mcp-session-id" not in reply.headers


# What is wrong at once, and which of it must be heard: (params, headers, code).
ORDER: dict[str, tuple[Any, dict[str, str | None], int]] = {
    "b before c": ({"_meta": {P + "protocolVersion": "v999"}}, headers(version="2025-11-25"), PARAMS),
    "c before d": ({"_meta": meta("v999")}, headers(version="v998"), HEADER),
    "c before e": ({"_meta": meta("v999")}, headers("x"), HEADER),
    "d before e": ({"_meta": meta("v999")}, headers("x", version="v999"), VERSION),
    "e before i": ({"_meta": meta(), "cursor": 1}, headers("x"), HEADER),
    "d before i": ({"_meta": meta("v999"), "cursor": 1}, headers(version="v999"), VERSION),
    "c before i: log level": ({"_meta": meta(**{P + "logLevel": "loud"})}, headers(version="2025-11-25"), HEADER),
    "d before i: log level": ({"_meta": meta("v999", **{P + "logLevel": "loud"})}, headers(version="v999"), VERSION),
}


@module_loop
@pytest.mark.parametrize("case", ORDER)
async def test_the_first_failure_wins(shared: Wire, case: str) -> None:
    """protocol.md 2.2: a peer that contradicts itself hears that before it hears anything later on the ladder."""
    params, sent, code = ORDER[case]
    reply = await shared.post(request("tools/list", params), sent)
    assert reply.verdict == (400, code, 1)


async def test_an_unknown_method_is_heard_before_a_missing_name(binding: str) -> None:
    """protocol.md 2.2 f before g: prompts/get on a server without prompts is 404 though Mcp-Name is missing too."""
    async with serve(binding, demo()) as wire:
        reply = await wire.modern("prompts/get", {"name": "x"}, headers={"Mcp-Name": None})
    assert reply.verdict == (404, METHOD, 1)


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]
)
@pytest.mark.parametrize("legacy", [True, False])
async def test_removed_methods_are_unknown_on_the_modern_era(binding: str, method: str, legacy: bool) -> None:
    """protocol.md 2.1.6: a modern-tagged legacy method is 404 -32601, on a dual-era server too."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
        "uri": "a:b",
        "level": "info",
    }
    server = demo()
    server.add_resource("a:b", lambda: "x", name="x")
    async with serve(binding, server, legacy=legacy) as wire:
        assert (await wire.modern(method, params, id="q")).verdict == (404, METHOD, "q")
        assert (await wire.modern(method, id="q")).verdict == (404, METHOD, "q")


async def test_an_unsupported_version_names_the_supported_ones(binding: str) -> None:
    """protocol.md 1.7, 2.2d: data has `supported` and `requested`; each supported one is in discover's list too."""
    async with serve(binding, demo()) as wire:
        reply = await wire.post(request("tools/list", {"_meta": meta("v999")}), headers(version="v999"))
        discovered = (await wire.modern("server/discover")).result
    assert reply.error["data"]["requested"] == "v999"
    assert set(reply.error["data"]["supported"]) <= set(discovered["supportedVersions"])
    assert discovered["supportedVersions"] == SUPPORTED


async def test_a_modern_only_server_names_its_versions_to_initialize(binding: str) -> None:
    """protocol.md 2.4, 2.7: legacy to modern fails, and the error names what is supported; no session is made."""
    async with serve(binding, demo(), legacy=False) as wire:
        init = request(
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
        )
        reply = await wire.post(init)
        assert reply.status == 400
        assert MODERN in str(reply.error)
        assert reply.error["data"]["supported"] == [MODERN]
        assert (await wire.modern("server/discover")).result["supportedVersions"] == [MODERN]
        for verb in ("GET", "DELETE"):
            refused = await wire.send(verb, {"Accept": "text/event-stream"})
            assert refused.status == 405
            assert set(refused.headers["allow"].replace(" ", "").split(",")) == {"POST", "OPTIONS"}


async def test_header_names_come_in_any_case_and_values_are_trimmed(binding: str) -> None:
    """protocol.md 3.2: names case-insensitive, optional whitespace trimmed; R143."""
    async with serve(binding, demo()) as wire:
        pairs, body = wire.modern_parts("tools/call", ADD)
        shouted = [(k.upper(), f" \t{v} \t") for k, v in pairs]
        reply = await wire.send("POST", shouted, body)
    assert reply.result["structuredContent"] == {"result": 3} or reply.result["structuredContent"] == 3


async def test_a_name_outside_ascii_travels_in_base64(binding: str) -> None:
    """protocol.md 3.3: Mcp-Name may be =?base64?...?= of UTF-8."""
    async with serve(binding, demo()) as wire:
        name = {"Mcp-Name": "=?base64?bmHDr3ZlIHRvb2w=?="}
        assert (await wire.call("naïve tool", headers=name)).result["content"][0]["text"] == "fine"
        upper = {"Mcp-Name": "=?BASE64?bmHDr3ZlIHRvb2w=?="}
        assert (await wire.call("naïve tool", headers=upper)).verdict == (400, HEADER, 1)


@pytest.mark.parametrize("name", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
async def test_a_repeated_routing_header_is_malformed(binding: str, name: str) -> None:
    """protocol.md 2.2, R147: a proxy might read the other one, so two are refused, by both bindings alike."""
    async with serve(binding, demo()) as wire:
        pairs, body = wire.modern_parts("tools/call", ADD)
        reply = await wire.send("POST", [*pairs, (name, "something else")], body)
        assert reply.verdict == (400, HEADER, 1)
        reply = await wire.send("POST", [(name, "something else"), *pairs], body)
        assert reply.verdict == (400, HEADER, 1)


async def test_clientinfo_may_be_missing_or_odd(binding: str) -> None:
    """protocol.md 2.2b: absent clientInfo MUST be served; it is display data, so odd spelling costs nothing either."""
    async with serve(binding, demo()) as wire:
        bare = meta()
        del bare[P + "clientInfo"]
        assert (await wire.post(request("tools/list", {"_meta": bare}), headers())).status == 200
        odd = {**bare, P + "clientInfo": {"name": 5}}
        assert (await wire.post(request("tools/list", {"_meta": odd}), headers())).status == 200


async def test_session_and_resume_headers_mean_nothing_to_a_modern_request(binding: str) -> None:
    """protocol.md 2.1.10, 1.1: ignored, never echoed, and no session id turns a modern request into a legacy one."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize("2025-03-26")
        for id in (session.id, "mcp_dead", ""):
            reply = await wire.modern("tools/list", headers={"Mcp-Session-Id": id, "Last-Event-ID": "g:5"})
            assert reply.status == 200
            assert reply.result["resultType"] == "complete"
            assert "mcp-session-id" not in reply.headers


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize(
    "message",
    [
        notification("notifications/cancelled", {"requestId": 1, "_meta": meta()}),
        notification("notifications/cancelled", {"requestId": 1}),
        notification("notifications/no-such", {"_meta": meta()}),
        notification("notifications/no-such"),
    ],
    ids=["cancelled", "cancelled without meta", "unknown", "unknown without meta"],
)
async def test_a_modern_notification_is_accepted_and_never_answered(binding: str, legacy: bool, message: Any) -> None:
    """protocol.md 3.2, 8.9: 202 and an empty body, however the headers look; there is no session to ask for."""
    async with serve(binding, demo(), legacy=legacy) as wire:
        for sent in (headers(message["method"]), {"MCP-Protocol-Version": MODERN}):
            reply = await wire.post(message, sent)
            assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("legacy", [True, False])
async def test_a_response_or_a_batch_is_refused_by_the_modern_era(binding: str, legacy: bool) -> None:
    """protocol.md 2.1.4, 2.1.5: 400 for both when no legacy session is there."""
    async with serve(binding, demo(), legacy=legacy) as wire:
        reply = await wire.post({"jsonrpc": "2.0", "id": 1, "result": {}}, {"MCP-Protocol-Version": MODERN})
        assert reply.status == 400
        reply = await wire.post([request("tools/list", {"_meta": meta()})], headers())
        assert reply.verdict == (400, REQUEST, None)


@module_loop
@pytest.mark.parametrize("id", [0, -1, 1, 2**53 - 1, "", "1", "ü", "x" * 200])
async def test_the_id_comes_back_as_it_was(shared: Wire, id: Any) -> None:
    """protocol.md 3.1: string or integer, echoed in the same JSON type, on results and errors."""
    assert (await shared.modern("tools/list", id=id)).json["id"] == id
    assert type((await shared.modern("tools/list", id=id)).json["id"]) is type(id)
    assert (await shared.modern("no/such", id=id)).json["id"] == id


async def test_equal_ids_of_separate_requests_do_not_meet(binding: str) -> None:
    """protocol.md 1.1: requests are independent, so two clients may use the same id at once."""
    server = demo()
    gate = asyncio.Event()
    arrived: list[int] = []

    @server.tool
    async def hold(n: int) -> int:
        arrived.append(n)
        if len(arrived) == 2:
            gate.set()
        await gate.wait()
        return n

    async with serve(binding, server) as wire:
        replies = await asyncio.gather(*(wire.call("hold", {"n": n}, id="same") for n in (1, 2)))
    assert sorted(r.result["content"][0]["text"] for r in replies) == ["1", "2"]


async def test_two_eras_share_one_endpoint(binding: str) -> None:
    """protocol.md 2.1: each POST is classified by itself."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize("2025-06-18")
        for _ in range(2):
            assert "resultType" in (await wire.modern("tools/list")).result
            assert "resultType" not in (await session.ask("tools/list")).result


async def test_a_modern_tag_with_a_session_id_is_still_modern(binding: str) -> None:
    """protocol.md 2.1: "never let a session id turn a modern-tagged request into a legacy one": missing headers still fail."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize()
        reply = await wire.post(request("tools/list", {"_meta": meta()}), {"Mcp-Session-Id": session.id})
        assert reply.verdict == (400, HEADER, 1)


async def test_the_ladder_holds_without_headers() -> None:
    """protocol.md 2.4: on a two-way channel the same rungs stand, those about headers apart."""
    async with Channel(demo()) as channel:
        assert (await channel.modern("tools/list"))["result"]["resultType"] == "complete"
        cases: list[tuple[Any, int, Any]] = [
            (b"{nope", PARSE, None),
            ({"jsonrpc": "1.0", "id": 3, "method": "x"}, REQUEST, 3),
            (request("tools/list", {"_meta": {P + "protocolVersion": MODERN}}, 4), PARAMS, 4),
            (request("tools/list", {"_meta": meta("v999")}, 5), VERSION, 5),
            (request("no/such", {"_meta": meta()}, 6), METHOD, 6),
            (request("ping", {"_meta": meta()}, 7), METHOD, 7),
            (request("initialize", {"_meta": meta()}, 8), METHOD, 8),
            (request("tools/call", {"_meta": meta()}, 9), PARAMS, 9),
            ([request("tools/list", {"_meta": meta()})], REQUEST, None),
        ]
        for message, code, id in cases:
            await channel.send(message)
            reply = await channel.receive()
            assert (reply["error"]["code"], reply["id"]) == (code, id), message


async def test_a_channel_never_answers_what_is_no_request() -> None:
    """protocol.md 3.1: notifications, known or not, and stray responses get no answer."""
    async with Channel(demo()) as channel:
        await channel.send(notification("notifications/no-such", {"_meta": meta()}))
        await channel.send({"jsonrpc": "2.0", "id": 99, "result": {}})
        await channel.send(notification("notifications/cancelled", {"requestId": 77}))
        assert (await channel.modern("tools/list", id="next"))["id"] == "next"


async def test_the_accept_header_may_be_absent_or_any(binding: str) -> None:
    """R112: */* or no Accept at all is as good as both types."""
    async with serve(binding, demo()) as wire:
        for accept in (None, "*/*", BOTH, "text/event-stream, application/json;q=0.5", "application/*, text/*"):
            assert (await wire.modern("tools/list", headers={"Accept": accept})).status == 200


def test_the_helper_replaces_headers() -> None:
    """Ours: a table of changes that silently changed nothing would prove nothing."""
    pairs, _ = Wire.modern_parts("tools/list", headers={"mcp-method": None, "Accept": "x"})
    assert dict(pairs) == {"Content-Type": "application/json", "MCP-Protocol-Version": MODERN, "Accept": "x"}
    assert replace([("A", "1")], {"a": None}) == []
