"""Token buckets: what is let through, what waits and how long, and that the table stays small."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clock import Clock

from trimaran.auth import Principal, RateLimit, Refused
from trimaran.auth.limits import Buckets
from trimaran.errors import ConfigError


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_as_many_as_the_rate_says_may_come_at_once(clock: Clock) -> None:
    buckets = Buckets(5, 60, clock=clock)
    assert [buckets.check("a") for _ in range(5)] == [0.0] * 5
    assert buckets.check("a") == pytest.approx(12.0)
    assert buckets.check("b") == 0.0


def test_who_waits_as_long_as_told_is_let_through(clock: Clock) -> None:
    """Over a day of coming exactly on time, nobody is sent away by a rounding error."""
    buckets = Buckets(7, 60, 1, clock=clock)
    assert buckets.check("a") == 0.0
    for _ in range(1000):
        wait = buckets.check("a")
        assert 0 < wait <= 60 / 7 + 1e-6
        clock.now += wait
        assert buckets.check("a") == 0.0


def test_to_be_sent_away_costs_nothing(clock: Clock) -> None:
    buckets = Buckets(1, 10, clock=clock)
    assert buckets.check("a") == 0.0
    for _ in range(100):
        assert buckets.check("a") == pytest.approx(10.0)
    clock.now += 10
    assert buckets.check("a") == 0.0


def test_over_time_no_more_come_than_the_rate_allows(clock: Clock) -> None:
    buckets = Buckets(10, 1, 3, clock=clock)
    passed = 0
    for _ in range(10_000):
        passed += buckets.check("a") == 0.0
        clock.now += 0.001
    assert passed == 3 + 10 * 10 - 1


def test_a_bucket_holds_no_more_than_the_burst(clock: Clock) -> None:
    buckets = Buckets(60, 60, 2, clock=clock)
    clock.now += 3600
    assert [buckets.check("a") > 0 for _ in range(3)] == [False, False, True]


def test_full_buckets_are_forgotten(clock: Clock) -> None:
    buckets = Buckets(1, 1, clock=clock)
    for number in range(1000):
        buckets.check(number)
        clock.now += 0.1
    assert len(buckets) <= 20


def test_there_are_never_more_buckets_than_said(clock: Clock) -> None:
    """However many addresses an attacker has; and who comes all the time is not the one to be forgotten."""
    buckets = Buckets(2, 3600, clock=clock, most=100)
    for number in range(10_000):
        buckets.check(number)
        if number % 50 == 0:
            refused = buckets.check("busy") > 0
            assert refused is (number >= 100)
        assert len(buckets) <= 101


def test_a_limit_of_principals_counts_each_for_itself(clock: Clock) -> None:
    limit = RateLimit(principal="2/minute", clock=clock)
    ada = Principal(subject="ada", issuer="https://a.example")
    other = Principal(subject="ada", issuer="https://b.example")
    for _ in range(2):
        limit.admit_principal(ada, "192.0.2.1")
        limit.admit_principal(other, "192.0.2.1")
        limit.admit_principal(None, "192.0.2.1")
    for principal in (ada, other, None, Principal(subject="ada", issuer="https://a.example", scopes=frozenset({"x"}))):
        with pytest.raises(Refused):
            limit.admit_principal(principal, "192.0.2.1")
    with pytest.raises(Refused):
        limit.admit_principal(ada, "192.0.2.2")
    limit.admit_principal(None, "192.0.2.2")
    limit.admit_address("192.0.2.1")
    for _ in range(5):
        limit.admit_principal(None, None)


def test_a_limit_of_addresses_counts_each_for_itself(clock: Clock) -> None:
    limit = RateLimit(address="1/second", clock=clock)
    limit.admit_address("192.0.2.1")
    limit.admit_address("192.0.2.2")
    with pytest.raises(Refused):
        limit.admit_address("192.0.2.1")
    with pytest.raises(Refused):
        limit.admit_address("::ffff:192.0.2.1")
    for _ in range(5):
        limit.admit_address(None)  # a local socket has no address
        limit.admit_principal(Principal(subject="ada"), "192.0.2.1")


def test_an_ipv6_caller_counts_by_its_network(clock: Clock) -> None:
    """One customer has 2^64 addresses."""
    limit = RateLimit(address="1/second", clock=clock)
    limit.admit_address("2001:db8:0:1::1")
    with pytest.raises(Refused):
        limit.admit_address("2001:db8:0:1:ffff::2")
    limit.admit_address("2001:db8:0:2::1")
    limit.admit_address("not an address")


def test_who_is_sent_away_is_told_for_how_long(clock: Clock) -> None:
    limit = RateLimit(address="1/minute", clock=clock)
    limit.admit_address("192.0.2.1")
    clock.now += 0.5
    with pytest.raises(Refused) as caught:
        limit.admit_address("192.0.2.1")
    refusal = caught.value
    assert (refusal.kind, refusal.status, refusal.code) == ("rate_limited", 429, "rate_limited")
    assert dict(refusal.headers)["retry-after"] == "60"
    assert "192.0.2.1" not in refusal.body.decode()


@pytest.mark.parametrize(
    ("rate", "many", "wait"),
    [("10/second", 10, 0.1), ("60/minute", 60, 1), (" 2 / hour ", 2, 1800), ("1/day", 1, 86400)],
)
def test_rates_are_read(clock: Clock, rate: str, many: int, wait: float) -> None:
    limit = RateLimit(address=rate, clock=clock)
    for _ in range(many):
        limit.admit_address("192.0.2.1")
    with pytest.raises(Refused) as caught:
        limit.admit_address("192.0.2.1")
    assert caught.value.retry_after == pytest.approx(wait)


def test_the_burst_may_be_smaller_or_larger(clock: Clock) -> None:
    limit = RateLimit(principal="1/minute", burst=3, clock=clock)
    for _ in range(3):
        limit.admit_principal(Principal(subject="ada"), None)
    with pytest.raises(Refused):
        limit.admit_principal(Principal(subject="ada"), None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "or both"),
        ({"principal": "100"}, '"100/minute"'),
        ({"principal": "0/minute"}, '"100/minute"'),
        ({"principal": "-1/minute"}, '"100/minute"'),
        ({"principal": "1.5/minute"}, '"100/minute"'),
        ({"principal": "1/fortnight"}, '"100/minute"'),
        ({"address": 100}, "address must be a rate"),
        ({"address": "1/second", "burst": 0}, "burst"),
        ({"address": "1/second", "burst": True}, "burst"),
        ({"address": "1/second", "burst": 1.5}, "burst"),
        ({"address": "1/second", "trusted_proxies": "10.0.0.1"}, "not one string"),
        ({"address": "1/second", "trusted_proxies": ["10.0.0.1/8"]}, "trusted_proxies"),
        ({"address": "1/second", "trusted_proxies": ["proxy"]}, "trusted_proxies"),
    ],
)
def test_what_cannot_work_is_said_at_once(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RateLimit(**options)


@pytest.mark.parametrize(
    ("peer", "forwarded", "counted"),
    [
        ("203.0.113.9", None, "203.0.113.9"),
        # A stranger may write what it likes.
        ("203.0.113.9", "192.0.2.1", "203.0.113.9"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.1", "192.0.2.1"),
        # The right-most that is not trusted: further left the caller wrote itself.
        ("10.0.0.1", "1.1.1.1, 192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "1.1.1.1, 192.0.2.1, 10.0.0.2", "192.0.2.1"),
        ("10.0.0.1", "1.1.1.1, 10.0.0.3, 192.0.2.1, 10.0.0.2", "192.0.2.1"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "192.0.2.1, unknown, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "192.0.2.1, ", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.1:4711", "192.0.2.1"),
        ("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("10.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("10.0.0.1", "::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:10.0.0.1", "192.0.2.1", "192.0.2.1"),
        ("fd00::1", "192.0.2.1", "192.0.2.1"),
        ("fd00::2", "192.0.2.1", "fd00::2"),
        (None, "192.0.2.1", None),
        ("socket", "192.0.2.1", "socket"),
        ("10.0.0.1", "x" * 100_000, "10.0.0.1"),
        ("10.0.0.1", "10.0.0.2," * 100_000 + "10.0.0.3", "10.0.0.2"),
    ],
    ids=range(22),
)
def test_only_trusted_proxies_say_who_is_behind_them(peer: Any, forwarded: Any, counted: Any) -> None:
    limit = RateLimit(address="1/second", trusted_proxies=["10.0.0.0/8", "fd00::1"])
    assert limit.client_address(peer, forwarded) == counted


def test_without_trusted_proxies_the_header_says_nothing() -> None:
    assert RateLimit(address="1/second").client_address("10.0.0.1", "192.0.2.1") == "10.0.0.1"
