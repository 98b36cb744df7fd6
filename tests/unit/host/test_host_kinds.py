"""Every problem that a host or its configuration reports has a kind (R280), and the page has them all."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from trimaran import Host, Server, errors
from trimaran.errors import AuthorizationFailed, Error
from trimaran.host import ConfigUnusable, Machine, ServerUnavailable, Source, read_config
from trimaran.host.config.model import ProblemKind
from trimaran.state import StoreUnusable

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "errors.md").read_text()
MACHINE = Machine(home="/home/ada", workspace="/work", environ={})

# What R280 calls them, and what they are called here.
R280 = {
    "Io": "io",
    "ConfigParse": "config_parse",
    "InvalidServerName": "invalid_server_name",
    "InvalidTransport": "invalid_transport",
    "InvalidOauthMode": "invalid_oauth_mode",
    "MissingUrl": "missing_url",
    "InvalidUrl": "invalid_url",
    "InvalidHeader": "invalid_header",
    "MissingEnv": "missing_env",
    "Spawn": "spawn",
    "field-not-valid-for-transport": "field_not_valid_for_transport",
    "HandshakeTimeout": "handshake_timeout",
    "Handshake": "handshake",
    "Rpc": "rpc",
    "Cancelled": "cancelled",
    "Transport": "transport",
    "OauthDiscovery": "oauth_discovery",
    "OauthFlow": "oauth_flow",
    "OauthExchange": "oauth_exchange",
    "OauthRegistration": "oauth_registration",
    "OauthManualIncomplete": "oauth_manual_incomplete",
    "OauthNoClientId": "oauth_no_client_id",
    "OauthInteractiveRequired": "oauth_interactive_required",
    "TokenStore": "token_store",
    "Keyring": "keyring",
    "ResourceTemplateArity": "resource_template_arity",
    "OutputTooLarge": "output_too_large",
}


def kinds_of_errors() -> set[str]:
    """The kinds of every exception class there is, and of the steps of a login."""
    import trimaran.host as host

    classes = [getattr(errors, name) for name in errors.__all__]
    classes += [getattr(host, name) for name in dir(host)]
    found = {one.kind for one in classes if isinstance(one, type) and issubclass(one, Error)}
    steps = ("protected resource metadata", "client registration", "token request", "login")
    return found | {AuthorizationFailed("x", step=step).kind for step in steps} | {StoreUnusable.kind, "keyring"}


def listed() -> set[str]:
    section = PAGE.partition("## Kinds")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))


def test_the_page_lists_every_kind_and_no_other() -> None:
    """R280: the table is whole."""
    known = {*get_args(ProblemKind), *kinds_of_errors(), "rule_without_effect", "handshake", "handshake_timeout"}
    known |= {"output_too_large", "disabled", "idle", "starting", "oauth_no_client_id"}
    assert listed() == known


def test_each_kind_of_the_requirements_has_its_word_here() -> None:
    """R280: by the names of those who come from there."""
    assert set(R280.values()) <= listed()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[server.x", "config_parse"),
        ('[server.""]\ncommand = "x"', "invalid_server_name"),
        ('[permissions]\nallow = "x"', "invalid_rule"),
        ("server = 1", "config_parse"),
    ],
)
def test_what_stops_a_load_says_its_kind(text: str, kind: str) -> None:
    """R226, R280."""
    with pytest.raises(ConfigUnusable) as stopped:
        read_config([(Source("mcp.toml", "user"), text)], MACHINE)
    assert (stopped.value.kind, stopped.value.problem.kind) == (kind, kind)


CHILDREN: dict[str, tuple[Any, str]] = {
    "spawn": (["there-is-no-such-command-anywhere"], "spawn"),
    "dies": ([sys.executable, "-c", "import sys; sys.exit('FATAL')"], "handshake"),
    "silent": ([sys.executable, "-c", "import time; time.sleep(60)"], "handshake_timeout"),
    "nobody": ("http://127.0.0.1:9/mcp", "transport"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(CHILDREN))
async def test_a_server_that_fails_says_its_kind(case: str) -> None:
    """R272, R280: in its status, and in the error of a call."""
    target, kind = CHILDREN[case]
    host = Host({"x": target}, allow=["*"], environ={"TRIMARAN_MCP_STARTUP_LIMIT": "3s"}, wait=False)
    async with host:
        server = host._servers["x"]  # pyright: ignore[reportPrivateUsage]
        await server.settled(20)
        (status,) = host.status()
        assert (status.state, status.kind) == ("failed", kind), status.reason
        with pytest.raises(ServerUnavailable) as refused:
            server.require()
        assert refused.value.kind == kind


async def test_an_entry_that_cannot_be_used_passes_its_kind_on() -> None:
    config = read_config([(Source("mcp.toml", "user"), '[server.x]\ncommand = "${NOWHERE}"')], MACHINE)
    async with Host(config, environ={}) as host:
        assert host.status()[0].kind == "missing_env"


async def test_a_server_that_works_has_no_kind() -> None:
    async with Host({"x": Server("x")}, environ={}) as host:
        assert (host.status()[0].state, host.status()[0].kind) == ("connected", "")
