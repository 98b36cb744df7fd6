"""Limits: positive, or None where that is allowed, and checked at once (R95)."""

from __future__ import annotations

from functools import partial
from typing import Any, get_type_hints

import pytest

from trimaran import Limits, Server
from trimaran.errors import ConfigError, DeclarationError
from trimaran.server.limits import LimitOptions

MAY_BE_NONE = {"session_idle_timeout", "session_max_lifetime", "max_sessions", "request_timeout", "max_listen_streams"}
MADE: Any = Limits  # by name, with values of every type
SERVER: Any = partial(Server, "s", version="1")
SECONDS = {"request_timeout", "session_idle_timeout", "session_max_lifetime", "keep_alive", "input_ttl"}


@pytest.mark.parametrize("name", Limits.__struct_fields__)
def test_a_limit_is_positive_or_none_where_it_may_be(name: str) -> None:
    """R95: checked at startup, and the message names it."""
    assert getattr(MADE(**{name: 1}), name) == 1
    for value in (0, -1, True, "1", []):
        for make in (MADE, SERVER):
            with pytest.raises(ConfigError, match=name):
                make(**{name: value})
    if name in MAY_BE_NONE:
        assert getattr(MADE(**{name: None}), name) is None
    else:
        with pytest.raises(ConfigError, match=name):
            MADE(**{name: None})


@pytest.mark.parametrize("name", ["request_timeout", "max_sessions", "max_body_bytes"])
def test_what_is_no_number_is_no_limit(name: str) -> None:
    """R95: a comparison with NaN is never true, so such a limit would not limit."""
    with pytest.raises(ConfigError, match=name):
        MADE(**{name: float("nan")})


def test_a_count_is_whole() -> None:
    """R95: positive integers."""
    for name in sorted(set(Limits.__struct_fields__) - SECONDS):
        with pytest.raises(ConfigError, match=name):
            MADE(**{name: 1.5})


def test_the_defaults_are_the_promised_ones() -> None:
    """R69, C13, C14."""
    limits = Limits()
    assert (limits.request_timeout, limits.replay_events, limits.session_idle_timeout) == (60, 256, 1800)
    assert limits.session_max_lifetime is None


def test_limits_are_given_whole_or_one_by_one() -> None:
    assert Server("x", limits=Limits(max_sessions=3)).limits.max_sessions == 3
    assert Server("x", max_sessions=4).limits.max_sessions == 4
    both = Server("x", limits=Limits(max_sessions=3, tool_threads=2), max_sessions=4).limits
    assert (both.max_sessions, both.tool_threads) == (4, 2)


@pytest.mark.parametrize("options", [{"max_session": 1}, {"max_sessions": 0}, {"request_timeout": -1}])
def test_a_wrong_limit_stops_the_server_from_being_made(options: dict[str, Any]) -> None:
    """R95: checked at startup."""
    with pytest.raises(ConfigError, match=next(iter(options))):
        Server("x", **options)


def test_type_checkers_know_every_limit_as_the_server_does() -> None:
    limits, options = get_type_hints(Limits), get_type_hints(LimitOptions)
    older = {"sse_buffer_size", "sse_buffer_limit", "session_ttl"}
    assert {name: kind for name, kind in options.items() if name not in older} == limits


def test_the_older_names_of_limits_are_accepted() -> None:
    """C13, R17: one name, aliases accepted."""
    server = Server("x", sse_buffer_size=10, session_ttl=60_000)
    assert (server.limits.replay_events, server.limits.session_idle_timeout) == (10, 60)
    assert Server("x", session_ttl=None).limits.session_idle_timeout is None


@pytest.mark.parametrize("value", [60, 999, 0, -1, True, "60s"])
def test_a_session_ttl_that_cannot_be_milliseconds_is_refused(value: Any) -> None:
    """R17: barrel_mcp's own unit. Who means seconds is told which option has them."""
    with pytest.raises(ConfigError, match="in seconds is session_idle_timeout"):
        Server("x", session_ttl=value)
    assert Server("x", sse_buffer_limit=11).limits.replay_events == 11


def test_limits_that_are_no_limits_are_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"limits must be a Limits, such as Limits\(tool_threads=8\), not 3"):
        Server("x", limits=3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("timeout", ["30", 0, True])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(timeout: Any) -> None:
    with pytest.raises(DeclarationError, match="tool 'wait': timeout must be a positive number of seconds, not "):
        Server("x").add_tool(lambda: "done", name="wait", timeout=timeout)
