"""Both eras over a pipe: every word in either direction (protocol.md 2.5, 3.5, 7.3, 7.4)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.peers import (
    ALL,
    MODERN,
    V03,
    V06,
    V11,
    V24,
    P,
    Pipe,
    Refused,
    ask,
    bad,
    discovered,
    encode,
    finishing,
    initialized,
    input_required,
    listed,
    ok,
    said,
    tell,
    tool,
)
from tests.support.until import soon, until

import trimaran
from trimaran import connect, errors
from trimaran.client import negotiation

OURS = {"name": "trimaran", "version": trimaran.__version__}


# --- modern ----------------------------------------------------------------------------------------------------------


async def test_a_modern_conversation_word_for_word() -> None:
    """protocol.md 7.3: `_meta` on everything; no handshake, no headers, no ping."""
    pipe = Pipe().modern().on("tools/list", listed(tool("add"))).on("tools/call", said("3"))
    async with connect(pipe) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == "3"
        await client.notify("notifications/x")
        await client.ping()
    meta = {P + "protocolVersion": MODERN, P + "clientInfo": OURS, P + "clientCapabilities": {}}
    assert pipe.heard == [
        {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": meta}},
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta},
        },
        {"jsonrpc": "2.0", "method": "notifications/x"},
        {"jsonrpc": "2.0", "id": 4, "method": "server/discover", "params": {"_meta": meta}},
    ]


async def test_a_modern_server_that_asks_gets_no_answer() -> None:
    """protocol.md 7.3, 3.5: the client never writes responses in this era, whatever it is asked."""
    pipe = Pipe().modern()
    async with connect(pipe, on_sample=lambda ask: "x", on_request=lambda method, params: {}) as client:
        pipe.say(ask("srv-1", "ping"))
        pipe.say(ask("srv-2", "sampling/createMessage", {"messages": [], "maxTokens": 1}))
        pipe.say(ask("srv-3", "vendor/thing"))
        await client.list_tools()
        await asyncio.sleep(0.02)
    assert pipe.all("answer") == []


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("way", ["timeout", "cancel", "task"])
async def test_a_call_is_cancelled_by_a_notification(era: str, way: str) -> None:
    """protocol.md 7.3, 7.4, R195, R196: notifications/cancelled with the id and why; the late answer is dropped."""
    pipe = Pipe()
    (pipe.modern() if era == "modern" else pipe.legacy()).on("tools/call", None)
    async with connect(pipe) as client:
        await client.list_tools()
        await client.list_tools_all()
        task = asyncio.ensure_future(client.call_tool("t", timeout=0.03 if way == "timeout" else None))
        async with finishing(task):
            await until(lambda: pipe.all("tools/call"))
            (id,) = client.requests
            if way == "cancel":
                assert client.cancel(id, "enough")
                assert not client.cancel(12345)
            elif way == "task":
                task.cancel()
            wanted = {"timeout": errors.TimedOut, "cancel": errors.CallCancelled, "task": asyncio.CancelledError}[way]
            with pytest.raises(wanted):
                await soon(task)
        (told,) = await until(lambda: pipe.all("notifications/cancelled"))
        assert told["params"]["requestId"] == id
        reasons = {"timeout": "the deadline has passed", "cancel": "enough", "task": "the caller gave up"}
        assert told["params"]["reason"] == reasons[way]
        assert "id" not in told
        pipe.say(ok(id, said("late")))
        await client.list_tools(fresh=True)


async def test_initialize_is_not_cancelled() -> None:
    """protocol.md 1.4: `initialize` is not cancellable."""
    pipe = Pipe().on("initialize", None)
    with pytest.raises(errors.TimedOut):
        await soon(connect(pipe, era="legacy", connect_timeout=0.05).open())
    assert [one["method"] for one in pipe.heard] == ["initialize"]


async def test_an_input_round_on_a_pipe() -> None:
    """protocol.md 7.3 MRTR: exact state, new id."""
    state = '\u00e9\\u0041"\u2028'
    form = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": {"type": "object"}}}
    pipe = Pipe().modern().on("tools/call", input_required({"k": form}, state), said("done"))
    async with connect(pipe, on_elicit=lambda ask: ask.cancel()) as client:
        assert (await client.call_tool("t")).data == "done"
    first, second = pipe.all("tools/call")
    assert second["id"] != first["id"]
    assert second["params"]["requestState"] == state
    assert second["params"]["inputResponses"] == {"k": {"action": "cancel"}}


def acknowledging(*then: Any) -> Any:
    """Acknowledge a listen, then say more on it."""

    def reply(pipe: Pipe, message: dict[str, Any]) -> None:
        meta = {P + "subscriptionId": message["id"]}
        wanted = message["params"]["notifications"]
        pipe.say(tell("notifications/subscriptions/acknowledged", {"notifications": wanted, "_meta": meta}))
        for one in then:
            one(pipe, message)

    return reply


def changed(method: str, **params: Any) -> Any:
    return lambda pipe, message: pipe.say(tell(method, {**params, "_meta": {P + "subscriptionId": message["id"]}}))


async def test_a_listen_on_a_pipe_ends_with_a_notification() -> None:
    """protocol.md 1.4: client ends a subscription by notifications/cancelled (stdio)."""
    pipe = Pipe().modern().on("subscriptions/listen", acknowledging(changed("notifications/tools/list_changed")))
    async with connect(pipe) as client:
        changes: Any = client.listen(tools=True)
        assert (await soon(anext(changes))).kind == "tools"
        await changes.aclose()
        (told,) = await until(lambda: pipe.all("notifications/cancelled"))
    assert told["params"]["requestId"] == pipe.one("subscriptions/listen")["id"]


async def test_a_listen_the_server_cancels_is_taken_up_again() -> None:
    """protocol.md 8.1: on stdio a server may end a subscription by notifications/cancelled; accept either as client."""

    def ending(pipe: Pipe, message: dict[str, Any]) -> None:
        pipe.say(tell("notifications/cancelled", {"requestId": message["id"]}))

    pipe = Pipe().modern().on("subscriptions/listen", acknowledging(ending), acknowledging())
    async with connect(pipe) as client:
        changes: Any = client.listen(tools=True)
        async with finishing(asyncio.ensure_future(anext(changes))):
            await until(lambda: len(pipe.all("subscriptions/listen")) == 2)


async def test_an_acknowledgement_of_another_subscription_is_not_ours() -> None:
    """protocol.md 7.3 stdio: correlates by subscriptionId, same JSON type."""

    def reply(pipe: Pipe, message: dict[str, Any]) -> None:
        for id in (str(message["id"]), 999):
            params = {"notifications": {}, "_meta": {P + "subscriptionId": id}}
            pipe.say(tell("notifications/subscriptions/acknowledged", params))

    pipe = Pipe().modern().on("subscriptions/listen", reply)
    async with connect(pipe, timeout=0.05) as client:
        with pytest.raises(errors.TimedOut, match="acknowledged"):
            await soon(client.subscribe("r:1", print))


# --- which era -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32603, -32000, -32700, 1234])
async def test_any_other_error_means_legacy(code: int) -> None:
    """protocol.md 2.5: the fallback must not key on a specific code."""
    pipe = Pipe().legacy().on("server/discover", Refused(code))
    async with connect(pipe) as client:
        assert (client.era, client.version) == ("legacy", V11)
    assert [one["method"] for one in pipe.heard][:3] == ["server/discover", "initialize", "notifications/initialized"]


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_a_modern_error_means_modern_and_no_handshake(code: int) -> None:
    """protocol.md 2.5: recognised modern error -> do NOT initialize."""
    pipe = Pipe().on("server/discover", Refused(code)).on("initialize", initialized())
    with pytest.raises(errors.CallError):
        await connect(pipe).open()
    assert not pipe.all("initialize")


async def test_silence_means_legacy_and_the_late_answer_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """protocol.md 2.5: silence occurs; ignore late answers."""
    monkeypatch.setattr(negotiation, "SILENCE", 0.02)
    pipe = Pipe().legacy().on("server/discover", None)
    async with connect(pipe) as client:
        assert client.era == "legacy"
        pipe.say(ok(1, discovered()))
        assert await client.list_tools() == []


async def test_a_slow_modern_server_wins_the_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """protocol.md 2.5 race: a server that was only slow to start answers both in order; the first answer decides."""
    monkeypatch.setattr(negotiation, "SILENCE", 0.02)

    def late(pipe: Pipe, message: dict[str, Any]) -> None:
        pipe.say(ok(1, discovered()))
        pipe.say(bad(message["id"], -32022, "modern only", {"supported": [MODERN], "requested": V11}))

    pipe = Pipe().on("server/discover", None).on("initialize", late)
    async with connect(pipe) as client:
        assert client.era == "modern"


async def test_a_slow_server_of_both_eras_is_spoken_to_in_the_one_it_was_greeted_in_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The TypeScript SDK takes `initialize` for the choice of an era, and refuses modern requests after it."""
    monkeypatch.setattr(negotiation, "SILENCE", 0.02)

    def late(pipe: Pipe, message: dict[str, Any]) -> None:
        pipe.say(ok(1, discovered()))
        pipe.say(
            ok(
                message["id"],
                {"protocolVersion": V11, "capabilities": {}, "serverInfo": {"name": "both", "version": "1"}},
            )
        )

    pipe = Pipe().on("server/discover", None).on("initialize", late)
    async with connect(pipe) as client:
        assert client.era == "legacy"
    assert "notifications/initialized" in [message["method"] for message in pipe.heard]


async def test_a_modern_refusal_of_the_handshake_is_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """protocol.md 2.5 race: treat a -32022 to the fallback `initialize` as proof of modern and re-probe once."""
    refusal = Refused(-32022, "modern only", {"supported": [MODERN], "requested": V11})
    pipe = Pipe().on("server/discover", Refused(-32603), discovered()).on("initialize", refusal)
    async with connect(pipe) as client:
        assert client.era == "modern"
    assert [one["method"] for one in pipe.heard] == ["server/discover", "initialize", "server/discover"]


async def test_a_handshake_that_is_refused_while_the_probe_is_silent_fails_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R188: a JSON-RPC error to initialize is told as what it is, not as a timeout."""
    monkeypatch.setattr(negotiation, "SILENCE", 0.02)
    pipe = Pipe().on("server/discover", None).on("initialize", Refused(-32603, "out of order"))
    with pytest.raises(errors.CallError, match="out of order"):
        await soon(connect(pipe, connect_timeout=1.0).open())


async def test_a_common_legacy_version_is_used_where_the_modern_one_is_not_common() -> None:
    """protocol.md 2.6: if the only mutual version in `supported` is a legacy one, use `initialize` with it."""
    pipe = Pipe().legacy(V06).on("server/discover", Refused(-32022, "no", {"supported": ["2099-01-01", V06]}))
    async with connect(pipe) as client:
        assert client.version == V06
    assert pipe.one("initialize")["params"]["protocolVersion"] == V06


async def test_no_common_version_is_told_with_both_lists() -> None:
    """protocol.md 2.7, R188: modern server of another year."""
    pipe = Pipe().on("server/discover", Refused(-32022, "no", {"supported": ["2099-01-01"]}))
    with pytest.raises(errors.UnsupportedVersion) as caught:
        await connect(pipe).open()
    assert caught.value.data["supported"] == ["2099-01-01"]
    assert [one["method"] for one in pipe.heard] == ["server/discover"]


async def test_an_era_can_be_wanted() -> None:
    """era= and version=: no probe where there is nothing to find out."""
    pipe = Pipe().legacy(V03)
    async with connect(pipe, version=V03) as client:
        assert client.version == V03
    assert [one["method"] for one in pipe.heard][:2] == ["initialize", "notifications/initialized"]
    pipe = Pipe().legacy()
    with pytest.raises(errors.Error):
        await connect(pipe, era="modern").open()
    assert [one["method"] for one in pipe.heard] == ["server/discover"]
    pipe = Pipe().legacy(V06)
    with pytest.raises(errors.UnsupportedVersion, match=V06):
        await connect(pipe, version=V03).open()


# --- the handshake ---------------------------------------------------------------------------------------------------


async def test_a_legacy_conversation_word_for_word() -> None:
    """protocol.md 7.4: handshake order; no modern `_meta`, no resultType needed. R189, R191."""
    pipe = Pipe().legacy(V11, instructions="be kind").on("tools/list", {"tools": [tool("add")]})
    pipe.on("tools/call", {"content": [{"type": "text", "text": "3"}]}).on("ping", {})
    async with connect(pipe, era="legacy", roots=["file:///tmp"], on_sample=lambda ask: "x") as client:
        assert (await client.call_tool("add", {"a": 1}, on_progress=lambda *_: None)).data == "3"
        assert client.server_info is not None
        assert client.server_info.name == "scripted"
        assert client.server_capabilities == ALL
        assert client.instructions == "be kind"
        assert client.version == V11
        assert client.session_id is None
        await client.ping()
    assert pipe.heard == [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": V11,
                "capabilities": {"sampling": {}, "roots": {"listChanged": True}},
                "clientInfo": OURS,
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "add", "arguments": {"a": 1}, "_meta": {"progressToken": 3}},
        },
        {"jsonrpc": "2.0", "id": 4, "method": "ping"},
    ]


@pytest.mark.parametrize("version", [V11, V06, V03, V24])
async def test_the_servers_version_is_taken_if_we_speak_it(version: str) -> None:
    """protocol.md 1.1: a mismatch is not an error."""
    pipe = Pipe().legacy(version)
    async with connect(pipe) as client:
        assert client.version == version
    assert pipe.one("initialize")["params"]["protocolVersion"] == V11


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (initialized("1999-01-01"), errors.UnsupportedVersion),
        ({"capabilities": {}}, errors.RemoteProtocolError),
        ({"protocolVersion": 5, "capabilities": {}}, errors.RemoteProtocolError),
        (Refused(-32603, "broken"), errors.CallError),
        (None, errors.TimedOut),
    ],
    ids=["unsupported", "missing", "number", "error", "silence"],
)
async def test_a_handshake_that_fails_says_how(answer: Any, wanted: Any) -> None:
    """R188: init failures are distinct."""
    pipe = Pipe().on("initialize", answer)
    with pytest.raises(wanted) as caught:
        await connect(pipe, era="legacy", connect_timeout=0.05).open()
    if wanted is errors.UnsupportedVersion:
        assert "1999-01-01" in str(caught.value)
        assert V11 in str(caught.value)
    assert not pipe.all("notifications/initialized")


async def test_a_ping_before_the_handshake_is_over_is_answered() -> None:
    """protocol.md 1.1: before `initialized` the server may send ping; 7.4: answers ping."""

    async def reply(pipe: Pipe, message: dict[str, Any]) -> None:
        pipe.say(ask("early", "ping"))
        await pipe.answered("early")
        pipe.say(ok(message["id"], initialized()))

    pipe = Pipe().on("initialize", reply)
    async with connect(pipe, era="legacy", connect_timeout=1.0) as client:
        assert client.state == "ready"
    assert pipe.one("answer") == {"jsonrpc": "2.0", "id": "early", "result": {}}


async def test_a_request_right_behind_the_handshake_is_answered() -> None:
    """protocol.md 7.4: a server may ask for the roots the moment it hears `initialized`, before our send has returned."""
    pipe = Pipe().legacy().on("notifications/initialized", lambda pipe, _: pipe.say(ask("r", "roots/list")))
    pipe.turns = 3
    async with connect(pipe, era="legacy", roots=["file:///tmp"]):
        assert (await pipe.answered("r"))["result"] == {"roots": [{"uri": "file:///tmp"}]}


# --- what a legacy server asks ---------------------------------------------------------------------------------------

FORM = {
    "message": "who?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "default": 7},
            "mail": {"type": "boolean", "default": True},
        },
        "required": ["name"],
    },
}
ASKED: list[Any] = [
    ("ping", "ping", None, {}),
    (
        "form",
        "elicitation/create",
        FORM,
        {"action": "accept", "content": {"name": "Ada", "age": 7, "mail": True}},
    ),
    (
        "url",
        "elicitation/create",
        {"mode": "url", "message": "go", "url": "https://x.example/", "elicitationId": "e1"},
        {"action": "accept"},
    ),
    (
        "sampling",
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5},
        {
            "role": "assistant",
            "content": {"type": "text", "text": "hi!"},
            "model": "unknown",
            "stopReason": "endTurn",
        },
    ),
    ("roots", "roots/list", None, {"roots": [{"uri": "file:///tmp", "name": "t"}]}),
    ("other", "vendor/thing", {"a": 1}, {"vendor/thing": {"a": 1}}),
]


@pytest.mark.parametrize(("method", "params", "answer"), [row[1:] for row in ASKED], ids=[row[0] for row in ASKED])
async def test_what_a_server_asks_is_answered(method: str, params: Any, answer: Any) -> None:
    """protocol.md 7.4: answers ping, sampling, roots, elicitation; defaults filled in on accept. R200."""
    pipe = Pipe().legacy()
    options: dict[str, Any] = {
        "on_elicit": lambda ask: ask.accept({"name": "Ada"}),
        "on_sample": lambda ask: ask.text + "!",
        "roots": [{"uri": "file:///tmp", "name": "t"}],
        "on_request": lambda method, params: {method: params},
    }
    async with connect(pipe, era="legacy", **options):
        for id in ("s-1", 0):
            pipe.say(ask(id, method, params))
            assert await pipe.answered(id) == ok(id, answer)


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("elicitation/create", -32601),
        ("sampling/createMessage", -32601),
        ("roots/list", -32601),
        ("vendor/thing", -32601),
    ],
)
async def test_what_nobody_handles_is_method_not_found(method: str, code: int) -> None:
    """R201: the default handler answers method-not-found; 1.3: roots unsupported: -32601."""
    pipe = Pipe().legacy()
    async with connect(pipe, era="legacy"):
        pipe.say(ask(1, method, {}))
        assert (await pipe.answered(1))["error"]["code"] == code


async def test_a_mode_that_was_not_declared_is_invalid() -> None:
    """protocol.md 7.4: -32602 for an undeclared mode; false entries are dropped from what is declared (R190)."""
    pipe = Pipe().legacy()
    capabilities = {"elicitation": {"form": True, "url": False}}
    async with connect(pipe, era="legacy", on_elicit=lambda ask: {}, capabilities=capabilities):
        assert pipe.one("initialize")["params"]["capabilities"] == {"elicitation": {"form": {}}}
        pipe.say(ask(1, "elicitation/create", {"mode": "url", "message": "m", "url": "https://x.example/"}))
        assert (await pipe.answered(1))["error"]["code"] == -32602
        pipe.say(ask(2, "elicitation/create", {"message": "m", "requestedSchema": {"type": "object"}}))
        assert (await pipe.answered(2))["result"]["action"] == "accept"


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "video", "message": "m"},
        {"mode": "url", "message": "m"},
        {"mode": 5, "message": "m"},
    ],
)
async def test_a_malformed_elicitation_is_invalid(params: Any) -> None:
    pipe = Pipe().legacy()
    async with connect(pipe, era="legacy", on_elicit=lambda ask: {}):
        pipe.say(ask(1, "elicitation/create", params))
        assert (await pipe.answered(1))["error"]["code"] == -32602


async def test_a_rejected_sampling_is_minus_one() -> None:
    """protocol.md 1.3: sampling rejected: error code -1."""
    pipe = Pipe().legacy()
    async with connect(pipe, era="legacy", on_sample=lambda ask: None):
        pipe.say(ask(1, "sampling/createMessage", {"messages": [], "maxTokens": 1}))
        assert (await pipe.answered(1))["error"]["code"] == -1


async def test_a_handler_that_fails_is_an_internal_error_and_says_no_more() -> None:
    pipe = Pipe().legacy()

    def broken(ask: Any) -> Any:
        raise RuntimeError("the password is 123")

    async with connect(pipe, era="legacy", on_sample=broken):
        pipe.say(ask(1, "sampling/createMessage", {"messages": [], "maxTokens": 1}))
        error = (await pipe.answered(1))["error"]
    assert error["code"] == -32603
    assert "123" not in error["message"]


async def test_a_server_can_withdraw_its_question() -> None:
    """protocol.md 1.4: notifications/cancelled in either direction: no answer, the handler is cancelled."""
    pipe = Pipe().legacy()
    state: list[str] = []

    async def on_sample(ask: Any) -> Any:
        state.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            state.append("cancelled")
            raise

    async with connect(pipe, era="legacy", on_sample=on_sample):
        pipe.say(ask("q", "sampling/createMessage", {"messages": [], "maxTokens": 1}))
        await until(lambda: state)
        pipe.say(tell("notifications/cancelled", {"requestId": "other"}))
        pipe.say(tell("notifications/cancelled", {}))
        pipe.say(tell("notifications/cancelled", {"requestId": "q"}))
        await until(lambda: len(state) == 2)
        pipe.say(ask("p", "ping"))
        await pipe.answered("p")
    assert [one["id"] for one in pipe.all("answer")] == ["p"]


@pytest.mark.parametrize("others", [0, 1])
async def test_a_question_in_the_middle_of_a_call_ends_with_the_call(others: int) -> None:
    """Ours: nobody waits for the answer. With another call under way, it is not known whose question it is."""
    pipe = Pipe().legacy().on("tools/call", None)
    state: list[str] = []

    async def on_elicit(ask: Any) -> Any:
        state.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            state.append("cancelled")
            raise

    async with connect(pipe, era="legacy", on_elicit=on_elicit) as client:
        calls = [asyncio.create_task(client.call_tool("slow")) for _ in range(1 + others)]
        await until(lambda: len(pipe.all("tools/call")) == len(calls))
        form = {"type": "object", "properties": {}}
        pipe.say(ask("q", "elicitation/create", {"message": "?", "requestedSchema": form}))
        await until(lambda: state)
        calls[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        pipe.say(ask("p", "ping"))
        await pipe.answered("p")
        assert state == (["begun", "cancelled"] if not others else ["begun"])
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_pending_answer_holds_up_nobody() -> None:
    """R201: while an async reply is pending other traffic proceeds; R200: answered later."""
    from trimaran.client.server_requests import Deferred

    pipe = Pipe().legacy()
    waiting: list[Deferred] = []

    async def on_request(method: str, params: Any) -> Any:
        waiting.append(Deferred())
        return waiting[-1]

    async with connect(pipe, era="legacy", on_request=on_request) as client:
        pipe.say(ask("a", "vendor/a"))
        pipe.say(ask("b", "vendor/b"))
        await until(lambda: len(waiting) == 2)
        await client.list_tools()
        pipe.say(ask("p", "ping"))
        await pipe.answered("p")
        waiting[1].reply({"late": True})
        waiting[0].fail(-7, "changed my mind", {"x": 1})
        assert await pipe.answered("b") == ok("b", {"late": True})
        assert await pipe.answered("a") == bad("a", -7, "changed my mind", {"x": 1})


async def test_roots_that_change_are_announced() -> None:
    """protocol.md 7.4: roots list_changed if declared. R193 notify_roots_list_changed."""
    pipe = Pipe().legacy()
    async with connect(pipe, era="legacy", roots=["file:///a"]) as client:
        await client.set_roots(["file:///b"])
        assert pipe.one("notifications/roots/list_changed") == tell("notifications/roots/list_changed")
        pipe.say(ask(1, "roots/list"))
        assert (await pipe.answered(1))["result"] == {"roots": [{"uri": "file:///b"}]}
    pipe = Pipe().legacy()
    async with connect(pipe, era="legacy") as client:
        with pytest.raises(errors.LocalProtocolError, match="roots="):
            await client.set_roots(["file:///b"])
    pipe = Pipe().modern()
    async with connect(pipe, roots=["file:///a"]) as client:
        await client.set_roots(["file:///b"])
        assert not pipe.all("notifications/roots/list_changed")


# --- the rest of the legacy era --------------------------------------------------------------------------------------


async def test_a_batch_is_taken_apart() -> None:
    """protocol.md 1.1: receiving batches MUST be supported (2025-03-26): replies, notifications and requests in one."""
    pipe = Pipe().legacy(V03)
    calls: list[Any] = []

    def reply(pipe: Pipe, message: dict[str, Any]) -> None:
        calls.append(message["id"])
        if len(calls) == 2:
            batch = [ok(calls[1], said("b")), ask("p", "ping"), tell("notifications/x"), ok(calls[0], said("a"))]
            pipe.shout(encode(batch))

    pipe.on("tools/call", reply)
    heard: list[str] = []
    async with connect(pipe, on_notification=lambda method, params: heard.append(method)) as client:
        await client.list_tools()
        found = await soon(asyncio.gather(client.call_tool("a"), client.call_tool("b")))
        assert [one.data for one in found] == ["a", "b"]
        await pipe.answered("p")
    assert heard == ["notifications/x"]


async def test_one_bad_message_in_a_batch_does_not_spoil_the_others() -> None:
    """The other calls are unharmed."""
    pipe = Pipe().legacy(V03)
    calls: list[Any] = []

    def reply(pipe: Pipe, message: dict[str, Any]) -> None:
        calls.append(message["id"])
        if len(calls) == 2:
            pipe.shout(encode([ok(calls[0], said("a")), {"jsonrpc": "1.0", "id": 77}, ok(calls[1], said("b"))]))

    pipe.on("tools/call", reply)
    async with connect(pipe, timeout=0.5) as client:
        await client.list_tools()
        found = await soon(asyncio.gather(client.call_tool("a"), client.call_tool("b")))
    assert [one.data for one in found] == ["a", "b"]


async def test_the_log_level_is_set_once_for_the_session() -> None:
    """protocol.md 1.4: logging/setLevel session-wide."""
    pipe = Pipe().legacy().on("logging/setLevel", {}).on("tools/call", said("x"))
    entries: list[Any] = []
    async with connect(pipe, era="legacy", on_log=entries.append) as client:
        await client.set_log_level("debug")
        await client.call_tool("t")
        pipe.say(tell("notifications/message", {"level": "debug", "data": [1]}))
    assert pipe.one("logging/setLevel")["params"] == {"level": "debug"}
    assert "_meta" not in pipe.one("tools/call")["params"]
    assert [(one.level, one.data, one.logger) for one in entries] == [("debug", [1], None)]


async def test_subscriptions_of_the_legacy_era_word_for_word() -> None:
    """R198: one subscribe per URI however many listen; unsubscribed with the last; every subscriber hears."""
    pipe = Pipe().legacy().on("resources/subscribe", {}).on("resources/unsubscribe", {})
    heard: list[Any] = []
    async with connect(pipe, era="legacy") as client:
        one = await client.subscribe("note://1", lambda uri: heard.append((1, uri)))
        two = await client.subscribe("note://1", lambda uri: heard.append((2, uri)))
        three = await client.subscribe("note://10", lambda uri: heard.append((3, uri)))
        assert [each["params"] for each in pipe.all("resources/subscribe")] == [
            {"uri": "note://1"},
            {"uri": "note://10"},
        ]
        pipe.say(tell("notifications/resources/updated", {"uri": "note://1"}))
        await until(lambda: len(heard) == 2)
        assert sorted(heard) == [(1, "note://1"), (2, "note://1")]
        await one.cancel()
        assert not pipe.all("resources/unsubscribe")
        await two.cancel()
        assert pipe.one("resources/unsubscribe")["params"] == {"uri": "note://1"}
        await three.cancel()


async def test_a_subscriber_hears_of_its_own_resource_only() -> None:
    """R198: every subscriber of THAT uri; note://10 is not a part of note://1."""
    pipe = Pipe().legacy().on("resources/subscribe", {}).on("resources/unsubscribe", {})
    heard: list[Any] = []
    async with connect(pipe, era="legacy") as client:
        await client.subscribe("note://1", lambda uri: heard.append((1, uri)))
        await client.subscribe("note://10", lambda uri: heard.append((10, uri)))
        for uri in ("note://10", "note://1", "note://1/part"):
            pipe.say(tell("notifications/resources/updated", {"uri": uri}))
        await until(lambda: (1, "note://1/part") in heard)
        await asyncio.sleep(0.01)
    assert sorted(heard) == [(1, "note://1"), (1, "note://1/part"), (10, "note://10")]


async def test_a_server_without_subscriptions_is_not_asked_for_one() -> None:
    """R192."""
    pipe = Pipe().legacy(capabilities={"resources": {}})
    async with connect(pipe, era="legacy") as client:
        with pytest.raises(errors.Unsupported) as caught:
            await client.subscribe("note://1", print)
        assert caught.value.method == "resources/subscribe"
    assert not pipe.all("resources/subscribe")


async def test_everything_is_set_up_again_after_a_loss() -> None:
    """Healing: handshake, log level and subscriptions are repeated; watchers hear `reconnected`."""
    pipe = Pipe().legacy().on("resources/subscribe", {}).on("logging/setLevel", {})
    heard: list[Any] = []
    states: list[str] = []
    async with connect(pipe, era="legacy", on_state=lambda event: states.append(event.state)) as client:
        await client.set_log_level("error")
        await client.subscribe("note://1", lambda uri: heard.append(uri))
        pipe.hang_up()
        await until(lambda: len(pipe.all("resources/subscribe")) == 2)
        await until(lambda: heard == ["note://1"])
        assert len(pipe.all("initialize")) == 2
        assert [one["params"] for one in pipe.all("logging/setLevel")] == [{"level": "error"}] * 2
        assert client.state == "ready"
    assert states == ["connecting", "ready", "reconnecting", "ready", "closed"]
    assert pipe.opened == 2


async def test_a_loss_ends_the_calls_in_it_and_repeats_only_what_is_safe() -> None:
    """R207: closed exactly once; each call gets ConnectionLost; lists are repeated on the next conversation."""
    pipe = Pipe().legacy()
    tools: Any = {"tools": [tool("read", annotations={"readOnlyHint": True}), tool("write")]}
    pipe.on("tools/list", tools).on("tools/call", None)
    async with connect(pipe, era="legacy") as client:
        await client.list_tools()
        read = asyncio.ensure_future(client.call_tool("read"))
        write = asyncio.ensure_future(client.call_tool("write"))
        async with finishing(read, write):
            await until(lambda: len(pipe.all("tools/call")) == 2)
            pipe.on("tools/call", said("x"))
            pipe.hang_up()
            with pytest.raises(errors.ConnectionLost):
                await soon(write)
            assert (await soon(read)).data == "x"
    names = [one["params"]["name"] for one in pipe.all("tools/call")]
    assert names == ["read", "write", "read"]


async def test_pages_and_methods_of_the_escape_hatch() -> None:
    """R193, R194: any method by name; legacy tasks; one page at a time, or all, bounded."""
    pipe = Pipe().legacy()
    pipe.on("tasks/list", {"tasks": []}).on("tasks/get", {"taskId": "k"}).on("tasks/cancel", {}).on("tasks/result", {})
    pipe.on("prompts/list", {"prompts": [{"name": "p"}], "nextCursor": "n"})
    async with connect(pipe, era="legacy") as client:
        assert await client.list_tasks("c") == {"tasks": []}
        assert await client.get_task("k") == {"taskId": "k"}
        await client.cancel_task("k")
        await client.task_result("k")
        page = await client.list_prompts()
        assert ([one.name for one in page], page.next_cursor) == (["p"], "n")
        with pytest.raises(errors.RemoteProtocolError, match="circles"):
            await client.list_prompts_all()
        with pytest.raises(errors.TooManyPages, match="max_pages"):
            await client.list_prompts_all(max_pages=1)
        with pytest.raises(errors.CallError) as caught:
            await client.request("vendor/none")
        assert caught.value.code == -32601
    assert [one["params"] for one in pipe.heard if one["method"].startswith("tasks/")] == [
        {"cursor": "c"},
        {"taskId": "k"},
        {"taskId": "k"},
        {"taskId": "k"},
    ]


async def test_urls_a_call_waits_for_are_visited_and_the_call_repeated_once() -> None:
    """protocol.md 7.4: handles -32042."""
    data = {"elicitations": [{"mode": "url", "message": "m", "url": "https://x.example/", "elicitationId": "e"}]}
    refusal = Refused(-32042, "go there", data)
    pipe = Pipe().legacy().on("tools/call", refusal, said("x"))
    seen: list[Any] = []

    def on_elicit(ask: Any) -> Any:
        seen.append((ask.mode, ask.url, ask.elicitation_id, ask.message))
        return ask.accept()

    async with connect(pipe, era="legacy", on_elicit=on_elicit) as client:
        assert (await client.call_tool("t", {"a": 1})).data == "x"
        assert seen == [("url", "https://x.example/", "e", "m")]
        pipe.on("tools/call", refusal)
        with pytest.raises(errors.UrlElicitationRequired) as caught:
            await client.call_tool("t")
        assert caught.value.elicitations == data["elicitations"]
        assert len(pipe.all("tools/call")) == 4
    pipe = Pipe().legacy().on("tools/call", refusal)
    async with connect(pipe, era="legacy", on_elicit=lambda ask: ask.decline()) as client:
        with pytest.raises(errors.UrlElicitationRequired):
            await client.call_tool("t")
        pipe.say(tell("notifications/elicitation/complete", {"elicitationId": "unknown"}))
        await client.list_tools()
    pipe = Pipe().legacy().on("tools/call", refusal)
    async with connect(pipe, era="legacy") as client:
        with pytest.raises(errors.UrlElicitationRequired):
            await client.call_tool("t")


async def test_every_notification_reaches_the_handler_in_order() -> None:
    """R202: incl. replay_truncated, tasks/status, message, list_changed."""
    methods = [
        "notifications/replay_truncated",
        "notifications/tasks/status",
        "notifications/message",
        "notifications/tools/list_changed",
        "notifications/progress",
        "notifications/unheard/of",
        "notifications/cancelled",
    ]
    pipe = Pipe().legacy()
    heard: list[Any] = []

    async def on_notification(method: str, params: Any) -> None:
        await asyncio.sleep(0)
        heard.append((method, params))

    async with connect(pipe, era="legacy", on_notification=on_notification):
        for number, method in enumerate(methods):
            pipe.say(tell(method, {"n": number}))
        await until(lambda: len(heard) == len(methods))
    assert heard == [(method, {"n": number}) for number, method in enumerate(methods)]


async def test_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """R187: states; calls before ready fail, calls after the end fail."""
    pipe = Pipe().legacy()
    states: list[Any] = []
    client = connect(pipe, era="legacy", on_state=lambda event: states.append((event.previous, event.state)))
    assert client.state == "new"
    for use in (client.list_tools, client.ping, lambda: client.call_tool("t"), lambda: client.notify("x")):
        with pytest.raises(errors.NotReady):
            await use()
    await client.open()
    with pytest.raises(errors.NotReady):
        await client.open()
    await asyncio.gather(client.close(), client.close())
    for use in (client.list_tools, client.ping, lambda: client.call_tool("t"), lambda: client.notify("x"), client.open):
        with pytest.raises(errors.Closed):
            await use()
    assert states == [("new", "connecting"), ("connecting", "ready"), ("ready", "closed")]


async def test_an_error_to_a_periodic_ping_is_a_sign_of_life() -> None:
    """R199; that failures in a row end the connection is proved in tests/fault/client."""
    pipe = Pipe().legacy().on("ping", {}, Refused(-32601), {})
    async with connect(pipe, era="legacy", ping_interval=0.01) as client:
        await until(lambda: len(pipe.all("ping")) >= 4)
        assert client.state == "ready"
        assert len(pipe.all("initialize")) == 1


async def test_a_second_answer_and_an_answer_to_nobody_are_named_when_time_runs_out() -> None:
    """Answers that come twice, or with a wrong id, are named in the error of the call that waits in vain."""
    pipe = Pipe().legacy().on("tools/call", lambda pipe, message: pipe.say(ok(4711, said("x"))))
    async with connect(pipe, era="legacy") as client:
        await client.list_tools()
        with pytest.raises(errors.TimedOut, match="4711"):
            await client.call_tool("t", timeout=0.05)


async def test_a_stray_id_inside_garbage_does_not_fail_another_call() -> None:
    """The other calls are unharmed. Only an id of the message itself says whose it is."""
    pipe = Pipe().legacy().on("tools/call", None)
    async with connect(pipe, era="legacy") as client:
        await client.list_tools()
        task = asyncio.ensure_future(client.call_tool("t"))
        async with finishing(task):
            (call,) = await until(lambda: pipe.all("tools/call"))
            pipe.shout(encode({"level": "info", "context": {"id": call["id"]}}))
            pipe.shout(json.dumps({"text": json.dumps({"id": call["id"]})}).encode())
            await asyncio.sleep(0)
            pipe.say(ok(call["id"], said("x")))
            assert (await soon(task)).data == "x"
