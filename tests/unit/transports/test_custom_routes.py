"""Routes of the author's own, beside the endpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from tests.support.certificates import Authority
from tests.support.until import PATIENCE

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


def server_with_surplus() -> Server:
    """Its routes send bodies where no answer has one. Each body is an answer that nobody asked for."""
    server = Server("shop")
    surplus = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    server.custom_route("/stream")(lambda request: StreamingResponse(iter([surplus, surplus])))
    server.custom_route("/204")(lambda request: (204, surplus))
    server.custom_route("/304")(lambda request: (304, surplus))
    server.custom_route("/stream/304")(lambda request: StreamingResponse(iter([surplus, surplus]), 304))
    server.custom_route("/after")(lambda request: "after")
    return server


BODILESS = [("HEAD", "/stream"), ("GET", "/204"), ("GET", "/304"), ("GET", "/stream/304")]


@pytest.mark.parametrize(("method", "path"), BODILESS)
async def test_no_body_follows_an_answer_that_has_none_and_is_taken_for_the_next_answer(method: str, path: str) -> None:
    async with HttpServer(server_with_surplus(), port=0) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        fields = "Host: 127.0.0.1\r\n"
        writer.write(
            f"{method} {path} HTTP/1.1\r\n{fields}\r\nGET /after HTTP/1.1\r\n{fields}Connection: close\r\n\r\n".encode()
        )
        answers = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
        await writer.wait_closed()
    assert answers.count(b"HTTP/1.1") == 2
    assert answers.partition(b"\r\n\r\n")[2].startswith(b"HTTP/1.1 200 OK\r\n") and answers.endswith(b"\r\n\r\nafter")


@pytest.mark.parametrize(("method", "path"), BODILESS)
async def test_nor_on_http2(method: str, path: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with (
        HttpServer(server_with_surplus(), port=0, tls=authority.issue("127.0.0.1"), http2=True) as http,
        httpx.AsyncClient(http2=True, verify=authority.trust()) as client,
    ):
        reply = await client.request(method, f"https://127.0.0.1:{http.port}{path}")
        after = await client.get(f"https://127.0.0.1:{http.port}/after")
    assert (reply.http_version, reply.content, after.text) == ("HTTP/2", b"", "after")


@pytest.mark.parametrize("path", ["/204", "/304"])
async def test_nor_inside_an_application(path: str) -> None:
    app: Any = server_with_surplus().asgi()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
        reply = await client.get(path)
    assert (reply.content, "content-length" in reply.headers) == (b"", False)


@pytest.mark.parametrize("status", [-1, 0, 100, 103, 199, 600, 99_999])
async def test_a_status_that_is_no_answers_is_refused(status: int) -> None:
    server = Server("shop")
    server.custom_route("/odd")(lambda request: (status, "odd"))
    server.custom_route("/app")(lambda request: PlainTextResponse("odd", status))
    async with HttpServer(server, port=0) as http, aiohttp.ClientSession() as client:
        for path in ("/odd", "/app"):
            async with client.get(f"{BASE}:{http.port}{path}") as reply:
                assert (reply.status, "internal error" in await reply.text()) == (500, True)
