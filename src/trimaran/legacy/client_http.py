"""The client's side of Streamable HTTP with sessions (2025-03-26 to 2025-11-25).

The server may give a session id with its answer to `initialize`; from then on everything carries it. A reply may come as
JSON, on the request's own stream, or, if that stream ends early, on one resumed with Last-Event-ID after the pause the
server asked for. A standing GET stream brings messages that belong to no request; a server without one answers 405, which is allowed.
A server that no longer knows the session (404; some say 400) ends the conversation, and with it this link: its owner opens
another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, Final, final

from trimaran.client.deadline import in_background
from trimaran.client.link import Inbox
from trimaran.client.options import Tap
from trimaran.errors import (
    CODE_INVALID_REQUEST,
    CODE_METHOD_NOT_FOUND,
    ConnectFailed,
    ConnectionLost,
    Error,
    ProtocolError,
    RemoteProtocolError,
    TransportError,
    Unauthorized,
    UnexpectedStatus,
    UnsupportedVersion,
)
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.read_reply import Frame, excerpt, read_frame, split_batch
from trimaran.protocol.sse import SSEParser
from trimaran.transports.http1_client import Response
from trimaran.transports.http_client import STREAM, HttpWire, cut_off, events, is_stream, read_body

_RETRY: Final = 1.0  # seconds before a stream is opened again, unless the server says (R204)
_MIN_RETRY: Final = 0.1  # whatever it says
_MAX_RETRY: Final = 60.0
_RESUMES: Final = 5  # in a row that bring nothing
_PAUSES: Final = (1.0, 3.0, 10.0, 30.0)
_PASSING: Final = frozenset({401, 408, 425, 429})  # refusals of the moment
_DELETE_SECONDS: Final = 2.0
_SETTLE_SECONDS: Final = 2.0
_ODDITIES: Final = 3


@final
class SessionLink:
    is_http = True

    def __init__(self, wire: HttpWire, inbox: Inbox, tap: Tap | None = None) -> None:
        self.wire = wire
        self.session_id: str | None = None
        self._inbox = inbox
        self._tap = tap
        self._headers: Mapping[str, str] = {}
        self._pending: dict[RequestId, asyncio.Future[Frame]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._odd: deque[str] = deque(maxlen=_ODDITIES)
        self._idle = asyncio.Event()
        self._standing = asyncio.Event()
        """Whether the standing stream is open, or the server is known to have none."""
        self._over: Error | None = None

    def begin(self, headers: Mapping[str, str]) -> None:
        """The handshake is done: open the standing stream."""
        self._headers = headers
        self._spawn(self._stand())

    # --- requests ----------------------------------------------------------------------------------------------------

    async def request(self, id: RequestId, message: bytes, headers: Mapping[str, str] | None = None) -> Frame:
        if self._tap is not None:
            self._tap("out", message)
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._pending[id] = answer
        follower: asyncio.Task[None] | None = None
        try:
            response = await self._post(message, headers, id)
            if is_stream(response):
                follower = self._spawn(self._follow(response, id, answer))
            else:
                await self._read_whole(response, id)
            return await answer
        finally:
            self._pending.pop(id, None)
            if not self._pending:
                self._idle.set()
            if follower is not None and not answer.done():
                follower.cancel()
            if answer.done() and not answer.cancelled():
                answer.exception()

    async def send(self, message: bytes, headers: Mapping[str, str] | None = None) -> None:
        if self._tap is not None:
            self._tap("out", message)
        response = await self._post(message, headers)
        await self.wire.error_body(response)

    async def _post(self, message: bytes, headers: Mapping[str, str] | None, id: RequestId | None = None) -> Response:
        if self._over is not None:
            raise self._loss(sent=False)
        response = await self.wire.send("POST", message, self._with_session(headers))
        if self.session_id is None:
            self.session_id = response.headers.get("mcp-session-id")
        if response.status < 400:
            return response
        status = response.status
        refusal = await self.wire.refusal(response)
        self._judge(status, refusal, id)
        if isinstance(refusal, Frame):
            failure = refusal.failure()
            assert failure is not None
            failure.status = status
            raise failure
        raise refusal

    def _judge(self, status: int, refusal: Frame | UnexpectedStatus, id: RequestId | None = None) -> None:
        """Does this refusal mean that the session is gone? Then the conversation is over, and nothing was done."""
        if self.session_id is None or status not in (400, 404):
            return
        failure = refusal.failure() if isinstance(refusal, Frame) else None
        text = failure.message if failure is not None else getattr(refusal, "body", "")
        if isinstance(failure, UnsupportedVersion):
            is_gone = True  # a newer server has taken its place
        elif failure is not None and id is not None and failure.request_id == id:
            is_gone = status == 404 and "session" in text.lower()
        elif "session" in text.lower():
            is_gone = True
        else:
            is_gone = status == 404 and (failure is None or failure.code != CODE_METHOD_NOT_FOUND)
        if not is_gone:
            return
        self._end(ConnectionLost(f"{self.wire.url} no longer knows the session", cause_text="the session is gone"))
        raise self._loss(sent=False)

    def _with_session(self, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        if self.session_id is None:
            return headers
        return {**(headers or {}), "Mcp-Session-Id": self.session_id}

    async def _read_whole(self, response: Response, id: RequestId) -> None:
        try:
            body = await read_body(response, self.wire.max_bytes, self.wire.url)
        except BaseException:
            response.close()
            raise
        if not body and response.status == 202:
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, "the server accepted a request as if it were a notification"
            )
        if not body and response.status == 200:
            raise cut_off(self.wire.url, "it is empty")
        frames = self._take(body, id)
        if id in self._pending and not self._pending[id].done():
            ids = ", ".join(repr(frame.id) for frame in frames if frame.is_reply)
            failed = next((frame for frame in frames if frame.is_reply and frame.id is None), None)
            failure = failed.failure() if failed is not None else None
            raise failure or RemoteProtocolError(
                CODE_INVALID_REQUEST, f"the reply has the id {ids or 'of no request'}, the request had {id!r}"
            )

    async def _follow(self, response: Response, id: RequestId, answer: asyncio.Future[Frame]) -> None:
        """Read a request's stream until its reply is here, resuming it where the server lets us."""
        parser = SSEParser(self.wire.max_bytes)
        barren = 0
        try:
            while True:
                strays: list[Any] = []
                has_messages, is_broken = await self._drain(response, parser, answer, strays, id)
                if answer.done():
                    return
                parser.close()
                if not parser.last_event_id:
                    raise _stray(id, strays) or cut_off(self.wire.url)
                barren = 0 if has_messages else barren + 1
                if barren > _RESUMES:
                    raise cut_off(self.wire.url)
                # After a proper end, pause. After a break, connect at once: the server may be gone.
                await asyncio.sleep(0 if is_broken and not barren else _pause(parser))
                try:
                    response = await self._get(parser.last_event_id)
                except (ConnectFailed, UnexpectedStatus, ProtocolError) as error:
                    raise cut_off(self.wire.url, error) from error
        except asyncio.CancelledError:
            raise
        except Error as error:
            if not answer.done():
                answer.set_exception(error)
        except Exception as error:
            if not answer.done():
                answer.set_exception(ConnectionLost(f"the stream of {self.wire.url} could not be read: {error}"))

    async def _drain(
        self,
        response: Response,
        parser: SSEParser,
        answer: asyncio.Future[Frame] | None,
        strays: list[Any] | None = None,
        id: RequestId | None = None,
    ) -> tuple[bool, bool]:
        """Take everything from one stream: was there anything, and did it break? One that broke may be resumed too."""
        has_messages = is_answered = is_broken = False
        try:
            stream = events(response, parser)
            async with contextlib.aclosing(stream):
                async for event in stream:
                    if event.event == "message":
                        has_messages = True
                        frames = self._take(event.data, id)
                        if strays is not None and len(strays) < _ODDITIES:
                            strays += [frame.id for frame in frames if frame.is_reply]
                    if answer is not None and answer.done():
                        is_answered = True
                        self.wire.let_go(response)
                        break
        except ConnectionLost:
            is_broken = True
            if not parser.last_event_id:
                raise
        finally:
            if not is_answered:
                response.close()
        return has_messages, is_broken

    async def _get(self, last_event_id: str | None, *, is_standing: bool = False) -> Response:
        headers: dict[str, str] = dict(self._with_session(self._headers) or {})
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        with in_background() if is_standing else contextlib.nullcontext():
            response = await self.wire.send("GET", None, headers, accept=STREAM)
        if response.status < 400 and is_stream(response):
            return response
        status = response.status
        refusal = await self.wire.refusal(response)
        self._judge(status, refusal)
        if isinstance(refusal, UnexpectedStatus):
            raise refusal
        raise UnexpectedStatus(f"{self.wire.url} answered {status} to GET", status=status)

    # --- the standing stream -----------------------------------------------------------------------------------------

    async def _stand(self) -> None:
        """Hold the GET stream open for as long as the session lasts."""
        last_event_id, failures, was_open = "", 0, False
        retry: int | None = None
        while self._over is None:
            parser = SSEParser(self.wire.max_bytes, last_event_id=last_event_id)
            parser.retry = retry
            try:
                response = await self._get(last_event_id, is_standing=True)
                failures = 0
                self._standing.set()
                if was_open and not last_event_id:
                    self._inbox.gap()  # nothing to resume from: messages may have been missed
                was_open = True
                await self._drain(response, parser, None)
            except (UnexpectedStatus, Unauthorized) as refusal:
                if refusal.status < 500 and refusal.status not in _PASSING:
                    self._standing.set()
                    return  # this server has no such stream, or not for us
                # One that is there, and says "not now", is not left alone for as long as one that is not.
                failures = failures + 1 if refusal.status != 503 else min(failures + 1, 2)
            except (TransportError, ProtocolError):
                failures += 1
            last_event_id, retry = parser.last_event_id or last_event_id, parser.retry
            pause = _pause(parser) if not failures else _PAUSES[min(failures, len(_PAUSES)) - 1]
            await asyncio.sleep(pause)

    async def settled(self) -> None:
        """Wait for the standing stream; not long, since some servers never answer for it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                await self._standing.wait()

    def _take(self, data: bytes, id: RequestId | None) -> list[Frame]:
        """Route one message. `id` is the request on whose stream it came; None for the standing stream."""
        if self._tap is not None:
            self._tap("in", data)
        frames = [read_frame(part) for part in split_batch(data)]
        for frame in frames:
            if frame.is_call:
                self._inbox.asked(frame, id)
            elif frame.is_notice:
                self._inbox.notice(frame, id)
            else:
                answer: Any = self._pending.get(frame.id) if isinstance(frame.id, (int, str)) else None
                if answer is None:
                    self._odd.append(f"answered id {str(frame.id)[:80]!r}, which is not waiting")
                elif not answer.done():
                    answer.set_result(frame)
        return frames

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self, error: Error) -> None:
        """The session is gone. Running requests may still be answered: see `finish`."""
        if self._over is None:
            self._over = error
            self._inbox.lost(error)

    async def finish(self) -> None:
        """Wait for the requests under way: each gets its own answer or refusal, and has its own deadline."""
        while self._pending:
            self._idle.clear()
            await self._idle.wait()

    def _loss(self, *, sent: bool) -> ConnectionLost:
        lost = ConnectionLost(str(self._over), cause_text=getattr(self._over, "cause_text", ""))
        lost.sent = sent
        return lost

    async def close(self) -> None:
        is_known = self._over is None
        self._over = self._over or ConnectionLost("the connection was closed")
        try:
            tasks = [task for task in self._tasks if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            for answer in self._pending.values():
                if not answer.done():
                    answer.set_exception(self._loss(sent=True))
            if is_known and self.session_id is not None:
                with contextlib.suppress(TransportError, ProtocolError, TimeoutError):
                    async with asyncio.timeout(_DELETE_SECONDS):
                        with in_background():
                            response = await self.wire.send("DELETE", None, self._with_session(self._headers))
                        response.close()
        finally:
            await self.wire.close()

    def oddities(self) -> str:
        return "; it " + ", and ".join(dict.fromkeys(self._odd)) if self._odd else ""

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def __repr__(self) -> str:
        return f"<SessionLink to {excerpt(self.wire.url.encode())}>"


def _stray(id: RequestId, strays: list[Any]) -> RemoteProtocolError | None:
    """A stream that ended with replies, and none of them ours."""
    if not strays:
        return None
    ids = ", ".join(repr(stray)[:80] for stray in strays)
    return RemoteProtocolError(CODE_INVALID_REQUEST, f"the reply has the id {ids}, the request had {id!r}")


def _pause(parser: SSEParser) -> float:
    return _RETRY if parser.retry is None else min(max(parser.retry / 1000, _MIN_RETRY), _MAX_RETRY)
