"""An authorization server, a server that takes its tokens, and a person who logs in with a browser made of redirects."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import http.client
import secrets
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

from tests.support.ports import find_port

from trimaran import Context, Server
from trimaran.auth import ProtectedResource, Refused
from trimaran.serve import HttpServer


class Issuer:
    """An authorization server that agrees to everything, in the name of whoever `person` is."""

    def __init__(self) -> None:
        self.port = find_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.person = "Ann"
        self.logins = 0
        self.refreshes = 0
        self.tokens: dict[str, tuple[str, str]] = {}
        self.lifetime = 3600
        self._codes: dict[str, tuple[str, str, str]] = {}
        self._refresh: dict[str, str] = {}
        self.server = Server("issuer")
        self.server.custom_route("/.well-known/oauth-authorization-server")(self.describe)
        self.server.custom_route("/register", methods=["POST"])(self.register)
        self.server.custom_route("/authorize")(self.authorize)
        self.revoked: list[str] = []
        self.server.custom_route("/revoke", methods=["POST"])(self.revoke)
        self.server.custom_route("/token", methods=["POST"])(self.token)

    async def describe(self, request: Any) -> Any:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
        }

    async def register(self, request: Any) -> Any:
        return 201, {**request.json(), "client_id": f"client-{secrets.token_hex(4)}"}

    async def authorize(self, request: Any) -> Any:
        self.logins += 1
        query, code = request.query_params, secrets.token_hex(8)
        self._codes[code] = (self.person, query["resource"], query["code_challenge"])
        back = urllib.parse.urlencode({"code": code, "state": query["state"], "iss": self.url})
        return 302, "", {"location": f"{query['redirect_uri']}?{back}"}

    def end_everything(self) -> None:
        self.tokens.clear()
        self._refresh.clear()

    async def revoke(self, request: Any) -> Any:
        token = urllib.parse.parse_qs(request.text)["token"][0]
        self.revoked.append(token.partition("-")[0])
        return 200, ""

    async def token(self, request: Any) -> Any:
        form = {key: values[0] for key, values in urllib.parse.parse_qs(request.text).items()}
        if form["grant_type"] == "refresh_token":
            self.refreshes += 1
            person, resource = self._refresh.pop(form["refresh_token"], None), form["resource"]
            if person is None:
                return 400, {"error": "invalid_grant"}
        else:
            person, resource, challenge = self._codes.pop(form["code"])
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == challenge
        access, refresh = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.tokens[access] = (person, resource)
        self._refresh[refresh] = person
        return {"access_token": access, "token_type": "Bearer", "expires_in": self.lifetime, "refresh_token": refresh}


@contextlib.asynccontextmanager
async def protected(issuer: Issuer) -> AsyncIterator[str]:
    """A server that takes the tokens that the issuer made for it."""
    port = find_port()
    url = f"http://127.0.0.1:{port}/mcp"
    server = Server("notes")

    @server.tool
    async def whoami(ctx: Context) -> str:
        return str(ctx.auth.subject if ctx.auth else None)

    def authorize(token: str, auth: Any, request: Any) -> Any:
        person, resource = issuer.tokens.get(token, ("", ""))
        if resource != url:
            raise Refused("invalid_token")
        return {"sub": person}

    auth = ProtectedResource(
        resource=url,
        authorization_servers=[issuer.url],
        authorizer=authorize,
        allow_insecure_authorization_servers=True,
    )
    async with HttpServer(server, port=port, auth=auth):
        yield url


@contextlib.asynccontextmanager
async def issuer_at_work(issuer: Issuer | None = None) -> AsyncIterator[Issuer]:
    issuer = issuer or Issuer()
    async with HttpServer(issuer.server, port=issuer.port):
        yield issuer


class Person:
    """Opens what it is asked to open, as a browser would."""

    def __init__(self, *, does_log_in: bool = True) -> None:
        self.pages: list[str] = []
        self.does_log_in = does_log_in
        self._browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    def send_cookie(self, cookie: str) -> None:
        """Send this one from now on."""
        self._browser.addheaders = [("Cookie", cookie)]

    def agree(self, url: str) -> tuple[int, str]:
        """Press the button of the login page, and go no further: the status, and where the browser is sent."""
        parts = urllib.parse.urlsplit(url)
        with contextlib.closing(http.client.HTTPConnection(parts.netloc, timeout=30)) as connection:
            connection.request("POST", parts.path, b"")
            reply = connection.getresponse()
            return reply.status, reply.getheader("location") or ""

    def open(self, url: str, form: bytes | None = None) -> str:
        """The page at a URL, or what comes of a form, redirects followed."""
        with self._browser.open(url, form, timeout=30) as reply:
            return reply.read().decode()

    async def __call__(self, question: Any) -> Any:
        if not self.does_log_in:
            return "decline"
        page = await asyncio.to_thread(self.open, question.url)
        self.pages.append(page)
        assert '<form method="post">' in page
        thanks = await asyncio.to_thread(self.open, question.url, b"")
        assert "You may close this page" in thanks
        return "accept"
