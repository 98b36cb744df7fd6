"""Resources and resource templates: exact URIs first, then templates in the order they were declared (R31).

A template's variables reach the handler by name, converted to the types it declares. Values are percent-decoded, so a
handler that opens files must still check where a path leads: `../` survives decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from msgspec import UNSET

from trimaran.errors import DeclarationError, Error, ProtocolError, ResourceMissing
from trimaran.protocol.inbound import Call
from trimaran.protocol.uritemplate import UriTemplate
from trimaran.schema import ArgumentError, Signature, compile_signature
from trimaran.types import Annotations, Icon, Json, ReadResourceResult, Resource, ResourceTemplate

from .context import Context
from .handlers import Handler, call_any, ends_the_call, incident
from .results import read_result
from .tools import icons_of, scopes_of

if TYPE_CHECKING:
    from .server import Server

__all__ = ["ResourceEntry", "Resources", "TemplateEntry", "compile_resource", "compile_template"]


@final
class ResourceEntry:
    __slots__ = ("cache_ttl", "context", "definition", "handler", "key", "place", "scopes")

    key: str
    place: int
    definition: Resource
    handler: Handler
    context: str | None
    cache_ttl: float | None
    scopes: tuple[str, ...]

    def renamed(self, key: str) -> ResourceEntry:
        raise DeclarationError(
            f"a resource keeps its URI when its server is mounted; {self.key!r} cannot become {key!r}"
        )


@final
class TemplateEntry:
    __slots__ = ("cache_ttl", "context", "definition", "handler", "key", "place", "scopes", "signature", "template")

    key: str
    place: int
    definition: ResourceTemplate
    handler: Handler
    context: str | None
    template: UriTemplate
    signature: Signature
    cache_ttl: float | None
    scopes: tuple[str, ...]

    def renamed(self, key: str) -> TemplateEntry:
        raise DeclarationError(
            f"a template keeps its URI when its server is mounted; {self.key!r} cannot become {key!r}"
        )


def _described(
    signature: Signature,
    *,
    name: str | None,
    title: str | None,
    description: str | None,
    mime_type: str | None,
    annotations: Annotations | Mapping[str, Json] | None,
    icons: Sequence[Icon | Mapping[str, Json]] | None,
    meta: Mapping[str, Json] | None,
) -> dict[str, Any]:
    return {
        "name": name or "",
        "title": title,
        "description": description if description is not None else signature.description,
        "mime_type": mime_type,
        "annotations": dict(annotations) if isinstance(annotations, Mapping) else annotations,
        "icons": icons_of(icons),
        "meta": dict(meta) if meta else None,
    }


def compile_resource(
    uri: str,
    fn: Callable[..., Any],
    *,
    size: int | None = None,
    cache_ttl: float | None = None,
    inline: bool = False,
    scopes: Sequence[str] = (),
    **about: Any,
) -> ResourceEntry:
    """A resource with a fixed URI; the handler takes nothing, or the Context."""
    if ":" not in uri:
        raise DeclarationError(
            f'a resource URI has a scheme, like "config://app" or "file:///notes.txt"; {uri!r} has none'
        )
    signature = compile_signature(fn, context_types=(Context,), name=f"resource {uri!r}", returns=None)
    needed = signature.input_schema.get("required", [])
    if needed:
        raise DeclarationError(
            f"resource {uri!r}: the handler takes {', '.join(needed)}, which a fixed URI cannot supply; "
            f"write a template, e.g. {uri.rstrip('/')}/{{{needed[0]}}}"
        )
    entry = ResourceEntry()
    entry.key, entry.place = uri, 0
    entry.handler = Handler(fn, inline=inline)
    entry.context = signature.context_params[0] if signature.context_params else None
    entry.cache_ttl = cache_ttl
    entry.scopes = scopes_of(scopes, f"resource {uri!r}")
    entry.definition = Resource(uri=uri, size=size, **_described(signature, **_about(about)))
    return entry


def compile_template(
    text: str,
    fn: Callable[..., Any],
    *,
    cache_ttl: float | None = None,
    inline: bool = False,
    scopes: Sequence[str] = (),
    **about: Any,
) -> TemplateEntry:
    """A resource template; the handler takes the template's variables by name."""
    template = UriTemplate(text)
    signature = compile_signature(fn, context_types=(Context,), name=f"template {text!r}", returns=None)
    unknown = [p for p in signature.input_schema.get("required", []) if p not in template.variables]
    if unknown:
        raise DeclarationError(
            f"template {text!r}: the handler takes {', '.join(unknown)}, but the template has "
            f"{', '.join(template.variables) or 'no variables'}; use the same names"
        )
    entry = TemplateEntry()
    entry.key, entry.place = text, 0
    entry.handler = Handler(fn, inline=inline)
    entry.context = signature.context_params[0] if signature.context_params else None
    entry.template = template
    entry.signature = signature
    entry.cache_ttl = cache_ttl
    entry.scopes = scopes_of(scopes, f"template {text!r}")
    entry.definition = ResourceTemplate(uri_template=text, **_described(signature, **_about(about)))
    return entry


_ABOUT = ("name", "title", "description", "mime_type", "annotations", "icons", "meta")


def _about(given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [k for k in given if k not in _ABOUT]
    if unknown:
        raise DeclarationError(
            f"unknown option {unknown[0]!r}; a resource takes {', '.join(_ABOUT)}, cache_ttl, inline, scopes"
        )
    return {k: given.get(k) for k in _ABOUT}


@final
class Resources:
    """The `resources/read` side of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def read(self, call: Call) -> Any:
        """Serve one `resources/read`."""
        uri: str = call.params.uri
        return await in_rounds(call, self._read(uri, call), f"resource {uri!r}", self._server)

    async def _read(self, uri: str, call: Call) -> ReadResourceResult:
        server = self._server
        entry = server.resources.get(uri)
        if entry is not None:
            if entry.scopes:
                server.require_scopes(call, entry.scopes)
            kwargs: dict[str, Any] = {}
            if entry.context is not None:
                kwargs[entry.context] = Context(call, server, uri=uri)
            value = await entry.handler.run(kwargs, call, server.threads)
            return server.with_cache_hints(read_result(value, uri, entry.definition.mime_type), entry.cache_ttl)
        for template in server.templates.entries():
            matched = template.template.match(uri)
            if matched is not None:
                return await self._read_template(template, uri, matched, call)
        callbacks = server.callbacks
        if callbacks is not None and hasattr(callbacks, "read_resource"):
            value = await call_any(callbacks.read_resource, uri, Context(call, server, uri=uri))
            if value is None:
                raise ResourceMissing(uri)
            return server.with_cache_hints(read_result(value, uri, None), None)
        raise ResourceMissing(uri)

    async def _read_template(
        self, entry: TemplateEntry, uri: str, matched: Mapping[str, Any], call: Call
    ) -> ReadResourceResult:
        server = self._server
        if entry.scopes:
            server.require_scopes(call, entry.scopes)
        try:
            kwargs = entry.signature.arguments_from(dict(matched))
        except ArgumentError as error:
            raise ProtocolError.invalid_params(f"{uri[:200]}: {error}", {"uri": uri}) from None
        if entry.context is not None:
            kwargs[entry.context] = Context(call, server, uri=uri, params=matched)
        value = await entry.handler.run(kwargs, call, server.threads)
        return server.with_cache_hints(read_result(value, uri, entry.definition.mime_type), entry.cache_ttl)


async def in_rounds(call: Call, body: Coroutine[Any, Any, Any], what: str, server: Server) -> Any:
    """Run a body that may ask: with what its retry brought along, and ending the round if it was suspended."""
    exchange = call.exchange
    try:
        if call.params.request_state is not UNSET or call.params.input_responses is not UNSET:
            exchange.voice.open_rounds(exchange)
        result = await body
    except BaseException as error:
        body.close()
        ended = exchange.voice.suspended(exchange)
        if ended is not None:
            return ended
        if isinstance(error, ProtocolError) or ends_the_call(error):
            raise
        raise failure(what, error, server) from None
    return exchange.voice.suspended(exchange) or result


def failure(what: str, error: BaseException, server: Server) -> ProtocolError:
    """What a peer hears of a handler that failed: its own words if they were meant, else an id to find it by (R50)."""
    if isinstance(error, Error):
        return ProtocolError.internal_error(str(error), status=200)
    number = incident(what, error)
    detail = f": {type(error).__name__}: {error}" if server.expose_internal_errors else ""
    return ProtocolError.internal_error(f"{what} failed (error {number}){detail}", status=200)
