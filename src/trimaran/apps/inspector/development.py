"""The inspector beside a server of one's own: `server.run("http", inspect=True)`, for development."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator

from .inspector import Inspector
from .servers import Reach, ServerSource
from .site import Site

__all__ = ["open_inspector"]


@contextlib.asynccontextmanager
async def open_inspector(name: str, url: str) -> AsyncGenerator[Site]:
    """An inspector that looks at a server of this process over its own HTTP; its link is on stderr."""
    inspector = Inspector()
    async with Site(inspector) as site:
        reach = Reach(target=url, name=name, text=url, transport="http")
        inspector.add(reach, ServerSource(kind="process", label="this process")).begin_connecting()
        sys.stderr.write(f"inspect it at {site.link}\n")
        sys.stderr.flush()
        yield site
