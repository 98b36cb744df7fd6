"""The process of a gateway: it serves until SIGTERM or Ctrl-C, and then lets calls finish for a moment."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from trimaran.host.config.model import HostConfig
from trimaran.protocol.mask import Mask
from trimaran.serve import run_loop
from trimaran.transports.signals import ENDS, hear

from .gateway import Gateway
from .logs import LogFormatter

__all__ = ["run_gateway"]


def run_gateway(load: Callable[[], HostConfig], formatter: LogFormatter, **options: Any) -> None:
    """Serve until the end. Blocks; stderr shows the URL.

    Args:
        load: Reads the configuration.
        formatter: Writes the log; it learns what to keep out of it.
        options: Those of `Gateway`.
    """

    async def main() -> None:
        stopping = asyncio.Event()
        hear(ENDS, stopping.set)
        gateway = Gateway(load(), **options)
        formatter.mask = Mask(secrets=gateway.secrets())
        async with gateway:
            announce(gateway)
            await stopping.wait()

    run_loop(main())


def announce(gateway: Gateway) -> None:
    """Tell whoever started it where the gateway is, on stderr."""
    down = [served.name for served in gateway.served.values() if not served.is_up]
    rest = f"; not reached yet: {', '.join(down)}" if down else ""
    sys.stderr.write(f"{len(gateway.served)} servers are served at {gateway.url}{rest} (Ctrl-C ends it)\n")
    sys.stderr.flush()
