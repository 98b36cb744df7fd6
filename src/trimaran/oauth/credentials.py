"""What a login leaves behind, as it is stored: tokens, the client that got them, and where fresh ones are to be had.

Everything a program needs after a restart to go on without a person. One record belongs to one server; the clients in it
are kept by issuer, since a registration is worth nothing elsewhere.
"""

from __future__ import annotations

from typing import Self

import msgspec
from msgspec import Struct

from trimaran.depth import decode_json
from trimaran.types import Json

from .metadata import ServerMetadata
from .registration import ClientInfo

__all__ = ["Credentials"]


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
    """What was asked for: what a step-up adds to."""
    granted: tuple[str, ...] | None = None
    """What was given, where the issuer said so."""
    metadata: ServerMetadata | None = None
    clients: dict[str, ClientInfo] = {}
    given: str | None = None
    """The digest of the tokens that the program brought along, if these are such."""
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
        """A stored record; None if it is not one, or one of another time: then it is as if there were none."""
        try:
            return decode_json(record, cls)
        except ValueError:
            return None

    def without_tokens(self) -> Self:
        """What stays when the tokens are worth nothing any more: the clients."""
        return msgspec.structs.replace(
            self, access_token=None, refresh_token=None, expires_at=None, granted=None, proof_key=None
        )

    def __repr__(self) -> str:
        token = "a token" if self.access_token else "no token"
        return f"<Credentials for {self.server_url} from {self.issuer}: {token}>"
