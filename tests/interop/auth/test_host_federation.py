"""A host with servers of several owners, each with credentials of its own: ours, with oidc-provider as the issuer (R216).

The host is told how to authorize at each server in Python, or in an `mcp.toml`. What it was told nothing about, and what wants
a person, it asks for only when it is told to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.until import soon

from trimaran import Host, connect
from trimaran.errors import ConfigError
from trimaran.host import Machine, ServerUnavailable, load_config
from trimaran.oauth import ClientCredentials, OAuth
from trimaran.state import MemoryTokens
from trimaran.transports.loopback_login import LoopbackLogin

from ..harness import DEADLINE
from .authority import SCOPES, Authority, Person
from .notes import guarded_notes

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]

WHOAMI = "mcp__notes__whoami"


@pytest_asyncio.fixture
async def url(authority: Authority) -> AsyncIterator[str]:
    async with guarded_notes(authority, required=SCOPES) as url:
        yield url


def robot(authority: Authority, **changes: Any) -> ClientCredentials:
    return ClientCredentials(**authority.robot | changes)


def host_of(target: Any, **options: Any) -> Host:
    return Host({"notes": target}, allow=["*"], environ={}, tokens=MemoryTokens(), **options)


async def subject(host: Host) -> str:
    return (await soon(host.call(WHOAMI))).data["subject"]


# --- credentials of a program ----------------------------------------------------------------------------------------


async def test_a_mapping_holds_the_credentials_beside_the_url(authority: Authority, url: str) -> None:
    """R211, R216: per-server connect options in the mapping."""
    async with host_of({"url": url, "auth": robot(authority)}) as host:
        assert host.status()[0].state == "connected", host.status()[0].reason
        assert await subject(host) == "robot"


async def test_a_prepared_client_is_taken_for_what_it_was_made_with(authority: Authority, url: str) -> None:
    """R216: `connect(...)` in place of a target; the host connects by itself, also a second time."""
    async with host_of(connect(url, auth=robot(authority), timeout=5)) as host:
        assert await subject(host) == "robot"
        assert (await soon(host.reload("notes"))).state == "connected"
        assert await subject(host) == "robot"


async def test_a_server_is_started_with_options_of_its_own(authority: Authority, url: str) -> None:
    """R216: start_server(name, target), with `auth` in it; the other server has other credentials."""
    async with host_of({"url": url, "auth": robot(authority)}) as host:
        await soon(host.start_server("mine", url, auth=ClientCredentials(**authority.poster)))
        assert await subject(host) == "robot"
        assert (await soon(host.call("mcp__mine__whoami"))).data["subject"] == "poster"


async def test_client_credentials_come_from_mcp_toml_with_the_secret_in_a_variable(
    authority: Authority, url: str, tmp_path: Path
) -> None:
    """R211, R232: and neither status nor log says the secret."""
    file = tmp_path / "mcp.toml"
    file.write_text(
        f"[server.notes]\ntransport = 'http'\nurl = '{url}'\noauth = 'client_credentials'\n"
        "[server.notes.oauth_config]\nclient_id = 'robot'\nclient_secret = '${ROBOT_SECRET}'\n"
        "[server.notes.permissions]\nallow = ['*']\n"
    )
    secret = authority.robot["client_secret"]
    machine = Machine(home=str(tmp_path), workspace=str(tmp_path), environ={"ROBOT_SECRET": secret})
    async with Host(load_config(file, machine=machine), environ={}) as host:
        assert host.status()[0].state == "connected", host.status()[0].reason
        assert await subject(host) == "robot"
        assert secret not in repr(host.config) + str(host.status())


async def test_a_key_in_a_file_is_read_when_it_is_needed(authority: Authority, url: str, tmp_path: Path) -> None:
    """R211: private_key_jwt; the key never travels, and stands in no configuration."""
    (tmp_path / "robot.pem").write_text(authority.private_key)
    file = tmp_path / "mcp.toml"
    file.write_text(
        f"[server.notes]\ntransport = 'http'\nurl = '{url}'\n[server.notes.permissions]\nallow = ['*']\n"
        "[server.notes.oauth]\nmode = 'client_credentials'\nclient_id = 'signer'\nprivate_key_file = 'robot.pem'\n"
    )
    machine = Machine(home=str(tmp_path), workspace=str(tmp_path), environ={})
    async with Host(load_config(file, machine=machine), environ={}) as host:
        assert await subject(host) == "signer"


async def test_credentials_that_are_refused_fail_with_the_reason_and_without_the_secret(
    authority: Authority, url: str
) -> None:
    """R273: no person can help, so it is not a login that is asked for; nor is it tried again."""
    async with host_of({"url": url, "auth": robot(authority, client_secret="not-the-secret")}) as host:  # noqa: S106
        (status,) = host.status()
        assert (status.state, status.retries) == ("failed", False)
        assert "invalid_client" in status.reason
        assert "not-the-secret" not in status.reason
        with pytest.raises(ConfigError, match=r"auth=ClientCredentials; fix them, then host.reload\('notes'\)"):
            await host.authorize("notes")


# --- a person logs in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["url", "mapping", "prepared"])
async def test_a_mapped_server_that_answers_401_needs_authorization_and_is_authorized(url: str, form: str) -> None:
    """R216, R254, R255, R273: whatever way it was given; nobody is asked before."""
    person = Person("grace")
    target = {"url": url, "mapping": {"url": url, "headers": {"X-Team": "sails"}}, "prepared": connect(url)}[form]
    async with host_of(target, login=person) as host:
        (status,) = host.status()
        assert (status.state, status.text) == ("needs_auth", "needs re-auth"), status.reason
        with pytest.raises(ServerUnavailable, match=r"host.authorize\('notes'\)"):
            await host.call(WHOAMI)
        assert person.asked == []
        assert (await soon(host.authorize("notes"))).state == "connected"
        assert await subject(host) == "grace"
        assert (await soon(host.reload("notes"))).state == "connected"
    assert len(person.asked) == 1


async def test_the_login_goes_through_a_page_of_this_machine(url: str) -> None:
    """R246: the loopback listener, where the browser comes back to."""
    person = Person("ada")

    def show(page: str) -> None:
        visits.append(asyncio.ensure_future(person.visit(page)))

    visits: list[asyncio.Future[None]] = []
    async with host_of(url) as host:
        login = LoopbackLogin(open_browser=False, show=show)
        assert (await soon(host.authorize("notes", login=login))).state == "connected"
        assert await subject(host) == "ada"
        await asyncio.gather(*visits)


async def test_a_grant_that_could_ask_a_person_is_not_let_to_by_itself(authority: Authority, url: str) -> None:
    """R254: `OAuth(login=...)` in the mapping is how `authorize` asks, and not a leave to ask at the start."""
    person = Person("grace")
    grant = OAuth(**authority.app, login=person, scopes=[*SCOPES, "offline_access"])
    async with host_of({"url": url, "auth": grant}) as host:
        assert host.status()[0].state == "needs_auth"
        assert person.asked == []
        assert (await soon(host.authorize("notes"))).state == "connected"
        assert await subject(host) == "grace"
    [asked] = person.asked
    assert asked["client_id"] == "app"


async def test_a_server_that_is_added_and_wants_a_login_stays_to_be_authorized(url: str) -> None:
    """R216: as one of the mapping does; whoever added it is told what to do."""
    person = Person("grace")
    async with Host({}, allow=["*"], environ={}, tokens=MemoryTokens(), login=person) as host:
        with pytest.raises(ServerUnavailable, match="a person has to log in") as refused:
            await soon(host.start_server("notes", url))
        assert refused.value.status.state == "needs_auth"
        assert (await soon(host.authorize("notes"))).state == "connected"
        assert await subject(host) == "grace"
