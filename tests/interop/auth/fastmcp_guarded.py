# pyright: reportMissingImports=false
"""A FastMCP server, run by `.tools/peers/fastmcp`, that only those may call who have a token.

fastmcp_guarded.py PORT ISSUER               /mcp: tokens are JWTs
fastmcp_guarded.py PORT ISSUER ID SECRET     /opaque: the issuer is asked about each token, every time
"""

from __future__ import annotations

import sys
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider, TokenVerifier
from fastmcp.server.auth.providers.introspection import IntrospectionTokenVerifier
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token

port, issuer, inquirer = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
path = "/opaque" if inquirer else "/mcp"
limits: dict[str, Any] = {"audience": f"http://127.0.0.1:{port}{path}", "required_scopes": ["notes:read"]}
verifier: TokenVerifier
if inquirer:
    verifier = IntrospectionTokenVerifier(
        introspection_url=f"{issuer}/token/introspection", client_id=inquirer[0], client_secret=inquirer[1], **limits
    )
else:
    verifier = JWTVerifier(jwks_uri=f"{issuer}/jwks", issuer=issuer, algorithm="ES256", **limits)
guard = RemoteAuthProvider(verifier, authorization_servers=[issuer], base_url=f"http://127.0.0.1:{port}")
server = FastMCP("guarded", auth=guard)


@server.tool
def whoami() -> dict[str, Any]:
    """Who is calling."""
    token = get_access_token()
    assert token is not None
    return {"subject": token.claims["sub"], "scopes": sorted(token.scopes)}


@server.tool
def write(text: str) -> dict[str, Any]:
    """Write it down."""
    return {"written": len(text)}


server.run("http", host="127.0.0.1", port=port, path=path, show_banner=False, log_level="ERROR")
