"""Durations and sizes as people write them: `60s`, `1m30s`, `500ms`, `90`; `2 MiB`, `500KB`, `4096`.

Pure. A bare number is seconds, or bytes. An unreadable value is a ValueError that says what is allowed.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

LONGEST: Final = 600.0  # R230: past ten minutes somebody forgot about the call

_UNITS: Final = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|sec|s|min|m|h)\s*")
_SIZES: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


def read_duration(value: Any, *, longest: float | None = LONGEST) -> float:
    """Seconds, from a text or a number."""
    seconds = _seconds(value)
    if seconds is None:
        raise ValueError(f'{_quoted(value)} is not a duration: write seconds, 60, or a text, "60s", "500ms", "2m"')
    if not seconds > 0 or not math.isfinite(seconds):
        raise ValueError(f'{_quoted(value)} is not longer than 0: write a duration such as "60s"')
    if longest is not None and seconds > longest:
        hint = (
            f'; a number is in seconds, and milliseconds are written "{str(value).strip()}ms"'
            if _is_bare(value)
            else ""
        )
        raise ValueError(f"{_quoted(value)} is longer than the most that is allowed, {write_duration(longest)}{hint}")
    return seconds


def _is_bare(value: Any) -> bool:
    """Whether this is a number without a unit."""
    if isinstance(value, str):
        return re.fullmatch(r"[0-9]+(\.[0-9]+)?", value.strip()) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _seconds(value: Any) -> float | None:
    if _is_bare(value):
        return float(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    total, at = 0.0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            return None
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    return total if text else None


def write_duration(seconds: float) -> str:
    """The shortest text that reads as these seconds."""
    if seconds >= 60 and seconds % 60 == 0:
        return f"{seconds / 60:g}m"
    milliseconds = seconds * 1000
    if seconds < 1 and milliseconds == int(milliseconds):
        return f"{milliseconds:g}ms"
    return f"{seconds:.10g}s"


def read_size(value: Any) -> int:
    """Bytes, from a text or a whole number."""
    size: float | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (parts := _SIZE.fullmatch(value.strip())) and parts[2].lower() in _SIZES:
        size = float(parts[1]) * _SIZES[parts[2].lower()]
    if size is None:
        raise ValueError(f'{_quoted(value)} is not a size: write bytes, 4096, or a text, "2 MiB", "500 KB"')
    if not 1 <= size < 2**53:
        raise ValueError(f'{_quoted(value)} is not a size that can be kept: write one byte or more, such as "2 MiB"')
    return int(size)


def _quoted(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value[:40]}"' if isinstance(value, str) else str(value)[:40]
