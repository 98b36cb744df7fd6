"""Resources and resource templates: exact URIs first, then templates in the order they were declared (R31).

A template's variables reach the handler by name, converted to the types it declares. Values are percent-decoded, so a
handler that opens files must still check where a path leads: `../` survives decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, final

from msgspec import UNSET

from trimaran.durations import check_seconds
from trimaran.errors import DeclarationError, ProtocolError, ResourceMissing
from trimaran.option_names import check_options
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.uritemplate import UriTemplate
from trimaran.schema import ArgumentError, Signature, compile_signature
from trimaran.types import Annotations, Icon, Json, ReadResourceResult, Resource, ResourceTemplate

from .access import Visible, VisibleTo, grants, is_hidden, require_scopes, scopes_of, visible_of
from .context import Context
from .dependencies import plan_dependencies
from .handlers import Handler, call_any, ends_the_call, incident, is_answer, is_meant, is_silence
from .results import read_result
from .tools import icons_of, meta_of

if TYPE_CHECKING:
    from .server import Server


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


class AnyResourceOptions(TypedDict, total=False):
    """The keywords of everything that is declared as a resource."""

    name: str | None
    title: str | None
    description: str | None
    annotations: Annotations | Mapping[str, Json] | None
    icons: Sequence[Icon | Mapping[str, Json]] | None
    meta: Mapping[str, Json] | None
    tags: Collection[str]
    size: int | None
    """In bytes; of a resource with a fixed URI only."""
    cache_ttl: float | None
    inline: bool
    scopes: Sequence[str]
    visible_to: VisibleTo


class ResourceOptions(AnyResourceOptions, total=False):
    """The keywords of `Server.resource` and `add_resource`."""

    mime_type: str | None


def compile_resource(uri: str, fn: Callable[..., object], **options: Unpack[ResourceOptions]) -> ResourceEntry:
    """A resource with a fixed URI; the handler takes nothing, or the Context."""
    if ":" not in uri:
        raise DeclarationError(
            f'a resource URI must have a scheme, like "config://app" or "file:///notes.txt"; {uri!r} has none'
        )
    entry = ResourceEntry()
    signature, definition = _compile(entry, "resource", uri, fn, options)
    missing = signature.input_schema.get("required", [])
    if missing:
        raise DeclarationError(
            f"resource {uri!r}: the handler takes {', '.join(missing)}, which a fixed URI cannot supply; "
            f"write a template, e.g. {uri.rstrip('/')}/{{{missing[0]}}}"
        )
    entry.definition = Resource(uri=uri, size=options.get("size"), **definition)
    return entry


def compile_template(text: str, fn: Callable[..., object], **options: Unpack[ResourceOptions]) -> TemplateEntry:
    """A resource template; the handler takes the template's variables by name."""
    if "size" in options:
        raise DeclarationError(f"template {text!r}: size= is for a resource with a fixed URI; leave it out")
    entry = TemplateEntry()
    entry.template = UriTemplate(text)
    entry.signature, definition = _compile(entry, "template", text, fn, options)
    variables = entry.template.variables
    unknown = [p for p in entry.signature.input_schema.get("required", []) if p not in variables]
    if unknown:
        raise DeclarationError(
            f"template {text!r}: the handler takes {', '.join(unknown)}, but the template has "
            f"{', '.join(variables) or 'no variables'}; use the same names"
        )
    entry.definition = ResourceTemplate(uri_template=text, **definition)
    return entry


def _compile(
    entry: ResourceEntry | TemplateEntry,
    kind: str,
    uri: str,
    fn: Callable[..., object],
    options: ResourceOptions,
) -> tuple[Signature, dict[str, Any]]:
    """Fill in the parts that resources and templates share; returns the rest of the definition too."""
    label = f"{kind} {uri!r}"
    check_options(options, ResourceOptions.__annotations__, "a resource", DeclarationError)
    plan = plan_dependencies(fn, label)
    skip = () if plan is None else plan.parameters
    signature = compile_signature(fn, context_types=(Context,), name=label, returns=None, skip=skip)
    entry.key, entry.place = uri, 0
    entry.handler = Handler(fn, inline=options.get("inline", False))
    entry.context = signature.context_params[0] if signature.context_params else None
    if plan is not None:
        plan.inject(entry)
    entry.cache_ttl = options.get("cache_ttl")
    check_seconds("cache_ttl", entry.cache_ttl, DeclarationError)
    entry.scopes = scopes_of(options.get("scopes", ()), label)
    entry.visible_to = visible_of(options.get("visible_to"), label)
    description = options.get("description")
    annotations = options.get("annotations")
    return signature, {
        "name": options.get("name") or "",
        "title": options.get("title"),
        "description": description if description is not None else signature.description,
        "mime_type": options.get("mime_type"),
        "annotations": dict(annotations) if isinstance(annotations, Mapping) else annotations,
        "icons": icons_of(options.get("icons")),
        "meta": meta_of(options.get("meta"), options.get("tags") or (), label),
    }


Found: TypeAlias = "tuple[ResourceEntry, None] | tuple[TemplateEntry, Mapping[str, Any]]"


@final
class Resources:
    """The `resources/read` side of a server, and who may watch what."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def read(self, call: IncomingCall) -> Any:
        """Serve one `resources/read`."""
        uri: str = call.params.uri
        return await in_rounds(call, self._read(uri, call), f"resource {uri!r}", self._server)

    def _find(self, uri: str, principal: Any) -> Found | None:
        """The resource that this caller reads under this URI."""
        entry = self._server.resources.get(uri)
        if entry is not None and not is_hidden(entry, principal):
            return entry, None
        for template in self._server.templates.entries():
            matched = template.template.match(uri)
            if matched is not None and not is_hidden(template, principal):
                return template, matched
        return None

    async def _read(self, uri: str, call: IncomingCall) -> ReadResourceResult:
        server = self._server
        match = self._find(uri, call.principal)
        if match is None:
            return await self._read_undeclared(uri, call)
        entry, matched = match
        if entry.scopes:
            require_scopes(call, entry.scopes)
        kwargs: dict[str, Any] = {}
        if isinstance(entry, TemplateEntry):
            try:
                kwargs = entry.signature.arguments_from(dict(matched or {}))
            except ArgumentError as error:
                raise ProtocolError.invalid_params(f"{uri[:200]}: {error}", {"uri": uri}) from None
        if entry.context is not None:
            kwargs[entry.context] = Context(call, server, uri=uri, params=matched)
        value = await entry.handler.run(kwargs, call, server.runtime.threads)
        result = read_result(value, uri, entry.definition.mime_type)
        # A text that not everybody may read, or that may have been made for one caller, must not be kept for everybody.
        is_private = call.principal is not None or bool(entry.scopes) or entry.visible_to is not None
        return server.runtime.dispatcher.with_cache_hints(result, entry.cache_ttl, is_private=is_private)

    async def _read_undeclared(self, uri: str, call: IncomingCall) -> ReadResourceResult:
        server, callbacks = self._server, self._server.callbacks
        if callbacks is not None and hasattr(callbacks, "read_resource"):
            value = await call_any(callbacks.read_resource, uri, Context(call, server, uri=uri))
            if value is None:
                raise ResourceMissing(uri)
            return server.runtime.dispatcher.with_cache_hints(
                read_result(value, uri, None), None, is_private=call.principal is not None
            )
        failure: ProtocolError = ResourceMissing(uri)
        for owner in (server, *server.runtime.mounted):
            if owner.runtime.read_undeclared is None:
                continue
            try:
                value = await owner.runtime.read_undeclared(uri, Context(call, server, uri=uri))
            except ResourceMissing:
                continue
            except ProtocolError as error:  # the next one may have it
                failure = error if isinstance(failure, ResourceMissing) else failure
                continue
            if value is not None:
                return server.runtime.dispatcher.with_cache_hints(value, None, is_private=call.principal is not None)
        raise failure

    def may_watch(self, uri: str, principal: Any) -> bool:
        """May this caller hear that the resource has changed? Asked when it has, since who may see it can change too."""
        server = self._server
        if not server.resources.is_guarded and not server.templates.is_guarded:
            return True
        match = self._find(uri, principal)
        if match is not None:
            return not match[0].scopes or grants(principal, match[0].scopes)
        # Anyone may hear of a resource that is not declared at all.
        return server.resources.get(uri) is None and not any(
            template.template.match(uri) is not None for template in server.templates.entries()
        )

    def scopes_lacking(self, uri: str, principal: Any) -> tuple[str, ...]:
        """The scopes of a resource that the caller may know of but not read; none if it may, or must not know."""
        if not self._server.resources.is_guarded and not self._server.templates.is_guarded:
            return ()
        match = self._find(uri, principal)
        return () if match is None or grants(principal, match[0].scopes) else match[0].scopes


async def in_rounds(call: IncomingCall, body: Coroutine[Any, Any, Any], owner: str, server: Server) -> Any:
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
        raise failure(owner, error, server) from None
    return exchange.voice.suspended(exchange) or result


def failure(owner: str, error: BaseException, server: Server) -> ProtocolError:
    """The error of a failed handler for the peer: its own text if that was meant for it, else an id to find it by (R50)."""
    if is_meant(error) or is_silence(error):
        return ProtocolError.internal_error(str(error), status=200)
    number = incident(owner, error)
    detail = f": {type(error).__name__}: {error}" if server.expose_internal_errors else ""
    return ProtocolError.internal_error(f"{owner} failed (error {number}){detail}", status=200)
