from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from tests.support.until import until

from trimaran import Context, Server, connect
from trimaran.auth import Bearer
from trimaran.errors import CallError, ConfigError
from trimaran.serve import HttpServer

from .conftest import child, fetch, gateway_of, url_of

pytestmark = pytest.mark.slow

SECRET = "a secret of sixteen bytes and more"
JWT = f'[gateway.auth]\nprovider = "bearer"\nprovider_opts = {{ secret = "{SECRET}" }}\n'


def token(subject: str) -> str:
    claims = {"sub": subject, "exp": int(time.time()) + 3600}
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET))


@contextlib.asynccontextmanager
async def notes() -> AsyncIterator[tuple[str, str, list[dict[str, Any]]]]:
    """A server that takes tokens of its own issuer only: its URL, the token endpoint, and what that was asked."""
    requests: list[dict[str, Any]] = []
    known: dict[str, str] = {}
    server = Server("notes")

    @server.tool
    async def whoami(ctx: Context) -> str:
        return str(ctx.auth.subject if ctx.auth else None)

    @server.custom_route("/token", methods=["POST"])
    async def issue(request: Any) -> Any:
        form = {key: values[0] for key, values in parse_qs(request.text).items()}
        requests.append(form)
        subject = "gateway"
        if "subject_token" in form:
            subject = jwt.decode(form["subject_token"], OctKey.import_key(SECRET)).claims["sub"]
            if subject == "eve":
                return 400, {"error": "access_denied"}
        issued = f"issued-{len(known)}"
        known[issued] = subject
        reply = {"access_token": issued, "token_type": "Bearer", "expires_in": 3600}
        return {**reply, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}

    def verify(issued: str) -> Any:
        return {"subject": known[issued]} if issued in known else None

    async with HttpServer(server, port=0, auth=Bearer(verifier=verify)) as http:
        yield http.url, http.url.replace("/mcp", "/token"), requests


def remote(url: str, oauth: str) -> str:
    return f'[server.notes]\ntransport = "http"\nurl = "{url}"\n{oauth}\n'


PRIVATE = {"TRIMARAN_ALLOW_PRIVATE": "1"}


async def test_a_header_comes_from_a_variable() -> None:
    server = Server("keyed")

    @server.tool
    async def greet() -> str:
        return "hello"

    async with HttpServer(server, port=0, auth=Bearer(verifier=lambda text: text == "from-the-variable")) as http:
        text = remote(http.url, 'headers = { Authorization = "Bearer ${TOKEN}" }')
        async with gateway_of(text, variables={"TOKEN": "from-the-variable"}) as gateway:
            async with connect(gateway.url) as client:
                assert (await client.call_tool("notes_greet")).data == "hello"


async def test_the_gateway_has_credentials_of_its_own() -> None:
    async with notes() as (url, token_url, requests):
        oauth = f'oauth = {{ mode = "client_credentials", client_id = "gw", client_secret = "gw-secret", token_url = "{token_url}" }}'
        async with gateway_of(remote(url, oauth), variables=PRIVATE) as gateway, connect(gateway.url) as client:
            assert (await client.call_tool("notes_whoami")).data == "gateway"
        assert [form["grant_type"] for form in requests] == ["client_credentials"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_the_token_of_each_caller_is_exchanged_and_never_handed_on(era: Any) -> None:
    async with notes() as (url, token_url, requests):
        oauth = (
            f'oauth = {{ mode = "token_exchange", client_id = "gw", client_secret = "gw-secret", token_url = "{token_url}", '
            'audience = "notes" }'
        )
        async with gateway_of(JWT + remote(url, oauth), variables=PRIVATE) as gateway:
            for name in ("ann", "bob", "ann"):
                async with connect(gateway.url, auth=token(name), era=era) as client:
                    for _ in range(2):
                        assert (await client.call_tool("notes_whoami")).data == name
            async with connect(gateway.url, auth=token("eve"), era=era) as client:
                with pytest.raises(CallError) as raised:
                    await client.call_tool("notes_whoami")
                assert raised.value.data == {"upstream": "notes", "kind": "unauthorized"}
        exchanged = [form for form in requests if "subject_token" in form]
        assert {form["audience"] for form in exchanged} == {"notes"}


async def test_tokens_cannot_be_exchanged_where_nobody_shows_one() -> None:
    oauth = 'oauth = { mode = "token_exchange", client_id = "gw", client_secret = "s", token_url = "http://127.0.0.1:9/token" }'
    with pytest.raises(ConfigError, match="exchanges the tokens of callers"):
        async with gateway_of(remote("http://127.0.0.1:9/mcp", oauth)):
            pass


COUNTER = """
import os
from trimaran import Server
server = Server("counter")
count = 0

@server.tool
async def up() -> str:
    global count
    count += 1
    return f"{count} {os.getpid()}"

server.run()
"""


async def test_a_server_with_state_gets_a_process_for_each_caller_and_there_is_a_cap(tmp_path: Any) -> None:
    script = tmp_path / "counter.py"
    script.write_text(COUNTER)
    settings = '[gateway]\nmax_connections_per_caller = 5\nmax_connections = 2\n[gateway.server.counter]\nconnections = "caller"\n'
    text = settings + JWT + child("counter", str(script))
    async with gateway_of(text) as gateway:

        async def call(name: str) -> list[str]:
            async with connect(gateway.url, auth=token(name)) as client:
                return str((await client.call_tool("counter_up")).data).split()

        first, second = await call("ann"), await call("ann")
        assert (first[0], second[0]) == ("1", "2")
        assert first[1] == second[1]
        bob = await call("bob")
        assert bob[0] == "1"
        assert bob[1] != first[1]
        # A third caller takes the place of whoever was unused for longest.
        assert (await call("eve"))[0] == "1"
        assert (await call("bob"))[0] == "2"
        assert (await call("ann"))[0] == "1"
        assert 'connections{kind="caller",server="counter"} 2.0' in read_metrics(gateway)


def read_metrics(gateway: Any) -> str:
    return gateway.metrics.render().decode()


async def test_a_session_that_the_server_forgot_is_opened_anew() -> None:
    server = Server("notes")

    @server.tool
    async def read() -> str:
        return "a note"

    http = HttpServer(server, port=0)
    async with http:
        text = f'[server.notes]\ntransport = "http"\nurl = "{http.url}"\noauth = "off"\n'
        async with gateway_of(text) as gateway, connect(gateway.url, era="legacy") as client:
            assert (await client.call_tool("notes_read")).data == "a note"
            for session in server.list_sessions():
                await server.end_session(session.id)
            await until(lambda: gateway.served["notes"].is_up)
            assert (await client.call_tool("notes_read")).data == "a note"
            assert (await fetch(url_of(gateway, "/servers/notes/health")))[0] == 200
