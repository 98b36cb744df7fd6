"""Options for one server of a host: credentials, limits, callbacks; in Python and in `mcp.toml` (R211, R212, R216)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from aiohttp import web
from tests.support.until import PATIENCE, until

from trimaran import Host, Server, connect
from trimaran.auth import Bearer
from trimaran.errors import ConfigError
from trimaran.host import Machine, ServerEntry, Source, read_config
from trimaran.host.connect_plan import ConnectPlan, plan_for
from trimaran.host.environment import read_environment
from trimaran.host.oauth_config import unattended_grant
from trimaran.oauth import ClientCredentials, EnterpriseManaged, OAuth, WorkloadIdentity
from trimaran.serve import HttpServer
from trimaran.state import MemoryTokens

HTTP = 'transport = "http"\nurl = "https://notes.example/mcp"\n'
DEFAULTS = read_environment({})


def plan(target: Any, **options: Any) -> ConnectPlan:
    return plan_for("notes", target, DEFAULTS, options)


def notebook() -> Server:
    server = Server("notes")

    @server.tool
    def ping() -> str:
        """Say hello."""
        return "pong"

    return server


def entry_of(text: str, **environ: str) -> ServerEntry:
    machine = Machine(home="/home/ada", workspace="/work", environ=environ)
    config = read_config([(Source("mcp.toml", "file"), f"[server.notes]\n{text}")], machine)
    assert not config.failed, config.failed["notes"].reason
    return config.servers["notes"]


# --- in Python -------------------------------------------------------------------------------------------------------


def test_options_stand_beside_the_target_or_in_a_client_that_is_not_open() -> None:
    """R216: per-id connect specs; and what is given with the call comes on top."""
    grant = ClientCredentials(client_id="robot", client_secret="s")  # noqa: S106
    beside = plan({"url": "https://notes.example/mcp", "auth": grant, "era": "modern", "timeout": 7})
    prepared = plan(connect("https://notes.example/mcp", auth=grant, era="modern", timeout=7))
    given = plan("https://notes.example/mcp", auth=grant, era="modern", timeout=7)
    for made in (beside, prepared, given):
        assert made.options == {"auth": grant, "era": "modern"}
        assert (made.call_timeout, made.transport) == (7, "http")
    assert beside.target == {"url": "https://notes.example/mcp"}
    assert prepared.target == "https://notes.example/mcp"
    mixed = connect({"url": "https://notes.example/mcp", "auth": "one"}, auth="two")
    assert plan(mixed).options == {"auth": "two"}


async def test_connect_takes_options_beside_the_target_too() -> None:
    async with HttpServer(notebook(), port=0, auth=Bearer(verifier=lambda token: {"sub": token})) as http:
        async with connect({"url": http.url, "auth": "ada"}) as client:
            assert (await client.call_tool("ping")).text == "pong"
        async with Host({"notes": {"url": http.url, "auth": "ada"}}, allow=["*"], environ={}) as host:
            assert (await host.call("mcp__notes__ping")).text == "pong"


async def test_credentials_of_the_whole_host_serve_whoever_brings_none() -> None:
    async with HttpServer(notebook(), port=0, auth=Bearer(verifier=lambda token: {"sub": token})) as http:
        servers = {"notes": http.url, "mine": {"url": http.url, "auth": "mine"}}
        async with Host(servers, allow=["*"], environ={}, options={"auth": "ours"}) as host:
            assert [status.state for status in host.status()] == ["connected", "connected"]
            with pytest.raises(ConfigError, match="auth=a fixed token"):
                await host.authorize("notes")


async def test_a_client_that_is_in_use_is_refused() -> None:
    server = notebook()
    async with connect(server) as client:
        with pytest.raises(ConfigError, match=r"a client that is ready: give connect\(...\) itself"):
            Host({"notes": client})
    with pytest.raises(ConfigError, match="a client that is closed"):
        Host({"notes": client})
    async with Host({"notes": connect(server)}, allow=["*"], environ={}) as host:
        assert (await host.call("mcp__notes__ping")).text == "pong"


class Handler:
    def on_elicit(self, ask: Any) -> None: ...


@pytest.mark.parametrize(
    "options", [{"on_elicit": print}, {"on_sample": print}, {"handler": Handler()}], ids=["elicit", "sample", "handler"]
)
def test_no_server_answers_questions_past_the_rules(options: dict[str, Any]) -> None:
    """R260: with a handler of its own a server would be answered before the rules are asked."""
    with pytest.raises(ConfigError, match="not for the server 'notes' alone"):
        Host({"notes": {"url": "https://notes.example/mcp", **options}})
    with pytest.raises(ConfigError, match="is not for options="):
        Host({}, options=cast("Any", options))


def test_a_limit_in_milliseconds_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r'timeout of the server \'notes\'.*"45000ms"'):
        plan({"url": "https://notes.example/mcp", "timeout": 45000})
    assert plan({"command": "x", "timeout": "30000ms", "startup_timeout": "1m"}).startup_timeout == 60
    assert plan(connect("https://notes.example/mcp", connect_timeout=9)).startup_limit == 9


@pytest.mark.slow
async def test_what_the_host_listens_to_a_server_may_be_listened_to_for_too(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import sys\nfrom trimaran import Server\nprint('hello', file=sys.stderr, flush=True)\nServer('s').run()\n"
    )
    lines: list[str] = []
    states: list[str] = []

    async def state(event: Any) -> None:
        states.append(event.state)

    async with Host({"notes": connect(str(script), on_stderr=lines.append, on_state=state)}, environ={}) as host:
        assert host.status()[0].state == "connected", host.status()[0].reason
        assert "hello" in host.stderr("notes")
    assert "hello" in lines
    assert "ready" in states


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("https://notes.example/mcp", ""),
        ({"url": "https://notes.example/mcp"}, ""),
        ({"url": "https://notes.example/mcp", "auth": OAuth()}, ""),
        ({"url": "https://notes.example/mcp", "auth": "token"}, "auth=a fixed token"),
        ({"url": "https://notes.example/mcp", "headers": {"authorization": "x"}}, "Authorization header"),
        ("http://notes.example/mcp", "not https"),
        (["notes-server"], "not on HTTP"),
        (Server("notes"), "not on HTTP"),
    ],
)
def test_who_brings_no_credentials_along_may_log_in(target: Any, why: str) -> None:
    """C31: a mapped server is asked about like one of `mcp.toml`."""
    found = plan(target).no_login
    assert why in found if why else not found


def test_no_message_holds_a_token_that_was_given() -> None:
    assert plan({"url": "https://notes.example/mcp", "auth": "sssh-token"}).mask("Bearer sssh-token") == "Bearer ***"
    entry = entry_of(
        f'{HTTP}oauth = "client_credentials"\noauth_config = {{ client_id = "c", client_secret = "${{S}}" }}',
        S="sssh-key",
    )
    assert plan(entry).mask("the secret sssh-key") == "the secret ***"


# --- in mcp.toml -----------------------------------------------------------------------------------------------------


def test_each_mode_without_a_person_makes_its_grant(tmp_path: Path) -> None:
    """R211, R212: what mcp.toml says reaches the grant, variables filled in."""
    token = tmp_path / "token"
    robot = unattended_grant(
        entry_of(
            f'{HTTP}oauth = "client_credentials"\n[server.notes.oauth_config]\nclient_id = "robot"\n'
            'client_secret = "${SECRET}"\nscopes = ["read"]\nissuer = "https://id.example"\nresource = "https://r.example"',
            SECRET="sssh",  # noqa: S106
        ),
        allow_private=True,
    )
    assert isinstance(robot, ClientCredentials)
    assert (robot.client_id, robot.scopes, robot.issuer) == ("robot", ("read",), "https://id.example")
    assert (robot.resource, robot.allow_private) == ("https://r.example", True)
    person = unattended_grant(
        entry_of(
            f'{HTTP}[server.notes.oauth]\nmode = "enterprise_managed"\nclient_id = "app"\n'
            'idp_token_url = "https://idp.example/token"\nsubject_token = "${ID_TOKEN}"\nsubject_token_type = "saml2"\n'
            'audience = "https://id.example"',
            ID_TOKEN="a.b.c",  # noqa: S106
        ),
        allow_private=False,
    )
    assert isinstance(person, EnterpriseManaged)
    assert (person.idp_token_endpoint, person.subject_token_type) == ("https://idp.example/token", "saml2")
    workload = unattended_grant(
        entry_of(f'{HTTP}[server.notes.oauth]\nmode = "workload_identity"\nassertion_file = "{token}"'),
        allow_private=False,
    )
    assert isinstance(workload, WorkloadIdentity)
    assert unattended_grant(entry_of(HTTP), allow_private=False) is None


def test_a_key_that_cannot_be_read_is_named() -> None:
    entry = entry_of(
        f'{HTTP}[server.notes.oauth]\nmode = "client_credentials"\nclient_id = "c"\nprivate_key_file = "~/robot.pem"'
    )
    with pytest.raises(ConfigError, match=r"private_key_file cannot be read: '/home/ada/robot.pem': No such file"):
        unattended_grant(entry, allow_private=False)


class Issuer:
    """A token endpoint that writes down what it is told, and lets the first assertion in."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.is_away = False

    async def token(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.asked.append(form)
        if self.is_away:
            return web.Response(status=503)
        if "token-exchange" in form["grant_type"]:
            kind = "urn:ietf:params:oauth:token-type:id-jag"
            answer = {"access_token": "the-id-jag", "token_type": "N_A", "issued_token_type": kind}
        else:
            answer = {"access_token": f"for-{form['assertion']}", "token_type": "Bearer", "expires_in": 3600}
        return web.json_response(answer)


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[tuple[Issuer, str]]:
    issuer = Issuer()
    app = web.Application()
    app.router.add_post("/token", issuer.token)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield issuer, f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    finally:
        await runner.cleanup()


def host_of(url: str, oauth: str, **environ: str) -> Host:
    text = f'[server.notes]\ntransport = "http"\nurl = "{url}"\n[server.notes.oauth]\n{oauth}'
    config = read_config(
        [(Source("mcp.toml", "file"), text)], Machine(home="/home/ada", workspace="/work", environ=environ)
    )
    assert not config.failed, config.failed["notes"].reason
    return Host(config, allow=["*"], environ={}, tokens=MemoryTokens())


async def test_a_platforms_token_is_read_from_its_file_whenever_one_is_needed(
    issuer: tuple[Issuer, str], tmp_path: Path
) -> None:
    """R216: workload identity from mcp.toml; the platform replaces the file while the host runs."""
    asked, token_url = issuer
    token = tmp_path / "token"
    token.write_text("platform-1\n")
    oauth = f'mode = "workload_identity"\nassertion_file = "{token}"\ntoken_url = "{token_url}"'
    async with (
        HttpServer(notebook(), port=0, auth=Bearer(verifier=lambda token: {"sub": token})) as http,
        host_of(http.url, oauth) as host,
    ):
        assert (await host.call("mcp__notes__ping")).text == "pong"
        token.write_text("platform-2\n")
        async with asyncio.timeout(PATIENCE):
            assert (await host.reload("notes")).state == "connected"
    assert [form["assertion"] for form in asked.asked] == ["platform-1", "platform-2"]


async def test_an_identity_provider_vouches_for_the_person_that_mcp_toml_names(issuer: tuple[Issuer, str]) -> None:
    """R212: two token requests, the exchange and the assertion."""
    asked, token_url = issuer
    oauth = (
        f'mode = "enterprise_managed"\nclient_id = "app"\nsubject_token = "${{ID_TOKEN}}"\nidp_token_url = "{token_url}"\n'
        f'token_url = "{token_url}"\nissuer = "https://id.example"'
    )
    async with (
        HttpServer(notebook(), port=0, auth=Bearer(verifier=lambda token: {"sub": token})) as http,
        host_of(http.url, oauth, ID_TOKEN="the-id-token") as host,  # noqa: S106
    ):
        assert (await host.call("mcp__notes__ping")).text == "pong"
    exchange, grant = asked.asked[:2]
    assert (exchange["subject_token"], exchange["audience"]) == ("the-id-token", "https://id.example")
    assert grant["assertion"] == "the-id-jag"


@pytest.mark.slow
async def test_an_issuer_that_is_away_is_tried_again_and_a_refusal_is_not(issuer: tuple[Issuer, str]) -> None:
    """R272: what passes by itself needs nobody."""
    asked, token_url = issuer
    oauth = f'mode = "workload_identity"\nassertion = "platform"\ntoken_url = "{token_url}"'
    asked.is_away = True
    async with (
        HttpServer(notebook(), port=0, auth=Bearer(verifier=lambda token: {"sub": token})) as http,
        host_of(http.url, oauth) as host,
    ):
        (status,) = host.status()
        assert (status.state, status.retries) == ("failed", True)
        asked.is_away = False
        await until(lambda: host.status()[0].state == "connected")


def test_a_misspelt_option_is_told_with_the_nearest_and_all_of_them(tmp_path: Path) -> None:
    options: dict[str, Any] = {"alow": ["*"]}
    with pytest.raises(ConfigError, match=r"unknown option 'alow'; did you mean 'allow'\? Host takes allow, .*, wait"):
        Host(**options)
    (tmp_path / "mcp.toml").write_text("")
    with pytest.raises(ConfigError, match="did you mean 'allow'"):
        Host.load(tmp_path / "mcp.toml", **options)


async def test_an_option_that_a_format_lacks_is_told_with_those_that_it_has() -> None:
    async with Host({}, environ={}) as host:
        tools: Any = host.tools
        with pytest.raises(ConfigError, match="no format 'antropic'; did you mean 'anthropic'\\?"):
            tools(format="antropic")
        with pytest.raises(
            ConfigError, match="'stric'; did you mean 'strict'\\? a host's list of tools takes budget, fit"
        ):
            tools(format="openai", stric=True)
        with pytest.raises(ConfigError, match="'budgt'; did you mean 'budget'"):
            tools(format="openai", budgt=8000)
        with pytest.raises(ConfigError, match="the format 'gemini' takes fit, openapi"):
            tools(format="gemini", strict=True)
        with pytest.raises(ConfigError, match="unknown option 'strict'"):
            tools(strict=True)


async def test_a_misspelt_option_of_one_server_is_told_before_it_starts() -> None:
    options: dict[str, Any] = {"tiemout": 3}
    async with Host({}, environ={}) as host:
        with pytest.raises(ConfigError, match="did you mean 'timeout'"):
            await host.start_server("a", Server("a", version="1"), **options)
        assert host.status() == []


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
async def test_the_content_of_another_programs_file_names_its_servers(key: str) -> None:
    entry = {"url": "http://127.0.0.1:9/mcp"}
    assert [status.name for status in Host({key: {"a": entry, "b": entry}}).status()] == ["a", "b"]
    assert [status.name for status in Host({key: entry}).status()] == [key]  # a server may have that name
