"""The tools that a model has found or used: declared to it until others take their places.

Pure. `Host` has one `ActiveTools`. The order is that of activation and does not change with use, so that the beginning of the
list of tools stays the same and a provider's cache of the prompt stays valid. Use only decides which tool goes next.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, final

from trimaran.host.names import Address

_MOST: Final = 32  # models choose worse among more than 30 to 50 tools


@final
class ActiveTools:
    """At most `most` tools; the least recently used goes first."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._used: dict[Address, int] = {}
        """The time of the last use of each, in the order of activation."""
        self._clock = 0
        self.version: int = 0
        """Changes whenever `addresses` does."""

    def addresses(self) -> tuple[Address, ...]:
        """The active tools, in the order in which they were activated."""
        return tuple(self._used)

    def add(self, addresses: Iterable[Address]) -> None:
        """Activate tools, or note that they were used again; the first is the most important."""
        before = self.addresses()
        # The last is the most recently used: of more tools than there is room for, the first ones stay.
        for address in reversed(list(addresses)):
            self._clock += 1
            self._used[address] = self._clock
        while len(self._used) > self._most:
            del self._used[min(self._used, key=self._used.__getitem__)]
        if self.addresses() != before:
            self.version += 1

    def touch(self, address: Address) -> None:
        """Note a use, if the tool is active."""
        if address in self._used:
            self._clock += 1
            self._used[address] = self._clock

    def keep(self, known: Container[Address]) -> None:
        """Drop the tools that no longer exist."""
        gone = [address for address in self._used if address not in known]
        for address in gone:
            del self._used[address]
        if gone:
            self.version += 1
