"""What a person may write for TARGET, what goes with it, and what each wrong form is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from trimaran.apps.cli.run import connect_options, connect_target
from trimaran.apps.cli.target import (
    ClientCommand,
    Settings,
    Target,
    client_options,
    parse_target,
    read_settings,
    split_words,
)

GIVEN: dict[str, Any] = {"timeout": 30.0, "headers": (), "bearer": None, "env": (), "debug": False}


def refusal(text: str) -> str:
    with pytest.raises(click.UsageError) as caught:
        parse_target(text)
    return caught.value.message


def split(*words: str) -> tuple[Target, list[str]]:
    """The words as a command line with nothing but a target and what follows it."""
    found: list[tuple[Target, list[str]]] = []

    @click.command(cls=ClientCommand)
    @click.argument("words", nargs=-1)
    @client_options()
    @click.pass_context
    def command(ctx: click.Context, words: tuple[str, ...], **given: Any) -> None:
        found.append(split_words(ctx, words))

    command.main(list(words), standalone_mode=False)
    return found[0]


# The forms


@pytest.mark.parametrize("url", ["http://127.0.0.1:9090/mcp", "https://boats.example/mcp?x=1", "HTTP://[::1]:80/"])
def test_a_url_stays_as_it_is_written(url: str) -> None:
    """P50: no part of a URL is rewritten."""
    target = parse_target(url)
    assert target.is_http
    assert (target.url, connect_target(target)) == (url, url)


IMPORT = "from trimaran import Server\nserver = Server('a', version='1')\n"
SERVED = (sys.executable, "-P", "-m", "trimaran.apps.cli", "serve")


@pytest.mark.parametrize(
    ("source", "is_served"),
    [
        ("from trimaran import Server\nserver = Server('a', version='1')\n", True),
        ("import trimaran.server\napp = trimaran.Server('a', version='1').asgi()\n", True),
        ("from trimaran import Server\nserver = Server('a', version='1')\nserver.run()\n", False),
        ("from trimaran import Server\nfrom trimaran.serve import run\nrun(Server('a', version='1'))\n", False),
        (IMPORT + "def main():\n    server.run()\n", True),
        (IMPORT + "def main():\n    server.run()\nif __name__ == '__main__':\n    main()\n", False),
        (IMPORT + "def main():\n    begin()\ndef begin():\n    server.run()\nmain()\n", False),
        (IMPORT + "@app.command()\ndef main():\n    server.run()\napp()\n", False),
        ("from somewhere import Server\nserver = Server('a')\n", False),
        ("def broken(:\n", False),
    ],
    ids=[
        "never run",
        "an app",
        "run",
        "run by a function",
        "a function that nothing calls",
        "main",
        "two deep",
        "a command",
        "another library's",
        "broken",
    ],
)
def test_a_file_whose_server_nothing_runs_is_served(tmp_path: Path, source: str, is_served: bool) -> None:
    file = tmp_path / "boat.py"
    file.write_text(source)
    assert parse_target(str(file)).command == ((*SERVED, str(file)) if is_served else (sys.executable, str(file)))


def test_a_server_in_a_file_is_taken_by_name(tmp_path: Path) -> None:
    file = tmp_path / "boat.py"
    assert "there is no file" in refusal(f"{file}:harbour")
    file.touch()
    assert parse_target(f"{file}:harbour").command == (*SERVED, f"{file}:harbour")


def test_a_python_file_is_run_by_this_python_and_a_js_file_by_node(tmp_path: Path) -> None:
    for name, runner in (("boat.py", sys.executable), ("boat.js", "node"), ("boat.mjs", "node")):
        (tmp_path / name).touch()
        assert connect_target(parse_target(str(tmp_path / name))) == [runner, str(tmp_path / name)]


def test_a_file_with_a_space_in_its_name_is_still_a_file(tmp_path: Path) -> None:
    path = tmp_path / "my boat.py"
    path.touch()
    assert parse_target(str(path)).command == (sys.executable, str(path))


def test_a_quoted_command_is_split_like_a_shell_does() -> None:
    assert parse_target("npx -y 'the server'").command == ("npx", "-y", "the server")


def test_a_word_that_is_a_command_is_one(tmp_path: Path) -> None:
    assert parse_target("sh").command == ("sh",)
    script = tmp_path / "server"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert parse_target(str(script)).command == (str(script),)


def test_everything_after_two_dashes_is_the_command() -> None:
    target, rest = split("--", "npx", "-y", "server", "--json")
    assert (target.command, rest) == (("npx", "-y", "server", "--json"), [])
    assert target.text == "-- npx -y server --json"


def test_words_before_the_dashes_are_not_the_target() -> None:
    target, rest = split("add", "a=1", "--", "python", "boat.py")
    assert (target.command, rest) == (("python", "boat.py"), ["add", "a=1"])


def test_without_dashes_the_first_word_is_the_target() -> None:
    target, rest = split("http://h/mcp", "add", "a=1")
    assert (target.url, rest) == ("http://h/mcp", ["add", "a=1"])


# Configuration files


def test_a_server_of_the_current_directory_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "has" not in refusal("tide-server").partition("mcp.toml#name)")[2]
    config(tmp_path, {"tide-server": {"command": "json"}, "wind-server": {"command": "wind"}})
    assert parse_target("tide-server").command == ("json",)
    Path("mcp.toml").write_text('[server.tide-server]\ncommand = "toml"\nargs = ["1"]\n')
    assert parse_target("tide-server") == Target("tide-server", command=("toml", "1"))
    assert parse_target("wind-server").command == ("wind",)
    assert parse_target("mcp.toml#tide-server").command == parse_target("mcp.toml").command == ("toml", "1")
    assert refusal("tied-server").endswith("; mcp.toml has tide-server; .mcp.json has tide-server, wind-server")
    with pytest.raises(click.UsageError, match=r"TARGET is missing: .*; mcp\.toml has tide-server"):
        split()


def test_a_configuration_that_cannot_be_read_is_said_where_it_is_named_and_passed_over_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mcp.toml").write_text("[server")
    assert "'mcp.toml' cannot be read as TOML" in refusal("mcp.toml")
    assert "neither a URL" in refusal("tide-server")
    Path("mcp.toml").write_text("")
    assert "'mcp.toml' names no server: write [server.name]" in refusal("mcp.toml")


def test_a_command_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose rule: ours. A file that came with a repository does not change what a command means."""
    monkeypatch.chdir(tmp_path)
    config(tmp_path, {"env": {"command": "other"}})
    assert parse_target("env").command == ("env",)


def config(directory: Path, servers: dict[str, Any], key: str = "mcpServers", name: str = ".mcp.json") -> Path:
    path = directory / name
    path.write_text(json.dumps({key: servers}))
    return path


def test_the_only_server_of_a_configuration_is_taken(tmp_path: Path) -> None:
    path = config(tmp_path, {"boat": {"command": "npx", "args": ["-y", "s"], "env": {"A": "1"}, "cwd": "/tmp"}})
    target = parse_target(str(path))
    assert (target.command, target.env, target.cwd) == (("npx", "-y", "s"), {"A": "1"}, "/tmp")


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_a_server_of_a_configuration_is_taken_by_name(tmp_path: Path, key: str) -> None:
    entries = {"a": {"command": "a"}, "b": {"type": "http", "url": "http://h/mcp", "headers": {"X": "1"}}}
    target = parse_target(f"{config(tmp_path, entries, key)}#b")
    assert (target.url, target.headers, target.transport) == ("http://h/mcp", {"X": "1"}, "http")


def test_an_sse_entry_keeps_its_transport(tmp_path: Path) -> None:
    target = parse_target(str(config(tmp_path, {"old": {"type": "sse", "url": "http://h/sse"}})))
    assert connect_target(target) == {"url": "http://h/sse", "transport": "sse"}


def test_a_file_with_one_bare_entry_is_a_configuration_too(tmp_path: Path) -> None:
    path = tmp_path / "boat.json"
    path.write_text('{"command": "boat"}')
    assert parse_target(f"{path}#boat").command == ("boat",)


def test_variables_in_a_configuration_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOAT_KEY", "secret")
    entry = {"url": "http://${BOAT_HOST:-localhost}/mcp", "headers": {"X-Key": "${BOAT_KEY}"}}
    target = parse_target(str(config(tmp_path, {"b": entry})))
    assert (target.url, target.headers) == ("http://localhost/mcp", {"X-Key": "secret"})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"command": "${NO_SUCH_BOAT}"}, "uses ${NO_SUCH_BOAT}, which is not set"),
        ({"command": "a", "url": "http://h"}, "needs either a command or a url"),
        ({}, "needs either a command or a url"),
        ("npx", "is not an object with a command or a url"),
        ({"command": "a", "args": "-y"}, "args a list of texts"),
        ({"command": 5}, "command must be a text"),
        ({"url": "http://h", "type": "ws"}, "transport 'ws' does not go with a url"),
        ({"url": "http://h", "headers": ["X"]}, "headers must be an object of texts"),
        ({"url": "boats.example"}, "as in http://boats.example"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "entry",
)
def test_an_entry_that_cannot_work_is_named(tmp_path: Path, entry: Any, said: str) -> None:
    path = config(tmp_path, {"boat": entry})
    assert said in refusal(str(path))


def test_several_servers_must_be_told_apart_and_a_slip_is_guessed(tmp_path: Path) -> None:
    path = config(tmp_path, {"red": {"command": "a"}, "green": {"command": "b"}})
    assert f"has 2 servers: say which, as in {path}#red or {path}#green" in refusal(str(path))
    assert f"did you mean {path}#green?" in refusal(f"{path}#gren")
    assert "it has red, green" in refusal(f"{path}#blue")


def test_a_configuration_that_is_none_is_told_what_one_looks_like(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[1]")
    assert '{"mcpServers": {"name":' in refusal(str(path))
    path.write_text("{")
    assert "cannot be read as JSON" in refusal(str(path))
    assert "there is no file" in refusal(str(tmp_path / "none.json#a"))


# Wrong forms


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "TARGET is empty"),
        ("ws://host/mcp", "not ws://"),
        ("http:///mcp", "has no host"),
        ("http://user:secret@host/mcp", "use --bearer or --header"),
        ("http://host:99999/mcp", "is not a URL"),
        ("localhost:9090/mcp", "write http://localhost:9090/mcp"),
        ("boats.example", "write http://boats.example"),
        ("no-such-command-at-all", "a target is a URL"),
        ("'unbalanced", "cannot be read as a command"),
        ("boat.py:server", "there is no file 'boat.py'"),
    ],
)
def test_a_wrong_form_is_told_what_to_write(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_password_in_a_url_is_not_repeated() -> None:
    assert "secret" not in refusal("http://user:secret@host/mcp")


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "boat.py").touch()
    assert f"did you mean '{tmp_path / 'boat.py'}'" in refusal(str(tmp_path / "baot.py"))
    assert "there is no file" in refusal(str(tmp_path / "zzzzzz.py"))
    assert "does not exist" in refusal(str(tmp_path / "nowhere" / "x.py"))


def test_a_directory_and_a_file_that_cannot_run_are_no_targets(tmp_path: Path) -> None:
    assert "is a directory" in refusal(str(tmp_path))
    (tmp_path / "notes.txt").touch()
    assert "neither a script (.py, .js) nor executable" in refusal(str(tmp_path / "notes.txt"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "TARGET is missing"),
        (("--",), "there is no command after --"),
        (("list", "--", "http://h/mcp"), "write http://h/mcp without the --"),
        (("x", "--", "a=1"), "arguments go before the --"),
    ],
)
def test_dashes_in_the_wrong_place_are_explained(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        split(*words)
    assert said in caught.value.message


# Options


def settings(target: Target, **given: Any) -> Settings:
    return read_settings(target, {**GIVEN, **given})


URL = Target("u", url="http://h/mcp")
COMMAND = Target("c", command=("boat",))


def test_headers_and_variables_are_read_from_pairs() -> None:
    assert settings(URL, headers=("X-A=1=2", "X-B: three")).headers == {"X-A": "1=2", "X-B": "three"}
    assert settings(COMMAND, env=("A=1", "B=")).env == {"A": "1", "B": ""}


@pytest.mark.parametrize(
    ("target", "given", "said"),
    [
        (COMMAND, {"headers": ("A=1",)}, "--header goes with a URL"),
        (COMMAND, {"bearer": "t"}, "--bearer goes with a URL"),
        (URL, {"env": ("A=1",)}, "--env goes with a command"),
        (URL, {"headers": ("no header",)}, "is not a header"),
        (URL, {"headers": ("X=a\nY: b",)}, "is not a header"),
        (COMMAND, {"env": ("=1",)}, "is not a variable"),
        (URL, {"inherit_env": True}, "--inherit-env goes with a command"),
        (URL, {"yes": True, "decline": True}, "contradict"),
        (URL, {"timeout": -1.0}, "--timeout"),
        (URL, {"timeout": float("nan")}, "--timeout"),
    ],
    ids=lambda value: "" if isinstance(value, (dict, Target)) else None,
)
def test_options_that_cannot_work_are_refused(target: Target, given: dict[str, Any], said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        settings(target, **given)


def test_the_token_of_the_environment_is_used_for_urls_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_TOKEN", "from-env")
    assert settings(URL).bearer == "from-env"
    assert settings(URL, bearer="typed").bearer == "typed"
    assert settings(COMMAND).bearer is None


def test_what_is_typed_wins_over_the_configuration() -> None:
    target = URL._replace(headers={"X-A": "1", "X-B": "2"})
    options = connect_options(target, Settings(headers={"X-B": "3"}, bearer="t", timeout=5.0))
    assert options == {
        "timeout": 5.0,
        "era": "auto",
        "connect_timeout": 5.0,
        "headers": {"X-A": "1", "X-B": "3"},
        "auth": "t",
    }
    child = connect_options(COMMAND._replace(env={"A": "1"}, cwd="/tmp"), Settings(env={"A": "2"}, timeout=None))
    assert child == {"timeout": None, "era": "auto", "env": {"A": "2"}, "cwd": "/tmp"}
