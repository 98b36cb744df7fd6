"""Authentication of a server's callers. No sockets, no HTTP library.

A provider goes to `run("http", auth=...)`. It looks at the headers of a request and gives a `Principal`, which handlers
find as `ctx.auth`, or raises `Refused`, which becomes the status, the challenge and the body of the reply.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .anonymous import Anonymous as Anonymous
    from .any_of import AnyOf as AnyOf
    from .apikey import ApiKey as ApiKey
    from .basic import Basic as Basic
    from .bearer import Bearer as Bearer
    from .config import provider_from as provider_from
    from .custom import Custom as Custom
    from .dpop import DPoP as DPoP
    from .exchange import TokenExchange as TokenExchange
    from .extract import (
        extract_api_key as extract_api_key,
        extract_basic_auth as extract_basic_auth,
        extract_bearer_token as extract_bearer_token,
    )
    from .hashes import (
        hash_key as hash_key,
        hash_password as hash_password,
        verify_key as verify_key,
        verify_password as verify_password,
    )
    from .introspection import Introspection as Introspection
    from .limits import RateLimit as RateLimit
    from .principal import Principal as Principal
    from .provider import Provider as Provider
    from .refusal import Refused as Refused
    from .resource import JwtAuthorizer as JwtAuthorizer, ProtectedResource as ProtectedResource
    from .scope import AsgiRequest as AsgiRequest, FromScope as FromScope
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "anonymous": "Anonymous",
            "any_of": "AnyOf",
            "apikey": "ApiKey",
            "basic": "Basic",
            "bearer": "Bearer",
            "config": "provider_from",
            "custom": "Custom",
            "dpop": "DPoP",
            "exchange": "TokenExchange",
            "extract": "extract_api_key extract_basic_auth extract_bearer_token",
            "hashes": "hash_key hash_password verify_key verify_password",
            "introspection": "Introspection",
            "limits": "RateLimit",
            "principal": "Principal",
            "provider": "Provider",
            "refusal": "Refused",
            "resource": "JwtAuthorizer ProtectedResource",
            "scope": "AsgiRequest FromScope",
        },
    )
