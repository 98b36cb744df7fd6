"""Scopes of single operations: -32600 with what is needed (R183-R185), and a challenge where more can be had (4.3)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.badges import CHALLENGE, Badges, Issued, badge, demo
from tests.support.harness import Wire, encode, initialize, notification, request, serve

from trimaran import Context, Server, connect
from trimaran.auth import ProtectedResource
from trimaran.errors import AuthorizationFailed, CallError, Unauthorized
from trimaran.serve import HttpServer
from trimaran.server.access import require_scopes
from trimaran.transports.http_auth import FixedToken

LACKING = {"code": -32600, "data": {"required_scopes": ["read"]}}

# Operations that need the scope `read`.
OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("tools/call", {"name": "chatty", "arguments": {}}),
    "resource": ("resources/read", {"uri": "notes://guarded"}),
    "template": ("resources/read", {"uri": "files://a"}),
    "prompt": ("prompts/get", {"name": "ask", "arguments": {"topic": "a"}}),
    "prompt completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "topic", "value": ""}},
    ),
    "template completion": (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "files://{name}"}, "argument": {"name": "name", "value": ""}},
    ),
}


async def ask(wire: Wire, era: str, method: str, params: dict[str, Any], who: str) -> Any:
    if era == "modern":
        return await wire.modern(method, params, id=7, headers=badge(who))
    if era == "plain":
        return await wire.post(request(method, params, 7), badge(who))
    session = await wire.initialize(headers=badge(who.partition("+")[0]))
    return await session.ask(method, params, id=7, headers=badge(who))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("era", ["modern", "legacy", "plain"])
async def test_an_operation_without_its_scope_is_answered_by_a_challenge(
    binding: str, era: str, operation: str
) -> None:
    """protocol.md 4.3: 403, all scopes in one challenge, the JSON-RPC error as the body; with the scope it is served."""
    method, params = OPERATIONS[operation]
    async with serve(binding, demo(), auth=Issued(), plain=era == "plain") as wire:
        refused = await ask(wire, era, method, params, "alice+other")
        assert refused.status == 403
        assert refused.headers["www-authenticate"] == f'{CHALLENGE}, error="insufficient_scope", scope="read"'
        assert refused.headers["cache-control"] == "no-store"
        assert refused.json["id"] == 7
        assert {k: refused.error[k] for k in LACKING} == LACKING
        served = await ask(wire, era, method, params, "alice+read")
        assert served.status == 200
        assert "www-authenticate" not in served.headers
        assert "result" in served.messages[-1]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("era", ["modern", "legacy", "plain"])
async def test_without_a_challenge_it_is_an_ordinary_error(binding: str, era: str, operation: str) -> None:
    """R184: HTTP 200 where the authenticator knows of no way to get more."""
    method, params = OPERATIONS[operation]
    async with serve(binding, demo(), auth=Badges(), plain=era == "plain") as wire:
        refused = await ask(wire, era, method, params, "alice")
        assert refused.status == 200
        assert {k: refused.error[k] for k in LACKING} == LACKING


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_our_client_has_the_code_and_the_scopes_of_either_refusal(era: Any) -> None:
    """R184: a 403 with a challenge carries what a plain error carries."""
    for auth in (Issued(), Badges()):
        async with HttpServer(demo(), port=0, auth=auth) as http, connect(http.url, era=era, auth="alice") as client:
            with pytest.raises((Unauthorized, CallError)) as caught:
                await client.call_tool("guarded")
            assert isinstance(caught.value, Unauthorized) is isinstance(auth, Issued)
            assert caught.value.code == -32600
            assert caught.value.data == {"required_scopes": ["read", "write"]}
            assert "this needs the scopes read, write" in str(caught.value)


async def test_a_login_that_gets_no_further_scopes_still_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """R184: also when the grant was asked for more, and failed in its own words."""

    async def fail(*args: Any) -> bool:
        raise AuthorizationFailed("nobody is here to consent", step="login", status=403)

    monkeypatch.setattr(FixedToken, "refused", fail)
    async with HttpServer(demo(), port=0, auth=Issued()) as http, connect(http.url, auth="alice") as client:
        with pytest.raises(AuthorizationFailed) as caught:
            await client.call_tool("guarded")
    assert (caught.value.code, caught.value.data) == (None, {"required_scopes": ["read", "write"]})


async def test_all_scopes_of_the_operation_are_named_at_once(binding: str) -> None:
    """protocol.md 4.3, R183: also the one that is there already; before arguments are looked at."""
    async with serve(binding, demo(), auth=Issued()) as wire:
        refused = await wire.call("guarded", {"unknown": 1}, headers=badge("alice+read"))
        assert refused.status == 403
        assert 'scope="read write"' in refused.headers["www-authenticate"]
        assert refused.error["data"] == {"required_scopes": ["read", "write"]}


async def test_an_anonymous_caller_has_no_scopes(binding: str) -> None:
    """R183: where nobody may come in, somebody's things stay closed; also where there is no authenticator at all."""
    auth = Issued()
    auth.is_open = True
    async with serve(binding, demo(), auth=auth) as wire:
        assert (await wire.call("chatty")).status == 403
    async with serve(binding, demo()) as wire:
        refused = await wire.call("chatty")
        assert (refused.status, refused.error["code"]) == (200, -32600)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_stream_that_has_begun_ends_with_the_error(binding: str, era: str) -> None:
    """protocol.md 2.3: after the first event the status is spent; the error comes as the last one."""
    server = Server("late", version="1")

    @server.tool
    async def late(ctx: Context) -> str:
        await ctx.notify("notifications/message", {"level": "info", "data": "begun"})
        require_scopes(ctx._call, ["read"])
        return "in"

    async with serve(binding, server, auth=Issued()) as wire:
        reply = await ask(wire, era, "tools/call", {"name": "late", "arguments": {}}, "alice")
        assert reply.status == 200
        assert reply.is_stream
        assert "www-authenticate" not in reply.headers
        assert {k: reply.error[k] for k in LACKING} == LACKING


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_client_that_prefers_a_stream_still_hears_the_challenge(binding: str, era: str) -> None:
    """R118 gives way: a challenge needs its status."""
    async with serve(binding, demo(), auth=Issued()) as wire:
        first = {"Accept": "text/event-stream, application/json"}
        if era == "modern":
            reply = await wire.call("chatty", headers={**badge("alice"), **first})
        else:
            session = await wire.initialize(headers=badge("alice"))
            reply = await session.ask("tools/call", {"name": "chatty", "arguments": {}}, headers=first)
        assert reply.status == 403
        assert reply.json["error"]["code"] == -32600


async def test_a_session_takes_the_scopes_of_each_request(binding: str) -> None:
    """protocol.md 4.1.13: after a step-up the same session is used with the new token; and an old one grants no more."""
    async with serve(binding, demo(), auth=Issued()) as wire:
        session = await wire.initialize(headers=badge("alice"))
        call = ("tools/call", {"name": "chatty", "arguments": {}})
        assert (await session.ask(*call)).status == 403
        assert (await session.ask(*call, headers=badge("alice+read"))).status == 200
        assert (await session.ask(*call)).status == 403


async def test_a_batch_answers_each_of_its_calls(binding: str) -> None:
    """protocol.md 1.1: one array, one status: no challenge for a part of it."""
    async with serve(binding, demo(), auth=Issued()) as wire:
        session = await wire.initialize("2025-03-26", headers=badge("alice"))
        calls = [request("tools/call", {"name": n, "arguments": {}}, i) for i, n in enumerate(["whoami", "chatty"])]
        reply = await session.post(calls)
        assert reply.status == 200
        found = {message["id"]: message for message in reply.json}
        assert found[0]["result"]["content"][0]["text"] == "alice@None"
        assert {k: found[1]["error"][k] for k in LACKING} == LACKING


async def test_http_with_sse_takes_the_scopes_of_each_message(binding: str) -> None:
    """The stream was opened with one badge; what counts is the one a message came with."""
    async with serve(binding, demo(), auth=Issued(), sse_path="/sse") as wire:
        headers = {"Accept": "text/event-stream", **badge("alice")}
        async with await wire.open("GET", headers, path="/sse") as stream:
            event = await stream.event()
            assert event is not None

            async def post(message: Any, who: str) -> None:
                sent = {"Content-Type": "application/json", **badge(who)}
                assert (await wire.send("POST", sent, encode(message), path=event.data)).status == 202

            await post(initialize("2024-11-05"), "alice")
            await stream.message()
            await post(notification("notifications/initialized"), "alice")
            call = ("tools/call", {"name": "chatty", "arguments": {}})
            await post(request(*call, 1), "alice")
            assert (await stream.message())["error"]["code"] == -32600
            await post(request(*call, 2), "alice+read")
            assert (await stream.message())["result"]["content"][0]["text"] == "in"


# --- watching --------------------------------------------------------------------------------------------------------


async def test_watching_needs_the_scopes_of_reading_in_a_session(binding: str) -> None:
    """protocol.md 4.3: `resources/subscribe` is an operation like any other; and what was allowed once is looked at again."""
    server = demo()
    async with serve(binding, server, auth=Issued()) as wire:
        session = await wire.initialize(headers=badge("alice+read"))
        uri = {"uri": "notes://guarded"}
        assert (await session.ask("resources/subscribe", uri, headers=badge("alice"))).status == 403
        assert (await session.ask("resources/subscribe", uri)).status == 200
        async with await session.get() as stream:
            server.notify.resource_updated("notes://guarded", round=1)
            assert (await stream.message())["params"]["round"] == 1
            await session.ask("ping", headers=badge("alice"))  # the session has come down to this
            server.notify.resource_updated("notes://guarded", round=2)
            await session.ask("ping", headers=badge("alice+read"))
            server.notify.resource_updated("notes://guarded", round=3)
            assert (await stream.message())["params"]["round"] == 3


async def test_a_listen_stream_leaves_out_what_its_caller_may_not_read(binding: str) -> None:
    """protocol.md 1.4: the acknowledgement names what is kept, a subset of what was asked for."""
    server = demo()
    wanted = {"notifications": {"resourceSubscriptions": ["notes://guarded", "files://a", "other://x"]}}
    async with serve(binding, server, auth=Issued()) as wire:
        async with await wire.open_modern("subscriptions/listen", wanted, headers=badge("alice")) as stream:
            kept = (await stream.message())["params"]["notifications"]
            assert kept == {"resourceSubscriptions": ["other://x"]}
            server.notify.resource_updated("notes://guarded")
            server.notify.resource_updated("other://x")
            assert (await stream.message())["params"]["uri"] == "other://x"
        async with await wire.open_modern("subscriptions/listen", wanted, headers=badge("alice+read")) as stream:
            kept = (await stream.message())["params"]["notifications"]
            assert kept == wanted["notifications"]
            server.notify.resource_updated("notes://guarded")
            assert (await stream.message())["params"]["uri"] == "notes://guarded"


async def test_a_principal_may_know_that_one_scope_includes_another(binding: str) -> None:
    """protocol.md 4.3, "honour scope hierarchies": an author's principal decides for itself."""

    class Root:
        subject = "root"
        scopes = frozenset({"admin"})

        def has_scopes(self, scopes: Any) -> bool:
            return True

    class Roots:
        async def authenticate(self, request: Any) -> Any:
            return Root()

    async with serve(binding, demo(), auth=Roots()) as wire:
        assert (await wire.call("guarded")).result["content"][0]["text"] == "in"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_protected_resource_asks_for_the_scopes_of_the_operation(binding: str, era: str) -> None:
    """protocol.md 4.3: the real provider's challenge: error, scope and where its metadata is."""

    async def authorize(token: str, auth: Any, request: Any) -> Any:
        return {"sub": token, "iss": "https://login.example.com", "scope": "read" if token == "alice.read" else ""}

    auth = ProtectedResource(
        resource="http://127.0.0.1/mcp", authorization_servers=["https://login.example.com"], authorizer=authorize
    )
    async with serve(binding, demo(), auth=auth) as wire:
        refused = await ask(wire, era, *OPERATIONS["tool"], "alice")
        assert refused.status == 403
        challenge = refused.headers["www-authenticate"]
        assert 'error="insufficient_scope"' in challenge
        assert 'scope="read"' in challenge
        assert 'resource_metadata="http://127.0.0.1/.well-known/oauth-protected-resource/mcp"' in challenge
        assert {k: refused.error[k] for k in LACKING} == LACKING
        assert (await ask(wire, era, *OPERATIONS["tool"], "alice.read")).status == 200
