"""`trimaran list` against real servers, over stdio and HTTP."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from .conftest import Spawn
from .harness import HARBOUR, AtTerminal, odd, plain, run_cli

Capsys = pytest.CaptureFixture[str]
pytestmark = pytest.mark.slow


def test_it_shows_the_server_and_all_it_offers(capsys: Capsys) -> None:
    done = run_cli(capsys, "list", HARBOUR)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("harbour 2.0.0, speaks 2026-07-28 (modern)\n  Ask the harbour master.\n")
    for text in (
        "Tools (12)",
        "a integer, [b integer]; reads only",
        "Add two numbers.",
        "Resources (2)",
        "harbour://guide",
        "Resource templates (1)",
        "log://{day}",
        "Prompts (1)",
        "port, [crew]",
    ):
        assert text in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert not any(line != line.rstrip() for line in done.out.splitlines())


def test_one_kind_can_be_asked_for(capsys: Capsys) -> None:
    done = run_cli(capsys, "list", HARBOUR, "--prompts", "--templates")
    assert "Prompts (1)" in done.out
    assert "Resource templates (1)" in done.out
    assert "Tools" not in done.out


def test_json_is_all_that_is_printed(capsys: Capsys) -> None:
    done = run_cli(capsys, "list", HARBOUR, "--json")
    found = done.json
    assert done.err == ""
    assert (found["server"]["name"], found["era"], found["version"]) == ("harbour", "modern", "2026-07-28")
    (add,) = [tool for tool in found["tools"] if tool["name"] == "add"]
    assert add["inputSchema"]["required"] == ["a"]
    assert add["annotations"] == {"readOnlyHint": True}
    assert [prompt["name"] for prompt in found["prompts"]] == ["plan"]
    assert [template["uriTemplate"] for template in found["templates"]] == ["log://{day}"]


def test_a_kind_the_server_does_not_offer_is_said_to_be_absent(capsys: Capsys, boat: Path) -> None:
    boat.write_text(boat.read_text() + '\nif __name__ == "__main__":\n    server.run()\n')
    done = run_cli(capsys, "list", str(boat), "--prompts")
    assert (done.code, done.err) == (0, "The server offers no prompts.\n")
    everything = run_cli(capsys, "list", str(boat))
    assert "Prompts" not in everything.out
    assert run_cli(capsys, "list", str(boat), "--prompts", "--json").json["prompts"] == []


def test_the_era_can_be_chosen(capsys: Capsys) -> None:
    done = run_cli(capsys, "list", HARBOUR, "--era", "legacy", "--tools")
    assert "speaks 2025-11-25 (legacy)" in done.out


def test_an_era_chosen_once_is_not_chosen_for_the_next_time(capsys: Capsys) -> None:
    """What a person asks for is no evidence of what the server speaks: `auto` still finds the newest (protocol.md 2.5)."""
    run_cli(capsys, "list", HARBOUR, "--era", "legacy", "--prompts")
    assert "(modern)" in run_cli(capsys, "list", HARBOUR, "--prompts").out


def test_a_command_may_follow_two_dashes_or_be_quoted(capsys: Capsys) -> None:
    for words in (["--prompts", "--", sys.executable, HARBOUR], [f"'{sys.executable}' '{HARBOUR}'", "--prompts"]):
        assert "Prompts (1)" in run_cli(capsys, "list", *words).out


def test_an_entry_of_a_configuration_is_started_with_its_environment(capsys: Capsys, tmp_path: Path) -> None:
    script = tmp_path / "named.py"
    script.write_text(
        "import os\nfrom trimaran import Server\nserver = Server(os.environ['NAME'] + os.environ['MORE'])\n"
        "@server.tool\ndef t() -> str:\n    'x'\n    return ''\nserver.run()\n"
    )
    entry = {"command": sys.executable, "args": [str(script)], "env": {"NAME": "of-config", "MORE": "-lost"}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"boats": entry}}))
    done = run_cli(capsys, "list", f"{tmp_path / '.mcp.json'}#boats", "--env", "MORE=-typed", "--json")
    assert done.json["server"]["name"] == "of-config-typed"


def test_a_url_is_listed_in_both_eras(capsys: Capsys, spawn: Spawn, free_port: int) -> None:
    child = spawn("serve", HARBOUR, "--port", str(free_port))
    child.wait_stderr("is served at")
    url = f"http://127.0.0.1:{free_port}/mcp"
    for era, version in (("modern", "2026-07-28"), ("legacy", "2025-11-25")):
        done = run_cli(capsys, "list", url, "--era", era, "--tools")
        assert (done.code, done.err) == (0, "")
        assert f"speaks {version}" in done.out
        assert "Tools (12)" in done.out


def test_one_word_too_many_is_a_usage_error(capsys: Capsys) -> None:
    done = run_cli(capsys, "list", HARBOUR, "add")
    assert done.code == 2
    assert "'add' is one word too many" in done.err


def test_what_a_server_says_cannot_touch_the_terminal(tmp_path: Path) -> None:
    """Whose rule: ours; protocol.md 6: names and descriptions are untrusted."""
    script = tmp_path / "evil.py"
    script.write_text(
        "from trimaran import Server\nserver = Server('e\\x1b]0;owned\\x07vil', version='1')\n"
        "@server.tool(description='clear \\x1b[2J \\u202e screen')\ndef t() -> str:\n    return ''\nserver.run()\n"
    )
    with AtTerminal("list", str(script)) as terminal:
        assert terminal.end() == 0
    assert "\x1b]0;" not in terminal.seen
    assert "\x1b[2J" not in terminal.seen
    assert "\u202e" not in terminal.seen
    assert r"clear \x1b[2J \u202e screen" in plain(terminal.seen)


# --- servers that lack what they declare -----------------------------------------------------------------------------


def test_a_list_that_fails_hides_none_of_the_others(capsys: Capsys) -> None:
    """8 of 83 real servers declare resources and answer -32601 to resources/templates/list."""
    done = run_cli(capsys, "list", odd(logging__setLevel={}))
    assert done.code == 0
    assert all(title in done.out for title in ("Tools (1)", "Resources (1)", "Prompts (1)"))
    assert "templates" not in done.out
    assert "The resource templates cannot be listed: the server answered: Method not found (-32601)." in done.err


@pytest.mark.parametrize("kind", ["tools", "resources", "prompts"])
def test_whichever_it_is(capsys: Capsys, kind: str) -> None:
    done = run_cli(capsys, "list", odd(**{f"{kind}__list": {"error": -32603}}))
    assert done.code == 0
    assert f"The {kind} cannot be listed" in done.err
    assert sum(f"{other.capitalize()} (1)" in done.out for other in ("tools", "resources", "prompts")) == 2


def test_a_list_that_never_comes_hides_none_of_the_others(capsys: Capsys) -> None:
    done = run_cli(capsys, "list", odd(resources__list=None), "--timeout", "2")
    assert (done.code, "Tools (1)" in done.out, "Prompts (1)" in done.out) == (0, True, True)
    assert "no answer to resources/list within 2 s" in done.err


def test_json_names_what_failed(capsys: Capsys) -> None:
    found = run_cli(capsys, "list", odd(), "--json", "-q").json
    assert found["failures"] == {"templates": "the server answered: Method not found (-32601)"}
    assert (found["templates"], len(found["tools"])) == ([], 1)


def test_where_all_that_was_asked_for_fails_the_command_does(capsys: Capsys) -> None:
    done = run_cli(capsys, "list", odd(), "--templates")
    assert (done.code, done.out) == (4, "")
    assert "Method not found" in done.err


def test_a_server_that_declares_logging_and_has_no_level_to_set_is_used(capsys: Capsys) -> None:
    """ref-tools-mcp, and others."""
    for words, text in (
        (["list", odd(), "--tools"], "add"),
        (["call", odd(), "add", "a=1"], "3"),
        (["read", odd(), "odd://one"], "hello"),
        (["prompt", odd(), "plan"], "go"),
    ):
        done = run_cli(capsys, *words)
        assert done.code == 0, done.err
        assert text in done.out
        assert "logging/setLevel" in done.err


def test_a_tool_can_be_called_where_none_can_be_listed(capsys: Capsys) -> None:
    done = run_cli(capsys, "call", odd(tools__list={"tools": "none"}), "add", "a=1", "-q")
    assert (done.code, done.out) == (0, "3\n")
