"""What an anonymous caller can read out of errors: nothing of where things are, what they are made of, or what failed inside.

Each case breaks something behind the endpoint and then asks for everything there is, as nobody in particular. Whatever comes
back, bodies and headers, holds no path, address, credential, name of a class or traceback; the log has them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import BOTH, HttpCarrier, Wire, encode, initialize, notification, request

from trimaran import Context, Server, connect
from trimaran.auth import Custom, Introspection, ProtectedResource
from trimaran.errors import ConfigError
from trimaran.serve import HttpServer

PLACE = "hidden-harbour"
"""In the name of every file and host that a case uses."""
TELLING = re.compile(
    rf"(?i:{PLACE}|hunter2|sqlite|redis|msgspec|joserfc|aiohttp|asyncio|traceback)|\.db\b|127\.0\.0\.1:9\b|File \"|\.py\b"
    r"|/tmp/|/home/|/usr/|/srv/|\bErrno\b|\btrimaran\.[a-z]|\b[A-Z][a-z]+(?:[A-Z][a-z]+)*(?:Error|Exception|Group|Lost|Failed)\b"
)


def talkative() -> Server:
    """Every handler fails, with words that a caller must not read."""
    server = Server("boat", version="1")
    secret = f"cannot open /srv/{PLACE}/keys.txt for postgres://me:hunter2@db.{PLACE}:5432/boat"

    @server.tool
    def fail() -> str:
        raise OSError(secret)

    @server.tool
    async def fail_in_a_client() -> str:
        async with connect(f"http://{PLACE}.invalid/mcp", connect_timeout=2) as client:
            return client.version

    @server.tool
    async def fail_to_start() -> str:
        async with connect([f"/srv/{PLACE}/server"]) as client:
            return client.version

    @server.tool
    def fail_by_configuration() -> str:
        raise ConfigError(secret)

    @server.tool(long_running=True)
    async def fail_later() -> str:
        raise RuntimeError(secret)

    @server.tool
    async def fail_in_a_group() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(_raise(secret))
        return ""

    @server.tool
    def answer_wrongly() -> dict[str, int]:
        return {"a": secret}  # pyright: ignore[reportReturnType]

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("?", {"type": "object", "properties": {}})).action

    @server.resource("boat://log")
    def log() -> str:
        raise PermissionError(13, "Permission denied", f"/srv/{PLACE}/log")

    @server.resource("boat://{part}")
    def part(part: int) -> str:
        raise KeyError(secret)

    @server.prompt
    def plan(topic: str) -> str:
        raise ZeroDivisionError(secret)

    @server.completion(prompt="plan", argument="topic")
    def topics(value: str) -> list[str]:
        raise ValueError(secret)

    return server


async def _raise(text: str) -> None:
    raise OSError(text)


TOOLS = [
    *("fail", "fail_in_a_client", "fail_to_start", "fail_by_configuration", "fail_later", "fail_in_a_group"),
    *("answer_wrongly", "ask", "no_such_tool"),
]
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    ("tools/list", {"cursor": "nonsense"}),
    *(("tools/call", {"name": name, "arguments": {}}) for name in TOOLS),
    ("tools/call", {"name": "fail", "arguments": []}),
    ("tools/call", {"name": "fail", "arguments": {}, "requestState": "forged", "inputResponses": {}}),
    ("tools/call", {"name": "fail_later", "arguments": {}, "task": {"ttl": 1000}}),
    ("tools/call", {"name": 5}),
    ("resources/list", {}),
    ("resources/read", {"uri": "boat://log"}),
    ("resources/read", {"uri": "boat://7"}),
    ("resources/read", {"uri": "boat://not-a-number"}),
    ("resources/read", {"uri": "file:///etc/passwd"}),
    ("resources/subscribe", {"uri": "boat://log"}),
    ("prompts/get", {"name": "plan", "arguments": {"topic": "x"}}),
    ("prompts/get", {"name": "plan", "arguments": {"topic": 5}}),
    ("prompts/get", {"name": "none"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "plan"}, "argument": {"name": "topic", "value": "a"}},
    ),
    ("logging/setLevel", {"level": "loud"}),
    ("tasks/get", {"taskId": "none"}),
    ("tasks/list", {}),
    ("tasks/result", {"taskId": "none"}),
    ("tasks/update", {"taskId": "none", "inputResponses": {"a": 5}}),
    ("tasks/cancel", {"taskId": "none"}),
    ("no/such/method", {}),
]
PATHS = [
    "/livez",
    "/readyz",
    "/gauges",
    "/metrics",
    "/",
    "/nowhere",
    "/.well-known/oauth-protected-resource",
    "/register",
]
PATHS += ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server", "/token", "/sse"]
BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"jsonrpc":"2.0"}',
    b"[" * 500,
    b'{"jsonrpc":"2.0","id":1,"method":5}',
]


async def everything(wire: Wire) -> AsyncIterator[tuple[str, Any]]:
    """All that a caller without credentials can ask for, and what it gets."""
    for method, params in REQUESTS:
        yield f"modern {method} {params}", await wire.modern(method, params, caps={"elicitation": {"form": {}}})
    headers = {"Content-Type": "application/json", "Accept": BOTH}
    hello = await wire.send("POST", headers, encode(initialize("2025-11-25")))
    yield "initialize", hello
    session = {**headers, "Mcp-Session-Id": hello.headers.get("mcp-session-id", "none")}
    yield "initialized", await wire.send("POST", session, encode(notification("notifications/initialized")))
    for method, params in REQUESTS:
        yield f"legacy {method} {params}", await wire.send("POST", session, encode(request(method, params)))
    for body in BODIES:
        yield f"body {body[:20]!r}", await wire.send("POST", session, body)
    for method in ("PUT", "OPTIONS", "PATCH", "DELETE"):
        yield method, await wire.send(method, session, b"")
    yield "resume", await wire.send("GET", {**session, "Accept": "text/event-stream", "Last-Event-ID": "nonsense"}, b"")
    for path in PATHS:
        if path != "/sse":
            yield path, await wire.send("GET", {}, b"", path=path)
        yield f"POST {path}", await wire.send("POST", headers, b"{}", path=path)
    for credentials in ("Bearer nonsense", "Basic x", "Bearer eyJhbGciOiJub25lIn0.e30.", "DPoP x", "x"):
        yield credentials, await wire.send("POST", {**headers, "Authorization": credentials}, encode(initialize()))


def telling(reply: Any) -> str:
    """What a reply tells of the inside; empty if nothing."""
    shown = "\n".join(
        [*(f"{name}: {value}" for name, value in reply.headers.items()), reply.body.decode("utf-8", "replace")]
    )
    shown = shown.replace(_OWN, "")
    return "" if (found := TELLING.search(shown)) is None else f"{found[0]!r} in {shown[:1500]}"


# What a caller knows anyway, since it said so itself.
_OWN = "file:///etc/passwd"


@asynccontextmanager
async def served(server: Server, **options: Any) -> AsyncIterator[Wire]:
    async with HttpServer(server, port=0, gauges=True, **options) as http:
        yield Wire(HttpCarrier(http.port), http.engine.path, http.engine)


Break = Callable[[Path], Awaitable[None] | None]


def _remove(file: Path) -> None:
    for one in file.parent.glob("*"):
        one.unlink()


def _replace(file: Path) -> None:
    for one in file.parent.glob("*"):
        one.unlink()
    file.write_bytes(b"not a database" * 1000)


def _corrupt(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(100)
        opened.write(os.urandom(8000))


def _make_directory(file: Path) -> None:
    for one in file.parent.glob("*"):
        one.unlink()
    file.mkdir()


STORES: dict[str, Callable[[Path], None]] = {
    "intact": lambda file: None,
    "removed": _remove,
    "replaced": _replace,
    "damaged": _corrupt,
    "a directory": _make_directory,
}


@pytest.mark.slow
@pytest.mark.deadline(240)
@pytest.mark.parametrize("case", STORES)
async def test_no_error_tells_where_the_store_is_or_what_failed_inside(case: str, tmp_path: Path) -> None:
    """Whose rule: ours; what a handler did not mean for its caller is in the log, under a number that the caller gets."""
    folder = tmp_path / PLACE
    folder.mkdir()
    file = folder / "boat.db"
    async with served(talkative(), store=f"sqlite:///{file}") as wire:
        first = await wire.send("GET", {}, b"", path="/readyz")
        assert first.status == 200
        STORES[case](file)
        told = {name: found async for name, reply in everything(wire) if (found := telling(reply))}
    assert told == {}


@pytest.mark.slow
@pytest.mark.deadline(240)
async def test_no_error_tells_the_address_of_a_store_that_is_away() -> None:
    server = talkative()
    engine = server.engine(store="redis://me:hunter2@127.0.0.1:9/3", gauges=True)
    told: dict[str, str] = {}
    async with _asgi(engine) as wire:
        async for name, reply in everything(wire):
            if found := telling(reply):
                told[name] = found
    assert told == {}


@asynccontextmanager
async def _asgi(engine: Any) -> AsyncIterator[Wire]:
    from tests.support.harness import AsgiCarrier

    from trimaran.transports.asgi import AsgiApp

    app = AsgiApp(engine)
    yield Wire(AsgiCarrier(app), engine.path, engine)
    await app.aclose()


class Unlucky:
    """A provider whose database is away."""

    async def authenticate(self, request: Any) -> Any:
        raise OSError(f"cannot reach postgres://me:hunter2@db.{PLACE}:5432/users")


def _lookup(key: str) -> Any:
    raise OSError(f"cannot reach postgres://me:hunter2@db.{PLACE}:5432/keys")


PROVIDERS: dict[str, Callable[[], Any]] = {
    "one that fails": Unlucky,
    "a function that fails": lambda: Custom(authenticate=lambda token, state: _lookup(token)),
    "an introspection that is away": lambda: Introspection(
        f"https://{PLACE}.invalid/introspect", client_id="boat", client_secret="hunter2"
    ),
    "a protected resource": lambda: ProtectedResource(
        resource="https://boat.example.com/mcp",
        authorization_servers=["https://login.example.com"],
        authorizer=lambda token, resource, request: _lookup(token),
    ),
}


@pytest.mark.slow
@pytest.mark.deadline(240)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_refusal_tells_what_checks_credentials(provider: str) -> None:
    async with served(talkative(), auth=PROVIDERS[provider]()) as wire:
        told = {name: found async for name, reply in everything(wire) if (found := telling(reply))}
        asked = await wire.send("POST", {"Content-Type": "application/json", "Accept": BOTH}, encode(initialize()))
        assert asked.status in (401, 500)
    assert told == {}


@pytest.mark.slow
async def test_the_log_has_what_the_caller_does_not(caplog: pytest.LogCaptureFixture) -> None:
    async with served(talkative()) as wire:
        reply = await wire.modern("tools/call", {"name": "fail", "arguments": {}})
    (number,) = re.findall(r"error ([0-9a-f]{8})", json.dumps(reply.result))
    (record,) = [one for one in caplog.records if number in one.getMessage()]
    assert record.exc_info is not None and PLACE in str(record.exc_info[1])
