"""From the `oauth` of a server to a grant of `trimaran.oauth`.

    auto, manual          OAuth: a person logs in, when `Host.authorize` is called and not before (R254)
    client_credentials    ClientCredentials: the program has credentials of its own (R211)
    enterprise_managed    EnterpriseManaged: a company's identity provider vouches for a person (R212)
    workload_identity     WorkloadIdentity: the platform vouches for the program

Nothing here connects to anything. A secret that is kept in a file (`*_file`) is read when a token is requested, so that a
platform may replace it while the host runs; a private key is read whenever the grant is made.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from trimaran.errors import AuthorizationFailed, ConfigError
from trimaran.files import read_file

from .config.model import UNATTENDED, OAuthEntry, ServerEntry

if TYPE_CHECKING:
    from trimaran.oauth import Grant

_LARGEST: Final = 256 * 1024  # bytes; a token or a key is a few KiB, and a wrong path may lead to anything


def asks_a_person(auth: Any) -> bool:
    """Is this a grant that gets its tokens by a person's login?"""
    return hasattr(auth, "acquire") and not getattr(auth, "can_renew", False)


def for_person(grant: Any, *, name: str, login: Any, store: Any) -> Any:
    """The caller's own grant, asking a person by `login` or nobody, and keeping the login where the host does."""
    own = copy.copy(grant)
    own.login = login
    own.store = store if grant.store is None else grant.store
    own.name = name if grant.name is None else grant.name
    return own


def login_grant(details: OAuthEntry | None, *, name: str, login: Any, store: Any, allow_private: bool) -> Grant:
    """The grant for a login that the configuration describes, or says nothing about."""
    from trimaran.oauth import OAuth

    details = details or OAuthEntry()
    return OAuth(
        client_id=details.client_id,
        client_secret=details.client_secret,
        scopes=details.scopes or None,
        login=login,
        store=store,
        name=name,
        authorization_endpoint=details.auth_url,
        token_endpoint=details.token_url,
        resource=details.audience,
        allow_private=allow_private,
    )


def unattended_grant(entry: ServerEntry, *, allow_private: bool) -> Grant | None:
    """The grant of a server that needs no person; None if `oauth` is of another kind.

    Raises:
        ConfigError: a private key cannot be read, or is none.
    """
    details = entry.oauth_config
    if entry.oauth not in UNATTENDED or details is None:
        return None
    from trimaran.oauth import ClientCredentials, EnterpriseManaged, WorkloadIdentity

    common: dict[str, Any] = {
        "scopes": details.scopes or None,
        "issuer": details.issuer,
        "token_endpoint": details.token_url,
        "resource": details.resource,
        "dpop": details.dpop,
        "allow_private": allow_private,
    }
    if entry.oauth == "workload_identity":
        assertion = _value(details.assertion, details.assertion_file, "assertion")
        return WorkloadIdentity(assertion=assertion or "", client_id=details.client_id, **common)
    common |= {
        "client_id": details.client_id or "",
        "client_secret": details.client_secret,
        "private_key": read_private_key(details),
        "algorithm": details.algorithm,
        "client_assertion": _value(details.client_assertion, details.client_assertion_file, "client_assertion"),
    }
    if entry.oauth == "client_credentials":
        return ClientCredentials(**common)
    return EnterpriseManaged(
        idp_token_endpoint=details.idp_token_url or "",
        subject_token=_value(details.subject_token, details.subject_token_file, "subject_token") or "",
        subject_token_type=details.subject_token_type or "id_token",
        idp_client_id=details.idp_client_id,
        idp_client_secret=details.idp_client_secret,
        idp_issuer=details.idp_issuer,
        audience=details.audience,
        **common,
    )


def read_private_key(details: OAuthEntry) -> str | None:
    """The private key, as it stands in the configuration or in the file that it names."""
    if details.private_key_file is None:
        return details.private_key
    try:
        return _read(details.private_key_file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"private_key_file cannot be read: {_reason(details.private_key_file, error)}") from None


def _value(text: str | None, file: str | None, key: str) -> str | Callable[[], str] | None:
    if file is None:
        return text

    def read() -> str:
        try:
            return _read(file).strip()
        except (OSError, ValueError) as error:
            raise AuthorizationFailed(
                f"{key}_file cannot be read: {_reason(file, error)}", step=f"reading {key}_file"
            ) from None

    return read


def _read(file: str) -> str:
    return read_file(file, _LARGEST).decode()


def _reason(file: str, error: Exception) -> str:
    return f"{file!r}: {getattr(error, 'strerror', None) or error}"
