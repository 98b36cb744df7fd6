"""Getting the right to call a server: grants for clients, and the steps they are made of. Pure: no I/O, no clock, no dice.

    async with connect("https://example.com/mcp", auth=OAuth(login=True)) as client: ...

A grant goes to `connect(auth=...)`, which does its I/O. The steps (discovery, registration, token requests) are plain
generators for those who drive them with an HTTP client of their own: each yields requests and is sent the replies.
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .assertions import SigningKey, client_assertion
    from .authorization import build_authorization_url, code_challenge, gen_code_verifier, read_callback
    from .challenges import Challenge, challenge_for, parse_www_authenticate
    from .credentials import Credentials
    from .discovery import discover_authorization_server, discover_legacy_server, discover_protected_resource
    from .dpop import Nonces, ProofKey
    from .effects import Ask, Browse, Flow, HttpReply, HttpRequest, Redirect
    from .grant import Grant, UserAgent
    from .login import OAuth
    from .metadata import ResourceMetadata, ServerMetadata
    from .registration import ClientInfo, client_metadata, register_client
    from .tokens import (
        TokenReply,
        client_credentials,
        exchange_code,
        jwt_bearer,
        refresh_token,
        revoke_token,
        token_exchange,
    )
    from .unattended import ClientCredentials, EnterpriseManaged, WorkloadIdentity
    from .urls import canonical_resource, resource_matches

_HOMES = {
    "assertions": ("SigningKey", "client_assertion"),
    "authorization": ("build_authorization_url", "code_challenge", "gen_code_verifier", "read_callback"),
    "challenges": ("Challenge", "challenge_for", "parse_www_authenticate"),
    "credentials": ("Credentials",),
    "discovery": ("discover_authorization_server", "discover_legacy_server", "discover_protected_resource"),
    "dpop": ("Nonces", "ProofKey"),
    "effects": ("Ask", "Browse", "Flow", "HttpReply", "HttpRequest", "Redirect"),
    "grant": ("Grant", "UserAgent"),
    "login": ("OAuth",),
    "metadata": ("ResourceMetadata", "ServerMetadata"),
    "registration": ("ClientInfo", "client_metadata", "register_client"),
    "tokens": (
        "TokenReply",
        "client_credentials",
        "exchange_code",
        "jwt_bearer",
        "refresh_token",
        "revoke_token",
        "token_exchange",
    ),
    "unattended": ("ClientCredentials", "EnterpriseManaged", "WorkloadIdentity"),
    "urls": ("canonical_resource", "resource_matches"),
}

__all__ = [
    "Ask",
    "Browse",
    "Challenge",
    "ClientCredentials",
    "ClientInfo",
    "Credentials",
    "EnterpriseManaged",
    "Flow",
    "Grant",
    "HttpReply",
    "HttpRequest",
    "Nonces",
    "OAuth",
    "ProofKey",
    "Redirect",
    "ResourceMetadata",
    "ServerMetadata",
    "SigningKey",
    "TokenReply",
    "UserAgent",
    "WorkloadIdentity",
    "build_authorization_url",
    "canonical_resource",
    "challenge_for",
    "client_assertion",
    "client_credentials",
    "client_metadata",
    "code_challenge",
    "discover_authorization_server",
    "discover_legacy_server",
    "discover_protected_resource",
    "exchange_code",
    "gen_code_verifier",
    "jwt_bearer",
    "parse_www_authenticate",
    "read_callback",
    "refresh_token",
    "register_client",
    "resource_matches",
    "revoke_token",
    "token_exchange",
]


def __getattr__(name: str) -> Any:
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
