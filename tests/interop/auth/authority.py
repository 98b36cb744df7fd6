"""A real authorization server (oidc-provider) in a process of its own, and the people who log in there."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urljoin, urlsplit

import aiohttp
from joserfc.jwk import ECKey
from tests.support.ports import find_port

from ..harness import MODULES, NODE, need
from ..servers.places import HERE, Listening

Client = dict[str, Any]
SCOPES = ["notes:read", "notes:write"]
STEPS = 20  # pages and redirects until a person gives up; a login with consent takes 7


class Authority(Listening):
    """The authorization server, and who is registered there beforehand."""

    app: Client = {"client_id": "app", "client_secret": "app-secret-0123456789"}
    robot: Client = {"client_id": "robot", "client_secret": "robot secret: 50% of+it/is=odd"}
    poster: Client = {"client_id": "poster", "client_secret": "poster-secret-0123456789"}
    guard: Client = {"client_id": "guard", "client_secret": "guard-secret-0123456789"}
    """The resource server, which may ask about tokens."""

    def __init__(self) -> None:
        need(NODE, MODULES / "oidc-provider")
        key = ECKey.generate_key("P-256")
        self.private_key = key.as_pem(private=True).decode()
        public = dict(key.as_dict(private=False))
        no_login: dict[str, Any] = {"redirect_uris": [], "response_types": []}
        by_itself = no_login | {"grant_types": ["client_credentials"]}
        clients: list[dict[str, Any]] = [
            self.app
            | {
                "application_type": "native",
                "redirect_uris": ["http://127.0.0.1/callback"],
                "grant_types": ["authorization_code", "refresh_token"],
            },
            self.robot | by_itself,
            self.poster | by_itself | {"token_endpoint_auth_method": "client_secret_post"},
            by_itself
            | {
                "client_id": "signer",
                "token_endpoint_auth_method": "private_key_jwt",
                "token_endpoint_auth_signing_alg": "ES256",
                "jwks": {"keys": [public | {"use": "sig", "alg": "ES256"}]},
            },
            self.guard | no_login | {"grant_types": []},
        ]
        port = find_port()
        script = str(HERE / "oidc.mjs")
        super().__init__([str(NODE), script, "--http", str(port), "--clients", json.dumps(clients)], port)
        self.issuer = self.origin

    async def expire(self, access_token: str | None) -> None:
        """Let an opaque access token come to its end now."""
        async with aiohttp.ClientSession() as http, http.post(self.url("/expire"), data=access_token) as answer:
            assert answer.status == 204

    async def revoke(self, token: str | None, *, client_id: str | None = None) -> None:
        """Take back a token, as RFC 7009 has it: of the client `app`, or of one that registered itself and has no secret."""
        assert token is not None
        if client_id is None:
            status, _ = await self.post("/token/revocation", {"token": token}, client=self.app)
        else:
            form = {"token": token, "client_id": client_id}
            async with (
                aiohttp.ClientSession() as http,
                http.post(self.url("/token/revocation"), data=form) as answer,
            ):
                status = answer.status
        assert status == 200

    async def post(self, path: str, form: dict[str, str], *, client: Client) -> tuple[int, Any]:
        """Say something to the token endpoint or its neighbours, as a client with a secret."""
        # RFC 6749, 2.3.1: both are form-encoded before they are joined.
        pair = f"{quote_plus(client['client_id'])}:{quote_plus(client['client_secret'])}"
        headers = {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(self.url(path), data=form, headers=headers) as answer,
        ):
            return answer.status, await answer.json() if answer.content_length else None


class Person:
    """Somebody at a browser, who logs in as `name` and says yes to everything, or no.

    An instance is what `OAuth(login=...)` takes: it visits the given page and comes back with where it was sent to.
    """

    def __init__(self, name: str = "ada", *, consents: bool = True) -> None:
        self.name = name
        self.consents = consents
        self.asked: list[dict[str, str]] = []
        """The parameters of each authorization request."""
        self.last_page = ""

    async def visit(self, url: str) -> None:
        """Go all the way: be sent back to whoever listens on this machine, and look at what is shown there."""
        back = await self(url)
        async with aiohttp.ClientSession() as browser, browser.get(back) as page:
            self.last_page = await page.text()

    async def __call__(self, url: str) -> str:
        query = dict(parse_qsl(urlsplit(url).query))
        self.asked.append(query)
        cookies = aiohttp.CookieJar(unsafe=True)  # unsafe: of a host that is a number
        async with aiohttp.ClientSession(cookie_jar=cookies) as browser:
            method, form = "GET", None
            for _ in range(STEPS):
                async with browser.request(method, url, data=form, allow_redirects=False) as page:
                    if page.status in (302, 303):
                        url, method, form = urljoin(url, page.headers["location"]), "GET", None
                        if url.startswith(query["redirect_uri"]):
                            return url
                        continue
                    text = await page.text()
                    assert page.status == 200, f"{method} {url}: {page.status} {text[:2000]}"
                    seen = Form(text)
                    consent = seen.fields.get("prompt") == "consent"
                    if consent and not self.consents:
                        url, method, form = urljoin(url, seen.abort), "GET", None
                        continue
                    url, method, form = urljoin(url, seen.action), "POST", seen.fill(self.name)
        raise AssertionError(f"after {STEPS} pages still not back: {url}")


class Form(HTMLParser):
    """The form on a page: where it goes, what is in it, and the link by which it is left."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action = ""
        self.abort = ""
        self.fields: dict[str, str] = {}
        self.feed(page)
        assert self.action, f"there is no form on this page: {page[:2000]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "form":
            self.action = found.get("action") or ""
        elif tag == "input" and (name := found.get("name")):
            self.fields[name] = found.get("value") or ""
        elif tag == "a" and (link := found.get("href")) and link.endswith("/abort"):
            self.abort = link

    def fill(self, name: str) -> dict[str, str]:
        return {field: name if field in ("login", "password") else value for field, value in self.fields.items()}
