"""`sandbox` in `mcp.toml`: read with variables and `~`, refused with file and key, shown in the trust question."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran import Host
from trimaran.client.sandbox_policy import Sandbox
from trimaran.host import ServerEntry, Trust
from trimaran.host.config import FailedEntry, HostConfig, Machine, Source, read_config


def read(text: str, level: str = "file", **variables: str) -> HostConfig:
    machine = Machine(environ=variables, home="/home/ann", workspace="/work", platform="linux")
    return read_config([(Source("mcp.toml", level), text)], machine)  # pyright: ignore[reportArgumentType]


def entry(line: str, **variables: str) -> ServerEntry | FailedEntry:
    config = read(f'[server.x]\ncommand = "tool"\n{line}\n', **variables)
    return {**config.servers, **config.failed}["x"]


def test_it_is_read_with_home_and_variables() -> None:
    parsed = entry('sandbox = { read = ["~/notes", "${DATA}/in"], net = ["api.example.com"] }', DATA="/srv")
    assert isinstance(parsed, ServerEntry)
    assert parsed.sandbox == Sandbox(read=("/home/ann/notes", "/srv/in"), net=("api.example.com",))
    strict = entry('sandbox = "strict"')
    assert isinstance(strict, ServerEntry)
    assert strict.target()["sandbox"] == Sandbox()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('sandbox = "lax"', "server.x.sandbox"),
        ("sandbox = true", "server.x.sandbox"),
        ('sandbox = { reads = ["a"] }', "no key 'reads'"),
        ('sandbox = { read = ["${NOPE}"] }', "NOPE"),
        ("sandbox = { read = [1] }", "a text in quotes"),
        ('sandbox = "strict"\ninherit_env = true', "keep one of the two"),
    ],
)
def test_what_cannot_be_meant_fails_the_server(line: str, message: str) -> None:
    failed = entry(line)
    assert isinstance(failed, FailedEntry)
    assert message in failed.reason


def test_it_is_not_for_http() -> None:
    config = read('[server.x]\ntransport = "http"\nurl = "https://x.example/mcp"\nsandbox = "strict"\n')
    assert "sandbox is for a process" in config.failed["x"].reason


async def test_the_trust_question_shows_it(tmp_path: Path) -> None:
    config = read('[server.x]\ncommand = "tool"\nsandbox = { write = ["/out"] }\n', "project")
    host = Host(config, trust=Trust(tmp_path / "trusted.json"))
    (item,) = host.untrusted
    assert item.sandbox == "writes /out; no network"
    assert "in a sandbox (writes /out; no network)" in str(item)
