"""Callers log in to servers themselves: a real issuer, a real browser made of redirects."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
import secrets
import urllib.parse
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port
from tests.support.redis import redis_server
from tests.support.until import until

from trimaran import Context, Server, connect
from trimaran.apps.gateway.gateway import Gateway
from trimaran.auth import ProtectedResource, Refused
from trimaran.errors import CallError
from trimaran.serve import HttpServer

from .conftest import fetch, gateway_of, machine, read, url_of
from .test_control import KEYS

pytestmark = pytest.mark.slow


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


def remote(name: str, url: str) -> str:
    return f'[server.{name}]\ntransport = "http"\nurl = "{url}"\n'


class Person:
    """Opens what it is asked to open, as a browser would."""

    def __init__(self, *, does_log_in: bool = True) -> None:
        self.pages: list[str] = []
        self.does_log_in = does_log_in

    async def __call__(self, question: Any) -> Any:
        if not self.does_log_in:
            return "decline"
        _, page = await fetch(question.url)
        self.pages.append(page)
        link = re.search(r'href="([^"]+)"', page)
        assert link is not None
        _, thanks = await fetch(link[1].replace("&amp;", "&"))
        assert "You may close this page" in thanks
        return "accept"


def client_of(gateway: Any, key: str, person: Person, **options: Any) -> Any:
    return connect(gateway.url, headers={"X-API-Key": key}, on_elicit=person, **options)


@contextlib.asynccontextmanager
async def issuer_at_work() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    async with HttpServer(issuer.server, port=issuer.port):
        yield issuer


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_each_caller_logs_in_once_and_calls_in_its_own_name(era: Any) -> None:
    async with issuer_at_work() as issuer, protected(issuer) as url, gateway_of(KEYS + remote("notes", url)) as gateway:
        ann, bob = Person(), Person()
        async with client_of(gateway, "ann-key-123", ann, era=era) as client:
            assert {tool.name for tool in await client.list_tools_all()} == {"notes_login", "notes_logout"}
            assert (await client.call_tool("notes_login")).data == "You are logged in to notes."
            assert "for the caller <b>ann</b>" in ann.pages[0]
            await until(lambda: gateway.served["notes"].is_up, "the catalog is listed with her login")
            await until(lambda: "notes_whoami" in gateway.server.tools.view)
            assert (await client.call_tool("notes_whoami")).data == "Ann"
        issuer.person = "Bob"
        async with client_of(gateway, "bob-key-123", bob, era=era) as client:
            # No login before: the call itself asks for one, and goes on.
            assert (await client.call_tool("notes_whoami")).data == "Bob"
            assert (await client.call_tool("notes_whoami")).data == "Bob"
            assert len(bob.pages) == 1
            await client.call_tool("notes_logout")
            assert (await client.call_tool("notes_whoami")).data == "Bob"
            assert len(bob.pages) == 2
        async with client_of(gateway, "ann-key-123", ann, era=era) as client:
            assert (await client.call_tool("notes_whoami")).data == "Ann"
        assert len(ann.pages) == 1


async def test_a_server_gets_no_token_by_the_login_of_another() -> None:
    """It names its issuer by itself, and may lie."""
    async with issuer_at_work() as issuer, protected(issuer) as first, protected(issuer) as second:
        text = KEYS + remote("notes", first) + remote("mails", second)
        person = Person()
        async with gateway_of(text) as gateway, client_of(gateway, "ann-key-123", person) as client:
            await client.call_tool("notes_login")
            await client.call_tool("mails_login")
        assert issuer.logins == 2


async def test_one_login_serves_every_server_that_shares_it() -> None:
    async with issuer_at_work() as issuer, protected(issuer) as first, protected(issuer) as second:
        shared = '[gateway]\nshared_logins = ["notes", "mails"]\n'
        text = shared + KEYS + remote("notes", first) + remote("mails", second)
        person = Person()
        async with gateway_of(text) as gateway, client_of(gateway, "ann-key-123", person) as client:
            await client.call_tool("notes_login")
            await client.call_tool("mails_login")
            await until(lambda: {"notes_whoami", "mails_whoami"} <= gateway.server.tools.view.keys())
            assert (await client.call_tool("mails_whoami")).data == "Ann"
            assert (await client.call_tool("notes_whoami")).data == "Ann"
        assert len(person.pages) == 1
        assert issuer.logins == 1


async def test_a_login_that_the_issuer_has_ended_is_asked_for_again() -> None:
    async with issuer_at_work() as issuer, protected(issuer) as url, gateway_of(KEYS + remote("notes", url)) as gateway:
        person = Person()
        async with client_of(gateway, "ann-key-123", person) as client:
            await client.call_tool("notes_login")
            await until(lambda: "notes_whoami" in gateway.server.tools.view)
            assert (await client.call_tool("notes_whoami")).data == "Ann"
            issuer.tokens.clear()  # the access token is over; the refresh token gets another one
            assert (await client.call_tool("notes_whoami")).data == "Ann"
            assert len(person.pages) == 1
            issuer.end_everything()
            with pytest.raises(CallError) as raised:
                await client.call_tool("notes_whoami")
            assert raised.value.data == {"upstream": "notes", "kind": "unauthorized"}
            assert (await client.call_tool("notes_whoami")).data == "Ann"
            assert len(person.pages) == 2
            await client.call_tool("notes_logout")
            assert set(issuer.revoked) >= {"access", "refresh"}


async def test_who_does_not_log_in_gets_a_typed_error() -> None:
    async with issuer_at_work() as issuer, protected(issuer) as url, gateway_of(KEYS + remote("notes", url)) as gateway:
        async with client_of(gateway, "ann-key-123", Person()) as client:
            await client.call_tool("notes_login")
            await until(lambda: "notes_whoami" in gateway.server.tools.view)
        for era in ("modern", "legacy"):
            async with client_of(gateway, "bob-key-123", Person(does_log_in=False), era=era) as client:
                with pytest.raises(CallError, match="you did not log in") as raised:
                    await client.call_tool("notes_whoami")
                assert raised.value.data == {"upstream": "notes", "kind": "login"}


async def test_logins_are_sealed_in_the_store_and_outlive_the_process(tmp_path: Path) -> None:
    keys = '[gateway]\nsecret_keys = ["the same key for all gateways"]\n'
    with redis_server(tmp_path) as redis:
        async with issuer_at_work() as issuer, protected(issuer) as url:
            text = keys + KEYS + remote("notes", url)
            person = Person()
            async with gateway_of(text, store=redis.url) as gateway:
                async with client_of(gateway, "ann-key-123", person) as client:
                    await client.call_tool("notes_login")
            (refresh,) = issuer._refresh  # pyright: ignore[reportPrivateUsage]
            written = await asyncio.to_thread((tmp_path / "appendonlydir").rglob, "*")
            assert not any(refresh.encode() in file.read_bytes() for file in written if file.is_file())
            async with gateway_of(text, store=redis.url) as gateway:
                async with client_of(gateway, "ann-key-123", Person(does_log_in=False)) as client:
                    assert (await client.call_tool("notes_login")).data == "You are logged in to notes."
        assert issuer.logins == 1


async def test_a_person_may_come_to_another_process_than_the_one_that_asked(tmp_path: Path) -> None:
    port = find_port()
    keys = f'[gateway]\nsecret_keys = ["the same key for all gateways"]\npublic_url = "http://127.0.0.1:{port}"\n'
    with redis_server(tmp_path) as redis:
        async with issuer_at_work() as issuer, protected(issuer) as url:
            text = keys + KEYS + remote("notes", url)
            config = read(text)
            async with (
                Gateway(config, port=port, store=redis.url, machine=machine()),
                Gateway(config, port=0, store=redis.url, machine=machine()) as second,
                connect(url_of(second, "/mcp"), headers={"X-API-Key": "ann-key-123"}, on_elicit=Person()) as client,
            ):
                assert (await client.call_tool("notes_login")).data == "You are logged in to notes."
