"""The way out of a sandbox: an HTTP proxy that lets through to the listed hosts, and to nothing else.

It runs in the host's process, outside of the sandbox, one for each sandboxed server, and speaks what HTTP_PROXY programs
speak: `CONNECT host:port` for HTTPS, and requests with a whole URL for HTTP. It reads the first head, decides, and then passes
bytes on; a connection leads to one host, whatever is sent on it later. It never looks into TLS.

A name that is listed must not lead to this machine or its neighbours: whoever controls the name could point it there. So an
address that is not a public one is refused, unless the address itself, or localhost, is listed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Sequence
from typing import Final, NamedTuple, final
from urllib.parse import urlsplit

from trimaran.bounded_log import BoundedLog

log: Final = BoundedLog("trimaran.child")

_MOST_HEAD: Final = 32 * 1024  # bytes of a request's head; nginx takes 32 KiB
_HEAD_SECONDS: Final = 20.0
_CONNECT_SECONDS: Final = 20.0
_MOST_CONNECTIONS: Final = 100  # at the same time; a browser opens six for each host
_CHUNK: Final = 65536
_REQUEST: Final = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]")
_DEFAULT_PORTS: Final = (80, 443)


class _Wish(NamedTuple):
    """Where a request wants to go."""

    host: str
    port: int
    first: bytes
    """The bytes sent there first; empty for a tunnel."""
    is_tunnel: bool


def may_reach(hosts: Sequence[str], host: str, port: int) -> bool:
    """Whether a list of hosts has this one. Without a port, an entry means the ports 80 and 443."""
    for entry in hosts:
        name, entry_port = _split(entry)
        if port not in ((entry_port,) if entry_port is not None else _DEFAULT_PORTS):
            continue
        if name == host or (name.startswith("*.") and host.endswith(name[1:]) and len(host) > len(name) - 1):
            return True
    return False


def _split(entry: str) -> tuple[str, int | None]:
    """Host and port of an entry; IPv6 addresses stand in brackets."""
    text = entry.lower()
    host, colon, port = text.rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.endswith("]")):
        return host.strip("[]"), int(port)
    return text.strip("[]"), None


@final
class SandboxProxy:
    """One proxy. `start` it, give `address` to the sandbox, `close` it when the server has ended.

    Args:
        hosts: `host`, `*.host`, `host:port`.
        is_local: Listen on a socket of the file system; else on a port of loopback.
    """

    def __init__(self, hosts: Sequence[str], *, is_local: bool = True) -> None:
        self._hosts = tuple(hosts)
        self._is_local = is_local
        self._folder: str | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.address: str | int = ""
        """The path of the socket, or the port."""

    async def start(self) -> None:
        if self._is_local:
            self._folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="trimaran-proxy-")  # mode 0700
            self.address = os.path.join(self._folder, "socket")
            self._server = await asyncio.start_unix_server(self._accept, self.address, limit=_MOST_HEAD)
        else:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_MOST_HEAD)
            self.address = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = tuple(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._connections) > _MOST_CONNECTIONS:
                await _refuse(writer, 503, "too many connections")
                return
            await self._lead(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            await _close(writer)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        wish = _read_wish(head)
        if wish is None:
            await _refuse(writer, 400, "this proxy takes CONNECT, and requests with a whole http:// URL")
            return
        if not may_reach(self._hosts, wish.host, wish.port):
            log.warning(
                "a sandboxed server tried to reach %s:%d, which is not among its hosts", wish.host[:200], wish.port
            )
            await _refuse(writer, 403, f"{wish.host}:{wish.port} is not in the sandbox's list of hosts")
            return
        try:
            address = await self._resolve(wish.host, wish.port)
            async with asyncio.timeout(_CONNECT_SECONDS):
                far_reader, far_writer = await asyncio.open_connection(address, wish.port)
        except PermissionError as error:
            await _refuse(writer, 403, str(error))
            return
        except (OSError, TimeoutError) as error:
            await _refuse(writer, 502, f"{wish.host}:{wish.port} cannot be reached: {error or 'no answer'}")
            return
        try:
            if wish.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(wish.first)
            await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
        finally:
            await _close(far_writer)

    async def _resolve(self, host: str, port: int) -> str:
        """An address of the host that may be connected to.

        Raises:
            PermissionError: the name leads to an address that is not public.
            OSError: there is none.
        """
        resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(item[4][0]) for item in resolved]
        is_named = host == "localhost" or _is_address(host)
        for address in addresses:
            if is_named or ipaddress.ip_address(address.partition("%")[0]).is_global:
                return address
        raise PermissionError(f"{host} leads to {addresses[0]}, which is not a public address")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _read_wish(head: bytes) -> _Wish | None:
    line, _, fields = head.partition(b"\r\n")
    match = _REQUEST.fullmatch(line)
    if match is None:
        return None
    method, target = match[1], match[2].decode("ascii", "replace")
    try:
        parts = urlsplit(f"//{target}" if method == b"CONNECT" else target)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return None
    if not host or parts.username is not None:
        return None
    if method == b"CONNECT":
        return _Wish(host, port, b"", is_tunnel=True) if port else None
    if parts.scheme != "http":
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields_to_send = [
        field
        for field in fields.split(b"\r\n")
        if field
        and field.partition(b":")[0].strip().lower()
        not in (b"connection", b"proxy-connection", b"proxy-authorization", b"host")
    ]
    lines = [
        method + b" " + path.encode() + b" HTTP/1.1",
        b"Host: " + parts.netloc.encode(),
        *fields_to_send,
        b"Connection: close",  # one connection leads to one host
    ]
    return _Wish(host, port or 80, b"\r\n".join(lines) + b"\r\n\r\n", is_tunnel=False)


async def _refuse(writer: asyncio.StreamWriter, status: int, why: str) -> None:
    body = f"{why}\n".encode()
    writer.write(
        b"HTTP/1.1 %d Refused\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
        % (status, len(body), body)
    )
    await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
