"""Requests to a token endpoint, one for each grant (RFC 6749, 6750, 7009, 7523, 8693, 8707, 9449).

Every request is a form, names the resource of the token, and authenticates the client as the issuer demands.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypedDict, Unpack, cast, final
from urllib.parse import quote_plus, urlencode

from msgspec import Struct

from trimaran.errors import AuthorizationFailed

from .dpop import Nonces, ProofKey
from .effects import Flow, HttpReply, HttpRequest
from .metadata import read_object, shown
from .registration import ClientInfo

STEP: Final = "token request"
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a name, not a token
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
SUBJECT_TYPES: Final = {
    "id_token": "urn:ietf:params:oauth:token-type:id_token",
    "saml2": "urn:ietf:params:oauth:token-type:saml2",
    "access_token": "urn:ietf:params:oauth:token-type:access_token",
    "refresh_token": "urn:ietf:params:oauth:token-type:refresh_token",
    "jwt": "urn:ietf:params:oauth:token-type:jwt",
}

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_LONGEST: Final = 10 * 365 * 24 * 3600.0
_NONCE_ROUNDS: Final = 2
# Fields of a form that are secret.
_SECRET_FIELDS: Final = (
    "client_secret",
    "client_assertion",
    "code",
    "code_verifier",
    "refresh_token",
    "assertion",
    "subject_token",
    "token",
)
_ADVICE: Final = {
    "invalid_client": "check the client's id and secret (or key), and how it is registered",
    "invalid_grant": "the code or token is expired, used or withdrawn: log in again",
    "unauthorized_client": "this client may not use this grant: its operator has to allow it",
    "unsupported_grant_type": "this authorization server has no such grant: choose another",
    "invalid_scope": "ask for other scopes",
    "invalid_target": "this authorization server issues no tokens for this resource",
}


class TokenReply(Struct, frozen=True, kw_only=True):
    """The reply of a token endpoint."""

    access_token: str
    token_type: str
    """In lower case: `bearer`, `dpop`."""
    expires_in: float | None = None
    refresh_token: str | None = None
    scopes: tuple[str, ...] | None = None
    """The granted scopes; None means the requested ones."""
    id_token: str | None = None
    issued_token_type: str | None = None

    def __repr__(self) -> str:
        return f"<TokenReply {self.token_type} scopes={self.scopes!r}>"


@final
class Prover:
    """Makes DPoP proofs with a key, the latest nonces, a clock and a source of randomness."""

    def __init__(
        self, key: ProofKey, nonces: Nonces, now: Callable[[], float], entropy: Callable[[int], bytes]
    ) -> None:
        self.key = key
        self.nonces = nonces
        self._now = now
        self._entropy = entropy

    def proof(self, method: str, url: str, access_token: str | None = None) -> str:
        return self.key.proof(
            method,
            url,
            now=self._now(),
            jti=self._entropy(16).hex(),
            access_token=access_token,
            nonce=self.nonces.get(url),
        )


class ClientProof(TypedDict, total=False):
    """A client's proof of identity for a token endpoint."""

    client: ClientInfo | None
    client_assertion: str | None


class TokenRequestOptions(ClientProof, total=False):
    """Options of a token request: the client's proof, and the name of the step in errors."""

    prover: Prover | None
    step: str
    server_url: str


def _authenticate(client: ClientInfo | None, form: dict[str, str], headers: dict[str, str]) -> None:
    """Add the client's proof to the form or the headers, as its issuer demands."""
    if client is None:
        return
    method = client.auth_method or ("client_secret_basic" if client.client_secret else "none")
    if client.client_secret is None or method == "none":
        form["client_id"] = client.client_id
    elif method == "client_secret_post":
        form |= {"client_id": client.client_id, "client_secret": client.client_secret}
    else:
        # RFC 6749, 2.3.1: both halves are form-encoded before they are joined.
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"


def token_request(
    endpoint: str,
    form: Mapping[str, str | None],
    *,
    client: ClientInfo | None = None,
    client_assertion: str | None = None,
    prover: Prover | None = None,
    step: str = STEP,
    server_url: str = "",
) -> Flow[TokenReply]:
    """Send a request to a token endpoint. If it demands a DPoP nonce, repeat it with one, at most twice."""
    filled = {name: value for name, value in form.items() if value}
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if client_assertion is not None:
        filled |= {"client_assertion_type": ASSERTION_TYPE, "client_assertion": client_assertion}
    else:
        _authenticate(client, filled, headers)
    body = urlencode(filled).encode()
    secrets = _spellings(
        *(filled[name] for name in _SECRET_FIELDS if name in filled),
        client.client_secret if client is not None else None,
        headers.get("Authorization", "").removeprefix("Basic "),
    )
    for round_number in range(_NONCE_ROUNDS + 1):
        if prover is not None:
            headers = {**headers, "DPoP": prover.proof("POST", endpoint)}
        request = HttpRequest(step=step, url=endpoint, method="POST", headers=headers, body=body, server_url=server_url)
        reply = cast("HttpReply", (yield request))
        document = read_object(reply)
        if prover is not None:
            is_told = prover.nonces.learn(endpoint, reply.headers)
            wants_nonce = document is not None and document.get("error") == "use_dpop_nonce"
            if wants_nonce and is_told and round_number < _NONCE_ROUNDS:
                continue
        return _read_reply(reply, document, endpoint, step, secrets)
    raise AssertionError


def _spellings(*secrets: str | None) -> tuple[str, ...]:
    """The secrets of a form in every spelling that a server may echo: the longest first, since one may contain another."""
    spellings = {spelled for secret in secrets if secret for spelled in (secret, quote_plus(secret))}
    return tuple(sorted(spellings, key=len, reverse=True))


def _read_reply(
    reply: HttpReply, answer: Mapping[str, Any] | None, endpoint: str, step: str, secrets: tuple[str, ...]
) -> TokenReply:
    # Some servers report an error with status 200.
    if answer is None or reply.status != 200 or "error" in answer or "access_token" not in answer:
        raise _refused(reply, answer, endpoint, step, secrets)
    token, kind = answer["access_token"], answer.get("token_type", "Bearer")
    if not isinstance(token, str) or _TOKEN.fullmatch(token) is None or not isinstance(kind, str):
        raise AuthorizationFailed(
            f"the {step} failed: {endpoint} issued a token that does not fit into a header; its operator must correct that",
            step=step,
            url=endpoint,
        )
    fresh, scope = answer.get("refresh_token"), answer.get("scope")
    id_token, issued = answer.get("id_token"), answer.get("issued_token_type")
    return TokenReply(
        access_token=token,
        token_type=kind.lower(),
        expires_in=_seconds(answer.get("expires_in")),
        refresh_token=fresh if isinstance(fresh, str) and fresh else None,
        scopes=tuple(scope.split()) if isinstance(scope, str) else None,
        id_token=id_token if isinstance(id_token, str) else None,
        issued_token_type=issued if isinstance(issued, str) else None,
    )


def _seconds(value: Any) -> float | None:
    """The lifetime of a token; None if it is no valid number. The server's 401 decides in the end."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    seconds = min(value, _LONGEST)
    return float(seconds) if math.isfinite(seconds) and seconds > 0 else None


def _refused(
    reply: HttpReply, answer: Mapping[str, Any] | None, endpoint: str, step: str, secrets: tuple[str, ...]
) -> AuthorizationFailed:
    code = answer.get("error") if answer is not None else None
    if isinstance(code, str):
        code = shown(code, secrets)[:80]
        described = answer.get("error_description") if answer is not None else None
        reason = f" {code}" + (f": {shown(described, secrets)}" if isinstance(described, str) else "")
    else:
        code = None
        reason = " without a token" if reply.status == 200 else ""
    advice = _ADVICE.get(code or "", "try again later, or tell its operator")
    return AuthorizationFailed(
        f"the {step} failed: {endpoint} answered {reply.status}{reason}; {advice}", step=step, url=endpoint, code=code
    )


# --- grants -----------------------------------------------------------------------------------------------------------


def exchange_code(
    endpoint: str,
    *,
    code: str,
    verifier: str,
    redirect_uri: str,
    resource: str | None,
    **how: Unpack[TokenRequestOptions],
) -> Flow[TokenReply]:
    """Exchange an authorization code for a token."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "code_verifier": verifier,
        "redirect_uri": redirect_uri,
        "resource": resource,
    }
    return (yield from token_request(endpoint, form, **how))


def refresh_token(
    endpoint: str, token: str, *, resource: str | None, scopes: Iterable[str] = (), **how: Unpack[TokenRequestOptions]
) -> Flow[TokenReply]:
    """Exchange a refresh token for a fresh access token."""
    form = {"grant_type": "refresh_token", "refresh_token": token, "resource": resource, "scope": " ".join(scopes)}
    how.setdefault("step", "token refresh")
    return (yield from token_request(endpoint, form, **how))


def client_credentials(
    endpoint: str, *, resource: str | None, scopes: Iterable[str] = (), **how: Unpack[TokenRequestOptions]
) -> Flow[TokenReply]:
    """Exchange a program's own credentials for a token."""
    form = {"grant_type": "client_credentials", "resource": resource, "scope": " ".join(scopes)}
    return (yield from token_request(endpoint, form, **how))


def token_exchange(
    endpoint: str,
    *,
    subject_token: str,
    subject_token_type: str,
    requested_token_type: str | None = None,
    audience: str | None = None,
    resource: str | None = None,
    scopes: Iterable[str] = (),
    **how: Unpack[TokenRequestOptions],
) -> Flow[TokenReply]:
    """Exchange one token for another (RFC 8693). Types may have their short names."""
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": SUBJECT_TYPES.get(requested_token_type or "", requested_token_type),
        "audience": audience,
        "resource": resource,
        "scope": " ".join(scopes),
        "subject_token": subject_token,
        "subject_token_type": SUBJECT_TYPES.get(subject_token_type, subject_token_type),
    }
    how.setdefault("step", "token exchange")
    return (yield from token_request(endpoint, form, **how))


def jwt_bearer(
    endpoint: str,
    *,
    assertion: str,
    resource: str | None = None,
    scopes: Iterable[str] = (),
    **how: Unpack[TokenRequestOptions],
) -> Flow[TokenReply]:
    """Exchange a signed assertion for a token (RFC 7523)."""
    form = {"grant_type": JWT_BEARER, "assertion": assertion, "resource": resource, "scope": " ".join(scopes)}
    return (yield from token_request(endpoint, form, **how))


def revoke_token(
    endpoint: str, token: str, *, kind: str = "refresh_token", client: ClientInfo | None = None, server_url: str = ""
) -> Flow[bool]:
    """Withdraw a token (RFC 7009). Returns whether the server agreed."""
    form = {"token": token, "token_type_hint": kind}
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    _authenticate(client, form, headers)
    request = HttpRequest(
        step="token revocation",
        url=endpoint,
        method="POST",
        headers=headers,
        body=urlencode(form).encode(),
        server_url=server_url,
    )
    reply = cast("HttpReply", (yield request))
    return reply.status == 200
