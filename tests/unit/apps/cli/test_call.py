"""`trimaran call` against a real server: arguments in, results out, each kind of end with its exit code."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Spawn
from .harness import HARBOUR, AtTerminal, run_cli

Capsys = pytest.CaptureFixture[str]
Run = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.slow


# Arguments


def test_a_value_is_what_the_schema_says(capsys: Capsys) -> None:
    done = run_cli(capsys, "call", HARBOUR, "add", "a=2", "b=3")
    assert done == (0, "5\n", "")


def test_text_stays_text_and_json_is_read_where_it_is_wanted(capsys: Capsys) -> None:
    """P24."""
    done = run_cli(capsys, "call", HARBOUR, "echo", "flag=yes", "items=[1, 2]", "text=7", 'value:={"a": null}')
    assert done.json == {"value": {"a": None}, "flag": True, "items": [1, 2], "text": "7"}


def test_args_and_words_add_up_and_words_win(capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "args.json"
    path.write_text('{"a": 1, "b": 1}')
    assert run_cli(capsys, "call", HARBOUR, "add", "--args", f"@{path}", "b=9").out == "10\n"
    monkeypatch.setattr("sys.stdin", io.StringIO('{"a": 5}'))
    assert run_cli(capsys, "call", HARBOUR, "add", "--args", "-").out == "6\n"


def test_a_value_that_cannot_be_meant_is_refused_before_the_call(capsys: Capsys) -> None:
    done = run_cli(capsys, "call", HARBOUR, "add", "a=two")
    assert (done.code, done.out) == (2, "")
    assert done.err == "trimaran: a='two': the tool wants an integer here\n"


def test_a_misspelt_tool_is_guessed(capsys: Capsys) -> None:
    done = run_cli(capsys, "call", HARBOUR, "ad")
    assert (done.code, done.err) == (2, "trimaran: the server has no tool 'ad'; did you mean 'add'?\n")
    assert "it has add, echo" in run_cli(capsys, "call", HARBOUR, "zzzz").err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["a=2", "bb=3"], "the tool 'add' has no argument 'bb'; did you mean 'b'?"),
        (["a=2", "wind=3"], "the tool 'add' has no argument 'wind'; it has a, b"),
        (["wind:=3"], "the tool 'add' has no argument 'wind'; it has a, b"),
        (['{"a": 1}'], 'a JSON object is given with --args: write --args \'{"key": "value"}\''),
    ],
)
def test_an_argument_that_the_tool_does_not_have_is_not_sent(capsys: Capsys, words: list[str], complaint: str) -> None:
    done = run_cli(capsys, "call", HARBOUR, "add", *words)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err


def test_args_are_sent_as_they_are(capsys: Capsys) -> None:
    assert run_cli(capsys, "call", HARBOUR, "add", "--args", '{"a": 2, "b": 1, "wind": 3}').out == "3\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["call", HARBOUR], "TOOL is missing"),
        (["call", "--", "boat-server", "add"], "trimaran call TOOL [KEY=VALUE]... -- COMMAND"),
        (["call", HARBOUR, "add", "a"], "write key=value"),
        (["call", HARBOUR, "add", "--args", "[1]"], "holds no JSON object"),
        (["call", HARBOUR, "add", "--yes", "--decline"], "contradict"),
        (["call", HARBOUR, "add", "--bearer", "t"], "--bearer goes with a URL"),
        (["call"], "TARGET is missing"),
    ],
    ids=["tool", "tool behind --", "word", "args", "answers", "bearer", "target"],
)
def test_a_command_that_cannot_work_ends_with_two_and_starts_nothing(
    capsys: Capsys, words: list[str], said: str
) -> None:
    done = run_cli(capsys, *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


# Results


def test_json_is_the_raw_result_and_nothing_else(capsys: Capsys) -> None:
    done = run_cli(capsys, "call", HARBOUR, "add", "a=2", "--json")
    assert (done.json["structuredContent"], done.json["content"][0]["text"], done.err) == (3, "3", "")


def test_structured_data_is_printed_once_beside_what_else_there_is(capsys: Capsys) -> None:
    assert run_cli(capsys, "call", HARBOUR, "both").out == '{\n  "a": 1\n}\na remark\n'


def test_files_are_saved_and_named_and_never_overwritten(
    capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "draw-1.png").write_text("mine")
    done = run_cli(capsys, "call", HARBOUR, "draw")
    assert done.out.splitlines() == [
        "draw-2.png (image/png, 28 bytes)",
        "two pictures",
        "draw-3.png (image/png, 28 bytes)",
        "draw-4.wav (audio/wav, 4 bytes)",
    ]
    assert (tmp_path / "draw-1.png").read_text() == "mine"
    assert (tmp_path / "draw-4.wav").read_bytes() == b"RIFF"
    run_cli(capsys, "call", HARBOUR, "draw", "--out", "new/place")
    assert sorted(path.name for path in (tmp_path / "new/place").iterdir()) == [
        "draw-1.png",
        "draw-2.png",
        "draw-3.wav",
    ]


def test_with_json_files_are_saved_only_where_asked_for_and_named_on_stderr(
    capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(capsys, "call", HARBOUR, "draw", "--json").json["content"][0]["mimeType"] == "image/png"
    assert list(tmp_path.iterdir()) == []
    done = run_cli(capsys, "call", HARBOUR, "draw", "--json", "--out", "here")
    assert done.json["content"]
    assert f"here{os.sep}draw-1.png (image/png, 28 bytes)" in done.err


def test_a_directory_that_cannot_be_written_is_said(capsys: Capsys, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_cli(capsys, "call", HARBOUR, "draw", "--out", str(tmp_path / "file" / "below"))
    assert done.code == 2
    assert "cannot save in" in done.err


def test_what_a_tool_prints_reaches_a_pipe_untouched_and_a_terminal_disarmed(capsys: Capsys) -> None:
    assert run_cli(capsys, "call", HARBOUR, "shout").out == "\x1b[31mred\x1b[0m\n"
    with AtTerminal("call", HARBOUR, "shout") as terminal:
        assert terminal.end() == 0
    assert r"\x1b[31mred\x1b[0m" in terminal.seen


# Progress and logs


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_progress_and_log_lines_go_to_stderr(capsys: Capsys, era: str) -> None:
    done = run_cli(capsys, "call", HARBOUR, "sail", "--era", era)
    assert (done.code, done.out) == (0, "moored\n")
    assert done.err == 'info: {"wind": "west"}\n1/3 leg 1\n2/3 leg 2\n3/3 leg 3\n'


def test_more_log_lines_can_be_asked_for_and_none(capsys: Capsys) -> None:
    assert "debug: a detail" in run_cli(capsys, "call", HARBOUR, "sail", "--log-level", "debug").err
    assert run_cli(capsys, "call", HARBOUR, "sail", "--quiet").err == ""


def test_at_a_terminal_progress_is_a_bar_that_leaves_no_trace() -> None:
    with AtTerminal("call", HARBOUR, "sail") as terminal:
        assert terminal.end() == 0
    assert "━" in terminal.seen
    assert "3/3" in terminal.seen
    assert "leg 3" in terminal.seen
    last = terminal.seen.rpartition("\x1b[2K")[2]
    assert last.strip() == "moored"
    assert terminal.seen.count("\x1b[?25h") >= 1, "the cursor is back"


# Questions


def test_without_a_terminal_a_question_is_declined_and_stderr_says_so(capsys: Capsys) -> None:
    """R258."""
    done = run_cli(capsys, "call", HARBOUR, "book", "--quiet")
    assert (done.code, done.out) == (0, "decline: None\n")
    assert done.err.splitlines() == [
        "harbour asks: How long will you stay?",
        "  declined, because there is no terminal to ask in (--yes accepts)",
    ]


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_yes_accepts_with_the_defaults_of_the_form(capsys: Capsys, era: str) -> None:
    done = run_cli(capsys, "call", HARBOUR, "agree", "--yes", "--era", era)
    assert done.out == "accept: Agreement(agreed=True, name='nobody')\n"
    assert "accepted (--yes) with agreed = yes, name = nobody" in done.err


def test_yes_declines_a_form_whose_answer_it_cannot_know(capsys: Capsys) -> None:
    done = run_cli(capsys, "call", HARBOUR, "book", "--yes")
    assert done.out == "decline: None\n"
    assert "no default for nights" in done.err


def test_yes_consents_to_a_page_and_shows_its_address(capsys: Capsys) -> None:
    done = run_cli(capsys, "call", HARBOUR, "pay", "--yes")
    assert done.out == "accept\n"
    assert "https://pay.example/berth/7" in done.err


def test_decline_declines(capsys: Capsys) -> None:
    done = run_cli(capsys, "call", HARBOUR, "agree", "--decline")
    assert (done.out, done.err) == ("decline: None\n", "harbour asks: Do you agree?\n  declined\n")


# Ends


def test_a_tool_that_fails_ends_with_one(capsys: Capsys) -> None:
    done = run_cli(capsys, "call", HARBOUR, "fail")
    assert done == (1, "", "trimaran: the tool failed: the mast broke\n")
    raw = run_cli(capsys, "call", HARBOUR, "fail", "--json")
    assert (raw.code, raw.json["isError"], raw.err) == (1, True, "")


def test_no_answer_in_time_ends_with_five(capsys: Capsys) -> None:
    done = run_cli(capsys, "call", HARBOUR, "wait", "--timeout", "1")
    assert (done.code, done.out) == (5, "")
    assert "tools/call" in done.err
    assert "--timeout SECONDS" in done.err


def test_a_server_that_dies_in_the_middle_ends_with_six(capsys: Capsys) -> None:
    """P2."""
    done = run_cli(capsys, "call", HARBOUR, "sink")
    assert (done.code, done.out) == (6, "")
    assert "9" in done.err
    assert "Whether the server did the work is not known" in done.err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_call_and_the_child(spawn: Spawn, tmp_path: Path, number: signal.Signals, code: int) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import os, sys, threading\nfrom trimaran import Server\nserver = Server('slow')\n@server.tool\n"
        "def wait() -> str:\n    'x'\n    print('pid', os.getpid(), file=sys.stderr, flush=True)\n"
        "    threading.Event().wait(60)\n    return ''\nserver.run()\n"
    )
    child = spawn("call", str(script), "wait", "--debug")
    pid = int(child.wait_stderr("server: pid").split()[-1])
    child.process.send_signal(number)
    assert child.wait() == code
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_over_http_the_same_words_do_the_same(capsys: Capsys, spawn: Spawn, free_port: int) -> None:
    child = spawn("serve", HARBOUR, "--port", str(free_port))
    child.wait_stderr("is served at")
    url = f"http://127.0.0.1:{free_port}/mcp"
    for era in ("modern", "legacy"):
        assert run_cli(capsys, "call", url, "add", "a=2", "--era", era) == (0, "3\n", "")
        assert "2/3 leg 2" in run_cli(capsys, "call", url, "sail", "--era", era).err
        assert run_cli(capsys, "call", url, "agree", "--yes", "--era", era).out.startswith("accept: Agreement")
    assert run_cli(capsys, "call", url, "wait", "--timeout", "1").code == 5


def test_a_reader_that_goes_away_is_no_reason_to_complain(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"'{sys.executable}' -m trimaran.apps.cli call '{HARBOUR}' add a=1 | true"],
        capture_output=True,
        text=True,
        timeout=25,
        cwd=tmp_path,
    )
    assert done.stderr == ""


def test_debug_shows_the_childs_stderr_and_the_traceback(trimaran: Run) -> None:
    done = trimaran("call", HARBOUR, "wait", "--timeout", "1", "--debug")
    assert done.returncode == 5
    assert "Traceback" in done.stderr


def test_json_output_can_be_piped(trimaran: Run) -> None:
    done = trimaran("call", HARBOUR, "add", "a=1", "--json")
    assert json.loads(done.stdout)["structuredContent"] == 2
    assert done.stderr == ""


def test_a_tool_that_raises_is_shown_with_its_place_and_its_error(capsys: Capsys, tmp_path: Path) -> None:
    """The command line started the server, so it has its log: nobody should have to look for an error's number."""
    file = tmp_path / "raises.py"
    file.write_text(
        "import json\nfrom trimaran import Server\nserver = Server('r', version='1')\n\n"
        "@server.tool\ndef parse(text: str) -> int:\n    'Parse.'\n    return json.loads(text)\n"
    )
    done = run_cli(capsys, "call", str(file), "parse", "text=no")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[1:] == [
        f'server:   File "{file}", line 8, in parse',
        "server:     return json.loads(text)",
        "server: json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ]
    debug = run_cli(capsys, "call", str(file), "parse", "text=no", "--debug").err
    assert debug.count("json.decoder.JSONDecodeError: Expecting value") == 1


def test_at_a_terminal_waiting_is_visible_and_leaves_no_trace(tmp_path: Path) -> None:
    """What is waited for is named; with nothing to see, a person cannot tell a slow server from a dead one."""
    file = tmp_path / "slow.py"
    file.write_text(
        "import time\nfrom trimaran import Server\ntime.sleep(1.5)\nserver = Server('slow', version='1')\n\n"
        "@server.tool\ndef haul() -> str:\n    'Haul.'\n    time.sleep(1.5)\n    return 'hauled'\n"
    )
    with AtTerminal("call", "slow.py", "haul", cwd=tmp_path) as terminal:
        terminal.wait_for("starting slow.py")
        terminal.wait_for("waiting for haul")
        assert terminal.end() == 0
    assert terminal.seen.rpartition("\x1b[2K")[2].strip() == "hauled"
    with AtTerminal("call", "slow.py", "haul", "--quiet", cwd=tmp_path) as terminal:
        assert terminal.end() == 0
        assert terminal.seen == "hauled\n"
