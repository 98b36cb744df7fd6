"""Rate limits: token buckets per principal and per address.

Pure except for the clock passed in. A bucket is one number, the moment at which it is full again (the generic cell
rate algorithm), so a table of a hundred thousand is small. Full buckets are dropped, since a new bucket is full.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Hashable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, final

from trimaran.errors import ConfigError

from .principal import Principal
from .refusal import Refused

MAX_BUCKETS: Final = 100_000
_PERIODS: Final = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}
_RATE: Final = re.compile(r"\s*([0-9]{1,9})\s*/\s*(second|minute|hour|day)\s*")
_MAX_HOPS: Final = 64
_MAX_ADDRESS: Final = 64


@final
class Buckets:
    """One bucket for each key: `count` tokens that come back over `period` seconds, and room for `burst` of them.

    Never more than `most` buckets: beyond, the one longest unused is dropped, and its owner starts again.
    """

    def __init__(
        self,
        count: int,
        period: float,
        burst: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        most: int = MAX_BUCKETS,
    ) -> None:
        self._interval = period / count
        self._room = self._interval * (burst if burst is not None else count)
        # A caller that comes exactly on time must not be late by a rounding error.
        self._slack = self._interval * 1e-6
        self._clock = clock
        self._most = most
        self._full_at: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def check(self, key: Hashable) -> float:
        """Take a token. Returns 0.0, or the seconds until there is one; then nothing was taken."""
        now = self._clock()
        table = self._full_at
        full_at = table.pop(key, now)
        spent = max(full_at, now) + self._interval
        wait = spent - self._room - now
        # In order of last use, so that the first are those to forget.
        if wait > self._slack:
            table[key] = full_at
            return wait
        table[key] = spent
        self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Two at a time, and so faster than they come."""
        table = self._full_at
        for _ in range(2):
            oldest = next(iter(table))
            if table[oldest] > now and len(table) <= self._most:
                return
            del table[oldest]


def read_rate(option: str, rate: Any) -> tuple[int, float]:
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if match is None or int(match[1]) < 1:
        raise ConfigError(f'{option} must be a rate like "100/minute" (second, minute, hour or day), not {rate!r}')
    return int(match[1]), _PERIODS[match[2]]


@final
class RateLimit:
    """Limits for a server. `principal` is for each authenticated caller, `address` for each network address,
    and is checked first; None is no limit. `burst` is the number of requests at once, by default that of the
    rate. `trusted_proxies` are addresses or networks whose `X-Forwarded-For` counts.

    An IPv6 caller counts by its /64, the network of one customer.
    """

    def __init__(
        self,
        *,
        principal: str | None = None,
        address: str | None = None,
        burst: int | None = None,
        trusted_proxies: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        most: int = MAX_BUCKETS,
    ) -> None:
        if principal is None and address is None:
            raise ConfigError('RateLimit takes principal="100/minute", address="300/minute", or both')
        if burst is not None and (isinstance(burst, bool) or not isinstance(burst, int) or burst < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"burst is a whole number from 1, not {burst!r}")

        def make(option: str, rate: str | None) -> Buckets | None:
            return None if rate is None else Buckets(*read_rate(option, rate), burst, clock=clock, most=most)

        self._principals = make("principal", principal)
        self._addresses = make("address", address)
        self._trusted = _networks(trusted_proxies)

    def admit_address(self, address: str | None) -> None:
        """Count a request from an address, or raise `Refused`. Local sockets have no address and are not counted."""
        if self._addresses is not None and address is not None:
            _admit(self._addresses, _place(address))

    def admit_principal(self, principal: Principal | None, address: str | None) -> None:
        """Let a caller come once more, or raise `Refused`. Nobody is counted by address."""
        if self._principals is None:
            return
        if principal is not None:
            _admit(self._principals, principal.identity)
        elif address is not None:
            _admit(self._principals, (_place(address),))

    def client_address(self, address: str | None, x_forwarded_for: str | None) -> str | None:
        """The address that counts: the peer's, or behind trusted proxies the right-most in the header that is not a proxy's.

        Everything left of that was written by the caller itself.
        """
        nearest = address
        if not x_forwarded_for or not self._trusted or not self._is_trusted(address):
            return nearest
        hops = x_forwarded_for.rsplit(",", _MAX_HOPS)
        for hop in reversed(hops[-_MAX_HOPS:]):
            parsed = _parse(hop)
            if parsed is None:  # "unknown", or nonsense: further left nothing can be known
                return nearest
            nearest = str(parsed)
            if not self._is_trusted(nearest):
                return nearest
        return nearest

    def _is_trusted(self, address: str | None) -> bool:
        parsed = _parse(address) if address is not None else None
        return parsed is not None and any(
            parsed.version == network.version and parsed in network for network in self._trusted
        )


def _admit(buckets: Buckets, key: Hashable) -> None:
    wait = buckets.check(key)
    if wait > 0.0:
        raise Refused("rate_limited", retry_after=wait)


def _networks(proxies: Iterable[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    if isinstance(proxies, str):
        raise ConfigError('trusted_proxies must be a list: trusted_proxies=["10.0.0.0/8"], not one string')
    networks: list[IPv4Network | IPv6Network] = []
    for item in proxies:
        try:
            networks.append(ip_network(item))
        except ValueError as error:
            raise ConfigError(f"trusted_proxies: {error}; give addresses or networks like 10.0.0.0/8") from None
    return tuple(networks)


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """An address, also with the port or the brackets that proxies put to it."""
    text = text.strip()
    if len(text) > _MAX_ADDRESS:
        return None
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@functools.lru_cache(maxsize=4096)
def _place(address: str) -> str:
    """The key of an address: itself, or for IPv6 the network it is in."""
    parsed = _parse(address)
    if parsed is None:
        return address[:_MAX_ADDRESS]
    return str(parsed) if isinstance(parsed, IPv4Address) else str(IPv6Address(int(parsed) >> 64 << 64))
