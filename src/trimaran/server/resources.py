"""Resources and resource templates: exact URIs first, then templates in the order they were declared (R31).

A template's variables reach the handler by name, converted to the types it declares. Values are percent-decoded, so a
handler that opens files must still check where a path leads: `../` survives decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

from msgspec import UNSET

from trimaran.errors import DeclarationError, ProtocolError, ResourceMissing
from trimaran.protocol.inbound import Call
from trimaran.protocol.uritemplate import UriTemplate
from trimaran.schema import ArgumentError, Signature, compile_signature
from trimaran.seconds import check_seconds
from trimaran.types import Annotations, Icon, Json, ReadResourceResult, Resource, ResourceTemplate

from .access import Visible, VisibleTo, grants, is_hidden, scopes_of, visible_of
from .context import Context
from .handlers import Handler, call_any, ends_the_call, incident, is_answer, is_meant, is_silence
from .results import read_result
from .tools import icons_of

if TYPE_CHECKING:
    from .server import Server

__all__ = ["ResourceEntry", "Resources", "TemplateEntry", "compile_resource", "compile_template"]


@final
class ResourceEntry:
    __slots__ = ("cache_ttl", "context", "definition", "handler", "key", "place", "scopes", "visible_to")

    key: str
    place: int
    definition: Resource
    handler: Handler
    context: str | None
    cache_ttl: float | None
    scopes: tuple[str, ...]
    visible_to: Visible | None

    def renamed(self, key: str) -> ResourceEntry:
        raise DeclarationError(
            f"a resource keeps its URI when its server is mounted; {self.key!r} cannot become {key!r}"
        )


@final
class TemplateEntry:
    __slots__ = (
        "cache_ttl",
        "context",
        "definition",
        "handler",
        "key",
        "place",
        "scopes",
        "signature",
        "template",
        "visible_to",
    )

    key: str
    place: int
    definition: ResourceTemplate
    handler: Handler
    context: str | None
    template: UriTemplate
    signature: Signature
    cache_ttl: float | None
    scopes: tuple[str, ...]
    visible_to: Visible | None

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
    visible_to: VisibleTo = None,
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
    check_seconds("cache_ttl", cache_ttl, DeclarationError)
    entry.cache_ttl = cache_ttl
    entry.scopes = scopes_of(scopes, f"resource {uri!r}")
    entry.visible_to = visible_of(visible_to, f"resource {uri!r}")
    entry.definition = Resource(uri=uri, size=size, **_described(signature, **_about(about)))
    return entry


def compile_template(
    text: str,
    fn: Callable[..., Any],
    *,
    cache_ttl: float | None = None,
    inline: bool = False,
    scopes: Sequence[str] = (),
    visible_to: VisibleTo = None,
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
    check_seconds("cache_ttl", cache_ttl, DeclarationError)
    entry.cache_ttl = cache_ttl
    entry.scopes = scopes_of(scopes, f"template {text!r}")
    entry.visible_to = visible_of(visible_to, f"template {text!r}")
    entry.definition = ResourceTemplate(uri_template=text, **_described(signature, **_about(about)))
    return entry


_ABOUT = ("name", "title", "description", "mime_type", "annotations", "icons", "meta")


def _about(given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [k for k in given if k not in _ABOUT]
    if unknown:
        raise DeclarationError(
            f"unknown option {unknown[0]!r}; a resource takes {', '.join(_ABOUT)}, cache_ttl, inline, scopes, visible_to"
        )
    return {k: given.get(k) for k in _ABOUT}


Found: TypeAlias = "tuple[ResourceEntry, None] | tuple[TemplateEntry, Mapping[str, Any]]"


@final
class Resources:
    """The `resources/read` side of a server, and who may watch what."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def read(self, call: Call) -> Any:
        """Serve one `resources/read`."""
        uri: str = call.params.uri
        return await in_rounds(call, self._read(uri, call), f"resource {uri!r}", self._server)

    def _find(self, uri: str, principal: Any) -> Found | None:
        """What is read under this URI by this caller."""
        entry = self._server.resources.get(uri)
        if entry is not None and not is_hidden(entry, principal):
            return entry, None
        for template in self._server.templates.entries():
            matched = template.template.match(uri)
            if matched is not None and not is_hidden(template, principal):
                return template, matched
        return None

    async def _read(self, uri: str, call: Call) -> ReadResourceResult:
        server = self._server
        found = self._find(uri, call.principal)
        if found is None:
            return await self._read_undeclared(uri, call)
        entry, matched = found
        if entry.scopes:
            server.require_scopes(call, entry.scopes)
        kwargs: dict[str, Any] = {}
        if isinstance(entry, TemplateEntry):
            try:
                kwargs = entry.signature.arguments_from(dict(matched or {}))
            except ArgumentError as error:
                raise ProtocolError.invalid_params(f"{uri[:200]}: {error}", {"uri": uri}) from None
        if entry.context is not None:
            kwargs[entry.context] = Context(call, server, uri=uri, params=matched)
        value = await entry.handler.run(kwargs, call, server.threads)
        result = read_result(value, uri, entry.definition.mime_type)
        # What not everybody may read must not be kept for everybody; nor what may have been made for one caller.
        is_private = call.principal is not None or bool(entry.scopes) or entry.visible_to is not None
        return server.with_cache_hints(result, entry.cache_ttl, is_private=is_private)

    async def _read_undeclared(self, uri: str, call: Call) -> ReadResourceResult:
        server, callbacks = self._server, self._server.callbacks
        if callbacks is not None and hasattr(callbacks, "read_resource"):
            value = await call_any(callbacks.read_resource, uri, Context(call, server, uri=uri))
            if value is None:
                raise ResourceMissing(uri)
            return server.with_cache_hints(read_result(value, uri, None), None, is_private=call.principal is not None)
        raise ResourceMissing(uri)

    def may_watch(self, uri: str, principal: Any) -> bool:
        """May this caller hear that the resource has changed? Asked when it has, since who may see it can change too."""
        server = self._server
        if not server.resources.is_guarded and not server.templates.is_guarded:
            return True
        found = self._find(uri, principal)
        if found is not None:
            return not found[0].scopes or grants(principal, found[0].scopes)
        # Of what is not declared at all, anyone may hear.
        return server.resources.get(uri) is None and not any(
            template.template.match(uri) is not None for template in server.templates.entries()
        )

    def scopes_lacking(self, uri: str, principal: Any) -> tuple[str, ...]:
        """The scopes of a resource that the caller may know of but not read; none if it may, or must not know."""
        if not self._server.resources.is_guarded and not self._server.templates.is_guarded:
            return ()
        found = self._find(uri, principal)
        return () if found is None or grants(principal, found[0].scopes) else found[0].scopes


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
        if is_answer(error) or ends_the_call(error):
            raise
        raise failure(what, error, server) from None
    return exchange.voice.suspended(exchange) or result


def failure(what: str, error: BaseException, server: Server) -> ProtocolError:
    """What a peer hears of a handler that failed: its own words if they were meant, else an id to find it by (R50)."""
    if is_meant(error) or is_silence(error):
        return ProtocolError.internal_error(str(error), status=200)
    number = incident(what, error)
    detail = f": {type(error).__name__}: {error}" if server.expose_internal_errors else ""
    return ProtocolError.internal_error(f"{what} failed (error {number}){detail}", status=200)
