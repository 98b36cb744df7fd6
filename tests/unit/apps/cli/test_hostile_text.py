"""A server, a file and a caller that put control characters wherever they can: at a terminal none is obeyed, on a pipe all
arrive as they are.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trimaran.apps.cli import logs
from trimaran.apps.cli.output import Screen
from trimaran.host.terminal_text import safe, safe_json

from .harness import AtTerminal, odd, run_cli

# CSI as one character, an OSC that sets the title, a bell, marks that turn the direction, tags, selectors, no-width blanks.
EVIL = "x\u009b31my\x1b]0;pwned\x07z\u202ertl\u2066iso\U000e0041\U000e0100\u200b\ufeff\x85\u2028end"
RAW = re.compile("[\u0080-\u009f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e0fff\u200b\u2028\ufeff\x07]|\x1b\\]")
SCHEMA = {"type": "object", "properties": {EVIL: {"type": "string", "enum": [EVIL], "description": EVIL}}}
TOOL = {"name": EVIL, "title": EVIL, "description": EVIL, "inputSchema": SCHEMA}
ANSWERS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": EVIL, "title": EVIL, "version": EVIL},
        "instructions": EVIL,
    },
    "tools__list": {"tools": [{**TOOL, "name": "add"}, TOOL]},
    "tools__call": {
        "content": [{"type": "text", "text": EVIL}, {"type": "resource_link", "uri": f"x:{EVIL}", "name": EVIL}],
        "structuredContent": {EVIL: [EVIL]},
    },
    "resources__list": {
        "resources": [{"uri": f"odd://{EVIL}", "name": EVIL, "mimeType": EVIL}, {"uri": "odd://one", "name": "one"}]
    },
    "resources__templates__list": {"resourceTemplates": [{"uriTemplate": f"odd://{EVIL}/{{x}}", "name": EVIL}]},
    "resources__read": {"contents": [{"uri": f"odd://{EVIL}", "mimeType": EVIL, "text": EVIL}]},
    "prompts__list": {"prompts": [{"name": "plan"}, {"name": EVIL, "arguments": [{"name": EVIL}]}]},
    "prompts__get": {"description": EVIL, "messages": [{"role": "user", "content": {"type": "text", "text": EVIL}}]},
}
FAILED = {"content": [{"type": "text", "text": EVIL}], "isError": True}
COMMANDS: dict[str, tuple[str, ...]] = {
    "list": ("list",),
    "list as JSON": ("list", "--json"),
    "call": ("call", "add"),
    "call as JSON": ("call", "add", "--json"),
    "call of a tool that is not there": ("call", "nope"),
    "read": ("read", "odd://one"),
    "read as JSON": ("read", "odd://one", "--json"),
    "prompt": ("prompt", "plan"),
    "prompt as JSON": ("prompt", "plan", "--json"),
    "doctor": ("doctor",),
    "doctor as JSON": ("doctor", "--json"),
}


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_nothing_a_server_says_reaches_a_terminal_raw(words: tuple[str, ...]) -> None:
    command, *rest = words
    with AtTerminal(command, odd(**ANSWERS), *rest) as terminal:
        assert terminal.end() in (0, 1, 2)
        assert not (found := RAW.search(terminal.seen)), (found, terminal.seen)
        assert "pwned" in terminal.seen
        assert "Traceback" not in terminal.seen


@pytest.mark.slow
def test_a_failure_and_stderr_do_not_either(tmp_path: Path) -> None:
    with AtTerminal("call", odd(**{**ANSWERS, "tools__call": FAILED}), "add") as terminal:
        assert terminal.end() == 1
        assert "pwned" in terminal.seen
        assert not RAW.search(terminal.seen)
    dying = tmp_path / "dying.py"
    dying.write_text(f"import sys; print({EVIL!r}, file=sys.stderr); sys.exit(3)")
    for words in (("list", str(dying)), ("list", str(dying), "--debug"), ("doctor", str(dying))):
        with AtTerminal(*words) as terminal:
            terminal.end()
            assert "pwned" in terminal.seen
            assert not RAW.search(terminal.seen), terminal.seen


@pytest.mark.slow
def test_nothing_of_a_file_does(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {EVIL: {"command": "x"}, "b": {"command": EVIL}}}))
    project = tmp_path / ".trimaran" / "mcp.toml"
    project.parent.mkdir()
    project.write_text(
        f"[server.b]\ncommand = {json.dumps(EVIL)}\nargs = [{json.dumps(EVIL)}]\nenv = {{ A = {json.dumps(EVIL)} }}\n"
    )
    for words in (
        ("list", str(config)),
        ("list", f"{config}#c"),
        ("config", "check", "--workspace", str(tmp_path)),
        ("config", "check", "--json", "--workspace", str(tmp_path)),
        ("config", "show", "--workspace", str(tmp_path)),
        ("config", "import", str(config), "--dry-run"),
    ):
        with AtTerminal(*words) as terminal:
            terminal.end()
            assert not RAW.search(terminal.seen), (words, terminal.seen)


@pytest.mark.slow
def test_json_at_a_terminal_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    piped = run_cli(capsys, "call", odd(**ANSWERS), "add", "--json")
    assert EVIL.replace("\x1b", "\\u001b").replace("\x07", "\\u0007") in piped.out
    with AtTerminal("call", odd(**ANSWERS), "add", "--json") as terminal:
        terminal.end()
        assert json.loads(terminal.seen) == piped.json


@pytest.mark.parametrize("text", [EVIL, "\x7f", "\ud800", "plain", "é\u200d\u200c\ufe0f"], ids=ascii)
def test_escaped_json_reads_back(text: str) -> None:
    whole = json.dumps({text: [text]}, ensure_ascii=False, indent=2)
    assert json.loads(safe_json(whole)) == {text: [text]}
    assert not RAW.search(safe_json(whole))


def test_joiners_and_emoji_stay_as_they_are() -> None:
    text = "👩\u200d💻 ❤\ufe0f می\u200cخواهم"
    assert safe(text) == text
    assert safe_json(text) == text


class Terminal:
    """As far as logging looks: a stream that is a terminal, or is not."""

    def __init__(self, is_terminal: bool) -> None:
        self._is_terminal = is_terminal
        self.text = ""

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None: ...


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, whose level is afterwards as it was."""
    logger = logging.getLogger()
    level = logger.level
    yield logger
    logger.setLevel(level)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_log_lines_of_a_server_do_not_reach_a_terminal_raw(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    stream = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(root, "handlers", [])
    logs.log_to_stderr("info")
    logging.getLogger("boat").info("a caller said %s", EVIL)
    assert stream.text.startswith("INFO boat: a caller said x")
    assert bool(RAW.search(stream.text)) is not is_terminal


def test_a_value_at_a_terminal_is_json_that_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.raw({"a": EVIL})
    assert EVIL.replace("\x1b", "\\u001b").replace("\x07", "\\u0007") in capsys.readouterr().out
