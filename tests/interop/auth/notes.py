"""Our own server, guarded: a notebook that knows who writes in it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from tests.support.ports import find_port

from trimaran import Context, Server
from trimaran.auth import DPoP, Introspection, ProtectedResource
from trimaran.serve import HttpServer

from .authority import Authority


def notebook() -> Server:
    server = Server("notes")

    @server.tool
    def whoami(ctx: Context) -> dict[str, Any]:
        """Who is calling."""
        assert ctx.auth is not None
        return {"subject": ctx.auth.subject, "client": ctx.auth.client_id, "scopes": sorted(ctx.auth.scopes)}

    @server.tool(scopes=["notes:write"])
    def write(text: str) -> dict[str, int]:
        """Write it down."""
        return {"written": len(text)}

    return server


def inquiry(authority: Authority, required: Sequence[str]) -> Introspection:
    """Has the authority say what each token is worth, again every time."""
    return Introspection(
        authority.url("/token/introspection"),
        **authority.guard,
        issuer=authority.issuer,
        required_scopes=required,
        remember=0,
    )


@contextlib.asynccontextmanager
async def guarded_notes(
    authority: Authority,
    *,
    opaque: bool = False,
    dpop: bool = False,
    required: Sequence[str] = ("notes:read",),
) -> AsyncIterator[str]:
    """The notebook on a port of its own, for those with a token of the authority: its URL."""
    port = find_port()
    path = "/opaque" if opaque else "/mcp"
    resource = f"http://127.0.0.1:{port}{path}"
    guard = ProtectedResource(
        resource=resource,
        authorization_servers=[authority.issuer],
        authorizer=inquiry(authority, required) if opaque else None,
        required_scopes=required,
        dpop=DPoP(required=True, nonces=True) if dpop else None,
    )
    async with HttpServer(notebook(), port=port, path=path, auth=guard) as http:
        yield http.url
