"""A look inside: parts that tests judge and the public API does not show."""

from __future__ import annotations

from typing import Any

from trimaran import Server


def inside(server: Server) -> Any:
    """The server, untyped: its `sessions` and its `fleet` are classes of higher layers."""
    return server
