"""Bounds the memory of request bodies that are still arriving, over all connections of an endpoint.

One body is bounded by `max_body_bytes`. Many connections that each send most of a body and then stop would still take
connections times that limit. So the endpoint counts the bytes of every unfinished body. When the sum exceeds
`max_incoming_body_bytes`, it refuses the body that began first: a peer that holds memory on purpose holds it long, and a
caller that sends at the speed of its link gets through. A body that arrives with its head, as nearly every call does,
is never counted.

Not thread-safe: one event loop uses it.
"""

from __future__ import annotations

from typing import Final, Protocol, final

from trimaran.errors import ProtocolError
from trimaran.outage_log import Outage
from trimaran.server.handlers import logger

_REFUSAL: Final = "too many request bodies are arriving at once, and this one took the longest; send it again later"


class IncomingBody(Protocol):
    """The receiver of one body."""

    def refuse_body(self, error: ProtocolError) -> None:
        """Drop the bytes, answer with the error, and read no more of the request."""
        ...


@final
class UnfinishedBodies:
    """Counts the bytes of unfinished bodies, and refuses the oldest when they are too many.

    Args:
        limit: Bytes of all unfinished bodies together.
        max_body: Bytes of the largest body, which always fits alone.
    """

    def __init__(self, limit: int, max_body: int) -> None:
        self._limit = max(limit, max_body)
        self._sizes: dict[IncomingBody, int] = {}
        """The body that began first comes first."""
        self._total = 0
        self._overflow = Outage(logger, "request bodies that are still arriving fit into memory again")

    def count(self, body: IncomingBody, size: int) -> None:
        """Set the bytes of an unfinished body."""
        self._total += size - self._sizes.get(body, 0)
        self._sizes[body] = size
        if self._total <= self._limit:
            self._overflow.succeeded()
            return
        self._overflow.failed(
            f"request bodies that are still arriving take more than {self._limit} bytes (max_incoming_body_bytes): "
            "the oldest are refused with 503"
        )
        while self._total > self._limit:
            oldest = next(iter(self._sizes))
            self.remove(oldest)
            oldest.refuse_body(ProtocolError.internal_error(_REFUSAL, status=503))

    def remove(self, body: IncomingBody) -> None:
        """Forget a body: it is complete, or its request has ended."""
        self._total -= self._sizes.pop(body, 0)
