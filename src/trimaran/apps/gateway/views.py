"""A view: some servers, some of their tools, shown otherwise if need be, for some callers, at `/views/NAME/mcp`.

It mounts the proxies of its servers. Rules and limits are those of the servers' own tools: a view can only show less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, final

from trimaran.host.names import safe_name
from trimaran.server.server import Server
from trimaran.server.transform_options import read_transforms
from trimaran.transports.engine import Engine
from trimaran.types import Tool

from .settings import ViewSettings

if TYPE_CHECKING:
    from .gateway import ServedUpstream


@final
class ServedView:
    """A view, as the gateway serves it."""

    def __init__(self, name: str, settings: ViewSettings, server: Server, engine: Engine) -> None:
        self.name = name
        self.settings = settings
        self.server = server
        self.engine = engine

    def problems(self, served: Mapping[str, ServedUpstream]) -> Iterable[str]:
        """The patterns that match no tool, as far as the servers that answer tell."""
        servers = [served[name] for name in self.settings.servers if name in served]
        if not all(server.is_up for server in servers):
            return
        for pattern in self.settings.tools or ():
            if not any(
                _chooser([pattern], server.safe)(entry.definition)
                for server in servers
                for entry in server.server.tools.entries()
            ):
                yield f"view.{self.name}.tools: {pattern!r} matches no tool of {', '.join(self.settings.servers)}"


def build_view(name: str, settings: ViewSettings, served: Mapping[str, ServedUpstream], **options: Any) -> Server:
    """The server of a view; servers that cannot be used are left out.

    Args:
        options: Keywords of `Server`.
    """
    server = Server(name, instructions=settings.instructions, **options)
    for server_name in settings.servers:
        if server_name in served:
            mount_in_view(server, name, settings, served[server_name])
    return server


def mount_in_view(server: Server, name: str, settings: ViewSettings, upstream: ServedUpstream) -> None:
    """Show one server in a view, as its settings say."""
    tables = settings.transforms.get(upstream.name, {})
    server.mount(
        upstream.server,
        prefix=upstream.safe if settings.prefix else None,
        include=None if settings.tools is None else _chooser(settings.tools, upstream.safe),
        read_only=settings.read_only,
        transforms=read_transforms(tables, f"view.{name}.transforms.{upstream.name}"),
    )


def _chooser(patterns: Iterable[str], safe: str) -> Callable[[Tool], bool]:
    """Whether a tool of one server is among these."""
    start = f"mcp__{safe_name(safe)}__"
    own = [
        pattern.removeprefix(start)
        for pattern in patterns
        if pattern.startswith(start) or not pattern.startswith("mcp__")
    ]

    def choose(tool: Tool) -> bool:
        return any(fnmatchcase(tool.name, pattern) for pattern in own)

    return choose
