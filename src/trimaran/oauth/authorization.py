"""The authorization request and its answer: PKCE (RFC 7636), state, and the issuer of the answer (RFC 9207)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from trimaran.errors import AuthorizationFailed

from .metadata import ServerMetadata, shown

LOGIN_STEP: Final = "login"
_AGAIN: Final = "Log in again; if that does not help, tell the operator of the authorization server"

Entropy = Callable[[int], bytes]


class AuthorizationRequest(NamedTuple):
    """The URL for a person's browser, and the values to remember until the browser comes back."""

    url: str
    verifier: str
    state: str

    def __repr__(self) -> str:
        return f"<AuthorizationRequest to {self.url.partition('?')[0]}>"


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def gen_code_verifier(entropy: Entropy = os.urandom) -> str:
    """A PKCE code verifier: 43 random characters."""
    return _text(entropy(32))


def code_challenge(verifier: str) -> str:
    """The S256 challenge of a verifier. No other method is supported."""
    return _text(hashlib.sha256(verifier.encode()).digest())


def build_authorization_url(
    endpoint: str,
    *,
    client_id: str,
    redirect_uri: str,
    resource: str | None = None,
    scopes: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
    entropy: Entropy = os.urandom,
) -> AuthorizationRequest:
    """The URL to open in a browser, with a fresh verifier and state."""
    verifier, state = gen_code_verifier(entropy), _text(entropy(24))
    query = {
        **(extra or {}),
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": code_challenge(verifier),
        "code_challenge_method": "S256",
    }
    if resource is not None:
        query["resource"] = resource
    scope = " ".join(scopes)
    if scope:
        query["scope"] = scope
    joint = "&" if urlsplit(endpoint).query else "?"
    return AuthorizationRequest(f"{endpoint}{joint}{urlencode(query)}", verifier, state)


def _only(pairs: list[tuple[str, str]], name: str) -> str | None:
    values = [value for key, value in pairs if key == name]
    if len(values) > 1:
        raise AuthorizationFailed(
            f"the browser came back with {name} more than once; the login is not trusted. {_AGAIN}", step=LOGIN_STEP
        )
    return values[0] if values else None


def read_callback(callback: str, *, state: str, metadata: ServerMetadata, check_issuer: bool = True) -> str:
    """The code in the URL that the browser came back with.

    The issuer of the answer is checked before its content, errors included (RFC 9207, protocol.md 4.1):

        iss announced   iss present   then
        yes             yes           must be the issuer, to the byte
        yes             no            refused
        no              yes           must be the issuer, to the byte
        no              no            accepted
    """
    endpoint = metadata.authorization_endpoint or metadata.issuer
    try:
        pairs = parse_qsl(urlsplit(callback).query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise AuthorizationFailed(
            f"the answer of {endpoint} to the login cannot be read. {_AGAIN}", step=LOGIN_STEP, url=endpoint
        ) from None
    if not hmac.compare_digest((_only(pairs, "state") or "").encode(), state.encode()):
        raise AuthorizationFailed(
            f"the answer of {endpoint} to the login has another state than the one sent: it belongs to another login, "
            "or somebody tampered with it. Log in again",
            step=LOGIN_STEP,
            url=endpoint,
        )
    issuer = _only(pairs, "iss")
    if issuer is None and metadata.authorization_response_iss_parameter_supported:
        raise AuthorizationFailed(
            f"the answer to the login does not name its issuer (iss), although {metadata.issuer} announces that it always does; "
            f"it is not trusted. {_AGAIN}",
            step=LOGIN_STEP,
            url=endpoint,
        )
    if check_issuer and issuer is not None and issuer != metadata.issuer:
        raise AuthorizationFailed(
            f"the answer to the login is from {shown(issuer)!r}, but the request went to {metadata.issuer!r}; "
            f"it is not trusted. {_AGAIN}",
            step=LOGIN_STEP,
            url=endpoint,
        )
    code = _only(pairs, "error")
    if code is not None:
        described = _only(pairs, "error_description")
        detail = f": {shown(described)}" if described else ""
        raise AuthorizationFailed(
            f"{metadata.issuer} refused the login ({shown(code)[:80]}){detail}; log in again if it should be allowed",
            step=LOGIN_STEP,
            url=endpoint,
            code=shown(code)[:80],
        )
    code = _only(pairs, "code")
    if not code:
        raise AuthorizationFailed(
            f"the answer of {endpoint} to the login has neither a code nor an error. {_AGAIN}",
            step=LOGIN_STEP,
            url=endpoint,
        )
    return code
