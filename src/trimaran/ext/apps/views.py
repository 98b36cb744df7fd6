"""The host's side: who may call which tool, and the checks of a view before a host shows it.

A view comes from a server that may be hostile, so what cannot be used is refused (`RemoteProtocolError`), and what it asks
for too much is left out and noted. To show it, put `html` into a sandboxed frame of another origin, with `policy` as its
Content-Security-Policy and `allow` as its `allow` attribute, and talk to it through a `Bridge`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, final

from msgspec import Struct

from trimaran.errors import CODE_INVALID_REQUEST, DeclarationError, LocalProtocolError, RemoteProtocolError
from trimaran.types import BlobResourceContents, Json, Resource, TextResourceContents, Tool, as_object

from .metadata import IDENTIFIER, MIME_TYPE, ViewMeta, check_view_uri, ui_of
from .policy import Csp, allow_attribute

log: logging.Logger = logging.getLogger("trimaran.ext.apps")

CAPABILITY: Final[dict[str, Json]] = {"extensions": {IDENTIFIER: {"mimeTypes": [MIME_TYPE]}}}
"""The capability of a host that shows views: `connect(target, capabilities=CAPABILITY)`."""

# A page with everything inlined has one or two megabytes; past this it is no user interface.
MAX_HTML_BYTES: Final = 8 * 1024 * 1024

T = TypeVar("T", Tool, dict[str, Json])


def for_model(tools: Iterable[T]) -> list[T]:
    """The tools that a model may see and call."""
    return [tool for tool in tools if "model" in ui_of(tool).visibility]


def may_app_call(tool: Tool | Mapping[str, Json]) -> bool:
    """Whether a view of the same server may call this tool."""
    return "app" in ui_of(tool).visibility


@final
class View(Struct, frozen=True, kw_only=True):
    """A view, ready to be shown in a sandbox."""

    uri: str
    html: str
    csp: Csp | None = None
    """The origins it declared; None if it declared none, which is the strictest policy."""
    permissions: tuple[str, ...] = ()
    """The permissions that the view requests of the browser."""
    domain: str | None = None
    prefers_border: bool | None = None
    notes: tuple[str, ...] = ()
    """The parts of its declaration that were left out, and why."""

    @property
    def policy(self) -> str:
        """The Content-Security-Policy to show it under."""
        return (self.csp or Csp()).policy

    @property
    def allow(self) -> str:
        """The `allow` attribute of its frame, if the host grants all it asks for."""
        return allow_attribute(self.permissions)

    @property
    def digest(self) -> str:
        """The SHA-256 of the HTML, to recognise a view that was approved."""
        return hashlib.sha256(self.html.encode()).hexdigest()


class ResourceReader(Protocol):
    """The methods of a client that are used here."""

    async def read_resource(self, uri: str, /) -> Any: ...


async def read_view(
    client: ResourceReader, of: Tool | Mapping[str, Json] | str, *, listed: Resource | None = None
) -> View:
    """Read the view of a tool, or by its URI, from the tool's own server.

    Args:
        client: The client of the server that listed the tool, and of no other.
        of: The tool, or the URI of the view.
        listed: The view's entry in `resources/list`, for servers that declare its needs there. The contents win.

    Raises:
        LocalProtocolError: the tool has no view.
        RemoteProtocolError: the contents are no view.
        CallError: it cannot be read.
    """
    uri = of if isinstance(of, str) else ui_of(of).resource_uri
    if uri is None:
        raise LocalProtocolError.invalid_params("this tool has no view; show its result as text")
    result = await client.read_resource(uri)
    return view_from(uri, result.contents, listed=listed)


def view_from(uri: str, contents: Sequence[Any], *, listed: Resource | Mapping[str, Json] | None = None) -> View:
    """The view in the contents of a `resources/read` result."""
    try:
        check_view_uri(uri)
    except DeclarationError as error:
        raise LocalProtocolError.invalid_params(str(error)) from None
    entries = [_plain(entry) for entry in contents]
    matching = [entry for entry in entries if entry.get("uri") == uri]
    if len(matching) != 1:
        raise _refused(uri, f"its contents hold {len(matching)} items with its URI; one is expected")
    item = matching[0]
    if item.get("mimeType") != MIME_TYPE:
        raise _refused(uri, f"its type is {str(item.get('mimeType'))[:80]!r}; a view has the type {MIME_TYPE!r}")
    html = _html(uri, item)
    # The contents win as a whole: a mixture of both would be nobody's declaration.
    ui = (as_object(item.get("_meta")) or {}).get("ui")
    if ui is None and listed is not None:
        entry = as_object(listed.get("_meta") if isinstance(listed, Mapping) else listed.meta) or {}
        ui = entry.get("ui")
    meta, problems = ViewMeta.read(ui)
    for problem in problems:
        log.warning("a part of the declaration of view %.200r is ignored: %s", uri, problem)
    view = View(
        uri=uri,
        html=html,
        csp=meta.csp,
        permissions=meta.permissions,
        domain=meta.domain,
        prefers_border=meta.prefers_border,
        notes=tuple(problems),
    )
    log.info("view %.200r, sha256 %s, policy: %s", uri, view.digest, view.policy)
    return view


def _plain(item: Any) -> Mapping[str, Any]:
    if isinstance(item, (TextResourceContents, BlobResourceContents)):
        return item.to_json()
    return as_object(item) or {}


def _html(uri: str, item: Mapping[str, Any]) -> str:
    text, blob = item.get("text"), item.get("blob")
    if (text is None) == (blob is None):
        raise _refused(uri, "it must have either text or a blob")
    if blob is not None:
        try:
            # A JSON string is text, but only the ASCII part of it is base64.
            text = base64.b64decode(blob, validate=True).decode()
        except (TypeError, ValueError, binascii.Error):
            raise _refused(uri, "its blob is not the base64 of UTF-8 text") from None
    if not isinstance(text, str) or not text.strip():
        raise _refused(uri, "it is empty")
    # A surrogate half can be sent as JSON, and is no text.
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _refused(uri, "its text is not Unicode") from None
    if size > MAX_HTML_BYTES:
        raise _refused(uri, f"it has {size} bytes; at most {MAX_HTML_BYTES} are shown")
    return text


def _refused(uri: str, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(CODE_INVALID_REQUEST, f"the view {uri[:200]!r} cannot be shown: {why}")
