"""Trust belongs to one file with one content, and a person sees what it would start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.until import soon

from trimaran import Host
from trimaran.errors import ConfigError
from trimaran.host import (
    ConfigUnusable,
    HostConfig,
    Machine,
    PermissionDenied,
    RuleEntry,
    ServerEntry,
    Source,
    Trust,
    load_config,
)

from .projects import read, states

pytestmark = pytest.mark.usefixtures("started")

PROJECT = """
[server.theirs]
command = "./theirs"

[server.theirs.permissions]
allow = ["look"]
deny = ["push"]

[server.off]
command = "off"
disabled = true
"""


def project(root: Path, text: str = PROJECT) -> Callable[[], HostConfig]:
    """A project with this file; returns what reads it."""
    file = root / ".trimaran" / "mcp.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return lambda: load_config(machine=Machine(home=str(root / "home"), workspace=str(root), environ={}))


@pytest.mark.parametrize("linked", [".trimaran", ".trimaran/mcp.toml"], ids=["the folder", "the file"])
async def test_a_link_to_a_file_that_is_trusted_elsewhere_is_not_trusted(
    tmp_path: Path, started: list[str], linked: str
) -> None:
    """`./theirs` is another program here: a clone could bring the link along, and the program."""
    trust = Trust(tmp_path / "trusted.json")
    async with Host(project(tmp_path / "good")(), trust=trust, environ={}) as host:
        await soon(host.trust_project())
    assert started == ["./theirs"]
    link = tmp_path / "clone" / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "good" / linked)
    machine = Machine(home=str(tmp_path / "home"), workspace=str(tmp_path / "clone"), environ={})
    async with Host(load_config(machine=machine), trust=trust, environ={}) as host:
        assert host.untrusted_files == (str(tmp_path / "clone" / ".trimaran" / "mcp.toml"),)
    assert started == ["./theirs"]


def test_a_project_that_is_come_by_through_a_link_is_the_same(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trusted.json")
    (tmp_path / "good" / ".trimaran").mkdir(parents=True)
    (tmp_path / "short").symlink_to(tmp_path / "good")
    trust.add(str(tmp_path / "good" / ".trimaran" / "mcp.toml"), "1" * 64)
    assert trust.is_trusted(str(tmp_path / "short" / ".trimaran" / "mcp.toml"), "1" * 64)
    assert trust.remove(str(tmp_path / "short" / ".trimaran" / "mcp.toml"))


@pytest.mark.parametrize(
    "given", [lambda config: config.servers, lambda config: HostConfig(servers=config.servers)], ids=["mapping", "bare"]
)
async def test_entries_of_a_project_are_not_trusted_without_their_file(
    tmp_path: Path, started: list[str], given: Callable[[HostConfig], Any]
) -> None:
    """Whoever passes on `config.servers` alone has lost the digest, and has not lost the question."""
    trust = Trust(tmp_path / "trusted.json")
    async with Host(given(project(tmp_path)()), trust=trust, environ={}) as host:
        assert states(host) == {"theirs": "disabled", "off": "disabled"}
        assert [one.what for one in host.untrusted] == ["./theirs", "off", "look"]
        with pytest.raises(ConfigError, match="not trusted yet"):
            await host.enable("theirs")
        assert started == []
        await soon(host.trust_project())
        assert states(host) == {"theirs": "connected", "off": "disabled"}
    assert trust.files() == {}  # what was trusted is not known, so it is asked about again


async def test_entries_that_are_given_by_name_keep_their_rules(tmp_path: Path) -> None:
    servers: Any = project(tmp_path)().servers
    async with Host(servers, allow=["*"], environ={}) as host:
        assert states(host) == {"theirs": "connected", "off": "disabled"}
        with pytest.raises(PermissionDenied, match="server deny push"):
            await soon(host.call("mcp__theirs__push"))


async def test_an_entry_of_a_file_that_was_read_again_is_not_what_was_trusted(
    tmp_path: Path, started: list[str]
) -> None:
    reading = project(tmp_path)
    async with Host(reading(), trust=Trust(tmp_path / "trusted.json"), environ={}) as host:
        await soon(host.trust_project())
        await soon(host.stop_server("theirs"))
        await soon(host.start_server("theirs", reading().servers["theirs"]))  # the same words
        await soon(host.stop_server("theirs"))
        project(tmp_path, PROJECT.replace("./theirs", "./evil"))
        with pytest.raises(ConfigError, match=r"made without .*mcp.toml:2, .*make a new Host"):
            await soon(host.start_server("theirs", reading().servers["theirs"]))
        assert "theirs" not in states(host)
    assert started == ["./theirs", "./theirs"]


async def test_an_entry_that_is_started_later_brings_its_rules_and_takes_them_along() -> None:
    entry = read(PROJECT).servers["theirs"]
    async with Host(allow=["mcp__theirs__push"], environ={}) as host:
        await soon(host.start_server("theirs", entry))
        assert (await soon(host.call("mcp__theirs__look"))).data == "ok"
        with pytest.raises(PermissionDenied, match="server deny push"):
            await soon(host.call("mcp__theirs__push"))
        await soon(host.stop_server("theirs"))
        await soon(host.start_server("theirs", {"command": "mine"}))
        assert (await soon(host.call("mcp__theirs__push"))).data == "ok"
        with pytest.raises(PermissionDenied):
            await soon(host.call("mcp__theirs__look"))


async def test_an_entry_with_a_rule_that_cannot_be_read_is_not_started(started: list[str]) -> None:
    source = Source("mcp.toml", "file")
    rule = RuleEntry(action="deny", pattern="", source=source)
    entry = ServerEntry(name="a", source=source, command="a", permissions=(rule,))
    async with Host(environ={}) as host:
        with pytest.raises(ConfigError, match=r"server.a.permissions.deny"):
            await soon(host.start_server("a", entry))
        assert (states(host), started) == ({}, [])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://eyJhbGciOiJIUzI1.evil.example/mcp", "https://eyJhbGciOiJIUzI1.evil.example/mcp"),
        ("https://sk-aaaaaaaaaaaaaaaaaaaa/mcp?k=hunter2", "https://sk-aaaaaaaaaaaaaaaaaaaa/mcp?k=***"),
        ("https://good.example@evil.example/mcp", "https://***@evil.example/mcp"),
        ("https://${HOST:-evil.example}/mcp", "https://${HOST:-evil.example}/mcp"),
    ],
)
def test_a_host_cannot_be_made_to_look_like_a_secret(url: str, shown: str) -> None:
    host = Host(read(f'[server.a]\ntransport = "http"\nurl = "{url}"', "project"), trust=False, environ={})
    assert [one.what for one in host.untrusted] == [shown]


@pytest.mark.parametrize("key", ["oauth", "oauth_config"])
def test_where_a_login_would_lead_and_what_it_would_tell_is_shown(key: str) -> None:
    mode = 'mode = "manual"' if key == "oauth" else ""
    text = f"""
    [server.a]
    transport = "http"
    url = "https://a.example/mcp"
    {'oauth = "manual"' if key != "oauth" else ""}
    [server.a.{key}]
    {mode}
    client_id = "a"
    client_secret = "x${{AWS_SECRET_ACCESS_KEY}}"
    auth_url = "https://login.example/a"
    token_url = "https://evil.example/t?k=hunter2"
    """
    (one,) = Host(read(text, "project", AWS_SECRET_ACCESS_KEY="hunter2"), trust=False, environ={}).untrusted
    assert {
        "oauth client_secret: ***${AWS_SECRET_ACCESS_KEY}",
        "oauth token_url: https://evil.example/t?k=***",
    } <= set(one.headers)
    assert "hunter2" not in str(one)


def test_what_a_server_that_cannot_be_used_yet_allows_is_shown_too() -> None:
    """Once the variable is set it is allowed, and the file is the one that was trusted."""
    text = '[server.a]\ncommand = "${NOT_SET}"\n[server.a.permissions]\nallow = ["erase", 7]\ndeny = ["x"]'
    host = Host(read(text, "project"), trust=False, environ={})
    assert [str(one) for one in host.untrusted if one.kind == "rule"] == ["allow erase of a (mcp.toml:1)"]


ESCAPES = """
"\\u001b[2Jtop" = 1
[server.a]
transport = "\\u001b[31mX"
"\\u001b]0;x\\u0007" = 1
[server.a.env]
"A\\nb" = "${NOT_SET}"
[server.b]
command = "b"
[server.b.permissions]
allow = ["a(\\u001b[2J"]
"""


async def test_what_is_said_about_a_file_cannot_touch_the_terminal() -> None:
    """It is said before anybody trusts it."""
    async with Host(read(ESCAPES, "project"), trust=False, environ={}) as host:
        told = [*host.problems(), *map(str, host.status()), *(status.reason for status in host.status())]
    assert "\\x1b[2Jtop" in told[0]
    assert all(line.isprintable() for text in told for line in text.split("\n"))
    assert "A\\nb" in "".join(told)
    with pytest.raises(ConfigUnusable) as caught:
        read('[server."\\u001b[2J"]\ncommand = "x"')
    assert str(caught.value).isprintable()
