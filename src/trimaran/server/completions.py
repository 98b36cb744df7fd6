"""Completion of prompt arguments and template variables: keyed by what is completed and which argument (R34)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast, final

from trimaran.errors import DeclarationError, ProtocolError
from trimaran.protocol.inbound import IncomingCall
from trimaran.schema import inspect_handler
from trimaran.types import CompleteResult, Completion, PromptReference

from .access import is_hidden, require_scopes
from .context import Context
from .handlers import Handler, call_any, is_answer
from .resources import failure

if TYPE_CHECKING:
    from .server import Server

_MOST: Final = 100  # values in one answer: the protocol's limit


def completion_key(kind: str, name: str, argument: str) -> str:
    return "\0".join((kind, name, argument))


@final
class CompletionEntry:
    __slots__ = ("context", "definition", "handler", "key", "partial", "place", "rest")

    key: str
    place: int
    definition: None
    handler: Handler
    partial: str
    """The parameter that takes what has been typed."""
    rest: str | None
    """The parameter that takes the arguments filled in so far."""
    context: str | None

    def renamed(self, key: str) -> CompletionEntry:
        copy = CompletionEntry()
        for name in self.__slots__:
            setattr(copy, name, getattr(self, name))
        copy.key = key
        return copy


def compile_completion(
    fn: Callable[..., Any], *, prompt: str | None, template: str | None, argument: str, inline: bool = False
) -> CompletionEntry:
    if (prompt is None) == (template is None):
        raise DeclarationError(
            'a completion belongs to a prompt or to a template: @server.completion(prompt="greet", argument="name") '
            'or @server.completion(template="file:///{+path}", argument="path")'
        )
    handler = Handler(fn, inline=inline)
    contexts, _ = inspect_handler(fn, (Context,))
    plain = [p for p in inspect.signature(fn).parameters if p not in contexts]
    if not 1 <= len(plain) <= 2:
        raise DeclarationError(
            "a completion handler takes what has been typed, if it likes the arguments filled in so far, and the Context: "
            "def complete(value: str, arguments: dict[str, str], ctx: Context)"
        )
    entry = CompletionEntry()
    entry.key = completion_key(
        "prompt" if prompt is not None else "template", cast("str", prompt or template), argument
    )
    entry.place = 0
    entry.definition = None
    entry.handler = handler
    entry.partial = plain[0]
    entry.rest = plain[1] if len(plain) == 2 else None
    entry.context = contexts[0] if contexts else None
    return entry


@final
class Completions:
    """The `completion/complete` side of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def complete(self, call: IncomingCall) -> CompleteResult:
        """Serve one `completion/complete`; nothing registered for the argument is an empty list, not an error (R37)."""
        try:
            return _result(await self._values(call))
        except Exception as error:
            if is_answer(error):
                raise
            raise failure("completion", error, self._server) from None

    async def _values(self, call: IncomingCall) -> Any:
        server, params = self._server, call.params
        is_prompt = isinstance(params.ref, PromptReference)
        name = params.ref.name if is_prompt else params.ref.uri
        entry = server.completions.get(
            completion_key("prompt" if is_prompt else "template", name, params.argument.name)
        )
        target = (server.prompts if is_prompt else server.templates).get(name)
        if target is not None:
            if is_hidden(target, call.principal):
                entry = None  # nothing is known of it
            elif target.scopes:
                require_scopes(call, target.scopes)
        filled: dict[str, str] = (params.context.arguments if params.context else None) or {}
        if entry is None:
            callbacks = server.callbacks
            if callbacks is not None and hasattr(callbacks, "complete"):
                return await call_any(callbacks.complete, params.ref, params.argument, filled, Context(call, server))
            return []
        kwargs: dict[str, Any] = {entry.partial: params.argument.value}
        if entry.rest is not None:
            kwargs[entry.rest] = filled
        if entry.context is not None:
            kwargs[entry.context] = Context(call, server)
        return await entry.handler.run(kwargs, call, server.runtime.threads)


def _result(value: Any) -> CompleteResult:
    total: int | None
    has_more: bool | None
    values: Any
    meta = None
    if isinstance(value, CompleteResult):
        meta, value = value.meta, value.completion
    if isinstance(value, Completion):
        total, has_more, values = value.total, value.has_more, value.values
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], bool):  # pyright: ignore[reportUnknownArgumentType]
        total, (values, has_more) = None, cast("tuple[Any, bool]", value)
    else:
        total, has_more = None, None
        values = cast("Any", value)
    if isinstance(values, str) or not isinstance(values or (), (list, tuple, set, frozenset)):
        raise ProtocolError.internal_error("a completion handler returns a list of strings")
    items: list[Any] = list(cast("Sequence[Any]", values or ()))
    if not all(isinstance(v, str) for v in items):
        raise ProtocolError.internal_error("a completion handler returned values that are not strings")
    if len(items) > _MOST:
        total, has_more = total or len(items), True
    return CompleteResult(completion=Completion(values=items[:_MOST], total=total, has_more=has_more), meta=meta)
