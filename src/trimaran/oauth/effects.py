"""What a flow asks of the world: to fetch, to know where a browser would come back to, and to send a person there.

A flow is a plain generator. It yields one of these and is sent what came of it; whoever drives it (see
`trimaran.transports.http_auth`) does the I/O. So every flow can be tested by a list of replies, and run over anything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

__all__ = ["Browse", "CallUser", "Flow", "HttpReply", "HttpRequest", "Redirect"]

T = TypeVar("T")

MAX_DOCUMENT = 1024 * 1024


class HttpRequest(Struct, frozen=True, kw_only=True):
    """Fetch this, and send back an `HttpReply`.

    `step` says what for, in the words of an error message: "protected resource metadata", "token request".
    A redirect is followed only for GET, and only to where the first request might have gone.
    """

    step: str
    url: str
    method: str = "GET"
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    max_bytes: int = MAX_DOCUMENT
    server_url: str = ""
    """The MCP server on whose behalf: a discovered URL of its own origin needs no other trust than it has already."""

    def __repr__(self) -> str:
        return f"<HttpRequest {self.method} {self.url.partition('?')[0]} for the {self.step}>"


class HttpReply(Struct, frozen=True):
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str = ""
    """Where it came from in the end, after redirects."""

    def __repr__(self) -> str:
        return f"<HttpReply {self.status}, {len(self.body)} bytes>"


class Redirect(Struct, frozen=True):
    """Where would a browser come back to? Sent back: the redirect URI, with something listening there by now."""


class Browse(Struct, frozen=True):
    """Send a person to `url` and wait until the browser comes back; sent back: the whole URL it came back with.

    Whatever came back with another `state` is not an answer: whoever listens goes on waiting (R253).
    """

    url: str
    state: str
    redirect_uri: str

    def __repr__(self) -> str:
        return f"<Browse {self.url.partition('?')[0]}>"


class CallUser(Struct, frozen=True):
    """Call a function of the program's, sync or async; sent back: what it gave."""

    function: Callable[[], object]
    what: str
    """What it gives, in the words of an error message."""


Effect: TypeAlias = "HttpRequest | Redirect | Browse | CallUser"
# What is sent back depends on the effect, which a generator's type cannot say: an HttpReply, a redirect URI, a text, ...
Flow: TypeAlias = Generator[Effect, Any, T]
