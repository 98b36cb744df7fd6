"""A server made of an HTTP API: real HTTP, a real FastAPI application, and what goes wrong between them."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fastapi import FastAPI, HTTPException
from fastapi.responses import RedirectResponse
from pydantic import BaseModel

from trimaran import Client, Context, Server, connect
from trimaran.errors import ConfigError
from trimaran.openapi import server as openapi_server
from trimaran.openapi.requests import ApiRequest
from trimaran.openapi.responses import ApiResponse
from trimaran.types import BlobResourceContents, EmbeddedResource, ImageContent

PET = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "tag": {"type": "string"}},
}
ANSWER = {"description": "A pet.", "content": {"application/json": {"schema": PET}}}


def get(operation_id: str, *parameters: str, **more: Any) -> dict[str, Any]:
    listed = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parameters]
    return {"get": {"operationId": operation_id, "parameters": listed, **more}}


SPEC: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1.2", "description": "All pets."},
    "paths": {
        "/pets/{id}": get("getPet", "id", tags=["pets"], responses={"200": ANSWER, "404": {"description": "Nobody has it."}}),
        "/echo": get("echo", security=[{"key": []}, {"login": []}]),
        "/odd/{how}": get("odd", "how", responses={"200": ANSWER}),
        "/raw/{how}": get("raw", "how"),
        "/broken": {"get": {"operationId": "broken", "parameters": [{"$ref": "#/nowhere"}]}},
    },
    "components": {
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "query", "name": "api_key"},
            "login": {"type": "http", "scheme": "bearer"},
        }
    },
}  # fmt: skip


async def pet(request: web.Request) -> web.Response:
    if request.match_info["id"] != "1":
        return web.json_response({"error": "unknown id"}, status=404)
    return web.json_response({"id": 1, "name": "Rex", "tag": None})


async def echo(request: web.Request) -> web.Response:
    return web.json_response(
        {"query": dict(request.query), "auth": request.headers.get("Authorization"), "x": request.headers.get("X-App")}
    )


async def odd(request: web.Request) -> web.StreamResponse:
    match request.match_info["how"]:
        case "mismatch":
            return web.json_response({"id": "one"})
        case "html":
            return web.Response(text="<p>hi</p>", content_type="text/html")
        case "broken":
            return web.Response(text="{", content_type="application/json")
        case "empty":
            return web.Response(status=204)
        case "elsewhere":
            raise web.HTTPFound("http://other.example/")
        case "huge":
            return web.Response(body=b"x" * 5000)
        case "slow":
            await asyncio.sleep(30)
        case _:
            pass
    return web.Response()


async def raw(request: web.Request) -> web.Response:
    kinds = {"image": "image/png", "bytes": "application/zip", "text": "text/plain", "json": "application/json"}
    kind = request.match_info["how"]
    return web.Response(body=b"\x89\0" if kind in ("image", "bytes") else b'"hi"', content_type=kinds[kind])


@asynccontextmanager
async def api() -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(
        [
            web.get("/v1/pets/{id}", pet),
            web.get("/v1/echo", echo),
            web.get("/v1/odd/{how}", odd),
            web.get("/v1/raw/{how}", raw),
        ]
    )
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[Client]:
    async with connect(server) as client:
        yield client
    await server.stop()


async def test_operations_are_tools(caplog: pytest.LogCaptureFixture) -> None:
    """P26: a wrong operation costs itself."""
    with caplog.at_level(logging.WARNING, "trimaran.openapi"):
        server = Server.from_openapi(SPEC, base_url="https://api.example.com")
    assert (server.name, server.version, server.instructions) == ("Pets", "1.2", "All pets.")
    tools = {tool.name: tool for tool in server.list_tools()}
    assert list(tools) == ["getPet", "echo", "odd", "raw"]
    assert caplog.messages == ["GET /broken is left out: '#/nowhere' points at nothing"]
    assert tools["getPet"].input_schema == {
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
    }
    assert tools["getPet"].annotations == {"openWorldHint": True, "readOnlyHint": True}


def test_a_document_without_operations_is_an_empty_server(caplog: pytest.LogCaptureFixture) -> None:
    """Documents that describe webhooks only have none."""
    assert not Server.from_openapi({**SPEC, "paths": {}}, base_url="https://x.example").list_tools()
    assert caplog.messages == ["Pets has no operation that could become a tool"]


async def test_a_call_is_a_request_and_its_answer_is_structured() -> None:
    async with api() as url, client_of(Server.from_openapi(SPEC, base_url=url)) as client:
        result = await client.call_tool("getPet", {"id": "1"})
        assert result.data == {"id": 1, "name": "Rex"}, "a null that the schema does not know is left out"
        assert json.loads(result.text)["tag"] is None, "the text is as it came"
        missing = await client.call_tool("getPet", {"id": "9"})
        assert missing.is_error
        assert missing.text == 'GET /pets/{id} answered 404 Not Found (Nobody has it.). {"error": "unknown id"}'


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("mismatch", "does not fit the API's description"),
        ("html", "answered text/html where its description announces JSON: hi"),
        ("broken", "answered with broken JSON"),
        ("elsewhere", "redirects GET to another address, which is not followed"),
        ("huge", "larger than 4000 bytes"),
        ("slow", "did not answer within 0.3 s"),
    ],
)
async def test_an_answer_that_is_not_as_announced_is_an_error_the_model_can_read(how: str, message: str) -> None:
    async with (
        api() as url,
        client_of(Server.from_openapi(SPEC, base_url=url, response_bytes=4000, timeout=0.3)) as client,
    ):
        result = await client.call_tool("odd", {"how": how})
        assert result.is_error
        assert message in result.text


async def test_a_large_answer_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its JSON is read and checked in a thread, and refused unread if no client would take it as a message."""
    threads: list[bool] = []
    read = openapi_server.read_response

    def observed(*arguments: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return read(*arguments)

    monkeypatch.setattr(openapi_server, "read_response", observed)
    answers = {"id": b'{"id":1}' + b" " * 300_000, "all": b"[" + b"[]," * 250_000 + b"1]"}

    class Large:
        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *error: object) -> None: ...

        async def __call__(self, request: ApiRequest) -> ApiResponse:
            return ApiResponse(200, "application/json", answers[request.path.rpartition("/")[2]])

    server = Server.from_openapi(SPEC, base_url="https://x.example", send=Large())
    async with client_of(server) as client:
        assert (await client.call_tool("getPet", {"id": "id"})).data == {"id": 1}
        assert "more than 200000 arrays and objects" in (await client.call_tool("getPet", {"id": "all"})).text
    assert threads == [False, False]


async def test_an_answer_without_a_body_is_no_error() -> None:
    async with api() as url, client_of(Server.from_openapi(SPEC, base_url=url)) as client:
        result = await client.call_tool("odd", {"how": "empty"})
        assert (result.is_error, result.data) == (False, {})
        assert result.text == "GET /odd/{how}: 204 No Content, without a body"


async def test_bytes_become_blocks_of_their_kind() -> None:
    async with api() as url, client_of(Server.from_openapi(SPEC, base_url=url)) as client:
        assert isinstance((await client.call_tool("raw", {"how": "image"})).content[0], ImageContent)
        block = (await client.call_tool("raw", {"how": "bytes"})).content[0]
        assert isinstance(block, EmbeddedResource)
        assert isinstance(block.resource, BlobResourceContents)
        assert block.resource.mime_type == "application/zip"
        assert (await client.call_tool("raw", {"how": "text"})).text == '"hi"'


async def test_an_api_that_is_away_is_said_to_be_and_its_address_is_for_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client_of(Server.from_openapi(SPEC, base_url="http://127.0.0.1:9")) as client:
        for _ in range(3):
            result = await client.call_tool("getPet", {"id": "1"})
            assert (result.is_error, result.text) == (True, "the API cannot be reached at the moment")
    assert caplog.text.count("127.0.0.1:9 cannot be reached") == 1


def test_a_document_that_is_made_to_be_slow_is_read(caplog: pytest.LogCaptureFixture) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    body = {"content": {"application/json": {"schema": deep}}}
    same = {f"/same/{number}": get("same") for number in range(20_000)}
    spec = {**SPEC, "paths": {**same, "/deep": {"post": {"requestBody": body}}}, "servers": [{"url": "{" * 200_000}]}
    server = Server.from_openapi(spec, base_url="https://x.example")
    assert [tool.name for tool in server.list_tools()][-1] == "same_20000"
    assert "POST /deep is left out: its schemas are nested too deeply" in caplog.text, "it cost clients every tool"
    with pytest.raises(ConfigError, match="does not say where the API is"):
        Server.from_openapi(spec)


@pytest.mark.parametrize("schema_bytes", [12_288, 10_000_000])
def test_an_operation_with_more_arguments_than_a_call_can_check_is_left_out(
    caplog: pytest.LogCaptureFixture, schema_bytes: int
) -> None:
    """It was listed, and each call of it was an internal error."""
    parameters = [{"name": f"p{number}", "in": "query", "schema": {"type": "string"}} for number in range(20_000)]
    operation = {**get("many")["get"], "parameters": parameters}
    spec = {**SPEC, "paths": {"/many": {"get": operation}, "/few": get("few")}}
    server = Server.from_openapi(spec, base_url="https://x.example", schema_bytes=schema_bytes)
    assert [tool.name for tool in server.list_tools()] == ["few"]
    assert "GET /many is left out: the JSON Schema holds 20,002 objects, and 5,000 is the limit" in caplog.text


async def test_credentials_go_where_the_scheme_says() -> None:
    async def token(ctx: Context) -> str:
        return f"for {ctx.client_info.name if ctx.client_info else 'nobody'}"

    async with api() as url:
        async with client_of(
            Server.from_openapi(SPEC, base_url=url, auth={"login": token}, headers={"X-App": "1"})
        ) as client:
            seen = json.loads((await client.call_tool("echo", {})).text)
            assert seen["auth"].startswith("Bearer for ")
            assert seen["x"] == "1"
        async with client_of(Server.from_openapi(SPEC, base_url=url, auth="secret")) as client:
            assert json.loads((await client.call_tool("echo", {})).text)["query"] == {"api_key": "secret"}
        async with client_of(Server.from_openapi(SPEC, base_url=url)) as client:
            result = await client.call_tool("echo", {})
            assert result.is_error
            assert "needs credentials (key or login)" in result.text


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"include": ["GET /pets/*"]}, ["getPet"]),
        ({"include": ["tag:pets"]}, ["getPet"]),
        ({"exclude": ["/odd/*", "raw", "echo"]}, ["getPet"]),
        ({"include": lambda operation: operation.path == "/echo"}, ["echo"]),
        ({"include": ["get*"], "names": {"getPet": "find_pet"}}, ["find_pet"]),
        ({"include": ["getPet", "echo"], "names": lambda operation: "same"}, ["same", "same_2"]),
    ],
)
def test_tools_are_chosen_and_named(options: dict[str, Any], names: list[str]) -> None:
    server = Server.from_openapi(SPEC, base_url="https://x.example", **options)
    assert [tool.name for tool in server.list_tools()] == names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'does not say where the API is: give base_url="https://'),
        ({"base_url": "ftp://x"}, "is not an http or https URL"),
        ({"base_url": "https://x", "auth": {"nobody": "s"}}, "auth names 'nobody'; the document's security schemes are: 'key', 'login'"),
        ({"base_url": "https://x", "include": ["nothing"]}, "no operation is left"),
        ({"base_url": "https://x", "include": "getPet"}, "take a list of patterns"),
        ({"bse_url": "https://x"}, "unknown option 'bse_url'; did you mean 'base_url'\\? from_openapi takes auth, base_url"),
    ],
)  # fmt: skip
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Server.from_openapi(SPEC, **options)


class Pet(BaseModel):
    name: str
    age: int | None = None


async def test_a_fastapi_application_is_called_without_a_socket() -> None:
    app = FastAPI(title="Kennel", version="3")

    @app.get("/pets/{number}", operation_id="get_pet")
    async def get_pet(number: int) -> Pet:
        if number != 1:
            raise HTTPException(404, "no such pet")
        return Pet(name="Rex")

    @app.post("/pets", operation_id="add_pet", status_code=201)
    async def add_pet(pet: Pet) -> Pet:
        return pet

    async with connect(Server.from_fastapi(app)) as client:
        assert (await client.call_tool("get_pet", {"number": 1})).data == {"name": "Rex", "age": None}
        assert (await client.call_tool("add_pet", {"name": "Tom", "age": 2})).data == {"name": "Tom", "age": 2}
        assert '404 Not Found. {"detail":"no such pet"}' in (await client.call_tool("get_pet", {"number": 2})).text
        assert "missing required argument 'name'" in (await client.call_tool("add_pet", {})).text


async def test_tools_of_a_fastapi_application_are_named_like_its_functions() -> None:
    app = FastAPI()

    @app.get("/pets/{number}")
    async def pet(number: int) -> int:
        return number

    async def again() -> str:
        return "again"

    app.get("/first")(again)
    app.get("/second")(again)
    assert [tool.name for tool in Server.from_fastapi(app).list_tools()] == ["pet", "again", "again_second_get"]
    renamed = Server.from_fastapi(app, names={"pet_pets__number__get": "find_pet"}, include=["/pets/*"])
    assert [tool.name for tool in renamed.list_tools()] == ["find_pet"]


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_function_of_two_methods_is_two_tools_with_names_that_say_which(method: str) -> None:
    """FastAPI takes the method in their one id out of a set, so another one each time the program runs."""
    operation = {"operationId": f"price_shop_price_{method}"}
    spec = {**SPEC, "paths": {"/shop/price": {"get": operation, "post": operation}}}
    server = Server.from_openapi(spec, base_url="https://x.example")
    assert [(tool.name, tool.description) for tool in server.list_tools()] == [
        ("price", "GET /shop/price"),
        ("price_shop_price_post", "POST /shop/price"),
    ]


async def test_redirects_are_followed_within_a_fastapi_application_too() -> None:
    app = FastAPI()

    @app.post("/pets/")
    async def add(pet: Pet) -> RedirectResponse:
        return RedirectResponse(f"/named/{pet.name}", 303)

    @app.get("/named/{name}")
    async def named(name: str) -> str:
        return name

    @app.get("/away")
    async def away() -> RedirectResponse:
        return RedirectResponse("http://other.example/")

    document = app.openapi()
    document["paths"]["/pets"] = document["paths"].pop("/pets/")  # answered by 307: the same with a slash
    async with connect(Server.from_fastapi(app)) as client:
        assert (await client.call_tool("add_pets__post", {"name": "Rex"})).text == '"Rex"'
        assert "redirects GET to another address" in (await client.call_tool("away")).text


@pytest.mark.parametrize("base_url", [None, "api"])
async def test_an_operation_with_a_server_of_its_own_goes_there_unless_the_operator_says_where_the_api_is(
    base_url: str | None,
) -> None:
    """GitHub, Stripe and Box take uploads at another host. Whoever names one host means it for the credentials, too."""

    async def say_where(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.host} {request.path}")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", say_where)
    async with TestServer(app) as api, TestServer(app) as uploads:
        own_servers = [{"url": f"{uploads.make_url('/')}{{where}}", "variables": {"where": {"default": "up"}}}]
        spec = {
            **SPEC,
            "servers": [{"url": str(api.make_url("/v1"))}],
            "paths": {
                "/list": {"get": {"operationId": "list"}},
                "/put": {"servers": own_servers, "post": {"operationId": "put"}},
                "/add": {
                    "servers": [{"url": "https://x.invalid"}],
                    "post": {"operationId": "add", "servers": own_servers},
                },
            },
        }
        async with connect(Server.from_openapi(spec, base_url=base_url and str(api.make_url("/v1")))) as client:
            texts = [(await client.call_tool(name)).text for name in ("list", "put", "add")]
        api_host, other_host = (f"{server.host}:{server.port}" for server in (api, uploads))
    other = f"{api_host} /v1" if base_url else f"{other_host} /up"
    assert texts == [f"{api_host} /v1/list", f"{other}/put", f"{other}/add"]


class Answers:
    """An API that gives one answer after the other."""

    def __init__(self, *answers: ApiResponse) -> None:
        self._answers = list(answers)

    async def __call__(self, request: ApiRequest) -> ApiResponse:
        return self._answers.pop(0)

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *error: object) -> None: ...


async def test_headers_that_a_model_needs_are_told() -> None:
    pages = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("after", "per_page")]
    spec = {
        **SPEC,
        "paths": {"/pets": {"get": {"operationId": "list", "parameters": pages}, "post": {"operationId": "add"}}},
    }
    link = (
        '<https://a.example/pets?per_page=2>; rel="prev", <https://a.example/pets?after=Y3%3D&per_page=2>; rel="next"'
    )
    answers = Answers(
        ApiResponse(200, "application/json", b"[1]", {"link": link}),
        ApiResponse(200, "application/json", b"[1]", {"link": link.replace("next", "last")}),
        ApiResponse(429, "text/plain", b"slow down.", {"retry-after": "30"}),
        ApiResponse(201, "", b"", {"location": "/pets/7"}),
    )
    async with connect(Server.from_openapi(spec, send=answers)) as client:
        page = (await client.call_tool("list")).content
        assert [block.text for block in page] == ["[1]", "The next page: after=Y3=, per_page=2"]
        assert len((await client.call_tool("list")).content) == 1
        assert (await client.call_tool("list")).text == (
            "GET /pets answered 429 Too Many Requests. slow down. Try again in 30 seconds."
        )
        assert (await client.call_tool("add")).text == "POST /pets: 201 Created, without a body; see /pets/7"


def test_from_fastapi_wants_an_application() -> None:
    with pytest.raises(ConfigError, match="takes a FastAPI application"):
        Server.from_fastapi(lambda: None)
