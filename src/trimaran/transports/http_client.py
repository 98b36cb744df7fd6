"""The client's side of HTTP: `HttpWire` makes requests, `HttpLink` carries modern ones.

One place follows redirects (to the same origin only: a POST that goes elsewhere would take credentials and arguments
along), refreshes credentials once on 401, and bounds what is read. No compression or retry happens behind a caller's back.
Requests travel over `http1_client.py`, or over aiohttp with TLS or a proxy. aiohttp is imported only then, and its errors are
mapped here.

The answer to a request is one JSON body, or an event stream that ends with the reply. Leaving the stream is how a modern
request is cancelled, so a request whose caller gives up closes its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import urljoin, urlsplit

from msgspec import UNSET

from trimaran.client.fairness import FairTurn
from trimaran.client.link import Inbox, SharedHeaders
from trimaran.client.options import Tap
from trimaran.errors import (
    CODE_INVALID_REQUEST,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    ProtocolError,
    RemoteProtocolError,
    Unauthorized,
    UnexpectedStatus,
)
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.read_reply import Frame, excerpt, read_frame
from trimaran.protocol.sse import SseEvent, SSEParser

from .failure_reasons import connection_hint, connection_reason
from .http1_client import Line, PlainPool, PlainResponse, Response, ResponseReceiver
from .http_auth import NOTHING, HttpAuth, SentCredentials
from .http_tap import HttpTap, TappedResponse
from .name_lookup import Resolver
from .proxies import bare_proxy, proxy_for

if TYPE_CHECKING:
    import aiohttp

JSON_AND_STREAM: Final = "application/json, text/event-stream"
STREAM: Final = "text/event-stream"

_MAX_REDIRECTS: Final = 5
_SECRET_HEADERS: Final = frozenset({"authorization", "x-api-key", "cookie", "proxy-authorization"})
_CHANCES: Final = 5  # for other credentials, of one request: a nonce, a refresh, a login, a step up, and one to spare
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_ERROR_BODY: Final = 64 * 1024  # enough of a page to recognise a JSON-RPC error in it
_LINGER: Final = 1.0  # seconds for a stream to end after its reply, so that its connection can be used again
_CONNECT_SECONDS: Final = 15.0
_ODDITIES: Final = 3
_MAX_STARTS: Final = 256
_LARGE: Final = 512 * 1024
_ONE_READ: Final = 256 * 1024  # bytes; the most that asyncio and uvloop hand over at once
_SLICE: Final = 16 * 1024  # of a stream, read at once: some milliseconds where every byte is a line


def origin_of(url: str) -> tuple[str, str, int | None]:
    """The origin of a URL: scheme, host and port."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    port = parts.port or {"http": 80, "https": 443}.get(scheme)
    return scheme, (parts.hostname or "").lower(), port


def _failure_in(body: bytes) -> ProtocolError | None:
    """The JSON-RPC error that a body holds; None if it is something else."""
    try:
        return read_frame(body).failure()
    except ProtocolError:
        return None


def _option_for(www_authenticate: str) -> str:
    """The option of `connect` that a 401 asks for."""
    from trimaran.oauth.challenges import key_header, parse_www_authenticate  # few ever need it

    challenges = parse_www_authenticate(www_authenticate)
    header = next((name for challenge in challenges if (name := key_header(challenge)) is not None), None)
    if header is not None:
        return f'headers={{"{header}": ...}}'
    is_basic = [challenge.scheme for challenge in challenges] == ["basic"]
    return 'headers={"Authorization": "Basic ..."}' if is_basic else "auth=..."


@final
class HttpWire:
    """One target and one pool of connections to it."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: HttpAuth | None = None,
        ssl: Any = None,
        max_bytes: int,
        cookies: bool = False,
        tap: Tap | None = None,
    ) -> None:
        self.url: str = url
        self._tap = tap
        self._on_http: HttpTap | None = getattr(tap, "on_http", None)
        self.max_bytes = max_bytes
        self._auth = auth
        self._headers = {"Content-Type": "application/json", "Accept": JSON_AND_STREAM, "Accept-Encoding": "identity"}
        self._headers.update(headers or {})
        self._secrets = [value for name, value in (headers or {}).items() if name.lower() in _SECRET_HEADERS]
        self._ssl = ssl
        self._keeps_cookies = cookies
        self._pool: PlainPool | _AioPool | None = None
        self._lingering: set[Response] = set()
        self._starts: dict[SharedHeaders, bytes] = {}
        """The starts of requests to the target, up to the length of their bodies."""

    def open(self) -> None:
        """Make the pool; nothing is sent."""
        if self._pool is not None:
            return
        proxy = proxy_for(self.url)
        if proxy is None and self.url.lower().startswith("http://"):
            self._pool = PlainPool(self.url, connect_seconds=_CONNECT_SECONDS, cookies=self._keeps_cookies)
        else:
            self._pool = _AioPool(self.url, self._ssl, proxy, cookies=self._keeps_cookies)

    async def send(
        self,
        verb: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        *,
        url: str | None = None,
        accept: str | None = None,
    ) -> Response:
        """Make a request; its response, head only. The caller reads it and closes it.

        Raises:
            ConnectFailed: it cannot have been sent.
            ConnectionLost: it was sent, and the connection ended before an answer began.
            Unauthorized: 401 or 403, also after fresh credentials where there are any.
        """
        if self._auth is None and url is None:
            # The usual case, in one step: whatever is odd about the answer is looked at below.
            response = await self._once(verb, body, headers, self.url, accept, NOTHING)
            return response if response.status < 300 else await self.reconsider(response, verb, body, headers, accept)
        response, sent = await self._follow(verb, body, headers, url, accept)
        return await self._authorize(response, sent, verb, body, headers, url, accept)

    def post_again(
        self, body: bytes, headers: Mapping[str, str] | None
    ) -> tuple[Line, asyncio.Future[PlainResponse]] | None:
        """Send a POST to the target at once, with headers as a request before had them; see `PlainPool.post`.

        None if that cannot be: use `send`. An answer other than success is for `reconsider`.
        """
        pool = self._pool
        if type(headers) is not SharedHeaders or type(pool) is not PlainPool:
            return None
        start = self._starts.get(headers)
        if start is None:
            self._prepare(headers)
            return None
        return pool.post(self.url, start, body)

    def post_for(self, receiver: ResponseReceiver, body: bytes, headers: SharedHeaders) -> Line | None:
        """The same for an answer that no task waits for: the connection that it comes on."""
        start, pool = self._starts.get(headers), self._pool
        if start is None:
            self._prepare(headers)
            start = self._starts.get(headers)
        return None if start is None or type(pool) is not PlainPool else pool.post_for(receiver, self.url, start, body)

    def _prepare(self, headers: SharedHeaders) -> None:
        """Keep the start of a request with these headers, for the next one."""
        if self._auth is not None or not isinstance(self._pool, PlainPool):
            return
        start = self._pool.prepare(self.url, {**self._headers, **headers})
        if start is not None:
            if len(self._starts) >= _MAX_STARTS:
                self._starts.clear()
            self._starts[headers] = start

    async def reconsider(
        self,
        response: Response,
        verb: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        accept: str | None = None,
    ) -> Response:
        """The outcome of a request to the target that failed, if there are no credentials."""
        sent = NOTHING
        if response.status in _REDIRECTS:
            self._redirected(response, verb, None)
            response, sent = await self._follow(verb, body, headers, None, accept)
        return await self._authorize(response, sent, verb, body, headers, None, accept)

    async def _authorize(
        self,
        response: Response,
        sent: SentCredentials,
        verb: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        url: str | None,
        accept: str | None,
    ) -> Response:
        """Send a request again with other credentials, while it is refused for want of them."""
        auth = self._auth
        for number in range(_CHANCES + 1):
            if response.status not in (401, 403):
                break
            refusal = await self._unauthorized(response, sent)
            if auth is None or number == _CHANCES:
                raise refusal
            try:
                is_worth_another = await auth.refused(response.status, response.headers, sent, response.url, number)
            except Unauthorized as error:
                if error.data is None:
                    error.data = refusal.data
                raise
            if not is_worth_another:
                raise refusal
            response, sent = await self._follow(verb, body, headers, url, accept)
        if auth is not None:
            auth.accepted(response.headers, sent, response.url)
        return response

    async def _follow(
        self, verb: str, body: bytes | None, headers: Mapping[str, str] | None, url: str | None, accept: str | None
    ) -> tuple[Response, SentCredentials]:
        target = self.url if url is None else url
        sent = NOTHING
        for _ in range(_MAX_REDIRECTS + 1):
            if self._auth is not None:
                sent = await self._auth.credentials(verb, target)
            response = await self._once(verb, body, headers, target, accept, sent)
            if response.status not in _REDIRECTS:
                return response, sent
            target = self._redirected(response, verb, url)
        raise ConnectFailed(f"{self.url} redirects more than {_MAX_REDIRECTS} times")

    def _redirected(self, response: Response, verb: str, url: str | None) -> str:
        """Where a redirect leads. The target itself moves there, unless the request was for another URL."""
        here = response.url
        location = response.headers.get("location", "")
        response.close()
        try:
            there = urljoin(here, location)
            is_elsewhere = origin_of(there) != origin_of(here)
        except ValueError as error:
            raise ConnectFailed(f"{here} redirects to {location[:200]!r}, which is not a URL: {error}") from None
        if is_elsewhere:
            raise ConnectFailed(
                f"{here} redirects to {there}, which is another origin; if that is right, connect to it directly"
            )
        if response.status == 303:
            raise ConnectFailed(f"{here} answers a {verb} with 303 See Other: {there}; that is not an MCP endpoint")
        if url is None:
            self.url = there
            self._starts.clear()
        return there

    async def _once(
        self,
        verb: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        target: str,
        accept: str | None,
        sent: SentCredentials,
    ) -> Response:
        pool = self._pool
        if pool is None:
            lost = ConnectionLost("the connection was closed")
            lost.sent = False
            raise lost
        own = {**self._headers, **headers} if headers else dict(self._headers)
        if accept is not None:
            own["Accept"] = accept
        if body is None:
            del own["Content-Type"]
        if sent.headers:
            own.update(sent.headers)
        if self._on_http is not None:
            return await self._request_tapped(self._on_http, pool, verb, target, own, body)
        return await pool.request(verb, target, own, body)

    async def _request_tapped(
        self,
        on_http: HttpTap,
        pool: PlainPool | _AioPool,
        verb: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Response:
        exchange = on_http(verb, target, headers, body)
        try:
            return TappedResponse(await pool.request(verb, target, headers, body), exchange)
        except BaseException as error:
            exchange.ended(str(error) or type(error).__name__)
            raise

    async def _unauthorized(self, response: Response, sent: SentCredentials) -> Unauthorized:
        challenge = response.headers.get("www-authenticate", "")
        body = await self.error_body(response)
        for value in (*sent.headers.values(), *self._secrets):
            # Some servers quote the refused credentials.
            for secret in (value, value.partition(" ")[2]):
                body = body.replace(secret.encode(), b"***") if secret else body
        wants = "does not allow this"
        if response.status == 401:
            wants = "wants credentials" if self._auth is None else "refuses the credentials it was given"
        failure = _failure_in(body)
        reason = excerpt(body if failure is None else failure.message.encode())
        text = f"{self.url} {wants} ({response.status}): {reason}"
        if response.status == 401 and self._auth is None:
            text += f"; give {_option_for(challenge)}"
        return Unauthorized(
            text,
            status=response.status,
            www_authenticate=challenge,
            code=None if failure is None else failure.code,
            data=None if failure is None else failure.data,
        )

    async def error_body(self, response: Response) -> bytes:
        """The start of a body that is not an answer; the response is closed."""
        try:
            body = b""
            async with asyncio.timeout(2.0):
                async for chunk in response.pieces():
                    body += chunk
                    if len(body) > _ERROR_BODY:
                        break
            return body
        except Exception:
            return b""
        finally:
            response.close()

    async def refusal(self, response: Response) -> Frame | UnexpectedStatus:
        """The error of a response with an error status: a JSON-RPC error in its body, under any status, or the status."""
        body = await self.error_body(response)
        try:
            frame = read_frame(body)
        except ProtocolError:
            frame = None
        if frame is not None and frame.is_reply and frame.failure() is not None:
            if self._tap is not None:
                self._tap("in", body)
            return frame
        hint = ""
        if response.status in (429, 503) and "retry-after" in response.headers:
            hint = f"; it asks to wait {response.headers['retry-after'][:40]} s"
        reason = f" {response.reason}" if response.reason else ""
        unexpected = UnexpectedStatus(
            f"{self.url} answered {response.status}{reason}: {excerpt(body)}{hint}", status=response.status
        )
        unexpected.body = body.decode("utf-8", "replace")
        return unexpected

    def let_go(self, response: Response) -> None:
        """The reply is here and the stream is about to end: let it, so that its connection can be used again."""
        if not response.is_complete:
            self._lingering.add(response)
            asyncio.get_running_loop().call_later(_LINGER, self._cut, response)

    def _cut(self, response: Response) -> None:
        if response in self._lingering:
            self._lingering.discard(response)
            response.close()

    async def close(self) -> None:
        for response in tuple(self._lingering):
            self._cut(response)
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()


@final
class _AioPool:
    """Requests through aiohttp: TLS and proxies."""

    def __init__(self, url: str, ssl: Any, proxy: str | None, *, cookies: bool) -> None:
        import aiohttp

        self._proxy = proxy
        resolver: Any = Resolver()  # duck-typed: aiohttp is imported late, and its base class with it
        options: dict[str, Any] = {} if ssl is None else {"ssl": ssl}
        self._session = aiohttp.ClientSession(
            # No limit: a thousand calls at once are a thousand requests, and listen streams must not starve them.
            connector=aiohttp.TCPConnector(limit=0, resolver=resolver, **options),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            auto_decompress=False,
            # A balancer in front of sessions may set one; without sessions there is nothing to stick to.
            cookie_jar=None if cookies else aiohttp.DummyCookieJar(),
            read_bufsize=256 * 1024,
        )

    async def request(self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        import aiohttp

        # aiohttp warns of large bodies given as bytes; it reads a file of them in pieces.
        data: Any = body if body is None or len(body) < _LARGE else io.BytesIO(body)
        try:
            response = await self._session.request(
                verb, url, data=data, headers=headers, allow_redirects=False, proxy=self._proxy
            )
        except aiohttp.ClientConnectorCertificateError as error:
            raise ConnectFailed(
                f"the certificate of {url} is not trusted: {error.certificate_error}; "
                "give the right authority with ssl=ssl.create_default_context(cafile=...)"
            ) from error
        except aiohttp.ClientProxyConnectionError as error:
            raise ConnectFailed(f"no connection to the proxy {bare_proxy(self._proxy)}: {_reason(error)}") from error
        except aiohttp.ClientHttpProxyError as error:
            raise ConnectFailed(
                f"the proxy {bare_proxy(self._proxy)} refused to connect to {url}: {error.status} {error.message}"
            ) from error
        except aiohttp.ClientConnectorError as error:
            via = f" through the proxy {bare_proxy(self._proxy)}" if self._proxy else ""
            raise ConnectFailed(f"no connection to {url}{via}: {_reason(error)}{connection_hint(error)}") from error
        except aiohttp.ConnectionTimeoutError as error:
            raise ConnectFailed(f"no connection to {url} within {_CONNECT_SECONDS:g} s") from error
        except aiohttp.InvalidURL as error:
            raise ConfigError(f"{url!r} is not a URL that can be connected to") from error
        except aiohttp.ClientResponseError as error:
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, f"{url} sent an answer that is not HTTP: {error.message}"
            ) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise ConnectionLost(
                f"the connection to {url} ended before an answer came: {_reason(error)}", cause_text=_reason(error)
            ) from error
        except ValueError as error:
            raise ConfigError(f"the request to {url} cannot be made: {error}") from error
        return _AioResponse(response)

    async def close(self) -> None:
        await self._session.close()


@final
class _AioResponse:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.url = str(response.url)
        self.status = response.status
        self.reason = response.reason or ""
        values: dict[str, str] = {}
        for name, value in response.headers.items():
            name = name.lower()
            values[name] = f"{values[name]}, {value}" if name in values else value
        self.headers: Mapping[str, str] = values
        self.length = response.content_length

    @property
    def is_complete(self) -> bool:
        return self._response.connection is None

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        import aiohttp

        try:
            async for piece in self._response.content.iter_any():
                yield piece
        except (aiohttp.ClientError, ConnectionError) as error:
            raise cut_off(self.url, error) from error

    def close(self) -> None:
        self._response.close()


def _reason(error: BaseException) -> str:
    return connection_reason(error) or str(error) or type(error).__name__


def is_stream(response: Response) -> bool:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() == STREAM


async def read_body(response: Response, limit: int, url: str) -> bytes:
    """A whole body within the limit. The connection goes back to the pool.

    Raises:
        RemoteProtocolError: it is longer than the limit, or has an encoding that was not requested.
        ConnectionLost: it ended too early.
    """
    _check_coding(response, url)
    length = response.length
    if length is not None and length <= limit:
        return await response.read()
    if length is None:
        body = bytearray()
        async for chunk in response.pieces():
            body += chunk
            if len(body) > limit:
                break
        else:
            return bytes(body)
    message = f"{url} answered more than {limit} bytes; allow more with max_message_bytes"
    too_large = RemoteProtocolError(CODE_INVALID_REQUEST, message)
    too_large.kind = "output_too_large"
    raise too_large


def _check_coding(response: Response, url: str) -> None:
    """Nothing is unpacked here: a megabyte of zeros travels as one kilobyte."""
    coding = response.headers.get("content-encoding", "identity")
    if coding.strip().lower() not in ("identity", ""):
        raise RemoteProtocolError(CODE_INVALID_REQUEST, f"{url} sent a {coding[:40]} body, which was not asked for")


def cut_off(url: str, why: BaseException | str | None = None) -> ConnectionLost:
    """An answer that ended before it was whole. So does one that is empty: a server, or a proxy, that died behind its head."""
    reason = _reason(why) if isinstance(why, BaseException) else why
    return ConnectionLost(
        f"the answer of {url} broke off{f': {reason}' if reason else ''}", cause_text=reason or "the stream ended"
    )


async def events(response: Response, parser: SSEParser) -> AsyncGenerator[SseEvent, None]:
    """The events of a stream, until it ends; ConnectionLost if it breaks.

    Others have their turn in between, also where bytes come without a pause.
    """
    _check_coding(response, response.url)
    turn = FairTurn()
    async for chunk in response.pieces():
        for start in range(0, len(chunk), _SLICE):
            try:
                complete = parser.feed(chunk[start : start + _SLICE])
            except RemoteProtocolError as error:
                error.message += "; allow more with max_message_bytes"
                raise
            for event in complete:
                yield event
                if turn.is_over:
                    await asyncio.sleep(0)
                    turn.begin()
            if turn.is_over:
                await asyncio.sleep(0)
                turn.begin()


@final
class HttpLink:
    """2026-07-28 over HTTP: every request stands alone."""

    is_http = True

    def __init__(self, wire: HttpWire, inbox: Inbox, tap: Tap | None = None) -> None:
        self.wire = wire
        self._inbox = inbox
        self._tap = tap
        self._odd: deque[str] = deque(maxlen=_ODDITIES)
        self._under_way = 0
        self._idle = asyncio.Event()

    def post_for(self, receiver: ResponseReceiver, message: bytes, headers: SharedHeaders) -> Line | None:
        """Send a request that no task waits for; None if it has to be sent by `request`.

        The answer is not measured: one that came in one read is no larger than that.
        """
        if self._tap is not None or self.wire.max_bytes < _ONE_READ:
            return None
        line = self.wire.post_for(receiver, message, headers)
        self._under_way += line is not None
        return line

    def leave(self) -> None:
        """The answer to such a request is here, or `request` waits for it."""
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    async def request(
        self,
        id: RequestId,
        message: bytes,
        headers: Mapping[str, str] | None = None,
        sending: tuple[Line, asyncio.Future[PlainResponse]] | None = None,
    ) -> Frame:
        """Send a request, unless it was sent by `post_for`, and wait for its reply."""
        if self._tap is not None:
            self._tap("out", message)
        wire = self.wire
        self._under_way += 1
        try:
            sending = sending or wire.post_again(message, headers)
            if sending is None:
                response = await wire.send("POST", message, headers)
            else:
                line, answer = sending
                try:
                    response = await answer
                except asyncio.CancelledError:
                    line.give_up(answer)
                    raise
                if response.status >= 300:
                    response = await wire.reconsider(response, "POST", message, headers)
            try:
                body = response.take_json() if type(response) is PlainResponse else None
                if body is None or len(body) > wire.max_bytes:
                    return await self._read(id, response)
            except BaseException:
                response.close()
                raise
            return self._from_body(id, body, response)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def settled(self) -> None:
        """At once."""

    async def finish(self) -> None:
        """Wait for the requests under way; each has its own deadline."""
        while self._under_way:
            self._idle.clear()
            await self._idle.wait()

    async def _read(self, id: RequestId, response: Response) -> Frame:
        wire = self.wire
        if response.status >= 300:
            refusal = await wire.refusal(response)
            if not isinstance(refusal, Frame):
                raise refusal
            return refusal
        if is_stream(response):
            return await self._from_stream(id, response)
        body = await read_body(response, wire.max_bytes, wire.url)
        return self._from_body(id, body, response)

    def _from_body(self, id: RequestId, body: bytes, response: Response) -> Frame:
        if not body and response.status == 200:
            raise cut_off(self.wire.url, "it is empty")
        if self._tap is not None:
            self._tap("in", body)
        try:
            frame = read_frame(body)
        except ProtocolError as error:
            kind = response.headers.get("content-type", "no content type")
            error.message += f" (status {response.status}, {kind[:80]})"
            raise
        if frame.id == id and frame.method is UNSET and type(frame.id) is type(id):
            return frame  # as nearly always
        if not frame.is_reply:
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, f"a JSON-RPC reply was expected, and the body is {excerpt(body)}"
            )
        _claim(frame, id)
        return frame

    async def _from_stream(self, id: RequestId, response: Response) -> Frame:
        parser = SSEParser(self.wire.max_bytes)
        stream = events(response, parser)
        async with contextlib.aclosing(stream):
            async for event in stream:
                if self._tap is not None:
                    self._tap("in", event.data)
                frame = read_frame(event.data)
                if frame.is_reply:
                    _claim(frame, id)
                    self.wire.let_go(response)
                    return frame
                if frame.is_notice:
                    self._inbox.notice(frame, id)
                else:
                    self._odd.append("sent a request, which this era does not have")
        raise cut_off(self.wire.url)

    async def send(self, message: bytes, headers: Mapping[str, str] | None = None) -> None:
        if self._tap is not None:
            self._tap("out", message)
        response = await self.wire.send("POST", message, headers)
        if response.status >= 400:
            refusal = await self.wire.refusal(response)
            raise refusal.failure() or AssertionError if isinstance(refusal, Frame) else refusal
        await self.wire.error_body(response)

    async def close(self) -> None:
        await self.wire.close()

    def oddities(self) -> str:
        return "; it " + ", and ".join(dict.fromkeys(self._odd)) if self._odd else ""


def _claim(frame: Frame, id: RequestId) -> None:
    """Over HTTP the answer is where it belongs; an id that differs shows a server that mixes up its callers."""
    if frame.id == id and type(frame.id) is type(id):
        return
    if frame.id is None and frame.failure() is not None:
        return
    raise RemoteProtocolError(
        CODE_INVALID_REQUEST, f"the reply has the id {str(frame.id)[:80]!r}, the request had {id!r}"
    )
