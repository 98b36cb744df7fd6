"""Credentials as they stand in headers (R163). Header names are matched in any case, schemes too."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final, cast

from trimaran.protocol.headers import HeaderLookup

from .refusal import Refused

MAX_CREDENTIAL: Final = 16_384
"""Bytes of a credential that are looked at; larger ones are refused before any work. The largest honest ones, tokens that
list 200 groups, are about 11 KB."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_KEY: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def in_any_case(headers: HeaderLookup | Mapping[str, str]) -> HeaderLookup:
    """Headers that a request has are by lower-case name already; those of a mapping may not be."""
    if not isinstance(headers, Mapping):
        return headers
    return {name.lower(): value for name, value in cast("Mapping[str, str]", headers).items()}


def presents(headers: HeaderLookup, scheme: str) -> bool:
    """Whether Authorization names this scheme."""
    value = headers.get("authorization")
    return value is not None and value[: len(scheme) + 8].lstrip(" \t").partition(" ")[0].lower() == scheme


def too_large() -> Refused:
    return Refused("invalid_request", f"the credential is larger than {MAX_CREDENTIAL} bytes")


def credential(headers: HeaderLookup, scheme: str) -> str | None:
    """The credentials after a scheme in Authorization; None if it is another scheme, or blank."""
    value = headers.get("authorization")
    if value is None or not presents(headers, scheme):
        return None
    if len(value) > MAX_CREDENTIAL + 64:
        raise too_large()
    rest = value.strip(" \t").partition(" ")[2].strip(" \t")
    if len(rest) > MAX_CREDENTIAL:
        raise too_large()
    return rest or None


def extract_bearer_token(headers: HeaderLookup | Mapping[str, str]) -> str | None:
    """The token of `Authorization: Bearer`; None if there is none. A malformed one, or two at once, is refused (400)."""
    return bearer_token(in_any_case(headers))


def bearer_token(headers: HeaderLookup) -> str | None:
    token = credential(headers, "bearer")
    if token is not None and _TOKEN.fullmatch(token) is None:
        raise Refused("invalid_request", "the Authorization header does not hold one bearer token")
    return token


def extract_api_key(headers: HeaderLookup | Mapping[str, str], header: str = "X-API-Key") -> str | None:
    """The key in its header, or else of `Authorization: ApiKey`; None if there is none. Two at once are refused (400)."""
    return api_key(in_any_case(headers), header)


def api_key(headers: HeaderLookup, header: str = "X-API-Key") -> str | None:
    value = headers.get(header.lower())
    if value is not None and len(value) > MAX_CREDENTIAL:
        raise too_large()
    key = (value or "").strip(" \t") or None
    other = credential(headers, "apikey")
    if key is not None and other is not None and key != other:
        raise Refused("invalid_request", f"the request holds two API keys: in {header} and in Authorization")
    key = key or other
    if key is not None and not is_api_key(key):
        raise Refused("invalid_request", f"the request does not hold one API key in {header}")
    return key


def is_api_key(text: str) -> bool:
    """Whether a header can carry this key."""
    return len(text) <= MAX_CREDENTIAL and _KEY.fullmatch(text) is not None


def extract_basic_auth(headers: HeaderLookup | Mapping[str, str]) -> tuple[str, str] | None:
    """User and password of `Authorization: Basic`; None if there are none. Undecodable credentials are refused (400)."""
    return basic_auth(in_any_case(headers))


def basic_auth(headers: HeaderLookup) -> tuple[str, str] | None:
    encoded = credential(headers, "basic")
    if encoded is None:
        return None
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):
        raise Refused("invalid_request", "the Authorization header does not hold base64 of UTF-8") from None
    user, colon, password = text.partition(":")
    if not colon or _CONTROL.search(text):
        raise Refused("invalid_request", "the Authorization header does not hold user:password")
    return user, password
