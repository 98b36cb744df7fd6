"""A program: guarded notebooks behind oidc-provider, for tests that look at them from outside. Prints their URLs.

The first takes any token, the second those that are bound to a key (DPoP): python -m tests.interop.auth.serve_guarded
"""

from __future__ import annotations

import asyncio
import signal

from .authority import Authority
from .notes import guarded_notes


async def main() -> None:
    authority = Authority()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with authority.running():
        async with guarded_notes(authority) as url, guarded_notes(authority, dpop=True) as bound:
            print(url, bound, flush=True)
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
