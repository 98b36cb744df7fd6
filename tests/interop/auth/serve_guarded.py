"""A program: the guarded notebook behind oidc-provider, for tests that look at it from outside. Prints its URL.

python -m tests.interop.auth.serve_guarded
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
        async with guarded_notes(authority) as url:
            print(url, flush=True)
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
