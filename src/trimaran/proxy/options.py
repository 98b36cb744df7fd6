"""The options of `Server.proxy` and of `mount` for a remote target, as type checkers see them. Not imported at run time."""

from __future__ import annotations

from trimaran.connect_options import ConnectOptions

from .connections import Isolation


class ProxyOptions(ConnectOptions, total=False):
    """The options of `connect`, and the proxy's own."""

    name: str | None
    """What callers are told the server is called; by default the target's own name."""
    start_timeout: float
    """Seconds that the start waits for the target."""
    isolation: Isolation
    """"shared": one connection, or child, for all. "caller": one for each session or principal."""
    max_connections: int
    """With "caller": how many there may be at once."""
