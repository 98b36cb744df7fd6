"""Every verb asks who is calling: after where the request comes from, before what it brings (R129)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any

import pytest
from tests.support.badges import ALICE, BAD, BOB, CHALLENGE, NOBODY, Badges, demo
from tests.support.harness import BOTH, Wire, encode, initialize, request, serve

from trimaran import Limits
from trimaran.auth import Principal, Refused

LOCAL = "http://localhost:3000"
CREDENTIALS: dict[str, dict[str, Any]] = {"none": NOBODY, "bad": BAD}

# --- every verb ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("credentials", CREDENTIALS)
@pytest.mark.parametrize(
    "verb", ["modern", "listen", "legacy", "initialize", "notify", "answer", "get", "delete", "put"]
)
async def test_a_request_without_good_credentials_is_refused(binding: str, verb: str, credentials: str) -> None:
    """R129, R164: 401 with the challenge, whatever the verb and the era; the reply says nothing else."""
    async with serve(binding, demo(), auth=Badges()) as wire:
        alice = await wire.initialize(headers=ALICE)
        who = CREDENTIALS[credentials]
        plain = {k: v for k, v in who.items() if v is not None}
        bare = {k: v for k, v in alice.headers(who) if k.lower() not in ("content-type", "accept")}
        reply = {
            "modern": lambda: wire.call("whoami", headers=who),
            "listen": lambda: wire.modern("subscriptions/listen", {"notifications": {}}, headers=who),
            "legacy": lambda: alice.ask("tools/list", headers=who),
            "initialize": lambda: wire.post(initialize(), who),
            "notify": lambda: alice.post({"jsonrpc": "2.0", "method": "notifications/cancelled"}, who),
            "answer": lambda: alice.post({"jsonrpc": "2.0", "id": "srv-1", "result": {}}, who),
            "get": lambda: wire.send("GET", {**bare, "Accept": "text/event-stream"}),
            "delete": lambda: wire.send("DELETE", bare),
            "put": lambda: wire.send("PUT", plain),
        }[verb]
        refused = await reply()
        assert refused.status == 401
        assert refused.headers["www-authenticate"] == CHALLENGE
        assert refused.headers["cache-control"] == "no-store"
        assert set(refused.json) == {"error", "error_description"}
        assert refused.json["error"] == {"none": "unauthorized", "bad": "invalid_token"}[credentials]
        assert b"told apart" not in refused.body
        assert (await alice.ask("ping")).status == 200  # and Alice's session is untouched


async def test_good_credentials_open_every_verb(binding: str) -> None:
    """R129, R165: and the handler knows who it is, in either era."""
    async with serve(binding, demo(), auth=Badges()) as wire:
        reply = await wire.call("whoami", headers=BOB)
        assert reply.result["content"][0]["text"] == "bob@None"
        alice = await wire.initialize(headers=ALICE)
        assert (await alice.call("whoami")).result["content"][0]["text"] == "alice@None"
        async with await alice.get() as stream:
            assert stream.status == 200
        assert (await alice.delete()).status == 204


async def test_who_is_calling_is_never_among_the_arguments(binding: str) -> None:
    """C19: a closed schema stays closed, and what a tool logs of its arguments holds no identity."""
    server = demo()
    closed = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    server.add_tool(lambda args, ctx: f"{args} from {ctx.auth.subject}", name="closed", input_schema=closed)
    async with serve(binding, server, auth=Badges()) as wire:
        reply = await wire.call("closed", {"n": 1}, headers=BOB)
        assert reply.result["content"][0]["text"] == "{'n': 1} from bob"
        forged = await wire.call("closed", {"n": 1, "_auth": {"subject": "alice"}}, headers=BOB)
        assert forged.result["isError"] is True


@pytest.mark.parametrize("headers", [NOBODY, ALICE, BAD], ids=["none", "token", "bad"])
async def test_without_a_provider_everybody_is_nobody(binding: str, headers: dict[str, Any]) -> None:
    """R182, R165: authentication is off by default; whatever is sent is not looked at."""
    async with serve(binding, demo()) as wire:
        assert (await wire.call("whoami", headers=headers)).result["content"][0]["text"] == "nobody"
        session = await wire.initialize(headers=headers)
        assert (await session.call("whoami")).result["content"][0]["text"] == "nobody"


async def test_every_verb_of_http_with_sse_is_authenticated(binding: str) -> None:
    """R129, R137: the stream, and where messages go."""
    async with serve(binding, demo(), auth=Badges(), sse_path="/sse") as wire:
        assert (await wire.send("GET", {"Accept": "text/event-stream"}, path="/sse")).status == 401
        async with await wire.open("GET", {"Accept": "text/event-stream", **ALICE}, path="/sse") as stream:
            event = await stream.event()
            assert event is not None
            body = encode(initialize())
            headers = {"Content-Type": "application/json"}
            assert (await wire.send("POST", headers, body, path=event.data)).status == 401
            assert (await wire.send("POST", {**headers, **ALICE}, body, path=event.data)).status == 202
            assert (await stream.message())["result"]["serverInfo"]["name"] == "demo"


async def test_plain_json_rpc_is_authenticated(binding: str) -> None:
    """R132."""
    async with serve(binding, demo(), auth=Badges(), plain=True) as wire:
        call = request("tools/call", {"name": "whoami", "arguments": {}})
        assert (await wire.post(call)).status == 401
        assert (await wire.post(call, ALICE)).result["content"][0]["text"] == "alice@None"


async def test_an_authenticator_may_let_nobody_in(binding: str) -> None:
    """R153, R165: handlers see none for an anonymous caller; whoever presents a badge must have a good one."""
    auth = Badges()
    auth.is_open = True
    async with serve(binding, demo(), auth=auth) as wire:
        assert (await wire.call("whoami")).result["content"][0]["text"] == "nobody"
        assert (await wire.call("whoami", headers=BAD)).status == 401


# --- the order -------------------------------------------------------------------------------------------------------

# What is wrong with a request besides its missing badge, and what it hears.
ORDER: dict[str, int] = {
    "path": 404,
    "origin": 403,
    "host": 403,
    "content type": 401,
    "accept": 401,
    "json": 401,
    "utf-8": 401,
    "size": 401,
    "chunks": 401,
    "session": 401,
    "version": 401,
    "verb": 401,
}


@pytest.mark.parametrize("wrong", ORDER)
async def test_the_order_is_path_origin_credentials_content(binding: str, wrong: str) -> None:
    """R129, protocol.md 4.3: where it comes from, then who it is, then everything that the request itself says."""
    async with serve(binding, demo(limits=Limits(max_body_bytes=4000)), auth=Badges()) as wire:
        reply = await broken(wire, wrong)
        assert reply.status == ORDER[wrong], reply
        if reply.status == 401:
            assert reply.headers["www-authenticate"] == CHALLENGE
        else:
            assert "www-authenticate" not in reply.headers


async def broken(wire: Wire, wrong: str) -> Any:
    json_headers = {"Content-Type": "application/json", "Accept": BOTH}
    small = encode(initialize())
    match wrong:
        case "path":
            return await wire.send("POST", json_headers, small, path="/elsewhere")
        case "origin":
            return await wire.post(small, {"Origin": "https://evil.example"})
        case "host":
            return await wire.post(small, {"Host": "evil.example"})
        case "content type":
            return await wire.post(small, {"Content-Type": "text/plain"})
        case "accept":
            return await wire.post(small, {"Accept": "text/html"})
        case "json":
            return await wire.post(b"{nope")
        case "utf-8":
            return await wire.post(b'"\xff"')
        case "size":
            return await wire.post(b" " * 5000)
        case "chunks":
            return await wire.send("POST", json_headers, [b" " * 3000, b" " * 3000])
        case "session":
            return await wire.post(request("ping"), {"Mcp-Session-Id": "mcp_" + "0" * 32})
        case "version":
            return await wire.post(request("ping"), {"MCP-Protocol-Version": "1999-01-01"})
        case _:
            return await wire.send("PATCH")


async def test_a_known_caller_hears_what_is_wrong_with_its_request(binding: str) -> None:
    """The other half of the order: with a badge, each of them is what it was before."""
    async with serve(binding, demo(limits=Limits(max_body_bytes=4000)), auth=Badges()) as wire:
        alice = {"Content-Type": "application/json", "Accept": BOTH, **ALICE}
        assert (await wire.post(b"{}", {"Content-Type": "text/plain", **ALICE})).status == 415
        assert (await wire.post(b"{}", {"Accept": "text/html", **ALICE})).status == 406
        assert (await wire.post(b"{nope", ALICE)).status == 400
        assert (await wire.post(b" " * 5000, ALICE)).status == 413
        assert (await wire.send("POST", alice, [b" " * 3000, b" " * 3000])).status == 413
        assert (await wire.send("PATCH", ALICE)).status == 405


@pytest.mark.parametrize("coding", ["length", "chunks"])
async def test_the_rest_of_a_body_that_is_too_large_goes_nowhere(coding: str) -> None:
    """R113, R129: while its sender is being asked who it is, 16 MB of it come in; then the refusal, and the end."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Badges):
        async def authenticate(self, request: Any) -> Principal | None:
            asked.set()
            await go_on.wait()
            return await super().authenticate(request)

    size = 16 * 1024 * 1024
    framing = f"Content-Length: {size}" if coding == "length" else "Transfer-Encoding: chunked"
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n"
    async with serve("http", demo(limits=Limits(max_body_bytes=1000)), auth=Slow()) as wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.carrier.port)
        try:
            async with asyncio.timeout(10):
                first = b"" if coding == "length" else b"%x\r\n" % size
                writer.write(head.encode() + first + b" " * 2000)
                await asked.wait()
                writer.write(b" " * (size - 2000))
                await writer.drain()
                go_on.set()
                assert (await reader.readline()).split()[1] == b"401"
                with contextlib.suppress(ConnectionError):
                    assert b"HTTP/1.1" not in await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


# --- browsers --------------------------------------------------------------------------------------------------------


async def test_a_preflight_needs_no_credentials_and_names_their_headers(binding: str) -> None:
    """R109, R110: a browser asks before it sends any; X-Badge is what this authenticator reads."""
    auth = Badges()
    async with serve(binding, demo(), auth=auth) as wire:
        reply = await wire.send("OPTIONS", {"Origin": LOCAL, "Access-Control-Request-Headers": "mcp-param-a, x-other"})
        assert reply.status == 204
        allowed = [h.strip() for h in reply.headers["access-control-allow-headers"].split(",")]
        assert {"authorization", "x-badge", "mcp-param-a"} <= set(allowed)
        assert "x-other" not in allowed
        assert auth.seen == []


async def test_a_refusal_can_be_read_by_the_page_that_caused_it(binding: str) -> None:
    """R109: CORS headers on the 401 too, and the challenge among what a page may read."""
    async with serve(binding, demo(), auth=Badges()) as wire:
        reply = await wire.modern("tools/list", headers={"Origin": LOCAL})
        assert reply.status == 401
        assert reply.headers["access-control-allow-origin"] == LOCAL
        exposed = {h.strip() for h in reply.headers["access-control-expose-headers"].split(",")}
        assert {"www-authenticate", "dpop-nonce", "retry-after"} <= exposed


# --- what an authenticator sees and says -----------------------------------------------------------------------------


async def test_an_authenticator_sees_where_a_request_comes_from_and_went_to(binding: str) -> None:
    """RFC 9449, 4.3: the URL is needed for a proof's `htu`; the address for limits."""
    auth = Badges()
    async with serve(binding, demo(), auth=auth) as wire:
        await wire.modern("tools/list", headers={**ALICE, "Host": "localhost:81"})
        await wire.send("DELETE", {**ALICE, "Host": "127.0.0.1"}, path="/mcp/?q=1")
    assert auth.seen == [
        ("POST", "/mcp", "127.0.0.1", "http://localhost:81/mcp"),
        ("DELETE", "/mcp/", "127.0.0.1", "http://127.0.0.1/mcp/"),
    ]


async def test_behind_a_proxy_the_configured_url_is_what_the_client_sees(binding: str) -> None:
    auth = Badges()
    public = "https://api.example.com/v1/mcp"
    async with serve(binding, demo(), auth=auth, public_url=public, sse_path="/sse") as wire:
        await wire.modern("tools/list", headers=ALICE)
        await wire.send("DELETE", ALICE, path="/mcp/")
        await wire.send("POST", ALICE, path="/sse/messages")
    assert [url for *_, url in auth.seen] == [public, public + "/", "https://api.example.com/v1/sse/messages"]


@pytest.mark.parametrize("carrier", ["https", "http2"])
async def test_tls_binds_tell_the_address_and_the_scheme_too(carrier: str) -> None:
    """R147: the other carriers."""
    auth = Badges()
    async with serve(carrier, demo(), auth=auth) as wire:
        assert (await wire.call("whoami", headers={**ALICE, "Host": "localhost:81"})).status == 200
        assert (await wire.call("whoami")).status == 401
    assert auth.seen[0] == ("POST", "/mcp", "127.0.0.1", "https://localhost:81/mcp")


async def test_an_authenticator_can_add_headers_to_the_reply_it_lets_through(binding: str) -> None:
    """RFC 9449, 8.2: a fresh nonce goes with a success; the next request, of the very same head, gets its own or none."""

    class Nonces(Badges):
        given = 0

        async def authenticate(self, request: Any) -> Principal | None:
            principal = await super().authenticate(request)
            if self.given < 2:
                self.given += 1
                request.reply_headers.append(("dpop-nonce", f"n{self.given}"))
            return principal

    server = demo()
    async with serve(binding, server, auth=Nonces()) as wire:
        replies = [await wire.call("whoami", headers=ALICE) for _ in range(4)]
        assert [r.headers.get("dpop-nonce") for r in replies] == ["n1", "n2", None, None]
    async with serve(binding, server, auth=Nonces()) as wire:
        streamed = await wire.call("whoami", headers={**ALICE, "Accept": "text/event-stream, application/json"})
        assert streamed.is_stream
        assert streamed.headers["dpop-nonce"] == "n1"
        alice = await wire.initialize(headers=ALICE)
        assert alice.reply.headers["dpop-nonce"] == "n2"


async def test_an_authenticator_whose_service_is_away_is_503(binding: str) -> None:
    """Whose rule: ours. A 500 says that trying again is pointless; here it is not."""

    class Away:
        async def authenticate(self, request: Any) -> Principal:
            raise TimeoutError("hunter2")

    async with serve(binding, demo(), auth=Away()) as wire:
        reply = await wire.call("whoami", headers={"Authorization": "Bearer hunter2"})
        assert reply.status == 503
        assert json.loads(reply.body)["error"] == "temporarily_unavailable"
        assert reply.headers["retry-after"] == "5"
        assert "www-authenticate" not in reply.headers
        assert b"hunter2" not in reply.body


async def test_a_broken_authenticator_lets_nobody_in_and_keeps_the_secret(
    binding: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R176: 500, no challenge, no detail; the log says where it broke, and never the text, which may quote a token."""

    class Broken:
        async def authenticate(self, request: Any) -> Principal:
            raise RuntimeError(f"cannot check {request.headers.get('authorization')}")

    with caplog.at_level(logging.INFO):
        async with serve(binding, demo(), auth=Broken()) as wire:
            reply = await wire.call("whoami", headers={"Authorization": "Bearer hunter2"})
            assert reply.status == 500
            assert json.loads(reply.body)["error"] == "server_error"
            assert "www-authenticate" not in reply.headers
            assert b"hunter2" not in reply.body
            assert (await wire.send("DELETE", {"Authorization": "Bearer hunter2"})).status == 500
    assert "hunter2" not in caplog.text
    assert "RuntimeError" in caplog.text
    assert "in authenticate" in caplog.text


async def test_a_refusal_raised_by_a_tool_is_no_refusal_of_the_endpoint(binding: str) -> None:
    """Only authentication turns callers away: what a handler raises is the handler's failure."""
    server = demo()

    @server.tool
    async def confused() -> str:
        raise Refused("missing")

    async with serve(binding, server, auth=Badges()) as wire:
        reply = await wire.call("confused", headers=ALICE)
        assert reply.status == 200
        assert reply.result["isError"] is True
