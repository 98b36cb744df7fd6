"""Fetches the documents of a login from URLs that a server chose, and only from allowed addresses.

`Fetcher` performs the `HttpRequest`s of a flow. It checks the spelling of a URL first (`trimaran.oauth.urls`). Then it looks
up the name once, and connects to an address that passed the check: a name that resolves to something else a moment later
(DNS rebinding) gains nothing. With a proxy of the environment, the proxy resolves, and only the spelling is checked.

How far a request may reach:

    public      any address of the internet; the rule
    loopback    this machine: for an MCP server on this machine, or for a setting of the operator
    anywhere    the MCP server's own host, which is connected to anyway; everything, with `allow_private=True`

Redirects are followed for GET alone, and the reach of a request never grows on the way. Nothing is retried, decompressed or
kept: no cookies, and no connections, since a connection for one server must not carry a request for another.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import socket
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from trimaran.errors import AuthorizationFailed, Closed, UnsafeUrl
from trimaran.oauth.effects import HttpReply, HttpRequest
from trimaran.oauth.urls import bare_url, check_url, is_loopback_host, is_public_address, is_same_host

from .failure_reasons import connection_hint, connection_reason
from .name_lookup import describe, look_up
from .proxies import bare_proxy, proxy_for

if TYPE_CHECKING:
    import aiohttp

_MAX_REDIRECTS: Final = 3  # discovery documents move from a bare domain to www and back, hardly further
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PERSONAL: Final = frozenset({"authorization", "cookie", "dpop", "proxy-authorization"})
_READ_BYTES: Final = 64 * 1024
# Heads, chunk headers and interim answers are not part of a document, and aiohttp bounds them one by one only. Eight bytes for
# one of the document let every honest way of sending it pass: a chunk of one byte takes five more.
_MAX_FRAMING_BYTES: Final = 128 * 1024
_MAX_FRAMING_RATIO: Final = 8

Reach: TypeAlias = Literal["public", "loopback", "anywhere"]


class _Destination(Struct, frozen=True):
    """The purpose of the next connection."""

    step: str = "request"
    url: str = ""
    reach: Reach = "public"


# The resolver reads it: aiohttp calls it in the task of the request. The default is the strictest.
_errand: ContextVar[_Destination] = ContextVar("_errand", default=_Destination())  # noqa: B039 - frozen


@final
class Fetcher:
    """Makes guarded requests. Any number of tasks may share one; its maker closes it.

    Args:
        allow_private: let requests go to private addresses and to this machine as well.
        ssl: an `ssl.SSLContext` to trust other authorities.
        timeout: seconds for a request as a whole, redirects included.
    """

    def __init__(self, *, allow_private: bool = False, ssl: Any = None, timeout: float = 20.0) -> None:
        self._allow_private = allow_private
        self._ssl = ssl
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def __call__(self, request: HttpRequest) -> HttpReply:
        """Fetch the whole response, of any status.

        Raises:
            UnsafeUrl: it, or where it redirects to, must not be fetched.
            AuthorizationFailed: no whole answer came.
        """
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(request)
        except TimeoutError:
            raise _failed(
                request.step, request.url, f"no whole answer from {bare_url(request.url)} within {self._timeout:g} s"
            ) from None

    async def close(self) -> None:
        """End running requests. Idempotent."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _follow(self, request: HttpRequest) -> HttpReply:
        step, url, headers = request.step, request.url, request.headers
        is_own = is_same_host(url, request.server_url)
        allow_loopback = is_own or not request.server_url
        for _ in range(_MAX_REDIRECTS + 1):
            allow_private = self._allow_private or is_own
            check_url(url, step=step, allow_loopback=allow_loopback, allow_private=allow_private)
            reach: Reach = "anywhere" if allow_private else "public"
            if is_loopback_host(urlsplit(url).hostname or ""):
                reach = "loopback"
            meter = _Meter(_MAX_FRAMING_BYTES + (1 + _MAX_FRAMING_RATIO) * request.max_bytes)
            try:
                reply = await self._once(request, _Destination(step, url, reach), headers, meter)
            except AuthorizationFailed:
                if not meter.is_over:
                    raise
                text = f"{bare_url(url)} answered more than {meter.limit} bytes, most of them framing"
                raise _failed(step, url, text) from None
            if reply.status not in _REDIRECTS:
                return reply
            there = _target(request, url, reply)
            allow_loopback = reach == "loopback"
            is_own = is_own and is_same_host(there, request.server_url)
            if _origin(there) != _origin(url):
                headers = {name: value for name, value in headers.items() if name.lower() not in _PERSONAL}
            url = there
        raise _failed(step, request.url, f"{bare_url(request.url)} redirects more than {_MAX_REDIRECTS} times")

    async def _once(
        self, request: HttpRequest, errand: _Destination, headers: Mapping[str, str], meter: _Meter
    ) -> HttpReply:
        await load_http_library()
        import aiohttp
        from yarl import URL

        session = self._open()
        step, url = errand.step, errand.url
        where = bare_url(url)
        proxy = proxy_for(url)
        via = f" through the proxy {bare_proxy(proxy)}" if proxy else ""
        if proxy is not None:
            errand = _Destination(step, url, "anywhere")  # the proxy is looked up here
        token, meter_token = _errand.set(errand), _meter.set(meter)
        try:
            async with session.request(
                request.method,
                URL(url, encoded=url.isascii()),
                headers=_outgoing(headers),
                data=request.body,
                allow_redirects=False,
                proxy=proxy,
            ) as response:
                return await _read(response, request, url)
        except aiohttp.ClientConnectorCertificateError as error:
            raise _failed(
                step,
                url,
                f"the certificate of {where} is not trusted: {error.certificate_error}; "
                "give the right authority with ssl=ssl.create_default_context(cafile=...)",
            ) from None
        except aiohttp.ClientProxyConnectionError as error:
            raise _failed(step, url, f"no connection to the proxy {bare_proxy(proxy)}: {_reason(error)}") from None
        except aiohttp.ClientHttpProxyError as error:
            raise _failed(
                step, url, f"the proxy {bare_proxy(proxy)} refused to connect to {where} ({error.status})"
            ) from None
        except aiohttp.ClientConnectorError as error:
            hint = connection_hint(error) and "; is it running, and reachable from here?"
            raise _failed(step, url, f"no connection to {where}{via}: {_reason(error)}{hint}") from None
        except aiohttp.ClientResponseError:
            raise _failed(step, url, f"{where} sent an answer that is not HTTP") from None
        except aiohttp.ClientPayloadError:
            raise _failed(step, url, f"the answer of {where} broke off") from None
        except aiohttp.InvalidURL:
            raise _failed(step, url, f"no request can be made to {where}{_through(proxy)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _failed(
                step, url, f"the connection to {where} ended before an answer came: {_reason(error)}"
            ) from None
        except ValueError:
            raise _failed(step, url, f"no request can be made to {where}{_through(proxy)}") from None
        finally:
            _errand.reset(token)
            _meter.reset(meter_token)

    def _open(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise Closed("the connection that this login belongs to was closed")
        if self._session is None:
            import aiohttp

            resolver: Any = _Resolver()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=resolver,
                    use_dns_cache=False,
                    force_close=True,
                    limit=0,
                    ssl=True if self._ssl is None else self._ssl,
                ),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_READ_BYTES,
                response_class=_metered_response(),
            )
        return self._session


@final
class _Meter(asyncio.Protocol):
    """Stands before aiohttp's protocol and counts the bytes that come in; beyond the limit the connection is cut."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.is_over = False
        self._count = 0
        self._transport: Any = None
        self._protocol: Any = None

    def attach(self, transport: Any, protocol: Any) -> None:
        self._transport, self._protocol = transport, protocol
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        self._count += len(data)
        if self._count > self.limit:
            self.is_over = True
            self._transport.abort()
        else:
            self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


# The limit of the current task's request; aiohttp makes its response in the same task.
_meter: ContextVar[_Meter] = ContextVar("_meter")


_is_library_loaded = False


async def load_http_library() -> None:
    """Import aiohttp in a thread: it takes a tenth of a second, and a server has others to serve."""
    global _is_library_loaded
    if not _is_library_loaded:
        await asyncio.to_thread(importlib.import_module, "aiohttp")
        _is_library_loaded = True


@functools.cache
def _metered_response() -> type[aiohttp.ClientResponse]:
    import aiohttp

    class MeteredResponse(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            if connection.transport is not None:
                _meter.get().attach(connection.transport, connection.protocol)
            return await super().start(connection)

    return MeteredResponse


def _outgoing(headers: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in headers.items() if name.lower() != "accept-encoding"}
    # No compression, so that the limit counts the bytes that were sent.
    return {"User-Agent": "trimaran", **own, "Accept-Encoding": "identity"}


async def _read(response: aiohttp.ClientResponse, request: HttpRequest, url: str) -> HttpReply:
    """The whole answer, within bounds. The body of a redirect is not read."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        name = name.lower()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if response.status in _REDIRECTS:
        return HttpReply(response.status, headers, b"", url)
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise _failed(
            request.step, url, f"{bare_url(url)} sent a body in the coding {encoding[:40]!r}, which was not asked for"
        )
    body = bytearray()
    is_too_long = (response.content_length or 0) > request.max_bytes
    while not is_too_long and (piece := await response.content.readany()):
        body += piece
        is_too_long = len(body) > request.max_bytes
    if is_too_long:
        raise _failed(request.step, url, f"{bare_url(url)} answered more than {request.max_bytes} bytes")
    return HttpReply(response.status, headers, bytes(body), url)


def _target(request: HttpRequest, url: str, reply: HttpReply) -> str:
    """The target of a redirect that may be followed."""
    location = reply.headers.get("location", "")
    where = bare_url(url)
    if not location:
        raise _failed(request.step, url, f"{where} redirects ({reply.status}) without saying where to")
    try:
        there = urljoin(url, location)
        _origin(there)
    except ValueError:
        raise _failed(request.step, url, f"{where} redirects to {bare_url(location)!r}, which is not a URL") from None
    if request.method != "GET":
        raise _failed(
            request.step,
            url,
            f"{where} redirects a {request.method} ({reply.status}) to {bare_url(there)!r}; what a {request.method} carries "
            "is not sent anywhere else. The operator has to configure that URL, if it is the right one",
        )
    return there


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


# --- Where a name leads ----------------------------------------------------------------------------------------------


@final
class _Resolver:
    """Resolves a name to its allowed addresses; a name without any is refused."""

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[dict[str, Any]]:
        errand = _errand.get()
        addresses = await look_up(host, port, family)
        allowed = [address for address in addresses if _is_within(errand.reach, address.host)]
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "it has no address")
        if not allowed:
            where = bare_url(errand.url)
            raise UnsafeUrl(
                f"the {errand.step} failed: {where!r} is not a safe URL: {host} resolves to {addresses[0].host}, which is not "
                + (
                    "on this machine"
                    if errand.reach == "loopback"
                    else "a public address; if that is right, allow it with allow_private=True"
                ),
                step=errand.step,
                url=where,
            )
        return describe(host, allowed)

    async def close(self) -> None:
        """Holds nothing."""


def _is_within(reach: Reach, address: str) -> bool:
    if reach == "anywhere":
        return True
    return is_loopback_host(address) if reach == "loopback" else is_public_address(address)


# --- What went wrong -------------------------------------------------------------------------------------------------


def _failed(step: str, url: str, reason: str) -> AuthorizationFailed:
    advice = "" if ";" in reason else "; try again later, or tell its operator"
    return AuthorizationFailed(f"the {step} failed: {reason}{advice}", step=step, url=bare_url(url))


def _through(proxy: str | None) -> str:
    return f" through the proxy {bare_proxy(proxy)!r}; write it as http://host:port" if proxy else ""


def _reason(error: BaseException) -> str:
    return connection_reason(error) or "it was closed"
