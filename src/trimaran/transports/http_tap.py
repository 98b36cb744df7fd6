"""Show the HTTP of a client to its tap: each request, its status and headers, and how its body arrived.

A tap of `connect(tap=...)` sees JSON messages. One that also has a method `on_http` sees the requests that carry them,
those without a message too: a standing GET stream, a refused login, a redirect. Clients without such a tap pay nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol, final

from .http1_client import Response


class HttpExchange(Protocol):
    """The listener for one HTTP request. The methods must be quick and must not raise."""

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of the response is here; header names are in lower case."""
        ...

    def received(self, piece: bytes) -> None:
        """A piece of the body is here."""
        ...

    def ended(self, failure: str | None = None) -> None:
        """The response is complete, was given up, or failed. May be called more than once; the first call counts."""
        ...


class HttpTap(Protocol):
    def __call__(self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None, /) -> HttpExchange:
        """A request is about to be sent. Headers hold credentials: whoever shows them masks them."""
        ...


@final
class TappedResponse:
    """A response whose body an exchange hears of."""

    def __init__(self, response: Response, exchange: HttpExchange) -> None:
        self._response = response
        self._exchange = exchange
        self.url: str = response.url
        self.status: int = response.status
        self.reason: str = response.reason
        self.headers: Mapping[str, str] = response.headers
        self.length: int | None = response.length
        exchange.answered(response.status, response.headers)

    @property
    def is_complete(self) -> bool:
        return self._response.is_complete

    async def read(self) -> bytes:
        try:
            body = await self._response.read()
        except BaseException as error:
            self._exchange.ended(str(error) or type(error).__name__)
            raise
        self._exchange.received(body)
        self._exchange.ended()
        return body

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            async for piece in self._response.pieces():
                self._exchange.received(piece)
                yield piece
        except Exception as error:
            self._exchange.ended(str(error) or type(error).__name__)
            raise
        self._exchange.ended()

    def close(self) -> None:
        self._exchange.ended()
        self._response.close()
