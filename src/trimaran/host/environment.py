"""A host's environment variables: time limits, and whether servers start at all (R267-R269).

    TRIMARAN_MCP_TIMEOUT         to wait for a start   a duration, "10s", or seconds      else MCP_TIMEOUT, milliseconds
    TRIMARAN_MCP_TOOL_TIMEOUT    for a call            the same                           else MCP_TOOL_TIMEOUT
    TRIMARAN_MCP_STARTUP_LIMIT   until a start that nobody waits for any more is given up   the same
    TRIMARAN_NO_MCP              1: no server is started
    TRIMARAN_ALLOW_PRIVATE       1: a login may lead to private addresses

Values in `mcp.toml` come before all of these. Pure: the caller passes the variables in. An unreadable value is a ConfigError
that names the variable. MCP_* belong to other programs, so an unreadable one is ignored with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, final

from msgspec import Struct

from trimaran.errors import ConfigError

from .config.values import LONGEST, read_duration, write_duration

log: Final = logging.getLogger("trimaran.host")

STARTUP_TIMEOUT: Final = 5.0
CALL_TIMEOUT: Final = 60.0

_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"", "0", "false", "no", "off"})


@final
class Environment(Struct, frozen=True):
    """The defaults of every server."""

    startup_timeout: float = STARTUP_TIMEOUT
    call_timeout: float = CALL_TIMEOUT
    no_servers: bool = False
    allow_private: bool = False
    startup_limit: float | None = None
    """None: the transport's own limit."""


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Read these variables.

    Raises:
        ConfigError: a TRIMARAN_ variable cannot be read.
    """
    return Environment(
        _timeout(variables, "MCP_TIMEOUT", STARTUP_TIMEOUT),
        _timeout(variables, "MCP_TOOL_TIMEOUT", CALL_TIMEOUT),
        _flag(variables, "TRIMARAN_NO_MCP"),
        _flag(variables, "TRIMARAN_ALLOW_PRIVATE"),
        _duration(variables, "TRIMARAN_MCP_STARTUP_LIMIT"),
    )


def _duration(variables: Mapping[str, str], name: str) -> float | None:
    """The duration in this variable; None if it is empty."""
    text = variables.get(name, "").strip()
    if not text:
        return None
    try:
        return read_duration(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _timeout(variables: Mapping[str, str], name: str, default: float) -> float:
    ours, common = _duration(variables, f"TRIMARAN_{name}"), variables.get(name, "").strip()
    if ours is not None:
        return ours
    if not common:
        return default
    if not common.isascii() or not common.isdigit() or int(common) == 0:
        log.warning("%s is ignored: %r is not a number of milliseconds", name, common[:50])
        return default
    if int(common) > LONGEST * 1000:
        log.warning("%s is over the limit, so the limit of %s is used", name, write_duration(LONGEST))
    return min(int(common) / 1000, LONGEST)  # C34


def _flag(variables: Mapping[str, str], name: str) -> bool:
    text = variables.get(name, "").strip().lower()
    if text in _YES:
        return True
    if text in _NO:
        return False
    raise ConfigError(f"{name} is {text[:50]!r}: write 1, or leave it out")
