"""The console as a program, in a real terminal of 80 by 24: what a person sees, and what is left when it ends.

The terminal is a pseudo-terminal whose screen is kept by pyte; the servers are real children on stdio.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest
from tests.support.model_provider import KEY, MODEL, Answer, AnthropicWire

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 25.0  # seconds for anything to appear, on a machine that has much else to do
SHOP = f"{sys.executable} {ROOT / 'examples' / 'ask_in_the_middle.py'} --stdio"
CALC = str(ROOT / "examples" / "calculator.py")

pytestmark = [pytest.mark.deadline(90), pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")]

CONSOLE = "import sys; from trimaran.apps.cli import main; sys.exit(main(['console', *sys.argv[1:]]))"


class Terminal:
    """A program in a terminal."""

    def __init__(
        self, program: str, *arguments: str, home: Path, cwd: Path | None = None, environ: dict[str, str] | None = None
    ) -> None:
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self.output = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._slave = slave
        self.before = termios.tcgetattr(slave)
        environ = {**os.environ, **(environ or {}), "TERM": "xterm-256color", "HOME": str(home), "LANG": "C.UTF-8"}
        environ |= {name: str(home / name) for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")}
        for name in ("COLORTERM", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "NO_COLOR"):
            environ.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environ,
            cwd=cwd or home,
            preexec_fn=_take_terminal,
        )
        self.family: set[int] = set()

    def read(self, seconds: float = 0.1) -> None:
        """Take what the program wrote meanwhile."""
        while select.select([self._master], [], [], seconds)[0]:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # its side is closed
                return
            self.output += data
            self._stream.feed(data)
            seconds = 0.0
        self.family |= descendants(self.process.pid)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, holds: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + LIMIT
        while not holds():
            self.read()
            if time.monotonic() > end:
                pytest.fail(f"{what} did not happen within {LIMIT:g} s; the screen:\n{self.text}")

    def shows(self, *texts: str) -> None:
        self.until(lambda: all(text in " ".join(self.text.split()) for text in texts), f"{texts} on the screen")

    def hides(self, text: str) -> None:
        self.until(lambda: text not in self.text, f"{text!r} off the screen")

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def line(self, text: str) -> None:
        """A line and Enter, each as a person would: a terminal that gets both at once may take it for a paste."""
        self.press(text)
        self.until(lambda: text[-20:] in self.text, f"{text!r} in the prompt")
        self.press("\r")

    def answer(self, key: str) -> None:
        """A card takes no key until the person has had a moment to see it."""
        end = time.monotonic() + 0.8
        while time.monotonic() < end:
            self.read(0.05)
        self.press(key)

    def end(self) -> int:
        """Its exit code, once it has ended."""
        self.until(lambda: self.process.poll() is not None, "the end of the program")
        self.read()
        return int(self.process.returncode)

    def hang_up(self) -> None:
        """Close the window."""
        self.read()
        for side in (self._slave, self._master):
            os.close(side)
        self._slave = self._master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for side in (self._master, self._slave):
            with contextlib.suppress(OSError):
                os.close(side)

    def is_restored(self) -> bool:
        """Is the terminal as it was: out of the alternate screen, the cursor shown, no mouse, the same settings?"""
        last = {mode: self.output.rfind(b"\x1b[?" + mode + b"h") for mode in (b"1049", b"1000", b"1003", b"2004")}
        is_off = all(self.output.rfind(b"\x1b[?" + mode + b"l") > at for mode, at in last.items() if at >= 0)
        is_seen = self.output.rfind(b"\x1b[?25h") > self.output.rfind(b"\x1b[?25l")
        return is_off and is_seen and termios.tcgetattr(self._slave) == self.before

    def has_left_nobody(self) -> bool:
        return not any(is_alive(pid) for pid in self.family)


def _take_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
            for child in map(int, children):
                found |= {child, *descendants(child)}
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""  # a zombie has none
    except OSError:
        return False


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*arguments: str, program: str = CONSOLE, **options: Any) -> Terminal:
        opened.append(Terminal(program, *arguments, home=tmp_path, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_a_person_connects_completes_calls_refuses_fills_in_a_form_and_leaves(
    open_terminal: Callable[..., Terminal],
) -> None:
    """The way through it all, as a person goes it (R239, R257, R273, R275)."""
    terminal = open_terminal("--server", f"calc={CALC}", "--server", f"shop={SHOP}", "--allow", "mcp__shop__*")
    terminal.shows("trimaran console, 2 servers", "● calc: connected (4 tools)", "● shop: connected (1 tool)")

    terminal.press("calc:mu\t")
    terminal.shows("calc:multiply")
    terminal.line("a=6 b=7")
    terminal.shows("✓ calc:multiply a=6 b=7", "42")
    terminal.press("\x1b[A")
    terminal.until(lambda: "a=6 b=7" in terminal.screen.display[23], "the line again")
    terminal.press("\x7f8\r")
    terminal.shows("✓ calc:multiply a=6 b=8", "48")

    terminal.line("shop:order kettle")
    terminal.shows("The server shop asks, in its own words:", "Where shall it go?", "name *")
    terminal.answer("\x13")
    terminal.shows("✗ an answer is needed here")
    terminal.press("Ada\x13")
    terminal.shows("✓ shop:order", "one kettle for Ada, standard.")

    terminal.line("/mcp")
    terminal.shows("Servers", "● calc connected, stdio", "a Authorise")
    terminal.press("t")
    terminal.shows("Tools of calc", "Permission: ask")
    terminal.press("\x1b")
    terminal.shows("Servers")
    terminal.press("\x1b")
    terminal.hides("Authorise")

    assert terminal.family
    terminal.press("\x11")
    assert terminal.end() == 0
    assert terminal.is_restored()
    assert terminal.has_left_nobody()


@pytest.mark.parametrize("options", [[], ["--no-pictures"]], ids=["pictures", "no-pictures"])
def test_what_is_typed_while_the_console_starts_is_sent_once_it_is_there(
    open_terminal: Callable[..., Terminal], options: list[str]
) -> None:
    """From the first moment on, when the terminal is still in line mode, to the last, when the server starts."""
    terminal = open_terminal("--server", f"calc={CALC}", *options)
    terminal.press("calc:add a=40 b=2\r")
    terminal.until(lambda: b"\x1b[?1049h" in terminal.output, "the screen of the console")
    terminal.press("calc:multiply a=7 b=6\rcalc:su\t")
    terminal.shows("✓ calc:add a=40 b=2", "✓ calc:multiply a=7 b=6", "42")
    terminal.press("\x11")
    assert terminal.end() == 0
    assert terminal.is_restored()


def test_a_tool_that_raises_shows_where(open_terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    """The console started the server, so it has the server's log."""
    server = tmp_path / "loft.py"
    server.write_text(
        "from trimaran import Server\nserver = Server('loft')\n\n@server.tool\ndef sail() -> str:\n    return {}['jib']\n"
    )
    terminal = open_terminal("--server", f"loft={server}")
    terminal.shows("loft: connected")
    terminal.line("loft:sail")
    terminal.shows("✗ loft:sail", "line 6, in sail", "KeyError: 'jib'")
    terminal.press("\x11")
    assert terminal.end() == 0


# A server that hears neither the end of its input nor a kind signal.
DEAF = """
import signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
from trimaran import Server
server = Server("deaf", version="1")
server.add_tool(lambda: "what?", name="shout")
try:
    server.run("stdio")
finally:
    while True:
        time.sleep(1)
"""


@pytest.mark.parametrize(("signal_sent", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["term", "hup"])
def test_a_signal_ends_it_and_its_servers(
    open_terminal: Callable[..., Terminal], tmp_path: Path, signal_sent: signal.Signals, code: int
) -> None:
    """R275, also where a server does not want to end."""
    (tmp_path / "deaf.py").write_text(DEAF)
    terminal = open_terminal("--server", f"deaf={sys.executable} deaf.py", "--no-pictures")
    terminal.shows("● deaf: connected (1 tool)")
    assert terminal.family
    terminal.process.send_signal(signal_sent)
    assert terminal.end() == code
    assert terminal.is_restored()
    assert terminal.has_left_nobody()


def test_a_terminal_that_is_closed_ends_it_and_its_servers(
    open_terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    """R275: there is nothing to restore any more."""
    (tmp_path / "deaf.py").write_text(DEAF)
    terminal = open_terminal("--server", f"deaf={sys.executable} deaf.py", "--no-pictures")
    terminal.shows("● deaf: connected (1 tool)")
    assert terminal.family
    terminal.hang_up()
    assert terminal.process.wait(LIMIT) == 129
    assert terminal.has_left_nobody()


COMMAND = "import sys; from trimaran.apps.cli import main; sys.exit(main(sys.argv[1:]))"
SLOW = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""


@pytest.mark.parametrize("command", [["list"], ["call", "TARGET", "tool"], ["doctor"]], ids=lambda words: words[0])
def test_a_command_shows_what_it_waits_for_and_ctrl_c_ends_it_at_once(
    open_terminal: Callable[..., Terminal], tmp_path: Path, command: list[str]
) -> None:
    """Also where the server hears neither the end of its input nor SIGTERM, for which a transport gives it four seconds."""
    (tmp_path / "slow.py").write_text(SLOW)
    target = f"{sys.executable} slow.py"
    words = [target if word == "TARGET" else word for word in command]
    terminal = open_terminal(*words, *([] if target in words else [target]), program=COMMAND)
    terminal.until(lambda: any(f"{word} " in terminal.text for word in ("starting", "examining")), "the spinner")
    terminal.until(lambda: terminal.family, "the server")
    began = time.monotonic()
    terminal.press("\x03")
    assert terminal.end() == 130
    assert time.monotonic() - began < 3.5
    assert terminal.has_left_nobody()


BROKEN = f"""
import sys
from trimaran.apps.console.app import ConsoleApp
def break_down(self):
    if self.host.connected():
        password = "hunter2-in-a-local-variable"
        raise RuntimeError("a mistake of ours")
ConsoleApp._tell_changes = break_down
{CONSOLE}
"""


def test_a_mistake_of_ours_leaves_the_terminal_as_it_was_and_no_server(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal("--server", f"calc={CALC}", "--no-pictures", program=BROKEN)
    assert terminal.end() == 70
    assert b"a mistake of ours" in terminal.output
    assert b"hunter2" not in terminal.output
    assert terminal.is_restored()
    assert terminal.has_left_nobody()


FLOOD = """
import sys
from trimaran import Context, Server

server = Server("flood", version="1")

@server.tool
async def pour(ctx: Context) -> str:
    for drop in range(10_000):
        print("drop", drop, "x" * 80, file=sys.stderr)
        for _ in range(9):
            print("splash", file=sys.stderr)
        await ctx.progress(drop, total=10_000, message=f"drop {drop}")
    return "poured"

@server.tool
def add(a: int, b: int) -> int:
    return a + b

server.run()
"""


def test_a_server_that_floods_leaves_the_screen_usable(open_terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    """A hundred thousand lines of stderr and ten thousand reports: calls and keys go on meanwhile."""
    (tmp_path / "flood.py").write_text(FLOOD)
    terminal = open_terminal(
        "--server", f"flood={tmp_path / 'flood.py'}", "--server", f"calc={CALC}", "--allow", "*", "--no-pictures"
    )
    terminal.shows("● calc: connected", "● flood: connected")
    terminal.line("flood:pour")
    terminal.shows("1 call running")
    terminal.line("calc:add 1 2".replace("1 2", "a=1 b=2"))
    terminal.shows("✓ calc:add", "3.0")
    terminal.shows("✓ flood:pour", "poured")
    terminal.line("/mcp")
    terminal.shows("Servers")
    terminal.press("\x1b[Bs")
    terminal.shows("stderr of flood", "splash")
    terminal.press("\x11")
    assert terminal.end() == 0


def test_a_projects_servers_start_only_after_a_yes(open_terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".trimaran").mkdir(parents=True)
    (project / ".trimaran" / "mcp.toml").write_text(f'[server.calc]\ncommand = "{sys.executable}"\nargs = ["{CALC}"]\n')
    terminal = open_terminal("--no-pictures", cwd=project)
    terminal.shows("Do you trust this project's configuration?", "start calc:")
    assert terminal.family == set()
    terminal.answer("\r")
    terminal.shows("is not trusted", "○ calc off")
    terminal.press("\x11")
    assert terminal.end() == 0
    again = open_terminal("--no-pictures", cwd=project)
    again.shows("Do you trust this project's configuration?")
    again.answer("y")
    again.shows("● calc: connected (4 tools)")
    again.press("\x04")
    assert again.end() == 0
    assert again.has_left_nobody()


async def test_a_model_uses_a_tool_after_a_yes(open_terminal: Callable[..., Terminal]) -> None:
    """The provider's own library, against a provider on this machine that checks every request."""
    first = Answer(texts=["Let me ", "add."], calls=[("c1", "calc__add", '{"a": 1, "b": 2}')])
    async with AnthropicWire() as wire:
        wire.script = [first, Answer(texts=["It is **three**", ", and that is `sure`."])]
        terminal = open_terminal(
            "--server", f"calc={CALC}", "--model", wire.name, "--no-pictures", environ=wire.environ
        )

        def talk() -> None:
            terminal.shows("● calc: connected", f"messages go to {MODEL}")
            terminal.line("How much is one and two?")
            terminal.shows("May this call be made?", "calc:add", '"a": 1')
            terminal.answer("y")
            terminal.shows("Let me add.", "✓ calc:add a=1 b=2", "It is three, and that is sure.", "20 tokens read")
            terminal.press("\x11")
            assert terminal.end() == 0

        await asyncio.to_thread(talk)
        assert wire.faults == []
        assert KEY.encode() not in terminal.output


def test_a_bad_configuration_is_told_before_the_screen_is_taken(
    open_terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    """R226."""
    (tmp_path / "bad.toml").write_text("[server.x\n")
    terminal = open_terminal("bad.toml")
    assert terminal.end() == 2
    assert b"bad.toml:1" in terminal.output
    assert b"\x1b[?1049h" not in terminal.output


def test_without_a_terminal_it_says_what_to_use_instead() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONSOLE], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 2
    assert "trimaran call" in done.stderr
    assert done.stdout == ""
