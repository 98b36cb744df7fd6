"""Run Python that a model wrote over the tools of a host, in a sandbox: `Host.code` and the tool `run_code`.

    for issue in await github__list_issues(repo="sails"):
        if issue["state"] == "open":
            print(issue["title"])

The code runs in Monty (extra `code`), an interpreter in a process of its own: no files, no network, no modules but a few pure ones,
and limits of time and memory. What reaches outside is calls of tools, and each is a `Host.call` like any other: rules, questions,
time limits, audit. Results of calls stay in the sandbox. Only what the code prints or returns, within a limit, is for the model.

Each run has a new interpreter, which ends with it. Nothing about the code raises except a missing library and cancellation:
errors are results that a model can read, with what to do next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, cast, final

import msgspec
from msgspec import Struct

from trimaran.client.results import ToolResult
from trimaran.errors import ConfigError, Error
from trimaran.types import Tool

from .code_stubs import ToolFunction, function_names, write_function
from .own_tools import own_result

if TYPE_CHECKING:
    import pydantic_monty

log: Final = logging.getLogger("trimaran.host")

RUN_CODE: Final = "run_code"
_MODULES: Final = "asyncio, collections, datetime, functools, itertools, json, math, random, re, statistics"
_MOST_STUBS: Final = (
    60  # functions in the declaration; of more, only the servers are named, and `search_tools` finds the rest
)
_LONGEST_STUBS: Final = 60_000  # characters of them together; sixty of 1,095 published tools have 26,000 on average
_AT_ONCE: Final = 10  # calls at the same time; a server that gets a thousand at once fails them
_DEEPEST: Final = 300  # calls of functions within each other
_MOST_CODE: Final = 100_000  # characters; programs of models have some hundreds
_MOST_SECONDS: Final = 86_400
_GRACE: Final = 5.0  # seconds that the interpreter has to notice its own limit, before its process is ended


@final
class CodeLimits(Struct, frozen=True, kw_only=True):
    """The limits of one run of code."""

    seconds: float = 10.0
    """Of computing. Waiting for tools does not count: each call has its own time limit."""
    memory: int = 64 * 1024 * 1024
    """Bytes of the code's values, results of tools included."""
    calls: int = 100
    """Calls of tools. A loop by mistake must not empty an account."""
    output: int = 20_000
    """Characters that are printed and returned, some 5,000 tokens."""

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= _MOST_SECONDS:
            raise ConfigError(f"code may compute for {self.seconds} s: give more than 0, and at most {_MOST_SECONDS}")
        for name, least in (("memory", 1), ("calls", 0), ("output", 0)):
            if (value := getattr(self, name)) < least:
                raise ConfigError(f"the limit of code in {name} is {value}: give {least} or more")


@final
class CodeResult(Struct, frozen=True):
    """The outcome of a run of code."""

    value: Any
    """The value of the last expression, or of `return`; None if the run failed."""
    printed: str
    """Its output, up to the limit."""
    error: str
    """Why it failed, and what to do; empty if it did not."""
    calls: tuple[str, ...]
    """The tools that were called, in order."""

    def text(self, limit: int) -> str:
        """The result as a model reads it."""
        parts = [self.printed.rstrip("\n")] if self.printed else []
        if self.error:
            parts.append(self.error)
        elif self.value is not None:
            parts.append(_shortened(_as_text(self.value), limit))
        return "\n".join(parts) or "The code ran. It printed nothing and returned nothing: print what you need to know."


@final
class CodeTools:
    """The tools of a catalog as functions. Made once for each catalog."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        self._names = function_names(tools)
        self._functions: dict[str, ToolFunction] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Any:
        return iter(self._names)

    def tool(self, name: str) -> str:
        """The tool that a function stands for."""
        return self._names[name]

    def function(self, name: str) -> ToolFunction:
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = write_function(name, self._tools[self._names[name]])
        return function

    def stubs(self, tools: Mapping[str, Any] | None = None) -> str:
        """The functions as Python; of these tools, or of all."""
        return "\n\n".join(
            self.function(name).stub for name, tool in self._names.items() if tools is None or tool in tools
        )


def code_declaration(tools: CodeTools, limits: CodeLimits | None = None) -> Tool:
    """The definition of `run_code`, for a model; with the functions of all tools, if they are not too many."""
    limits = limits or CodeLimits()
    names = list(tools)
    stubs = tools.stubs() if len(names) <= _MOST_STUBS else ""
    if len(names) <= _MOST_STUBS and len(stubs) <= _LONGEST_STUBS:
        functions = f"Functions:\n\n{stubs}"
    else:
        servers = sorted({name.split("__")[0] for name in names})
        functions = (
            f"There are {len(names)} functions, SERVER__TOOL, of these servers: {', '.join(servers)}. "
            'print(await search_tools("what is to be done")) prints signatures.'
        )
    return Tool(
        name=RUN_CODE,
        description=(
            "Run Python that calls tools. Use it for several calls, loops, or large results: only what the code prints, or its "
            "last expression, comes back. Every tool is an async function with keyword arguments: await it; asyncio.gather runs "
            f"calls at the same time. No files, no network, no classes of your own; modules: {_MODULES}. "
            f"At most {limits.calls} calls and {limits.output} characters of output. {functions}"
        ),
        input_schema={
            "type": "object",
            "properties": {"code": {"type": "string", "description": "Python, with await at the top level"}},
            "required": ["code"],
        },
    )


# --- running ---------------------------------------------------------------------------------------------------------


def _library() -> Any:
    try:
        import pydantic_monty
    except ImportError:
        raise ConfigError(
            "code runs in the sandbox pydantic-monty, which is not installed: pip install 'trimaran[code]'"
        ) from None
    return pydantic_monty


async def run_code(
    code: str,
    tools: CodeTools,
    call: Callable[[str, dict[str, Any]], Awaitable[ToolResult]],
    *,
    search: Callable[[str, int], Awaitable[list[str]]],
    limits: CodeLimits | None = None,
) -> CodeResult:
    """Run code to its end; what it left, or why it failed.

    Args:
        call: Calls a tool by its name, with everything that a call has to pass.
        search: Finds tools, for the function `search_tools`.

    Raises:
        ConfigError: the sandbox is not installed.
    """
    monty = _library()
    run = _Run(tools, call, search, limits or CodeLimits())
    if len(code) > _MOST_CODE:
        return run.failed(
            f"The code has {len(code)} characters, and {_MOST_CODE} are allowed: pass data through tools."
        )
    sandbox = _Sandbox(monty, run)
    try:
        value = await sandbox.run(code)
    except monty.MontyError as error:
        return run.failed(_explain(error, run, monty))
    if sandbox.unmade:
        names = _shortened(", ".join(dict.fromkeys(sandbox.unmade)), 500)
        return run.failed(
            f"The code ended with a call that was not awaited, so it was not made: {names}. Write await before it."
        )
    return CodeResult(value, run.printed(), "", tuple(run.calls))


@final
class _Sandbox:
    """One interpreter in a process of its own: it computes in a thread's call, and rests while tools work.

    Monty has an async interface. Its threads abort Python now and then when the program ends, and a run that computes cannot be
    cancelled (pydantic/monty#551). So this is its blocking one, step by step. Remove when both are mended.
    """

    def __init__(self, monty: Any, run: _Run) -> None:
        self._monty = monty
        self._run = run
        self._unmade: dict[int, tuple[str, Coroutine[Any, Any, Any]]] = {}
        """Calls since which nothing was awaited: as in Python, they have not begun."""
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._process: int | None = None

    @property
    def unmade(self) -> list[str]:
        """The functions whose calls were never awaited."""
        return [name for name, _ in self._unmade.values()]

    async def run(self, code: str) -> Any:
        step = asyncio.ensure_future(asyncio.to_thread(self._open, code))
        stack: contextlib.ExitStack | None = None
        try:
            stack, snapshot = await asyncio.shield(step)
            while not isinstance(snapshot, self._monty.MontyComplete):
                settled = await self._settle(snapshot)
                step = asyncio.ensure_future(asyncio.to_thread(self._resume, snapshot, settled))
                snapshot = await asyncio.shield(step)
            if self._tasks:  # begun beside one that was awaited: a call that is cut off may have done half of its work
                await asyncio.wait(self._tasks.values())
            return snapshot.output
        except asyncio.CancelledError:
            if not step.done() and self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._process, signal.SIGTERM)  # the thread waits for it
            raise
        finally:
            await self._end(step, stack)

    async def _end(self, step: asyncio.Future[Any], stack: contextlib.ExitStack | None) -> None:
        for task in self._tasks.values():
            task.cancel()
        for _, unmade in self._unmade.values():
            unmade.close()
        await asyncio.gather(*self._tasks.values(), step, return_exceptions=True)
        if stack is None and not step.cancelled() and step.exception() is None:
            stack = step.result()[0]  # cancelled while it was opened
        if stack is not None:
            await asyncio.to_thread(stack.close)

    def _open(self, code: str) -> tuple[contextlib.ExitStack, Any]:
        limits = self._run.limits
        resources: pydantic_monty.ResourceLimits = {
            "max_feed_duration_secs": limits.seconds,
            "max_memory": limits.memory,
            "max_recursion_depth": _DEEPEST,
            "max_suspensions": 4 * limits.calls + 200,  # a call, its future and the look-ups of its name
        }
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(
                self._monty.Monty(min_processes=1, max_processes=1, request_timeout=limits.seconds + _GRACE)
            )
            session = stack.enter_context(pool.checkout(limits=resources, os_policy={"sleep": "zero"}))
            self._process = session.worker_pid
            snapshot = session.feed_start(code, external_lookup=self._run.functions(), print_callback=self._run.print)
            return stack.pop_all(), snapshot

    async def _settle(self, snapshot: Any) -> dict[int, Any]:
        """Note a call, or begin those that are awaited and wait until one is over; the results of those that are."""
        monty = self._monty
        if isinstance(snapshot, monty.FunctionSnapshot):
            function = self._run.functions().get(snapshot.function_name)
            if function is not None and not snapshot.is_os_function:
                unmade = function(*snapshot.args, **snapshot.kwargs)
                self._unmade[snapshot.call_id] = (snapshot.function_name, unmade)
        if not isinstance(snapshot, monty.FutureSnapshot):
            return {}
        for call in sorted(self._unmade.keys() & snapshot.pending_call_ids):
            self._tasks[call] = asyncio.ensure_future(self._unmade.pop(call)[1])
        waiting = [self._tasks[call] for call in snapshot.pending_call_ids]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return {call: _outcome(self._tasks.pop(call)) for call in snapshot.pending_call_ids if self._tasks[call].done()}

    def _resume(self, snapshot: Any, settled: dict[int, Any]) -> Any:
        monty = self._monty
        if isinstance(snapshot, monty.FutureSnapshot):
            return snapshot.resume(settled)
        if isinstance(snapshot, monty.NameLookupSnapshot):
            return snapshot.resume_auto()
        if snapshot.is_os_function:
            return snapshot.resume_not_handled()
        if snapshot.call_id in self._unmade:
            return snapshot.resume({"future": ...})
        return snapshot.resume({"exc_type": "NameError", "message": f"name '{snapshot.function_name}' is not defined"})


def _outcome(task: asyncio.Task[Any]) -> dict[str, Any]:
    if task.cancelled():
        return {"exc_type": "RuntimeError", "message": "the call was cancelled"}
    error = task.exception()
    if error is None:
        return {"return_value": task.result()}
    if not isinstance(error, (RuntimeError, PermissionError, TypeError)):
        log.error("a call of code failed inside the host", exc_info=error)
        error = RuntimeError("the call failed inside the host; its log says why")
    return {"exception": error}


@final
class _Run:
    """One run: its functions, what it printed, what it called."""

    def __init__(
        self,
        tools: CodeTools,
        call: Callable[[str, dict[str, Any]], Awaitable[ToolResult]],
        search: Callable[[str, int], Awaitable[list[str]]],
        limits: CodeLimits,
    ) -> None:
        self.tools = tools
        self.limits = limits
        self.calls: list[str] = []
        self._call = call
        self._search = search
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._functions: dict[str, Any] = {}
        self._output: list[str] = []
        self._length = 0

    def print(self, stream: str, text: str) -> None:
        room = self.limits.output - self._length
        self._length += len(text)
        if room > 0:
            self._output.append(text[:room])

    def printed(self) -> str:
        text = "".join(self._output)
        missing = self._length - len(text)
        return (
            text if not missing else f"{text}\n[{missing} more characters were printed and are left out: print less]\n"
        )

    def failed(self, error: str) -> CodeResult:
        return CodeResult(None, self.printed(), error, tuple(self.calls))

    def functions(self) -> dict[str, Any]:
        """Every function that the code may call, by name; the interpreter looks them up when they are used."""
        if not self._functions:
            tools = {name: self._function(name) for name in self.tools}
            self._functions = {"search_tools": self._search_tools, **tools}
        return self._functions

    def _function(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*values: Any, **named: Any) -> Any:
            arguments = _bind(self.tools.function(name), values, named)
            if len(self.calls) >= self.limits.calls:
                raise RuntimeError(
                    f"the code may call tools {self.limits.calls} times, and has done so: do the rest in another run"
                )
            tool = self.tools.tool(name)
            self.calls.append(tool)
            async with self._slots:
                try:
                    result = await self._call(tool, arguments)
                except Error as error:
                    raise _to_python(name, error) from None
            if result.is_error:
                raise RuntimeError(f"{name} failed: {result.text}")
            return _value_of(result)

        return call

    async def _search_tools(self, query: Any = "", limit: Any = 5) -> str:
        names = await self._search(str(query), limit if isinstance(limit, int) else 5)
        return self.tools.stubs(dict.fromkeys(names)) or "no tool fits: use other words"


def _bind(function: ToolFunction, values: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The tool's arguments, from those of Python."""
    parameters = list(function.arguments)
    if len(values) > len(parameters):
        raise TypeError(f"{function.name} takes {len(parameters)} arguments, and got {len(values)}")
    arguments = {function.arguments[parameter]: value for parameter, value in zip(parameters, values, strict=False)}
    for parameter, value in named.items():
        argument = function.arguments.get(parameter, parameter)
        if argument in arguments:
            raise TypeError(f"{function.name} got two values for {parameter}")
        arguments[argument] = value
    return arguments


def _to_python(name: str, error: Error) -> Exception:
    from trimaran.host.approvals import PermissionDenied

    kind = PermissionError if isinstance(error, PermissionDenied) else RuntimeError
    return kind(f"{name} was not called, or got no result: {error}")


def _value_of(result: ToolResult) -> Any:
    """The value of a call in the sandbox: data, or text; of pictures and the like only what they are."""
    if result.structured is not None or isinstance(result.data, str):
        return cast("Any", result.data)
    blocks = cast("list[dict[str, Any]]", msgspec.to_builtins(result.content))
    for block in blocks:
        if isinstance(block.get("data"), str):
            block["data"] = f"[{len(block['data'])} characters of base64]"
    return blocks


# --- what went wrong -------------------------------------------------------------------------------------------------

_ADVICE: Final[tuple[tuple[str, str], ...]] = (
    (
        r"time limit exceeded",
        "The code computed for longer than {seconds:g} s. Waiting for tools does not count. Do less in one run.",
    ),
    (
        r"^MemoryError",
        "The code used more than {memory} bytes of memory. Keep less at a time: filter results as they come.",
    ),
    (r"^RecursionError", "Functions called each other too deeply. Use a loop."),
    (r"suspension limit", "The code called functions too often. Do less in one run."),
    (r"^ModuleNotFoundError", "The sandbox has only these modules: {modules}. For files and network, call tools."),
    (r"^PermissionError: Permission denied", "The sandbox has no files and no network. Call tools for that."),
    (
        r"is not supported in this environment",
        "The sandbox has no files, no network and no environment. Call tools for that.",
    ),
    (r"coroutine", "Every tool is an async function: write await before its call."),
    (
        r"does not yet support|NotImplementedError",
        "The sandbox does not know this part of Python. Write it another way.",
    ),
)


def _explain(error: Any, run: _Run, monty: Any) -> str:
    """The error as a model reads it: where, what, and what to do."""
    if isinstance(error, monty.MontyCrashedError):
        why = "it ran out of time" if error.timed_out else "the sandbox ended"
        return f"The code was stopped: {why}. Do less in one run."
    text = str(error)
    where = error.display("traceback") if isinstance(error, (monty.MontyRuntimeError, monty.MontySyntaxError)) else text
    limits = run.limits
    for pattern, advice in _ADVICE:
        if re.search(pattern, text):
            next_step = advice.format(seconds=limits.seconds, memory=limits.memory, modules=_MODULES)
            return f"{_shortened(where, 2000)}\n{next_step}"
    if (unknown := re.search(r"name '(\w+)' is not defined", text)) is not None:
        return f"{_shortened(where, 2000)}\n{_similar(unknown[1], run.tools)}"
    return _shortened(where, 4000)


def _similar(name: str, tools: CodeTools) -> str:
    import difflib

    names = difflib.get_close_matches(name, list(tools), 3, 0.5)
    return f"Similar functions: {', '.join(names)}." if names else "search_tools finds functions."


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr(value)


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[{len(text) - limit} more characters are left out: return less]"


def code_result(result: CodeResult, limits: CodeLimits) -> ToolResult:
    """The result of `run_code` for a model."""
    return own_result(result.text(max(limits.output - len(result.printed), 200)), is_error=bool(result.error))
