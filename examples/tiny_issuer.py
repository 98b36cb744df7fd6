"""An authorization server for trying things out: one client, tokens for whatever it asks. Never let it near anything real.

    python examples/tiny_issuer.py
    curl http://127.0.0.1:9400/token -u agent:secret-of-an-example -d grant_type=client_credentials \
        -d resource=http://127.0.0.1:9090/mcp -d scope=tides:read
    claude mcp add --transport http tides http://127.0.0.1:9090/mcp --header "Authorization: Bearer <access_token>"

It shows how little examples/protected_server.py and examples/unattended_agent.py need of one: its name and endpoints at a
well-known path, its public keys, and a token endpoint. Set PORT to listen elsewhere.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

from joserfc import jwt
from joserfc.jwk import ECKey

PORT = int(os.environ.get("PORT", "9400"))
ISSUER = f"http://127.0.0.1:{PORT}"
CLIENTS = {"agent": "secret-of-an-example"}
LIFETIME = 300

key = ECKey.generate_key("P-256", {"kid": secrets.token_hex(4), "use": "sig", "alg": "ES256"})

DOCUMENTS: dict[str, Any] = {
    "/.well-known/oauth-authorization-server": {
        "issuer": ISSUER,
        "token_endpoint": f"{ISSUER}/token",
        "jwks_uri": f"{ISSUER}/keys",
        "response_types_supported": ["none"],
        "grant_types_supported": ["client_credentials"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic"],
    },
    "/keys": {"keys": [key.as_dict(private=False)]},
}


def issue(client_id: str, form: dict[str, str]) -> dict[str, Any]:
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "sub": client_id,
        "client_id": client_id,
        # RFC 8707: for this one server. A token for everything would be worth stealing.
        "aud": form["resource"],
        "scope": form.get("scope", ""),
        "iat": now,
        "exp": now + LIFETIME,
        "jti": secrets.token_hex(8),
    }
    token = jwt.encode({"alg": "ES256", "kid": key.kid, "typ": "at+jwt"}, claims, key)
    return {"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME, "scope": claims["scope"]}


def client_of(authorization: str) -> str | None:
    scheme, _, encoded = authorization.partition(" ")
    try:
        name, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return None
    known = CLIENTS.get(unquote_plus(name), "")
    is_known = bool(known) and secrets.compare_digest(known.encode(), unquote_plus(secret).encode())
    return unquote_plus(name) if scheme.lower() == "basic" and is_known else None


class Issuer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        document = DOCUMENTS.get(self.path)
        self.answer(404 if document is None else 200, document or {"error": "not_found"})

    def do_POST(self) -> None:
        length = min(int(self.headers.get("content-length") or 0), 65_536)
        form = dict(parse_qsl(self.rfile.read(length).decode("utf-8", "replace")))
        client_id = client_of(self.headers.get("authorization", ""))
        if self.path != "/token":
            self.answer(404, {"error": "not_found"})
        elif client_id is None:
            self.answer(401, {"error": "invalid_client"})
        elif form.get("grant_type") != "client_credentials":
            self.answer(400, {"error": "unsupported_grant_type"})
        elif not form.get("resource"):
            self.answer(400, {"error": "invalid_target", "error_description": "say which resource the token is for"})
        else:
            self.answer(200, issue(client_id, form))

    def answer(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody is watching."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Issuer).serve_forever()
