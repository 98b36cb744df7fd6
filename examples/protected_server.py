"""An HTTP server that takes the tokens of an authorization server: an OAuth 2.1 protected resource.

    ISSUER=https://login.example.com PUBLIC_URL=https://tides.example.com/mcp python examples/protected_server.py
    trimaran auth login https://tides.example.com/mcp
    claude mcp add --transport http tides https://tides.example.com/mcp

The issuer has to give out JWTs whose `aud` is PUBLIC_URL, to the byte. To try it without one, with three terminals:

    python examples/tiny_issuer.py
    python examples/protected_server.py
    python examples/unattended_agent.py

Set PORT to listen elsewhere. What stands before it on the way from PUBLIC_URL, TLS most of all, is a proxy's work.
"""

from __future__ import annotations

import os

from trimaran import Context, Server
from trimaran.auth import JwtAuthorizer, ProtectedResource, RateLimit

PORT = int(os.environ.get("PORT", "9090"))
PUBLIC_URL = os.environ.get("PUBLIC_URL", f"http://127.0.0.1:{PORT}/mcp")
ISSUER = os.environ.get("ISSUER", "http://127.0.0.1:9400")

auth = ProtectedResource(
    resource=PUBLIC_URL,
    authorization_servers=[ISSUER],
    # Signature, expiry, issuer, audience; and no one gets in at all without this scope.
    authorizer=JwtAuthorizer(issuer=ISSUER, required_scopes=["tides:read"]),
    # What clients are told to ask for, so that one login will do for the beginning.
    required_scopes=["tides:read"],
    scopes_supported=["tides:read", "tides:write"],
    resource_name="Tide tables",
)

server = Server("tides", version="1.0.0", instructions="High water at a few harbours.")
tides = {"Dover": "05:12", "Calais": "05:40"}


@server.tool(annotations={"readOnlyHint": True})
async def high_water(harbour: str) -> str:
    """When is the next high water?"""
    return tides.get(harbour, "unknown")


@server.tool(scopes=["tides:write"])
async def correct(harbour: str, time: str, ctx: Context) -> str:
    """Correct the table. A client without the scope is told to get it, and comes back."""
    tides[harbour] = time
    who = ctx.auth.subject if ctx.auth else "nobody"
    return f"{harbour}: {time}, says {who}"


if __name__ == "__main__":
    server.run("http", port=PORT, auth=auth, public_url=PUBLIC_URL, rate_limit=RateLimit(principal="600/minute"))
