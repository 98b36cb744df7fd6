"""`trimaran ask`: a host without a person. One prompt, a model that may use the tools that the rules allow, and an answer.

The answer goes to stdout; what happens on the way, and what was denied, to stderr. Nobody can be asked, so whatever the
rules would ask about is denied, and said (R245). Servers may ask nothing either: no capability for it is declared.

The conversation is `trimaran.apps.conversation`; the questions of servers that `trimaran call` puts to a person are `questions.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import aclosing
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import click

from trimaran.errors import ConfigError, Error

from .arguments import FILE
from .exit_codes import is_output_error
from .host_options import configure, host_options
from .output import Screen, in_one_line
from .run import run_loop, show_log
from .target import Settings

if TYPE_CHECKING:
    from trimaran.apps.conversation.model import Conversation, Event
    from trimaran.host import Host, HostConfig

_LONGEST: Final = 200  # characters of a line on stderr about a call
_MOST_TEXT: Final = 20_000  # characters of a tool's result in --json


class AskExit(IntEnum):
    """How `trimaran ask` ends."""

    ANSWERED = 0
    UNFINISHED = 1
    USAGE = 2
    MODEL_FAILED = 4
    TIMED_OUT = 5
    BUG = 70


_EPILOG: Final = """\b
Exit codes:
    0  the model answered
    1  the answer is not whole: --max-turns, --max-tokens, or the model declined
    2  the command cannot work as it was typed: no key, no such model, a configuration that cannot be read
    4  the provider of the model failed
    5  no answer in time (--timeout)
   70  a mistake in trimaran itself
  130  interrupted with Ctrl-C"""

_UNFINISHED: Final = {
    "max_turns": "the model wanted to go on using tools, and --max-turns stopped it",
    "max_tokens": "the answer was cut: it reached --max-tokens",
    "refusal": "the model declined to answer",
}


@click.command(
    "ask", epilog=_EPILOG, short_help="Let a model answer one prompt with the tools of many servers, and end."
)
@click.option("-p", "--prompt", metavar="TEXT", help="The prompt; - reads it from stdin, as does leaving it out.")
@click.option(
    "--model",
    metavar="NAME",
    envvar="TRIMARAN_MODEL",
    help="anthropic:MODEL or openai:MODEL; the variable TRIMARAN_MODEL does the same.  [required]",
)
@click.option(
    "--config",
    "file",
    type=FILE,
    metavar="FILE",
    help="Read this mcp.toml alone.  [those of the user and the project]",
)
@host_options
@click.option("--system", default="", metavar="TEXT", help="The system prompt of the model.")
@click.option("--max-turns", type=click.IntRange(1), default=50, help="Requests to the model, at most.  [50]")
@click.option("--max-tokens", type=click.IntRange(1), default=4096, help="Tokens of one answer, at most.  [4096]")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="For all of it.  [none]")
@click.option(
    "--startup",
    type=click.FloatRange(0),
    default=60.0,
    metavar="SECONDS",
    help="How long to wait for servers that start slowly; the tools of one that is not up by then are missing.  [60]",
)
@click.option(
    "--code", is_flag=True, help="The model writes Python over the tools, run in a sandbox, instead of calls."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: answer, calls, tokens, servers.")
@click.option("-q", "--quiet", is_flag=True, help="Say only what was denied and what went wrong on stderr.")
@click.option("--debug", is_flag=True, help="Show the library's log, and tracebacks.")
def command(
    prompt: str | None,
    model: str | None,
    file: Path | None,
    servers: Sequence[str],
    allow: Sequence[str],
    ask: Sequence[str],
    deny: Sequence[str],
    audit: str | None,
    no_mcp: bool,
    system: str,
    max_turns: int,
    max_tokens: int,
    timeout: float | None,
    startup: float,
    code: bool,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> int:
    """Let a model answer one prompt, with the tools that the rules allow.

    \b
      trimaran ask -p "What changed in the docs?" --model anthropic:claude-sonnet-5
      trimaran ask -p "Sum up @docs:readme" --config mcp.toml --allow 'mcp__docs__*'
      git diff | trimaran ask --model openai:gpt-5 --system "Review this change."
      trimaran ask -p "How deep is it?" --server boat=boat.py --allow 'mcp__boat__*' --json

    The servers are those of mcp.toml, and what --server names. Nobody is asked: a call that no rule allows is denied, and
    stderr says so. A project's mcp.toml that is not trusted starts nothing: `trimaran config trust`.
    """
    if not model:
        raise click.UsageError(
            "no model is named: write --model anthropic:MODEL or openai:MODEL, or set TRIMARAN_MODEL"
        )
    text = _read_prompt(prompt)
    config = configure(file, servers)
    if no_mcp:
        os.environ["TRIMARAN_NO_MCP"] = "1"

    def open_host() -> Host:
        from trimaran.host import Host
        from trimaran.host.trust import Trust

        return Host(config, allow=allow, ask=ask, deny=deny, audit=audit, trust=Trust(), wait=False)

    screen = Screen(quiet=quiet)
    run = _AskReport(screen, is_quiet=quiet)
    options = {"max_turns": max_turns, "max_tokens": max_tokens, "system": system, "code": code}
    with show_log(screen, Settings(quiet=quiet, debug=debug)):
        try:
            exit_code = run_loop(_run(run, open_host(), config, model, text, options, timeout=timeout, startup=startup))
        except Exception as error:
            if debug or isinstance(error, Error) or is_output_error(error):
                raise
            exit_code = run.fail(AskExit.BUG, f"this is a mistake in trimaran: {type(error).__name__}: {error}")
    if as_json:
        screen.raw(run.to_json(exit_code))
    elif run.answer.strip():
        screen.text(run.answer)
    return exit_code


def _read_prompt(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        raise click.UsageError('there is nothing to ask: write -p "...", or send it to stdin')
    text = sys.stdin.read() if prompt in (None, "-") else prompt
    if not text or not text.strip():
        raise click.UsageError('the prompt is empty: write -p "...", or send it to stdin')
    return text


async def _run(
    run: _AskReport,
    host: Host,
    config: HostConfig,
    name: str,
    text: str,
    options: dict[str, Any],
    *,
    timeout: float | None,
    startup: float,
) -> int:
    from trimaran.apps.conversation.model import ModelFailed, ModelUnavailable, open_model

    for problem in config.problems:
        run.note(str(problem))
    try:
        model = open_model(name, host, **options)  # before anything is started: a missing key is soon told
    except ModelUnavailable as error:
        return run.fail(AskExit.USAGE, str(error))
    deadline = asyncio.timeout(timeout)
    try:
        async with deadline, host:
            await host.ready(startup)
            run.tell_servers(host)
            await run.converse(host, model, text)
    except TimeoutError:
        if timeout is None or not deadline.expired():
            raise
        return run.fail(AskExit.TIMED_OUT, f"no answer within {timeout:g} s (--timeout)")
    except ModelFailed as error:
        return run.fail(AskExit.MODEL_FAILED, str(error))
    except ConfigError:
        raise
    except Error as error:
        return run.fail(AskExit.USAGE, str(error))
    finally:
        await model.close()
    if run.reason in ("end_turn", "stop_sequence"):
        return AskExit.ANSWERED
    return run.fail(AskExit.UNFINISHED, _UNFINISHED.get(run.reason, f"the model stopped: {run.reason}"))


@final
class _AskReport:
    """Reports on stderr what happens, as it happens, and keeps the outcome."""

    def __init__(self, screen: Screen, *, is_quiet: bool) -> None:
        self._screen = screen
        self._is_quiet = is_quiet
        self._calls: dict[str, dict[str, Any]] = {}
        self._servers: list[dict[str, Any]] = []
        self._problems: list[str] = []
        self._error = ""
        self._tokens = (0, 0)
        self.answer = ""
        """The model's text since the last call."""
        self.reason = ""

    # --- what happens ------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Something that went wrong and stops nothing."""
        self._problems.append(text)
        self._screen.note(f"trimaran: {text}")

    def fail(self, code: AskExit, text: str) -> int:
        self._error = text
        self._screen.note(f"trimaran: {text}")
        return code

    def _progress(self, text: str) -> None:
        if not self._is_quiet:
            self._screen.note(in_one_line(text, _LONGEST))

    def tell_servers(self, host: Host) -> None:
        for status in host.status():
            self._servers.append(
                {"name": status.name, "state": status.state, "tools": status.tools, "reason": status.reason}
            )
            if status.state in ("failed", "needs_auth", "starting") or status.reason:
                self.note(f"{status.name} is not used: {status.text}")
            else:
                self._progress(str(status))
        if host.untrusted:
            files = ", ".join(host.untrusted_files)
            self.note(f"{files} is not trusted, and starts nothing: read it, then run `trimaran config trust`")

    async def converse(self, host: Host, model: Conversation, text: str) -> None:
        expansion = await host.expand(text)
        for problem in expansion.problems:
            self.note(problem)
        async with aclosing(model.send(expansion.text)) as events:
            async for event in events:
                self._take(event)

    def _take(self, event: Event) -> None:
        from trimaran.apps.conversation.model import (
            TextReceived,
            ToolCallFailed,
            ToolCallRefused,
            ToolCallReturned,
            ToolCallStarted,
            TurnEnded,
            UserNotice,
        )

        match event:
            case TextReceived(text):
                self.answer += text
            case ToolCallStarted(id, name, arguments):
                if self.answer.strip():
                    self._progress(self.answer)
                self.answer = ""
                self._calls[id] = {"name": name, "arguments": arguments, "outcome": "unanswered"}
                self._progress(f"> {name} {json.dumps(arguments, ensure_ascii=False)}")
            case ToolCallReturned(id, name, result):
                outcome = "failed" if result.is_error else "returned"
                self._calls[id] |= {"outcome": outcome, "text": result.text[:_MOST_TEXT]}
                self._progress(f"< {name}{' failed' if result.is_error else ''}: {result.text}")
            case ToolCallRefused(id, name, reason):
                self.answer = ""
                known = self._calls.setdefault(id, {"name": name, "arguments": {}})
                known |= {"outcome": "denied", "reason": reason}
                self._screen.note(f"trimaran: denied: {in_one_line(reason, 2 * _LONGEST)}")
            case ToolCallFailed(id, name, reason):
                self._calls[id] |= {"outcome": "error", "reason": reason}
                self._screen.note(f"trimaran: {name} failed: {in_one_line(reason, 2 * _LONGEST)}")
            case UserNotice(text):
                self.note(text)
            case TurnEnded(reason, input_tokens, output_tokens):
                self.reason, self._tokens = reason, (input_tokens, output_tokens)

    # --- what came of it ---------------------------------------------------------------------------------------------

    def to_json(self, code: int) -> dict[str, Any]:
        return {
            "answer": self.answer,
            "reason": self.reason,
            "calls": list(self._calls.values()),
            "tokens": {"input": self._tokens[0], "output": self._tokens[1]},
            "servers": self._servers,
            "problems": self._problems,
            "error": self._error,
            "exit_code": int(code),
        }
