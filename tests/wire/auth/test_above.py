"""A server inside a larger application: who is calling was found out above, and metadata is served from there (R148, R149)."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser, SimpleUser, UnauthenticatedUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from tests.support.harness import AsgiCarrier, Wire

from trimaran import Context, Server
from trimaran.auth import AnyOf, ApiKey, AsgiRequest, FromScope, Principal, ProtectedResource, Refused
from trimaran.errors import ConfigError
from trimaran.serve import AuthMiddleware, HttpServer, MetadataMiddleware

WELL_KNOWN = "/.well-known/oauth-protected-resource"


def server() -> Server:
    made = Server("above", version="1")

    @made.tool
    async def whoami(ctx: Context) -> dict[str, Any]:
        if ctx.auth is None:
            return {"subject": None}
        return {
            "subject": ctx.auth.subject,
            "scopes": sorted(ctx.auth.scopes),
            "tenant": ctx.auth.claims.get("tenant"),
        }

    @made.tool(scopes=["write"])
    async def guarded() -> str:
        return "in"

    return made


def under(app: Any, *middleware: Middleware, path: str = "/api", routes: Any = ()) -> Wire:
    outer = Starlette(routes=[*routes, Mount(path, app)], middleware=list(middleware))
    return Wire(AsgiCarrier(outer), f"{path}/mcp", app.engine)


async def who(wire: Wire, headers: dict[str, str] | None = None) -> Any:
    reply = await wire.call("whoami", headers=headers or {})
    return reply.result["structuredContent"] if reply.status == 200 else reply.status


class NamedUser(BaseUser):
    """As Starlette's documents have it, with an identity."""

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def display_name(self) -> str:
        return "Ada"

    @property
    def identity(self) -> str:
        return "user-7"


class Backend(AuthenticationBackend):
    """Reads who it is from a header of its own."""

    async def authenticate(self, conn: Any) -> Any:
        found = conn.headers.get("x-user")
        if found is None:
            return None
        user = NamedUser() if found == "named" else SimpleUser(found)
        return AuthCredentials(["authenticated", *conn.headers.get("x-scopes", "").split()]), user


STARLETTE = Middleware(AuthenticationMiddleware, backend=Backend())


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_who_starlette_has_authenticated_is_ctx_auth(era: str) -> None:
    """R149: the user by its name, its credentials' scopes as scopes; whoever is not authenticated is refused."""
    app = server().asgi("/mcp", auth=FromScope())
    wire = under(app, STARLETTE)
    headers = {"X-User": "ada", "X-Scopes": "read"}
    if era == "modern":
        assert await who(wire, headers) == {"subject": "ada", "scopes": ["authenticated", "read"], "tenant": None}
        assert await who(wire, {"X-User": "named"}) == {
            "subject": "user-7",
            "scopes": ["authenticated"],
            "tenant": None,
        }
        assert await who(wire) == 401
    else:
        session = await wire.initialize(headers=headers)
        assert (await session.call("whoami")).result["structuredContent"]["subject"] == "ada"
        # Its session is nobody else's (R102).
        assert (await session.ask("tools/list", headers={"X-User": "eve"})).status == 404
        await session.delete()
    await app.aclose()


async def test_scopes_of_above_are_the_scopes_of_tools() -> None:
    """R149, R183."""
    app = server().asgi("/mcp", auth=FromScope(required_scopes=["authenticated"]))
    wire = under(app, STARLETTE)
    refused = await wire.call("guarded", headers={"X-User": "ada"})
    assert refused.error["data"] == {"required_scopes": ["write"]}
    assert (await wire.call("guarded", headers={"X-User": "ada", "X-Scopes": "write"})).status == 200
    await app.aclose()


class Claims(BaseHTTPMiddleware):
    """What FastAPI users write: verified claims on `request.state`."""

    async def dispatch(self, request: Request, call_next: Any) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        known = {
            "good": {"sub": "ada", "scope": "read", "scp": ["write"], "tenant": 7},
            "old": {"sub": "ada", "exp": 1},
        }
        request.state.claims = known.get(token)
        return await call_next(request)


async def test_claims_that_a_middleware_left_on_request_state_are_ctx_auth() -> None:
    """R149, R178: also in a subclass of BaseHTTPMiddleware, which wraps everything below it."""
    app = server().asgi("/mcp", auth=FromScope("claims"))
    wire = under(app, Middleware(Claims))
    good = {"Authorization": "Bearer good"}
    assert await who(wire, good) == {"subject": "ada", "scopes": ["read", "write"], "tenant": 7}
    assert await who(wire) == 401
    expired = await wire.call("whoami", headers={"Authorization": "Bearer old"})
    assert (expired.status, expired.json["error"]["data"]) == (401, {"error": "invalid_token"})
    await app.aclose()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_of_the_scope_may_find_them_anywhere(is_async: bool) -> None:
    """R149."""

    def find(scope: Any) -> Any:
        return {"subject": scope["state"]["claims"]["sub"], "scopes": ["all"]} if scope["state"]["claims"] else None

    async def find_later(scope: Any) -> Any:
        return find(scope)

    app = server().asgi("/mcp", auth=FromScope(find_later if is_async else find))
    wire = under(app, Middleware(Claims))
    assert (await who(wire, {"Authorization": "Bearer good"}))["scopes"] == ["all"]
    assert await who(wire) == 401
    await app.aclose()


async def test_who_is_nobody_above_may_be_nobody_here() -> None:
    app = server().asgi("/mcp", auth=FromScope(allow_anonymous=True))
    wire = under(app, STARLETTE)
    assert await who(wire) == {"subject": None}
    assert (await who(wire, {"X-User": "ada"}))["subject"] == "ada"
    await app.aclose()


@pytest.mark.parametrize("auth", [FromScope(), FromScope("claims"), FromScope(lambda scope: scope["claims"])])
async def test_without_the_layer_above_nobody_is_let_in(auth: FromScope, caplog: pytest.LogCaptureFixture) -> None:
    """A forgotten middleware is the operator's mistake: 500, and the log says which."""
    app = server().asgi("/mcp", auth=auth)
    wire = under(app)
    assert await who(wire) == 500
    assert await who(wire, {"Authorization": "Bearer good", "X-User": "ada"}) == 500
    assert "FromScope" in caplog.text
    await app.aclose()


def scope_request(**scope: Any) -> Any:
    return SimpleNamespace(scope=scope, headers={}, method="POST", path="/mcp", query="", url=None, address=None)


class DjangoUser:
    """As Django's: a number for a key, and a name."""

    is_authenticated = True
    pk = 42
    username = "ada"


@pytest.mark.parametrize(
    ("scope", "subject"),
    [
        ({"user": DjangoUser()}, "42"),
        ({"user": SimpleNamespace(is_authenticated=lambda: True, email="a@b.example")}, "a@b.example"),
        ({"user": "ada"}, "ada"),
        ({"user": {"sub": "ada"}}, "ada"),
        ({"user": {"subject": "ada"}}, "ada"),
        ({"user": Principal(subject="ada")}, "ada"),
        ({"user": SimpleNamespace(is_authenticated=True, claims={"sub": "ada"})}, "ada"),
        ({"user": "eve", "trimaran.principal": Principal(subject="ada")}, "ada"),
    ],
)
async def test_users_of_many_kinds_have_a_name(scope: dict[str, Any], subject: str) -> None:
    found = await FromScope().authenticate(scope_request(**scope))
    assert found is not None
    assert found.subject == subject


@pytest.mark.parametrize(
    "user",
    [
        None,
        "",
        UnauthenticatedUser(),
        SimpleNamespace(is_authenticated=False),
        SimpleNamespace(is_authenticated=lambda: False),
    ],
)
async def test_nobody_is_refused(user: Any) -> None:
    with pytest.raises(Refused) as caught:
        await FromScope().authenticate(scope_request(user=user))
    assert caught.value.kind == "missing"


@pytest.mark.parametrize("user", [object(), SimpleNamespace(is_authenticated=True), {"scope": "a"}, {"sub": 5}, 5])
async def test_a_user_that_cannot_be_told_from_others_lets_nobody_in(
    user: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What belongs to a caller goes by its subject."""
    with pytest.raises(Refused) as caught:
        await FromScope().authenticate(scope_request(user=user))
    assert caught.value.kind == "server_error"
    assert caplog.records


def test_it_needs_an_application_above() -> None:
    for auth in (FromScope(), AnyOf(FromScope(), ApiKey(["k"]))):
        with pytest.raises(ConfigError, match=r"server\.asgi\(auth=FromScope\(\)\)"):
            HttpServer(server(), port=0, auth=auth)
    with pytest.raises(ConfigError, match="source"):
        FromScope(5)  # pyright: ignore[reportArgumentType]


# --- our own providers, above -----------------------------------------------------------------------------------------


async def show(request: Request) -> Response:
    principal = request.scope["trimaran.principal"]
    return JSONResponse({"subject": principal.subject})


async def test_our_providers_may_guard_a_whole_application() -> None:
    """R148, R149: one check for all its routes, and the server below hears of it."""
    auth = ApiKey({"good-key": {"subject": "ada", "scopes": ["write"]}})
    app = server().asgi("/mcp", auth=FromScope())
    wire = under(app, Middleware(AuthMiddleware, auth=auth), routes=[Route("/show", show)])
    good = {"X-API-Key": "good-key"}
    assert (await who(wire, good))["subject"] == "ada"
    assert (await wire.send("GET", good, path="/show")).json == {"subject": "ada"}
    for path in ("/show", "/api/mcp"):
        refused = await wire.send("GET", {}, path=path)
        assert refused.status == 401
        assert refused.headers["www-authenticate"] == 'ApiKey header="X-API-Key"'
    said = "credentials are needed here: send an API key in the header X-API-Key"
    assert (await wire.send("GET", {}, path="/show")).json == {"error": "unauthorized", "error_description": said}
    assert (await wire.call("whoami")).json["error"]["message"] == said  # an MCP client shows this
    preflight = {"Origin": "http://127.0.0.1:80", "Access-Control-Request-Method": "POST"}
    assert (await wire.send("OPTIONS", preflight, path="/api/mcp")).status == 204
    assert (await wire.send("OPTIONS", {}, path="/show")).status == 401
    await app.aclose()


async def test_a_websocket_without_credentials_is_closed() -> None:
    sent: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept", "who": scope["trimaran.principal"].subject})

    async def send(message: Any) -> None:
        sent.append(message)

    guarded = AuthMiddleware(inner, auth=ApiKey({"good-key": {"subject": "ada"}}))
    for headers in ([], [(b"x-api-key", b"good-key")]):
        await guarded({"type": "websocket", "path": "/", "headers": headers}, None, send)  # pyright: ignore[reportArgumentType]
    assert [message["type"] for message in sent] == ["websocket.close", "websocket.accept"]
    assert sent[1]["who"] == "ada"
    await guarded.aclose()


async def authorize(token: str, auth: Any, request: Any) -> Any:
    if token != "good":
        raise Refused("invalid_token")
    return {"sub": "ada", "aud": auth.resource, "scope": "read"}


def resource(url: str = "http://127.0.0.1/api/mcp", **options: Any) -> ProtectedResource:
    servers = ["https://login.example.com"]
    return ProtectedResource(resource=url, authorization_servers=servers, authorizer=authorize, **options)


async def test_metadata_of_a_server_under_a_prefix_is_served_by_a_middleware() -> None:
    """R148: at the root of the host, with the app mounted once; everything else goes where it went."""
    auth = resource()
    app = server().asgi("/mcp", auth=auth, host="127.0.0.1")
    wire = under(app, Middleware(MetadataMiddleware, auth=auth), routes=[Route("/", lambda request: Response("home"))])
    for path in (WELL_KNOWN, f"{WELL_KNOWN}/api/mcp"):
        found = await wire.send("GET", {}, path=path)
        assert (found.status, found.json["resource"]) == (200, "http://127.0.0.1/api/mcp")
    assert (await wire.send("GET", {}, path="/")).body == b"home"
    assert (await wire.send("GET", {}, path=f"{WELL_KNOWN}/other")).status == 404
    refused = await wire.call("whoami")
    assert f'resource_metadata="http://127.0.0.1{WELL_KNOWN}/api/mcp"' in refused.headers["www-authenticate"]
    assert (await who(wire, {"Authorization": "Bearer good"}))["subject"] == "ada"
    await app.aclose()


async def test_metadata_may_be_inside_the_prefix_and_challenges_point_there() -> None:
    """R148, R181: one mount, no middleware; any client that reads the challenge finds it."""
    url = f"http://127.0.0.1/api{WELL_KNOWN}/mcp"
    app = server().asgi("/mcp", auth=resource(resource_metadata_url=url), host="127.0.0.1")
    wire = under(app)
    refused = await wire.call("whoami")
    assert f'resource_metadata="{url}"' in refused.headers["www-authenticate"]
    assert (await wire.send("GET", {}, path=f"/api{WELL_KNOWN}/mcp")).json["resource"] == "http://127.0.0.1/api/mcp"
    await app.aclose()


async def test_with_the_check_above_the_metadata_is_public_all_the_same() -> None:
    """R148, R170."""
    app = server().asgi("/mcp", auth=FromScope())
    wire = under(app, Middleware(AuthMiddleware, auth=resource()))
    assert (await wire.send("GET", {}, path=f"{WELL_KNOWN}/api/mcp")).status == 200
    assert (await wire.call("whoami")).status == 401
    assert (await who(wire, {"Authorization": "Bearer good"}))["scopes"] == ["read"]
    await app.aclose()


async def test_routes_of_ones_own_serve_the_document_and_the_challenge() -> None:
    """R148, R170, R174: with public functions alone."""
    auth = resource(resource_name="Tides")

    async def document(request: Request) -> Response:
        return JSONResponse(auth.metadata(), headers={"Access-Control-Allow-Origin": "*"})

    async def tides(request: Request) -> Response:
        try:
            principal = await auth.authenticate(AsgiRequest(request.scope))
            if not principal.has_scope("write"):  # pyright: ignore[reportOptionalMemberAccess]
                raise auth.refusal("insufficient_scope", scopes=["write"])
        except Refused as refusal:
            return Response(refusal.body, refusal.status, headers=dict(refusal.headers))
        return JSONResponse({"subject": principal.subject})  # pyright: ignore[reportOptionalMemberAccess]

    path = f"{WELL_KNOWN}/api/mcp"
    outer = Starlette(routes=[Route(path, document), Mount("/v1", routes=[Route("/tides", tides)])])
    wire = Wire(AsgiCarrier(outer), "/mcp", server().engine())
    found = await wire.send("GET", {}, path=path)
    assert found.json == {
        "resource": "http://127.0.0.1/api/mcp",
        "authorization_servers": ["https://login.example.com"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Tides",
    }
    assert auth.metadata_url == f"http://127.0.0.1{path}"
    missing = await wire.send("GET", {}, path="/v1/tides")
    assert (missing.status, missing.headers["www-authenticate"]) == (
        401,
        f'Bearer resource_metadata="{auth.metadata_url}"',
    )
    bad = await wire.send("GET", {"Authorization": "Bearer bad"}, path="/v1/tides")
    assert 'error="invalid_token"' in bad.headers["www-authenticate"]
    lacking = await wire.send("GET", {"Authorization": "Bearer good"}, path="/v1/tides")
    assert lacking.status == 403
    assert 'error="insufficient_scope"' in lacking.headers["www-authenticate"]
    assert 'scope="write"' in lacking.headers["www-authenticate"]


def test_a_request_of_ones_own_framework_is_seen_whole() -> None:
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "https",
        "path": "/tides",
        "root_path": "/v1",
        "query_string": b"a=1",
        "headers": [(b"Host", b"a.example"), (b"x-a", b" 1 "), (b"X-A", b"2")],
        "client": ("203.0.113.7", 1),
    }
    request = AsgiRequest(scope)
    assert (request.method, request.path, request.query) == ("GET", "/v1/tides", "a=1")
    assert (request.url, request.address) == ("https://a.example/v1/tides", "203.0.113.7")
    assert request.headers.get("x-a") == "1, 2"
    assert AsgiRequest({**scope, "path": "/v1/tides", "headers": [], "client": None}).path == "/v1/tides"


async def test_expiry_of_above_counts_here() -> None:
    found = await FromScope().authenticate(scope_request(user={"sub": "ada", "exp": time.time() + 60}))
    assert found is not None
    assert found.expires_at is not None
