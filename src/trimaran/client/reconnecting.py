"""The policy of reconnecting: how long to pause, when to give up, and which requests are sent again.

Every number and rule of that policy stands here; `connection.py` carries it out. Nothing here waits or sends.

A request is sent again only where that can do no harm: the server cannot have seen it, or the caller says (or the tool
declares) that doing it twice is the same as once.
"""

from __future__ import annotations

from typing import Final, Literal, final

from trimaran.errors import ConnectFailed, ConnectionLost, UnexpectedStatus

_PAUSES: Final = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_ATTEMPTS: Final = 5  # to reconnect, before waiting for the next call
_PASSING: Final = frozenset({502, 503, 504})  # a proxy answers these while its server is away for a moment
_SETTLED: Final = 5.0  # seconds a session must have lived for the next one to begin without a pause
_MOST_SERVING: Final = 3  # failures that are counted where sessions serve others: their pauses end at a second
_SOON: Final = 3.0  # seconds that somebody else's call waits for the next attempt; then its caller had better know


def pause_after(failures: int) -> float:
    """Seconds to wait after this many failures in a row."""
    return _PAUSES[min(failures, len(_PAUSES) - 1)]


@final
class ReconnectPolicy:
    """Counts the failures of one connection."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._failures = 0
        """Attempts in a row that brought no lasting session."""
        self._not_before = 0.0

    def note_failed_attempt(self, now: float) -> None:
        """The next attempt waits a little, and longer each time."""
        self._failures += 1
        self._not_before = now + pause_after(self._failures)

    def note_end(self, began: float, now: float, *, has_served: bool = False) -> None:
        """A session has ended. One that did not last counts as a failure: a greeting alone is no success.

        One that has answered calls of others starts anew soon: a call that kills the server must not take it from all.
        """
        self._failures = 0 if now - began > _SETTLED else self._failures + 1
        if has_served:
            self._failures = min(self._failures, _MOST_SERVING)
        self._not_before = now + pause_after(self._failures)

    def seconds_until_attempt(self, now: float) -> float:
        return max(self._not_before - now, 0.0)

    def is_soon(self, now: float) -> bool:
        """Whether the next attempt is worth waiting for."""
        return self.seconds_until_attempt(now) <= _SOON

    def gives_up(self, attempt: int, *, is_needed: bool) -> bool:
        """Stop after this attempt; the next call tries again. Not while someone waits for what the server will announce."""
        return attempt >= _ATTEMPTS and not is_needed

    def may_resend(
        self, error: ConnectionLost | ConnectFailed | UnexpectedStatus, losses: int, *, repeatable: bool
    ) -> bool:
        """May a request that failed with its connection be sent again?"""
        if isinstance(error, UnexpectedStatus):
            return repeatable and error.status in _PASSING and losses <= self._retries
        if isinstance(error, ConnectionLost) and not error.sent:
            return losses <= max(self._retries, 1)  # the server has not seen it: only the session is made again
        return losses <= (self._retries if repeatable or isinstance(error, ConnectFailed) else 0)

    @staticmethod
    def suspects_older_server(era: Literal["modern", "legacy"], error: UnexpectedStatus, losses: int) -> bool:
        """A modern endpoint that no longer answers like one may be an older server now: negotiate again, once."""
        return losses <= 1 and era == "modern" and error.status in (400, 404, 405)
