"""Routes of the author's own, beside the endpoint."""

from __future__ import annotations

from typing import Any

import aiohttp
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from trimaran import Server
from trimaran.auth import ApiKey
from trimaran.errors import DeclarationError
from trimaran.serve import HttpServer
from trimaran.server.routes import RouteRequest

BASE = "http://127.0.0.1"


def server_with_routes() -> Server:
    server = Server("s")

    @server.custom_route("/text")
    async def text(request: RouteRequest) -> str:
        return f"hello {request.query_params.get('name')} {request.headers.get('x-mark')}"

    @server.custom_route("/users/{id}", methods=["GET", "POST"])
    def user(request: RouteRequest) -> Any:
        data = request.json() if request.method == "POST" else None
        return 201, {"id": request.path_params["id"], "data": data}, {"X-Made": "yes"}

    @server.custom_route("/starlette/{id}", methods=["POST"])
    async def starlette(request: Request) -> JSONResponse:
        body = await request.json()
        return JSONResponse({"id": request.path_params["id"], "q": request.query_params["q"], "body": body}, 202)

    @server.custom_route("/stream")
    async def stream(request: Request) -> StreamingResponse:
        return StreamingResponse(
            iter(["a", "b"]), media_type="text/x-parts", headers={"x-seen": request.headers["x-mark"]}
        )

    @server.custom_route("/nothing", methods=["DELETE"])
    async def nothing(request: RouteRequest) -> None: ...

    @server.custom_route("/broken")
    async def broken(request: RouteRequest) -> None:
        raise ValueError("secret")

    @server.custom_route("/plain")
    async def plain(request: Request) -> PlainTextResponse:
        return PlainTextResponse("plain")

    return server


CASES = [
    ("GET", "/text?name=Ann", None, 200, "text/plain; charset=utf-8", "hello Ann m"),
    ("GET", "/users/7", None, 201, "application/json", '{"id":"7","data":null}'),
    ("POST", "/users/7", b"[1]", 201, "application/json", '{"id":"7","data":[1]}'),
    ("POST", "/starlette/9?q=x", b"{}", 202, "application/json", '{"id":"9","q":"x","body":{}}'),
    ("GET", "/stream", None, 200, "text/x-parts; charset=utf-8", "ab"),
    ("GET", "/plain", None, 200, "text/plain; charset=utf-8", "plain"),
    ("DELETE", "/nothing", None, 204, None, ""),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "kind", "text"), CASES)
async def test_a_route_answers_inside_an_application(
    method: str, path: str, body: bytes | None, status: int, kind: str | None, text: str
) -> None:
    app: Any = server_with_routes().asgi()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
        reply = await client.request(method, path, content=body, headers={"x-mark": "m"})
    assert (reply.status_code, reply.headers.get("content-type"), reply.text) == (status, kind, text)


async def test_the_same_routes_answer_over_our_own_http_server() -> None:
    async with HttpServer(server_with_routes(), port=0) as http, aiohttp.ClientSession() as client:
        for method, path, body, status, kind, text in CASES:
            url = f"{BASE}:{http.port}{path}"
            async with client.request(method, url, data=body, headers={"x-mark": "m"}) as reply:
                assert (reply.status, await reply.text()) == (status, text)
                assert kind is None or reply.headers["content-type"] == kind


async def test_refusals_say_what_is_wrong() -> None:
    app: Any = server_with_routes().asgi(auth=ApiKey({"key": {"subject": "a"}}))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
        assert (await client.get("/plain")).text == "plain", "like a health route, it asks for no credentials"
        assert (await client.head("/plain")).status_code == 200
        wrong = await client.post("/plain")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET")
        broken = await client.get("/broken")
        assert broken.status_code == 500 and "secret" not in broken.text
        elsewhere = await client.get("/plain", headers={"origin": "https://evil.example"})
        assert elsewhere.status_code == 403
        assert (await client.get("/none")).status_code == 404
        assert (await client.post("/mcp")).status_code == 401


async def test_what_a_caller_sends_breaks_no_reply_apart() -> None:
    server = Server("shop")
    server.custom_route("/name")(lambda request: (200, "hi", {request.query_params["name"]: "1, 2"}))
    server.custom_route("/app")(lambda request: PlainTextResponse("hi", headers={"transfer-encoding": "chunked"}))
    async with HttpServer(server, port=0) as http, aiohttp.ClientSession() as client:
        url = f"{BASE}:{http.port}"
        for name, status in (
            ("x-a", 200),
            ("a\r\nset-cookie: b", 500),
            ("a b", 500),
            ("", 500),
            ("Content-Length", 200),
        ):
            async with client.get(f"{url}/name", params={"name": name}) as reply:
                assert reply.status == status
                assert reply.headers.getall("content-length") == [str(len(await reply.read()))]
                assert "set-cookie" not in reply.headers
        async with client.get(f"{url}/app") as reply:
            assert (await reply.text(), "transfer-encoding" in reply.headers) == ("hi", False)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b"[" * 200 + b"]" * 200, b"[" + b"1e300," * 3000 + b"1]", b"[" + b"[]," * 300_000 + b"1]"],
    ids=["nothing", "cut", "no text", "deep", "slow numbers", "many"],
)
async def test_json_that_is_none_or_made_to_be_slow_is_answered_with_400(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("shop")
    server.custom_route("/json", ["POST"])(lambda request: {"kind": type(request.json()).__name__})
    async with HttpServer(server, port=0) as http, aiohttp.ClientSession() as client:
        async with client.post(f"{BASE}:{http.port}/json", data=body) as reply:
            assert reply.status == 400
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/gauges", "/.well-known/oauth-protected-resource/mcp"])
def test_paths_of_the_library_are_refused(path: str) -> None:
    with pytest.raises(DeclarationError, match="choose another path"):
        Server("s").custom_route(path)(lambda request: "x")


def test_the_path_of_the_endpoint_is_refused_whichever_comes_first() -> None:
    server = Server("s")
    server.custom_route("/api")(lambda request: "x")
    with pytest.raises(DeclarationError, match="/api is the path of the endpoint"):
        server.asgi("/api")
    server = Server("s")
    app = server.asgi("/api")
    with pytest.raises(DeclarationError, match="/api is the path of the endpoint"):
        server.custom_route("/api")(lambda request: "x")
    assert app.engine.path == "/api"


@pytest.mark.parametrize(("path", "methods"), [("health", ["GET"]), ("/x", "GET"), ("/x", []), ("/x", ["LOOK"])])
def test_a_route_that_cannot_be_is_refused(path: str, methods: Any) -> None:
    with pytest.raises(DeclarationError):
        Server("s").custom_route(path, methods)(lambda request: "x")


def test_a_path_and_method_have_one_function() -> None:
    server = Server("s")
    server.custom_route("/x", ["GET"])(lambda request: "x")
    server.custom_route("/x", ["POST"])(lambda request: "x")
    with pytest.raises(DeclarationError, match="there is already a route for GET /x"):
        server.custom_route("/x", ["GET"])(lambda request: "x")
