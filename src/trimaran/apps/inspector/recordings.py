"""The recordings of this run: made from what passes, or imported from files."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, Literal, final

import msgspec
from msgspec import Struct

from trimaran import __version__

from .calls import InspectedCall
from .copying import answers_of
from .events import now_ms
from .recording import FORMAT, RecordedCall, RecordedMessage, RecordedServer, RecordedSession
from .requests import BadRequest, NotThere
from .servers import InspectedServer

if TYPE_CHECKING:
    from .inspector import Inspector

_MOST: Final = 50


class RecordingRow(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A recording as lists show it."""

    id: str
    name: str
    at: float
    servers: list[str]
    messages: int
    calls: int
    bytes: int
    state: Literal["recording", "done", "imported"]
    ended_at: float | None = None


class _Recording(Struct):
    row: RecordingRow
    first: int
    """The number of the message before the first."""
    servers: list[str] | None
    session: RecordedSession | None = None


@final
class RecordingBook:
    """Recordings by id."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._recordings: dict[str, _Recording] = {}
        self._ids = itertools.count(1)

    def rows(self) -> list[RecordingRow]:
        return [self._counted(recording) for recording in self._recordings.values()]

    @property
    def active(self) -> str | None:
        """The id of the recording that runs."""
        return next((r.row.id for r in self._recordings.values() if r.row.state == "recording"), None)

    def _counted(self, recording: _Recording) -> RecordingRow:
        row = recording.row
        if row.state == "recording":
            log, servers = self._inspector.log, recording.servers
            rows, _ = log.select(
                lambda message, _: servers is None or message.server in servers, after=recording.first, limit=10**9
            )
            row.messages, row.bytes = len(rows), sum(message.size for message in rows)
            row.calls = len(self._calls(recording))
        return row

    def start(self, name: str, servers: list[str] | None, *, since_start: bool) -> RecordingRow:
        """Record what passes from now on, or all that is still here."""
        if self.active is not None:
            self.stop(self.active)
        number = next(self._ids)
        row = RecordingRow(
            id=f"r{number}",
            name=name or f"session {number}",
            at=self._first_at() if since_start else now_ms(),
            servers=servers or [server.id for server in self._inspector.servers],
            messages=0,
            calls=0,
            bytes=0,
            state="recording",
        )
        first = 0 if since_start else self._inspector.events.seq
        self._keep(_Recording(row, first, servers))
        return row

    def _first_at(self) -> float:
        first = self._inspector.log.row(self._inspector.log.first)
        return now_ms() if first is None else first.at

    def stop(self, id: str) -> RecordingRow:
        """End a recording; its content is taken out of the log."""
        recording = self._get(id)
        if recording.row.state == "recording":
            row = self._counted(recording)
            recording.session = self._session(recording)
            row.state, row.ended_at = "done", now_ms()
            row.servers = [server.id for server in recording.session.servers]
            row.calls = len(recording.session.calls)
            self._tell(recording)
        return recording.row

    def take_in(self, session: RecordedSession) -> RecordingRow:
        """Keep a recording that came from a file."""
        row = RecordingRow(
            id=f"r{next(self._ids)}",
            name=session.name or "imported",
            at=session.at,
            ended_at=session.ended_at,
            servers=[server.id for server in session.servers],
            messages=len(session.messages),
            calls=len(session.calls),
            bytes=sum(message.size for message in session.messages),
            state="imported",
        )
        self._keep(_Recording(row, 0, None, session))
        return row

    def _keep(self, recording: _Recording) -> None:
        if len(self._recordings) >= _MOST:
            raise BadRequest(f"there are {_MOST} recordings: remove some first", status=409)
        self._recordings[recording.row.id] = recording
        self._tell(recording)

    def _tell(self, recording: _Recording) -> None:
        row = recording.row
        self._inspector.events.emit("recording", key=row.id, recording=msgspec.structs.replace(row))

    def _get(self, id: str) -> _Recording:
        recording = self._recordings.get(id)
        if recording is None:
            raise NotThere(f"there is no recording {id!r}")
        return recording

    def rename(self, id: str, name: str) -> RecordingRow:
        recording = self._get(id)
        recording.row.name = name
        if recording.session is not None:
            recording.session.name = name
        self._tell(recording)
        return recording.row

    def remove(self, id: str) -> None:
        self._get(id)
        del self._recordings[id]
        self._inspector.events.forget("recording", id)
        self._inspector.events.emit("recording-removed", id=id)

    def session(self, id: str) -> RecordedSession:
        """The content of a recording; of one that runs, up to now."""
        recording = self._get(id)
        return recording.session or self._session(recording)

    # Taking content out of the log

    def _calls(self, recording: _Recording) -> list[InspectedCall]:
        servers = recording.servers
        return [
            call
            for call in self._inspector.calls.all()
            if call.row.at >= recording.row.at and (servers is None or call.row.server in servers)
        ]

    def _session(self, recording: _Recording) -> RecordedSession:
        inspector, chosen = self._inspector, recording.servers
        messages: list[RecordedMessage] = []
        for row, body in inspector.log:
            if row.seq <= recording.first or (chosen is not None and row.server not in chosen):
                continue
            fields: dict[str, Any] = {
                name: getattr(row, name) for name in row.__struct_fields__ if name in RecordedMessage.__struct_fields__
            }
            message = RecordedMessage(**fields)
            text = inspector.mask_for(row.server)((body or b"").decode("utf-8", "replace"))
            try:
                message.body = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
                message.text = text
            messages.append(message)
        calls = [self._recorded_call(call) for call in self._calls(recording) if call.is_over]
        used = {message.server for message in messages} | {call.server for call in calls}
        servers = [_recorded_server(server) for server in inspector.servers if server.id in used]
        row = recording.row
        return RecordedSession(
            format=FORMAT,
            name=row.name,
            at=row.at,
            ended_at=now_ms(),
            version=__version__,
            servers=servers,
            calls=calls,
            messages=messages,
        )

    def _recorded_call(self, call: InspectedCall) -> RecordedCall:
        row = call.row
        answers, samples = answers_of(self._inspector.questions.of_call(row.id))
        return RecordedCall(
            server=row.server,
            kind=row.kind,
            name=row.name,
            state=row.state,
            arguments=call.arguments,
            result=None if call.result is None else msgspec.json.decode(call.result),
            failure=None if row.failure is None else msgspec.to_builtins(row.failure),
            ms=row.ms,
            at=row.at,
            answers=answers,
            samples=samples,
            as_task=row.task is not None,
        )


def _recorded_server(server: InspectedServer) -> RecordedServer:
    view = server.view()
    catalog = server.catalog
    return RecordedServer(
        id=server.id,
        name=server.name,
        target=view.target,
        transport=view.transport,
        era=view.era,
        revision=view.revision,
        info=None if view.info is None else msgspec.to_builtins(view.info),
        capabilities=view.capabilities,
        instructions=view.instructions,
        tools=list(catalog.definitions),
        resources=catalog.entries("resources"),
        templates=catalog.entries("templates"),
        prompts=catalog.entries("prompts"),
        roots=list(server.roots) if server.roots or server.are_roots_asked else None,
    )
