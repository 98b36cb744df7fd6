"""The identity of a client: registered beforehand, described by its own document, or registered on request (RFC 7591).

A registration is valid only at the issuer that made it, so it is stored by issuer. Only a client
whose id is the URL of its own metadata is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trimaran.errors import AuthorizationFailed
from trimaran.types import Json

from .effects import Flow, HttpReply, HttpRequest
from .metadata import ServerMetadata, read_object, shown
from .urls import is_loopback_host

STEP: Final = "client registration"

Source = Literal["configured", "document", "registered"]


class ClientInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client as one issuer knows it."""

    client_id: str
    client_secret: str | None = None
    auth_method: str | None = None
    """The way to send its secret to the token endpoint, if the issuer named one."""
    expires_at: float | None = None
    """When the secret expires."""
    redirect_uri: str | None = None
    scopes: tuple[str, ...] | None = None
    """The scopes it is registered for, if the registration has any: it may request no others."""
    source: Source = "configured"

    def __repr__(self) -> str:
        return f"<ClientInfo {self.client_id!r} {self.source}>"


def choose_auth_method(metadata: ServerMetadata, *, has_secret: bool = False) -> str:
    """The way to authenticate at the token endpoint, from those the issuer supports."""
    offered = metadata.token_endpoint_auth_methods_supported
    methods = ("client_secret_basic", "client_secret_post") if has_secret else ("none",)
    if offered is None:
        return methods[0]
    # A public client asks for a secret only if the issuer accepts nothing else.
    for method in (*methods, "client_secret_basic", "client_secret_post"):
        if method in offered:
            return method
    return methods[0]


def client_metadata(
    *, name: str, redirect_uri: str, auth_method: str, scopes: Sequence[str] = (), dpop: bool = False
) -> dict[str, Json]:
    """The metadata that a client registers with."""
    parts = urlsplit(redirect_uri)
    is_native = parts.scheme not in ("https",) or is_loopback_host(parts.hostname or "")
    metadata: dict[str, Json] = {
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": auth_method,
        "application_type": "native" if is_native else "web",
    }
    if scopes:
        metadata["scope"] = " ".join(scopes)
    if dpop:
        metadata["dpop_bound_access_tokens"] = True
    return metadata


def register_client(
    endpoint: str, metadata: Mapping[str, Json], initial_access_token: str | None = None, *, server_url: str = ""
) -> Flow[ClientInfo]:
    """Register on request (RFC 7591). The server may grant less than was requested."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if initial_access_token is not None:
        headers["Authorization"] = f"Bearer {initial_access_token}"
    request = HttpRequest(
        step=STEP,
        url=endpoint,
        method="POST",
        headers=headers,
        body=msgspec.json.encode(dict(metadata)),
        server_url=server_url,
    )
    reply = cast("HttpReply", (yield request))
    document = read_object(reply) or {}
    client_id = document.get("client_id")
    if reply.status not in (200, 201) or not isinstance(client_id, str) or not client_id:
        raise _refused(endpoint, reply.status, document, initial_access_token)
    redirects: list[str] = metadata.get("redirect_uris") or []
    agreed: Any = document.get("redirect_uris", redirects)
    if redirects and (not isinstance(agreed, list) or redirects[0] not in agreed):
        raise AuthorizationFailed(
            f"the {STEP} at {endpoint} has other redirect URIs than the requested one ({redirects[0]}); "
            "a login would end there, so it is not used",
            step=STEP,
            url=endpoint,
        )
    secret, method, until = (
        document.get(key) for key in ("client_secret", "token_endpoint_auth_method", "client_secret_expires_at")
    )
    return ClientInfo(
        client_id=client_id,
        client_secret=secret if isinstance(secret, str) and secret else None,
        auth_method=method if isinstance(method, str) else metadata.get("token_endpoint_auth_method"),
        expires_at=float(until) if isinstance(until, (int, float)) and until > 0 else None,
        redirect_uri=redirects[0] if redirects else None,
        scopes=tuple(metadata["scope"].split()) if metadata.get("scope") else None,
        source="registered",
    )


def _refused(endpoint: str, status: int, answer: Mapping[str, Json], token: str | None) -> AuthorizationFailed:
    code = answer.get("error")
    described = answer.get("error_description")
    reason = " ".join(shown(text, (token or "",)) for text in (code, described) if isinstance(text, str))
    return AuthorizationFailed(
        f"the {STEP} at {endpoint} failed: it answered {status}{f': {reason}' if reason else ''}; register a client with "
        "its operator and give its client_id, or give a client_metadata_url",
        step=STEP,
        url=endpoint,
        code=shown(code)[:80] if isinstance(code, str) else None,
    )
