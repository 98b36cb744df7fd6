"""The inspector beside a server of one's own: `server.run("http", inspect=True)`, for development.

It is the one of the command, so that it examines servers and takes others that are typed in.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator

from trimaran.apps.inspector.servers import Reach, ServerSource
from trimaran.apps.inspector.site import Site

from .inspect import make_inspector


@contextlib.asynccontextmanager
async def open_inspector(name: str, url: str) -> AsyncGenerator[Site]:
    """An inspector that looks at a server of this process over its own HTTP; its link is on stderr."""
    inspector = make_inspector()
    async with Site(inspector) as site:
        reach = Reach(target=url, name=name, text=url, transport="http")
        inspector.add(reach, ServerSource(kind="process", label="this process")).begin_connecting()
        sys.stderr.write(f"inspect it at {site.link}\n")
        sys.stderr.flush()
        yield site
