"""Servers with `lazy = true`: not started with the host, but when they are needed (R230)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.until import soon

from trimaran import Host, Server, connect
from trimaran.errors import ConfigError, ConnectFailed
from trimaran.host import (
    Machine,
    NotRegistered,
    PermissionDenied,
    ServerUnavailable,
    Source,
    UnknownName,
    connect_plan,
    read_config,
)

TEXT = """
[server.early]
command = "early"

[server.late]
command = "late"
lazy = true

[server.late_too]
command = "late_too"
lazy = true

[server.typo]
comand = "x"
lazy = true

[server.off]
command = "off"
lazy = true
disabled = true
"""


class Programs:
    """What is started: servers in this process, under the names of their commands."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.missing: set[str] = set()

    def connect(self, target: Any, **options: Any) -> Any:
        name = target["command"]
        self.started.append(name)
        if name in self.missing:
            raise ConnectFailed("there is no such program")
        server = Server(name, version="1")
        server.add_tool(lambda: name, name="which")
        server.add_resource("docs://style", lambda: "Short words.", name="style")
        return connect(server, **options)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    made = Programs()
    monkeypatch.setattr(connect_plan, "connect", made.connect)
    return made


def make_host(**options: Any) -> Host:
    machine = Machine(home="/home/ada", workspace="/work", environ={})
    options = {"allow": ["*"], "environ": {}, **options}
    return Host(read_config([(Source("mcp.toml", "file"), TEXT)], machine), **options)


def states(host: Host) -> dict[str, str]:
    return {status.name: status.state for status in host.status()}


async def test_a_lazy_server_is_not_started_with_the_host(programs: Programs) -> None:
    async with make_host() as host:
        await soon(host.ready())
        assert states(host) == {
            "early": "connected",
            "late": "idle",
            "late_too": "idle",
            "off": "disabled",
            "typo": "failed",
        }
        assert [tool.name for tool in host.tools()] == ["mcp__early__which"]
        assert str(host.status()[1]) == "○ late: idle, stdio"
        with pytest.raises(ServerUnavailable, match=r"idle: it is started when it is needed: host.wake\('late'\)"):
            host.find("mcp__late__which")
    assert programs.started == ["early"]


async def test_a_call_starts_it(programs: Programs) -> None:
    async with make_host() as host:
        assert (await soon(host.call("mcp__late__which"))).data == "late"
        assert (await soon(host.call("mcp__late__which"))).data == "late"
        assert states(host)["late"] == "connected"
    assert programs.started == ["early", "late"]


@pytest.mark.parametrize("name", ["late:which", "late__which"])
async def test_a_call_by_any_of_its_names_starts_it(programs: Programs, name: str) -> None:
    async with make_host(separator=":") as host:
        assert (await soon(host.call(name))).data == "late"


async def test_calls_at_the_same_time_start_it_once(programs: Programs) -> None:
    async with make_host() as host:
        found = await soon(asyncio.gather(*(host.call("mcp__late__which") for _ in range(5))))
        assert [one.data for one in found] == ["late"] * 5
    assert programs.started == ["early", "late"]


async def test_the_longest_name_is_meant_first(programs: Programs) -> None:
    async with make_host(separator=":") as host:
        assert (await soon(host.call("late_too:which"))).data == "late_too"
    assert programs.started == ["early", "late_too"]


async def test_a_call_that_a_rule_forbids_starts_nothing(programs: Programs) -> None:
    """R239: nothing is sent before it is allowed, and so nothing is started for it."""
    async with make_host(deny=["mcp__late__*"]) as host:
        with pytest.raises(PermissionDenied) as refused:
            await soon(host.call("mcp__late__which"))
        assert refused.value.decision.is_denied
    assert programs.started == ["early"]


async def test_a_call_of_others_starts_nothing(programs: Programs) -> None:
    async with make_host() as host:
        with pytest.raises(UnknownName):
            await soon(host.call("mcp__early__nothing"))
        await soon(host.call("mcp__early__which"))
    assert programs.started == ["early"]


async def test_a_tool_that_it_does_not_have_is_unknown_once_it_runs(programs: Programs) -> None:
    async with make_host() as host:
        with pytest.raises(UnknownName):
            await soon(host.call("mcp__late__nothing"))
        assert states(host)["late"] == "connected"


async def test_a_mention_starts_it(programs: Programs) -> None:
    async with make_host() as host:
        assert await soon(host.complete_mention("@la")) == ["@late:", "@late_too:"]
        assert programs.started == ["early"]
        found = await soon(host.expand("Look at @late:style."))
        assert "Short words." in found.text
        assert await soon(host.complete_mention("@late_too:")) == ["@late_too:style"]
    assert programs.started == ["early", "late", "late_too"]


@pytest.mark.parametrize("how", ["wake", "enable", "reload"])
async def test_it_is_started_by_name(programs: Programs, how: str) -> None:
    async with make_host() as host:
        status = await soon(getattr(host, how)("late"))
        assert (status.state, status.tools) == ("connected", 1)
        assert programs.started == ["early", "late"]
        assert "mcp__late__which" in [tool.name for tool in host.tools()]


async def test_only_what_waits_is_woken(programs: Programs) -> None:
    async with make_host() as host:
        assert (await soon(host.wake("off"))).state == "disabled"
        assert (await soon(host.wake("early"))).state == "connected"
        with pytest.raises(NotRegistered):
            await soon(host.wake("nobody"))
        assert programs.started == ["early"]


async def test_one_that_cannot_be_started_has_failed_and_is_tried_again(programs: Programs) -> None:
    programs.missing.add("late")
    async with make_host() as host:
        with pytest.raises(ServerUnavailable, match="no such program.*tried again"):
            await soon(host.call("mcp__late__which"))
        (status,) = [one for one in host.status() if one.name == "late"]
        assert (status.state, status.retries) == ("failed", True)


async def test_one_that_is_disabled_while_it_waits_stays_so(programs: Programs) -> None:
    async with make_host() as host:
        await soon(host.disable("late"))
        with pytest.raises(ServerUnavailable, match="enable it first"):
            await soon(host.call("mcp__late__which"))
        assert programs.started == ["early"]


async def test_with_no_mcp_nothing_is_started_by_any_name() -> None:
    """R269."""
    async with make_host(environ={"TRIMARAN_NO_MCP": "1"}) as host:
        for act in (host.enable, host.reload, host.authorize):
            with pytest.raises(ConfigError, match="TRIMARAN_NO_MCP is set; unset it"):
                await soon(act("late"))
        with pytest.raises(ConfigError, match="TRIMARAN_NO_MCP is set"):
            await soon(host.start_server("more", Server("more", version="1")))
        assert (await soon(host.wake("late"))).state == "disabled"
        assert set(states(host).values()) == {"disabled"}
        assert "more" not in states(host)
