"""Headers and tokens of the caller reach the API only if the operator says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from trimaran import Server, connect
from trimaran.errors import ConfigError
from trimaran.openapi.requests import ApiRequest
from trimaran.openapi.responses import ApiResponse
from trimaran.serve import HttpServer

CALLER = {"Authorization": "Bearer callers", "X-Tenant": "blue", "X-Other": "1"}
SCHEMES = {
    "login": {"type": "oauth2", "flows": {}},
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
}
TENANT = {"name": "X-Tenant", "in": "header", "required": True, "schema": {"type": "string"}}


class Api:
    """Remembers the headers of the last request."""

    headers: Mapping[str, str]

    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *error: Any) -> None: ...

    async def __call__(self, request: ApiRequest) -> ApiResponse:
        self.headers = request.headers
        return ApiResponse(200, "text/plain", b"ok")


def spec(*, schemes: Mapping[str, Any] = SCHEMES, security: list[Any] | None = None) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": "look", "parameters": [TENANT]}
    if security is not None:
        operation["security"] = security
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "paths": {"/look": {"get": operation}},
        "components": {"securitySchemes": schemes},
    }


async def call(document: dict[str, Any], *, caller: Mapping[str, str] = CALLER, **options: Any) -> tuple[Any, Any]:
    """The result of a call over HTTP, and the headers that the API got."""
    api = Api()
    server = Server.from_openapi(document, send=api, **options)
    schema: Any = server.list_tools()[0].input_schema
    arguments = {"X-Tenant": "model"} if "X-Tenant" in schema["properties"] else {}
    async with HttpServer(server, port=0) as http:
        async with connect(f"http://127.0.0.1:{http.port}/mcp", headers=caller) as client:
            result = await client.call_tool("look", arguments)
    return result, getattr(api, "headers", None)


async def test_nothing_of_the_caller_is_passed_on_by_default() -> None:
    _, headers = await call(spec(), headers={"X-App": "ours"})
    assert {name for name in headers if name != "accept"} == {"x-tenant", "x-app"}
    assert headers["x-tenant"] == "model"


async def test_a_named_header_is_passed_on_and_is_no_argument() -> None:
    _, headers = await call(spec(), forward_headers=["x-tenant", "X-Missing"])
    assert headers["x-tenant"] == "blue"
    assert "x-other" not in headers
    assert "x-missing" not in headers


async def test_a_header_of_the_operator_is_no_argument() -> None:
    _, headers = await call(spec(), headers={"X-Tenant": "ours"})
    assert headers["x-tenant"] == "ours"


@pytest.mark.parametrize(
    ("schemes", "security", "expected"),
    [
        (SCHEMES, [{"login": []}], "Bearer callers"),
        (SCHEMES, [{}, {"login": []}], "Bearer callers"),
        (SCHEMES, [], None),
        (SCHEMES, None, None),
        ({}, None, "Bearer callers"),
    ],
)
async def test_the_token_is_passed_on_where_the_api_takes_one(
    schemes: Mapping[str, Any], security: list[Any] | None, expected: str | None
) -> None:
    _, headers = await call(spec(schemes=schemes, security=security), forward_token=True)
    assert headers.get("authorization") == expected


async def test_a_secret_of_the_operator_comes_before_the_callers_token() -> None:
    _, headers = await call(spec(security=[{"login": []}]), forward_token=True, auth={"login": "ours"})
    assert headers["authorization"] == "Bearer ours"


async def test_an_api_key_is_never_the_callers_token() -> None:
    result, headers = await call(spec(security=[{"key": []}]), forward_token=True)
    assert headers is None
    assert "needs credentials (key)" in result.text


async def test_a_caller_without_a_token_is_told_so() -> None:
    result, headers = await call(spec(security=[{"login": []}]), forward_token=True, caller={})
    assert headers is None
    assert "this call brought none" in result.text


async def test_a_document_without_schemes_takes_a_secret_as_a_bearer_token() -> None:
    _, headers = await call(spec(schemes={}), auth="ours")
    assert headers["authorization"] == "Bearer ours"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["Authorization"], "say forward_token=True"),
        (["Host"], "belongs to the connection"),
        (["mcp-method"], "belongs to the connection"),
        (["a b"], "is not a header"),
        ("x-tenant", "takes a list"),
    ],
)
def test_headers_that_cannot_be_passed_on_are_refused(names: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Server.from_openapi(spec(), send=Api(), forward_headers=names)


async def test_a_required_parameter_that_is_a_credential_is_filled_in() -> None:
    """Slack's document has the token beside its scheme, Trello's two keys of which it says that one is enough."""
    token = {"name": "token", "in": "header", "required": True, "description": "Authentication token.", "schema": {}}
    keys: dict[str, Any] = {name: {"type": "apiKey", "in": "header", "name": f"X-{name}"} for name in ("One", "Two")}
    slack = spec(schemes={"login": {"type": "oauth2", "flows": {}}}, security=[{"login": []}])
    slack["paths"]["/look"]["get"]["parameters"] = [token]
    _, headers = await call(slack, auth="secret")
    assert (headers["authorization"], headers["token"]) == ("Bearer secret", "secret")
    trello = spec(schemes=keys, security=[{"One": []}, {"Two": []}])
    parameters = [{"name": f"X-{name}", "in": "header", "required": True, "schema": {}} for name in keys]
    trello["paths"]["/look"]["get"]["parameters"] = parameters
    _, headers = await call(trello, auth={"One": "first", "Two": "second"})
    assert (headers["x-one"], headers["x-two"]) == ("first", "second")
