"""What may be told of a URL or a command line: places and programs, not secrets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.protocol.mask import Mask, mask_arguments, mask_command, mask_url


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("https://h.example/mcp", "https://h.example/mcp"),
        ("http://[::1]:8/mcp", "http://[::1]:8/mcp"),
        ("https://me:hunter2@h/mcp", "https://***@h/mcp"),
        ("https://h/mcp?key=hunter2&b=&c#x", "https://h/mcp?key=***&b=&c#x"),
        ("https://h/s/a1b2c3d4e5f6a1b2c3d4e5f6/sse", "https://h/s/***/sse"),
        ("https://h/sk-abcdefghijklmnop1234", "https://h/***"),
    ],
    ids=["plain", "address", "user", "query", "path", "token"],
)
def test_a_url_is_told_without_its_secrets(url: str, seen: str) -> None:
    assert mask_url(url) == seen


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (["npx", "-y", "server"], ["npx", "-y", "server"]),
        (["x", "--token", "hunter2", "on"], ["x", "--token", "***", "on"]),
        (["x", "--api-key=hunter2", "-header", "a: b"], ["x", "--api-key=***", "-header", "***"]),
        (["x", "--auth", "--token", "hunter2"], ["x", "--auth", "--token", "***"]),
        (["x", "APP_SECRET=hunter2", "LEVEL=3"], ["x", "APP_SECRET=***", "LEVEL=3"]),
        (["x", "https://u:p@h/?k=v", "ghp_abcdefghijklmnop1234"], ["x", "https://***@h/?k=***", "***"]),
        (["npx", "-y", "task-manager-mcp-server"], ["npx", "-y", "task-manager-mcp-server"]),
        (["x", "--token", ""], ["x", "--token", ""]),
        (["x", 5, "--token", None, "hunter2"], ["x", 5, "--token", None, "***"]),
    ],
    ids=["plain", "option", "equals", "two", "setting", "url", "task", "empty", "no-text"],
)
def test_arguments_are_told_without_their_secrets(given: list[object], seen: list[object]) -> None:
    assert mask_arguments(given) == seen


def test_a_command_is_told_as_one_would_type_it() -> None:
    assert mask_command(["my tool", "--token", "hunter2", "a b", ""]) == "'my tool' --token *** 'a b' ''"


@given(st.lists(st.text(max_size=30), max_size=8))
def test_a_masked_command_has_as_many_arguments(listed: list[str]) -> None:
    assert len(mask_arguments(listed)) == len(listed)


def test_a_text_about_a_url_is_freed_of_its_secrets_whoever_wrote_it() -> None:
    mask = Mask("https://h/s/a1b2c3d4e5f6a1b2c3d4e5f6?key=hunter2&v=1")
    assert mask("no connection to https://h/s/a1b2c3d4e5f6a1b2c3d4e5f6?key=hunter2&v=1: refused") == (
        "no connection to https://h/s/***?key=***&v=***: refused"
    )
    assert mask("it redirects to https://other/a1b2c3d4e5f6a1b2c3d4e5f6/?v=2&key=hunter2") == (
        "it redirects to https://other/***/?v=2&key=***"
    )
    assert Mask("https://h/sk-abcdefghijklmnop1234")("the key sk-abcdefghijklmnop1234") == "the key ***"


def test_a_text_about_a_command_is_freed_of_its_secrets() -> None:
    mask = Mask(command=["x", "--token", "hunter2's", "-v"])
    assert mask("cannot start x --token 'hunter2'\"'\"'s' -v") == "cannot start x --token *** -v"
    assert mask("['x', 'hunter2's']") == "['x', '***']"


@pytest.mark.parametrize("filler", range(170, 200, 5))
def test_a_command_that_was_cut_in_the_middle_of_a_secret_is_told_without_it(filler: int) -> None:
    command = ["x" * filler, "--token", "correct-horse-battery-staple"]
    told = f"cannot start {' '.join(command)[:200]}...: no"
    assert "correct" not in Mask(command=command)(told)
    assert "horse" not in Mask(command=command)(told)


def test_where_there_is_nothing_to_hide_nothing_is_changed() -> None:
    assert not Mask("https://h/mcp", ["x", "--verbose"])
    assert not Mask()
    assert not Mask("server.py")
    assert not Mask(command=["x", "--auth", "no", 7])
    assert Mask("https://h/mcp?a=b")
    assert Mask("https://h/mcp?a=secret")("as it is") == "as it is"
