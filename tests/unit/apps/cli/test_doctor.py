"""`trimaran doctor` on commands: what it finds, what it says, how it ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from trimaran.apps.cli.doctor.lint import lint_tools
from trimaran.apps.cli.doctor.report import Report

from .conftest import Spawn
from .harness import HARBOUR, AtTerminal, Done, plain, run_cli

Capsys = pytest.CaptureFixture[str]

LEGACY = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "a", "description": "x", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "ping":
        result = {}
    else:
        ON_UNKNOWN
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
REFUSE = (
    'print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}), flush=True)'
)


def checks(done: Done) -> dict[str, dict[str, Any]]:
    return {check["key"]: check for check in done.json["checks"]}


def statuses(done: Done, *keys: str) -> dict[str, str]:
    found = checks(done)
    return {key: found[key]["status"] for key in keys or found}


def script(directory: Path, text: str) -> str:
    path = directory / "patient.py"
    path.write_text(text)
    return str(path)


# Commands


@pytest.mark.slow
def test_a_healthy_server_gets_a_clean_bill(capsys: Capsys) -> None:
    done = run_cli(capsys, "doctor", HARBOUR, "--json")
    assert done.code == 0, done.out
    assert set(statuses(done).values()) == {"ok", "skipped"}, done.out
    found = checks(done)
    assert found["command"]["seen"] == sys.executable
    assert "first answer" in found["start"]["seen"]
    assert "2026-07-28" in found["modern"]["seen"]
    assert "2025-11-25" in found["legacy"]["seen"]
    assert "offers" in found["modern"]["seen"]
    assert found["identity"]["seen"] == "harbour 2.0.0"
    assert "12 tools" in found["tools"]["seen"]
    assert "exit code 0" in found["eof"]["seen"]
    assert done.json["healthy"] is True


@pytest.mark.slow
def test_the_report_reads_well_at_eighty_columns(capsys: Capsys) -> None:
    done = run_cli(capsys, "doctor", HARBOUR)
    lines = done.out.splitlines()
    assert done.code == 0
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line and not line.startswith(" ")][:-1] == [
        "Process",
        "Protocol",
        "Timing",
        "Tools",
    ]
    assert lines[-1].endswith("0 warnings, 0 failures, 1 skipped. All is well.")
    assert "\x1b" not in done.out


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
def test_a_report_that_a_signal_cuts_short_says_nothing_of_health(spawn: Spawn, tmp_path: Path) -> None:
    child = spawn("doctor", script(tmp_path, "import sys\nprint('up', file=sys.stderr)\nsys.stdin.read()\n"))
    child.wait_stdout("command")
    assert child.terminate() == 143
    assert "All is well" not in "".join(child.rest())


@pytest.mark.slow
def test_at_a_terminal_findings_are_coloured_and_disarmed(tmp_path: Path) -> None:
    path = script(tmp_path, "import sys\nprint('\\x1b[2Jowned', file=sys.stderr)\nsys.exit(1)\n")
    with AtTerminal("doctor", path) as terminal:
        assert terminal.end() == 1
    assert "\x1b[1;31m  FAIL" in terminal.seen
    assert "\x1b[2J" not in terminal.seen
    assert r"\x1b[2Jowned" in terminal.seen


@pytest.mark.slow
def test_a_script_that_dies_fails_with_its_last_words(capsys: Capsys, tmp_path: Path) -> None:
    """P34."""
    path = script(tmp_path, "import sys\nprint('no config file', file=sys.stderr)\nsys.exit(3)\n")
    done = run_cli(capsys, "doctor", path, "--json")
    assert done.code == 1
    assert statuses(done, "command", "start", "modern", "tools") == {
        "command": "ok",
        "start": "fail",
        "modern": "skipped",
        "tools": "skipped",
    }
    start = checks(done)["start"]
    assert "exit code 3" in start["seen"]
    assert start["details"] == ["no config file"]
    assert start["why"]
    assert start["fix"]


@pytest.mark.slow
def test_a_script_that_never_runs_its_server_is_told_how(capsys: Capsys, tmp_path: Path) -> None:
    done = run_cli(capsys, "doctor", script(tmp_path, "server = object()\n"))
    assert done.code == 1
    assert "call server.run() at its end" in plain(done.out)
    assert "Begin with: start." in done.out


@pytest.mark.slow
def test_garbage_on_stdout_is_found_and_quoted(capsys: Capsys, tmp_path: Path) -> None:
    """P11."""
    path = script(tmp_path, "print('Loading model', flush=True)\n" + LEGACY.replace("ON_UNKNOWN", REFUSE))
    done = run_cli(capsys, "doctor", path, "--json")
    assert done.code == 1
    assert statuses(done, "start", "stdout", "legacy") == {"start": "ok", "stdout": "fail", "legacy": "ok"}
    assert checks(done)["stdout"]["details"] == ["Loading model"]


@pytest.mark.slow
def test_a_script_that_never_answers_fails_in_time(capsys: Capsys, tmp_path: Path) -> None:
    done = run_cli(capsys, "doctor", script(tmp_path, "import sys\nsys.stdin.read()\n"), "--timeout", "1", "--json")
    assert done.code == 1
    assert statuses(done, "start", "modern") == {"start": "fail", "modern": "skipped"}
    assert "within 1 s" in checks(done)["start"]["seen"]


@pytest.mark.slow
def test_a_legacy_server_works_with_a_warning(capsys: Capsys, tmp_path: Path) -> None:
    done = run_cli(capsys, "doctor", script(tmp_path, LEGACY.replace("ON_UNKNOWN", REFUSE)), "--json")
    assert done.code == 0, done.out
    assert statuses(done, "modern", "legacy", "time-ping", "tools") == {
        "modern": "warn",
        "legacy": "ok",
        "time-ping": "ok",
        "tools": "ok",
    }
    assert "2025-06-18" in checks(done)["legacy"]["seen"]


@pytest.mark.slow
def test_a_server_that_dies_of_the_first_question_is_met_in_the_old_way(capsys: Capsys, tmp_path: Path) -> None:
    """P30."""
    done = run_cli(capsys, "doctor", script(tmp_path, LEGACY.replace("ON_UNKNOWN", "sys.exit(7)")), "--json")
    assert done.code == 0, done.out
    assert statuses(done, "first-message", "start", "legacy") == {
        "first-message": "warn",
        "start": "ok",
        "legacy": "ok",
    }
    assert "exit code 7" in checks(done)["first-message"]["seen"]


@pytest.mark.slow
def test_nor_is_one_broken_that_dies_of_it_only_when_the_next_line_comes(capsys: Capsys, tmp_path: Path) -> None:
    """The official Python SDK before 1.9; the modern era is not tried again, which would take all the time there is."""
    dying = 'sys.stdin.readline(); print("ValueError: server/discover", file=sys.stderr); sys.exit(1)'
    done = run_cli(capsys, "doctor", script(tmp_path, LEGACY.replace("ON_UNKNOWN", dying)), "--json")
    assert done.code == 0, done.out
    assert statuses(done, "first-message", "start", "modern", "legacy", "tools") == {
        "first-message": "warn",
        "start": "ok",
        "modern": "warn",
        "legacy": "ok",
        "tools": "ok",
    }
    assert checks(done)["modern"]["seen"] == "not spoken: it ends when server/discover comes first"


@pytest.mark.slow
def test_a_server_that_ignores_what_it_does_not_know_is_met_in_the_old_way(capsys: Capsys, tmp_path: Path) -> None:
    done = run_cli(capsys, "doctor", script(tmp_path, LEGACY.replace("ON_UNKNOWN", "pass")), "--json")
    assert done.code == 0, done.out
    assert statuses(done, "start", "modern", "legacy") == {"start": "ok", "modern": "warn", "legacy": "ok"}
    assert "does not answer server/discover" in checks(done)["modern"]["seen"]


@pytest.mark.slow
def test_a_server_that_ends_late_is_not_called_mute(capsys: Capsys, tmp_path: Path) -> None:
    """It ends after the old greeting was sent as well, and with words that are shown whole."""
    cause = "FATAL: API_KEY is not set" + "!" * 300
    late = f"import sys, time\ntime.sleep(2.5)\nprint({cause!r}, file=sys.stderr)\nprint('at x', file=sys.stderr)\nsys.exit(3)\n"
    done = run_cli(capsys, "doctor", script(tmp_path, late), "--json")
    start = checks(done)["start"]
    assert (start["status"], "exit code 3" in start["seen"]) == ("fail", True)
    assert start["details"][0] == cause


@pytest.mark.slow
def test_reasons_are_whole_and_in_words_of_the_command_line(capsys: Capsys, tmp_path: Path) -> None:
    long = "the harbour is closed because " + "of the weather " * 40
    refuse = (
        'print(json.dumps({"jsonrpc": "2.0", "id": message["id"],'
        f' "error": {{"code": -32603, "message": {long!r}}}}}), flush=True)'
    )
    done = run_cli(capsys, "doctor", script(tmp_path, LEGACY.replace("ON_UNKNOWN", refuse)), "--json")
    assert long in checks(done)["modern"]["seen"]
    assert not any(word in done.out for word in ("era=", "connect_timeout", "..."))


@pytest.mark.slow
def test_a_check_that_cannot_apply_can_be_waived(capsys: Capsys, tmp_path: Path) -> None:
    path = script(tmp_path, "print('Loading model', flush=True)\n" + LEGACY.replace("ON_UNKNOWN", REFUSE))
    done = run_cli(capsys, "doctor", path, "--skip", "stdout", "--skip", "2026-07-28", "--json")
    assert done.code == 0, done.out
    assert statuses(done, "stdout", "modern") == {"stdout": "skipped", "modern": "skipped"}
    assert checks(done)["stdout"]["seen"] == "waived; 1 line that no MCP client can read"


@pytest.mark.slow
def test_waiving_what_is_no_check_is_said(capsys: Capsys) -> None:
    done = run_cli(capsys, "doctor", HARBOUR, "--skip", "stdot", "--skip", "Start")
    assert done.code == 0
    assert "--skip stdot: the report has no such check. It has: command, start, stdout" in plain(done.err)
    assert "--skip Start" not in done.err


@pytest.mark.slow
def test_a_server_that_outlives_its_input_is_warned_of_and_ended(capsys: Capsys, tmp_path: Path) -> None:
    """P10. That nothing is left running is checked after every test here."""
    path = script(tmp_path, LEGACY.replace("ON_UNKNOWN", REFUSE) + "import threading\nthreading.Event().wait(60)\n")
    done = run_cli(capsys, "doctor", path, "--json")
    assert done.code == 0, done.out
    assert statuses(done, "eof") == {"eof": "warn"}


@pytest.mark.slow
def test_a_traceback_on_stderr_is_pointed_out(capsys: Capsys, tmp_path: Path) -> None:
    noise = "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()\n"
    done = run_cli(capsys, "doctor", script(tmp_path, noise + LEGACY.replace("ON_UNKNOWN", REFUSE)), "--json")
    assert statuses(done, "stderr") == {"stderr": "warn"}
    assert any("ZeroDivisionError" in line for line in checks(done)["stderr"]["details"])


@pytest.mark.parametrize("word", ["no-such-command-at-all", "/no/such/file"])
def test_a_command_that_cannot_be_found_fails_at_once(capsys: Capsys, word: str) -> None:
    done = run_cli(capsys, "doctor", "--json", "--", word)
    assert done.code == 1
    assert statuses(done, "command", "legacy") == {"command": "fail", "legacy": "skipped"}
    assert word in checks(done)["command"]["seen"]


def test_a_file_that_cannot_be_executed_is_said(capsys: Capsys, tmp_path: Path) -> None:
    path = tmp_path / "server"
    path.write_bytes(b"\x00\x01 not a program")
    path.chmod(0o755)
    done = run_cli(capsys, "doctor", "--json", "--", str(path))
    assert statuses(done, "command", "start") == {"command": "ok", "start": "fail"}


def test_wrong_words_are_a_usage_error(capsys: Capsys) -> None:
    assert "TARGET is missing" in run_cli(capsys, "doctor").err
    done = run_cli(capsys, "doctor", HARBOUR, "more")
    assert done.code == 2
    assert "'more' is one word too many" in done.err


def test_a_mistake_of_our_own_is_a_finding_too(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> bool:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("trimaran.apps.cli.doctor.process.examine_process", broken)
    done = run_cli(capsys, "doctor", HARBOUR, "--json")
    assert done.code == 1
    assert "ZeroDivisionError: oops" in checks(done)["doctor"]["seen"]


# Tools


def lint(*tools: Any) -> dict[str, tuple[str, tuple[str, ...]]]:
    report = Report("t")
    lint_tools(report, tools)
    return {check.key: (check.status, check.details) for check in report.checks}


def tool(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "x", "inputSchema": {"type": "object", "properties": {}}, **more}


def test_good_tools_pass() -> None:
    found = lint(tool("a"), tool("b.c-d_1", outputSchema={"type": "array"}))
    assert {status for status, _ in found.values()} == {"ok", "skipped"}


def test_no_tools_are_no_fault() -> None:
    assert lint() == {"tools": ("ok", ())}


@pytest.mark.parametrize("name", ["with space", "", "x" * 129, "ü", "a/b"])
def test_a_name_that_models_refuse_fails(name: str) -> None:
    """protocol.md 1.5, tool names."""
    assert lint(tool(name))["tool-names"][0] == "fail"


def test_a_name_listed_twice_fails() -> None:
    assert lint(tool("a"), tool("a"))["tool-names"] == ("fail", ("'a' is listed 2 times",))


@pytest.mark.parametrize("description", [None, "", "  "])
def test_a_tool_without_a_description_is_warned_of(description: str | None) -> None:
    assert lint(tool(description=description), tool("b"))["tool-descriptions"] == ("warn", ("a",))


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {"type": "string"},
        {"type": "object", "properties": {"q": {"type": "nonsense"}}},
        {"type": "object", "properties": {"q": {"$ref": "https://elsewhere.example/s"}}},
        {"type": "object", "$schema": "https://unknown.example/dialect"},
    ],
    ids=["null", "list", "string", "bad-type", "remote-ref", "dialect"],
)
def test_an_input_schema_that_cannot_be_used_fails(schema: Any) -> None:
    """P25."""
    status, details = lint(tool(inputSchema=schema))["tool-schemas"]
    assert status == "fail"
    assert details[0].startswith("a: ")


def test_a_schema_without_a_type_at_its_root_is_the_providers_business() -> None:
    """Real servers have them, and every client calls their tools."""
    found = lint(tool(inputSchema={"properties": {"q": {"type": "string"}}}))
    assert found["tool-schemas"][0] == "ok"
    assert found["anthropic"][0] == "warn"
    assert lint(tool(inputSchema={"properties": {"q": {"type": "nonsense"}}}))["tool-schemas"][0] == "fail"


def test_a_bad_output_schema_fails_and_a_missing_input_schema_too() -> None:
    assert lint(tool(outputSchema={"type": 5}))["tool-schemas"][0] == "fail"
    assert lint({"name": "a", "description": "x"})["tool-schemas"][0] == "fail"
    assert lint("not a tool")["tool-schemas"][0] == "fail"


def test_header_annotations_are_checked() -> None:
    """protocol.md 3.3."""

    def annotated(kind: str, header: Any) -> dict[str, Any]:
        properties = {"q": {"type": kind, "x-mcp-header": header}}
        return tool(inputSchema={"type": "object", "properties": properties})

    assert lint(annotated("string", "Region"))["x-mcp-header"][0] == "ok"
    assert lint(annotated("number", "Region"))["x-mcp-header"][0] == "fail"
    assert lint(annotated("string", "two words"))["x-mcp-header"][0] == "fail"


def test_definitions_that_crowd_out_the_conversation_are_warned_of() -> None:
    """P19."""
    assert lint(tool(description="word " * 20_000))["tools"][0] == "warn"


def test_what_a_provider_would_refuse_is_told_with_the_place() -> None:
    """P25: a property name that costs the whole request at Anthropic; a list without items at OpenAI."""
    odd = {"type": "object", "properties": {"StartTime<": {"type": "string"}, "many": {"type": "array"}}}
    found = lint(tool(inputSchema=odd))
    assert found["anthropic"][0] == "warn"
    assert "StartTime<" in found["anthropic"][1][0]
    assert found["openai"][0] == "warn"
    assert found["gemini"][0] == "ok"


def test_more_tools_than_a_provider_takes_are_told_of() -> None:
    found = lint(*(tool(f"tool_{number}") for number in range(129)))
    assert found["openai"] == ("warn", ("tools: 129 tools, and at most 128 are taken; offer fewer at a time",))


def test_a_tool_without_a_name_hides_no_other_from_the_providers() -> None:
    assert lint(tool("a"), {"description": "x"})["anthropic"][0] == "ok"
