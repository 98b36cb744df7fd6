"""An answer, a stream or a refusal of one caller is of no use to another."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import subprocess
import sys
import time
from typing import Any

import pytest
from tests.support.badges import ALICE, Badges, demo
from tests.support.harness import serve

from trimaran import Context, Server
from trimaran.auth import (
    Anonymous,
    AnyOf,
    Bearer,
    Custom,
    Introspection,
    Principal,
    ProtectedResource,
    Refused,
)
from trimaran.oauth.effects import HttpReply, HttpRequest

ISSUER = "https://login.example.com"
RESOURCE = "https://mcp.example.com/mcp"

SECRET = "0123456789abcdef0123456789abcdef"


def signed(**claims: Any) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    text = f"{part({'alg': 'HS256'})}.{part(claims)}"
    made = hmac.digest(SECRET.encode(), text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


async def test_who_showed_no_token_is_told_so_where_a_tool_needs_scopes(binding: str) -> None:
    """RFC 6750, 3.1: insufficient_scope is about a token. Without one it is 401, and says nothing of errors."""
    resource = ProtectedResource(
        resource=RESOURCE, authorization_servers=[ISSUER], authorizer=lambda token, auth, request: {"sub": "alice"}
    )
    async with serve(binding, demo(), auth=AnyOf(resource, Anonymous())) as wire:
        assert (await wire.call("whoami")).status == 200
        held = await wire.call("guarded", headers={"Authorization": "Bearer token"})
        assert held.status == 403
        refused = await wire.call("guarded")
        assert refused.status == 401
        assert "insufficient_scope" not in refused.headers["www-authenticate"]
        assert 'scope="read write"' in refused.headers["www-authenticate"]


async def test_a_stream_stays_open_as_long_as_its_token_would_be_accepted(binding: str) -> None:
    """Whoever set `clock_skew=300` means it for streams, too: or else a client listens again and again, in a circle."""
    auth = Bearer(secret=SECRET, clock_skew=300)
    headers = {"Authorization": f"Bearer {signed(sub='alice', exp=time.time() - 120)}"}
    server = demo()
    async with serve(binding, server, auth=auth) as wire:
        wanted = {"notifications": {"toolsListChanged": True}}
        async with await wire.open_modern("subscriptions/listen", wanted, id=3, headers=headers) as stream:
            assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
            server.notify.tools_changed()
            assert (await stream.message()).get("method") == "notifications/tools/list_changed"


@pytest.mark.parametrize("method", ["resources/read", "callback"])
async def test_what_a_handler_made_for_an_authenticated_caller_is_not_said_to_be_for_everybody(
    binding: str, method: str
) -> None:
    """Security 6.12: a cache between must not give alice's notes to bob."""

    class Callbacks:
        async def read_resource(self, uri: str, ctx: Context) -> str:
            return f"notes of {ctx.auth.subject if ctx.auth else None}"

    server = Server("notes", version="1", cache_ttl=60, callbacks=Callbacks() if method == "callback" else None)
    if method != "callback":

        @server.resource("notes://mine")
        async def mine(ctx: Context) -> str:
            return f"notes of {ctx.auth.subject if ctx.auth else None}"

    async with serve(binding, server, auth=Badges()) as wire:
        reply = await wire.modern("resources/read", {"uri": "notes://mine"}, headers=ALICE)
        assert reply.result["contents"][0]["text"] == "notes of alice"
        assert reply.result["ttlMs"] == 60000
        assert reply.result["cacheScope"] == "private"


class Asked:
    """A request as a provider sees it."""

    method, path, query, url, address = "POST", "/mcp", "", None, None

    def __init__(self, token: str) -> None:
        self.headers: Any = {"authorization": f"Bearer {token}"}


async def test_an_expired_principal_of_an_authorizer_is_refused_as_expired_claims_are(binding: str) -> None:
    """Whoever keeps principals in a table of its own would else let them in for ever."""
    gone = time.time() - 3600

    def authorizer(token: str, auth: Any, request: Any) -> Any:
        return {"sub": "alice", "exp": gone} if token == "claims" else Principal(subject="alice", expires_at=gone)

    auth = ProtectedResource(resource=RESOURCE, authorization_servers=[ISSUER], authorizer=authorizer)
    async with serve(binding, demo(), auth=auth) as wire:
        for token in ("claims", "principal"):
            reply = await wire.modern("tools/list", headers={"Authorization": f"Bearer {token}"})
            assert (token, reply.status) == (token, 401)


async def test_tokens_without_a_kid_are_accepted_soon_after_their_key_was_exchanged() -> None:
    """An issuer with one key names it nowhere: its new key is asked for as an unknown kid's would be."""
    from joserfc import jwt
    from joserfc.jwk import ECKey

    now = 1_800_000_000.0
    keys = [ECKey.generate_key("P-256")]

    async def published() -> Any:
        return {"keys": [keys[-1].as_dict(private=False)]}

    auth = Bearer(jwks=published, issuer=ISSUER, audience=RESOURCE, clock=lambda: now)
    await auth.start(None)

    async def status() -> int:
        claims = {"iss": ISSUER, "aud": RESOURCE, "sub": "alice", "exp": int(now) + 600}
        try:
            await auth.authenticate(Asked(jwt.encode({"alg": "ES256"}, claims, keys[-1])))
        except Refused as refusal:
            return refusal.status
        return 200

    try:
        assert await status() == 200
        keys.append(ECKey.generate_key("P-256"))
        now += 60
        assert await status() == 200
    finally:
        await auth.close()


@pytest.mark.parametrize("tokens", ["one token", "many tokens"])
async def test_strangers_do_not_each_open_a_connection_to_the_authorization_server(tokens: str) -> None:
    """As with threads: beyond so many that wait, callers are sent away; and one token is asked about once at a time."""
    going = most = 0

    async def fetch(request: HttpRequest) -> HttpReply:
        nonlocal going, most
        going += 1
        most = max(most, going)
        for _ in range(5):
            await asyncio.sleep(0)
        going -= 1
        return HttpReply(200, {"content-type": "application/json"}, b'{"active": true, "sub": "alice"}', request.url)

    auth = Introspection("https://login.example.com/introspect", "mcp", "secret")
    await auth.start(fetch)
    many = tokens == "many tokens"
    callers = [auth.authenticate(Asked(f"t{number}" if many else "t")) for number in range(1000)]
    await asyncio.gather(*callers, return_exceptions=True)
    assert most <= (256 if many else 1)


async def test_a_refusal_that_an_author_made_once_does_not_grow_with_each_caller() -> None:
    """Raised again and again, an exception keeps every frame it went through."""
    no = Refused("invalid_token")
    auth = Custom(authenticate=lambda token, state: no)
    for _ in range(50):
        with pytest.raises(Refused):
            await auth.authenticate(Asked("t"))
    length, frame = 0, no.__traceback__
    while frame is not None:
        length, frame = length + 1, frame.tb_next
    assert length < 20


_FORKED = """
import asyncio, base64, os, sys
from trimaran.auth import Basic, Refused, hash_password

auth = Basic({"alice": hash_password("secret", iterations=100_000)})

class Asked:
    method, path, query, url, address = "POST", "/mcp", "", None, None
    headers = {"authorization": "Basic " + base64.b64encode(b"alice:wrong").decode()}

async def ask():
    try:
        async with asyncio.timeout(20):
            await auth.authenticate(Asked())
    except Refused:
        return 0
    except TimeoutError:
        return 1

async def ask_all():
    return await asyncio.gather(*(ask() for _ in range(8)))

assert not any(asyncio.run(ask_all()))  # as many as there are threads, and more
pid = os.fork()
if pid == 0:
    os._exit(asyncio.run(ask()))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_passwords_are_checked_in_a_worker_though_its_parent_has_checked_some() -> None:
    """The threads of the parent are not there in the child."""
    done = subprocess.run([sys.executable, "-c", _FORKED], timeout=30, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
