"""The lines that were typed: up and down through them, in a file of the person's own, without what looks like a secret."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from trimaran.apps.console.history import History, default_file, looks_secret


def test_up_and_down_go_through_the_lines_and_back_to_the_draft() -> None:
    history = History()
    for line in ("one", "two", "two", "  "):
        history.add(line)
    assert len(history) == 2
    assert history.older("dra") == "two"
    assert history.older("two") == "one"
    assert history.older("one") is None
    assert history.newer() == "two"
    assert history.newer() == "dra"
    assert history.newer() is None


def test_lines_come_back_from_the_file_which_only_its_owner_can_read(tmp_path: Path) -> None:
    file = tmp_path / "state" / "history.json"
    first = History(file)
    first.add("files:read path=a")
    first.add("two\nlines")
    first.save()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in file.parent.iterdir()] == ["history.json"]
    second = History(file)
    assert second.older("") == "two\nlines"
    assert second.older("") == "files:read path=a"


@pytest.mark.parametrize(
    "line",
    [
        "web:login password=hunter2",
        "web:login user=ada token:='\"x\"'",
        'web:login {"user": "ada", "api_key": "x"}',
        "say sk-abcdefghijklmnopqrstuv to them",
        "git:push auth=ghp_abcdefghijklmnopqrstuv",
        "door:open pin=1234",
        "web:get https://ada:hunter2@example.org/",
    ],
)
def test_a_line_that_looks_like_a_secret_is_remembered_and_not_written(line: str, tmp_path: Path) -> None:
    assert looks_secret(line)
    file = tmp_path / "history.json"
    history = History(file)
    history.add(line)
    history.add("plain text")
    history.save()
    assert history.older("") == "plain text"
    assert history.older("") == line
    assert file.read_text() == '["plain text"]'


def test_lines_about_secrets_in_general_are_no_secrets() -> None:
    for line in (
        "what is a token?",
        "files:read path=notes.txt lines:=[1, 2]",
        "auth:list user=ada",
        "books:find author=Ada opinion=good",
        "write to ada@example.org about https://example.org/",
    ):
        assert not looks_secret(line), line


@pytest.mark.parametrize(
    "content", ["", "{", "[1, 2]", '{"a": 1}', "[" * 100_000], ids=["empty", "cut", "numbers", "object", "deep"]
)
def test_a_file_that_is_none_is_no_history(content: str, tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    file.write_text(content)
    assert len(History(file)) == 0


def test_a_place_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = History(tmp_path / "file" / "history.json")
    history.add("one")
    history.save()
    assert history.older("") == "one"


def test_the_file_is_in_the_users_directory_for_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_file() == tmp_path / "trimaran" / "console-history.json"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    assert default_file() == tmp_path / ".local" / "state" / "trimaran" / "console-history.json"
