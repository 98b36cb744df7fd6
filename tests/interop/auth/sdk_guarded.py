# pyright: reportMissingImports=false
"""A server of the official Python SDK, run by `.tools/peers/sdk`, that only those may call who have a token.

sdk_guarded.py PORT ISSUER               /mcp: tokens are JWTs
sdk_guarded.py PORT ISSUER ID SECRET     /opaque: the issuer is asked about each token, every time
"""

from __future__ import annotations

import sys
from typing import Any

import httpx2
import jwt
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer

port, issuer, more = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
over_sse = more == ["sse"]
inquirer = [] if over_sse else more
path = "/sse" if over_sse else "/opaque" if inquirer else "/mcp"
resource = f"http://127.0.0.1:{port}{path}"
keys = jwt.PyJWKClient(f"{issuer}/jwks")


def read(token: str) -> dict[str, Any] | None:
    try:
        key = keys.get_signing_key_from_jwt(token)
        return jwt.decode(token, key, algorithms=["ES256"], issuer=issuer, audience=resource)
    except jwt.PyJWTError:
        return None


async def ask(token: str) -> dict[str, Any] | None:
    async with httpx2.AsyncClient(auth=(inquirer[0], inquirer[1])) as http:
        answer = await http.post(f"{issuer}/token/introspection", data={"token": token})
    claims: dict[str, Any] = answer.raise_for_status().json()
    return claims if claims["active"] and claims["aud"] == resource else None


class Verifier(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        claims = await ask(token) if inquirer else read(token)
        if claims is None:
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            resource=resource,
            subject=claims.get("sub"),
        )


server = MCPServer(
    "guarded",
    token_verifier=Verifier(),
    auth=AuthSettings(
        issuer_url=issuer,
        resource_server_url=resource,
        required_scopes=["notes:read"],
        validate_token_resource=True,
    ),
    log_level="ERROR",
)


@server.tool()
def whoami() -> dict[str, Any]:
    """Who is calling."""
    token = get_access_token()
    assert token is not None
    return {"subject": token.subject, "scopes": sorted(token.scopes)}


@server.tool()
def write(text: str) -> dict[str, Any]:
    """Write it down."""
    return {"written": len(text)}


app = server.sse_app() if over_sse else server.streamable_http_app(streamable_http_path=path)
uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", timeout_graceful_shutdown=1)
