"""Examine a command: start it by hand, speak to it over bare pipes, watch what it does, and let it end.

The client library forgives and heals; here every line on stdout is looked at, so that what disturbs other clients shows.
One process, or two if the first dies of a question it does not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast, final

from msgspec.structs import replace

from trimaran.client.sandbox_policy import Sandbox
from trimaran.client.stderr_summary import telling_lines
from trimaran.depth import decode_json
from trimaran.errors import ConfigError
from trimaran.protocol.versions import LATEST_LEGACY, MODERN
from trimaran.transports.child_environment import child_environment, describe_missing, missing_variables
from trimaran.transports.sandbox import SandboxedStart, prepare_sandbox, sandbox_environment
from trimaran.transports.sandbox_filter import inherited_filter

from ..output import in_one_line, safe
from ..target import Settings, Target
from .report import Report, several

_EXIT_SECONDS: Final = (
    2.0  # seconds; hosts wait about this long before they send SIGTERM, and what stays is an orphan one day (P10)
)
_SILENCE: Final = (
    2.0  # after which the old greeting follows: some ignore what they do not know, some die at the next line
)
_SLOW_START: Final = 5.0  # seconds; hosts give up between 5 and 60 (P3)
_LINE: Final = 16 * 1024 * 1024
_TAIL: Final = 200
_MOST_LINES: Final = 6
_META: Final = "io.modelcontextprotocol/"
_INFO: Final = {"name": "trimaran-doctor", "version": "1.0.0"}


def modern_meta() -> dict[str, Any]:
    """The `_meta` of a modern request."""
    return {_META + "protocolVersion": MODERN, _META + "clientInfo": _INFO, _META + "clientCapabilities": {}}


def hello() -> dict[str, Any]:
    """The params of a legacy handshake."""
    return {"protocolVersion": LATEST_LEGACY, "clientInfo": _INFO, "capabilities": {}}


class ReachableProcess(NamedTuple):
    """A process that can be spoken to."""

    not_modern: str = ""
    """Why it cannot be spoken to in the modern era; empty if it can."""


class GreetingReplies(NamedTuple):
    """A child's answers to the modern greeting, and to the handshake if that was sent."""

    discovered: dict[str, Any] | None
    shaken: dict[str, Any] | None

    @property
    def is_silent(self) -> bool:
        return self.discovered is None and self.shaken is None

    @property
    def is_modern(self) -> bool:
        return self.discovered is not None and "result" in self.discovered

    def refusal(self) -> str:
        if self.discovered is None:
            return "it does not answer server/discover"
        error: Any = self.discovered.get("error")
        details = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
        return f"it answers server/discover with the error {details.get('code')}: {details.get('message')}"


async def examine_process(report: Report, target: Target, settings: Settings) -> ReachableProcess | None:
    """Report on the process; None if it cannot be spoken to."""
    report.section("Process")
    inherits = target.inherit_env or settings.inherit_env
    env = child_environment(os.environ, {**target.env, **settings.env}, inherit=inherits)
    program = _resolve(report, target, env)
    if program is None:
        return None
    patience = settings.timeout or 30.0
    command, cwd, seccomp = [program, *target.command[1:]], target.cwd, b""
    if target.sandbox is not None:
        enclosed = _enclose(report, target.sandbox, command, {**target.env, **settings.env}, cwd)
        if enclosed is None:
            return None
        command, env, cwd, seccomp = enclosed
    try:
        child = await _Child.start(command, env, cwd, seccomp)
    except OSError as error:
        report.fail(
            "start",
            f"cannot be started: {error.strerror or error}",
            "No client can start it either.",
            "Check that the file may be executed, and its first line (#!) if it is a script.",
        )
        return None
    async with contextlib.aclosing(child):
        greeting = await child.greet(patience)
        if greeting.is_silent and child.has_ended:
            return await _retry_with_initialize(report, child, command, env, cwd, seccomp, patience)
        if greeting.is_silent:
            _report_mute(report, child, patience)
            return None
        if not greeting.is_modern:
            if greeting.shaken is None:
                await child.ask("initialize", hello(), patience)
            child.tell("notifications/initialized")
        _report_start(report, child)
        # Finds prints in handlers.
        await child.ask("tools/list", {"_meta": modern_meta()} if greeting.is_modern else {}, patience)
        await _report_end(report, child)
    return ReachableProcess("" if greeting.is_modern else greeting.refusal())


def _resolve(report: Report, target: Target, env: Mapping[str, str]) -> str | None:
    word = target.command[0]
    if os.sep in word or "/" in word:
        # Relative to where the child starts, as the system sees it.
        path = Path(target.cwd or ".", word)
        program = str(path.absolute()) if path.is_file() and os.access(path, os.X_OK) else None
        where = f"{path} is not an executable file"
    else:
        program = shutil.which(word, path=env.get("PATH"))
        where = f"{word} is in none of the {len(env.get('PATH', '').split(os.pathsep))} directories of PATH"
    if program is None:
        report.fail(
            "command",
            where,
            "Hosts start servers with little in PATH, so a name alone is often not found.",
            "Install it, or name it by its absolute path.",
        )
        return None
    report.ok("command", program)
    return program


def _enclose(
    report: Report, policy: Sandbox, command: list[str], env: Mapping[str, str], cwd: str | None
) -> SandboxedStart | None:
    """The start in the server's sandbox; None if there can be none. Hosts that it lists are not reached from here."""
    offline = policy if policy.net is True else replace(policy, net=False)
    try:
        start = prepare_sandbox(offline, command, sandbox_environment(policy, os.environ, env), cwd)
    except ConfigError as error:
        report.fail("sandbox", str(error), "A host does not start it either.", "See the guide on sandboxes.")
        return None
    report.ok("sandbox", str(policy))
    return start


async def _retry_with_initialize(
    report: Report,
    first: _Child,
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    seccomp: bytes,
    patience: float,
) -> ReachableProcess | None:
    """The child died of `server/discover`, or of itself: start another and begin with `initialize`."""
    child = await _Child.start(command, env, cwd, seccomp)
    async with contextlib.aclosing(child):
        shaken = await child.ask("initialize", hello(), patience)
        if shaken is None:
            # The first child's error is the cause, unless an unknown request ended it.
            is_about_the_question = any("server/discover" in line for line in first.stderr)
            _report_death(report, child if is_about_the_question and child.has_ended else first)
            return None
        report.warn(
            "first-message",
            f"it ends (exit code {first.process.returncode}) when server/discover comes before initialize",
            f"A client that speaks {MODERN} asks that first; it must start the server twice.",
            "Answer unknown requests with error -32601, or update the server's library.",
        )
        child.tell("notifications/initialized")
        _report_start(report, child)
        await child.ask("tools/list", {}, patience)
        await _report_end(report, child)
    return ReachableProcess("it ends when server/discover comes first")


def _report_death(report: Report, child: _Child) -> None:
    code = child.process.returncode
    ending = f"it ended with exit code {code} without an answer" if code is not None else "it gave no answer"
    fix = (
        f"{missing}."
        if (missing := child.missing())
        else "Run the command by hand: what it needs is in the lines above."
    )
    if code == 0 and not child.stderr:
        fix = "The script ended without running a server: call server.run() at its end, or use `trimaran serve FILE`."
    report.fail("start", ending, "No client can use it.", fix, details=child.tail())
    _report_pollution(report, child)


def _report_mute(report: Report, child: _Child, patience: float) -> None:
    report.fail(
        "start",
        f"no answer to server/discover nor to initialize within {patience:g} s",
        "Clients give up after some seconds, and people see a server that hangs.",
        "See whether it speaks MCP on stdin and stdout at all, and what it waits for at its start.",
        details=child.tail(),
    )
    _report_pollution(report, child)


def _report_start(report: Report, child: _Child) -> None:
    assert child.first_answer is not None
    seen = f"first answer {child.first_answer:.2f} s after the start"
    if child.first_answer > _SLOW_START:
        report.warn(
            "start",
            seen,
            "Hosts wait for each server when they start, and some give up after 5 s.",
            "Import less before the server runs, and connect to other services on the first call.",
        )
    else:
        report.ok("start", seen)


async def _report_end(report: Report, child: _Child) -> None:
    seconds = await child.end_input(_EXIT_SECONDS)
    _report_pollution(report, child)
    if seconds is not None:
        code = child.process.returncode
        report.ok("eof", f"it ends {seconds:.2f} s after stdin closes, exit code {code}")
    else:
        report.warn(
            "eof",
            f"it still runs {_EXIT_SECONDS:g} s after stdin was closed",
            "A host that is gone cannot end it: such processes pile up.",
            "End the process when stdin ends.",
        )
    if missing := child.missing():
        report.warn(
            "environment",
            "its stderr names variables that it did not get",
            "Children get a safe part of the environment and what their entry names, here as in other hosts.",
            f"{missing}.",
        )
    lines = child.tail()
    if any(line.startswith("Traceback ") for line in child.stderr):
        report.warn(
            "stderr",
            f"{several(len(child.stderr), 'line')}, with a traceback",
            "Something went wrong, though the server answers.",
            "Look at the lines above.",
            details=lines,
        )
    else:
        report.ok("stderr", several(len(child.stderr), "line") if lines else "silent", details=lines)


def _report_pollution(report: Report, child: _Child) -> None:
    if child.garbage:
        report.fail(
            "stdout",
            f"{several(len(child.garbage), 'line')} that no MCP client can read",
            "stdout belongs to the protocol: many clients give up at the first such line.",
            "Print to stderr instead, and look at what libraries print at import.",
            details=[in_one_line(line, 500) for line in child.garbage],
        )
    elif child.first_answer is not None:
        report.ok("stdout", "nothing but messages")


@final
class _Child:
    """A process with its pipes in our hands."""

    def __init__(self, process: asyncio.subprocess.Process, passed: frozenset[str]) -> None:
        self.process = process
        self._passed = passed
        """The names of the variables that it got."""
        self.begun = time.perf_counter()
        self.first_answer: float | None = None
        """Seconds from the start to the first reply."""
        self.garbage: list[str] = []
        self.stderr: deque[str] = deque(maxlen=_TAIL)
        self._next_id = 0
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._readers = [asyncio.create_task(self._read_stdout()), asyncio.create_task(self._read_stderr())]

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str], cwd: str | None, seccomp: bytes) -> _Child:
        pipe = asyncio.subprocess.PIPE
        with inherited_filter(command, seccomp) as (words, descriptors):
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=dict(env),
                cwd=cwd,
                limit=_LINE,
                # A group of its own, so that its children can be ended with it.
                start_new_session=sys.platform != "win32",
                pass_fds=descriptors,
            )
        return cls(process, frozenset(env))

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None or self._readers[0].done()

    def missing(self) -> str:
        """The variables that its stderr names, that are set here, and that the child did not get."""
        return describe_missing(missing_variables("\n".join(self.stderr), os.environ, self._passed))

    def tail(self) -> list[str]:
        return [safe(line) for line in telling_lines(list(self.stderr), _MOST_LINES)]

    async def greet(self, seconds: float) -> GreetingReplies:
        """The modern greeting; the handshake too, if that stays without an answer for a while."""
        discovered = self._request("server/discover", {"_meta": modern_meta()})
        if await self._wait([discovered], min(seconds, _SILENCE)) or self._readers[0].done():
            return GreetingReplies(discovered.result() if discovered.done() else None, None)
        shaken = self._request("initialize", hello())
        await self._wait([discovered, shaken], seconds)
        return GreetingReplies(*(reply.result() if reply.done() else None for reply in (discovered, shaken)))

    async def ask(self, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """The reply to a request; None if the child ended or time ran out."""
        reply = self._request(method, params)
        return reply.result() if await self._wait([reply], seconds) else None

    def _request(self, method: str, params: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        self._next_id += 1
        reply = self._replies[self._next_id] = asyncio.get_running_loop().create_future()
        self._write({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        return reply

    async def _wait(self, replies: list[asyncio.Future[dict[str, Any]]], seconds: float) -> bool:
        """Wait for one of these replies, or for the end of the child. Returns whether a reply came."""
        await asyncio.wait([*replies, self._readers[0]], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        is_answered = any(reply.done() for reply in replies)
        if not is_answered and self._readers[0].done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), 1.0)
                await asyncio.wait(self._readers, timeout=1.0)
        return is_answered

    def tell(self, method: str) -> None:
        self._write({"jsonrpc": "2.0", "method": method})

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, RuntimeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        while line := await _line(self.process.stdout):
            text = line.decode("utf-8", "replace").strip()
            message = _message(text)
            if message is None:
                if text:
                    self.garbage.append(text)
                continue
            if "method" in message:
                continue
            if self.first_answer is None:
                self.first_answer = time.perf_counter() - self.begun
            id: Any = message.get("id")
            reply = self._replies.get(id) if isinstance(id, int) else None
            if reply is not None and not reply.done():
                reply.set_result(message)

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while line := await _line(self.process.stderr):
            self.stderr.append(line.decode("utf-8", "replace").rstrip())

    async def end_input(self, seconds: float) -> float | None:
        """Close stdin; how long it took to end, or None if it did not."""
        assert self.process.stdin is not None
        begun = time.perf_counter()
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            return None
        duration = time.perf_counter() - begun
        await asyncio.wait(self._readers, timeout=1.0)
        return duration

    async def aclose(self) -> None:
        """End it and all it started."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            self._signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), _EXIT_SECONDS)
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        transport: Any = getattr(self.process, "_transport", None)
        if transport is not None:  # else its pipes stay open until they are collected
            transport.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform != "win32":
                os.killpg(self.process.pid, number)
            elif self.process.returncode is None:
                self.process.kill()


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:  # longer than any message may be; the reader has dropped it
        return b"(a line longer than 16 MiB)\n"


def _message(text: str) -> dict[str, Any] | None:
    try:
        value = decode_json(text)
    except ValueError:
        return None
    if isinstance(value, list):  # a batch, of 2025-03-26
        value = next(iter(cast("list[Any]", value)), None)
    if not isinstance(value, dict):
        return None
    message = cast("dict[str, Any]", value)
    return message if message.get("jsonrpc") == "2.0" else None
