"""`trimaran read` and `trimaran prompt` against a real server."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from .harbour import PIXEL
from .harness import HARBOUR, AtTerminal, run_cli

Capsys = pytest.CaptureFixture[str]
pytestmark = pytest.mark.slow


def test_text_is_printed_as_it_is(capsys: Capsys) -> None:
    assert run_cli(capsys, "read", HARBOUR, "harbour://guide") == (0, "# Guide\n", "")
    assert run_cli(capsys, "read", HARBOUR, "log://friday").out == "friday: calm\n"


def test_bytes_go_through_when_stdout_is_redirected(tmp_path: Path) -> None:
    with (tmp_path / "chart.png").open("wb") as out:
        words = [sys.executable, "-m", "trimaran.apps.cli", "read", HARBOUR, "harbour://chart.png"]
        done = subprocess.run(words, stdout=out, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=25)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "chart.png").read_bytes() == PIXEL


def test_at_a_terminal_bytes_are_saved(tmp_path: Path) -> None:
    with AtTerminal("read", HARBOUR, "harbour://chart.png", cwd=tmp_path) as terminal:
        assert terminal.end() == 0
    # On a busy machine the start takes long enough for its spinner to be seen before.
    assert terminal.seen.strip().endswith("chart-1.png (image/png, 28 bytes)")
    assert (tmp_path / "chart-1.png").read_bytes() == PIXEL


def test_with_out_bytes_are_saved_there(capsys: Capsys, tmp_path: Path) -> None:
    done = run_cli(capsys, "read", HARBOUR, "harbour://chart.png", "--out", str(tmp_path))
    assert done.out == f"{tmp_path / 'chart-1.png'} (image/png, 28 bytes)\n"


def test_json_is_the_raw_result(capsys: Capsys) -> None:
    (one,) = run_cli(capsys, "read", HARBOUR, "harbour://chart.png", "--json").json["contents"]
    assert base64.b64decode(one["blob"]) == PIXEL


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_missing_resource_ends_with_four(capsys: Capsys, era: str) -> None:
    done = run_cli(capsys, "read", HARBOUR, "nowhere://x", "--era", era)
    assert (done.code, done.out) == (4, "")
    assert "nowhere://x" in done.err
    assert "trimaran list" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "URI is missing"),
        (["a:b", "c"], "'c' is one word too many"),
        (["guide"], "'guide' is not a URI"),
        (["log://{day}"], "'log://{day}' is a template"),
    ],
    ids=["none", "two", "no-uri", "template"],
)
def test_a_read_that_cannot_work_is_refused(capsys: Capsys, words: list[str], said: str) -> None:
    done = run_cli(capsys, "read", HARBOUR, *words)
    assert done.code == 2
    assert said in done.err


# Prompts


def test_a_prompt_is_printed_by_role(capsys: Capsys) -> None:
    assert run_cli(capsys, "prompt", HARBOUR, "plan", "port=Kelp") == (0, "user:\nSail to Kelp with two.\n", "")


def test_the_arguments_of_a_prompt_are_texts(capsys: Capsys) -> None:
    assert "with 5." in run_cli(capsys, "prompt", HARBOUR, "plan", "port=x", "crew=5").out
    done = run_cli(capsys, "prompt", HARBOUR, "plan", "port:=5")
    assert done.code == 2
    assert "the arguments of a prompt are texts" in done.err


def test_an_argument_that_the_prompt_does_not_have_is_not_sent(capsys: Capsys) -> None:
    done = run_cli(capsys, "prompt", HARBOUR, "plan", "port=x", "crwe=5")
    assert (done.code, done.out) == (2, "")
    assert "the prompt 'plan' has no argument 'crwe'; did you mean 'crew'?" in done.err


def test_a_prompt_that_lacks_something_says_what(capsys: Capsys) -> None:
    assert run_cli(capsys, "prompt", HARBOUR, "plan") == (
        2,
        "",
        "trimaran: the prompt 'plan' needs more: add port=...\n",
    )
    assert "did you mean 'plan'?" in run_cli(capsys, "prompt", HARBOUR, "paln").err
    assert "NAME is missing" in run_cli(capsys, "prompt", HARBOUR).err


def test_a_prompt_as_json_is_raw(capsys: Capsys) -> None:
    done = run_cli(capsys, "prompt", HARBOUR, "plan", "port=Kelp", "--json")
    assert done.json["messages"][0]["role"] == "user"
