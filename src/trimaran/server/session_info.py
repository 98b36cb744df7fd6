"""The facts about a legacy session, for the operator of a server. It is a picture of one moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from msgspec import Struct

from trimaran.types import Implementation, Json


@final
class SessionInfo(Struct, frozen=True, kw_only=True):
    """One live session of a client of the revisions before 2026-07-28."""

    id: str
    """The client's Mcp-Session-Id. A caller that knows it, and is the same principal, can use the session."""
    version: str
    """The revision that was agreed on."""
    client: Implementation | None
    """The client's name and version."""
    capabilities: Mapping[str, Json]
    """The capabilities that the client declared: sampling, elicitation, roots."""
    principal: object
    """The authenticated caller; None for an anonymous one, and for one that this process has not met yet."""
    is_initialized: bool
    """Has the client finished the handshake?"""
    age: float
    """Seconds since it began; in a process that met it later, since then."""
    idle: float
    """Seconds since its last request to this process."""
    calls: int
    """Calls at work in this process."""
    is_listening: bool
    """Does the client read the session's own stream, by way of this process?"""
