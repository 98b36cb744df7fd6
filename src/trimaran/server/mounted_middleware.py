"""The middleware of a mounted server, around the calls that it serves: of its tools, its prompts and its resources.

It runs inside that of the outer server, and sees the name that its own server gave to the tool or prompt. Arguments are those
that the caller sent. Lists, completion and everything else belong to the server that is served. Wrappers of extensions
stay with their server: the outer one has tasks and telemetry of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from trimaran.protocol.inbound import IncomingCall

if TYPE_CHECKING:
    from .dispatch import Middleware, Serve
    from .registry import Registry
    from .server import Server

Locate: TypeAlias = "Callable[[Server, IncomingCall], tuple[Registry[Any], str] | None]"


def mounted_middleware(outer: Server, inner: Server, method: str) -> Middleware | None:
    """The wrapper around a method of the outer server for a server that it has mounted; None if there is none."""
    locate = _LOCATE.get(method)
    chain = inner.runtime.dispatcher.travelling(method) if locate is not None else []
    if locate is None or not chain:
        return None

    async def around(call: IncomingCall, call_next: Serve, /) -> Any:
        source = locate(outer, call)
        if source is None or source[0] not in (inner.tools, inner.prompts, inner.resources, inner.templates):
            return await call_next(call)
        name = getattr(call.params, "name", None)

        def serve(own: IncomingCall, /) -> Awaitable[Any]:
            return call_next(own if name is None else _renamed(own, name))

        for middleware in reversed(chain):
            serve = _fold(middleware, serve)
        return await serve(call if name is None else _renamed(call, source[1]))

    return around


def _fold(middleware: Middleware, serve: Serve) -> Serve:
    return lambda call: middleware(call, serve)


def _renamed(call: IncomingCall, name: str) -> IncomingCall:
    if call.params.name == name:
        return call
    renamed = copy.copy(call)
    renamed.params = msgspec.structs.replace(call.params, name=name)
    return renamed


def _locate_tool(server: Server, call: IncomingCall) -> tuple[Registry[Any], str] | None:
    return server.tools.source_of(call.params.name)


def _locate_prompt(server: Server, call: IncomingCall) -> tuple[Registry[Any], str] | None:
    return server.prompts.source_of(call.params.name)


def _locate_resource(server: Server, call: IncomingCall) -> tuple[Registry[Any], str] | None:
    uri = call.params.uri
    if uri in server.resources.view:
        return server.resources.source_of(uri)
    template = next((entry for entry in server.templates.entries() if entry.template.match(uri) is not None), None)
    return None if template is None else server.templates.source_of(template.key)


_LOCATE: Final[dict[str, Locate]] = {
    "tools/call": _locate_tool,
    "prompts/get": _locate_prompt,
    "resources/read": _locate_resource,
}
