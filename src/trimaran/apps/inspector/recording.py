"""A recorded session: servers, calls and messages in one JSON file that can be mailed. Secrets are taken out.

    {"trimaranRecording": 1, "name": ..., "servers": [...], "calls": [...], "messages": [...]}

Everything else is made from it: a mock server, a test file, a cassette, a comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from trimaran.depth import check_depth
from trimaran.errors import ConfigError
from trimaran.testing.cassette import MessageMask

FORMAT: Final = 1
_KINDS: Final = ("tool", "resource", "prompt", "request")
_LAST_MOMENT: Final = 8.64e15  # milliseconds: browsers know no later date


class RecordedServer(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A server, and what it offered."""

    id: str
    name: str
    target: str = ""
    transport: str = ""
    era: str | None = None
    revision: str | None = None
    info: Any = None
    capabilities: Any = None
    instructions: str | None = None
    tools: list[dict[str, Any]] = []
    resources: list[dict[str, Any]] = []
    templates: list[dict[str, Any]] = []
    prompts: list[dict[str, Any]] = []
    roots: list[dict[str, str]] | None = None
    """None if it never asked for them."""


class RecordedCall(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A call, how it ended, and what was answered to the server's questions."""

    server: str
    kind: str
    name: str
    state: str
    arguments: Any = None
    result: Any = None
    failure: Any = None
    ms: float | None = None
    at: float | None = None
    answers: list[dict[str, Any]] = []
    """To its elicitations."""
    samples: list[Any] = []
    """A model's turns, as they were given; None where that was declined."""
    as_task: bool = False


class RecordedMessage(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A message with its body; `text` where the body is not JSON."""

    seq: int
    at: float
    server: str
    direction: str
    kind: str
    size: int
    summary: str = ""
    connection: int = 1
    method: str | None = None
    id: int | str | None = None
    pair: int | None = None
    ms: float | None = None
    call: str | None = None
    era: str | None = None
    revision: str | None = None
    body: Any = None
    text: str | None = None


class RecordedSession(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A whole recording."""

    format: int = field(name="trimaranRecording", default=0)
    name: str = ""
    at: float = 0.0
    ended_at: float | None = None
    version: str = ""
    servers: list[RecordedServer] = []
    calls: list[RecordedCall] = []
    messages: list[RecordedMessage] = []

    def server(self, id: str | None = None) -> RecordedServer:
        """A server of the recording, by id or name; the only one, or the first, without."""
        chosen = [server for server in self.servers if id is None or id in (server.id, server.name)]
        if not chosen:
            names = ", ".join(server.name for server in self.servers) or "none"
            raise ConfigError(f"the recording has no server {id!r}; it has {names}")
        return chosen[0]

    def calls_of(self, server: RecordedServer) -> list[RecordedCall]:
        return [call for call in self.calls if call.server == server.id]

    def to_bytes(self) -> bytes:
        """The file. Values under names such as `password` and `token` are replaced."""
        masked = MessageMask()(msgspec.to_builtins(self))
        return msgspec.json.format(msgspec.json.encode({**masked, "trimaranRecording": FORMAT}), indent=1)

    def cassette(self, server: str | None = None) -> str:
        """One server's messages as a cassette for `trimaran.testing.replay`."""
        chosen = self.server(server)
        mask = MessageMask()
        lines: list[Mapping[str, Any]] = [{"cassette": 1, "target": chosen.target}]
        for message in self.messages:
            if message.server == chosen.id:
                content = {"raw": message.text} if message.text is not None else {"message": mask(message.body)}
                lines.append({"way": message.direction, **content})
        return _json_lines(lines)


_LEVELS_AROUND: Final = 8  # of the file, around a message that may have all levels that messages have


def _json_lines(lines: Iterable[Mapping[str, Any]]) -> str:
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def read_recording(data: bytes) -> RecordedSession:
    """A recording from its file.

    Raises:
        ConfigError: this is no recording, or one of another format.
    """
    try:
        check_depth(data, inside=-_LEVELS_AROUND)
        session = msgspec.json.decode(data, type=RecordedSession)
    except ValueError as error:
        raise ConfigError(f"this is not a recording of trimaran inspect: {error}") from None
    if session.format != FORMAT:
        raise ConfigError(
            f"this version cannot read the recording: trimaranRecording must be {FORMAT}, not {session.format}"
        )
    if not (all(map(_is_sound, session.messages)) and all(call.kind in _KINDS for call in session.calls)):
        raise ConfigError("this is not a recording of trimaran inspect: a call or message is of an unknown kind")
    return session


def _is_sound(message: RecordedMessage) -> bool:
    """False for what no run could have recorded: pages and programs need not expect it."""
    return message.direction in ("in", "out") and 0 <= message.at < _LAST_MOMENT and message.size >= 0
