"""A host logs in to other people's servers: the official SDK's and FastMCP's; oidc-provider issues the tokens.

All that the host knows is a URL and `oauth = "auto"` in an `mcp.toml`. Who comes later, in another process, is a program with
nobody beside it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.until import soon

from trimaran import Host
from trimaran.errors import AuthorizationFailed
from trimaran.host import ServerUnavailable
from trimaran.oauth import Credentials
from trimaran.state import FileTokens

from ..harness import DEADLINE, DRIVER_LIMIT
from .authority import Authority, Person
from .peers import SERVERS, guarded

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]

LATER = """
import asyncio, json, sys
from trimaran import Host

async def main(config, tokens):
    async with Host.load(config, tokens=tokens, environ={}) as host:
        (status,) = host.status()
        names = [tool.name for tool in host.tools()]
        found = (await host.call("mcp__notes__whoami")).data if names else None
        print(json.dumps({"state": status.state, "reason": status.reason, "tools": names, "whoami": found}))

asyncio.run(main(*sys.argv[1:]))
"""
TOOLS = ["mcp__notes__whoami", "mcp__notes__write"]


def write_config(folder: Path, url: str, oauth: str = "oauth = 'auto'") -> Path:
    file = folder / "mcp.toml"
    transport = "sse" if url.endswith("/sse") else "http"
    file.write_text(
        f"[server.notes]\ntransport = '{transport}'\nurl = '{url}'\nstartup_timeout = '20s'\n{oauth}\n"
        "[server.notes.permissions]\nallow = ['*']\n"
    )
    return file


async def held(store: FileTokens) -> Credentials:
    """The one login in a store, which is this server's."""
    [key] = await store.keys()
    assert key.startswith("notes:")
    found = Credentials.from_bytes(await store.load(key) or b"")
    assert found is not None
    return found


async def run_later(config: Path, tokens: Path) -> dict[str, Any]:
    """What a host in another process finds, with nobody there to log in."""
    nobody, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    command = [sys.executable, "-c", LATER, str(config), str(tokens)]
    child = await asyncio.create_subprocess_exec(*command, stdin=nobody, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(DRIVER_LIMIT):
            said, complaint = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, complaint.decode()
    return json.loads(said)


@pytest.mark.parametrize("server", SERVERS)
async def test_a_login_at_their_server_is_asked_for_made_kept_and_refreshed(
    authority: Authority, tmp_path: Path, server: str
) -> None:
    """R249, R250, R254, R255, R273: one login, then refreshes; and when there is nothing to refresh with, no wait."""
    person, store = Person("grace"), FileTokens(tmp_path / "tokens")
    with guarded(server, authority, path="/opaque").running() as there:
        url = there.url("/opaque")
        config = write_config(tmp_path, url)
        async with Host.load(config, tokens=store, login=person, environ={}) as host:
            (status,) = host.status()
            assert (status.state, status.text, status.glyph) == ("needs_auth", "needs re-auth", "◐"), status.reason
            assert host.tools() == []
            with pytest.raises(ServerUnavailable, match=r"host.authorize\('notes'\)"):
                await host.call("mcp__notes__whoami")
            assert (person.asked, await store.keys()) == ([], [])

            assert (await soon(host.authorize("notes"))).text == "connected (2 tools)"
            assert [tool.name for tool in host.tools()] == TOOLS
            expected = {"subject": "grace", "scopes": ["notes:read"]}
            assert (await soon(host.call("mcp__notes__whoami"))).data == expected
            first = await held(store)
            assert (first.server_url, first.issuer, first.name) == (url, authority.issuer, "notes")
            assert first.expires_at is not None

            await authority.expire(first.access_token)
            assert (await soon(host.call("mcp__notes__whoami"))).data == expected
            second = await held(store)
            assert second.access_token != first.access_token
            assert second.refresh_token not in (None, first.refresh_token)
            assert host.status()[0].state == "connected"
        [asked] = person.asked
        assert (asked["resource"], asked["code_challenge_method"]) == (url, "S256")

        good = {"state": "connected", "reason": "", "tools": TOOLS, "whoami": expected}
        assert await run_later(config, tmp_path / "tokens") == good
        assert (await held(store)).access_token == second.access_token
        await authority.expire(second.access_token)
        assert await run_later(config, tmp_path / "tokens") == good
        third = await held(store)
        assert third.access_token != second.access_token

        await authority.revoke(third.refresh_token, client_id=asked["client_id"])
        found = await run_later(config, tmp_path / "tokens")
        assert (found["state"], found["tools"]) == ("needs_auth", [])
        assert "needs a login" in found["reason"]
    assert len(person.asked) == 1


async def test_a_person_who_says_no_leaves_the_server_as_it_was(authority: Authority, tmp_path: Path) -> None:
    """R253, R273: and who then says yes is let in, by a host that was not started again."""
    store = FileTokens(tmp_path / "tokens")
    with guarded("python-sdk", authority).running() as there:
        async with Host.load(write_config(tmp_path, there.url()), tokens=store, environ={}) as host:
            with pytest.raises(AuthorizationFailed) as refused:
                await soon(host.authorize("notes", login=Person("ada", consents=False)))
            assert refused.value.code == "access_denied"
            assert host.status()[0].state == "needs_auth"
            assert host.tools() == []
            assert (await soon(host.authorize("notes", login=Person("ada")))).state == "connected"
            assert (await soon(host.call("mcp__notes__whoami"))).data["subject"] == "ada"


async def test_a_server_of_the_oldest_kind_is_logged_in_to_like_the_others(
    authority: Authority, tmp_path: Path
) -> None:
    """R229, R236: `oauth` is for `transport = "sse"`, too."""
    person, store = Person("grace"), FileTokens(tmp_path / "tokens")
    with guarded("python-sdk", authority, path="/sse").running() as there:
        config = write_config(tmp_path, there.url("/sse"))
        async with Host.load(config, tokens=store, login=person, environ={}) as host:
            (status,) = host.status()
            assert (status.state, status.transport) == ("needs_auth", "sse"), status.reason
            assert str(await soon(host.authorize("notes"))) == "● notes: connected (2 tools), sse"
            assert (await soon(host.call("mcp__notes__whoami"))).data["subject"] == "grace"
        async with Host.load(config, tokens=store, environ={}) as host:
            assert (await soon(host.call("mcp__notes__whoami"))).data["subject"] == "grace"
    assert len(person.asked) == 1


async def test_endpoints_that_are_written_down_are_enough(authority: Authority, tmp_path: Path) -> None:
    """R231, R256: an issuer that says who it is (`iss`, RFC 9207) to a host that was never told its name."""
    person, store = Person("grace"), FileTokens(tmp_path / "tokens")
    manual = (
        "oauth = 'manual'\n[server.notes.oauth_config]\n"
        f"client_id = '{authority.app['client_id']}'\nclient_secret = '{authority.app['client_secret']}'\n"
        f"auth_url = '{authority.url('/auth')}'\ntoken_url = '{authority.url('/token')}'\n"
        "scopes = ['notes:read', 'offline_access']\n"
    )
    with guarded("python-sdk", authority, path="/opaque").running() as there:
        config = write_config(tmp_path, there.url("/opaque"), manual)
        async with Host.load(config, tokens=store, login=person, environ={}) as host:
            assert host.status()[0].state == "needs_auth"
            assert (await soon(host.authorize("notes"))).state == "connected"
            assert (await soon(host.call("mcp__notes__whoami"))).data["subject"] == "grace"
            await authority.expire((await held(store)).access_token)
            assert (await soon(host.call("mcp__notes__whoami"))).data["subject"] == "grace"
        [asked] = person.asked
        assert asked["client_id"] == "app"
