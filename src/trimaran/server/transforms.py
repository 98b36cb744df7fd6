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
from typing import Any, Final, TypeAlias, Unpack, final

import msgspec
from msgspec import UNSET, Raw

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
from .handlers import Handler, call_any
from .registry import Adapt, Registry
from .results import call_result, encode, is_content
from .tools import ToolEntry, run_handler
from .transform_options import Choice, ToolChoice, TransformOptions, Wrap, find_fault, is_tool_name

__all__ = ["adapt_mounted", "check_known", "compile_transform"]

_Call: TypeAlias = Callable[[dict[str, Any], Context], Awaitable[Any]]
# The names under which a handler of ours gets its arguments. No parameter of a tool can be called so.
_CONTEXT: Final = "the context of the call"
_ARGUMENTS: Final = "the arguments of the call"


# --- mounts -----------------------------------------------------------------------------------------------------------


def check_known(names: Collection[str], registry: Registry[ToolEntry], label: str) -> None:
    """Refuse the first name that no tool has.

    Raises:
        DeclarationError: the message names the nearest tool and all of them.
    """
    known = registry.view
    for name in names:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise DeclarationError(f"{label}: there is no tool {name!r};{suggestion(name, known)} there are: {listed}")


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
        DeclarationError: an option is wrong, or names a tool that the registry does not have. A registry without tools
            may be one of a server that is not connected yet, so there any name may be right.
    """
    chosen = ToolFilter(include, exclude, read_only=read_only)
    compiled = [compile_transform(choice, **transform) for choice, transform in transforms.items()]
    if registry:
        check_known(
            [*chosen.names, *filter(is_tool_name, transforms)], registry, f"mount of the server {registry.owner!r}"
        )

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


def compile_transform(choice: Choice, **options: Unpack[TransformOptions]) -> Adapt[ToolEntry]:
    """A function from a compiled tool to the changed copy; tools that are not chosen stay as they are.

    Raises:
        DeclarationError: an option is wrong. Whether it fits a tool is found out when the tool comes.
    """
    label = f"transform of {choice!r}" if isinstance(choice, str) else "transform"
    check_options(options, TransformOptions.__annotations__, "a transform", DeclarationError)
    fault = find_fault(options)
    if fault is not None:
        key, reason = fault
        raise DeclarationError(f"{label}: {key}: {reason}")
    if "name" in options and not is_tool_name(choice):
        raise DeclarationError(
            f"{label}: name= is for one tool, and this may be several; write the tool's own name first"
        )

    def adapt(entry: ToolEntry) -> ToolEntry | None:
        if not matches(choice, entry.definition):
            return entry
        return None if options.get("hidden") else _changed(entry, options, is_exact=is_tool_name(choice))

    return adapt


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


class _Unfinished(BaseException):
    """A remote tool asks its caller something first. Not an Exception: code around a tool has no part in that."""

    def __init__(self, result: Any) -> None:
        self.result = result


def _tool_caller(entry: ToolEntry) -> _Call:
    """Runs the tool with the keyword arguments of its function."""

    async def call_tool(kwargs: dict[str, Any], context: Context) -> Any:
        if entry.context is not None:
            kwargs[entry.context] = context
        return _opened(await run_handler(entry.handler, kwargs, context))

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
        except _Unfinished as unfinished:
            return unfinished.result
        return value if output is None or isinstance(value, CallToolResult) else call_result(value, output)

    copy.handler = Handler(run)
    copy.context = _CONTEXT


def _whole_reader(plan: ArgumentPlan) -> Callable[..., dict[str, Any]]:
    """Reads the arguments for `wrap`: all of them as one."""

    def read_whole(raw: Any, /, *, notes: list[str] | None = None) -> dict[str, Any]:
        return {_ARGUMENTS: msgspec.json.decode(plan.read(raw, notes=notes))}

    return read_whole


def _opened(value: Any) -> Any:
    """What a tool returned, for the code around it.

    Raises:
        ToolError: the result says that it is an error.
    """
    if isinstance(value, ToolError):
        raise value
    if isinstance(value, Raw):
        remote = as_object(msgspec.json.decode(value)) or {}
        if remote.get("resultType", "complete") != "complete":
            raise _Unfinished(value)
        value = CallToolResult(
            content=[_block(block) for block in remote.get("content") or ()],
            structured_content=remote.get("structuredContent", UNSET),
            is_error=bool(remote.get("isError")),
            meta=as_object(remote.get("_meta")),
        )
    if isinstance(value, CallToolResult):
        if value.is_error:
            raise _Failed(value)
        if value.result_type not in (None, "complete"):
            raise _Unfinished(value)
        if isinstance(value.structured_content, Raw):
            value = msgspec.structs.replace(value, structured_content=msgspec.json.decode(value.structured_content))
    return value


def _block(block: Json) -> Any:
    try:
        return msgspec.convert(block, ContentBlock)
    except msgspec.ValidationError:  # of a kind that this revision does not have
        return block
