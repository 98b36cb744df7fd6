"""How long the next attempt waits, and who waits for it."""

from __future__ import annotations

from trimaran.client.reconnecting import ReconnectPolicy


def pauses(*, has_served: bool, lasting: float = 0.1) -> list[float]:
    """The pauses after sessions that end again and again."""
    policy, now, waited = ReconnectPolicy(0), 0.0, list[float]()
    for _ in range(7):
        policy.note_end(now, now + lasting, has_served=has_served)
        now += lasting
        waited.append(policy.seconds_until_attempt(now))
        now += waited[-1]
    return [round(seconds, 1) for seconds in waited]


def test_a_session_that_was_only_greeted_is_waited_for_longer_each_time() -> None:
    assert pauses(has_served=False) == [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 30.0]


def test_a_session_that_has_served_others_comes_back_within_a_second() -> None:
    """One caller whose calls kill the server would take it from all the others."""
    assert pauses(has_served=True) == [0.1, 0.3, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_a_session_that_has_lasted_is_replaced_at_once() -> None:
    assert pauses(has_served=False, lasting=6.0) == [0.0] * 7


def test_only_a_short_pause_is_worth_waiting_for() -> None:
    policy = ReconnectPolicy(0)
    for _ in range(5):
        policy.note_failed_attempt(100.0)
    assert policy.is_soon(107.0)
    assert not policy.is_soon(106.0)
