"""Who may come in, from where, with what: Origin, Host, CORS, content types, sizes, verbs, paths and mounting."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount
from tests.support.harness import BOTH, AsgiCarrier, Wire, encode, initialize, notification, request, serve

from trimaran import Limits, Server
from trimaran.errors import ConfigError, ProtocolError
from trimaran.serve import HttpServer
from trimaran.transports.guard import Guard

LOCAL = "http://localhost:3000"
VERBS = ["POST", "GET", "DELETE", "OPTIONS", "PUT"]


def demo(**options: Any) -> Server:
    server = Server("demo", version="1", **options)

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    return server


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["http", "asgi"])
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """One server for the tables: nothing in them leaves a trace in it."""
    async with serve(request.param, demo()) as wire:
        yield wire


shared = pytest.mark.asyncio(loop_scope="module")


def cors(headers: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in headers.items() if k.startswith("access-control-")}


async def verb(wire: Wire, method: str, headers: dict[str, str]) -> Any:
    body = encode(initialize()) if method == "POST" else b""
    common = (
        {"Content-Type": "application/json", "Accept": BOTH} if method == "POST" else {"Accept": "text/event-stream"}
    )
    return await wire.send(method, {**common, **headers}, body)


# --- Origin ----------------------------------------------------------------------------------------------------------

# What a loopback bind thinks of an Origin by default.
ORIGINS: dict[str, bool] = {
    "http://localhost": True,
    "http://localhost:3000": True,
    "http://LOCALHOST:3000": True,
    "http://127.0.0.1": True,
    "http://127.0.0.1:65535": True,
    "http://[::1]:8080": True,
    "https://evil.example": False,
    "http://localhost.evil.example": False,
    "http://evil.example:3000": False,
    "http://127.evil.example": False,
    "http://127.0.0.1.evil.example": False,
    "http://127.0.0.1.nip.io": False,
    "http://localhost@evil.example": False,
    "http://evil.example#localhost": False,
    "http://evil.example/localhost": False,
    "http://127.0.0.1:3000/path": False,
    "http://[::1": False,
    "http://localhost:notaport": False,
    "file://": False,
    "localhost": False,
    "null": False,
    "": False,
    "*": False,
}


@shared
@pytest.mark.parametrize("origin", ORIGINS)
async def test_the_origins_a_loopback_bind_trusts(wire: Wire, origin: str) -> None:
    """R107, protocol.md 6.1: http on localhost, 127.0.0.1 and [::1], any port, by structure; anything else is 403 without CORS."""
    reply = await wire.modern("tools/list", headers={"Origin": origin})
    assert reply.status == (200 if ORIGINS[origin] else 403)
    if ORIGINS[origin]:
        assert reply.headers["access-control-allow-origin"] == origin
    else:
        assert cors(reply.headers) == {}
        assert reply.error["code"] == -32600


@pytest.mark.parametrize("method", VERBS)
async def test_a_foreign_origin_is_refused_on_every_verb(binding: str, method: str) -> None:
    """R107, R110: 403 with no Access-Control-Allow-Origin, the preflight included; no session is made."""
    async with serve(binding, demo()) as wire:
        reply = await verb(wire, method, {"Origin": "https://evil.example"})
        assert reply.status == 403
        assert cors(reply.headers) == {}
        assert len(wire.engine.server.sessions) == 0


@shared
@pytest.mark.parametrize("method", VERBS)
async def test_a_good_origin_gets_its_cors_headers_on_every_verb(wire: Wire, method: str) -> None:
    """R109: echoed, never *, with Vary: Origin, the methods, the request headers and the exposed ones; on refusals too."""
    reply = await verb(wire, method, {"Origin": LOCAL})
    found = cors(reply.headers)
    assert found["access-control-allow-origin"] == LOCAL
    assert "origin" in reply.headers["vary"].lower()
    assert found["access-control-allow-methods"] == "POST, GET, DELETE, OPTIONS"
    allowed = {h.strip().lower() for h in found["access-control-allow-headers"].split(",")}
    assert {
        "content-type",
        "accept",
        "mcp-session-id",
        "mcp-protocol-version",
        "last-event-id",
        "authorization",
    } <= allowed
    assert {"mcp-method", "mcp-name"} <= allowed
    exposed = {h.strip().lower() for h in found["access-control-expose-headers"].split(",")}
    assert {"www-authenticate", "mcp-session-id", "mcp-protocol-version"} <= exposed


@shared
async def test_cors_headers_are_on_streams_and_errors(wire: Wire) -> None:
    """R109: a browser must be able to read those as well."""
    for reply in (
        await wire.modern("tools/list", headers={"Origin": LOCAL, "Accept": "text/event-stream, application/json"}),
        await wire.modern("no/such", headers={"Origin": LOCAL}),
        await wire.post(b"{nope", {"Origin": LOCAL}),
        await wire.post(initialize(), {"Origin": LOCAL, "Content-Type": "text/plain"}),
        await wire.post(initialize(), {"Origin": LOCAL, "Mcp-Session-Id": "mcp_x"}),
    ):
        assert reply.headers["access-control-allow-origin"] == LOCAL, reply


@shared
async def test_no_origin_no_cors(wire: Wire) -> None:
    """R108: on loopback a missing Origin is accepted, and the answer has no Access-Control-Allow-Origin."""
    reply = await wire.modern("tools/list")
    assert reply.status == 200
    assert cors(reply.headers) == {}


@shared
async def test_the_preflight(wire: Wire) -> None:
    """R110, R103: 204, an empty body, the CORS headers."""
    asked = {
        "Origin": LOCAL,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }
    reply = await wire.send("OPTIONS", asked)
    assert (reply.status, reply.body) == (204, b"")
    assert reply.headers["access-control-allow-origin"] == LOCAL


async def test_a_browser_may_mirror_params(binding: str) -> None:
    """R109, protocol.md 3.3: what a modern call must send must be allowed, Mcp-Param-* of annotated tools included."""
    server = demo()
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    server.add_tool(lambda arguments: "ok", name="where", input_schema=schema)
    async with serve(binding, server) as wire:
        asked = {
            "Origin": LOCAL,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "mcp-param-region",
        }
        allowed = (await wire.send("OPTIONS", asked)).headers["access-control-allow-headers"].lower()
        assert "mcp-param-region" in allowed


@pytest.mark.parametrize("listed", [["https://app.example"], ["https://app.example:443"], ("https://APP.example/",)])
async def test_listed_origins_are_matched_by_structure(binding: str, listed: Any) -> None:
    """R107: scheme, host and port; default ports are the same origin; a list replaces the loopback default."""
    async with serve(binding, demo(), allowed_origins=listed) as wire:

        async def status(origin: str) -> int:
            return (await wire.modern("tools/list", headers={"Origin": origin})).status

        assert await status("https://app.example") == 200
        assert await status("https://app.example:443") == 200
        assert await status("http://app.example") == 403
        assert await status("https://app.example:8443") == 403
        assert await status("https://app.example.evil.example") == 403
        assert await status("https://sub.app.example") == 403
        assert await status("null") == 403
        assert await status(LOCAL) == 403


@pytest.mark.parametrize("wildcard", ["any", "all"])
async def test_the_check_may_be_switched_off(binding: str, wildcard: str) -> None:
    """R107, C15: `any` and `all`; the origin is still echoed, never *."""
    async with serve(binding, demo(), allowed_origins=wildcard) as wire:
        for origin in ("https://evil.example", "null"):
            reply = await wire.modern("tools/list", headers={"Origin": origin})
            assert reply.status == 200
            assert reply.headers["access-control-allow-origin"] == origin


async def test_null_only_if_listed(binding: str) -> None:
    """R107."""
    async with serve(binding, demo(), allowed_origins=["null", "https://a.example"]) as wire:
        assert (await wire.modern("tools/list", headers={"Origin": "null"})).status == 200
        assert (await wire.modern("tools/list", headers={"Origin": "https://b.example"})).status == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_a_public_bind_must_name_its_origins(host: str) -> None:
    """R106: refuses to start, and says which option to set."""
    with pytest.raises(ConfigError, match="allowed_origins_required"):
        HttpServer(demo(), host=host, port=0)
    with pytest.raises(ConfigError, match="allowed_origins_required"):
        demo().asgi(host=host)


async def test_a_public_bind_wants_an_origin(binding: str) -> None:
    """R104, R108, C15: missing Origin is 403 on a public bind unless allowed; Host is not judged there (P15)."""
    server = demo()
    options: dict[str, Any] = {"host": "0.0.0.0", "allowed_origins": ["https://app.example"]}
    if binding == "http":
        async with HttpServer(server, port=0, **options) as http:
            from tests.support.harness import HttpCarrier

            await _public(Wire(HttpCarrier(http.port), "/mcp", http.engine))
        async with HttpServer(server, port=0, allow_missing_origin=True, **options) as http:
            assert (await Wire(HttpCarrier(http.port), "/mcp", http.engine).modern("tools/list")).status == 200
        return
    async with serve("asgi", server, **options) as wire:
        await _public(wire)
    async with serve("asgi", server, allow_missing_origin=True, **options) as wire:
        assert (await wire.modern("tools/list")).status == 200


async def _public(wire: Wire) -> None:
    missing = await wire.modern("tools/list")
    assert missing.status == 403
    assert cors(missing.headers) == {}
    assert "allow_missing_origin" in missing.error["message"]
    good = await wire.modern("tools/list", headers={"Origin": "https://app.example", "Host": "mcp.example.com"})
    assert good.status == 200


@pytest.mark.parametrize("bad", ["https://app.example", ["app.example"], ["https://app.example/path"], ["*.example"]])
def test_origins_that_cannot_work_are_refused_at_once(bad: Any) -> None:
    """R95-like: a mistake in the options shows at start."""
    with pytest.raises(ConfigError):
        demo().asgi(host="127.0.0.1", allowed_origins=bad)


# --- Host ------------------------------------------------------------------------------------------------------------

HOSTS: dict[str, bool] = {
    "localhost": True,
    "LocalHost:9090": True,
    "LOCALHOST": True,
    "127.0.0.1:1": True,
    "127.0.0.2": True,
    "[::1]:9090": True,
    "[::1]": True,
    "evil.example": False,
    "localhost.evil.example": False,
    "127.evil.example": False,
    "127.0.0.1.nip.io:9090": False,
    "evil.example:80@localhost": False,
    "localhost@evil.example": False,
    "localhost.": False,
    "localhost:": False,
    "localhost:80:80": False,
    "localhost:x": False,
    "localhost evil.example": False,
    "localhost, evil.example": False,
    "[::1": False,
    "::1": False,
    "0.0.0.0": False,
    "0x7f.1": False,
    "2130706433": False,
    "testserver": False,
    "": False,
}


@shared
@pytest.mark.parametrize("host", HOSTS)
async def test_a_loopback_bind_refuses_foreign_hosts(wire: Wire, host: str) -> None:
    """protocol.md 2.1.1, 6.1, P15: DNS rebinding; the refusal names the option that would let it in."""
    reply = await wire.modern("tools/list", headers={"Host": host})
    if HOSTS[host]:
        assert reply.status == 200
    else:
        assert 400 <= reply.status < 500
        assert "result" not in reply.messages[0]
        if reply.status == 403:
            assert "allowed_hosts" in reply.error["message"]


async def test_hosts_may_be_listed(binding: str) -> None:
    """P15."""
    async with serve(binding, demo(), allowed_hosts=["mcp.example"]) as wire:
        assert (await wire.modern("tools/list", headers={"Host": "mcp.example:9090"})).status == 200
        assert (await wire.modern("tools/list", headers={"Host": "localhost"})).status == 403


@asynccontextmanager
async def mounted(**options: Any) -> AsyncIterator[Callable[..., Any]]:
    """An app that somebody else serves: ask it with a Host and an Origin, and get the reply."""
    app = demo().asgi(**options)
    wire = Wire(AsgiCarrier(app), "/mcp", app.engine)

    async def ask(host: str | None, origin: str | None = None) -> Any:
        return await wire.modern("tools/list", headers={"Host": host, "Origin": origin})

    yield ask
    await app.aclose()


@pytest.mark.parametrize("host", HOSTS)
async def test_an_app_that_somebody_else_serves_takes_loopback_hosts_unless_told(host: str) -> None:
    """P15: one guard for the own server and for `asgi()`; a page that rebinds its name gets nothing."""
    async with mounted() as ask:
        reply = await ask(host)
        assert reply.status == (200 if HOSTS[host] else 403)
        if reply.status == 403:
            assert "allowed_hosts" in reply.error["message"]


@pytest.mark.parametrize("bind", [None, "127.0.0.1"])
def test_a_request_for_no_host_is_refused(bind: str | None) -> None:
    with pytest.raises(ProtocolError, match="the Host header '' is not allowed here"):
        Guard(bind).admit(None, None)


async def test_the_operator_is_told_of_a_refused_host_once(caplog: pytest.LogCaptureFixture) -> None:
    async with mounted() as ask:
        for _ in range(3):
            assert (await ask("api.example:8443")).status == 403
        for number in range(100):
            await ask(f"evil-{number}.example")
    assert [one.message for one in caplog.records].count(
        "a request for the host 'api.example' was refused; if this name is yours, pass allowed_hosts=['api.example']"
    ) == 1
    assert len(caplog.records) == 20


# What an app that answers to api.example, and to http, thinks of an Origin.
OWN: dict[tuple[str, str], bool] = {
    ("api.example", "http://api.example"): True,
    ("api.example", "http://api.example:80"): True,
    ("api.example:80", "HTTP://API.EXAMPLE"): True,
    ("api.example:8080", "http://api.example:8080"): True,
    ("api.example", "https://api.example"): False,
    ("api.example", "http://api.example:8080"): False,
    ("api.example:8080", "http://api.example"): False,
    ("api.example", "http://api.example/"): False,
    ("api.example", "http://api.example/path"): False,
    ("api.example", "http://evil.example"): False,
    ("api.example", "http://me@api.example"): False,
    ("api.example", "http://localhost:3000"): False,
    ("api.example", "null"): False,
    ("evil.example", "http://evil.example"): False,
    ("other.example", "http://api.example"): False,
}


@pytest.mark.parametrize(("host", "origin"), OWN)
async def test_an_origin_is_compared_whole(host: str, origin: str) -> None:
    """R107: scheme, host and port."""
    async with mounted(allowed_hosts=["api.example"]) as ask:
        assert (await ask(host, origin)).status == (200 if OWN[host, origin] else 403)


async def test_where_every_host_is_allowed_no_origin_is_the_endpoints_own() -> None:
    """A page that rebinds evil.example to this machine sends both: Host and Origin say the same."""
    for hosts in (["*"], "*", "any"):
        async with mounted(allowed_hosts=hosts) as ask:
            assert (await ask("evil.example")).status == 200
            assert (await ask("evil.example", "http://evil.example")).status == 403
            assert (await ask("localhost", "http://localhost:3000")).status == 200


async def test_the_public_url_is_the_endpoints_own() -> None:
    async with mounted(public_url="https://api.example/club/mcp") as ask:
        assert (await ask("api.example", "https://api.example")).status == 200
        assert (await ask("127.0.0.1:8000", "https://api.example")).status == 200
        assert (await ask("api.example", "https://evil.example")).status == 403
        assert (await ask("evil.example")).status == 403


def test_one_host_is_a_list_of_one() -> None:
    with pytest.raises(ConfigError, match=r'allowed_hosts must be a list of names, \["api.example"\]'):
        demo().asgi(allowed_hosts="api.example")


# --- content ---------------------------------------------------------------------------------------------------------


@shared
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON;charset=UTF-8", 200),
        (None, 200),
        ("text/plain", 415),
        ("application/json-rpc", 415),
        ("application/jsonp", 415),
        ("multipart/form-data; boundary=application/json", 415),
        ("application/x-www-form-urlencoded", 415),
    ],
)
async def test_content_types(wire: Wire, kind: str | None, status: int) -> None:
    """R111: other than application/json (parameters allowed) is 415; a missing one is accepted."""
    assert (await wire.modern("tools/list", headers={"Content-Type": kind})).status == status
    assert (await wire.post(initialize(), {"Content-Type": kind})).status == status
    expected = 202 if status == 200 else status
    session = await wire.initialize()
    assert (await session.post(notification("notifications/x"), {"Content-Type": kind})).status == expected


@shared
@pytest.mark.parametrize(
    ("accept", "status"),
    [
        (BOTH, 200),
        ("text/event-stream,application/json", 200),
        ("application/json;q=0.9, text/event-stream;q=0.8, */*;q=0.1", 200),
        ("APPLICATION/JSON, Text/Event-Stream", 200),
        ("*/*", 200),
        (None, 200),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("text/html", 406),
        ("application/jsonx, text/event-streamx", 406),
    ],
)
async def test_accept(wire: Wire, accept: str | None, status: int) -> None:
    """R112: a POST's Accept must include both types, or */*, or be absent."""
    assert (await wire.modern("tools/list", headers={"Accept": accept})).status == status
    assert (await wire.post(initialize(), {"Accept": accept})).status == status


@pytest.mark.parametrize("carrier", ["http", "asgi", "http2"])
@pytest.mark.parametrize("limit", [1000, 2_000_000])
async def test_too_large_is_413(carrier: str, limit: int) -> None:
    """R113, P47: by the stated length and by the bytes that come, at any limit; what fits is served."""
    async with serve(carrier, demo(limits=Limits(max_body_bytes=limit))) as wire:
        pairs, body = wire.modern_parts("tools/list")
        exact = body + b" " * (limit - len(body))
        assert (await wire.send("POST", pairs, exact)).status == 200
        assert (await wire.send("POST", pairs, exact + b" ")).status == 413
        half = limit // 2
        assert (await wire.send("POST", pairs, [exact[:half], exact[half:]])).status == 200
        assert (await wire.send("POST", pairs, [exact[:half], exact[half:], b"  "])).status == 413
        assert (await wire.modern("tools/list")).status == 200


# --- verbs and paths -------------------------------------------------------------------------------------------------


@shared
@pytest.mark.parametrize("method", ["PUT", "PATCH", "TRACE", "BREW"])
async def test_other_verbs_are_405(wire: Wire, method: str) -> None:
    """R103: with Allow listing the four. Our own HTTP server takes one that nobody knows for no HTTP."""
    reply = await wire.send(method)
    if method == "BREW" and reply.status == 400:
        return
    assert reply.status == 405
    assert set(reply.headers["allow"].replace(" ", "").split(",")) == {"POST", "GET", "DELETE", "OPTIONS"}


@shared
@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp?x=1", "/mcp/?x=1"])
async def test_both_forms_of_the_path_are_answered(wire: Wire, path: str) -> None:
    """P16, R143: with and without a trailing slash, never a redirect; the query is stripped."""
    pairs, body = wire.modern_parts("tools/list")
    assert (await wire.send("POST", pairs, body, path=path)).status == 200
    post = await wire.send(
        "POST", {"Content-Type": "application/json", "Accept": BOTH}, encode(initialize()), path=path
    )
    assert post.status == 200


@shared
@pytest.mark.parametrize("path", ["/", "/mc", "/mcp2", "/mcp/x", "//mcp", "/MCP", "/mcp//"])
async def test_nothing_else_is_served(wire: Wire, path: str) -> None:
    """C16: "/" only when asked; 404 for the rest."""
    pairs, body = wire.modern_parts("tools/list")
    assert (await wire.send("POST", pairs, body, path=path)).status == 404
    assert (await wire.send("GET", {"Accept": "text/event-stream"}, path=path)).status == 404


@pytest.mark.parametrize(
    ("path", "targets"), [("/", ["/", ""]), ("/a/b", ["/a/b", "/a/b/"]), ("mcp", ["/mcp"]), ("/x/", ["/x", "/x/"])]
)
async def test_the_path_may_be_chosen(path: str, targets: list[str]) -> None:
    """R15, C16."""
    async with serve("asgi", demo(), path=path) as wire:
        pairs, body = wire.modern_parts("tools/list")
        for target in targets:
            assert (await wire.send("POST", pairs, body, path=target)).status == 200, target


# --- mounting --------------------------------------------------------------------------------------------------------


def starlette(*apps: tuple[str, Any], middleware: Any = ()) -> AsgiCarrier:
    return AsgiCarrier(Starlette(routes=[Mount(prefix, app=app) for prefix, app in apps], middleware=list(middleware)))


@pytest.mark.parametrize(
    ("prefix", "path", "target"),
    [
        ("/api", "/mcp", "/api/mcp"),
        ("/api", "/mcp", "/api/mcp/"),
        ("/api", "/mcp", "/api/"),
        ("/mcp", "/mcp", "/mcp/"),
        ("", "/mcp", "/mcp"),
        ("/a/b", "/", "/a/b/"),
    ],
)
async def test_it_mounts_under_any_prefix(prefix: str, path: str, target: str) -> None:
    """P14, R148: no lifespan, no redirect, the mount point itself included; both eras."""
    app = demo().asgi(path)
    carrier = starlette((prefix, app))
    wire = Wire(carrier, target, app.engine)
    assert (await wire.call("add", {"a": 1, "b": 2})).result["content"][0]["text"] == "3"
    session = await wire.initialize()
    assert (await session.call("add", {"a": 2, "b": 2})).result["content"][0]["text"] == "4"
    async with await session.get() as stream:
        await stream.event()
        app.engine.server.notify.tools_changed()
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
    await app.aclose()
    await carrier.finished()
    assert not carrier.faults


async def test_a_prefix_like_the_path_is_not_confused() -> None:
    """P14: /mcp mounted at /mcp answers /mcp/mcp as well as /mcp/; a stranger below the mount is 404."""
    app = demo().asgi()
    wire = Wire(starlette(("/mcp", app)), "/mcp/mcp", app.engine)
    assert (await wire.modern("tools/list")).status == 200
    pairs, body = wire.modern_parts("tools/list")
    assert (await wire.send("POST", pairs, body, path="/mcp/other")).status == 404
    await app.aclose()


async def test_two_servers_in_one_app() -> None:
    """P14: mounted side by side they do not mix."""
    one, two = Server("one", version="1"), Server("two", version="1")
    one.add_tool(lambda: "1", name="first", inline=True)
    two.add_tool(lambda: "2", name="second", inline=True)
    apps = [one.asgi(), two.asgi()]
    carrier = starlette(("/one", apps[0]), ("/two", apps[1]))
    for prefix, name in (("/one", "first"), ("/two", "second")):
        wire = Wire(carrier, prefix + "/mcp", apps[0].engine)
        assert [t["name"] for t in (await wire.modern("tools/list")).result["tools"]] == [name]
    for app in apps:
        await app.aclose()


async def test_it_works_behind_middleware() -> None:
    """P14, R148: Starlette's BaseHTTPMiddleware, which puts queues between the app and the server."""

    class Passing(BaseHTTPMiddleware):
        async def dispatch(self, request: Any, call_next: Any) -> Any:
            return await call_next(request)

    app = demo().asgi()
    wire = Wire(starlette(("", app), middleware=[Middleware(Passing)]), "/mcp", app.engine)
    assert (await wire.call("add", {"a": 1, "b": 2})).result["content"][0]["text"] == "3"
    streamed = await wire.call("add", {"a": 1, "b": 2}, headers={"Accept": "text/event-stream, application/json"})
    assert streamed.result["content"][0]["text"] == "3"
    await app.aclose()


async def test_the_endpoint_event_names_the_mounted_path() -> None:
    """P14, R137: a client that follows the endpoint event must arrive, prefix or not."""
    app = demo().asgi(sse_path="/sse")
    carrier = starlette(("/api", app))
    wire = Wire(carrier, "/api/mcp", app.engine)
    stream = await wire.open("GET", {"Accept": "text/event-stream"}, path="/api/sse")
    event = await stream.event()
    assert event is not None
    endpoint = event.data
    posted = await wire.send(
        "POST", {"Content-Type": "application/json"}, encode(initialize("2024-11-05")), path=endpoint
    )
    await stream.close()
    await app.aclose()
    assert posted.status == 202, endpoint


async def test_lifespan_is_served_but_not_needed() -> None:
    """P14, P39: startup and shutdown run the server's lifespan; without them the first request does; and again."""
    log: list[str] = []

    @contextlib.asynccontextmanager
    async def life(server: Server) -> AsyncIterator[Any]:
        log.append("up")
        yield {"db": 1}
        log.append("down")

    app = demo(lifespan=life).asgi()
    for _ in range(2):
        incoming: asyncio.Queue[Any] = asyncio.Queue()
        outgoing: asyncio.Queue[Any] = asyncio.Queue()
        running = asyncio.ensure_future(app({"type": "lifespan"}, incoming.get, outgoing.put))
        incoming.put_nowait({"type": "lifespan.startup"})
        assert (await outgoing.get())["type"] == "lifespan.startup.complete"
        assert (await Wire(AsgiCarrier(app), "/mcp", app.engine).modern("tools/list")).status == 200
        incoming.put_nowait({"type": "lifespan.shutdown"})
        assert (await outgoing.get())["type"] == "lifespan.shutdown.complete"
        await running
    assert log == ["up", "down"] * 2
    lazy = demo(lifespan=life).asgi()
    assert (await Wire(AsgiCarrier(lazy), "/mcp", lazy.engine).modern("tools/list")).status == 200
    await lazy.aclose()
    assert log == ["up", "down"] * 3


async def test_the_engine_takes_any_responder() -> None:
    """R143, R144: method, path with query, headers as a mapping or as pairs, in any case, a body, a responder; no socket."""

    class Collector:
        status = 0
        body = b""

        async def reply(self, status: int, headers: Any, body: bytes) -> None:
            self.status, self.body = status, body

        async def stream_start(self, status: int, headers: Any) -> None:
            self.status = status

        async def stream_chunk(self, data: bytes) -> bool:
            self.body += data
            return True

        async def stream_end(self) -> None: ...

        def watch(self, callback: Any) -> Any:
            return lambda: None

    engine = demo().engine(host="127.0.0.1")
    pairs, body = Wire.modern_parts("tools/list")
    collector = Collector()
    await engine.handle("POST", "/mcp?x=1", {k.upper(): v for k, v in [*pairs, ("Host", "localhost")]}, body, collector)
    assert collector.status == 200
    assert json.loads(collector.body)["result"]["tools"]
    named = [*pairs, ("Host", "localhost")]
    in_bytes = [(name.encode(), value.encode()) for name, value in named]
    for headers in (named, tuple(named), iter(named), in_bytes, dict(in_bytes)):
        collector = Collector()
        await engine.handle("POST", "/mcp", headers, body, collector)
        assert collector.status == 200
    nonsense: Any
    for nonsense in (None, 5, ["Host: localhost"], [(5, "Host")]):
        with pytest.raises(ConfigError, match="headers must be a mapping, pairs"):
            await engine.handle("POST", "/mcp", nonsense, body, Collector())
    refused = Collector()
    await engine.handle(
        "POST", "/mcp", {"Origin": "https://evil.example", "Host": "localhost"}, encode(request("x")), refused
    )
    assert refused.status == 403
