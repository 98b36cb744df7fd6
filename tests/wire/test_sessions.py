"""Legacy sessions: born in initialize, bound to a principal, limited, ended; and the two ways to do without them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.support.harness import BOTH, LEGACY, encode, initialize, notification, request, serve
from tests.support.inside import inside
from tests.support.until import PATIENCE, soon, until

from trimaran import Context, Limits, Server
from trimaran.errors import MissingCapability, ProtocolError
from trimaran.legacy import session as session_module

V11, V06, V03, V24 = LEGACY


def demo(**options: Any) -> Server:
    server = Server("demo", version="1", **options)

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def state(ctx: Context) -> str:
        return f"{ctx.state} {ctx.session_id}"

    @server.tool
    async def whoami(ctx: Context) -> str:
        return str(ctx.auth and ctx.auth.subject)

    @server.resource("r:1")
    def one() -> str:
        return "one"

    return server


class Principal:
    def __init__(self, subject: str | None) -> None:
        self.subject = subject
        self.scopes = ()


class Tokens:
    """An authenticator: the Authorization header is the subject; none is refused. A new principal object each time."""

    async def authenticate(self, request: Any) -> Principal:
        subject = request.headers.get("authorization")
        if subject is None:
            raise ProtocolError.invalid_request("who are you?", status=401)
        return Principal(subject)


# --- which session ---------------------------------------------------------------------------------------------------


async def test_a_request_without_a_session_is_400(binding: str) -> None:
    """R120: requests, notifications and responses alike; the id is echoed."""
    async with serve(binding, demo()) as wire:
        reply = await wire.post(request("tools/list", {}, "q"))
        assert reply.verdict == (400, -32600, "q")
        assert (await wire.post(notification("notifications/initialized"))).status == 400
        assert (await wire.post({"jsonrpc": "2.0", "id": 1, "result": {}})).status == 400
        assert (await wire.send("GET", {"Accept": "text/event-stream"})).status == 400
        assert (await wire.send("DELETE")).status == 400
        assert len(inside(wire.engine.server).sessions) == 0


async def test_an_unknown_session_is_404(binding: str) -> None:
    """R120: on every verb, and on initialize that carries a dead id."""
    async with serve(binding, demo()) as wire:
        dead = {"Mcp-Session-Id": "mcp_" + "0" * 32}
        assert (await wire.post(request("tools/list", {}, "q"), dead)).verdict == (404, -32600, "q")
        assert (await wire.post(notification("notifications/initialized"), dead)).status == 404
        assert (await wire.post({"jsonrpc": "2.0", "id": 1, "result": {}}, dead)).status == 404
        assert (await wire.send("GET", {"Accept": "text/event-stream", **dead})).status == 404
        assert (await wire.send("DELETE", dead)).status == 404
        assert (await wire.post(initialize(), dead)).status == 404
        assert len(inside(wire.engine.server).sessions) == 0


async def test_the_session_id_is_echoed_and_its_header_comes_in_any_case(binding: str) -> None:
    """R117, protocol.md 8.8."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize()
        pairs = {"content-type": "application/json", "ACCEPT": BOTH, "MCP-SESSION-ID": session.id}
        reply = await wire.send("POST", pairs, encode(request("tools/list")))
        assert reply.status == 200
        assert reply.headers["mcp-session-id"] == session.id
        assert reply.headers["content-type"] == "application/json"


async def test_the_version_header_is_checked_on_every_verb(binding: str) -> None:
    """R121: unsupported -> 400 and names the supported ones; missing -> the session's own; a supported one is fine."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize(V06)
        bad = {"MCP-Protocol-Version": "1999-01-01"}
        refusals = {
            "request": await session.ask("tools/list", headers=bad),
            "notification": await session.post(notification("notifications/x"), bad),
            "response": await session.post({"jsonrpc": "2.0", "id": "srv-1", "result": {}}, bad),
        }
        async with await session.get(headers=bad) as stream:
            assert stream.status == 400
        refusals["DELETE"] = await wire.send("DELETE", session.headers(bad))
        assert {k: r.status for k, r in refusals.items()} == dict.fromkeys(refusals, 400)
        assert V11 in str(refusals["request"].error)
        assert (await session.ask("tools/list", headers={"MCP-Protocol-Version": None})).status == 200
        assert (await session.ask("tools/list", headers={"MCP-Protocol-Version": V11})).status == 200


async def test_notifications_and_responses_are_taken_with_202(binding: str) -> None:
    """R119: an empty body, also for unknown notifications and unknown response ids, results and errors."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize()
        for message in (
            notification("notifications/initialized"),
            notification("notifications/no-such", {"x": 1}),
            notification("notifications/cancelled", {"requestId": 99}),
            notification("notifications/cancelled", {}),
            notification("notifications/roots/list_changed"),
            {"jsonrpc": "2.0", "id": "srv-77", "result": {}},
            {"jsonrpc": "2.0", "id": 5, "error": {"code": -1, "message": "no"}},
        ):
            reply = await session.post(message)
            assert (reply.status, reply.body) == (202, b""), message


async def test_envelopes_are_judged_as_everywhere(binding: str) -> None:
    """R114, R116: parse error 400 with id null; ids are strings or integers."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize()
        assert (await session.post(b"{nope")).verdict == (400, -32700, None)
        for id in (b"null", b"1.5", b"true", b"{}"):
            body = b'{"jsonrpc":"2.0","id":' + id + b',"method":"ping"}'
            assert (await session.post(body)).verdict == (400, -32600, None)
        assert (await session.post(b'{"id":1,"method":"ping"}')).verdict == (400, -32600, 1)


# --- the end of a session --------------------------------------------------------------------------------------------


async def test_delete_ends_the_session(binding: str) -> None:
    """R127, R96: 204, then 404 for that id on every verb, for good; its GET stream closes."""
    async with serve(binding, demo()) as wire:
        session, other = await wire.initialize(), await wire.initialize()
        stream = await session.get()
        assert (await session.delete()).status == 204
        assert await stream.rest() == []
        await stream.close()
        assert (await session.ask("ping")).status == 404
        assert (await session.delete()).status == 404
        async with await session.get() as gone:
            assert gone.status == 404
        assert (await other.ask("ping")).status == 200


async def test_what_may_be_switched_off(binding: str) -> None:
    """R123, R127: enable_get=False and allow_delete=False answer 405 with an Allow that is true."""
    async with serve(binding, demo(), enable_get=False, allow_delete=False) as wire:
        session = await wire.initialize()
        async with await session.get() as stream:
            assert stream.status == 405
            assert allow(stream.headers) == {"POST", "OPTIONS"}
        deleted = await session.delete()
        assert deleted.status == 405
        assert allow(deleted.headers) == {"POST", "OPTIONS"}
        other = await wire.send("PUT", session.headers())
        assert other.status == 405
        assert allow(other.headers) == {"POST", "OPTIONS"}
        assert (await session.ask("ping")).status == 200


def allow(headers: dict[str, str]) -> set[str]:
    return set(headers["allow"].replace(" ", "").split(","))


class Clock:
    """The session's clock, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offset = 0.0
        monkeypatch.setattr(session_module.time, "monotonic", lambda: _real() + self.offset)


_real = time.monotonic


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.slow
async def test_an_idle_session_expires(binding: str) -> None:
    """R91: expired ids answer 404 (the real clock; long enough for a busy machine to begin the session)."""
    async with serve(binding, demo(session_idle_timeout=0.25)) as wire:
        session = await wire.initialize()
        await asyncio.sleep(0.26)
        assert (await session.ask("ping")).status == 404
        assert len(inside(wire.engine.server).sessions) == 0


async def test_activity_keeps_a_session(binding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R91, R92: requests and notifications refresh the clock."""
    async with serve(binding, demo(session_idle_timeout=100)) as wire:
        session = await wire.initialize()
        inner = next(iter(inside(wire.engine.server).sessions))
        for act in (session.ask("ping"), session.notify("notifications/x"), session.answer("srv-9", {})):
            inner.seen -= 90
            assert (await act).status < 300
            assert _real() - inner.seen < 50
        inner.seen -= 101
        assert (await session.ask("ping")).status == 404


async def test_a_session_at_work_or_listened_to_is_not_idle(binding: str) -> None:
    """R92: a request in flight or an open stream keeps it."""
    server = demo(session_idle_timeout=100)
    started, gate = asyncio.Event(), asyncio.Event()

    @server.tool
    async def hold() -> str:
        started.set()
        await gate.wait()
        return "held"

    async with serve(binding, server) as wire:
        session = await wire.initialize()
        inner = next(iter(inside(server).sessions))
        waiting = asyncio.ensure_future(session.call("hold"))
        await soon(started.wait())
        inner.seen -= 1000
        inside(server).sessions._sweep_now()
        gate.set()
        assert (await waiting).result["content"][0]["text"] == "held"
        async with await session.get() as stream:
            await stream.raw_event()
            inner.seen -= 1000
            inside(server).sessions._sweep_now()
            assert (await session.ask("ping")).status == 200


async def test_a_session_has_a_longest_life(binding: str) -> None:
    """R93: session_max_lifetime ends it whatever its activity, GET stream included (R96)."""
    async with serve(binding, demo(session_max_lifetime=100)) as wire:
        session = await wire.initialize()
        async with await session.get() as stream:
            await stream.raw_event()
            assert (await session.ask("ping")).status == 200
            next(iter(inside(wire.engine.server).sessions)).created -= 101
            assert (await session.ask("ping")).status == 404
            assert await stream.rest() == []


async def test_the_cap_holds_under_a_rush(binding: str) -> None:
    """R94: counted before init runs; over the cap initialize is 503 and the slot of an ended session is free again."""
    server = demo(max_sessions=3, init=_slow_init)
    async with serve(binding, server) as wire:
        replies = await asyncio.gather(*(wire.post(initialize(id=n)) for n in range(12)))
        assert sorted(r.status for r in replies) == [200] * 3 + [503] * 9
        refused = next(r for r in replies if r.status == 503)
        assert refused.error["code"] == -32603
        assert refused.json["id"] in range(12)
        assert "mcp-session-id" not in refused.headers
        assert len(inside(server).sessions) == 3
        kept = next(r for r in replies if r.status == 200).headers["mcp-session-id"]
        assert (await wire.send("DELETE", {"Mcp-Session-Id": kept})).status == 204
        assert (await wire.post(initialize())).status == 200
        assert (await wire.post(initialize())).status == 503


async def _slow_init(arg: Any) -> str:
    await asyncio.sleep(0.005)
    return "state"


async def test_a_full_server_lets_idle_sessions_go(binding: str) -> None:
    """R91, R94: expired sessions do not count."""
    server = demo(max_sessions=1, session_idle_timeout=100)
    async with serve(binding, server) as wire:
        await wire.initialize()
        assert (await wire.post(initialize())).status == 503
        next(iter(inside(server).sessions)).seen -= 101
        assert (await wire.post(initialize())).status == 200


async def test_a_full_server_ends_what_nobody_uses_of_whoever_has_most(
    binding: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R94: one caller that begins sessions and leaves them keeps nobody out for longer than a minute."""
    server = demo(max_sessions=4)
    async with serve(binding, server) as wire:
        mine, greedy = await wire.initialize(), [await wire.initialize() for _ in range(3)]
        places = {session.id: session for session in inside(server).sessions}
        for one in greedy:
            places[one.id].place = "192.0.2.7"
        assert (await wire.post(initialize())).status == 503, "all of them are in use"
        for session in inside(server).sessions:
            session.seen -= 61
        places[greedy[2].id].seen -= 100
        async with await greedy[0].get():
            inside(server).sessions._room_again = 0.0
            assert (await wire.post(initialize())).status == 200
            assert (await greedy[2].ask("ping")).status == 404, "it was idle for longest"
            assert [(await one.ask("ping")).status for one in (mine, *greedy[:2])] == [200, 200, 200]
            assert (await wire.post(initialize())).status == 503
    assert [one.levelname for one in caplog.records if "no room for more sessions" in one.message] == ["WARNING"]


async def test_init_runs_for_each_session(binding: str, caplog: pytest.LogCaptureFixture) -> None:
    """R5: its value is ctx.state; a failure answers initialize with 500, redacted, and frees the slot."""
    made: list[int] = []
    broken = False

    async def init(arg: str) -> str:
        if broken:
            raise RuntimeError("inner secret")
        made.append(1)
        return f"{arg}{len(made)}"

    server = demo(init=init, init_arg="s", max_sessions=2)
    async with serve(binding, server) as wire:
        one, two = await wire.initialize(), await wire.initialize()
        states = [(await s.call("state")).result["content"][0]["text"].split()[0] for s in (one, two)]
        assert len(set(states)) == 2
        assert all(s.startswith("s") for s in states)
        assert (await one.call("state")).result["content"][0]["text"] == f"{states[0]} {one.id}"
        await two.delete()
        broken = True
        for _ in range(3):
            failed = await wire.post(initialize())
            assert (failed.status, failed.error["code"]) == (500, -32603)
            assert "secret" not in str(failed.body)
        broken = False
        assert (await wire.post(initialize())).status == 200


async def test_a_handshake_that_breaks_is_answered(binding: str, caplog: pytest.LogCaptureFixture) -> None:
    """R130, R50: an author's callback that fails inside initialize yields a JSON-RPC answer, redacted; no dead connection."""

    class Callbacks:
        broken = False

        def capabilities(self) -> dict[str, Any]:
            if self.broken:
                raise KeyError("inner secret")
            return {}

    callbacks = Callbacks()
    async with serve(binding, demo(callbacks=callbacks)) as wire:
        callbacks.broken = True
        reply = await wire.post(initialize(id="i"))
        assert (reply.error["code"], reply.json["id"]) == (-32603, "i")
        assert b"secret" not in reply.body
        assert len(inside(wire.engine.server).sessions) == 0  # P8: no session nobody knows the id of
        callbacks.broken = False
        assert (await wire.post(initialize())).status == 200


# --- principals ------------------------------------------------------------------------------------------------------


async def test_a_session_belongs_to_its_principal(binding: str) -> None:
    """R102: to anyone else it is the same 404 as an unknown one, on every verb; nothing of it is touched."""
    async with serve(binding, demo(), auth=Tokens()) as wire:
        alice = await wire.initialize(headers={"Authorization": "alice"})
        as_bob = {"Authorization": "bob"}
        unknown = await alice.ask("tools/list", id=1, headers={**as_bob, "Mcp-Session-Id": "mcp_" + "0" * 32})
        foreign = await alice.ask("tools/list", id=1, headers=as_bob)
        assert foreign.status == unknown.status == 404
        assert foreign.body == unknown.body
        async with await alice.get(headers=as_bob) as stream:
            assert stream.status == 404
        assert (await wire.send("DELETE", alice.headers(as_bob))).status == 404
        assert (await alice.post(notification("notifications/cancelled", {"requestId": 1}), as_bob)).status == 404
        assert (await alice.ask("ping")).status == 200
        assert (await alice.call("whoami")).result["content"][0]["text"] == "alice"


async def test_every_verb_is_authenticated(binding: str) -> None:
    """R129: POST, GET and DELETE alike; only the preflight is not."""
    async with serve(binding, demo(), auth=Tokens()) as wire:
        alice = await wire.initialize(headers={"Authorization": "alice"})
        nobody = {"Authorization": None}
        assert (await alice.ask("ping", headers=nobody)).status == 401
        async with await alice.get(headers=nobody) as stream:
            assert stream.status == 401
        assert (await wire.send("DELETE", alice.headers(nobody))).status == 401
        assert (await wire.modern("tools/list")).status == 401
        assert (await wire.post(initialize())).status == 401
        assert (await wire.send("OPTIONS", {"Origin": "http://localhost:1"})).status == 204
        assert (await alice.ask("ping")).status == 200


async def test_who_you_are_is_asked_before_what_you_bring(binding: str) -> None:
    """R129, protocol.md 2.1: origin, then authentication, then content type, Accept, size and JSON."""
    async with serve(binding, demo(limits=Limits(max_body_bytes=2000)), auth=Tokens()) as wire:
        refused = {
            "origin": await wire.post(b"{nope", {"Origin": "https://evil.example"}),
            "type": await wire.post(initialize(), {"Content-Type": "text/plain"}),
            "accept": await wire.post(initialize(), {"Accept": "text/html"}),
            "json": await wire.post(b"{nope"),
            "size": await wire.post(b" " * 3000),
        }
    assert {k: r.status for k, r in refused.items()} == {
        "origin": 403,
        "type": 401,
        "accept": 401,
        "json": 401,
        "size": 401,
    }


async def test_a_refusal_carries_what_the_authenticator_says(binding: str) -> None:
    """R152, R164: status and WWW-Authenticate of the exception reach the client; a broken authenticator is a plain 500."""

    class Challenge:
        async def authenticate(self, request: Any) -> Any:
            if request.headers.get("authorization") == "boom":
                raise RuntimeError("inner secret")
            error = ProtocolError.invalid_request("no token", status=401)
            error.headers = [("www-authenticate", 'Bearer realm="mcp"')]  # type: ignore[attr-defined]
            raise error

    async with serve(binding, demo(), auth=Challenge()) as wire:
        reply = await wire.modern("tools/list")
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == 'Bearer realm="mcp"'
        broken = await wire.modern("tools/list", headers={"Authorization": "boom"})
        assert broken.status == 500
        assert b"secret" not in broken.body


# --- batches ---------------------------------------------------------------------------------------------------------


async def test_batches_are_2025_03_26_only(binding: str) -> None:
    """R115, protocol.md 1.1: received there (one array of replies, 202 if nothing is to be answered), 400 -32600 elsewhere."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize(V03)
        batch = [
            request("ping", id="a"),
            notification("notifications/x"),
            request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "b"),
            request("no/such", id="c"),
            {"jsonrpc": "2.0", "id": "srv-1", "result": {}},
        ]
        reply = await session.post(batch)
        assert reply.status == 200
        found = {m["id"]: m for m in reply.json}
        assert set(found) == {"a", "b", "c"}
        assert found["a"]["result"] == {}
        assert found["b"]["result"]["content"][0]["text"] == "3"
        assert found["c"]["error"]["code"] == -32601
        silent = await session.post([notification("notifications/x"), {"jsonrpc": "2.0", "id": "srv-1", "result": {}}])
        assert (silent.status, silent.body) == (202, b"")
        assert (await session.post([])).verdict == (400, -32600, None)
        for version in (V11, V06, V24):
            other = await wire.initialize(version)
            assert (await other.post([request("ping")])).verdict == (400, -32600, None)


async def test_a_batch_with_a_bad_message_answers_the_others(binding: str) -> None:
    """JSON-RPC: each bad entry has its own error; initialize is not part of a batch."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize(V03)
        reply = await session.post(
            [1, request("ping", id="ok"), initialize(id="init"), {"jsonrpc": "1.0", "id": 9, "method": "ping"}]
        )
        assert reply.status == 200
        found = {m["id"]: m for m in reply.json}
        assert found["ok"]["result"] == {}
        assert found["init"]["error"]["code"] == -32600
        assert found[9]["error"]["code"] == -32600
        assert found[None]["error"]["code"] == -32600
        assert len(inside(wire.engine.server).sessions) == 1


async def test_a_batched_call_cannot_ask_into_the_void(binding: str) -> None:
    """C10: a server request with no open stream fails no_stream; it does not wait out its thirty seconds."""
    server = demo()

    @server.tool
    async def sample(ctx: Context) -> str:
        return (await ctx.sample("hi")).text

    async with serve(binding, server) as wire:
        session = await wire.initialize(V03, caps={"sampling": {}})
        async with asyncio.timeout(20.0):
            reply = await session.post([request("tools/call", {"name": "sample"}, "s")])
        assert "error" in reply.json[0] or reply.json[0]["result"]["isError"]


async def test_an_id_in_use_is_refused(binding: str) -> None:
    """protocol.md 3.1: ids are unique among a session's outstanding requests, as on a channel; the first stays cancellable."""
    server = demo(request_timeout=20)
    started = asyncio.Event()

    @server.tool
    async def hold() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    async with serve(binding, server) as wire:
        session = await wire.initialize()
        waiting = asyncio.ensure_future(session.call("hold", id="x"))
        await soon(started.wait())
        second = asyncio.ensure_future(session.call("hold", id="x"))
        await asyncio.wait({second}, timeout=PATIENCE)
        await session.cancel("x")
        done, _ = await asyncio.wait({waiting}, timeout=PATIENCE)
        await session.delete()
        first, other = await waiting, await second
        assert done, "the first call could no longer be cancelled"
        assert first.body == b""
        assert other.error["code"] == -32600


# --- without sessions ------------------------------------------------------------------------------------------------


async def test_sessions_may_be_switched_off(binding: str) -> None:
    """R101: POST is served without a session, GET and DELETE are 405; the version is the header's, else 2025-03-26."""
    async with serve(binding, demo(), require_session=False) as wire:
        hello = await wire.post(initialize(V06))
        assert hello.result["protocolVersion"] == V06
        assert "mcp-session-id" not in hello.headers
        assert (await wire.post(notification("notifications/initialized"))).status == 202
        reply = await wire.post(request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}))
        assert reply.result["content"][0]["text"] == "3"
        assert "structuredContent" not in reply.result  # 2025-03-26 is assumed
        newer = await wire.post(
            request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}), {"MCP-Protocol-Version": V06}
        )
        assert newer.result["structuredContent"] == {"result": 3}
        for verb in ("GET", "DELETE"):
            refused = await wire.send(verb, {"Accept": "text/event-stream"})
            assert refused.status == 405
            assert allow(refused.headers) == {"POST", "OPTIONS"}
        assert len(inside(wire.engine.server).sessions) == 0


async def test_the_version_header_may_be_left_unchecked(binding: str) -> None:
    """R105: `validate_protocol_version=False` takes whatever a legacy client states; a modern request stays checked."""
    odd = {"MCP-Protocol-Version": "1999-01-01"}
    async with serve(binding, demo(), validate_protocol_version=False) as wire:
        session = await wire.initialize()
        assert (await session.ask("tools/list", headers=odd)).result["tools"]
        assert (await session.post(notification("notifications/x"), odd)).status == 202
        async with await session.get(headers=odd) as stream:
            assert stream.status == 200
        assert (await wire.send("DELETE", session.headers(odd))).status == 204
        modern = await wire.modern("tools/list", headers=odd)
        assert modern.verdict[:2] == (400, -32020)


async def test_plain_http_needs_no_handshake(binding: str) -> None:
    """R131, R133, C7, C17: 2024-11-05, no sessions, no streams; notifications 202; a parse error 400."""
    async with serve(binding, demo(), plain=True) as wire:
        assert (await wire.post(request("tools/list"))).result["tools"]
        reply = await wire.post(request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}))
        assert reply.result == {"content": [{"type": "text", "text": "3"}]}
        hello = await wire.post(initialize(V11))
        assert hello.result["protocolVersion"] == V24
        assert "mcp-session-id" not in hello.headers
        sent = await wire.post(notification("notifications/initialized"))
        assert (sent.status, sent.body) == (202, b"")
        assert (await wire.post(b"{nope")).verdict == (400, -32700, None)
        assert (await wire.post(request("no/such"))).error["code"] == -32601


@pytest.mark.parametrize("params", [None, {}, {"protocolVersion": V11}, {"clientInfo": {}}], ids=str)
async def test_plain_http_takes_a_handshake_without_its_params(binding: str, params: Any) -> None:
    """C7: lenient here, strict everywhere else."""
    async with serve(binding, demo(), plain=True) as wire:
        hello = await wire.post(request("initialize", params))
        assert (hello.status, hello.result["protocolVersion"]) == (200, V24)
    strict: dict[str, Any]
    for strict in ({}, {"require_session": False}):
        async with serve(binding, demo(), **strict) as wire:
            assert (await wire.post(request("initialize", params, id=7))).verdict == (400, -32602, 7)


@pytest.mark.parametrize("params", [[], {"protocolVersion": 5}, {"capabilities": []}], ids=str)
async def test_plain_http_refuses_a_handshake_of_the_wrong_types(binding: str, params: Any) -> None:
    """C7, R98: what is missing is forgiven, what is wrong is not."""
    async with serve(binding, demo(), plain=True) as wire:
        assert (await wire.post(request("initialize", params, id=7))).verdict == (400, -32602, 7)


@pytest.mark.parametrize("verb", ["GET", "DELETE", "PUT", "PATCH"])
async def test_plain_http_has_two_verbs(binding: str, verb: str) -> None:
    """R131: other methods 405 with Allow "POST, OPTIONS"."""
    async with serve(binding, demo(), plain=True) as wire:
        refused = await wire.send(verb, {"Accept": "*/*"})
        assert refused.status == 405
        assert allow(refused.headers) == {"POST", "OPTIONS"}


async def test_plain_http_guards_its_door(binding: str) -> None:
    """R132: the same Origin check, CORS and auth."""
    async with serve(binding, demo(), plain=True, auth=Tokens()) as wire:
        assert (await wire.post(request("tools/list"), {"Origin": "https://evil.example"})).status == 403
        assert (await wire.post(request("tools/list"))).status == 401
        local = {"Origin": "http://localhost:3000", "Authorization": "a"}
        reply = await wire.post(request("tools/list"), local)
        assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"
        assert (await wire.send("OPTIONS", {"Origin": "http://localhost:3000"})).status == 204


# --- subscriptions ---------------------------------------------------------------------------------------------------


async def test_a_subscription_belongs_to_its_session(binding: str) -> None:
    """R39: only subscribers hear of a resource; unsubscribing and unknown URIs are fine."""
    server = demo()
    async with serve(binding, server) as wire:
        one, two = await wire.initialize(), await wire.initialize()
        assert (await one.ask("resources/subscribe", {"uri": "r:1"})).result == {}
        streams = [await one.get(), await two.get()]
        server.notify.resource_updated("r:2")
        server.notify.resource_updated("r:1")
        server.notify.tools_changed()
        heard = await streams[0].message()
        assert (heard["method"], heard["params"]["uri"]) == ("notifications/resources/updated", "r:1")
        assert "_meta" not in heard["params"]
        assert (await streams[0].message())["method"] == "notifications/tools/list_changed"
        assert (await streams[1].message())["method"] == "notifications/tools/list_changed"
        assert (await one.ask("resources/unsubscribe", {"uri": "r:1"})).result == {}
        assert (await one.ask("resources/unsubscribe", {"uri": "r:never"})).result == {}
        server.notify.resource_updated("r:1")
        server.notify.prompts_changed()
        assert (await streams[0].message())["method"] == "notifications/prompts/list_changed"
        for stream in streams:
            await stream.close()


async def test_subscribe_needs_a_uri(binding: str) -> None:
    """R36-like: a malformed request is -32602."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize()
        assert (await session.ask("resources/subscribe", {})).error["code"] == -32602


async def test_sessions_are_found_by_capability_and_told_together(binding: str) -> None:
    """R19, R41: broadcast returns how many were told; sessions can be listed by what their client declared."""
    server = demo()
    async with serve(binding, server) as wire:
        plain, able = await wire.initialize(), await wire.initialize(caps={"sampling": {}})
        await wire.initialize(ready=False)
        assert [s.id for s in inside(server).sessions.with_capability("sampling")] == [able.id]
        assert server.broadcast("notifications/custom", {"n": 1}) == 2
        for session in (plain, able):
            async with await session.get() as stream:
                assert await stream.message() == {
                    "jsonrpc": "2.0",
                    "method": "notifications/custom",
                    "params": {"n": 1},
                }


async def test_a_session_remembers_its_client_and_asks_it_nothing_else(binding: str) -> None:
    """R99: capabilities, info and version are kept; what was not declared is refused before anything is sent."""
    server = demo()
    async with serve(binding, server) as wire:
        client = await wire.initialize(V06, caps={"roots": {}})
        (session,) = inside(server).sessions
        assert (session.peer.version, session.peer.capabilities) == (V06, {"roots": {}})
        assert session.peer.info is not None
        assert session.peer.info.name == "wire"
        async with await client.get() as stream:
            for ask in (session.elicit({"message": "?"}), session.sample({"messages": []})):
                with pytest.raises(MissingCapability):
                    await ask
            server.broadcast("notifications/n")
            assert (await stream.message())["method"] == "notifications/n"


async def test_only_the_registry_makes_and_ends_sessions(binding: str) -> None:
    """R100: what is handed out is a copy, and nothing can be put into the table or taken out of it."""
    server = demo()
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        handed_out = list(inside(server).sessions)
        handed_out.clear()
        for change in ("sessions['forged'] = 1", f"del sessions[{session.id!r}]", "sessions.clear()", "sessions.pop()"):
            with pytest.raises((TypeError, AttributeError)):
                exec(change, {"sessions": inside(server).sessions})  # noqa: S102
        assert [s.id for s in inside(server).sessions] == [session.id]
        assert (await session.ask("ping")).status == 200


async def test_a_hook_hears_of_changed_roots(binding: str) -> None:
    """R42: notifications/roots/list_changed reaches the configured hook with its session; a failing hook harms nobody."""
    heard: list[Any] = []

    async def hook(session: Any) -> None:
        heard.append(session.id)
        raise RuntimeError("hook")

    async with serve(binding, demo(on_roots_changed=hook)) as wire:
        session = await wire.initialize(caps={"roots": {"listChanged": True}})
        assert (await session.notify("notifications/roots/list_changed")).status == 202
        await until(lambda: heard == [session.id])
        assert (await session.ask("ping")).status == 200


async def test_the_end_of_one_endpoint_leaves_other_sessions_alone(binding: str) -> None:
    """Server's docstring: "one server object may be served several ways at once"."""
    server = demo()
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        async with serve("asgi", server) as other:
            assert (await other.modern("tools/list")).status == 200
        assert (await session.ask("ping")).status == 200


# --- looking after sessions ------------------------------------------------------------------------------------------


async def test_live_sessions_can_be_looked_at(binding: str) -> None:
    """R40, R41, R99: who they are, what was agreed on, how long they have been there; by capability, too."""
    async with serve(binding, demo(), auth=Tokens()) as wire:
        server = wire.engine.server
        assert server.list_sessions() == []
        first = await wire.initialize(V06, caps={"sampling": {}}, headers={"Authorization": "a"})
        second = await wire.initialize(headers={"Authorization": "b"})
        one, two = server.list_sessions()
        assert (one.id, two.id) == (first.id, second.id)
        assert (one.version, two.version) == (V06, V11)
        assert (one.capabilities, two.capabilities) == ({"sampling": {}}, {})
        assert one.client is not None
        assert one.client.name
        assert one.principal != two.principal
        assert (one.is_initialized, one.calls, one.is_listening) == (True, 0, False)
        assert one.age >= one.idle >= 0
        assert [session.id for session in server.list_sessions("sampling")] == [first.id]
        async with await second.get():
            await until(lambda: server.list_sessions()[1].is_listening)


async def test_a_session_can_be_ended_by_its_id(binding: str) -> None:
    """R96, R100, R130: its stream closes, its calls fail and say why, its id is unknown from then on."""
    started, go = asyncio.Event(), asyncio.Event()
    server = demo()

    @server.tool
    async def hold() -> str:
        started.set()
        await go.wait()
        return "held"

    async with serve(binding, server) as wire:
        session, other = await wire.initialize(), await wire.initialize()
        waiting = asyncio.ensure_future(session.call("hold", id="h"))
        await soon(started.wait())
        async with await session.get() as stream:
            assert await server.end_session(session.id, "the yard is closing")
            await stream.rest()
        reply = await soon(waiting)
        assert reply.verdict == (200, -32600, "h")
        assert "the session has ended: the yard is closing; send initialize again" in reply.error["message"]
        assert (await session.ask("tools/list")).status == 404
        assert (await other.ask("tools/list")).status == 200
        assert not await server.end_session(session.id)
        assert not await server.end_session("mcp_0123")
    assert not await Server("never served").end_session("mcp_0123")
    assert Server("never served").list_sessions() == []
