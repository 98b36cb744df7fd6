"""Looks up host names, on daemon threads of its own.

`loop.getaddrinfo` takes a thread of the loop's default executor. It has few, and nothing can end a look-up: a name server
that does not answer holds one for half a minute. A handful of such names would stop everything else that needs the
executor, and Python would wait for them before it ends. Here a caller that stops waiting
leaves only its thread behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from typing import Any, Final, NamedTuple, final

from trimaran.daemon_threads import DaemonExecutor

# Look-ups at once. More wait, each until its caller's own deadline: then the name servers are the trouble.
_THREADS: Final = DaemonExecutor(64, "trimaran-look-up")


class HostAddress(NamedTuple):
    family: int
    host: str
    port: int


async def look_up(
    host: str, port: int, family: int = socket.AF_UNSPEC, *, flags: int = socket.AI_ADDRCONFIG
) -> list[HostAddress]:
    """The addresses of a host, in the order in which to try them. `family` and `flags` are those of `getaddrinfo`.

    Raises:
        OSError: The name is unknown.
    """
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        return [HostAddress(socket.AF_INET if address.version == 4 else socket.AF_INET6, host, port)]
    return await asyncio.get_running_loop().run_in_executor(_THREADS, _get_addresses, host, port, family, flags)


def _get_addresses(host: str, port: int, family: int, flags: int) -> list[HostAddress]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family, flags=flags)
    return [HostAddress(entry[0], str(entry[4][0]), int(entry[4][1])) for entry in entries]


@final
class Resolver:
    """`look_up` for aiohttp."""

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[dict[str, Any]]:
        return describe(host, await look_up(host, port, family))

    async def close(self) -> None:
        """Holds nothing."""


def describe(host: str, addresses: list[HostAddress]) -> list[dict[str, Any]]:
    """Addresses as aiohttp takes them from a resolver."""
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return [
        {
            "hostname": host,
            "host": address.host,
            "port": address.port,
            "family": address.family,
            "proto": 0,
            "flags": flags,
        }
        for address in addresses
    ]
