"""The table `[trust]` of `mcp.toml`, and `[server.X.trust]`, which says it for one server.

Pure. A file's `[trust]` is about the servers of that file: a project's file does not loosen what the user said about others.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from .model import FLOW_MODES, SCAN_MODES, TOUCHES, Touch, TrustEntry

_KEYS: Final = ("scan", "flow", "allow")
_MODES: Final[Mapping[str, tuple[str, ...]]] = {"scan": SCAN_MODES, "flow": FLOW_MODES}


def read_trust(
    table: object, base: TrustEntry, complain: Callable[[str, str], None], *, for_server: bool = False
) -> TrustEntry:
    """The settings of a table, on top of those around it; problems go to `complain(key, message)`."""
    if not isinstance(table, Mapping):
        complain("", "a table is expected, with scan, flow and allow")
        return base
    known = (*_KEYS, "touches") if for_server else _KEYS
    values: dict[str, Any] = {"scan": base.scan, "flow": base.flow, "allow": base.allow}
    for key, value in cast("Mapping[str, Any]", table).items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            complain(
                key,
                f"this key is not known; {f'did you mean {near[0]!r}?' if near else 'known are ' + ', '.join(known)}",
            )
        elif key in _MODES:
            if value in _MODES[key]:
                values[key] = value
            else:
                complain(key, f"one of {', '.join(_MODES[key])} is expected, in quotes")
        else:
            try:
                values[key] = read_touches(value) if key == "touches" else (*base.allow, *_ids(value))
            except ValueError as error:
                complain(key, str(error))
    return TrustEntry(**values)


def read_touches(value: object) -> tuple[Touch, ...]:
    """The value of `touches`.

    Raises:
        ValueError: it is no list, or something in it is not known.
    """
    items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [None]
    if not all(item in TOUCHES for item in items):
        raise ValueError(f'a list of {", ".join(TOUCHES)} is expected, touches = ["private"]; [] is for nothing')
    return tuple(items)


def _ids(value: object) -> list[str]:
    items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [None]
    if not all(isinstance(item, str) for item in items):
        raise ValueError('a list of the ids of findings is expected, allow = ["secrecy"]')
    return items
