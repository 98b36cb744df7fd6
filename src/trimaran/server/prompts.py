"""Prompts: functions that turn a few strings into messages.

The parameters of the function are the prompt's arguments. An author may list the arguments by hand (`arguments=`); the list is
compared with the function when the prompt is declared, so that no client is told of an argument that nothing takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, final

import msgspec
from msgspec import UNSET

from trimaran.errors import DeclarationError, ProtocolError
from trimaran.protocol.inbound import IncomingCall, read_json
from trimaran.schema import ArgumentError, Signature, compile_signature
from trimaran.types import GetPromptResult, Icon, Json, Prompt, PromptArgument, as_object

from .access import Visible, VisibleTo, is_hidden, refuse_hidden, require_scopes, scopes_of, visible_of
from .context import Context
from .dependencies import plan_dependencies
from .handlers import Handler, call_any
from .resources import in_rounds
from .results import prompt_result
from .tools import icons_of, meta_of

if TYPE_CHECKING:
    from .server import Server


@final
class PromptEntry:
    __slots__ = ("context", "definition", "handler", "key", "place", "read", "required", "scopes", "visible_to")

    key: str
    place: int
    definition: Prompt
    handler: Handler
    context: str | None
    read: Callable[[dict[str, Any]], dict[str, Any]]
    """From the arguments of a request to keyword arguments."""
    required: tuple[str, ...]
    """Arguments that every request must have, whatever the function's defaults are."""
    scopes: tuple[str, ...]
    visible_to: Visible | None

    def renamed(self, key: str) -> PromptEntry:
        copy = PromptEntry()
        for name in self.__slots__:
            setattr(copy, name, getattr(self, name))
        copy.key = key
        copy.definition = msgspec.structs.replace(self.definition, name=key)
        return copy


class PromptOptions(TypedDict, total=False):
    """The keywords of `Server.prompt` and `add_prompt`: those of `compile_prompt`."""

    name: str | None
    title: str | None
    description: str | None
    arguments: Sequence[PromptArgument | Mapping[str, Json]] | None
    annotations: Mapping[str, Json] | None
    icons: Sequence[Icon | Mapping[str, Json]] | None
    meta: Mapping[str, Json] | None
    tags: Collection[str]
    inline: bool
    scopes: Sequence[str]
    visible_to: VisibleTo


def compile_prompt(
    fn: Callable[..., object],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    arguments: Sequence[PromptArgument | Mapping[str, Json]] | None = None,
    annotations: Mapping[str, Json] | None = None,
    icons: Sequence[Icon | Mapping[str, Json]] | None = None,
    meta: Mapping[str, Json] | None = None,
    tags: Collection[str] = (),
    inline: bool = False,
    scopes: Sequence[str] = (),
    visible_to: VisibleTo = None,
) -> PromptEntry:
    """Look at a function once and make a prompt of it: its parameters are the prompt's arguments."""
    key = name or getattr(fn, "__name__", None) or type(fn).__name__
    if key == "<lambda>":
        raise DeclarationError('a lambda has no name of its own; pass name="..."')
    keywords = _name_of_keywords(fn) if arguments is not None else None
    plan = plan_dependencies(fn, f"prompt {key!r}")
    signature = compile_signature(
        fn,
        context_types=(Context,),
        name=f"prompt {key!r}",
        returns=None,
        skip=[*(() if keywords is None else (keywords,)), *(() if plan is None else plan.parameters)],
    )
    entry = PromptEntry()
    entry.key, entry.place = key, 0
    entry.handler = Handler(fn, inline=inline)
    entry.context = signature.context_params[0] if signature.context_params else None
    if arguments is None:
        listed = _arguments_of(signature)
        entry.read, entry.required = signature.arguments_from, ()
    else:
        listed = _listed(arguments, key)
        entry.read = _reader(signature, listed, key, takes_any=keywords is not None)
        listed = [_completed(argument, signature) for argument in listed]
        entry.required = tuple(argument.name for argument in listed if argument.required)
    entry.scopes = scopes_of(scopes, f"prompt {key!r}")
    entry.visible_to = visible_of(visible_to, f"prompt {key!r}")
    entry.definition = Prompt(
        name=key,
        title=title,
        description=description if description is not None else signature.description,
        arguments=listed or None,
        annotations=dict(annotations) if annotations else None,
        icons=icons_of(icons),
        meta=meta_of(meta, tags, f"prompt {key!r}"),
    )
    if plan is not None:
        plan.inject(entry)
    return entry


def _listed(arguments: Sequence[PromptArgument | Mapping[str, Json]], key: str) -> list[PromptArgument]:
    try:
        listed = [msgspec.convert(a, PromptArgument, from_attributes=True) for a in arguments]
    except msgspec.ValidationError as error:
        raise DeclarationError(
            f'prompt {key!r}: an argument is {{"name": "city", "description": "...", "required": True}}: {error}'
        ) from None
    names = [argument.name for argument in listed]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DeclarationError(f"prompt {key!r}: arguments= lists {twice!r} twice; list each argument once")
    return listed


def _name_of_keywords(fn: Callable[..., Any]) -> str | None:
    """The `**name` of a function: with `arguments=` there is a list of what may come in it."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return None  # `compile_signature` says what is wrong with it
    return next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)


def _reader(
    signature: Signature, listed: Sequence[PromptArgument], key: str, *, takes_any: bool
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """How a function takes the arguments that its author lists: whole (R28), with `**others`, or by name."""
    parameters: dict[str, Any] = signature.input_schema.get("properties", {})
    names = {argument.name for argument in listed}
    whole = next(iter(parameters)) if len(parameters) == 1 and not takes_any else None
    if whole is not None and whole not in names and _takes_object(parameters[whole]):
        return lambda arguments: signature.arguments_from({whole: arguments})
    _compare(signature, listed, key, takes_any=takes_any)
    if takes_any:
        # Others come as they are: nothing says what they should be converted to.
        return lambda arguments: {
            **{name: value for name, value in arguments.items() if name not in parameters},
            **signature.arguments_from(arguments),
        }
    return signature.arguments_from


def _takes_object(schema: Mapping[str, Any]) -> bool:
    """May this parameter be a mapping? One without an annotation may be anything."""
    return schema.get("type") == "object" or {"type": "object"} in schema.get("anyOf", ())


def _compare(signature: Signature, listed: Sequence[PromptArgument], key: str, *, takes_any: bool) -> None:
    """Refuse a list that promises what the function does not do."""
    schema = signature.input_schema
    parameters, required = schema.get("properties", {}), schema.get("required", ())
    names = {argument.name: argument for argument in listed}
    unknown = [] if takes_any else [name for name in names if name not in parameters]
    if unknown:
        raise DeclarationError(
            f"prompt {key!r}: arguments= lists {unknown[0]!r}, but the function takes "
            f"{', '.join(map(repr, parameters)) or 'no arguments'}; use the function's names, "
            "or one parameter that takes all arguments as a dict"
        )
    missing = [name for name in required if name not in names]
    if missing:
        raise DeclarationError(
            f"prompt {key!r}: the function needs {missing[0]!r}, but arguments= does not list it; "
            "list it, or give the parameter a default"
        )
    optional = [name for name in required if names[name].required is False]
    if optional:
        raise DeclarationError(
            f"prompt {key!r}: arguments= says that {optional[0]!r} is optional, but the parameter has no default; "
            "give it one, or write required=True"
        )


def _completed(argument: PromptArgument, signature: Signature) -> PromptArgument:
    """An argument whose author does not say whether it is required: the function says so."""
    if argument.required is None and argument.name in signature.input_schema.get("required", ()):
        return msgspec.structs.replace(argument, required=True)
    return argument


def _arguments_of(signature: Signature) -> list[PromptArgument]:
    schema = signature.input_schema
    required = set(schema.get("required", ()))
    return [
        PromptArgument(name=name, description=field.get("description"), required=True if name in required else None)
        for name, field in schema.get("properties", {}).items()
    ]


@final
class Prompts:
    """The `prompts/get` side of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def get(self, call: IncomingCall) -> Any:
        """Serve one `prompts/get`."""
        name: str = call.params.name
        return await in_rounds(call, self._get(name, call), f"prompt {name!r}", self._server)

    async def _get(self, name: str, call: IncomingCall) -> GetPromptResult:
        server = self._server
        raw = call.params.arguments
        arguments = {} if raw is UNSET else as_object(read_json(raw))
        if arguments is None:
            raise ProtocolError.invalid_params("arguments must be an object of strings")
        entry = server.prompts.get(name)
        if entry is None or is_hidden(entry, call.principal):
            if entry is not None:
                refuse_hidden(entry, call)
            callbacks = server.callbacks
            if callbacks is not None and hasattr(callbacks, "get_prompt"):
                value = await call_any(callbacks.get_prompt, name, arguments, Context(call, server))
                return prompt_result(value, None)
            server.prompts.check_known(name)
            raise ProtocolError.invalid_params(f"unknown prompt: {name[:200]!r}", {"name": name[:200]})
        if entry.scopes:
            require_scopes(call, entry.scopes)
        missing = [argument for argument in entry.required if argument not in arguments]
        if missing:
            raise ProtocolError.invalid_params(f"prompt {name!r} needs the argument {missing[0]!r}")
        try:
            kwargs = entry.read(arguments)
        except ArgumentError as error:
            raise ProtocolError.invalid_params(f"invalid arguments for prompt {name!r}: {error}") from None
        if entry.context is not None:
            kwargs[entry.context] = Context(call, server)
        value = await entry.handler.run(kwargs, call, server.runtime.threads)
        return prompt_result(value, entry.definition.description)
