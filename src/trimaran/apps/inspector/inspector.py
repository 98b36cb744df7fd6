"""`Inspector`: the parts of the backend put together, for the command and for whoever embeds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, final

from trimaran import __version__
from trimaran.protocol.mask import Mask

from .access import PageAccess
from .calls import CallBook
from .doctors import Doctors, Examine
from .events import BATCH_SECONDS, PageEvents, now_ms
from .frames import Frames
from .oauth_flows import OAuthFlows
from .questions import QuestionDesk
from .recordings import RecordingBook
from .requests import BadRequest, NotThere
from .saved_calls import SavedCalls
from .servers import InspectedServer, InspectedServerOptions, Reach, Servers, ServerSource
from .sources import Sources
from .wire import MOST_BYTES, MOST_MESSAGES, MessageLog

__all__ = ["Inspector"]

_INLINE: Final = 256 * 1024

ParseTarget = Callable[[str], Reach]


def _parse_nothing(text: str) -> Reach:
    raise BadRequest("this inspector was made without parse_target, so targets cannot be typed in")


@final
class Inspector:
    """The backend of one page.

    Args:
        parse_target: Reads a target as the command line does.
        examine: Examines a server as `trimaran doctor` does; None for no doctor.
        config: The mcp.toml to offer servers from; by default the usual ones.
    """

    def __init__(
        self, *, parse_target: ParseTarget = _parse_nothing, examine: Examine | None = None, config: Path | None = None
    ) -> None:
        self.events: PageEvents = PageEvents()
        self.log: MessageLog = MessageLog(self.events)
        self.calls: CallBook = CallBook(self.events)
        self.questions: QuestionDesk = QuestionDesk(self.events, self.calls)
        self.servers: Servers = Servers(self.events, self.log, self.questions)
        self.calls.servers = self.servers
        self.log.listeners.append(self.calls.hear)
        self.doctors: Doctors = Doctors(self.events, self.servers, examine)
        self.recordings: RecordingBook = RecordingBook(self)
        self.saved: SavedCalls = SavedCalls(self)
        self.logins: OAuthFlows = OAuthFlows(self)
        self.frames: Frames = Frames()
        self.sources: Sources = Sources(config)
        self.access: PageAccess = PageAccess()
        self.parse_target: ParseTarget = parse_target

    def add(self, reach: Reach, source: ServerSource, options: Mapping[str, Any] | None = None) -> InspectedServer:
        """Take a server on; it is not connected yet."""
        return self.servers.add(reach, source, InspectedServerOptions().changed(options or {}))

    def mask_for(self, server: str) -> Mask:
        """What takes a server's secrets out of a text."""
        try:
            return self.servers.get(server).reach.mask
        except NotThere:
            return Mask()

    def state(self) -> dict[str, Any]:
        """All that a page needs when it opens."""
        log = self.log
        return {
            "version": __version__,
            "seq": self.events.seq,
            "now": now_ms(),
            "servers": [server.view() for server in self.servers],
            "calls": self.calls.rows(),
            "questions": self.questions.waiting(),
            "recordings": self.recordings.rows(),
            **({} if self.recordings.active is None else {"active": self.recordings.active}),
            "messages": {
                "first": log.first,
                "last": log.last,
                "count": len(log),
                "dropped": log.dropped,
                "bytes": log.bytes,
            },
            "limits": {
                "messages": MOST_MESSAGES,
                "bytes": MOST_BYTES,
                "inline": _INLINE,
                "batchMs": BATCH_SECONDS * 1000,
            },
            "canSample": self.questions.sample_by_model is not None,
        }

    async def close(self) -> None:
        """Disconnect from all servers and end all streams."""
        self.events.close()
        await self.logins.close()
        await self.servers.close()
