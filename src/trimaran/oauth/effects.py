"""The effects of a flow: fetch a URL, get the redirect URI, send a person to a page, call a function of the program.

A flow is a plain generator. It yields one of these and is sent the outcome; its driver (see
`trimaran.transports.http_auth`) does the I/O. So a test drives a flow with a list of replies, and any HTTP client can run it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

T = TypeVar("T")

MAX_DOCUMENT = 1024 * 1024


class HttpRequest(Struct, frozen=True, kw_only=True):
    """Fetch this, and send back an `HttpReply`.

    `step` is its purpose, in the words of an error message: "protected resource metadata", "token request".
    A redirect is followed only for GET, and only to a URL that could be fetched directly.
    """

    step: str
    url: str
    method: str = "GET"
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    max_bytes: int = MAX_DOCUMENT
    server_url: str = ""
    """The MCP server that this request is for. A discovered URL on that server's origin is trusted like the server."""

    def __repr__(self) -> str:
        return f"<HttpRequest {self.method} {self.url.partition('?')[0]} for the {self.step}>"


class HttpReply(Struct, frozen=True):
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str = ""
    """The final URL, after redirects."""

    def __repr__(self) -> str:
        return f"<HttpReply {self.status}, {len(self.body)} bytes>"


class Redirect(Struct, frozen=True):
    """Get the redirect URI and begin to listen there. Sent back: the URI."""


class Browse(Struct, frozen=True):
    """Send a person to `url` and wait until the browser comes back. Sent back: the whole URL it came back with.

    A request with another `state` is not an answer: the listener goes on waiting (R253).
    """

    url: str
    state: str
    redirect_uri: str

    def __repr__(self) -> str:
        return f"<Browse {self.url.partition('?')[0]}>"


class CallUser(Struct, frozen=True):
    """Call a function of the program, sync or async. Sent back: its result."""

    function: Callable[[], object]
    what: str
    """The name of the result, in the words of an error message."""


Effect: TypeAlias = HttpRequest | Redirect | Browse | CallUser
# The value sent back depends on the effect (an HttpReply, a redirect URI, a text), which a generator's type cannot express.
Flow: TypeAlias = Generator[Effect, Any, T]
