"""A server's requests to a client, and the handlers that answer: elicitation, sampling, roots, and a user's own.

The same answers serve both eras: on the legacy ones they reply to requests of the server's, on the modern one they fill
the `inputResponses` of a retry. Capabilities are declared from the handlers given, so a server is never told of a skill
that nobody has. An answer is checked before it leaves: a form's defaults are filled in, and what breaks the form's own
schema is refused here instead of there.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast, final

import msgspec
from msgspec import Struct

from trimaran.errors import CODE_INVALID_PARAMS, ConfigError, Error, LocalProtocolError, ProtocolError
from trimaran.types import CreateMessageResult, ElicitResult, Json, Root

from .callback_queue import is_async
from .options import ClientState, Options

if TYPE_CHECKING:
    from .option_types import Roots

log: logging.Logger = logging.getLogger("trimaran.client")

CODE_USER_REJECTED: Final = -1
"""The error for a legacy server when nobody wants to sample for it."""


@final
class Deferred:
    """An answer that comes later, from anywhere (R200): return it from a handler, then `reply` or `fail` once.

    Both may be called from any thread. While it is open all other traffic goes on.
    """

    def __init__(self) -> None:
        self._future: Future[Any] = Future()

    def reply(self, result: object) -> None:
        if not self._future.done():
            self._future.set_result(result)

    def fail(self, code: int, message: str, data: Json = None) -> None:
        if not self._future.done():
            self._future.set_exception(ProtocolError(code, message, data))

    def __await__(self) -> Any:
        return asyncio.wrap_future(self._future).__await__()


@final
class Elicitation(Struct, frozen=True):
    """A question to a person. `accept`, `decline` or `cancel` makes the answer."""

    message: str
    mode: Literal["form", "url"]
    schema: dict[str, Json]
    """The form, a flat object schema; empty in URL mode."""
    url: str | None = None
    """The page to visit, in URL mode. Show it whole and ask; never open it unasked."""
    elicitation_id: str | None = None
    raw: Mapping[str, Json] = {}

    @property
    def defaults(self) -> dict[str, Json]:
        """The form's default values."""
        properties: Any = self.schema.get("properties")
        if not isinstance(properties, dict):
            return {}
        fields = cast("dict[str, Any]", properties)
        return {
            name: field["default"] for name, field in fields.items() if isinstance(field, dict) and "default" in field
        }

    def accept(self, content: Mapping[str, Json] | None = None) -> ElicitResult:
        """Yes, with these fields; those left out get their defaults."""
        return ElicitResult(action="accept", content=dict(content or {}))

    def decline(self) -> ElicitResult:
        return ElicitResult(action="decline")

    def cancel(self) -> ElicitResult:
        """Neither: the person closed the question."""
        return ElicitResult(action="cancel")


@final
class Sampling(Struct, frozen=True):
    """A server asks our model to go on with these messages."""

    messages: list[dict[str, Json]]
    max_tokens: int
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    model_preferences: Mapping[str, Json] | None = None
    include_context: str | None = None
    tools: list[dict[str, Json]] | None = None
    tool_choice: Mapping[str, Json] | None = None
    metadata: Mapping[str, Json] | None = None
    raw: Mapping[str, Json] = {}

    @property
    def text(self) -> str:
        """The text of the last message."""
        content: Any = self.messages[-1].get("content") if self.messages else None
        blocks: list[Any] = content if isinstance(content, list) else [content]  # pyright: ignore[reportUnknownVariableType]
        texts = (cast("dict[str, Any]", block).get("text") for block in blocks if isinstance(block, dict))
        return "".join(text for text in texts if isinstance(text, str))


@final
class LogEntry(Struct, frozen=True):
    """One log message of a server's."""

    level: str
    data: Json
    logger: str | None = None


@final
class StateEvent(Struct, frozen=True):
    """A change of a client's state."""

    state: ClientState
    previous: ClientState
    error: Error | None = None
    """Why, where something went wrong."""


Answerer = Callable[[Mapping[str, Any]], Awaitable[Any]]


@final
class ServerRequests:
    """The handlers of one client."""

    def __init__(self, options: Options) -> None:
        self.on_elicit: Callable[..., object] | None = _pick(options, "on_elicit")
        self.on_sample: Callable[..., object] | None = _pick(options, "on_sample")
        self.on_log: Callable[..., object] | None = _pick(options, "on_log")
        self.on_notification: Callable[..., object] | None = _pick(options, "on_notification")
        self.on_request: Callable[..., object] | None = _pick(options, "on_request")
        self.on_state: Callable[..., object] | None = _pick(options, "on_state")
        roots: Any = options.roots if options.roots is not None else getattr(options.handler, "roots", None)
        self._roots: Callable[..., Any] | list[Root] | None = None if roots is None else _roots(roots)
        self._extra = _as_objects(options.capabilities or {})
        self._extensions: tuple[str, ...] = getattr(options.auth, "extensions", ())
        self._rows: dict[str, Answerer] = {"ping": _pong}
        if self.on_elicit is not None:
            self._rows["elicitation/create"] = self._elicit
        if self.on_sample is not None:
            self._rows["sampling/createMessage"] = self._sample
        if self._roots is not None:
            self._rows["roots/list"] = self._list_roots

    def set_roots(self, roots: Roots) -> None:
        self._roots = _roots(roots)
        self._rows["roots/list"] = self._list_roots

    @property
    def has_roots(self) -> bool:
        return self._roots is not None

    def capabilities(self, *, modern: bool) -> dict[str, Json]:
        """The capabilities to declare, from the handlers and the options."""
        declared: dict[str, Any] = {}
        if self.on_elicit is not None:
            declared["elicitation"] = {"form": {}, "url": {}}
        if self.on_sample is not None:
            declared["sampling"] = {}
        if self._roots is not None:
            declared["roots"] = {} if modern else {"listChanged": True}
        if modern and self._extensions:
            declared["extensions"] = {name: {} for name in self._extensions}
        for name, value in self._extra.items():
            # The modes of elicitation are narrowed by naming those that are meant; the rest adds up.
            implied: Any = None if name == "elicitation" else declared.get(name)
            declared[name] = {**implied, **value} if isinstance(implied, dict) and isinstance(value, dict) else value
        return declared

    def can_answer(self, method: str) -> bool:
        return method in self._rows or self.on_request is not None

    async def answer(self, method: str, params: Mapping[str, Any]) -> Any:
        """The result for one ask of the server's; ProtocolError (-32601 by default, R201) if there is none."""
        row = self._rows.get(method)
        if row is not None:
            return await row(params)
        if self.on_request is not None:
            return await _settled(await _call(self.on_request, method, dict(params)))
        raise ProtocolError.method_not_found(method)

    async def _elicit(self, params: Mapping[str, Any]) -> ElicitResult:
        ask = _read_elicitation(params)
        declared: Any = self.capabilities(modern=True).get("elicitation")
        if isinstance(declared, dict) and ask.mode not in (declared or ("form",)):
            raise LocalProtocolError.invalid_params(f"elicitation mode {ask.mode!r} was not declared")
        result = _as_elicit_result(await _settled(await _call(self.on_elicit, ask)))
        if result.action != "accept":
            return ElicitResult(action=result.action, meta=result.meta)
        if ask.mode == "url":
            return ElicitResult(action="accept", meta=result.meta)
        content: dict[str, Any] = {**ask.defaults, **(result.content or {})}
        _check_form(ask, content)
        return ElicitResult(action="accept", content=content, meta=result.meta)

    async def _sample(self, params: Mapping[str, Any]) -> CreateMessageResult:
        try:
            ask = msgspec.convert(
                {_snake(key): value for key, value in params.items() if key != "_meta"} | {"raw": dict(params)},
                Sampling,
            )
        except msgspec.ValidationError as error:
            raise LocalProtocolError(CODE_INVALID_PARAMS, f"sampling/createMessage is malformed: {error}") from None
        value = await _settled(await _call(self.on_sample, ask))
        if value is None or value is False:
            raise ProtocolError(CODE_USER_REJECTED, "the user rejected the sampling request")
        return _as_message(value)

    async def _list_roots(self, params: Mapping[str, Any]) -> Any:
        roots = self._roots
        if callable(roots):
            roots = _roots(await _settled(await _call(roots)))
        return {"roots": [root.to_json() for root in cast("list[Root]", roots or [])]}


def _pick(options: Options, name: str) -> Callable[..., Any] | None:
    handler: Any = getattr(options, name)
    if handler is None and options.handler is not None:
        handler = getattr(options.handler, name, None)
    if handler is not None and not callable(handler):
        raise ConfigError(f"{name} is a function, not {type(handler).__name__}")
    return handler


async def _pong(params: Mapping[str, Any]) -> Any:
    return {}


async def _call(handler: Any, *args: Any) -> Any:
    """Run a handler: a coroutine function here, a plain one in a thread, since it may well wait for a person."""
    if is_async(handler):
        return await handler(*args)
    value: Any = await _in_thread(handler, *args)
    return value if isinstance(value, Deferred) or not hasattr(value, "__await__") else await value


async def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Run a function in a thread that nobody has to wait for at the end: it may be waiting for a person who is gone."""
    outcome: Future[Any] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            value = context.run(function, *args)
        except BaseException as error:
            if not outcome.cancelled():
                outcome.set_exception(error)
        else:
            if not outcome.cancelled():
                outcome.set_result(value)

    threading.Thread(target=run, name="trimaran-handler", daemon=True).start()
    return await asyncio.wrap_future(outcome)


async def _settled(value: Any) -> Any:
    return await value if isinstance(value, Deferred) else value


def _read_elicitation(params: Mapping[str, Any]) -> Elicitation:
    mode = params.get("mode", "form")
    if mode not in ("form", "url"):
        raise LocalProtocolError.invalid_params(f"elicitation mode {mode!r} is neither form nor url")
    schema: Any = params.get("requestedSchema")
    message = params.get("message")
    url = params.get("url")
    if mode == "url" and not isinstance(url, str):
        raise LocalProtocolError.invalid_params("a URL elicitation without a url")
    identifier = params.get("elicitationId")
    return Elicitation(
        message if isinstance(message, str) else "",
        mode,
        cast("dict[str, Json]", schema) if isinstance(schema, dict) and mode == "form" else {},
        url if mode == "url" else None,
        identifier if isinstance(identifier, str) else None,
        dict(params),
    )


def _as_elicit_result(value: Any) -> ElicitResult:
    """The return value of a handler: a result, a mapping of fields (accept), or a word."""
    if isinstance(value, ElicitResult):
        result = cast("ElicitResult[Any]", value)
        if result.content is not None and not isinstance(result.content, dict):
            return ElicitResult(action=result.action, content=msgspec.to_builtins(result.content), meta=result.meta)
        return result
    if value is None:
        return ElicitResult(action="cancel")
    if isinstance(value, bool):
        return ElicitResult(action="accept" if value else "decline", content={} if value else None)
    if isinstance(value, str) and value in ("accept", "decline", "cancel"):
        return ElicitResult(action=value, content={} if value == "accept" else None)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        if fields.get("action") in ("accept", "decline", "cancel") and fields.keys() <= {"action", "content", "_meta"}:
            return ElicitResult(action=fields["action"], content=fields.get("content"), meta=fields.get("_meta"))
        return ElicitResult(action="accept", content=dict(fields))
    from trimaran.schema.convert import to_jsonable

    built = to_jsonable(value)
    if isinstance(built, dict):
        return ElicitResult(action="accept", content=cast("dict[str, Json]", built))
    raise ConfigError(
        f"on_elicit returned {type(value).__name__}; return ask.accept({{...}}), ask.decline() or ask.cancel()"
    )


def _check_form(ask: Elicitation, content: dict[str, Any]) -> None:
    if not ask.schema:
        return
    from trimaran.errors import DeclarationError
    from trimaran.schema.validate import Validator

    try:
        violations = Validator(ask.schema).errors(content)
    except DeclarationError as error:
        log.warning("the server's form has a schema that cannot be checked: %s", error)
        return
    if violations and violations[0].is_unchecked:
        log.warning("the answer to the server's form is sent unchecked: %s", violations[0].reason)
    elif violations:
        raise LocalProtocolError.invalid_params(
            "the answer does not fit the form: " + "; ".join(str(violation) for violation in violations)
        )


def _as_message(value: Any) -> CreateMessageResult:
    if isinstance(value, CreateMessageResult):
        return value
    if isinstance(value, str):
        return CreateMessageResult(
            role="assistant", content={"type": "text", "text": value}, model="unknown", stop_reason="endTurn"
        )
    if isinstance(value, Mapping):
        fields = dict(cast("Mapping[str, Any]", value))
        fields.setdefault("role", "assistant")
        fields.setdefault("model", "unknown")
        if isinstance(fields.get("content"), str):
            fields["content"] = {"type": "text", "text": fields["content"]}
        try:
            return msgspec.convert(fields, CreateMessageResult)
        except msgspec.ValidationError as error:
            raise ConfigError(f"on_sample returned a mapping that is not a sampling result: {error}") from None
    raise ConfigError(f"on_sample returned {type(value).__name__}; return text or a CreateMessageResult")


def _roots(roots: Any) -> Any:
    if callable(roots):
        return roots
    if isinstance(roots, (str, bytes, Path, Root)) or not isinstance(roots, Iterable):
        raise ConfigError(
            f"roots must be a list of paths, file:// URIs or Roots, or a function; not {type(roots).__name__}"
        )
    return [_root(root) for root in cast("Sequence[Any]", roots)]


def _root(root: Any) -> Root:
    if isinstance(root, Root):
        return root
    if isinstance(root, Mapping):
        try:
            return msgspec.convert(dict(cast("Mapping[str, Any]", root)), Root)
        except msgspec.ValidationError as error:
            raise ConfigError(f"a root is a path, a file:// URI or a Root; this mapping is not: {error}") from None
    if not isinstance(root, (str, os.PathLike)):
        raise ConfigError(f"a root is a path, a file:// URI or a Root, not {root!r}")
    text = os.fspath(cast("str", root))
    if text.startswith("file://"):
        return Root(uri=text)
    if "://" in text:
        raise ConfigError(f"a root is a file:// URI or a path, not {text!r}")
    path = Path(text).expanduser().resolve()
    return Root(uri=path.as_uri(), name=path.name or None)


def _as_objects(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Capabilities are objects on the wire: True becomes `{}`, False and None disappear (R190)."""
    objects: dict[str, Any] = {}
    for name, value in capabilities.items():
        if value is None or value is False:
            continue
        if name == "list_changed":
            name = "listChanged"
        if name == "listChanged":
            objects[name] = bool(value)
        elif value is True:
            objects[name] = {}
        elif isinstance(value, Mapping) and name not in ("extensions", "experimental"):
            objects[name] = _as_objects(cast("Mapping[str, Any]", value))
        else:
            objects[name] = value
    return objects


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
