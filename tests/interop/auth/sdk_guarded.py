# pyright: reportMissingImports=false
"""A server of the official Python SDK, run by `.tools/peers/sdk`, that only those may call who have a token.

sdk_guarded.py PORT ISSUER
"""

from __future__ import annotations

import sys
from typing import Any

import jwt
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer

port, issuer = int(sys.argv[1]), sys.argv[2]
resource = f"http://127.0.0.1:{port}/mcp"
keys = jwt.PyJWKClient(f"{issuer}/jwks")


class Verifier(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            key = keys.get_signing_key_from_jwt(token)
            claims: dict[str, Any] = jwt.decode(token, key, algorithms=["ES256"], issuer=issuer, audience=resource)
        except jwt.PyJWTError:
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


uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="error", timeout_graceful_shutdown=1)
