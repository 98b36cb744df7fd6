"""Who may call: authentication providers for servers. No sockets, no HTTP library.

A provider goes to `run("http", auth=...)`. It looks at the headers of a request and gives a `Principal`, which handlers
find as `ctx.auth`, or raises `Refused`, which becomes the status, the challenge and the body of the reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .anonymous import Anonymous
    from .apikey import ApiKey
    from .basic import Basic
    from .bearer import Bearer
    from .config import provider_from
    from .custom import Custom
    from .dpop import DPoP
    from .exchange import TokenExchange
    from .extract import extract_api_key, extract_basic_auth, extract_bearer_token
    from .hashes import hash_key, hash_password, verify_key, verify_password
    from .introspection import Introspection
    from .limits import RateLimit
    from .principal import Principal
    from .provider import Provider
    from .refusal import Refused
    from .resource import JwtAuthorizer, ProtectedResource
    from .scope import AsgiRequest, FromScope
    from .several import Several

__all__ = [
    "Anonymous",
    "ApiKey",
    "AsgiRequest",
    "Basic",
    "Bearer",
    "Custom",
    "DPoP",
    "FromScope",
    "Introspection",
    "JwtAuthorizer",
    "Principal",
    "ProtectedResource",
    "Provider",
    "RateLimit",
    "Refused",
    "Several",
    "TokenExchange",
    "extract_api_key",
    "extract_basic_auth",
    "extract_bearer_token",
    "hash_key",
    "hash_password",
    "provider_from",
    "verify_key",
    "verify_password",
]

_HOMES = {
    "anonymous": ("Anonymous",),
    "apikey": ("ApiKey",),
    "basic": ("Basic",),
    "bearer": ("Bearer",),
    "config": ("provider_from",),
    "custom": ("Custom",),
    "dpop": ("DPoP",),
    "exchange": ("TokenExchange",),
    "extract": ("extract_api_key", "extract_basic_auth", "extract_bearer_token"),
    "hashes": ("hash_key", "hash_password", "verify_key", "verify_password"),
    "introspection": ("Introspection",),
    "limits": ("RateLimit",),
    "principal": ("Principal",),
    "provider": ("Provider",),
    "refusal": ("Refused",),
    "resource": ("JwtAuthorizer", "ProtectedResource"),
    "scope": ("AsgiRequest", "FromScope"),
    "several": ("Several",),
}


def __getattr__(name: str) -> Any:
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
