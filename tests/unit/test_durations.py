"""Numbers that were meant as milliseconds are refused wherever seconds are expected (R17)."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from trimaran import Context, Limits, LoopbackLogin, Server, connect
from trimaran.auth import Introspection
from trimaran.durations import looks_like_milliseconds
from trimaran.errors import ConfigError, Error
from trimaran.ext import Tasks

HOUR, DAY = 3600, 86400


@pytest.mark.parametrize(
    "value",
    [5000, 8000, 10_000, 15_000, 30_000, 30_000.0, 60_000, 90_000, 120_000, 300_000, 600_000, 1_800_000, 86_400_000],
)
def test_what_people_write_in_milliseconds_is_recognised(value: float) -> None:
    """R17."""
    assert looks_like_milliseconds(value)


@pytest.mark.parametrize(
    "value",
    [0.05, 1, 30, 60, 90, 300, 600, 900, 1000, 1500, 1800, HOUR, 5400, 2 * HOUR, 8 * HOUR, 10 * HOUR, 12 * HOUR, DAY]
    + [2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY, 12_345, inf, nan, None, True, "30000", 0, -30_000],
)
def test_what_people_write_in_seconds_passes(value: Any) -> None:
    assert not looks_like_milliseconds(value)


def add_tool(**options: Any) -> None:
    Server("x").add_tool(lambda: "x", name="t", **options)


def add_resource(**options: Any) -> None:
    Server("x").add_resource("a://b", lambda: "x", **options)


def make_introspection(**options: Any) -> None:
    Introspection("https://a.example/introspect", client_id="a", client_secret="b", **options)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (Limits, ["request_timeout", "session_idle_timeout", "session_max_lifetime", "keep_alive", "input_ttl"]),
        (lambda **options: Server("x", **options), ["request_timeout", "session_idle_timeout", "cache_ttl"]),
        (add_tool, ["timeout", "cache_ttl"]),
        (add_resource, ["cache_ttl"]),
        (Tasks, ["ttl", "poll", "lease"]),
        (LoopbackLogin, ["timeout"]),
        (make_introspection, ["timeout"]),
        (
            lambda **options: connect("http://127.0.0.1:1/mcp", **options),
            ["timeout", "max_timeout", "connect_timeout", "ping_interval", "grace"],
        ),
    ],
)
def test_every_option_in_seconds_refuses_milliseconds_and_says_what_to_write(
    make: Callable[..., Any], names: list[str]
) -> None:
    """R17, R95."""
    for name in names:
        with pytest.raises(Error, match=rf"{name} is in seconds: 60000 would be 16\.7 hours.*write .*{name}=60$"):
            make(**{name: 60_000})


async def test_a_call_and_a_question_refuse_milliseconds_as_well() -> None:
    """R17, R58: Urchin's handlers wait 30000 ms."""
    server = Server("x", expose_internal_errors=True)

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.sample("hi", max_tokens=5, timeout=30_000)
        return "never"

    async with connect(server, on_sample=lambda request: "never") as client:
        with pytest.raises(ConfigError, match="write timeout=30"):
            await client.call_tool("ask", timeout=30_000)
        with pytest.raises(ConfigError, match="write max_timeout=30"):
            await client.call_tool("ask", max_timeout=30_000)
        result = await client.call_tool("ask")
    assert "write timeout=30" in result.text
