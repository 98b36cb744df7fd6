"""Refuse a method that the server did not advertise, before anything is sent (R192)."""

from __future__ import annotations

from trimaran.errors import Unsupported
from trimaran.protocol.methods import METHODS
from trimaran.protocol.versions import V2025_03

from .connection import Connection


def check_offered(connection: Connection, method: str) -> None:
    """Raise Unsupported for a method that the server did not advertise."""
    connection.require_open()
    capability = METHODS[method].capability
    welcome = connection.conversation.welcome
    if capability is None or capability in welcome.capabilities:
        return
    if not isinstance(welcome.raw.get("capabilities"), dict):
        return  # it did not say what it offers: it may be asked
    if capability == "completions" and welcome.version < V2025_03:
        return  # the revision has completion, but no word for it
    raise Unsupported(
        f"the server does not offer {capability}, so it does not answer {method}; "
        f"it offers {', '.join(sorted(welcome.capabilities)) or 'nothing'}",
        method=method,
    )
