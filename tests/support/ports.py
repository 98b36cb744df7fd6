"""Ports of 127.0.0.1 that nothing listened on a moment ago, and that no outgoing connection gets meanwhile.

The system hands those from 32768 on to outgoing connections, so a port of that range that was free when it was looked for
may be taken by some client when a server binds it. These come from below.
"""

from __future__ import annotations

import contextlib
import secrets
import socket

LOWEST, HIGHEST = 20_000, 32_000


def find_port(*, also: int = 0) -> int:
    """`also`: the port that far above is to be free as well."""
    while True:
        port = LOWEST + secrets.randbelow(HIGHEST - LOWEST - also)
        with socket.socket() as probe, socket.socket() as second, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if also:
                second.bind(("127.0.0.1", port + also))
            return port
