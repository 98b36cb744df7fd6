"""Transforms: show a tool under another name, with other words, other arguments or another result.

A transform makes a changed copy of a compiled tool, so it works on any: a function of this process, and a remote tool whose
arguments and results pass through unread. The tool itself stays as it is. A copy costs a call only what it changes:
names and words cost nothing; arguments cost a check, a decode and an encode (`argument_transforms.py`); `wrap` and
`result` run in a handler around the tool's own.

Nothing here decides where a transform is applied: `registry.py` does that, for a mount or for all tools of a server.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeAlias, Unpack, cast, final

import msgspec
from msgspec import Raw

from trimaran.errors import DeclarationError, ToolError
from trimaran.option_names import check_options, suggestion
from trimaran.protocol.envelope import decide_envelope
from trimaran.protocol.headers import compile_param_headers
from trimaran.schema import ArgumentError, Schema, Validator, compile_signature
from trimaran.schema.references import check_references
from trimaran.types import CallToolResult, ContentBlock, Json, as_object

from .argument_transforms import ArgumentPlan
from .context import Context
from .definition_transforms import ToolFilter, change_definition, matches, plain_schema
from .handlers import Handler, call_any, logger
from .input_rounds import Suspended
from .registry import Adapt, Registry
from .results import call_result, decode_result, encode, is_content
from .tools import ToolEntry, run_handler
from .transform_options import Choice, ToolChoice, TransformOptions, Wrap, find_fault, is_tool_name

_Call: TypeAlias = Callable[[dict[str, Any], Context], Awaitable[Any]]
# The names under which a handler of ours gets its arguments. No parameter of a tool can be called so.
_CONTEXT: Final = "the context of the call"
_ARGUMENTS: Final = "the arguments of the call"
_PROTOCOL: Final = "io.modelcontextprotocol/"


# --- mounts -----------------------------------------------------------------------------------------------------------


def check_known(
    names: Collection[str], registry: Registry[ToolEntry], label: str, transform: Transform | None = None
) -> None:
    """Refuse a name that no tool has. Where the tools of a remote server are still to come, look then, and log it.

    Args:
        transform: The transform of this registry that the name is for, and that may change the name itself.

    Raises:
        DeclarationError: the message names the nearest tool and all of them.
    """

    def find_unknown() -> str | None:
        known = registry.view
        name = next((name for name in names if name not in known), None)
        if name is None:
            return None
        listed = ", ".join(sorted(known)) or "none"
        return f"{label}: there is no tool {name!r};{suggestion(name, known)} there are: {listed}"

    is_reported = False

    def report() -> None:
        nonlocal is_reported
        if registry.is_known and not is_reported:
            is_reported = True
            problem = find_unknown()
            if problem is not None and not (transform and transform.is_used):
                logger.error("%s", problem)

    problem = find_unknown()
    if problem is not None and registry.is_known:
        raise DeclarationError(problem)
    if problem is not None:
        registry.watch(report)


def adapt_mounted(
    registry: Registry[ToolEntry],
    rename: Callable[[str], str],
    *,
    include: ToolChoice | None = None,
    exclude: ToolChoice = (),
    read_only: bool = False,
    transforms: Mapping[str, TransformOptions],
) -> Adapt[ToolEntry]:
    """How the tools of a mounted registry are shown: chosen, then transformed, then renamed.

    Raises:
        DeclarationError: an option is wrong, or names a tool that the registry does not have.
    """
    chosen = ToolFilter(include, exclude, read_only=read_only)
    compiled = [Transform(choice, **transform) for choice, transform in transforms.items()]
    names = [*chosen.names, *filter(is_tool_name, transforms)]
    check_known(names, registry, f"mount of the server {registry.owner!r}")

    def adapt(entry: ToolEntry) -> ToolEntry | None:
        if not chosen.admits(entry.definition):
            return None
        current: ToolEntry | None = entry
        for transform in compiled:
            current = transform(current)
            if current is None:
                return None
        key = rename(current.key)
        return current if key == current.key else current.renamed(key)

    return adapt


# --- one transform ---------------------------------------------------------------------------------------------------


@final
class Transform:
    """A function from a compiled tool to the changed copy; tools that are not chosen stay as they are.

    Raises:
        DeclarationError: an option is wrong. Whether it fits a tool is found out when the tool comes.
    """

    __slots__ = ("_choice", "_is_exact", "_options", "is_used")

    def __init__(self, choice: Choice, **options: Unpack[TransformOptions]) -> None:
        label = f"transform of {choice!r}" if isinstance(choice, str) else "transform"
        check_options(options, TransformOptions.__annotations__, "a transform", DeclarationError)
        fault = find_fault(options)
        if fault is not None:
            key, reason = fault
            raise DeclarationError(f"{label}: {key}: {reason}")
        self._choice = choice
        self._options = options
        self._is_exact = is_tool_name(choice)
        if "name" in options and not self._is_exact:
            raise DeclarationError(
                f"{label}: name= is for one tool, and this may be several; write the tool's own name first"
            )
        self.is_used: bool = False
        """Has there been a tool that it is for?"""

    def __call__(self, entry: ToolEntry) -> ToolEntry | None:
        if not matches(self._choice, entry.definition):
            return entry
        self.is_used = True
        return None if self._options.get("hidden") else _changed(entry, self._options, is_exact=self._is_exact)


def _changed(entry: ToolEntry, options: TransformOptions, *, is_exact: bool) -> ToolEntry:
    copy = entry.copied()
    wrap, result = options.get("wrap"), options.get("result")
    copy.definition, plan = change_definition(entry.definition, options, is_exact=is_exact)
    copy.key = copy.definition.name
    if plan is not None:
        copy.arguments = plan.before(entry.arguments)
        if entry.param_headers is not None:
            copy.param_headers = compile_param_headers(plan.schema)
            copy.is_gated = bool(copy.scopes) or copy.visible_to is not None or copy.param_headers is not None
    _change_output(copy, options, f"tool {entry.key!r}")
    if plan is not None or wrap is not None or result is not None:
        copy.shortcut = None
    if wrap is not None and plan is not None:
        copy.arguments = _whole_reader(plan)
        _surround(copy, _wrap_caller(entry, copy, plan, wrap), result)
    elif result is not None:
        _surround(copy, _tool_caller(entry), result)
    return copy


def _change_output(copy: ToolEntry, options: TransformOptions, label: str) -> None:
    """Follow `output_schema`, or the return annotation of `result`; `wrap` keeps the promise of the tool."""
    result = options.get("result")
    if "output_schema" in options:
        schema = None if options["output_schema"] is None else dict(options["output_schema"])
    elif result is not None:
        schema = _returned_schema(result)
    else:
        return
    if schema is not None:
        check_references(schema, f"{label}: output_schema")
    copy.definition.output_schema = schema
    copy.output = None if schema is None else Validator(schema)
    copy.envelope = decide_envelope(schema)
    copy.exact = None


def _returned_schema(fn: Callable[..., object]) -> Schema | None:
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):  # a builtin that has no signature promises nothing
        return None
    return compile_signature(fn, is_content=is_content, skip=tuple(parameters)).output_schema


# --- around the handler ----------------------------------------------------------------------------------------------


@final
class _Failed(ToolError):
    """A result that says it is an error, raised so that code around a tool meets one kind of failure."""

    def __init__(self, result: CallToolResult) -> None:
        texts = [text for block in result.content if isinstance(text := getattr(block, "text", None), str)]
        super().__init__("\n".join(texts), content=list(result.content))
        self.result = result


def _tool_caller(entry: ToolEntry) -> _Call:
    """Runs the tool with the keyword arguments of its function."""

    async def call_tool(kwargs: dict[str, Any], context: Context) -> Any:
        if entry.context is not None:
            kwargs[entry.context] = context
        value = await run_handler(entry.handler, kwargs, context)
        if (rounds := context._call.exchange.rounds) is not None and rounds.suspended:  # pyright: ignore[reportPrivateUsage]
            # A remote tool asks its caller something first; code around the tool has no part in that.
            raise Suspended
        return _opened(value)

    return call_tool


def _wrap_caller(entry: ToolEntry, copy: ToolEntry, plan: ArgumentPlan, wrap: Wrap) -> _Call:
    """Runs `wrap`, which may call the tool."""
    call_tool = _tool_caller(entry)

    async def call_wrap(kwargs: dict[str, Any], context: Context) -> Any:
        async def call_next(arguments: Mapping[str, Any]) -> Any:
            try:
                own = entry.arguments(Raw(encode(dict(arguments))))
            except ArgumentError as error:
                raise ToolError(f"invalid arguments for {copy.key!r}: {plan.restore(error)}") from None
            return await call_tool(own, context)

        return await call_any(wrap, call_next, kwargs[_ARGUMENTS], context)

    return call_wrap


def _surround(copy: ToolEntry, call: _Call, result: Callable[[Any], object] | None) -> None:
    """Give the copy a handler that makes the call, and shapes its result."""
    # Where a tool checks no result itself, as a remote one, a plain value of `wrap` still gets its structure.
    promised = plain_schema(copy.definition.output_schema) if copy.output is None else None
    output = None if promised is None else Validator(promised)

    async def run(**kwargs: Any) -> Any:
        context: Context = kwargs.pop(_CONTEXT)
        try:
            value = await call(kwargs, context)
            if result is not None:
                value = await call_any(result, value)
        except _Failed as failed:
            return failed.result
        return value if output is None or isinstance(value, CallToolResult) else call_result(value, output)

    copy.handler = Handler(run)
    copy.context = _CONTEXT


def _whole_reader(plan: ArgumentPlan) -> Callable[..., dict[str, Any]]:
    """Reads the arguments for `wrap`: all of them as one."""

    def read_whole(raw: Any, /, *, notes: list[str] | None = None) -> dict[str, Any]:
        return {_ARGUMENTS: msgspec.json.decode(plan.read(raw, notes=notes))}

    return read_whole


def _opened(value: Any) -> Any:
    """The return value of a tool, for the code around it.

    Raises:
        ToolError: the result says that it is an error.
    """
    if isinstance(value, ToolError):
        raise value
    if isinstance(value, Raw):
        value = decode_result(value)
        # The other server's description of itself is not for the caller of this one.
        value.meta = {
            key: part for key, part in (as_object(value.meta) or {}).items() if not key.startswith(_PROTOCOL)
        } or None
    if not isinstance(value, CallToolResult):
        return value
    result = msgspec.structs.replace(value, content=[_block(block) for block in value.content])
    if isinstance(result.structured_content, Raw):
        result.structured_content = msgspec.json.decode(result.structured_content)
    if result.is_error:
        raise _Failed(result)
    return result


def _block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    try:
        return msgspec.convert(block, ContentBlock)
    except msgspec.ValidationError:  # of a kind that this revision does not have
        return cast("dict[str, Json]", block)
