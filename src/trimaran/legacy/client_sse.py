"""The client's side of HTTP+SSE (2024-11-05): one stream to listen on, one address to post to.

The server announces the address as the first event of the stream. It must lie on the stream's own origin: credentials and
arguments are posted there.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, final
from urllib.parse import urljoin

from trimaran.client.link import ExitReport, Owner
from trimaran.errors import ConnectFailed, ConnectionLost, Error, TimedOut, TransportError, UnexpectedStatus
from trimaran.protocol.read_reply import Frame
from trimaran.protocol.sse import SSEParser

from ..transports.http1_client import Response
from ..transports.http_client import STREAM, HttpWire, cut_off, events, is_stream, origin_of

_ENDPOINT_SECONDS: Final = 10.0


@final
class SseChannel:
    def __init__(self, wire: HttpWire) -> None:
        self._wire = wire
        self._reader: asyncio.Task[None] | None = None
        self._endpoint: str | None = None
        self._announced = asyncio.Event()
        self._failure: Error | None = None
        self._is_closed = False

    async def open(self, owner: Owner) -> None:
        self._wire.open()
        response = await self._wire.send("GET", None, None, accept=STREAM)
        if response.status >= 400:
            refusal = await self._wire.refusal(response)
            raise (
                refusal
                if isinstance(refusal, TransportError)
                else UnexpectedStatus(f"{self._wire.url} answered {response.status} to GET", status=response.status)
            )
        if not is_stream(response):
            kind = response.headers.get("content-type", "no content type")
            response.close()
            raise UnexpectedStatus(
                f"{self._wire.url} is not an MCP endpoint: it answers {kind[:80]}, not {STREAM}", status=response.status
            )
        self._reader = asyncio.ensure_future(self._read(response, owner))
        try:
            async with asyncio.timeout(_ENDPOINT_SECONDS):
                await self._announced.wait()
        except TimeoutError:
            await self.close()
            raise TimedOut(f"{self._wire.url} opened a stream but announced no endpoint on it") from None
        except BaseException:
            await self.close()
            raise
        if self._failure is not None:
            await self.close()
            raise self._failure

    async def _read(self, response: Response, owner: Owner) -> None:
        error: Error | None = None
        try:
            stream = events(response, SSEParser(self._wire.max_bytes))
            async with contextlib.aclosing(stream):
                async for event in stream:
                    if event.event == "endpoint":
                        self._announce(event.data)
                    elif event.event == "message":
                        owner.receive(event.data)
            error = cut_off(self._wire.url)
        except Error as failure:
            error = failure if isinstance(failure, ConnectionLost) else ConnectionLost(str(failure))
        finally:
            response.close()
        if not self._announced.is_set():
            self._failure = ConnectFailed(
                f"{self._wire.url} is not an MCP endpoint: its stream ended with nothing announced"
            )
            self._announced.set()
        elif not self._is_closed:
            owner.lost(error)

    def _announce(self, data: bytes) -> None:
        text = data.decode("utf-8", "replace").strip()
        try:
            endpoint = urljoin(self._wire.url, text)
            is_elsewhere = origin_of(endpoint) != origin_of(self._wire.url)
        except ValueError as error:
            self._failure = ConnectFailed(f"{self._wire.url} announced {text[:200]!r}, which is not a URL: {error}")
            self._announced.set()
            return
        if is_elsewhere:
            self._failure = ConnectFailed(
                f"{self._wire.url} wants messages posted to {endpoint[:200]}, which is another origin; refused"
            )
        else:
            self._endpoint = endpoint
        self._announced.set()

    async def send(self, message: bytes) -> None:
        if self._endpoint is None or self._reader is None or self._reader.done():
            lost = cut_off(self._wire.url)
            lost.sent = False
            raise lost
        response = await self._wire.send("POST", message, None, url=self._endpoint)
        if response.status >= 400:
            refusal = await self._wire.refusal(response)
            raise (refusal.failure() or AssertionError) if isinstance(refusal, Frame) else refusal
        await self._wire.error_body(response)

    async def close(self) -> None:
        self._is_closed = True
        reader = self._reader
        try:
            if reader is not None and reader is not asyncio.current_task():
                reader.cancel()
                await asyncio.wait((reader,))
        finally:
            await self._wire.close()

    def describe(self) -> str:
        return self._wire.url

    def postmortem(self) -> ExitReport:
        return ExitReport()
