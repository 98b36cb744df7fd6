"""One attack on one port: `python -m tests.attack.attacker NAME PORT SECONDS`. It prints, as JSON, how it was answered, by kind."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from . import hostile_http2, hostile_upstreams  # they register their attacks  # noqa: F401
from .hostile_clients import ATTACKS, Peer


async def main() -> None:
    name, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    os.nice(19)
    peer = Peer(port, seconds)
    try:
        await ATTACKS[name].run(peer)
    except OSError as error:
        peer.answers[type(error).__name__] += 1
    print(json.dumps(peer.answers))


if __name__ == "__main__":
    asyncio.run(main())
