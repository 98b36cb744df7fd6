"""The two documents of discovery: of a protected server (RFC 9728), and of an authorization server (RFC 8414).

Both come from strangers. A field of the wrong type makes the document unreadable, and the error names it; `null` is the
same as a missing field; unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct

from trimaran.depth import decode_json
from trimaran.errors import AuthorizationFailed

from .effects import HttpReply

T = TypeVar("T")

_SHOWN: Final = 512


class ResourceMetadata(Struct, frozen=True, kw_only=True):
    """The metadata of a protected server."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] | None = None


class ServerMetadata(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of an authorization server."""

    issuer: str
    token_endpoint: str | None = None
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    grant_types_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    token_endpoint_auth_signing_alg_values_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool = False
    client_id_metadata_document_supported: bool = False
    dpop_signing_alg_values_supported: tuple[str, ...] | None = None


def shown(text: str, secrets: tuple[str, ...] = ()) -> str:
    """A stranger's text for an error message: one short line, without secrets that we sent."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * _SHOWN]).split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "..."


def read_object(reply: HttpReply) -> dict[str, Any] | None:
    """The JSON object in a reply, without its nulls; None if there is none."""
    try:
        document: Any = decode_json(reply.body)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    return {name: value for name, value in cast("dict[str, Any]", document).items() if value is not None}


def read_document(document: Mapping[str, Any], kind: type[T], *, step: str, url: str) -> T:
    """A document as one of the structs here; AuthorizationFailed names what is wrong with it."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise AuthorizationFailed(
            f"the {step} at {url} cannot be used: {error}; its operator must correct it", step=step, url=url
        ) from None
