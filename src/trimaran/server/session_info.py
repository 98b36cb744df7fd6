"""What is known of a legacy session, for whoever looks after a server. It is a picture of one moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from msgspec import Struct

from trimaran.types import Implementation, Json


@final
class SessionInfo(Struct, frozen=True, kw_only=True):
    """One live session of a client of the revisions before 2026-07-28."""

    id: str
    """What the client sends as Mcp-Session-Id. Whoever knows it, and is the same principal, can use the session."""
    version: str
    """The revision that was agreed on."""
    client: Implementation | None
    """What the client calls itself."""
    capabilities: Mapping[str, Json]
    """What the client declared that it can do: sampling, elicitation, roots."""
    principal: object
    """Who authenticated; None for an anonymous caller, and for one whom this process has not met yet."""
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
