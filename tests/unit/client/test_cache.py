"""What may be kept, for how long, and what makes it stale (protocol.md 1.5)."""

from __future__ import annotations

import pytest
from tests.support.clock import Clock

from trimaran.client import cache as cache_module
from trimaran.client.cache import Cache


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock: Clock) -> Cache:
    return Cache(clock)


def test_an_entry_lives_as_long_as_the_server_says(cache: Cache, clock: Clock) -> None:
    cache.put("tools/list", {}, 1500, "kept")
    clock.now += 1.499
    assert cache.get("tools/list", {}) == "kept"
    clock.now += 0.001
    assert cache.get("tools/list", {}) is None
    clock.now -= 1
    assert cache.get("tools/list", {}) is None


@pytest.mark.parametrize("ttl", [None, 0, -1])
def test_what_may_not_be_kept_is_not(cache: Cache, ttl: int | None) -> None:
    cache.put("tools/list", {}, ttl, "kept")
    assert cache.get("tools/list", {}) is None


def test_the_key_is_the_method_and_what_affects_the_result(cache: Cache) -> None:
    cache.put("tools/list", {}, 1000, "first")
    cache.put("tools/list", {"cursor": ""}, 1000, "second")
    cache.put("prompts/list", {}, 1000, "prompts")
    cache.put("resources/read", {"uri": "a", "x": 1}, 1000, "read")
    assert cache.get("tools/list", {}) == "first"
    assert cache.get("tools/list", {"cursor": ""}) == "second"
    assert cache.get("tools/list", {"cursor": "x"}) is None
    assert cache.get("prompts/list", {}) == "prompts"
    assert cache.get("resources/read", {"x": 1, "uri": "a"}) == "read"


ALL = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


@pytest.mark.parametrize(
    ("notification", "stale"),
    [
        ("notifications/tools/list_changed", {"tools/list"}),
        ("notifications/prompts/list_changed", {"prompts/list"}),
        ("notifications/resources/list_changed", {"resources/list", "resources/templates/list"}),
        ("notifications/resources/updated", set[str]()),
        ("notifications/message", set[str]()),
    ],
)
def test_a_notification_makes_its_lists_stale_and_no_others(cache: Cache, notification: str, stale: set[str]) -> None:
    for method in ALL:
        cache.put(method, {}, 1000, method)
        cache.put(method, {"cursor": "2"}, 1000, method)
    cache.hear(notification, {})
    for method in ALL:
        for params in ({}, {"cursor": "2"}):
            assert (cache.get(method, params) is None) == (method in stale)


@pytest.mark.parametrize(
    ("updated", "stale"),
    [
        ("config://app", {"config://app", "config://app/part"}),
        ("config://app/part", {"config://app", "config://app/part"}),
        ("other://x", {"other://x"}),
        ("nothing://", set[str]()),
        (None, set[str]()),
    ],
)
def test_an_updated_resource_is_read_again(cache: Cache, updated: str | None, stale: set[str]) -> None:
    """protocol.md 1.4: what is named may be a part of what was read."""
    uris = ("config://app", "config://app/part", "other://x")
    for uri in uris:
        cache.put("resources/read", {"uri": uri}, 1000, uri)
    cache.put("resources/list", {}, 1000, "list")
    cache.hear("notifications/resources/updated", {} if updated is None else {"uri": updated})
    assert {uri for uri in uris if cache.get("resources/read", {"uri": uri}) is None} == stale
    assert cache.get("resources/list", {}) == "list"


def test_it_can_be_emptied_by_method_or_wholly(cache: Cache) -> None:
    for method in ALL:
        cache.put(method, {}, 1000, method)
    cache.drop("tools/list", "prompts/list")
    assert [cache.get(method, {}) for method in ALL] == [None, None, *ALL[2:]]
    cache.clear()
    assert [cache.get(method, {}) for method in ALL] == [None] * 4


def test_it_is_bounded(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_MOST", 3)
    for number in range(5):
        cache.put("resources/read", {"uri": str(number)}, 1000, number)
    assert [cache.get("resources/read", {"uri": str(number)}) for number in range(5)] == [None, None, 2, 3, 4]


def test_a_full_cache_takes_a_newer_answer_to_the_same_request_without_dropping_another(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "_MOST", 2)
    cache.put("tools/list", {}, 1000, "old")
    cache.put("prompts/list", {}, 1000, "prompts")
    cache.put("prompts/list", {}, 1000, "newer")
    assert cache.get("tools/list", {}) == "old"
    assert cache.get("prompts/list", {}) == "newer"


def test_what_is_kept_is_bounded_by_its_bytes_too() -> None:
    cache = Cache(lambda: 0.0)
    for number in range(100):
        cache.put("resources/read", {"uri": str(number)}, 1000, number, size=1024 * 1024)
    kept = [number for number in range(100) if cache.get("resources/read", {"uri": str(number)}) is not None]
    assert kept == list(range(68, 100))
    cache.put("resources/read", {"uri": "99"}, 1000, "again", size=10)
    cache.clear()
    cache.put("resources/read", {"uri": "new"}, 1000, "new", size=32 * 1024 * 1024)
    assert cache.get("resources/read", {"uri": "new"}) == "new"
