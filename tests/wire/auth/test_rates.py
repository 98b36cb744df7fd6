"""Rate limits: so many from one address before anyone is asked who they are, so many from one caller after."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.badges import ALICE, ALICE_ELSEWHERE, BAD, BOB, Badges, demo
from tests.support.clock import Clock
from tests.support.harness import BOTH, AsgiCarrier, Wire, encode, initialize, notification, request, serve

from trimaran import Server
from trimaran.auth import RateLimit
from trimaran.errors import ConfigError


async def test_an_address_that_comes_too_often_waits(binding: str) -> None:
    """429 with Retry-After and a JSON body, before the credentials are looked at; when its time has come, it is served."""
    clock, auth = Clock(), Badges()
    limit = RateLimit(address="2/minute", clock=clock)
    async with serve(binding, demo(), auth=auth, rate_limit=limit) as wire:
        assert (await wire.modern("tools/list", headers=ALICE)).status == 200
        assert (await wire.modern("tools/list")).status == 401
        asked = len(auth.seen)
        refused = await wire.modern("tools/list", headers=BOB)
        assert refused.status == 429
        assert refused.headers["retry-after"] == "30"
        assert set(refused.json) == {"error", "error_description"}
        assert len(auth.seen) == asked
        clock.now += 29
        assert (await wire.modern("tools/list", headers=BOB)).status == 429
        clock.now += 1
        assert (await wire.modern("tools/list", headers=BOB)).status == 200


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE", "OPTIONS", "PUT", "garbage", "huge", "plain text"])
async def test_every_verb_counts_and_nothing_is_read_before(binding: str, verb: str) -> None:
    """R129: the limit stands before credentials and content; a foreign Origin is still told so first."""
    limit = RateLimit(address="1/hour", clock=Clock())
    async with serve(binding, demo(max_body_bytes=1000), auth=Badges(), rate_limit=limit) as wire:
        assert (await wire.modern("tools/list", headers=ALICE)).status == 200
        headers = {"Accept": BOTH, "Content-Type": "application/json"}
        reply = {
            "garbage": lambda: wire.send("POST", headers, b"{nope"),
            "huge": lambda: wire.send("POST", headers, b" " * 2000),
            "plain text": lambda: wire.send("POST", {"Content-Type": "text/plain"}, b"x"),
        }.get(verb, lambda: wire.send(verb, headers))
        assert (await reply()).status == 429
        assert (await wire.send("POST", {**headers, "Origin": "https://evil.example"}, b"{nope")).status == 403


async def test_a_page_can_read_how_long_to_wait(binding: str) -> None:
    """R109: CORS headers on the 429."""
    limit = RateLimit(address="1/hour", clock=Clock())
    async with serve(binding, demo(), rate_limit=limit) as wire:
        origin = {"Origin": "http://localhost:3000"}
        assert (await wire.modern("tools/list", headers=origin)).status == 200
        refused = await wire.modern("tools/list", headers=origin)
        assert refused.status == 429
        assert refused.headers["access-control-allow-origin"] == "http://localhost:3000"


async def test_a_caller_that_comes_too_often_waits_and_nobody_else(binding: str) -> None:
    """By subject and issuer, whatever the token; a bad one counts for nobody."""
    limit = RateLimit(principal="1/minute", clock=Clock())
    async with serve(binding, demo(), auth=Badges(), rate_limit=limit) as wire:
        assert (await wire.modern("tools/list", headers=ALICE)).status == 200
        refused = await wire.post(b"{nope", ALICE)
        assert refused.status == 429  # before the content
        assert (await wire.modern("tools/list", headers={"Authorization": "Bearer alice+read"})).status == 429
        assert (await wire.modern("tools/list", headers=BAD)).status == 401
        assert (await wire.modern("tools/list", headers=BOB)).status == 200
        assert (await wire.modern("tools/list", headers=ALICE_ELSEWHERE)).status == 200


async def test_an_authors_own_principal_is_counted_too(binding: str) -> None:
    class Own:
        async def authenticate(self, request: Any) -> Any:
            return type("Somebody", (), {"subject": request.headers.get("authorization")})()

    limit = RateLimit(principal="1/minute", clock=Clock())
    async with serve(binding, demo(), auth=Own(), rate_limit=limit) as wire:
        assert (await wire.modern("tools/list", headers=ALICE)).status == 200
        assert (await wire.modern("tools/list", headers=ALICE)).status == 429
        assert (await wire.modern("tools/list", headers=BOB)).status == 200


async def test_without_an_authenticator_addresses_are_limited_all_the_same(binding: str) -> None:
    limit = RateLimit(address="1/minute", clock=Clock())
    async with serve(binding, demo(), rate_limit=limit) as wire:
        session = await wire.post(b"{nope")
        assert session.status == 400
        assert (await wire.modern("tools/list")).status == 429


async def test_a_trusted_proxy_says_whose_request_it_is(binding: str) -> None:
    """Only where the operator trusts it: otherwise the header is the caller's own invention."""
    for proxies, second in ((["127.0.0.1"], 200), ([], 429)):
        limit = RateLimit(address="1/minute", clock=Clock(), trusted_proxies=proxies)
        async with serve(binding, demo(), rate_limit=limit) as wire:
            assert (await wire.modern("tools/list", headers={"X-Forwarded-For": "192.0.2.1"})).status == 200
            assert (await wire.modern("tools/list", headers={"X-Forwarded-For": "192.0.2.2"})).status == second
            assert (await wire.modern("tools/list", headers={"X-Forwarded-For": "192.0.2.1"})).status == 429


async def test_a_document_counts_as_well(binding: str) -> None:
    class Documented(Badges):
        def document(self, request: Any) -> Any:
            return (200, [], b"{}") if request.path == "/about" else None

    limit = RateLimit(address="1/minute", clock=Clock())
    async with serve(binding, demo(), auth=Documented(), rate_limit=limit) as wire:
        assert (await wire.send("GET", path="/about")).status == 200
        assert (await wire.send("GET", path="/about")).status == 429


async def test_a_carrier_that_does_not_know_the_address_is_not_limited_by_it() -> None:
    """An ASGI server on a local socket says that there is no client address."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "client": None}, receive, send)

    inner = demo().asgi(host="127.0.0.1", rate_limit=RateLimit(address="1/hour", clock=Clock()))
    wire = Wire(AsgiCarrier(app), "/mcp", inner.engine)
    assert [(await wire.modern("tools/list")).status for _ in range(3)] == [200, 200, 200]
    await inner.aclose()


@pytest.mark.parametrize("wrong", [RateLimit, "10/minute", 5], ids=["class", "text", "number"])
def test_a_rate_limit_is_a_rate_limit(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="rate_limit= takes a trimaran.auth.RateLimit"):
        demo().asgi(rate_limit=wrong)


# --- batches: every message counts -----------------------------------------------------------------------------------

ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


def called(tools: list[int]) -> Server:
    """A server of one tool that notes each call."""
    server = Server("counted", version="1")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        tools.append(a)
        return a + b

    return server


@pytest.mark.parametrize("of", ["address", "principal"])
async def test_each_message_of_a_batch_counts_and_only_what_is_left_is_served(binding: str, of: str) -> None:
    """A batch is no way around the limit; who sends one hears of each call that was not made."""
    clock, calls = Clock(), list[int]()
    rates: dict[str, Any] = {of: "10/minute"}
    async with serve(binding, called(calls), rate_limit=RateLimit(**rates, clock=clock)) as wire:
        session = await wire.initialize("2025-03-26")  # two messages
        batch = [request("tools/call", ADD, n) for n in range(100)]
        reply = await session.post(batch)
        assert reply.status == 200
        served = [one["id"] for one in reply.json if "result" in one]
        refused = {one["id"]: one["error"] for one in reply.json if "error" in one}
        assert served == list(range(8)) and len(calls) == 8
        assert set(refused) == set(range(8, 100))
        assert {(one["code"], one["data"]["error"]) for one in refused.values()} == {(-32600, "rate_limited")}
        assert (await session.post(batch)).status == 429
        assert len(calls) == 8
        clock.now += 12
        assert [one["id"] for one in (await session.post(batch[:3])).json if "result" in one] == [0, 1]
        assert (await session.ask("ping")).status == 429


async def test_notifications_in_a_batch_count_too_and_are_dropped_silently(binding: str) -> None:
    limit = RateLimit(address="5/minute", clock=Clock())
    async with serve(binding, demo(), rate_limit=limit) as wire:
        session = await wire.initialize("2025-03-26")
        batch = [*(notification("notifications/x") for _ in range(50)), request("ping", id="last")]
        reply = await session.post(batch)
        assert [(one["id"], one["error"]["code"]) for one in reply.json] == [("last", -32600)]


async def test_a_batch_on_an_event_stream_counts_as_well(binding: str) -> None:
    """HTTP+SSE: refused as a whole, since the answers would come elsewhere."""
    calls: list[int] = []
    limit = RateLimit(address="10/minute", clock=Clock())
    async with serve(binding, called(calls), sse_path="/sse", rate_limit=limit) as wire:
        stream = await wire.open("GET", {"Accept": "text/event-stream"}, path="/sse")
        first = await stream.event()
        assert first is not None
        endpoint = first.data
        headers = {"Content-Type": "application/json"}
        hello = await wire.send("POST", headers, encode(initialize("2025-03-26")), path=endpoint)
        assert hello.status == 202
        batch = [request("tools/call", ADD, n) for n in range(100)]
        refused = await wire.send("POST", headers, encode(batch), path=endpoint)
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) > 0
        await stream.close()
    assert calls == []
