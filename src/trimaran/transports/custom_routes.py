"""Serve the plain HTTP routes that an author declared with `server.custom_route`.

Origin and Host are checked as for the endpoint, so no page elsewhere can call a route of a server on loopback. Credentials
are not: like the health routes, a route answers anyone, and its author decides whom else to refuse.

No web framework is needed, and Starlette's objects work: a handler whose parameter is annotated with Starlette's `Request`
gets one, and any ASGI application it returns, such as Starlette's `Response`, is run.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, cast, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from trimaran.errors import DeclarationError, ProtocolError
from trimaran.schema import enc_hook
from trimaran.server.routes import RouteHandler, RouteRequest

if TYPE_CHECKING:
    from .engine import Engine, HttpRequestHead, Pairs

_FRAMING: Final = frozenset(("content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "trailer"))
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
_TEXT: Final = "text/plain; charset=utf-8"
_STATUSES: Final = range(200, 600)  # 1xx are no answers: a client waits for another one behind them
_RESULTS: Final = (
    "a route returns text, bytes, a dict or a list (JSON), None, (status, body), (status, body, headers), or an ASGI "
    "response such as Starlette's"
)


async def serve_route(engine: Engine, request: HttpRequestHead, body: bytes) -> bool:
    """Answer a request for a route; False if there is none at its path."""
    route = engine.server.runtime.custom_routes.find(request.path)
    if route is None:
        return False
    handlers, variables = route
    method = "GET" if request.method == "HEAD" and "HEAD" not in handlers else request.method
    handler = handlers.get(method)
    if handler is None:
        allowed = ", ".join(sorted(handlers))
        error = ProtocolError.invalid_request(
            f"{request.method[:20]} is not served at {request.path[:200]}; use {allowed}", status=405
        )
        await engine.refuse(request, error, [("allow", allowed)])
        return True
    scope = _scope_of(request, variables)
    value = await _call(handler, request, variables, scope, body, engine)
    if callable(value):
        await _run_app(value, scope, body, request)
    else:
        status, content, headers = _read_result(value)
        await request.reply(status, headers, content)
    return True


async def _call(
    handler: RouteHandler,
    request: HttpRequestHead,
    variables: dict[str, str],
    scope: dict[str, Any],
    body: bytes,
    engine: Engine,
) -> Any:
    foreign = _foreign_request(handler)
    if foreign is not None:
        argument: Any = foreign(scope, _receiver(body))
    else:
        argument = RouteRequest(
            method=request.method,
            path=request.path,
            query_params=dict(parse_qsl(request.query, keep_blank_values=True)),
            path_params=variables,
            headers=request.headers,
            body=body,
            address=request.caller_address,
        )
    if inspect.iscoroutinefunction(handler):
        return await handler(argument)
    # A plain function may block, as a plain tool may.
    return await engine.server.runtime.threads.submit(lambda: handler(argument), {})


def _foreign_request(handler: RouteHandler) -> Any:
    """The class of Starlette's that the handler's parameter is annotated with, or None."""
    try:
        hints = get_type_hints(handler)
    except Exception:
        hints = {}
    name = next(iter(inspect.signature(handler).parameters), None)
    hint = hints.get(name or "")
    return hint if isinstance(hint, type) and hint.__module__.startswith("starlette.") else None


def _sendable(headers: Iterable[tuple[str, str]]) -> Pairs:
    """The headers of a reply without those that frame it: the carrier counts the bytes itself.

    Raises:
        DeclarationError: a name is none. It could end the head; values are looked at by the carrier.
    """
    pairs = [(name, text) for name, text in headers if name not in _FRAMING]
    for name, _ in pairs:
        if not _NAME.fullmatch(name):
            raise DeclarationError(f"{name[:100]!r} is no name of a header")
    return pairs


def _checked_status(status: int) -> int:
    if status not in _STATUSES:
        raise DeclarationError(f"a route answers with a status from 200 to 599, not {status!r}")
    return status


def _read_result(value: Any) -> tuple[int, bytes, Pairs]:
    status = 200
    headers: dict[str, str] = {}
    if isinstance(value, tuple):
        parts = cast("tuple[Any, ...]", value)
        if len(parts) not in (2, 3) or not isinstance(parts[0], int):
            raise DeclarationError(f"{_RESULTS}, not {parts!r}")
        status, value = _checked_status(parts[0]), parts[1]
        headers = dict(parts[2]) if len(parts) == 3 else headers
    pairs = _sendable((name.lower(), str(text)) for name, text in headers.items())
    if value is None:
        return (204 if status == 200 else status), b"", pairs
    if isinstance(value, str):
        kind, content = _TEXT, value.encode()
    elif isinstance(value, bytes):
        kind, content = "application/octet-stream", value
    else:
        kind, content = "application/json", msgspec.json.encode(value, enc_hook=enc_hook)
    if not any(name == "content-type" for name, _ in pairs):
        pairs.append(("content-type", kind))
    return status, content, pairs


# ASGI, for Starlette's classes


def _scope_of(request: HttpRequestHead, variables: dict[str, str]) -> dict[str, Any]:
    scope = request.scope
    if scope is None:
        items: Any = getattr(request.headers, "items", None)
        scheme = getattr(request.responder, "scheme", "http")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": scheme,
            "path": request.path,
            "raw_path": request.path.encode("latin-1", "replace"),
            "query_string": request.query.encode("latin-1", "replace"),
            "root_path": "",
            "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in (items() if items is not None else ())],
            "client": (request.address, 0) if request.address else None,
            "server": None,
        }
    return {**scope, "path_params": variables}


def _receiver(body: bytes, gone: asyncio.Event | None = None) -> Any:
    """`receive` of ASGI: the body whole, and then nothing until the client has gone."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
    gone = gone or asyncio.Event()

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    return receive


async def _run_app(app: Any, scope: dict[str, Any], body: bytes, request: HttpRequestHead) -> None:
    """Run an ASGI response, and send its output with our responder."""
    status, pairs = 200, list[tuple[str, str]]()
    is_streaming = False

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, pairs, is_streaming
        if message["type"] == "http.response.start":
            status = _checked_status(message["status"])
            pairs = _sendable(
                (name.decode("latin-1").lower(), text.decode("latin-1")) for name, text in message.get("headers", ())
            )
        elif message["type"] == "http.response.body":
            chunk, more = message.get("body", b""), message.get("more_body", False)
            if not is_streaming and not more:
                await request.reply(status, pairs, chunk)
                return
            if not is_streaming:
                is_streaming = True
                await request.responder.stream_start(status, pairs + (request.carried or []))
            if chunk:
                await request.responder.stream_chunk(chunk)
            if not more:
                await request.responder.stream_end()

    gone = asyncio.Event()
    unwatch = request.responder.watch(gone.set)
    try:
        await app(scope, _receiver(body, gone), send)
    finally:
        unwatch()
