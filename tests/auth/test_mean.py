"""Our client against a mean authorization server: it is not fooled, tells nobody what they should not know, and says why.

Each row of `FALLS` orders one sin (see `mean.SINS`) and names the error, the step and the place it must name, a word of
what it must say, and the endpoints that must not have heard of us. Whatever the sin: no secret in any message or log, none
in a URL, none at a house it does not belong to. That is checked for every test here, the good paths included.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.mean_authority import SINS, Mean
from tests.support.until import until

from trimaran import connect, run_flow
from trimaran.errors import AuthorizationFailed, LoginRequired, Unauthorized, UnsafeUrl
from trimaran.oauth import (
    ClientCredentials,
    OAuth,
    client_metadata,
    discover_authorization_server,
    discover_protected_resource,
    register_client,
)
from trimaran.transports.fetch import Fetcher
from trimaran.transports.oauth_driver import OAuthDriver

PATIENCE = 25.0

PRM = "protected resource metadata"
ASM = "authorization server metadata"
REGISTRATION = "client registration"
LOGIN = "login"
TOKEN = "token request"


Enter = Callable[..., Any]


@pytest.fixture
def meet(caplog: pytest.LogCaptureFixture) -> Enter:
    """`async with meet("sin", ...) as mean`: what holds for all is checked at the end."""
    caplog.set_level(logging.DEBUG)

    @asynccontextmanager
    async def meeting(*sins: str, era: str = "modern") -> AsyncIterator[Mean]:
        async with asyncio.timeout(PATIENCE), Mean(*sins, era=era) as mean:
            yield mean
        assert mean.indiscretions() == []
        assert mean.spilled(caplog.text) == []

    return meeting


async def whoami(mean: Mean, auth: Any) -> str:
    """One connection, one call: as whom it was made."""
    async with connect(mean.url, auth=auth) as client:
        return (await client.call_tool("whoami")).text


async def fall(mean: Mean, auth: Any = None) -> AuthorizationFailed:
    """The error that a connection ends in; fit to be shown to anyone."""
    with pytest.raises(Unauthorized) as caught:
        await whoami(mean, auth if auth is not None else OAuth(login=mean.browse))
    error = caught.value
    told = "".join(traceback.format_exception(error)) + repr(error)
    assert mean.spilled(told) == []
    assert str(error).isprintable()
    assert len(str(error)) < 2000
    assert isinstance(error, AuthorizationFailed), repr(error)
    return error


def assume(monkeypatch: pytest.MonkeyPatch, made: Any, **options: Any) -> None:
    """Make it with other defaults than its own: what no option of `connect` can reach."""
    for name, value in options.items():
        assert name in made.__init__.__kwdefaults__
        monkeypatch.setitem(made.__init__.__kwdefaults__, name, value)


def origin(url: str) -> str:
    return "/".join(url.split("/")[:3])


class Fall(NamedTuple):
    sin: str
    kind: type[AuthorizationFailed]
    step: str
    says: str
    """What happened or what to do about it: a piece of the message."""
    untouched: str = "/token"
    """The first endpoint, of those on the way, that must not have been asked."""
    where: str = ""
    """What the URL that is named begins with, if not with that of one of our houses."""


WAY = ("/register", "/authorize", "/token")

FALLS = [
    Fall("challenge inward", UnsafeUrl, PRM, "not a safe URL", "/register", "http://169.254.169.254/"),
    Fall("no metadata", AuthorizationFailed, REGISTRATION, "client_id", "/authorize"),
    Fall("foreign resource", AuthorizationFailed, PRM, "is about 'https://bank.example/mcp'", "/register"),
    Fall("wider resource", AuthorizationFailed, PRM, "Connect to the URL it names", "/register"),
    Fall("no authorization servers", AuthorizationFailed, PRM, "its operator must correct it", "/register"),
    Fall("metadata in HTML", AuthorizationFailed, PRM, "cannot be read", "/register"),
    Fall("issuer link-local", UnsafeUrl, ASM, "not https", "/register", "http://169.254.169.254"),
    Fall("issuer private", UnsafeUrl, ASM, "10.0.0.1 is a private address", "/register", "https://10.0.0.1"),
    Fall("issuer swapped", AuthorizationFailed, ASM, "not of", "/register"),
    Fall("issuer normalised", AuthorizationFailed, ASM, "a trailing slash included", "/register"),
    Fall("issuer in HTML", AuthorizationFailed, ASM, "without JSON metadata", "/register"),
    Fall("redirect inward", UnsafeUrl, ASM, "not https", "/register", "http://169.254.169.254/"),
    Fall("redirect to a file", UnsafeUrl, ASM, "not an absolute https URL", "/register", "file:"),
    Fall("script to browse", UnsafeUrl, "authorization endpoint", "not a safe URL", "/register", "javascript:"),
    Fall("file to browse", UnsafeUrl, "authorization endpoint", "not a safe URL", "/register", "file:"),
    Fall(
        "plain http to browse", UnsafeUrl, "authorization endpoint", "not https", "/register", "http://login.example/"
    ),
    Fall("token endpoint link-local", UnsafeUrl, "token endpoint", "not https", "/register", "http://169.254.169.254/"),
    Fall("token endpoint private", UnsafeUrl, TOKEN, "a private address", "/token", "https://10.0.0.1/"),
    Fall("registration private", UnsafeUrl, REGISTRATION, "a private address", "/register", "https://192.168.0.1/"),
    Fall("no S256", AuthorizationFailed, ASM, "PKCE with S256", "/register"),
    Fall("no PKCE", AuthorizationFailed, ASM, "PKCE with S256", "/register"),
    Fall("no registration", AuthorizationFailed, REGISTRATION, "give its client_id", "/register"),
    Fall("registration refused", AuthorizationFailed, REGISTRATION, "give its client_id", "/authorize"),
    Fall("registration elsewhere", AuthorizationFailed, REGISTRATION, "other redirect URIs", "/authorize"),
    Fall("registration without id", AuthorizationFailed, REGISTRATION, "give its client_id", "/authorize"),
    Fall("iss missing", AuthorizationFailed, LOGIN, "(iss)"),
    Fall("iss foreign", AuthorizationFailed, LOGIN, "not trusted"),
    Fall("iss normalised", AuthorizationFailed, LOGIN, "not trusted"),
    Fall("iss unannounced", AuthorizationFailed, LOGIN, "not trusted"),
    Fall("state changed", AuthorizationFailed, LOGIN, "another state"),
    Fall("state missing", AuthorizationFailed, LOGIN, "another state"),
    Fall("no code", AuthorizationFailed, LOGIN, "neither a code nor an error"),
    Fall("login refused", AuthorizationFailed, LOGIN, "refused the login (access_denied): they said no"),
    Fall("foreign refusal", AuthorizationFailed, LOGIN, "not trusted"),
    Fall("mix-up", AuthorizationFailed, LOGIN, "not trusted"),
    Fall("code of another", AuthorizationFailed, TOKEN, "log in again", ""),
    Fall("no access_token", AuthorizationFailed, TOKEN, "without a token", ""),
    Fall("error with 200", AuthorizationFailed, TOKEN, "invalid_grant: but politely", ""),
    Fall("error beside a token", AuthorizationFailed, TOKEN, "invalid_grant", ""),
    Fall("echo", AuthorizationFailed, TOKEN, "invalid_grant", ""),
    Fall("mac tokens", AuthorizationFailed, TOKEN, "'mac'", ""),
    Fall("token with a line break", AuthorizationFailed, TOKEN, "a token that does not fit into a header", ""),
    Fall("token not text", AuthorizationFailed, TOKEN, "a token that does not fit into a header", ""),
    Fall("huge token reply", AuthorizationFailed, TOKEN, "more than", ""),
    Fall("endless token reply", AuthorizationFailed, TOKEN, "more than", ""),
    Fall("token reply in HTML", AuthorizationFailed, TOKEN, "answered 200", ""),
    Fall("token reply cut", AuthorizationFailed, TOKEN, "the answer of", ""),
    Fall("slow token reply", AuthorizationFailed, TOKEN, "no whole answer", ""),
    Fall("token endpoint moves", AuthorizationFailed, TOKEN, "redirects a POST", ""),
    Fall("server error", AuthorizationFailed, TOKEN, "answered 503", ""),
]


@pytest.mark.parametrize("case", FALLS, ids=lambda case: case.sin)
async def test_a_sin_is_found_out(case: Fall, meet: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    """R287. Whose rules: protocol.md 4.1; RFC 6749, 7591, 7636, 8414, 9207, 9728."""
    if case.sin == "slow token reply":
        assume(monkeypatch, Fetcher, timeout=0.2)
    async with meet(case.sin) as mean:
        error = await fall(mean)
        assert type(error) is case.kind
        assert error.step == case.step
        assert case.says in str(error)
        assert error.url.startswith(case.where or "http://127.0.0.1:")
        assert origin(error.url) in str(error)
        beyond = WAY[WAY.index(case.untouched) :] if case.untouched else ()
        assert [seen for seen in mean.seen if seen.path in beyond] == []
        assert mean.served == 0
        assert not mean.lines("other") or case.sin == "mix-up"


ADVICE = re.compile(
    r"\b(log in|try again|give|register|allow|connect|tell|ask|check|use|choose|operator)\b", re.IGNORECASE
)


@pytest.mark.slow
@pytest.mark.deadline(60)
async def test_every_failure_says_what_can_be_done(meet: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose rule: ours: what happened, where, and what to do. If only its operator can help, that is said."""
    silent: dict[str, str] = {}
    for case in FALLS:
        with monkeypatch.context() as hurry:
            if case.sin == "slow token reply":
                assume(hurry, Fetcher, timeout=0.2)
            async with meet(case.sin) as mean:
                said = str(await fall(mean))
        if not ADVICE.search(said):
            silent[case.sin] = said
    if silent:
        pytest.fail("no advice in:\n" + "\n".join(f"  {sin}: {said}" for sin, said in silent.items()), pytrace=False)


async def test_what_a_stranger_says_of_a_login_is_not_repeated(meet: Enter) -> None:
    """Whose rule: 2026-07-28, authorization: on a mismatch of iss, error and description are ignored too."""
    async with meet("foreign refusal") as mean:
        error = await fall(mean)
        assert "they said no" not in str(error)
        assert error.code is None


async def test_what_the_issuer_calls_the_trouble_can_be_read_by_a_program(meet: Enter) -> None:
    async with meet("login refused") as mean:
        assert (await fall(mean)).code == "access_denied"
    async with meet("code of another") as mean:
        assert (await fall(mean)).code == "invalid_grant"
    async with meet("registration refused") as mean:
        assert (await fall(mean)).code == "invalid_client_metadata"


async def test_a_client_secret_is_not_repeated_though_the_issuer_does(meet: Enter) -> None:
    """Both ways to send it: in a header, and in the form."""
    async with meet("echo") as mean:
        secret = "secret-HUSH-as-0"
        mean.issuer.clients["me"] = {"client_secret": secret, "redirect_uris": ["http://127.0.0.1/callback"]}
        error = await fall(mean, OAuth(client_id="me", client_secret=secret, login=mean.browse))
        assert "invalid_grant" in str(error)
        error = await fall(mean, ClientCredentials(client_id="me", client_secret=secret))
        assert "invalid_grant" in str(error)


async def test_a_refresh_token_is_not_repeated_though_the_issuer_does(meet: Enter) -> None:
    async with meet() as mean:
        grant = OAuth(login=mean.browse)
        await whoami(mean, grant)
        mean.issuer.revoke_access()
        mean.ordered.add("echo")
        await fall(mean, grant)
        assert len(mean.token_requests("refresh_token")) == 1


@pytest.mark.parametrize(
    "sin", ["expires_in negative", "expires_in huge", "expires_in text", "expires_in nonsense", "expires_in true"]
)
async def test_a_lifetime_that_makes_no_sense_does_no_harm(sin: str, meet: Enter) -> None:
    """Whose rule: ours. The token is used; the server's 401 has the last word."""
    async with meet(sin) as mean:
        grant = OAuth(login=mean.browse)
        assert await whoami(mean, grant) == "client-as-1"
        assert await whoami(mean, grant) == "client-as-1"
        assert len(mean.token_requests()) == 1


async def test_tokens_of_an_hour_or_a_moment_are_not_refreshed_for_every_call(meet: Enter) -> None:
    """Whose rule: ours. A token that lives shorter than we refresh ahead of time must not cost a refresh per request."""
    async with meet() as mean:
        mean.expires_in = 30
        async with connect(mean.url, auth=OAuth(login=mean.browse)) as client:
            for _ in range(10):
                await client.call_tool("whoami")
        assert len(mean.token_requests("refresh_token")) == 0


# --- refusals of the MCP server ---------------------------------------------------------------------------------------


async def test_a_server_that_is_never_content_is_given_up(meet: Enter) -> None:
    """Whose rule: ours. A person is not asked again and again."""
    async with meet("401 forever") as mean:
        with pytest.raises(Unauthorized) as caught:
            await whoami(mean, OAuth(login=mean.browse))
        assert caught.value.status == 401
        assert mean.spilled(f"{caught.value} {caught.value!r}") == []
        assert len(mean.opened) <= 2
        assert len(mean.token_requests()) <= 3


async def test_scopes_without_end_are_given_up_after_three_rounds(meet: Enter) -> None:
    """Whose rule: 2026-07-28, authorization: a few attempts; protocol.md 4.1 (13) says at most 3."""
    async with meet("403 forever") as mean:
        with pytest.raises(Unauthorized) as caught:
            await whoami(mean, OAuth(login=mean.browse))
        assert caught.value.status == 403
        assert mean.spilled(f"{caught.value} {caught.value!r}") == []
        assert 2 <= len(mean.opened) <= 1 + 3


async def test_more_scopes_are_asked_for_together_with_those_there_were(meet: Enter) -> None:
    """Whose rule: 2026-07-28, authorization: the union of scopes."""
    async with meet() as mean:
        async with connect(mean.url, auth=OAuth(login=mean.browse)) as client:
            await client.call_tool("whoami")
            mean.scope = "notes admin"
            # Its registration was for less, and an issuer may hold it to that: so there is another.
            assert (await client.call_tool("whoami")).text == "client-as-2"
        first, second = [seen.query["scope"] for seen in mean.seen if seen.path == "/authorize"]
        assert (first, set(second.split())) == ("notes", {"notes", "admin"})


async def test_a_server_that_does_not_challenge_is_found_at_its_well_known_place(meet: Enter) -> None:
    async with meet("no challenge") as mean:
        assert await whoami(mean, OAuth(login=mean.browse)) == "client-as-1"


async def test_noise_in_a_refusal_is_not_passed_on(meet: Enter) -> None:
    async with meet("loud server", "401 forever") as mean:
        with pytest.raises(Unauthorized) as caught:
            await whoami(mean, OAuth(login=mean.browse))
        assert "\x1b" not in str(caught.value) and "\r" not in str(caught.value)
        assert len(str(caught.value)) < 2000


# --- staying logged in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_login_from_nothing(era: str, meet: Enter) -> None:
    """Whose rule: protocol.md 4.1, step by step."""
    async with meet(era=era) as mean:
        assert await whoami(mean, OAuth(login=mean.browse, client_name="Notes")) == "client-as-1"
        way = [line for line in mean.lines() if "/mcp" not in line or "well-known" in line]
        assert way == [
            "rs GET /.well-known/oauth-protected-resource/mcp",
            "as GET /.well-known/oauth-authorization-server",
            "as POST /register",
            "as GET /authorize",
            "as POST /token",
        ]
        described = next(seen.json for seen in mean.seen if seen.path == "/register")
        assert (described["client_name"], described["application_type"]) == ("Notes", "native")
        [token] = mean.token_requests("authorization_code")
        assert token.form["resource"] == mean.url
        posts = [seen for seen in mean.seen if seen.house == "rs" and seen.path == "/mcp"]
        assert "authorization" not in posts[0].headers
        assert all(seen.headers["authorization"].startswith("Bearer ") for seen in posts[1:])


async def test_an_old_issuer_that_never_says_iss_is_taken_at_its_word(meet: Enter) -> None:
    """Whose rule: RFC 9207 and the table in protocol.md 4.1 (10): neither announced nor present."""
    async with meet("no iss") as mean:
        assert await whoami(mean, OAuth(login=mean.browse)) == "client-as-1"


async def test_a_token_is_refreshed_before_it_runs_out(meet: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose rule: R249."""
    moment = 1_000_000.0
    assume(monkeypatch, OAuthDriver, now=lambda: moment)
    async with meet("rotation") as mean:
        async with connect(mean.url, auth=OAuth(login=mean.browse)) as client:
            await client.call_tool("whoami")
            moment += 3500
            await client.call_tool("whoami")
            assert mean.token_requests("refresh_token") == []
            moment += 50
            await client.call_tool("whoami")
            await client.call_tool("whoami")
        assert len(mean.token_requests("refresh_token")) == 1
        statuses = [seen for seen in mean.seen if seen.path.startswith("/.well-known/oauth-protected")]
        assert len(statuses) == 1, "nobody was refused, so nobody had to look again"
        assert len(mean.opened) == 1


async def test_a_refused_token_is_refreshed_without_a_person(meet: Enter) -> None:
    async with meet("rotation") as mean:
        async with connect(mean.url, auth=OAuth(login=mean.browse)) as client:
            for _ in range(3):
                await client.call_tool("whoami")
                mean.issuer.revoke_access()
            assert (await client.call_tool("whoami")).text == "client-as-1"
        refreshes = mean.token_requests("refresh_token")
        assert len(refreshes) == 3
        assert len({seen.form["refresh_token"] for seen in refreshes}) == 3
        assert all(seen.form["resource"] == mean.url for seen in refreshes)
        assert (len(mean.opened), mean.issuer.thefts) == (1, 0)


async def test_a_refresh_token_without_a_successor_is_used_again(meet: Enter) -> None:
    """Whose rule: RFC 6749, 6."""
    async with meet() as mean:
        async with connect(mean.url, auth=OAuth(login=mean.browse)) as client:
            await client.call_tool("whoami")
            mean.ordered.add("no refresh token")
            for _ in range(2):
                mean.issuer.revoke_access()
                await client.call_tool("whoami")
        first, second = mean.token_requests("refresh_token")
        assert first.form["refresh_token"] == second.form["refresh_token"]
        assert len(mean.opened) == 1


@pytest.mark.parametrize("dpop", [False, True], ids=["bearer", "dpop"])
async def test_fifty_calls_refused_at_once_share_one_refresh(dpop: bool, meet: Enter) -> None:
    """Whose rule: R249 (single flight)."""
    async with meet("rotation") as mean:
        grant = OAuth(login=mean.browse, dpop=dpop)
        async with connect(mean.url, auth=grant) as client:
            await client.call_tool("whoami")
            mean.issuer.revoke_access()
            mean.gate = asyncio.Event()
            calls = [asyncio.create_task(client.call_tool("whoami")) for _ in range(50)]
            before = len(mean.lines("rs"))
            while len(mean.lines("rs")) < before + 50:  # all of them have been refused, or are about to be
                await asyncio.sleep(0.001)
            mean.gate.set()
            assert {(await call).text for call in calls} == {"client-as-1"}
        assert len(mean.token_requests("refresh_token")) == 1
        assert (len(mean.opened), mean.issuer.thefts) == (1, 0)


async def test_clients_that_share_a_grant_share_one_login(meet: Enter) -> None:
    """Whose rule: ours. A person who is asked by ten windows at once agrees to none of them."""
    async with meet() as mean:
        grant = OAuth(login=mean.browse)
        found = await asyncio.gather(*(whoami(mean, grant) for _ in range(10)))
        assert set(found) == {"client-as-1"}
        assert (len(mean.opened), len(mean.token_requests())) == (1, 1)


@pytest.mark.parametrize("kept", ["in memory", "in a file"])
async def test_clients_that_share_a_grant_share_one_refresh(kept: str, meet: Enter, tmp_path: Path) -> None:
    """Whose rule: R249. Two of them with one refresh token look like theft to an issuer that rotates."""
    async with meet("rotation") as mean:
        grant = OAuth(login=mean.browse, store=None if kept == "in memory" else tmp_path / "tokens.json")
        async with connect(mean.url, auth=grant) as one, connect(mean.url, auth=grant) as two:
            await one.call_tool("whoami")
            await two.call_tool("whoami")
            mean.issuer.revoke_access()
            mean.gate = asyncio.Event()
            before = len(mean.lines("rs"))
            calls = [asyncio.create_task(client.call_tool("whoami")) for client in (one, two)]
            await until(lambda: len([line for line in mean.lines("rs")[before:] if "POST" in line]) >= 2)
            await until(lambda: mean.token_requests("refresh_token"))
            mean.gate.set()
            assert [(await call).text for call in calls] == ["client-as-1", "client-as-1"]
        assert (mean.issuer.thefts, len(mean.opened)) == (0, 1)
        assert len(mean.token_requests("refresh_token")) == 1


@pytest.mark.parametrize("ending", ["the call is given up", "the client is closed"])
async def test_a_refresh_under_way_is_not_lost(ending: str, meet: Enter, tmp_path: Path) -> None:
    """Whose rule: ours. A refresh token that is spent without hearing the answer would be a login lost."""
    store = tmp_path / "tokens.json"
    async with meet("rotation") as mean:
        async with connect(mean.url, auth=OAuth(login=mean.browse, store=store)) as client:
            await client.call_tool("whoami")
            mean.issuer.revoke_access()
            mean.gate = asyncio.Event()
            call = asyncio.create_task(client.call_tool("whoami"))
            await until(lambda: mean.token_requests("refresh_token"))
            call.cancel()
            await asyncio.wait((call,))
            asyncio.get_running_loop().call_soon(mean.gate.set)
            if ending == "the call is given up":
                assert (await client.call_tool("whoami")).text == "client-as-1"
        assert await whoami(mean, OAuth(store=store)) == "client-as-1"
        assert (mean.issuer.thefts, len(mean.token_requests("refresh_token"))) == (0, 1)


async def test_a_dead_refresh_token_leads_to_one_login(meet: Enter) -> None:
    async with meet("refresh refused") as mean:
        async with connect(mean.url, auth=OAuth(login=mean.browse)) as client:
            await client.call_tool("whoami")
            mean.issuer.revoke_access()
            await client.call_tool("whoami")
        assert len(mean.token_requests("refresh_token")) == 1
        assert len(mean.opened) == 2


async def test_a_program_without_a_person_says_that_it_needs_one(meet: Enter, tmp_path: Path) -> None:
    """Whose rule: R246-R256: headless never waits."""
    async with meet("refresh refused") as mean:
        await whoami(mean, OAuth(login=mean.browse, store=tmp_path / "tokens.json"))
        mean.issuer.revoke_access()
        error = await fall(mean, OAuth(store=tmp_path / "tokens.json"))
        assert type(error) is LoginRequired
        assert error.step == LOGIN
        assert "trimaran auth login" in str(error)
        assert len(mean.opened) == 1


async def test_a_refresh_that_fails_today_does_not_end_the_login(meet: Enter) -> None:
    """A 503 is not a no: the refresh token is kept, and nobody is asked to log in."""
    async with meet("refresh broken") as mean:
        grant = OAuth(login=mean.browse)
        await whoami(mean, grant)
        mean.issuer.revoke_access()
        error = await fall(mean, grant)
        assert error.step == "token refresh"
        assert "503" in str(error)
        assert len(mean.opened) == 1
        mean.repent()
        assert await whoami(mean, OAuth(login=mean.browse)) == "client-as-2"


async def test_a_restart_needs_no_browser(meet: Enter, tmp_path: Path) -> None:
    """Whose rule: ours (P4: others forget the refresh token when they end)."""
    store = tmp_path / "tokens.json"
    async with meet("rotation") as mean:
        await whoami(mean, OAuth(login=mean.browse, store=store))
        assert await whoami(mean, OAuth(store=store)) == "client-as-1"
        assert len(mean.token_requests()) == 1
        mean.issuer.revoke_access()
        assert await whoami(mean, OAuth(store=store)) == "client-as-1"
        mean.issuer.revoke_access()
        assert await whoami(mean, OAuth(store=store)) == "client-as-1"
        assert len(mean.token_requests("refresh_token")) == 2
        assert (len(mean.opened), mean.issuer.thefts) == (1, 0)


CHILD = """
import asyncio, sys
from trimaran import connect
from trimaran.oauth import OAuth

async def main(url, store):
    print("ready", flush=True)
    sys.stdin.readline()
    async with connect(url, auth=OAuth(store=store)) as client:
        print((await client.call_tool("whoami")).text, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
async def test_two_processes_share_one_refresh(meet: Enter, tmp_path: Path) -> None:
    """Whose rule: R249 (single flight, across processes): the second finds what the first was given."""
    store = tmp_path / "tokens.json"
    async with meet("rotation") as mean:
        await whoami(mean, OAuth(login=mean.browse, store=store))
        mean.issuer.revoke_access()
        mean.gate = asyncio.Event()
        pipe = asyncio.subprocess.PIPE
        children = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", CHILD, mean.url, str(store), stdin=pipe, stdout=pipe
            )
            for _ in range(2)
        ]
        try:
            for child in children:
                assert child.stdout is not None
                assert await child.stdout.readline() == b"ready\n"
            before = len(mean.lines("rs"))
            for child in children:
                assert child.stdin is not None
                child.stdin.write(b"\n")
            # Both have been refused, and one of them asks for fresh tokens.
            await until(lambda: len([line for line in mean.lines("rs")[before:] if "POST" in line]) >= 2)
            await until(lambda: mean.token_requests("refresh_token"))
            mean.gate.set()
            for child in children:
                said, _ = await child.communicate()
                assert said == b"client-as-1\n"
        finally:
            for child in children:
                if child.returncode is None:
                    child.kill()
                    await child.wait()
        assert len(mean.token_requests("refresh_token")) == 1
        assert mean.issuer.thefts == 0


# --- another authorization server -------------------------------------------------------------------------------------


async def test_a_server_that_moves_to_another_issuer_is_followed_with_new_credentials(meet: Enter) -> None:
    """Whose rule: 2026-07-28, authorization: credentials are kept by issuer, and shown to no other."""
    async with meet() as mean:
        async with connect(mean.url, auth=OAuth(login=mean.browse)) as client:
            assert (await client.call_tool("whoami")).text == "client-as-1"
            mean.migrate()
            assert (await client.call_tool("whoami")).text == "client-other-1"
        assert mean.token_requests("refresh_token") == []
        assert [repr(seen) for seen in mean.seen if seen.path in WAY and seen.house == "other"] == [
            "other POST /register",
            "other GET /authorize",
            "other POST /token",
        ]


async def test_a_client_registered_beforehand_is_not_shown_to_another_issuer(meet: Enter, tmp_path: Path) -> None:
    """Also not after a restart."""
    async with meet() as mean:
        secret = "secret-HUSH-as-0"
        mean.issuer.clients["me"] = {"client_secret": secret, "redirect_uris": ["http://127.0.0.1/callback"]}

        def grant() -> OAuth:
            return OAuth(client_id="me", client_secret=secret, login=mean.browse, store=tmp_path / "tokens.json")

        assert await whoami(mean, grant()) == "me"
        mean.migrate()
        error = await fall(mean, grant())
        assert "Register a client with the new issuer" in str(error)
        assert len(mean.opened) == 1
        assert [seen for seen in mean.seen if seen.house == "other" and seen.path in WAY] == []


async def test_a_given_issuer_is_the_only_one(meet: Enter) -> None:
    async with meet() as mean:
        error = await fall(mean, OAuth(issuer=mean.other.issuer, login=mean.browse))
        assert "give the new issuer" in str(error)
        assert mean.opened == []


async def test_coming_back_to_an_issuer_finds_the_client_that_is_known_there(meet: Enter, tmp_path: Path) -> None:
    store = tmp_path / "tokens.json"
    async with meet() as mean:
        await whoami(mean, OAuth(login=mean.browse, store=store))
        mean.migrate()
        assert await whoami(mean, OAuth(login=mean.browse, store=store)) == "client-other-1"
        mean.guard = mean.issuer
        mean.issuer.end_login()
        assert await whoami(mean, OAuth(login=mean.browse, store=store)) == "client-as-1"
        assert len(mean.issuer.clients) == 1


# --- proofs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sins",
    [(), ("nonce at issuer",), ("nonce at server",), ("nonce at issuer", "nonce at server"), ("nonces that change",)],
    ids=lambda sins: " and ".join(sins) or "none",
)
async def test_proofs_with_every_demand_for_a_nonce(sins: tuple[str, ...], meet: Enter) -> None:
    """Whose rule: RFC 9449, 8 and 9. The server checks every proof, and that none comes twice."""
    async with meet(*sins) as mean:
        async with connect(mean.url, auth=OAuth(login=mean.browse, dpop=True)) as client:
            for _ in range(3):
                assert (await client.call_tool("whoami")).text == "client-as-1"
            mean.issuer.revoke_access()
            assert (await client.call_tool("whoami")).text == "client-as-1"
        assert len(mean.opened) == 1
        posts = [seen for seen in mean.seen if seen.house == "rs" and "authorization" in seen.headers]
        assert posts and all(seen.headers["authorization"].startswith("DPoP ") for seen in posts)
        if "nonce at server" in sins:
            refused = [nonce for house, nonce in mean.nonces_used if house == "rs"].count(None)
            assert refused <= 1, "a nonce is kept for the next request"


async def test_the_key_of_a_bound_token_survives_a_restart(meet: Enter, tmp_path: Path) -> None:
    store = tmp_path / "tokens.json"
    async with meet() as mean:
        await whoami(mean, OAuth(login=mean.browse, dpop=True, store=store))
        assert await whoami(mean, OAuth(dpop=True, store=store)) == "client-as-1"
        mean.issuer.revoke_access()
        assert await whoami(mean, OAuth(dpop=True, store=store)) == "client-as-1"
        assert len(mean.opened) == 1


async def test_an_issuer_whose_nonce_is_never_right_is_given_up(meet: Enter) -> None:
    async with meet("nonce never right at issuer") as mean:
        error = await fall(mean, OAuth(login=mean.browse, dpop=True))
        assert (error.step, error.code) == (TOKEN, "use_dpop_nonce")
        assert len(mean.token_requests()) <= 4


async def test_a_server_whose_nonce_is_never_right_is_given_up(meet: Enter) -> None:
    async with meet("nonce never right at server") as mean:
        with pytest.raises(Unauthorized) as caught:
            await whoami(mean, OAuth(login=mean.browse, dpop=True))
        assert mean.spilled(f"{caught.value} {caught.value!r}") == []
        assert len(mean.opened) == 1
        assert len(mean.lines("rs")) < 20


async def test_a_bearer_token_is_not_taken_where_a_bound_one_was_asked_for(meet: Enter) -> None:
    async with meet("downgrade") as mean:
        error = await fall(mean, OAuth(login=mean.browse, dpop=True))
        assert error.step == TOKEN
        assert "dpop=False" in str(error)
        assert mean.served == 0


def test_every_sin_is_tried() -> None:
    """By its row above, or by name in this file."""
    text = Path(__file__).read_text()
    assert [sin for sin in SINS if f'"{sin}"' not in text] == []


async def test_the_steps_can_be_run_one_by_one(meet: Enter) -> None:
    """R213: discovery and registration without a client of ours."""
    async with meet() as mean:
        found = await run_flow(discover_protected_resource(mean.url))
        assert found is not None
        metadata = await run_flow(discover_authorization_server(found.authorization_servers[0], mean.url))
        assert metadata.registration_endpoint is not None
        description = client_metadata(name="Boat", redirect_uri="http://127.0.0.1/callback", auth_method="none")
        client = await run_flow(register_client(metadata.registration_endpoint, description, server_url=mean.url))
        assert client.client_id == "client-as-1"
