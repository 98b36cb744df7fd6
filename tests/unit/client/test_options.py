"""Options: what cannot be right is refused where it is written, by name."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran import connect
from trimaran.client.options import Options
from trimaran.errors import ConfigError

WRONG: list[tuple[str, Any]] = [
    ("era", "new"),
    ("era", None),
    ("version", "2020-01-01"),
    ("version", 5),
    ("timeout", 0),
    ("timeout", -1),
    ("timeout", "5"),
    ("timeout", True),
    ("timeout", float("nan")),
    ("max_timeout", 0),
    ("connect_timeout", -1),
    ("connect_timeout", None),
    ("ping_interval", 0),
    ("grace", -1),
    ("retries", -1),
    ("retries", 1.5),
    ("retries", None),
    ("ping_failures", 0),
    ("max_rounds", 0),
    ("max_message_bytes", 0),
    ("max_message_bytes", "1M"),
    ("schema_check", "loud"),
    ("client_info", {"name": "x"}),
    ("client_info", "me"),
    ("capabilities", "all"),
    ("capabilities", ["sampling"]),
    ("on_elicit", 5),
    ("on_sample", "x"),
    ("on_log", []),
    ("on_notification", {}),
    ("on_request", 1),
    ("on_state", 1),
    ("on_stderr", 1),
    ("tap", 1),
    ("roots", 5),
    ("headers", "X-A: b"),
    ("headers", {"X-A": 5}),
    ("headers", {"X A": "b"}),
    ("headers", {"X-A": "b\r\nX-B: c"}),
    ("headers", {"": "b"}),
    ("auth", 5),
    ("auth", ""),
    ("auth", "two\nlines"),
    ("env", "A=b"),
    ("env", {"A": 5}),
    ("no_such_option", 1),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=[f"{name}={value!r}" for name, value in WRONG])
def test_a_wrong_option_is_refused_by_name(name: str, value: Any) -> None:
    target: Any = ["server"] if name in ("env", "on_stderr", "grace") else "http://127.0.0.1:1/"
    word = "header" if name == "headers" else name
    with pytest.raises(ConfigError, match=word):
        connect(target, **{name: value})


def test_a_version_and_an_era_must_agree() -> None:
    with pytest.raises(ConfigError, match="era"):
        Options.make({"version": "2025-06-18", "era": "modern"})
    with pytest.raises(ConfigError, match="era"):
        Options.make({"version": "2026-07-28", "era": "legacy"})
    assert Options.make({"version": "2025-06-18", "era": "legacy"}).wanted_era == "legacy"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, "auto"),
        ({"era": "modern"}, "modern"),
        ({"version": "2026-07-28"}, "modern"),
        ({"version": "2024-11-05"}, "legacy"),
    ],
)
def test_a_version_belongs_to_an_era(given: Any, wanted: str) -> None:
    assert Options.make(given).wanted_era == wanted


def test_the_defaults() -> None:
    """R186: 30 s per call and to connect, no pings, three failures."""
    options = Options.make({})
    assert (options.timeout, options.connect_timeout, options.ping_interval, options.ping_failures) == (30, 30, None, 3)
    assert (options.schema_check, options.raise_on_error, options.max_rounds, options.cache) == (
        "warn",
        False,
        10,
        True,
    )


def test_no_limit_is_allowed_where_it_makes_sense() -> None:
    """R195: infinity allowed."""
    assert Options.make({"timeout": None, "ping_interval": None, "max_timeout": None, "grace": 0}).timeout is None


def test_an_unknown_option_is_told_what_there_is() -> None:
    with pytest.raises(ConfigError, match="max_rounds"):
        Options.make({"max_round": 5})
