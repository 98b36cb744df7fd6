"""A host's logins, from `mcp.toml` to the call, with an authorization server on this machine (R246-R256).

What a login is made of has its own tests (tests/unit/oauth, tests/unit/transports, tests/auth). Here is whether a host that
was given an `mcp.toml` and a person comes to one, and what it says where it does not.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import socket
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import msgspec
import pytest
from tests.support.mean_authority import NOISE, Mean, digest
from tests.support.until import PATIENCE, soon

from trimaran import Host, connecting
from trimaran.client.negotiation import EraMemory
from trimaran.errors import AuthorizationFailed, ConfigError, LoginRequired, UnsafeUrl
from trimaran.host import Machine, ServerUnavailable, Source, read_config
from trimaran.oauth import Credentials, OAuth
from trimaran.state import MemoryTokens, token_key, token_storage
from trimaran.transports.loopback_login import LoopbackLogin

MACHINE = Machine(home="/home/ada", workspace="/work", environ={})


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Neither its browser nor its logins; and a port may have been another server's a moment ago."""
    monkeypatch.setattr(connecting, "_memory", EraMemory())
    monkeypatch.setattr(token_storage, "_warned", set[str]())
    monkeypatch.setitem(sys.modules, "keyring", None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "TRIMARAN_MCP_OAUTH_PORT"):
        monkeypatch.delenv(name, raising=False)
    yield


def host_of(mean: Mean, more: str = 'oauth = "auto"', *, keep: bool = False, **options: Any) -> Host:
    """A host of one server, `notes`; its logins are in memory, unless it is to keep them where it would."""
    text = f'[server.notes]\ntransport = "http"\nurl = "{mean.url}"\n{more}\n'
    config = read_config([(Source("mcp.toml", "file"), text)], MACHINE)
    assert not config.failed, config.failed
    if not keep:
        options.setdefault("tokens", MemoryTokens())
    return Host(config, allow=["*"], environ={}, **options)


async def whoami(host: Host) -> str:
    return (await soon(host.call("mcp__notes__whoami"))).text


async def visit(url: str) -> int:
    async with aiohttp.ClientSession() as browser, browser.get(url) as page:
        return page.status


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


async def is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


class Shown:
    """A page that a person was shown, and has not gone to yet."""

    def __init__(self, port: int | None = None) -> None:
        self._url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.login = LoopbackLogin(port=port, open_browser=False, show=self._url.set_result)

    async def url(self) -> str:
        return await soon(self._url)


async def record_of(store: Any, url: str, name: str = "notes") -> Credentials:
    found = Credentials.from_bytes(await store.load(token_key(name, url)) or b"")
    assert found is not None
    return found


# --- the flow --------------------------------------------------------------------------------------------------------


async def test_the_page_is_printed_the_code_exchanged_and_the_listener_closed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R246: with nothing said about how, a host does what a person at a terminal expects."""
    async with Mean() as mean, host_of(mean) as host:
        login = asyncio.ensure_future(host.authorize("notes"))
        printed = ""
        async with asyncio.timeout(PATIENCE):
            while "\n" not in printed:
                await asyncio.sleep(0.001)
                printed += capsys.readouterr().err
        url = printed.split()[-1]
        asked = query_of(url)
        back = urlsplit(asked["redirect_uri"])
        assert (back.scheme, back.hostname, back.path) == ("http", "127.0.0.1", "/callback")
        assert back.port is not None
        assert asked["code_challenge_method"] == "S256"
        assert await visit(await mean.browse(url)) == 200
        assert (await soon(login)).state == "connected"
        [exchange] = mean.token_requests()
        assert exchange.form["grant_type"] == "authorization_code"
        assert digest(exchange.form["code_verifier"]) == asked["code_challenge"]
        assert not await is_listening(back.port)
        assert await whoami(host) == "client-as-1"


async def test_the_port_is_any_or_the_one_that_is_named(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """R247: what the caller says comes first, then TRIMARAN_MCP_OAUTH_PORT."""
    shown: list[str] = []

    async def person(url: str) -> None:
        shown.append(query_of(url)["redirect_uri"])
        assert await visit(await mean.browse(url)) == 200

    monkeypatch.setenv("TRIMARAN_MCP_OAUTH_PORT", str(free_port))
    async with Mean() as mean, host_of(mean) as host:
        await soon(host.authorize("notes", login=LoopbackLogin(open_browser=False, show=person)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("TRIMARAN_MCP_OAUTH_PORT", str(port))
        async with Mean() as mean, host_of(mean) as host:
            with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*TRIMARAN_MCP_OAUTH_PORT"):
                await soon(host.authorize("notes", login=LoopbackLogin(open_browser=False, show=person)))
            await soon(host.authorize("notes", login=LoopbackLogin(port=free_port, open_browser=False, show=person)))
    assert shown == [f"http://127.0.0.1:{free_port}/callback"] * 2


async def test_a_login_is_kept_in_a_file_of_ones_own_where_there_is_no_keyring(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R248, C33: with a warning for who logs in, and none for who does not."""
    file = tmp_path / "data" / "trimaran" / "mcp-tokens.json"
    async with Mean() as mean:
        async with host_of(mean, keep=True, login=mean.browse) as host:
            assert host.status()[0].state == "needs_auth"
            assert not file.exists()
            assert "keyring" not in caplog.text
            await soon(host.authorize("notes"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert caplog.text.count("there is no keyring for logins") == 1
        assert str(file) in caplog.text
        assert token_key("notes", mean.url) in file.read_text()
        async with host_of(mean, keep=True) as host:
            assert await whoami(host) == "client-as-1"
    assert len(mean.opened) == 1


async def test_a_login_of_another_name_or_url_is_not_used() -> None:
    """C33: a project that calls its own server by a known name gets nobody's tokens."""
    store = MemoryTokens()
    async with Mean() as mean, Mean() as thief:
        async with host_of(mean, login=mean.browse, tokens=store) as host:
            await soon(host.authorize("notes"))
        async with host_of(thief, tokens=store) as host:
            assert host.status()[0].state == "needs_auth"
    assert all("authorization" not in seen.headers for seen in thief.seen)


async def test_a_token_is_used_until_a_minute_before_its_end_and_then_refreshed_in_silence() -> None:
    """R249: all that a later run needs is kept; a refresh token that is not replaced stays."""
    store = MemoryTokens()
    async with Mean() as mean:
        async with host_of(mean, login=mean.browse, tokens=store) as host:
            await soon(host.authorize("notes"))
        first = await record_of(store, mean.url)
        assert first.access_token is not None
        assert first.refresh_token is not None
        assert first.expires_at == pytest.approx(time.time() + 3600, abs=60)
        assert (first.scopes, first.resource) == (("notes",), mean.url)
        assert first.client is not None
        assert first.client.client_id == "client-as-1"

        for seconds, refreshes in ((3000, 0), (90, 0), (30, 1)):
            end = time.time() + seconds
            held = msgspec.structs.replace(first, issued_at=end - 3600, expires_at=end)
            await store.save(token_key("notes", mean.url), held.to_bytes())
            before = len(mean.seen)
            async with host_of(mean, tokens=store) as host:
                assert await whoami(host) == "client-as-1"
            assert len([seen for seen in mean.seen[before:] if seen.path == "/token"]) == refreshes, seconds
        [refresh] = mean.token_requests("refresh_token")
        assert refresh.form["refresh_token"] == first.refresh_token
        assert (await record_of(store, mean.url)).access_token != first.access_token
    assert len(mean.opened) == 1


# --- who is asked, and what ------------------------------------------------------------------------------------------


async def test_auto_goes_from_the_resource_to_its_first_authorization_server() -> None:
    """R250: what is to be known is found, nothing else is looked for; the resource says which scopes."""
    async with Mean() as mean, host_of(mean, login=mean.browse) as host:
        before = len(mean.seen)
        await soon(host.authorize("notes"))
        order = [repr(seen) for seen in mean.seen[before:] if seen.path != "/mcp"]
        assert order == [
            "rs GET /.well-known/oauth-protected-resource/mcp",
            "as GET /.well-known/oauth-authorization-server",
            "as POST /register",
            "as GET /authorize",
            "as POST /token",
        ]
        asked = query_of(mean.opened[0])
        assert (asked["scope"], asked["resource"]) == ("notes", mean.url)


async def test_manual_goes_where_it_is_told_and_discovers_nothing(free_port: int) -> None:
    """R250, R256: for machines where nothing may be looked up."""
    callback = f"http://127.0.0.1:{free_port}/callback"

    async def person(url: str) -> None:
        await visit(await mean.browse(url))

    async with Mean() as mean:
        mean.issuer.clients["ours"] = {"client_secret": "known", "redirect_uris": [callback]}
        more = (
            'oauth = "manual"\n[server.notes.oauth_config]\nclient_id = "ours"\nclient_secret = "known"\n'
            f'auth_url = "{mean.issuer.origin}/authorize"\ntoken_url = "{mean.issuer.origin}/token"\n'
            f'scopes = ["notes"]\naudience = "{mean.url}"'
        )
        async with host_of(mean, more) as host:
            assert host.status()[0].state == "needs_auth"
            login = LoopbackLogin(port=free_port, open_browser=False, show=person)
            assert (await soon(host.authorize("notes", login=login))).state == "connected"
            assert await whoami(host) == "ours"
    assert {seen.path for seen in mean.seen} == {"/mcp", "/authorize", "/token"}


async def test_a_client_is_the_configured_one_or_registers_for_the_port_that_listens_already() -> None:
    """R251."""
    shown = Shown()
    async with Mean() as mean:
        async with host_of(mean) as host:
            login = asyncio.ensure_future(host.authorize("notes", login=shown.login))
            url = await shown.url()
            [registration] = [seen.json for seen in mean.seen if seen.path == "/register"]
            asked = query_of(url)
            assert registration["redirect_uris"] == [asked["redirect_uri"]]
            assert registration["token_endpoint_auth_method"] == "none"
            assert registration["grant_types"] == ["authorization_code", "refresh_token"]
            assert await visit(await mean.browse(url)) == 200
            await soon(login)
        mean.seen.clear()
        mean.issuer.clients["ours"] = mean.issuer.clients[asked["client_id"]]
        port = urlsplit(asked["redirect_uri"]).port
        again = Shown(port)
        async with host_of(mean, '[server.notes.oauth_config]\nclient_id = "ours"') as host:
            login = asyncio.ensure_future(host.authorize("notes", login=again.login))
            assert await visit(await mean.browse(await again.url())) == 200
            await soon(login)
            assert await whoami(host) == "ours"
        assert not any(seen.path == "/register" for seen in mean.seen)


async def test_where_nobody_can_register_a_person_is_told_to_register_an_application() -> None:
    """R251."""
    async with Mean("no registration") as mean, host_of(mean, login=mean.browse) as host:
        with pytest.raises(AuthorizationFailed, match=r"register an application.*client_id"):
            await soon(host.authorize("notes"))
        assert mean.opened == []


@pytest.mark.parametrize(
    ("sin", "error", "said"),
    [
        ("issuer swapped", AuthorizationFailed, "issuer"),
        ("issuer normalised", AuthorizationFailed, "issuer"),
        ("plain http to browse", UnsafeUrl, "http://login.example"),
        ("token endpoint link-local", UnsafeUrl, "169.254.169.254"),
        ("registration private", UnsafeUrl, "192.168.0.1"),
        ("issuer link-local", UnsafeUrl, "169.254.169.254"),
    ],
)
async def test_what_is_discovered_must_be_safe_and_of_the_issuer_that_was_asked(
    sin: str, error: type[AuthorizationFailed], said: str
) -> None:
    """R252: nobody is sent anywhere, and nothing secret leaves."""
    async with Mean(sin) as mean, host_of(mean, login=mean.browse) as host:
        with pytest.raises(error, match=re.escape(said)):
            await soon(host.authorize("notes"))
        assert host.tools() == []
        assert (mean.opened, mean.token_requests(), mean.indiscretions()) == ([], [], [])


async def test_nobody_logs_in_to_an_endpoint_that_is_not_https() -> None:
    """R252: unless it is on this machine, as in all the other tests here."""
    text = '[server.notes]\ntransport = "http"\nurl = "http://notes.example/mcp"\ndisabled = true\n'
    config = read_config([(Source("mcp.toml", "file"), text)], MACHINE)
    async with Host(config, environ={}, tokens=MemoryTokens(), login=lambda url: url) as host:
        with pytest.raises(ConfigError, match="its URL is not https"):
            await host.authorize("notes")


# --- the way back ----------------------------------------------------------------------------------------------------


async def test_a_strange_visitor_does_not_end_a_login_and_a_refusal_does() -> None:
    """R253."""
    shown = Shown()
    async with Mean() as mean, host_of(mean) as host:
        login = asyncio.ensure_future(host.authorize("notes", login=shown.login))
        url = await shown.url()
        asked = query_of(url)
        back = await mean.browse(url)
        for other in ("wrong", asked["state"] + "x", ""):
            assert await visit(f"{asked['redirect_uri']}?code=c&state={other}") == 400
        assert not login.done()
        assert await visit(back) == 200
        assert (await soon(login)).state == "connected"
    async with Mean("login refused") as mean, host_of(mean, login=mean.browse) as host:
        with pytest.raises(AuthorizationFailed) as refused:
            await soon(host.authorize("notes"))
        assert refused.value.code == "access_denied"
        assert (host.status()[0].state, mean.token_requests()) == ("needs_auth", [])


@pytest.mark.parametrize("way", ["cancelled", "closed"])
async def test_a_login_that_is_given_up_stops_listening(way: str) -> None:
    """R253: by the person, or with the host; and nobody is waited for longer than five minutes."""
    assert inspect.signature(LoopbackLogin).parameters["timeout"].default == 300
    shown = Shown()
    async with Mean() as mean, host_of(mean) as host:
        login = asyncio.ensure_future(host.authorize("notes", login=shown.login))
        port = urlsplit(query_of(await shown.url())["redirect_uri"]).port
        assert port is not None
        assert await is_listening(port)
        if way == "cancelled":
            login.cancel()
        else:
            await soon(host.close())
        [end] = await soon(asyncio.gather(login, return_exceptions=True))
        assert isinstance(end, BaseException)
        assert not await is_listening(port)
        assert mean.token_requests() == []


# --- nobody there ----------------------------------------------------------------------------------------------------


async def test_a_host_never_opens_a_browser_by_itself() -> None:
    """R254: not at the start, not at a call, not at a reload; it says at once what to do."""
    async with Mean() as mean, host_of(mean, login=mean.browse) as host:
        for _ in range(2):
            (status,) = host.status()
            assert (status.state, status.retries) == ("needs_auth", False)
            with pytest.raises(ServerUnavailable, match=r"a person has to log in: host.authorize\('notes'\)"):
                await host.call("mcp__notes__whoami")
            await soon(host.reload("notes"))
        assert (mean.opened, mean.issuer.clients) == ([], {})


async def test_who_does_what_the_reason_says_has_logged_in() -> None:
    """R254: the command that is advised leads to a login that this host finds."""
    store = MemoryTokens()
    async with Mean() as mean, host_of(mean, tokens=store) as host:
        advice = re.search(r"`trimaran auth login (\S+)(?: --name (\S+))?`", host.status()[0].reason)
        assert advice is not None
        url, name = advice.groups()
        # As the command does, which calls a login by the host's name unless told otherwise.
        grant = OAuth(login=mean.browse, store=store, name=name or urlsplit(url).netloc)
        async with connecting.connect(url, auth=grant) as client:
            await client.list_tools()
        assert (await soon(host.reload("notes"))).state == "connected"


# --- what goes wrong -------------------------------------------------------------------------------------------------


async def test_a_server_that_wants_no_login_is_asked_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """R255, C31: `auto` is silent until a 401."""
    async with Mean() as mean:
        monkeypatch.setattr(mean.rs, "_refusal", lambda seen: None)
        async with host_of(mean) as host:
            assert host.status()[0].text == "connected (1 tool)"
    assert {(seen.house, seen.path) for seen in mean.seen} == {("rs", "/mcp")}
    assert all("authorization" not in seen.headers for seen in mean.seen)


@pytest.mark.parametrize("sin", ["issuer in HTML", "metadata in HTML", "no authorization servers"])
async def test_where_discovery_fails_the_server_says_so_until_it_is_mended(sin: str) -> None:
    """R255: it was asked without a login first, and what stands in the way of one is kept."""
    async with Mean(sin) as mean, host_of(mean) as host:
        (status,) = host.status()
        assert status.state == "needs_auth"
        assert "metadata" in status.reason
        mean.repent()
        await soon(host.authorize("notes", login=mean.browse))
        assert await whoami(host) == "client-as-1"


async def test_a_refresh_that_is_refused_clears_the_tokens_and_the_next_login_is_a_new_one() -> None:
    """R255: the call says so, the server is marked, and nobody is asked before somebody wants it."""
    store = MemoryTokens()
    changed = asyncio.Event()
    async with Mean("refresh refused") as mean:
        async with host_of(mean, login=mean.browse, tokens=store, on_change=changed.set) as host:
            await soon(host.authorize("notes"))
            mean.issuer.revoke_access()
            with pytest.raises(LoginRequired):
                await host.call("mcp__notes__whoami")
            async with asyncio.timeout(PATIENCE):
                while host.status()[0].state != "needs_auth":
                    changed.clear()
                    await changed.wait()
            held = await record_of(store, mean.url)
            assert (held.access_token, held.refresh_token) == (None, None)
            assert held.client is not None
            assert len(mean.opened) == 1
            assert (await soon(host.authorize("notes"))).state == "connected"
            assert await whoami(host) == "client-as-1"
        assert (len(mean.opened), len(mean.token_requests("refresh_token"))) == (2, 1)


@pytest.mark.parametrize("sin", ["error with 200", "error beside a token", "echo", "server error"])
async def test_a_refused_code_is_an_error_whatever_its_status_and_told_in_few_words(
    sin: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R255: a refusal with 200 is one; what a server says is cut, and holds nothing secret."""
    caplog.set_level(logging.DEBUG)
    async with Mean(sin) as mean, host_of(mean, login=mean.browse) as host:
        with pytest.raises(AuthorizationFailed) as failed:
            await soon(host.authorize("notes"))
        if sin != "server error":
            assert failed.value.code == "invalid_grant"
        told = f"{failed.value} {host.status()[0].reason}"
        assert NOISE[:8] not in told
        assert "x" * 513 not in told
        assert mean.spilled(told + caplog.text) == []
        assert host.status()[0].state == "needs_auth"


async def test_off_sends_its_headers_and_thinks_of_no_login() -> None:
    """R256."""

    def with_header(token: str) -> str:
        return f'oauth = "off"\nheaders = {{ Authorization = "Bearer {token}" }}'

    async with Mean() as mean:
        mean.issuer.access["static"] = {"client": "robot", "scope": "notes", "aud": mean.url, "jkt": None}
        async with host_of(mean, with_header("static")) as host:
            assert await whoami(host) == "robot"
        async with host_of(mean, with_header("stale")) as host:
            (status,) = host.status()
            assert (status.state, status.retries) == ("failed", False)
            with pytest.raises(ConfigError, match='it says oauth = "off"'):
                await host.authorize("notes", login=mean.browse)
    assert {(seen.house, seen.path) for seen in mean.seen} == {("rs", "/mcp")}
    assert {seen.headers["authorization"] for seen in mean.seen} == {"Bearer static", "Bearer stale"}
