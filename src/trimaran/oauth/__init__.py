"""OAuth for clients: grants, and the steps they consist of. Pure: no I/O, no clock, no randomness.

    async with connect("https://example.com/mcp", auth=OAuth(login=True)) as client: ...

A grant goes to `connect(auth=...)`, which does its I/O. The steps (discovery, registration, token requests) are plain
generators, for programs with their own HTTP client: each yields requests and is sent the replies.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .assertions import SigningKey as SigningKey, client_assertion as client_assertion
    from .authorization import (
        build_authorization_url as build_authorization_url,
        code_challenge as code_challenge,
        gen_code_verifier as gen_code_verifier,
        read_callback as read_callback,
    )
    from .challenges import (
        Challenge as Challenge,
        challenge_for as challenge_for,
        parse_www_authenticate as parse_www_authenticate,
    )
    from .credentials import Credentials as Credentials
    from .discovery import (
        discover_authorization_server as discover_authorization_server,
        discover_legacy_server as discover_legacy_server,
        discover_protected_resource as discover_protected_resource,
    )
    from .dpop import Nonces as Nonces, ProofKey as ProofKey
    from .effects import (
        Browse as Browse,
        CallUser as CallUser,
        Flow as Flow,
        HttpReply as HttpReply,
        HttpRequest as HttpRequest,
        Redirect as Redirect,
    )
    from .grant import Grant as Grant, UserAgent as UserAgent
    from .login import OAuth as OAuth
    from .machine_grants import (
        ClientCredentials as ClientCredentials,
        EnterpriseManaged as EnterpriseManaged,
        WorkloadIdentity as WorkloadIdentity,
    )
    from .metadata import ResourceMetadata as ResourceMetadata, ServerMetadata as ServerMetadata
    from .registration import (
        ClientInfo as ClientInfo,
        client_metadata as client_metadata,
        register_client as register_client,
    )
    from .tokens import (
        TokenReply as TokenReply,
        client_credentials as client_credentials,
        exchange_code as exchange_code,
        jwt_bearer as jwt_bearer,
        refresh_token as refresh_token,
        revoke_token as revoke_token,
        token_exchange as token_exchange,
    )
    from .urls import canonical_resource as canonical_resource, resource_matches as resource_matches
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "assertions": "SigningKey client_assertion",
            "authorization": "build_authorization_url code_challenge gen_code_verifier read_callback",
            "challenges": "Challenge challenge_for parse_www_authenticate",
            "credentials": "Credentials",
            "discovery": "discover_authorization_server discover_legacy_server discover_protected_resource",
            "dpop": "Nonces ProofKey",
            "effects": "Browse CallUser Flow HttpReply HttpRequest Redirect",
            "grant": "Grant UserAgent",
            "login": "OAuth",
            "machine_grants": "ClientCredentials EnterpriseManaged WorkloadIdentity",
            "metadata": "ResourceMetadata ServerMetadata",
            "registration": "ClientInfo client_metadata register_client",
            "tokens": (
                "TokenReply client_credentials exchange_code jwt_bearer refresh_token revoke_token token_exchange"
            ),
            "urls": "canonical_resource resource_matches",
        },
    )
