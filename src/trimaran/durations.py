"""Durations in seconds, and numbers that were probably meant as milliseconds.

Every duration of the library is in seconds. The systems that its users come from count some of them in milliseconds, and so
do JavaScript programs. A limit of 30000 seconds works, too, and nobody notices before something hangs for eight hours. So a
number that looks like milliseconds is refused, with the number to write instead.

One rule for all: a multiple of 1000 from 5000 on is taken for milliseconds, unless it is a whole number of hours (up to a
day) or of days (beyond it); so is everything longer than a year. An hour (3600), a working day (36000), a day (86400), a week
(604800) and thirty days (2592000) pass; 5000, 30000, 60000, 90000, 300000 and 1800000 do not.

Pure. Whether a number is allowed otherwise (zero, None, infinity) is for its owner to say.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from .errors import ConfigError, Error

_LEAST: Final = 5000  # below, ten minutes of 600 and an hour of 3600 are at home, and a slip does little harm
_HOUR: Final = 3600
_DAY: Final = 86400
_YEAR: Final = 366 * _DAY


def looks_like_milliseconds(value: Any) -> bool:
    """Whether this number was probably meant as milliseconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or value < _LEAST:
        return False
    return value > _YEAR or (value % 1000 == 0 and value % (_HOUR if value < _DAY else _DAY) != 0)


def check_seconds(name: str, value: Any, error: type[Error] = ConfigError) -> None:
    """Refuse a number that looks like milliseconds; anything else, numbers or not, passes.

    Raises:
        Error: of the given class; the message says which number of seconds to write.
    """
    if looks_like_milliseconds(value):
        raise error(
            f"{name} is in seconds: {value:g} would be {_spoken(value)}, and looks like milliseconds; "
            f"write {name}={value / 1000:g}"
        )


def _spoken(seconds: float) -> str:
    if seconds >= 2 * _DAY:
        return f"{seconds / _DAY:.0f} days"
    return f"{seconds / _HOUR:.1f} hours"
