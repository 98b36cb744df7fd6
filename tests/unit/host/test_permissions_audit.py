"""The audit log: a line for each decision, in files of a size, and never in the way of a call."""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trimaran.errors import ConfigError
from trimaran.host.permissions import AuditLog, Decision, Gate, Policy, Rule, RuleSource, Subject

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
WRITE = Subject.tool("fs", "write_file", schema={"required": ["path"]})
POLICY = Policy([Rule.of("deny", "mcp__fs__*", source=RuleSource("project", "mcp.toml", "permissions.deny[0]"))])
SECRET = {"path": "/etc/passwd", "content": "hunter2"}


def denied() -> Decision:
    return POLICY.decide(WRITE, SECRET)


def log(path: Path, **options: Any) -> AuditLog:
    return AuditLog(path, **{"clock": lambda: NOON, **options})


def lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@contextmanager
def full_disk(at: int) -> Iterator[None]:
    """No file of this process grows past this many bytes; the write that would is cut there, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (at, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --- lines ------------------------------------------------------------------------------------------------------------


def test_a_decision_is_one_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with log(path, key=b"k") as audit:
        audit.record(denied(), SECRET)
        audit.record(Policy().decide(Subject.elicit("fs")))
    first, second = lines(path)
    digest = first.pop("arguments_digest")
    assert first == {
        "time": "2026-05-01T12:00:00.000Z",
        "act": "mcp__fs__write_file",
        "server": "fs",
        "action": "deny",
        "by": "rule",
        "tier": "global deny",
        "rule": "mcp__fs__*",
        "source": "mcp.toml, permissions.deny[0]",
        "arguments_bytes": 42,
    }
    assert len(digest) == 32
    assert (second["act"], second["by"], second["rule"]) == ("Elicit(fs)", "default", None)
    assert "arguments_digest" not in second


def test_arguments_are_a_digest_unless_asked_for(tmp_path: Path) -> None:
    for how in ("digest", "none", "full"):
        with log(tmp_path / how, arguments=how) as audit:
            audit.record(denied(), SECRET)
    assert "hunter2" not in (tmp_path / "digest").read_text() + (tmp_path / "none").read_text()
    assert "arguments_digest" not in lines(tmp_path / "none")[0]
    assert lines(tmp_path / "full")[0]["arguments"] == SECRET


def test_a_digest_shows_what_is_equal_and_cannot_be_guessed(tmp_path: Path) -> None:
    with log(tmp_path / "a") as first, log(tmp_path / "b") as second:
        for arguments in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 3}):
            first.record(denied(), arguments)
        second.record(denied(), {"a": 1, "b": 2})
    one, same, other = (line["arguments_digest"] for line in lines(tmp_path / "a"))
    assert one == same != other
    assert lines(tmp_path / "b")[0]["arguments_digest"] != one


@pytest.mark.parametrize(
    "arguments", [{"a": object()}, {"a": "\ud800"}, {"a": 2**70}], ids=["object", "surrogate", "huge"]
)
def test_arguments_that_are_no_json_do_not_break_the_record(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with log(tmp_path / "log", arguments="full") as audit:
        audit.record(denied(), arguments)
    assert lines(tmp_path / "log")[0]["act"] == "mcp__fs__write_file"


def test_long_arguments_are_left_out_and_long_names_are_cut(tmp_path: Path) -> None:
    with log(tmp_path / "log", arguments="full") as audit:
        audit.record(Policy().decide(Subject.tool("fs", "x" * 5000)), {"a": "y" * 100_000})
    (line,) = lines(tmp_path / "log")
    assert len(line["act"]) == 300 and "arguments" not in line and line["arguments_bytes"] > 100_000


def test_a_name_cannot_forge_a_line(tmp_path: Path) -> None:
    with log(tmp_path / "log", arguments="full") as audit:
        audit.record(Policy().decide(Subject.tool("fs", 'x"}\n{"action": "allow')), {"a": '\n{"action":"allow"}\n'})
    assert [line["action"] for line in lines(tmp_path / "log")] == ["ask"]


def test_a_decision_that_cannot_be_written_is_counted(tmp_path: Path) -> None:
    rule = Rule.of("deny", "*(\ud800)")
    with log(tmp_path / "log") as audit:
        audit.record(Policy([rule]).decide(WRITE, {"path": "\ud800"}))
        assert audit.lost == 1


# --- files ------------------------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_can_read_the_log(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "audit.jsonl"
    with log(path, max_bytes=400, keep=2) as audit:
        for _ in range(4):
            audit.record(denied(), SECRET)
    assert mode(path.parent) == 0o700
    assert {mode(file) for file in path.parent.iterdir()} == {0o600}
    other = tmp_path / "open.jsonl"
    other.touch(mode=0o644)
    with log(other) as audit:
        audit.record(denied())
    assert mode(other) == 0o600


def test_full_files_are_kept_by_number_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    decisions = [Policy().decide(Subject.tool("fs", f"t{number}")) for number in range(10)]
    with log(path, max_bytes=400, keep=3) as audit:
        for decision in decisions:
            audit.record(decision)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log", "log.1", "log.2", "log.3"]
    in_order = [line["act"] for name in ("log.3", "log.2", "log.1", "log") for line in lines(tmp_path / name)]
    assert in_order == [f"mcp__fs__t{number}" for number in range(10)][-len(in_order) :]
    assert len(in_order) == 8
    assert all(file.stat().st_size <= 400 for file in tmp_path.iterdir())


def test_none_is_kept_if_none_is_to_be(tmp_path: Path) -> None:
    with log(tmp_path / "log", max_bytes=1, keep=0) as audit:
        for _ in range(3):
            audit.record(denied())
    assert [file.name for file in tmp_path.iterdir()] == ["log"]
    assert len(lines(tmp_path / "log")) == 1 and audit.lost == 0


def test_a_log_goes_on_where_the_last_run_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with log(tmp_path / "log") as audit:
            audit.record(denied())
    assert len(lines(tmp_path / "log")) == 2


def test_several_writers_share_a_log_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with log(path, max_bytes=2000, keep=200) as first, log(path, max_bytes=2000, keep=200) as second:
        for number in range(150):
            for name, audit in (("a", first), ("b", second)):
                audit.record(Policy().decide(Subject.tool(name, f"t{number}")))
            if number % 50 == 0:
                assert first.flush() and second.flush()
    seen = [line["act"] for file in tmp_path.iterdir() for line in lines(file)]
    assert sorted(seen) == sorted(f"mcp__{name}__t{number}" for name in "ab" for number in range(150))
    assert all(file.stat().st_size <= 2000 for file in tmp_path.iterdir())


def test_a_log_that_somebody_deleted_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with log(path) as audit:
        audit.record(denied())
        assert audit.flush()
        path.unlink()
        audit.record(denied())
    assert len(lines(path)) == 1 and audit.lost == 0


# --- never in the way -------------------------------------------------------------------------------------------------


def test_a_full_disk_costs_lines_and_is_told_once_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    gate_log = log(path)
    gate = Gate(POLICY, audit=gate_log)
    with gate_log, caplog.at_level(logging.WARNING, "trimaran.permissions"):
        gate.decide(WRITE)
        assert gate_log.flush()
        whole = path.stat().st_size
        with full_disk(whole + 50):
            for _ in range(3):
                assert gate.decide(WRITE).is_denied
                assert gate_log.flush()
            assert gate_log.lost == 3
            assert gate_log.problem == os.strerror(errno.EFBIG)
            assert path.stat().st_size == whole, "half a line is taken back"
        gate.decide(WRITE)
        assert gate_log.flush()
        assert (gate_log.lost, gate_log.problem) == (3, "")
    first, gap, last = lines(path)
    assert gap == {"time": "2026-05-01T12:00:00.000Z", "lost": 3, "why": os.strerror(errno.EFBIG)}
    assert first["act"] == last["act"] == "mcp__fs__write_file"
    assert [record.getMessage() for record in caplog.records] == [
        f"decisions are not being recorded in the audit log {path}: {os.strerror(errno.EFBIG)}",
        f"decisions are recorded in the audit log {path} again; 3 were lost",
    ]


def unusable(kind: str, tmp_path: Path) -> Path:
    path = tmp_path / "log"
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            (tmp_path / "elsewhere").touch()
            path.symlink_to(tmp_path / "elsewhere")
        case _:
            (tmp_path / "file").touch()
            path = tmp_path / "file" / "log"
    return path


@pytest.mark.parametrize("kind", ["directory", "pipe", "link", "below a file"])
def test_a_place_where_nothing_can_be_written_breaks_no_call(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = unusable(kind, tmp_path)
    with log(path) as audit:
        for _ in range(3):
            audit.record(denied())
            assert audit.flush()
    assert audit.lost == 3 and audit.problem
    assert len(caplog.records) == 1
    assert not (tmp_path / "elsewhere").exists() or (tmp_path / "elsewhere").read_text() == ""


def test_a_disk_that_hangs_makes_nobody_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, goes_on = threading.Event(), threading.Event()
    write = os.write

    def hang(descriptor: int, data: bytes) -> int:
        stuck.set()
        assert goes_on.wait(20)
        return write(descriptor, data)

    monkeypatch.setattr("trimaran.host.permissions.audit._MOST_WAITING", 5)
    with log(tmp_path / "log") as audit:
        monkeypatch.setattr("trimaran.host.permissions.audit.os.write", hang)
        try:
            audit.record(denied())
            assert stuck.wait(20)
            for _ in range(8):
                audit.record(denied())
            assert not audit.flush(0.01)
            assert audit.lost == 3
            assert "wait for a disk" in audit.problem
        finally:
            goes_on.set()
        assert audit.flush(20)
        audit.record(denied())
    found = lines(tmp_path / "log")
    assert [line.get("lost") for line in found] == [None, 3, *[None] * 6]


def test_what_is_recorded_after_the_end_is_counted(tmp_path: Path) -> None:
    audit = log(tmp_path / "log")
    audit.close()
    audit.record(denied())
    audit.close()
    assert audit.lost == 1 and audit.problem == "the audit log is closed"
    assert audit.flush()
    assert not (tmp_path / "log").exists()


def test_a_log_that_nobody_closed_is_written_when_it_is_forgotten(tmp_path: Path) -> None:
    audit = log(tmp_path / "log")
    audit.record(denied())
    del audit
    gc.collect()
    assert len(lines(tmp_path / "log")) == 1
    assert not any(thread.name == "trimaran-audit" for thread in threading.enumerate())


@pytest.mark.parametrize("options", [{"max_bytes": 0}, {"keep": -1}, {"key": b""}, {"key": b"x" * 65}], ids=repr)
def test_options_that_cannot_work_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        log(tmp_path / "log", **options)
