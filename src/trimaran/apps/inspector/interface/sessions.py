"""Routes about recordings and saved calls."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from trimaran.errors import ConfigError
from trimaran.testing.cassette import MessageMask

from ..calls import NewCall
from ..comparing import compare_sessions, diff_json, without_era
from ..copying import identifier
from ..mock import mock_server
from ..pytest_files import write_tests
from ..recording import RecordedMessage, RecordedSession, read_recording
from ..requests import BadRequest, NotThere
from ..saved_calls import CallToRepeat, Expectation, read_calls, write_calls
from ..servers import Reach, ServerSource
from .routing import PageRequest, Reply, Route

_TEXT: Final = "text/plain; charset=utf-8"


def _id(request: PageRequest) -> str:
    return request.variables["id"]


def _session(request: PageRequest) -> RecordedSession:
    return request.inspector.recordings.session(_id(request))


def _download(body: bytes, name: str, content_type: str) -> Reply:
    disposition = f'attachment; filename="{name}"'
    return Reply(body=body, content_type=content_type, headers={"content-disposition": disposition})


async def list_recordings(request: PageRequest) -> Any:
    return {"recordings": request.inspector.recordings.rows()}


async def start_recording(request: PageRequest) -> Any:
    servers: Any = request.body.get("servers")
    if servers is not None:
        try:
            servers = msgspec.convert(servers, list[str])
        except msgspec.ValidationError:
            raise BadRequest("servers must be a list of ids") from None
    name = str(request.body.get("name") or "")[:200]
    row = request.inspector.recordings.start(name, servers, since_start=bool(request.body.get("sinceStart")))
    return Reply(status=201, value=row)


async def stop_recording(request: PageRequest) -> Any:
    return request.inspector.recordings.stop(_id(request))


async def rename_recording(request: PageRequest) -> Any:
    return request.inspector.recordings.rename(_id(request), request.text("name")[:200])


async def remove_recording(request: PageRequest) -> Any:
    request.inspector.recordings.remove(_id(request))
    return Reply(status=204, body=b"")


async def export_recording(request: PageRequest) -> Any:
    session = _session(request)
    return _download(session.to_bytes(), f"{identifier(session.name)}.json", "application/json")


async def import_recording(request: PageRequest) -> Any:
    try:
        session = read_recording(request.raw_body)
    except ConfigError as error:
        raise BadRequest(str(error)) from None
    return Reply(status=201, value=request.inspector.recordings.take_in(session))


async def list_recorded_messages(request: PageRequest) -> Any:
    query, limit = request.query, request.limit(200, 5_000)
    after, before = request.number("after"), request.number("before")
    needle = query.get("q", "").lower()
    matching: list[RecordedMessage] = []
    for message in _session(request).messages:
        if any(query.get(n) and getattr(message, n) != query[n] for n in ("server", "method", "direction", "kind")):
            continue
        if (after is not None and message.seq <= after) or (before is not None and message.seq >= before):
            continue
        if needle and needle not in (message.text or msgspec.json.encode(message.body).decode()).lower():
            continue
        matching.append(message)
    page = matching[:limit] if after is not None else matching[-limit:]
    rows = [msgspec.structs.replace(message, body=None, text=None) for message in page]
    return {"messages": rows, "total": len(matching), "more": len(matching) > len(rows)}


async def get_recorded_message(request: PageRequest) -> Any:
    for message in _session(request).messages:
        if str(message.seq) == request.variables["seq"]:
            return MessageMask()(msgspec.to_builtins(message))
    raise NotThere("the recording has no such message")


async def list_recorded_calls(request: PageRequest) -> Any:
    return {"calls": _session(request).calls}


async def make_mock(request: PageRequest) -> Any:
    session = _session(request)
    chosen = session.server(request.body.get("server"))
    reach = Reach(
        target=mock_server(session, chosen.id),
        name=f"{chosen.name} (mock)",
        text=f"the recording {session.name}",
        transport="recording",
    )
    server = request.inspector.add(reach, ServerSource(kind="recording", label=session.name))
    server.begin_connecting()
    return Reply(status=201, value=server.view())


async def get_tests(request: PageRequest) -> Any:
    text = write_tests(_session(request), request.query.get("server"))
    return Reply(body=text.encode(), content_type=_TEXT)


async def get_cassette(request: PageRequest) -> Any:
    return Reply(body=_session(request).cassette(request.query.get("server")).encode(), content_type=_TEXT)


async def get_recorded_calls_file(request: PageRequest) -> Any:
    session = _session(request)
    targets = {server.name: server.target for server in session.servers}
    names = {server.id: server.name for server in session.servers}
    calls = [
        CallToRepeat(
            id=f"s{number}",
            title=f"{call.name} {number}",
            server=names.get(call.server, call.server),
            kind=call.kind,
            name=call.name,
            arguments=call.arguments,
            expect=[Expectation(kind="ok" if call.state == "ok" else "error")],
        )
        for number, call in enumerate(session.calls, 1)
    ]
    return Reply(body=write_calls(calls, targets).encode(), content_type=_TEXT)


async def replay_recording(request: PageRequest) -> Any:
    """Make the recorded calls again, and show where the results differ."""
    session, inspector = _session(request), request.inspector
    other = request.body.get("server")
    results: list[dict[str, Any]] = []
    for recorded in session.calls:
        new = NewCall(
            server=str(other or recorded.server),
            kind=cast("Any", recorded.kind),
            name=recorded.name,
            arguments=recorded.arguments,
            send_anyway=True,
            by="run",
        )
        call = await inspector.calls.run(new)
        now: Any = None if call.result is None else msgspec.json.decode(call.result)
        failure: Any = None if call.row.failure is None else msgspec.to_builtins(call.row.failure)
        difference = diff_json(
            {"state": recorded.state, "result": without_era(recorded.result)},
            {"state": call.row.state, "result": without_era(now)},
        )
        results.append(
            {
                "call": call.row,
                "recorded": recorded.result if recorded.result is not None else recorded.failure,
                "now": now if now is not None else failure,
                "same": not difference,
                "difference": difference,
            }
        )
    return {"results": results}


async def compare_recordings(request: PageRequest) -> Any:
    book = request.inspector.recordings
    return compare_sessions(book.session(request.text("a")), book.session(request.text("b")))


async def list_saved(request: PageRequest) -> Any:
    return {"calls": request.inspector.saved.calls}


async def replace_saved(request: PageRequest) -> Any:
    try:
        calls = msgspec.convert(request.body.get("calls"), list[CallToRepeat])
    except msgspec.ValidationError as error:
        raise BadRequest(f"the calls do not fit: {error}") from None
    request.inspector.saved.replace(calls)
    return {"calls": calls}


async def run_saved(request: PageRequest) -> Any:
    ids: Any = request.body.get("ids")
    return {"results": await request.inspector.saved.run(ids)}


async def export_saved(request: PageRequest) -> Any:
    inspector = request.inspector
    used = {call.server for call in inspector.saved.calls}
    targets = {name: s.reach.text for s in inspector.servers for name in (s.id, s.name) if name in used}
    return Reply(body=write_calls(inspector.saved.calls, targets).encode(), content_type=_TEXT)


async def import_saved(request: PageRequest) -> Any:
    try:
        calls = read_calls(request.raw_body.decode(), "calls.toml").calls
    except (ConfigError, UnicodeDecodeError) as error:
        raise BadRequest(str(error)) from None
    saved = request.inspector.saved
    return {"added": saved.merge(calls), "calls": saved.calls}


_ONE: Final = "/api/recordings/{id}"
ROUTES: Final = (
    Route("GET", "/api/recordings", list_recordings),
    Route("POST", "/api/recordings", start_recording),
    Route("POST", "/api/recordings/import", import_recording),
    Route("POST", "/api/recordings/compare", compare_recordings),
    Route("PATCH", _ONE, rename_recording),
    Route("DELETE", _ONE, remove_recording),
    Route("POST", f"{_ONE}/stop", stop_recording),
    Route("GET", f"{_ONE}/export", export_recording),
    Route("GET", f"{_ONE}/messages", list_recorded_messages),
    Route("GET", f"{_ONE}/messages/{{seq}}", get_recorded_message),
    Route("GET", f"{_ONE}/calls", list_recorded_calls),
    Route("POST", f"{_ONE}/mock", make_mock),
    Route("GET", f"{_ONE}/pytest", get_tests),
    Route("GET", f"{_ONE}/cassette", get_cassette),
    Route("GET", f"{_ONE}/calls.toml", get_recorded_calls_file),
    Route("POST", f"{_ONE}/replay", replay_recording),
    Route("GET", "/api/saved", list_saved),
    Route("PUT", "/api/saved", replace_saved),
    Route("POST", "/api/saved/run", run_saved),
    Route("GET", "/api/saved/calls.toml", export_saved),
    Route("POST", "/api/saved/import", import_saved),
)
