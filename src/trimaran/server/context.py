"""Context: the one object a handler may ask for.

A handler receives it by annotating a parameter with `Context`, anywhere in its signature. It tells who is calling and
what they said, and lets the handler speak while it works: progress, log messages, questions to the person or the
model on the other side. `progress`, `log` and `notify` act when they are called; awaiting them waits until the message
has left, so a coroutine awaits them and a plain `def` tool just calls them. Questions must be awaited; a plain `def`
tool writes `ctx.wait(ctx.elicit(...))`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, final, get_type_hints, overload

import msgspec

from trimaran.durations import check_seconds
from trimaran.errors import DeclarationError, ProtocolError
from trimaran.protocol.inbound import IncomingCall, RequestId
from trimaran.protocol.meta import LOG_LEVELS, LogLevel, Peer
from trimaran.schema import decoder_of, enc_hook, to_jsonable
from trimaran.server.seams import CallSession
from trimaran.types import (
    CreateMessageResult,
    ElicitResult,
    Implementation,
    Json,
    ListRootsResult,
    PromptMessage,
    Root,
    as_object,
)

from .elicitation_forms import form_of
from .exchange import SENT

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault  # type checkers have their own copy of it

    from trimaran.auth.principal import Principal

    from .server import Server

    State = TypeVarWithDefault("State", default=Any)
    Lifespan = TypeVarWithDefault("Lifespan", default=Any)
else:
    State = TypeVar("State")
    Lifespan = TypeVar("Lifespan")

T = TypeVar("T")
P = ParamSpec("P")

# Seconds a legacy client may take to answer (R58); a modern one takes as long as `Limits.input_ttl`.
ASK_TIMEOUT = 30.0


@final
class Trace(msgspec.Struct, frozen=True):
    """The W3C trace context the caller sent, to hand on to whatever the handler calls."""

    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None


@final
class Context(Generic[State, Lifespan]):
    """Everything a handler may know and do about the call it serves.

    Plain `Context` will do. `Context[Boat]` says to a type checker that `ctx.state` is a Boat, and `Context[Boat, Database]`
    that `ctx.lifespan_state` is a Database.
    """

    __slots__ = ("_call", "params", "server", "uri")

    def __init__(
        self, call: IncomingCall, server: Server, *, uri: str | None = None, params: Mapping[str, object] | None = None
    ) -> None:
        self._call = call
        self.server: Server = server
        self.uri: str | None = uri
        """The URI being read, in a resource handler."""
        self.params: Mapping[str, object] = params or {}
        """The variables a resource template matched."""

    # The caller

    @property
    def call(self) -> IncomingCall:
        """The request itself."""
        return self._call

    @property
    def request_id(self) -> RequestId:
        """The id of this request, as the client chose it."""
        return self._call.id

    @property
    def session_id(self) -> str | None:
        """The legacy session, or None: a modern call belongs to none."""
        return None if self._call.session is None else self._call.session.id

    @property
    def session(self) -> CallSession | None:
        """The legacy session, or None: a modern call belongs to none."""
        return self._call.session

    @property
    def meta(self) -> Mapping[str, Json]:
        """The request's `_meta`, whole."""
        return self._call.meta

    @property
    def progress_token(self) -> RequestId | None:
        """The token under which the client wants progress, or None if it wants none."""
        return self._call.progress_token

    @property
    def auth(self) -> Principal | None:
        """The authenticated caller, or None. (A custom authenticator's own object, if it gives one.)"""
        return cast("Principal | None", self._call.principal)

    def header(self, name: str) -> str | None:
        """One header of the HTTP request that brought the call; None if there is none, or the call came another way."""
        headers = self._call.headers
        return None if headers is None else headers.get(name.lower())

    @property
    def peer(self) -> Peer:
        """The calling program: its protocol version, capabilities and, if it said so, its name."""
        return self._call.peer

    @property
    def client_info(self) -> Implementation | None:
        """The name and version that the client gives itself, or None."""
        return self._call.peer.info

    @property
    def client_capabilities(self) -> Mapping[str, Json]:
        """The capabilities that the client declares."""
        return self._call.peer.capabilities

    @property
    def protocol_version(self) -> str:
        """The revision of the protocol that this call speaks."""
        return self._call.peer.version

    @property
    def initialized(self) -> bool:
        """Has the handshake been completed? Always so on the modern era, which has none."""
        return self._call.session is None or self._call.session.initialized

    @property
    def min_log_level(self) -> str | None:
        """The least severe level the client wants to hear, or None if it wants no log messages."""
        return self._call.log_level if self._call.session is None else self._call.session.log_level

    @property
    def state(self) -> State:
        """The return value of `init` for this session (or, without sessions, for this server)."""
        session = self._call.session
        return self.server.runtime.dispatcher.startup.state if session is None else session.state

    @property
    def lifespan_state(self) -> Lifespan:
        """The value that the server's `lifespan` yielded."""
        return self.server.lifespan_state

    @property
    def assigns(self) -> dict[str, Any]:
        """Values that middleware and handlers leave for each other, for the length of the call."""
        if self._call.state is None:
            self._call.state = {}
        return self._call.state

    def assign(self, key: str, value: object) -> None:
        """Keep a value under `assigns[key]`, for the rest of this call."""
        self.assigns[key] = value

    @property
    def trace(self) -> Trace:
        """The trace context of W3C that the request carries; fields that it lacks are None."""
        meta = self._call.meta
        return Trace(
            *(v if isinstance(v := meta.get(k), str) else None for k in ("traceparent", "tracestate", "baggage"))
        )

    @property
    def cancelled(self) -> bool:
        """Has the client gone or cancelled, or has time run out? A long plain `def` tool should look now and then."""
        exchange = self._call.exchange
        return exchange.cancelled or exchange.expired

    # Speaking while the call runs

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Report progress. Silent if the caller gave no token; a value that does not grow is not sent."""
        token = self._call.progress_token
        exchange = self._call.exchange
        if token is None:
            note = getattr(exchange.voice, "note", None) if message is not None and not exchange.cancelled else None
            if note is not None:  # a task shows it to whoever looks
                note(message)
            return SENT
        if not exchange.advance(progress):
            return SENT
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None and isfinite(total):
            params["total"] = total
        if message is not None:
            params["message"] = message
        return exchange.notify("notifications/progress", params)

    def log(self, level: LogLevel, data: Json, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client, if it wants to hear of this level."""
        if level not in LOG_LEVELS:
            raise DeclarationError(f"there is no log level {level!r}; use one of {', '.join(LOG_LEVELS)}")
        exchange = self._call.exchange
        if (
            exchange.cancelled
            or "logging" not in self.server.runtime.dispatcher.groups
            or not exchange.voice.logs(exchange, level)
        ):
            return SENT
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        return exchange.notify("notifications/message", params)

    # The names of FastMCP and of the official SDK for the same two.

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Awaitable[None]:
        """The same as `progress`."""
        return self.progress(progress, total, message)

    def debug(
        self, message: Json, logger: str | None = None, extra: Mapping[str, Json] | None = None
    ) -> Awaitable[None]:
        """Send a log message of level "debug"; `extra` adds fields to it."""
        return self.log("debug", _with_fields(message, extra), logger)

    def info(
        self, message: Json, logger: str | None = None, extra: Mapping[str, Json] | None = None
    ) -> Awaitable[None]:
        """Send a log message of level "info"; `extra` adds fields to it."""
        return self.log("info", _with_fields(message, extra), logger)

    def warning(
        self, message: Json, logger: str | None = None, extra: Mapping[str, Json] | None = None
    ) -> Awaitable[None]:
        """Send a log message of level "warning"; `extra` adds fields to it."""
        return self.log("warning", _with_fields(message, extra), logger)

    def error(
        self, message: Json, logger: str | None = None, extra: Mapping[str, Json] | None = None
    ) -> Awaitable[None]:
        """Send a log message of level "error"; `extra` adds fields to it."""
        return self.log("error", _with_fields(message, extra), logger)

    def notify(self, method: str, params: Mapping[str, Json] | None = None) -> Awaitable[None]:
        """Send any notification on this call's stream."""
        return self._call.exchange.notify(method, dict(params or {}))

    async def detach(self) -> None:
        """Go on as a task: the caller has its answer, and fetches the result later.

        In a tool declared `long_running="on_detach"`, for a client that knows tasks. Elsewhere nothing happens, and the
        caller waits.
        """
        detach = getattr(self._call.exchange.voice, "detach", None)
        if detach is not None:
            await detach()

    async def release_stream(self) -> None:
        """Let go of the connection this call is answered on; the client comes back for the rest.

        For long work behind proxies that cut idle streams. Only 2025-11-25 knows it; elsewhere nothing happens.
        """
        release = getattr(self._call.exchange.sink, "release", None)
        if release is not None:
            await release()

    # Asking

    @overload
    async def elicit(
        self,
        message: str,
        schema: type[T],
        *,
        key: str | None = None,
        early: bool = False,
        timeout: float | None = ASK_TIMEOUT,
    ) -> ElicitResult[T]: ...
    @overload
    async def elicit(
        self,
        message: str,
        schema: Mapping[str, Json],
        *,
        key: str | None = None,
        early: bool = False,
        timeout: float | None = ASK_TIMEOUT,
    ) -> ElicitResult[dict[str, Json]]: ...
    @overload
    async def elicit(
        self,
        message: str,
        *,
        url: str,
        key: str | None = None,
        early: bool = False,
        timeout: float | None = ASK_TIMEOUT,
    ) -> ElicitResult[None]: ...
    async def elicit(
        self,
        message: str,
        schema: type | Mapping[str, Json] | None = None,
        *,
        url: str | None = None,
        key: str | None = None,
        early: bool = False,
        timeout: float | None = ASK_TIMEOUT,
    ) -> ElicitResult[Any]:
        """Ask the person: a form (a JSON Schema, a model class or a primitive type), or a page to visit (`url=`).

        `answer.action` is "accept", "decline" or "cancel"; on accept, `answer.content` is the filled form: a mapping,
        or an instance of the model. `key` names the question for the journal; the default is its place in the body.
        With `early=True` a client of 2026-07-28 may send the answer under that key along with its first call.
        """
        if (schema is None) == (url is None):
            raise DeclarationError(
                'elicit needs either a form or a page: ctx.elicit("Your name?", NameForm) or ctx.elicit("Sign in", url="https://...")'
            )
        form = None if schema is None else form_of(schema)
        if form is None:
            self._require("elicitation.url", {"elicitation": {"url": {}}})
            params: dict[str, Any] = {"mode": "url", "message": message, "url": url}
        else:
            capability = self._call.peer.capabilities.get("elicitation")
            # `{}` declares forms only; an explicit list of modes must name them.
            if not isinstance(capability, Mapping) or (capability and "form" not in capability):
                self._require("elicitation.form", {"elicitation": {"form": {}}})
            params = {"message": message, "requestedSchema": form.schema}
            if capability:
                params = {"mode": "form", **params}
        if early:
            self._admit_early(key)
        raw = await self._ask("elicitation/create", params, key, timeout)
        answer: ElicitResult[Any] = _read_answer(raw, ElicitResult, "elicitation/create")
        if form is not None and answer.action == "accept":
            answer.content = form.read(answer.content)
        return answer

    async def sample(
        self,
        messages: str | Sequence[object],
        *,
        max_tokens: int = 1024,
        system: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: Mapping[str, Json] | None = None,
        include_context: str | None = None,
        tools: Sequence[object] | None = None,
        tool_choice: Mapping[str, Json] | None = None,
        metadata: Mapping[str, Json] | None = None,
        key: str | None = None,
        timeout: float | None = ASK_TIMEOUT,
    ) -> CreateMessageResult:
        """Ask the client's model to continue a conversation: a text, or a list of texts and messages."""
        self._require("sampling", {"sampling": {}})
        if tools is not None or tool_choice is not None:
            self._require("sampling.tools", {"sampling": {"tools": {}}})
        if include_context not in (None, "none"):
            self._require("sampling.context", {"sampling": {"context": {}}})
        optional = {
            "systemPrompt": system,
            "temperature": temperature,
            "stopSequences": None if stop_sequences is None else list(stop_sequences),
            "modelPreferences": model_preferences,
            "includeContext": include_context,
            "tools": None if tools is None else [to_jsonable(t) for t in tools],
            "toolChoice": tool_choice,
            "metadata": metadata,
        }
        params: dict[str, Any] = {"messages": _sampling_messages(messages), "maxTokens": max_tokens}
        params.update({k: v for k, v in optional.items() if v is not None})
        raw = await self._ask("sampling/createMessage", params, key, timeout)
        return _read_answer(raw, CreateMessageResult, "sampling/createMessage")

    def _admit_early(self, key: str | None) -> None:
        if key is None:
            raise DeclarationError("early=True needs key=: a client names the question that it answers by its key")
        rounds = self._call.exchange.rounds
        if rounds is not None:
            rounds.admit_early(key)

    async def _ask(self, method: str, params: dict[str, Any], key: str | None, timeout: float | None) -> Any:
        check_seconds("timeout", timeout)
        return await self._call.exchange.voice.ask(self._call.exchange, method, params, key, timeout)

    async def roots(self, *, key: str | None = None, timeout: float | None = ASK_TIMEOUT) -> list[Root]:
        """The directories the client lets this server work in."""
        self._require("roots", {"roots": {}})
        raw = await self._ask("roots/list", {}, key, timeout)
        return _read_answer(raw, ListRootsResult, "roots/list").roots

    # The original systems' names for the same three.
    create_message = sample
    list_roots = roots

    async def request(
        self, method: str, params: Mapping[str, Json] | None = None, timeout: float | None = ASK_TIMEOUT
    ) -> Json:
        """Send any request to a legacy client and wait for its result; a modern one can only be asked the three above."""
        return await self._ask(method, dict(params or {}), None, timeout)

    @overload
    async def step(self, name: str, fn: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def step(self, name: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def step(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a side effect once, however often the body is replayed; its result is kept with the call.

        The result must be JSON-like (or of the type `fn` declares to return): on a replay it comes from the journal.
        """
        decode = _return_decoder(fn)

        async def run() -> Any:
            value = fn(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            # As it will come back from the journal, the first time too.
            return msgspec.json.decode(msgspec.json.encode(value, enc_hook=enc_hook))

        result = await self._call.exchange.voice.step(self._call.exchange, name, run)
        return result if decode is None else decode(result)

    def wait(self, awaitable: Awaitable[T]) -> T:
        """In a plain `def` tool: wait for one of the questions above."""
        loop = self._call.exchange.loop
        if loop is None or _in_loop():
            raise DeclarationError(
                "ctx.wait is for plain `def` tools, which run in a thread; in `async def`, use await"
            )

        async def whole() -> T:
            return await awaitable

        coroutine: Coroutine[Any, Any, T] = whole()
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def _require(self, capability: str, required: dict[str, Any]) -> None:
        if not self._call.peer.supports(capability):
            raise self._call.exchange.voice.lacks(capability, required)

    def __repr__(self) -> str:
        return f"<Context of {self._call!r}>"


def _with_fields(message: Json, extra: Mapping[str, Json] | None) -> Json:
    return {"message": message, **extra} if extra else message


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _return_decoder(fn: Callable[..., Any]) -> Callable[[Any], Any] | None:
    annotation = getattr(fn, "__annotations__", {}).get("return")
    if isinstance(annotation, str):
        try:
            annotation = get_type_hints(fn).get("return")
        except NameError:  # a name that only the type checker can see
            return None
    return None if annotation is None else decoder_of(annotation)


W = TypeVar("W", ElicitResult[Any], CreateMessageResult, ListRootsResult)


def _read_answer(raw: Any, into: type[W], method: str) -> W:
    try:
        return msgspec.convert(raw, into)
    except msgspec.ValidationError as error:
        raise ProtocolError.invalid_params(f"the client's answer to {method} is malformed: {error}") from None


def _sampling_messages(messages: str | Sequence[Any]) -> list[Json]:
    if isinstance(messages, str):
        messages = [messages]
    return [_sampling_message(m) for m in messages]


def _sampling_message(message: Any) -> Json:
    if isinstance(message, str):
        return {"role": "user", "content": {"type": "text", "text": message}}
    if isinstance(message, PromptMessage):
        return to_jsonable(message)
    plain = to_jsonable(message)
    whole = as_object(plain)
    if whole is not None and isinstance(whole.get("content"), str):
        return {**whole, "content": {"type": "text", "text": whole["content"]}}
    return plain
