"""What the environment says to a host (R267-R269, C34)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.errors import ConfigError
from trimaran.host.config import ServerEntry, Source, ToolSettings
from trimaran.host.connect_plan import Logins, plan_for
from trimaran.host.environment import Environment, read_environment
from trimaran.state import MemoryTokens


def test_the_defaults_are_five_seconds_and_a_minute() -> None:
    """R267."""
    assert read_environment({}) == Environment(5.0, 60.0, no_servers=False)


@pytest.mark.parametrize(
    ("variables", "startup", "call"),
    [
        ({"TRIMARAN_MCP_TIMEOUT": "10s", "TRIMARAN_MCP_TOOL_TIMEOUT": "2m"}, 10, 120),
        ({"TRIMARAN_MCP_TIMEOUT": "7", "TRIMARAN_MCP_TOOL_TIMEOUT": "0.5"}, 7, 0.5),
        ({"MCP_TIMEOUT": "30000", "MCP_TOOL_TIMEOUT": "1500"}, 30, 1.5),
        ({"TRIMARAN_MCP_TIMEOUT": "9s", "MCP_TIMEOUT": "1000"}, 9, 60),
        ({"TRIMARAN_MCP_TIMEOUT": " ", "MCP_TIMEOUT": "1000"}, 1, 60),
        ({"MCP_TOOL_TIMEOUT": "3600000"}, 5, 600),
        ({"MCP_TIMEOUT": "soon"}, 5, 60),
    ],
    ids=["durations", "seconds", "milliseconds", "ours-first", "blank", "too-long", "not-a-number"],
)
def test_ours_are_durations_and_theirs_milliseconds(variables: dict[str, str], startup: float, call: float) -> None:
    """R267, R269, C34."""
    assert read_environment(variables) == Environment(startup, call)


@pytest.mark.parametrize(
    "name", ["TRIMARAN_MCP_TIMEOUT", "TRIMARAN_MCP_TOOL_TIMEOUT", "TRIMARAN_NO_MCP", "TRIMARAN_ALLOW_PRIVATE"]
)
def test_one_of_ours_that_cannot_be_read_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read_environment({name: "eleventy"})


@pytest.mark.parametrize(("said", "skips"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_no_mcp_skips_all_servers(said: str, skips: bool) -> None:
    """R269."""
    assert read_environment({"TRIMARAN_NO_MCP": said}).no_servers is skips


def test_the_file_is_heard_before_the_environment() -> None:
    """R269, R230."""
    environment = Environment(7.0, 70.0)
    source = Source("mcp.toml", "file")
    plain = plan_for("a", ServerEntry(name="a", source=source, command="x"), environment)
    assert (plain.startup_timeout, plain.call_timeout) == (7.0, 70.0)
    tools = {"slow": ToolSettings(timeout=300.0), "plain": ToolSettings()}
    said = ServerEntry(
        name="b", source=source, command="x", timeout=20.0, startup_timeout=3.0, output_limit=99, tools=tools
    )
    plan = plan_for("b", said, environment)
    assert (plan.startup_timeout, plan.call_timeout, plan.output_limit) == (3.0, 20.0, 99)
    assert plan.tool_timeouts == {"slow": 300.0}


@pytest.mark.parametrize(
    ("url", "oauth", "can"),
    [
        ("https://notes.example/mcp", "auto", True),
        ("http://127.0.0.1:9/mcp", "auto", True),
        ("http://intranet.example/mcp", "auto", False),
        ("https://notes.example/mcp", "off", False),
    ],
    ids=["https", "loopback", "plain", "off"],
)
def test_a_login_is_thought_of_only_where_it_could_be_kept_secret(url: str, oauth: Any, can: bool) -> None:
    """C31: a server that never asks for one works over plain HTTP, too."""
    entry = ServerEntry(name="a", source=Source("mcp.toml", "file"), transport="http", url=url, oauth=oauth)
    plan = plan_for("a", entry, Environment())
    assert plan.can_log_in is can
    Logins(MemoryTokens()).client(plan, {})
