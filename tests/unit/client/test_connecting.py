"""From whatever names a server to a client of it; and what is said when it names none."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port

from trimaran import connect
from trimaran.client import StateEvent
from trimaran.connecting import _resolve
from trimaran.errors import ConfigError, ConnectFailed, RemoteProtocolError
from trimaran.oauth import OAuth
from trimaran.protocol.mask import Mask
from trimaran.server.server import Server
from trimaran.testing import channel_to


def dialer(target: Any, **options: Any) -> Any:
    return _resolve(target, options)[0]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "my server.py"
    path.write_text("")
    return path


# --- what is right ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://h/mcp", "https://h:1/x", "HTTP://h/", "http://[::1]:5/mcp"])
def test_a_url_is_spoken_to_over_http(url: str) -> None:
    made = dialer(url)
    assert made.describe() == url
    assert made.manners == ("modern", "legacy", "sse")


def test_a_list_is_a_command() -> None:
    made = dialer(["npx", "-y", "a server"])
    assert made.describe() == "npx -y 'a server'"
    assert made.manners == ("modern", "legacy")
    assert dialer(("x",)).describe() == "x"


def test_a_script_is_run_by_what_runs_it(script: Path) -> None:
    for given in (script, str(script)):
        assert dialer(given).describe() == f"{sys.executable} '{script}'"
    other = script.with_suffix(".mjs")
    other.write_text("")
    assert dialer(other).describe() == f"node '{other}'"


def test_a_server_and_a_channel_are_recognised() -> None:
    class Mine:
        async def open(self, owner: Any) -> None: ...
        async def send(self, message: bytes) -> None: ...
        async def close(self) -> None: ...
        def describe(self) -> str:
            return "mine"

        def postmortem(self) -> Any: ...

    assert "demo" in dialer(Server("demo", version="1")).describe()
    assert dialer(Mine()).describe() == "mine"


@pytest.mark.parametrize(
    ("config", "text", "manners"),
    [
        ({"command": "npx", "args": ["-y", "x"]}, "npx -y x", 2),
        ({"command": "x", "env": {"A": "b"}, "cwd": "/tmp", "type": "stdio"}, "x", 2),
        ({"command": "x", "args": [1, 2]}, "x 1 2", 2),
        ({"url": "http://h/"}, "http://h/", 3),
        ({"url": "http://h/", "transport": "http", "headers": {"A": "b"}}, "http://h/", 3),
        ({"url": "http://h/", "type": "streamable-http"}, "http://h/", 3),
        ({"url": "http://h/", "transport": "sse"}, "http://h/", 1),
        ({"mcpServers": {"one": {"command": "x"}}}, "x", 2),
        ({"servers": {"one": {"url": "http://h/"}}}, "http://h/", 3),
    ],
)
def test_a_config_is_understood(config: Any, text: str, manners: int) -> None:
    made = dialer(config)
    assert made.describe() == text
    assert len(made.manners) == manners


def test_options_lie_over_the_config() -> None:
    _, options = _resolve({"command": "x", "env": {"A": "1", "B": "2"}, "cwd": "/a"}, {"env": {"A": "3"}, "cwd": "/b"})
    assert (options.env, options.cwd) == ({"A": "3", "B": "2"}, "/b")
    _, options = _resolve({"url": "http://h/", "headers": {"A": "1", "B": "2"}}, {"headers": {"A": "3"}})
    assert options.headers == {"A": "3", "B": "2"}


def test_a_config_is_not_changed_by_being_read() -> None:
    config: Any = {"mcpServers": {"one": {"command": "x", "args": ["a"], "env": {"A": "b"}}}}
    dialer(config, env={"C": "d"})
    assert config == {"mcpServers": {"one": {"command": "x", "args": ["a"], "env": {"A": "b"}}}}


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("http://h/mcp", "http://h/mcp", True),
        ("http://h/mcp?x=1", "http://h/mcp?x=2", True),
        ("http://h/a", "http://h/b", False),
        ("http://h/mcp", "https://h/mcp", False),
        (["a", "b"], ["a", "b"], True),
        (["a", "b"], ["a b"], False),
    ],
)
def test_the_era_is_remembered_per_endpoint_and_command(one: Any, other: Any, is_same: bool) -> None:
    """protocol.md 2.6."""
    assert (dialer(one).key == dialer(other).key) is is_same


def test_no_two_channels_or_servers_share_a_memory() -> None:
    """What one object in this process speaks says nothing about the next: each has a key of its own, or none at all."""
    one, other = dialer(Server("a", version="1")), dialer(Server("b", version="1"))
    assert one.key == "" or one.key != other.key


# --- what is wrong ---------------------------------------------------------------------------------------------------

WRONG: list[tuple[Any, str]] = [
    ("", "URL"),
    ("localhost:8000/mcp", "http://"),
    ("server", "http://"),
    ("ftp://h/", "http"),
    ("http://", "host"),
    ("http:///path", "host"),
    ("http://[::1/mcp", "URL"),
    ("http://h:99999/", "URL"),
    ("http://h:port/", "URL"),
    ("npx -y some-server", "['npx', '-y', 'some-server']"),
    ("python server.py", "['python', 'server.py']"),
    ('python "server.py x', "list"),
    ("no/such/file.py", "no file"),
    ([], "empty"),
    ([""], "command"),
    (None, "URL"),
    (5, "URL"),
    (b"http://h/", "URL"),
    (object(), "URL"),
    (Server, "Server"),
    ({}, "command"),
    ({"command": ""}, "command"),
    ({"command": ["x"]}, "command"),
    ({"command": "x", "args": "a b"}, "args"),
    ({"command": "x", "env": "A=b"}, "env"),
    ({"command": "x", "comand": "y"}, "comand"),
    ({"url": 5}, "url"),
    ({"transport": "http"}, "url"),
    ({"url": "http://h/", "headers": "A: b"}, "headers"),
    ({"url": "http://h/", "transport": "carrier-pigeon"}, "carrier-pigeon"),
    ({"mcpServers": {}}, "0 servers"),
    ({"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}, "a, b"),
    ({"mcpServers": {"a": 5}}, "a"),
    ({"mcpServers": 5}, "mcpServers"),
]


@pytest.mark.parametrize(
    ("target", "remedy"),
    WRONG,
    ids=[f"{number}-{type(target).__name__}-{remedy}" for number, (target, remedy) in enumerate(WRONG)],
)
def test_a_target_that_is_none_names_the_remedy(target: Any, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connect(target)
    assert remedy in str(caught.value)


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        ("https://h/mcp?key=hunter2", "https://h/mcp?key=***"),
        ({"url": "https://h/mcp?key=hunter2"}, "https://h/mcp?key=***"),
        (["npx", "--token", "hunter2", "-v"], "npx --token *** -v"),
        ({"command": "npx", "args": ["--api-key=hunter2"]}, "npx '--api-key=***'"),
    ],
    ids=["url", "url-entry", "command", "command-entry"],
)
def test_a_target_is_named_without_its_secrets(target: Any, seen: str) -> None:
    made = dialer(target)
    assert made.describe() == seen
    assert seen in repr(connect(target))


@pytest.mark.parametrize(
    "target",
    [
        "https://h:x/?key=hunter2",
        "ftp://h/?key=hunter2",
        "https://ada:hunter2@h/?key=hunter2",
        "npx server --token hunter2",
        "npx --token hunter2 server.py",
    ],
    ids=["port", "scheme", "user", "command", "script"],
)
def test_a_target_that_cannot_be_is_refused_without_its_secrets(target: str) -> None:
    with pytest.raises(ConfigError) as refused:
        connect(target)
    assert "hunter2" not in str(refused.value)


def test_a_grant_that_cannot_be_used_is_refused_without_the_urls_secrets() -> None:
    with pytest.raises(ConfigError, match="not https") as refused:
        connect("http://h.example/mcp?key=hunter2", auth=OAuth())
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("kind", ["url", "command"])
async def test_neither_errors_nor_the_log_hold_a_secret_of_the_target(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "trimaran.client")
    events: list[StateEvent] = []
    targets: dict[str, Any] = {
        "url": f"http://127.0.0.1:{find_port()}/mcp?key=hunter2",
        "command": ["no-such-program-anywhere", "--token", "hunter2"],
    }
    client = connect(targets[kind], on_state=events.append, connect_timeout=5)
    with pytest.raises(ConnectFailed) as failed:
        await client.open()
    assert "***" in str(failed.value)
    assert "hunter2" not in str(failed.value)
    assert "***" in caplog.text
    assert "hunter2" not in caplog.text
    assert [event for event in events if event.error]
    assert not [event for event in events if "hunter2" in str(event.error)]


async def test_an_error_that_ends_a_conversation_holds_no_secret_of_the_target() -> None:
    """What a transport tells of a loss, and of a call that it failed."""

    server = Server("any", version="1")
    server.add_tool(lambda: "x", name="x")
    events: list[StateEvent] = []
    channel: Any = channel_to(server)
    client = connect(channel, on_state=events.append)
    connection = client._connection
    connection._mask = Mask("https://h/mcp?key=hunter2")

    async def fail(*_: Any) -> None:
        raise RemoteProtocolError(-32600, "https://h/mcp?key=hunter2 answered oddly")

    async with client:
        link: Any = connection.conversation.link
        link.request = link.send = fail
        with pytest.raises(RemoteProtocolError, match=r"key=\*\*\* answered"):
            await client.list_tools()
        with pytest.raises(RemoteProtocolError, match=r"key=\*\*\* answered"):
            await client.notify("notifications/any")
        connection.conversation.lost(ConnectFailed("https://h/mcp?key=hunter2 broke off"))
    assert [str(event.error) for event in events if event.error] == ["https://h/mcp?key=*** broke off"]


@pytest.mark.parametrize(
    "target",
    [
        {"mcpServers": {"boat": {"command": "b"}, "tide": {"command": "t"}}},
        {"boat": {"command": "b"}, "tide": {"url": "http://127.0.0.1/mcp"}},
        {"boat": ["b"], "tide": "https://tide.example/mcp"},
    ],
    ids=["a file's content", "entries", "targets"],
)
def test_several_servers_are_sent_to_the_host(target: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"2 servers \(boat, tide\), and connect talks to one: .* all of them to Host"
    ):
        connect(target)


def test_a_config_with_a_command_and_a_url_is_refused() -> None:
    """Neither is chosen in silence."""
    with pytest.raises(ConfigError, match="a command and a url"):
        connect({"command": "python", "url": "http://127.0.0.1:9/mcp"})
