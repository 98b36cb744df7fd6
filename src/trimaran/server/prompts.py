"""Prompts: functions that turn a few strings into messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import msgspec
from msgspec import UNSET

from trimaran.errors import DeclarationError, ProtocolError
from trimaran.protocol.inbound import Call, read_json
from trimaran.schema import ArgumentError, Signature, compile_signature
from trimaran.types import GetPromptResult, Icon, Json, Prompt, PromptArgument, as_object

from .access import Visible, VisibleTo, is_hidden, scopes_of, visible_of
from .context import Context
from .handlers import Handler, call_any
from .resources import in_rounds
from .results import prompt_result
from .tools import icons_of

if TYPE_CHECKING:
    from .server import Server

__all__ = ["PromptEntry", "Prompts", "compile_prompt"]


@final
class PromptEntry:
    __slots__ = ("context", "definition", "handler", "key", "place", "scopes", "signature", "visible_to")

    key: str
    place: int
    definition: Prompt
    handler: Handler
    context: str | None
    signature: Signature
    scopes: tuple[str, ...]
    visible_to: Visible | None

    def renamed(self, key: str) -> PromptEntry:
        copy = PromptEntry()
        for name in self.__slots__:
            setattr(copy, name, getattr(self, name))
        copy.key = key
        copy.definition = msgspec.structs.replace(self.definition, name=key)
        return copy


def compile_prompt(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    arguments: Sequence[PromptArgument | Mapping[str, Json]] | None = None,
    annotations: Mapping[str, Json] | None = None,
    icons: Sequence[Icon | Mapping[str, Json]] | None = None,
    meta: Mapping[str, Json] | None = None,
    inline: bool = False,
    scopes: Sequence[str] = (),
    visible_to: VisibleTo = None,
) -> PromptEntry:
    """Look at a function once and make a prompt of it: its parameters are the prompt's arguments."""
    key = name or getattr(fn, "__name__", None) or type(fn).__name__
    if key == "<lambda>":
        raise DeclarationError('a lambda has no name of its own; pass name="..."')
    signature = compile_signature(fn, context_types=(Context,), name=f"prompt {key!r}", returns=None)
    entry = PromptEntry()
    entry.key, entry.place = key, 0
    entry.handler = Handler(fn, inline=inline)
    entry.context = signature.context_params[0] if signature.context_params else None
    entry.signature = signature
    entry.scopes = scopes_of(scopes, f"prompt {key!r}")
    entry.visible_to = visible_of(visible_to, f"prompt {key!r}")
    listed = _arguments_of(signature) if arguments is None else _listed(arguments, key)
    entry.definition = Prompt(
        name=key,
        title=title,
        description=description if description is not None else signature.description,
        arguments=listed or None,
        annotations=dict(annotations) if annotations else None,
        icons=icons_of(icons),
        meta=dict(meta) if meta else None,
    )
    return entry


def _listed(arguments: Sequence[PromptArgument | Mapping[str, Json]], key: str) -> list[PromptArgument]:
    try:
        return [msgspec.convert(a, PromptArgument, from_attributes=True) for a in arguments]
    except msgspec.ValidationError as error:
        raise DeclarationError(
            f'prompt {key!r}: an argument is {{"name": "city", "description": "...", "required": True}}: {error}'
        ) from None


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

    async def get(self, call: Call) -> Any:
        """Serve one `prompts/get`."""
        name: str = call.params.name
        return await in_rounds(call, self._get(name, call), f"prompt {name!r}", self._server)

    async def _get(self, name: str, call: Call) -> GetPromptResult:
        server = self._server
        raw = call.params.arguments
        arguments = {} if raw is UNSET else as_object(read_json(raw))
        if arguments is None:
            raise ProtocolError.invalid_params("arguments must be an object of strings")
        entry = server.prompts.get(name)
        if entry is None or is_hidden(entry, call.principal):
            callbacks = server.callbacks
            if callbacks is not None and hasattr(callbacks, "get_prompt"):
                value = await call_any(callbacks.get_prompt, name, arguments, Context(call, server))
                return prompt_result(value, None)
            raise ProtocolError.invalid_params(f"unknown prompt: {name[:200]!r}", {"name": name[:200]})
        if entry.scopes:
            server.require_scopes(call, entry.scopes)
        try:
            kwargs = entry.signature.arguments_from(arguments)
        except ArgumentError as error:
            raise ProtocolError.invalid_params(f"invalid arguments for prompt {name!r}: {error}") from None
        if entry.context is not None:
            kwargs[entry.context] = Context(call, server)
        value = await entry.handler.run(kwargs, call, server.threads)
        return prompt_result(value, entry.definition.description)
