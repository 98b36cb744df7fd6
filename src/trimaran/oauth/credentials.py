"""The stored result of a login: tokens, the client that got them, and the server that issues fresh ones.

It is everything that a program needs to continue after a restart without a person. A record belongs to one server. Its clients
are stored by issuer, since no other issuer knows a registration.
"""

from __future__ import annotations

from typing import Self

import msgspec
from msgspec import Struct

from trimaran.depth import decode_json
from trimaran.types import Json

from .metadata import ServerMetadata
from .registration import ClientInfo


class Credentials(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The credentials for one server."""

    server_url: str
    name: str = ""
    resource: str | None = None
    issuer: str | None = None
    access_token: str | None = None
    token_type: str = "bearer"  # noqa: S105 - a kind of token
    refresh_token: str | None = None
    issued_at: float | None = None
    expires_at: float | None = None
    scopes: tuple[str, ...] = ()
    """The requested scopes. A step-up adds to them."""
    granted: tuple[str, ...] | None = None
    """The granted scopes, if the issuer named them."""
    metadata: ServerMetadata | None = None
    clients: dict[str, ClientInfo] = {}
    given: str | None = None
    """The digest of the tokens, if the program supplied them itself."""
    proof_key: dict[str, Json] | None = None
    """The private JWK that a DPoP-bound token is bound to."""

    @property
    def client(self) -> ClientInfo | None:
        """The client as the issuer of these tokens knows it."""
        return self.clients.get(self.issuer or "")

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, record: bytes) -> Self | None:
        """A stored record; None if it cannot be read or is from an incompatible version."""
        try:
            return decode_json(record, cls)
        except ValueError:
            return None

    def without_tokens(self) -> Self:
        """The record with its clients and without its tokens."""
        return msgspec.structs.replace(
            self, access_token=None, refresh_token=None, expires_at=None, granted=None, proof_key=None
        )

    def __repr__(self) -> str:
        token = "a token" if self.access_token else "no token"
        return f"<Credentials for {self.server_url} from {self.issuer}: {token}>"
