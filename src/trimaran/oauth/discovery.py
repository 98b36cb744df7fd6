"""From a server's URL to the authorization server that guards it (RFC 9728, RFC 8414, OpenID discovery).

The URL in the server's challenge comes first, then the well-known places, the most specific before the root. An issuer
must give exactly the name by which it was looked up. Nothing is normalised first, because a lenient comparison
can be deceived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast
from urllib.parse import urlsplit

from trimaran.errors import AuthorizationFailed

from .effects import Flow, HttpReply, HttpRequest
from .metadata import ResourceMetadata, ServerMetadata, read_document, read_object, shown
from .urls import check_url, resource_matches

RESOURCE_STEP: Final = "protected resource metadata"
SERVER_STEP: Final = "authorization server metadata"

_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_OAUTH: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"


def _split(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")


def protected_resource_urls(server_url: str) -> list[str]:
    """The places of a server's metadata: under its own path, then at the root."""
    origin, path = _split(server_url)
    return [f"{origin}{_RESOURCE}{path}", f"{origin}{_RESOURCE}"] if path else [f"{origin}{_RESOURCE}"]


def authorization_server_urls(issuer: str) -> list[str]:
    """The places of an issuer's metadata. An issuer with a path does not own the root of its host."""
    origin, path = _split(issuer)
    if not path:
        return [f"{origin}{_OAUTH}", f"{origin}{_OPENID}"]
    return [f"{origin}{_OAUTH}{path}", f"{origin}{_OPENID}{path}", f"{origin}{path}{_OPENID}"]


def _get(step: str, url: str, server_url: str, version: str | None = None) -> Flow[HttpReply]:
    headers = {"Accept": "application/json"}
    if version is not None:
        headers["MCP-Protocol-Version"] = version
    request = HttpRequest(step=step, url=url, headers=headers, server_url=server_url)
    return cast("HttpReply", (yield request))


def discover_protected_resource(
    server_url: str, resource_metadata: str | None = None, *, version: str | None = None
) -> Flow[ResourceMetadata | None]:
    """The metadata of a protected server; None if it publishes none, like servers of 2025-03-26.

    `resource_metadata` is the URL its challenge named.
    """
    candidates = [*([resource_metadata] if resource_metadata else []), *protected_resource_urls(server_url)]
    troubled: str | None = None
    for url in dict.fromkeys(candidates):
        check_url(url, step=RESOURCE_STEP, allow_private=True)  # the fetcher judges addresses
        reply = yield from _get(RESOURCE_STEP, url, server_url, version)
        document = read_object(reply) if reply.status == 200 else None
        if document is not None and "resource" in document:
            return _checked(read_document(document, ResourceMetadata, step=RESOURCE_STEP, url=url), url, server_url)
        if reply.status >= 500 or url == resource_metadata:
            troubled = troubled or f"{url} answered {reply.status}"
    if troubled is not None:
        raise AuthorizationFailed(
            f"{server_url} asks for credentials, but its {RESOURCE_STEP} cannot be read: {troubled}; try again later, "
            "or tell its operator",
            step=RESOURCE_STEP,
            url=server_url,
        )
    return None


def _checked(metadata: ResourceMetadata, url: str, server_url: str) -> ResourceMetadata:
    if not resource_matches(metadata.resource, server_url):
        raise AuthorizationFailed(
            f"the {RESOURCE_STEP} at {url} is about {shown(metadata.resource)!r}, not about {server_url}: a token for one server "
            "must not be sent to another. Connect to the URL it names, if that is the server you mean",
            step=RESOURCE_STEP,
            url=url,
        )
    if not metadata.authorization_servers:
        raise AuthorizationFailed(
            f"the {RESOURCE_STEP} at {url} names no authorization server; its operator must correct it",
            step=RESOURCE_STEP,
            url=url,
        )
    return metadata


def discover_authorization_server(issuer: str, server_url: str = "") -> Flow[ServerMetadata]:
    """The metadata of an issuer (RFC 8414, then OpenID)."""
    check_url(issuer, step=SERVER_STEP, allow_private=True)
    if urlsplit(issuer).query:
        raise AuthorizationFailed(
            f"the issuer {issuer} must not have a query; tell its operator", step=SERVER_STEP, url=issuer
        )
    tried: list[str] = []
    for url in authorization_server_urls(issuer):
        reply = yield from _get(SERVER_STEP, url, server_url)
        document = read_object(reply) if reply.status == 200 else None
        if document is None or "issuer" not in document:
            tried.append(f"{url} answered {reply.status}{'' if reply.status != 200 else ' without JSON metadata'}")
            continue
        metadata = read_document(document, ServerMetadata, step=SERVER_STEP, url=url)
        if metadata.issuer != issuer:
            raise AuthorizationFailed(
                f"the {SERVER_STEP} at {url} is of the issuer {shown(metadata.issuer)!r}, not of {issuer!r}; "
                "it is not used. The two must be equal, a trailing slash included: its operator must correct that",
                step=SERVER_STEP,
                url=url,
            )
        check_endpoints(metadata)
        return metadata
    raise AuthorizationFailed(
        f"the {SERVER_STEP} of {issuer} cannot be read: {'; '.join(tried)}. Try again later, or tell its operator",
        step=SERVER_STEP,
        url=issuer,
    )


def check_endpoints(metadata: ServerMetadata) -> None:
    """Refuse metadata with an endpoint that must not be fetched."""
    endpoints: Sequence[tuple[str, str | None]] = (
        ("authorization endpoint", metadata.authorization_endpoint),
        ("token endpoint", metadata.token_endpoint),
        ("registration endpoint", metadata.registration_endpoint),
        ("revocation endpoint", metadata.revocation_endpoint),
    )
    for step, url in endpoints:
        if url is not None:
            check_url(url, step=step, allow_private=True)


def discover_legacy_server(server_url: str) -> Flow[ServerMetadata]:
    """The metadata of a 2025-03-26 server, which is its own authorization server: at the root, or else fixed places."""
    origin, _ = _split(server_url)
    check_url(origin, step=SERVER_STEP, allow_private=True)
    url = f"{origin}{_OAUTH}"
    reply = yield from _get(SERVER_STEP, url, server_url, "2025-03-26")
    document = read_object(reply) if reply.status == 200 else None
    if document is not None and "issuer" in document:
        metadata = read_document(document, ServerMetadata, step=SERVER_STEP, url=url)
        # That revision looks it up by the server's origin and not by an issuer, so there is no name to compare with;
        # but it cannot name another host, so an issuer on another host is refused.
        if _split(metadata.issuer)[0] != origin:
            raise AuthorizationFailed(
                f"the {SERVER_STEP} at {url} is of the issuer {shown(metadata.issuer)!r}, which is on another host; it is not used. Its operator must correct that",
                step=SERVER_STEP,
                url=url,
            )
        check_endpoints(metadata)
        return metadata
    return ServerMetadata(
        issuer=origin,
        authorization_endpoint=f"{origin}/authorize",
        token_endpoint=f"{origin}/token",
        registration_endpoint=f"{origin}/register",
        code_challenge_methods_supported=("S256",),
    )
