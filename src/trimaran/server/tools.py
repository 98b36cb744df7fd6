"""Tools: declared or registered at run time, compiled once, called often.

Everything that can be known about a tool is worked out when it is registered: how its arguments decode, which parameter
takes the Context, what its result promises, which headers must repeat its arguments. A call then is a look-up, one decode
of the arguments and the user's function.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypedDict, final

import msgspec
from msgspec import UNSET, Raw

from trimaran.durations import check_seconds
from trimaran.errors import DeclarationError, ProtocolError, ToolError
from trimaran.protocol.envelope import Envelope, decide_envelope
from trimaran.protocol.headers import ParamHeaders, compile_param_headers
from trimaran.protocol.inbound import IncomingCall, read_json
from trimaran.schema import (
    ArgumentError,
    ExplicitArguments,
    Schema,
    Validator,
    compile_signature,
    inspect_handler,
)
from trimaran.schema.references import check_references
from trimaran.types import CallToolResult, Icon, Json, TextContent, Tool, ToolAnnotations, as_object
from trimaran.types.wire import TAGS_KEYS

from .access import Visible, VisibleTo, is_hidden, refuse_hidden, require_scopes, scopes_of, visible_of
from .context import Context
from .deadlines import PRECISE_SECONDS
from .dependencies import plan_dependencies
from .handlers import Handler, call_any, ends_the_call, incident, is_answer, is_silence
from .results import OutputMismatch, call_result, error_result, exact_type, is_content
from .shortcuts import CallReceiver, SentCall, Shortcut
from .threads import LARGE_MESSAGE, ThreadPool

if TYPE_CHECKING:
    from .server import Server

_NO_ARGUMENTS: Final = Raw(b"{}")


class ReadArguments(Protocol):
    """From raw arguments to keyword arguments; what had to be repaired goes into `notes`."""

    def __call__(self, raw: Any, /, *, notes: list[str] | None = None) -> dict[str, Any]: ...


class GeneratedTool(Protocol):
    """The function of a tool that a program wrote: it takes the arguments whole."""

    async def __call__(self, arguments: dict[str, Any], ctx: Context) -> CallToolResult: ...


LongRunning: TypeAlias = bool | Literal["required", "on_detach"]
"""May a call of it become a task: for clients that know tasks, only as one, or from `ctx.detach()` on."""


@final
class ToolEntry:
    __slots__ = (
        "arguments",
        "cache_ttl",
        "context",
        "definition",
        "envelope",
        "exact",
        "handler",
        "is_gated",
        "key",
        "long_running",
        "output",
        "param_headers",
        "place",
        "resumable",
        "scopes",
        "shortcut",
        "task_timeout",
        "timeout",
        "visible_to",
    )

    key: str
    place: int
    definition: Tool
    envelope: Envelope | None
    handler: Handler
    arguments: ReadArguments
    context: str | None
    output: Validator | None
    exact: type | None
    timeout: float | None
    task_timeout: float | None
    """The limit of a task, where it differs from that of a call."""
    scopes: tuple[str, ...]
    param_headers: ParamHeaders | None
    is_gated: bool
    cache_ttl: float | None
    long_running: LongRunning
    resumable: bool
    visible_to: Visible | None
    shortcut: Shortcut | None
    """How calls are only passed on; None for what runs here."""

    def copied(self) -> ToolEntry:
        copy = ToolEntry()
        for name in self.__slots__:
            setattr(copy, name, getattr(self, name))
        return copy

    def renamed(self, key: str) -> ToolEntry:
        copy = self.copied()
        copy.key = key
        copy.definition = msgspec.structs.replace(self.definition, name=key)
        return copy


class ToolOptions(TypedDict, total=False):
    """The keywords of `Server.tool` and `add_tool`: those of `compile_tool`."""

    name: str | None
    title: str | None
    description: str | None
    input_schema: Mapping[str, Json] | None
    output_schema: Mapping[str, Json] | None
    annotations: ToolAnnotations | Mapping[str, Json] | None
    icons: Sequence[Icon | Mapping[str, Json]] | None
    meta: Mapping[str, Json] | None
    tags: Collection[str]
    scopes: Sequence[str]
    visible_to: VisibleTo
    timeout: float | None
    long_running: LongRunning
    resumable: bool
    cache_ttl: float | None
    inline: bool
    validate_input: bool
    validate_output: bool
    structured_output: bool | None


def compile_tool(
    fn: Callable[..., object],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Json] | None = None,
    output_schema: Mapping[str, Json] | None = None,
    annotations: ToolAnnotations | Mapping[str, Json] | None = None,
    icons: Sequence[Icon | Mapping[str, Json]] | None = None,
    meta: Mapping[str, Json] | None = None,
    tags: Collection[str] = (),
    scopes: Sequence[str] = (),
    visible_to: VisibleTo = None,
    timeout: float | None = None,
    long_running: LongRunning = False,
    resumable: bool = False,
    cache_ttl: float | None = None,
    inline: bool = False,
    validate_input: bool = True,
    validate_output: bool = True,
    structured_output: bool | None = None,
) -> ToolEntry:
    """Look at a function once and make a tool of it, or say why it cannot be one."""
    entry = ToolEntry()
    entry.handler = Handler(fn, inline=inline)
    entry.key = name or _name_of(fn)
    entry.place = 0
    entry.shortcut = None
    label = f"tool {entry.key!r}"
    entry.scopes = scopes_of(scopes, label)
    entry.visible_to = visible_of(visible_to, label)
    _set_limits(entry, label, timeout, cache_ttl, long_running, resumable)
    plan = plan_dependencies(fn, label)
    injected = () if plan is None else plan.parameters.keys()
    if input_schema is None:
        listed, derived_output, doc = _take_signature(entry, label, fn, injected)
    else:
        listed, derived_output = dict(input_schema), None
        doc = _take_schema(entry, label, fn, injected, listed, validate=validate_input)

    promised = (
        dict(output_schema)
        if output_schema is not None
        else (derived_output if structured_output is not False else None)
    )
    if promised is not None:
        check_references(promised, f"{label}: output_schema")
    entry.output = Validator(promised if validate_output else {}) if promised is not None else None
    entry.exact = exact_type(promised) if output_schema is None else None
    entry.envelope = decide_envelope(promised)
    entry.param_headers = compile_param_headers(listed)
    entry.is_gated = bool(entry.scopes) or entry.visible_to is not None or entry.param_headers is not None
    entry.definition = Tool(
        name=entry.key,
        title=title,
        description=description if description is not None else doc,
        input_schema=listed,
        output_schema=promised,
        annotations=annotations
        if isinstance(annotations, ToolAnnotations)
        else (dict(annotations) if annotations else None),
        icons=icons_of(icons),
        execution=None
        if not long_running
        else {"taskSupport": "required" if long_running == "required" else "optional"},
        meta=meta_of(meta, tags, label),
    )
    if plan is not None:
        plan.inject(entry)
    return entry


def _set_limits(
    entry: ToolEntry,
    label: str,
    timeout: float | None,
    cache_ttl: float | None,
    long_running: LongRunning,
    resumable: bool,
) -> None:
    # Values that a caller without a type checker may pass: "30", or a timedelta.
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout <= 0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DeclarationError(f"{label}: timeout must be a positive number of seconds, not {timeout!r}")
    check_seconds(f"{label}: timeout", timeout, DeclarationError)
    check_seconds(f"{label}: cache_ttl", cache_ttl, DeclarationError)
    # Long work that is called plainly takes as long as it takes (C22): `request_timeout` is for ordinary calls.
    entry.timeout = entry.task_timeout = inf if timeout is None and long_running else timeout
    entry.cache_ttl = cache_ttl
    if long_running not in (True, False, "required", "on_detach"):
        raise DeclarationError(
            f'{label}: long_running is True, "required" (only as a task) or "on_detach" (from ctx.detach() on), not {long_running!r}'
        )
    entry.long_running = long_running
    if type(resumable) is not bool or (resumable and not long_running):
        raise DeclarationError(
            f"{label}: resumable=True says that its task may go on in another process, so it needs long_running=True beside it; "
            f"not resumable={resumable!r}, long_running={long_running!r}"
        )
    entry.resumable = resumable


def _take_signature(
    entry: ToolEntry, label: str, fn: Callable[..., object], injected: Collection[str]
) -> tuple[Schema, Schema | None, str | None]:
    """Take arguments from a signature; returns the schemas of arguments and result, and the description."""
    signature = compile_signature(fn, context_types=(Context,), is_content=is_content, name=entry.key, skip=injected)
    check_references(signature.input_schema, f"{label}: its input schema")
    entry.arguments = signature.arguments
    entry.context = signature.context_params[0] if signature.context_params else None
    return signature.input_schema, signature.output_schema, signature.description


def _take_schema(
    entry: ToolEntry,
    label: str,
    fn: Callable[..., object],
    injected: Collection[str],
    schema: Schema,
    *,
    validate: bool,
) -> str | None:
    """Take arguments that a schema of the author's describes; returns the function's description."""
    check_references(schema, f"{label}: input_schema")
    contexts, doc = inspect_handler(fn, (Context,))
    entry.context = contexts[0] if contexts else None
    explicit = ExplicitArguments(schema, owner=f"{label}: input_schema")
    read = explicit.arguments if validate else _read_object
    entry.arguments = _by_explicit_schema(read, schema, fn, {entry.context, *injected})
    return doc


def compile_generated(definition: Tool, fn: GeneratedTool) -> ToolEntry:
    """Make a tool of a definition that a program wrote, thousands at a time.

    Its schemas are valid by construction, so nothing is inspected, and the first call compiles the arguments' schema.
    """
    entry = ToolEntry()
    entry.handler = Handler(fn)
    entry.key = definition.name
    entry.place = 0
    entry.definition = definition
    entry.arguments = _LateArguments(definition.input_schema)
    entry.context = "ctx"
    entry.output = None if definition.output_schema is None else _any_output()
    entry.exact = entry.timeout = entry.task_timeout = entry.cache_ttl = entry.param_headers = entry.visible_to = None
    entry.shortcut = None
    entry.envelope = decide_envelope(as_object(definition.output_schema))
    entry.scopes = ()
    entry.is_gated = entry.long_running = entry.resumable = False
    return entry


@functools.cache
def _any_output() -> Validator:
    return Validator({})


@final
class _LateArguments:
    """Reads the arguments whole, by a schema that is compiled when the first ones come."""

    __slots__ = ("_explicit", "_schema")

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._explicit: ExplicitArguments | None = None

    def __call__(self, raw: Any, /, *, notes: list[str] | None = None) -> dict[str, Any]:
        if self._explicit is None:
            self._explicit = ExplicitArguments(self._schema)
        return {"arguments": self._explicit.arguments(raw, notes=notes)}


def meta_of(meta: Mapping[str, Json] | None, tags: Collection[str], owner: str) -> dict[str, Json] | None:
    """The `_meta` of a definition: the author's, and its tags in the place where clients of FastMCP look for them."""
    if isinstance(tags, str) or not all(type(tag) is str for tag in tags):
        raise DeclarationError(f'{owner}: tags must be a set or a list of strings, tags={{"billing"}}, not {tags!r}')
    if not tags:
        return dict(meta) if meta else None
    key = TAGS_KEYS[0]
    return {**(meta or {}), key: {**(as_object((meta or {}).get(key)) or {}), "tags": sorted(set(tags))}}


def icons_of(icons: Sequence[Icon | Mapping[str, Json]] | None) -> list[Icon] | None:
    """Icons as given or as mappings, in either spelling (R25)."""
    if not icons:
        return None
    plain = [
        i if isinstance(i, Icon) else {("mimeType" if k == "mime_type" else k): v for k, v in i.items()} for i in icons
    ]
    try:
        return [msgspec.convert(i, Icon) if isinstance(i, dict) else i for i in plain]
    except msgspec.ValidationError as error:
        raise DeclarationError(f'an icon is {{"src": "https://...", "mimeType": "image/png"}}: {error}') from None


def _name_of(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", None) or getattr(getattr(fn, "func", None), "__name__", None) or type(fn).__name__
    if name == "<lambda>":
        raise DeclarationError('a lambda has no name of its own; pass name="..."')
    return name


def _noted(result: CallToolResult, notes: list[str]) -> CallToolResult:
    """A result whose arguments had to be repaired says so, for the model to do better next time (P24)."""
    text = "; ".join(notes) + "; send JSON values, not strings that hold JSON"
    return msgspec.structs.replace(result, content=[*result.content, TextContent(text=f"Note: {text}.")])


def _read_object(raw: Raw, *, notes: list[str] | None = None) -> dict[str, Any]:
    value = as_object(read_json(raw))
    if value is None:
        raise ArgumentError("arguments must be an object", [])
    return value


def _by_explicit_schema(
    read: ReadArguments, schema: Mapping[str, Json], fn: Callable[..., Any], filled: Collection[str | None]
) -> ReadArguments:
    """With an explicit schema: a function with one plain parameter takes the arguments whole (R28), any other by name.

    `filled` are the parameters that the server fills in: the Context, and dependencies.
    """
    parameters = [p for p in inspect.signature(fn).parameters.values() if p.name not in filled]
    names = {p.name for p in parameters}
    known = set(schema.get("properties", {}))
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return read
    if len(parameters) == 1 and parameters[0].name not in known:
        only = parameters[0].name

        def whole(raw: Any, /, *, notes: list[str] | None = None) -> dict[str, Any]:
            return {only: read(raw, notes=notes)}

        return whole
    strangers = [p.name for p in parameters if p.default is p.empty and p.name not in known]
    if strangers and (known or schema.get("additionalProperties", True) is False):
        raise DeclarationError(
            f"the handler takes {', '.join(strangers)}, which the input schema does not have; use the schema's names "
            f"({', '.join(sorted(known))}), or a single parameter that takes the arguments whole"
        )

    def by_name(raw: Any, /, *, notes: list[str] | None = None) -> dict[str, Any]:
        # Arguments beyond the parameters are dropped: the schema may admit more than the function cares for.
        return {k: v for k, v in read(raw, notes=notes).items() if k in names}

    return by_name


@final
class Tools:
    """The `tools/call` side of a server."""

    def __init__(self, server: Server, threads: ThreadPool) -> None:
        self._server = server
        self._registry = server.tools
        self._pool = threads

    async def call(self, call: IncomingCall) -> Any:
        """Serve one `tools/call`."""
        params = call.params
        entry = self._registry.view.get(params.name)
        if entry is None:
            return await self._call_undeclared(call)
        exchange = call.exchange
        if entry.is_gated:
            if is_hidden(entry, call.principal):
                refuse_hidden(entry, call)
                return await self._call_undeclared(call)
            self.gate(entry, call)
        if params.request_state is not UNSET or params.input_responses is not UNSET:
            exchange.voice.open_rounds(exchange)
        notes: list[str] = []
        try:
            raw = _NO_ARGUMENTS if params.arguments is UNSET else params.arguments
            if len(raw) <= LARGE_MESSAGE:
                kwargs = entry.arguments(raw, notes=notes)
            else:
                kwargs = await asyncio.to_thread(entry.arguments, raw, notes=notes)
        except ArgumentError as error:
            return _bad_arguments(exchange, params, entry, error)
        if entry.context is not None:
            kwargs[entry.context] = Context(call, self._server)
        if entry.timeout is not None:
            exchange.limit(entry.timeout)
        handler = entry.handler
        mode = handler.mode
        try:
            if mode == "async":
                value = await handler.fn(**kwargs)
            elif mode == "inline":
                value = handler.fn(**kwargs)
            elif mode == "thread":
                exchange.loop = asyncio.get_running_loop()
                value = await self._pool.submit(handler.fn, kwargs, exchange)
            else:
                value = await _stream(handler, kwargs, call, self._server)
            if hasattr(value, "__await__"):  # a plain function that calls an async one and returns what it got
                value = await value
            if exchange.rounds is not None and (ended := exchange.voice.suspended(exchange)) is not None:
                return ended
            result = call_result(value, entry.output, entry.exact)
            return _noted(result, notes) if notes else result
        except BaseException as error:
            return self._failed(entry, call, error)

    def take_shortcut(self, call: IncomingCall, receiver: CallReceiver) -> tuple[ToolEntry, SentCall] | None:
        """Send a call on at once; None if it has to take the usual way (see `shortcuts.py`)."""
        params = call.params
        entry = self._registry.view.get(params.name)
        if entry is None or entry.shortcut is None:
            return None
        if entry.is_gated and (entry.scopes or entry.param_headers is not None or is_hidden(entry, call.principal)):
            return None
        timeout = self._server.limits.request_timeout if entry.timeout is None else entry.timeout
        if timeout is not None and timeout < PRECISE_SECONDS:
            return None
        if params.request_state is not UNSET or params.input_responses is not UNSET:
            return None
        sent = entry.shortcut(call, entry.envelope, receiver)
        return None if sent is None else (entry, sent)

    async def finish(self, entry: ToolEntry, call: IncomingCall, sent: SentCall) -> Any:
        """Serve the rest of a call that took a shortcut."""
        exchange = call.exchange
        if entry.timeout is not None:
            exchange.limit(entry.timeout)
        try:
            value = await sent.finish(Context(call, self._server))
            ended = exchange.voice.suspended(exchange)
            return call_result(value, entry.output, entry.exact) if ended is None else ended
        except BaseException as error:
            return self._failed(entry, call, error)

    def gate(self, entry: ToolEntry, call: IncomingCall) -> None:
        """The checks before a tool is looked at any further."""
        # Scopes first: a caller that may not use the tool learns nothing else about it (R183).
        if entry.scopes:
            require_scopes(call, entry.scopes)
        if entry.param_headers is not None and call.headers is not None and call.modern:
            raw = call.params.arguments
            arguments = {} if raw is UNSET else as_object(read_json(raw))
            if arguments is not None:
                entry.param_headers.check(call.headers, arguments)

    def _failed(self, entry: ToolEntry, call: IncomingCall, error: BaseException) -> Any:
        exchange = call.exchange
        ended = exchange.voice.suspended(exchange)
        if ended is not None:
            return ended
        if isinstance(error, ToolError):
            return error_result(error)
        if isinstance(error, OutputMismatch):
            number = incident(f"tool {entry.key!r}", error)
            text = str(error) if self._server.expose_internal_errors else f"{error.told} (error {number})"
            return CallToolResult.error(text)
        if is_answer(error) or ends_the_call(error):
            raise error
        if is_silence(error):
            return CallToolResult.error(f"the tool {entry.key!r} was not finished: {error}")
        number = incident(f"tool {entry.key!r}", error)
        if self._server.expose_internal_errors:
            return CallToolResult.error(f"{type(error).__name__}: {error} (error {number})")
        return CallToolResult.error(
            f"the tool {entry.key!r} failed; the server's log has the details under error {number}"
        )

    async def _call_undeclared(self, call: IncomingCall) -> Any:
        callbacks = self._server.callbacks
        name = call.params.name
        if callbacks is None or not hasattr(callbacks, "call_tool"):
            self._server.tools.check_known(name)
            raise ProtocolError.invalid_params(f"unknown tool: {name[:200]!r}", {"name": name[:200]})
        exchange = call.exchange
        exchange.voice.open_rounds(exchange)
        arguments = _arguments_object(call.params)
        try:
            value = await call_any(callbacks.call_tool, name, arguments, Context(call, self._server))
            return exchange.voice.suspended(exchange) or call_result(value, None)
        except BaseException as error:
            ended = exchange.voice.suspended(exchange)
            if ended is not None:
                return ended
            if isinstance(error, ToolError):
                return error_result(error)
            if is_answer(error) or ends_the_call(error):
                raise
            if is_silence(error):
                return CallToolResult.error(f"the tool {name!r} was not finished: {error}")
            number = incident(f"call_tool({name!r})", error)
            detail = f"{type(error).__name__}: {error}" if self._server.expose_internal_errors else f"error {number}"
            return CallToolResult.error(f"the tool {name!r} failed ({detail})")


def _arguments_object(params: Any) -> dict[str, Any]:
    arguments = {} if params.arguments is UNSET else as_object(read_json(params.arguments))
    if arguments is None:
        raise ProtocolError.invalid_params("arguments must be an object")
    return arguments


def _bad_arguments(exchange: Any, params: Any, entry: ToolEntry, error: ArgumentError) -> Any:
    _arguments_object(params)
    return exchange.voice.bad_arguments(f"invalid arguments for {entry.key!r}: {error}")


async def run_handler(handler: Handler, kwargs: dict[str, Any], context: Context) -> Any:
    """Run the function of a tool inside another handler, whichever way it runs, and wait for its value."""
    call = context._call  # pyright: ignore[reportPrivateUsage] - handlers may not see it, and this is the library
    if handler.mode == "stream":
        return await _stream(handler, kwargs, call, context.server)
    return await handler.run(kwargs, call, context.server.runtime.threads)


async def _stream(handler: Handler, kwargs: dict[str, Any], call: IncomingCall, server: Server) -> Any:
    """Run an async generator: what it yields goes out as progress as it comes, and all of it is the result."""
    context = Context(call, server)
    parts: list[Any] = []
    generator = handler.fn(**kwargs)
    try:
        async for part in generator:
            if isinstance(part, CallToolResult):
                return part
            parts.append(part)
            # Where the body reports progress of its own, that is what counts.
            await context.progress(len(parts), message=part if isinstance(part, str) else None)
    finally:
        await generator.aclose()
    if not parts:
        return CallToolResult(content=[])
    if all(isinstance(p, str) for p in parts):
        return [TextContent(text="".join(parts))]
    return parts
