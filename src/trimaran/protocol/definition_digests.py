"""The digest of a definition: of a tool, a prompt, a resource or a template, as a list shows it.

Pure. A digest is `sha256:` and the SHA-256, in hex, of the definition as canonical JSON (RFC 8785) without its top-level
`_meta`. It says whether two definitions are the same, whoever wrote them and in whatever order: the host pins definitions by
it, and the draft "per-primitive digests" of the specification (2026-09) has servers send it under `META_KEY`.

Canonical means: members sorted by the UTF-16 units of their names, no blanks, numbers as ECMAScript writes them, and only
those characters escaped that must be.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

META_KEY: Final = "io.modelcontextprotocol/digest"
"""Where a definition carries its digest: in its `_meta`."""

_EXACT: Final = 2**53  # integers beyond are doubles to ECMAScript
# Where the standard library's text may differ from the canonical one: numbers that are no short integers, and characters that
# UTF-16 sorts otherwise. Digits in texts match as well, which costs time and nothing else.
_SPECIAL: Final = re.compile(r"[0-9][.eE]|[0-9]{16}|[\ud800-\udfff\ue000-\U0010ffff]")
_write_plain: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
).encode
_write_text: Final = json.JSONEncoder(ensure_ascii=False).encode


def definition_of(definition: msgspec.Struct | Mapping[str, Any]) -> dict[str, Any]:
    """A definition as it is on the wire, without its `_meta`: plain JSON values."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(definition))
    plain.pop("_meta", None)
    return plain


def definition_digest(definition: Mapping[str, Any]) -> str:
    """The digest of a definition that is plain JSON; its top-level `_meta` does not count.

    Raises:
        ValueError: it is no JSON: a number is infinite, or a text holds half a pair of surrogates.
    """
    counted = {name: value for name, value in definition.items() if name != "_meta"}
    return f"sha256:{hashlib.sha256(canonical_json(counted)).hexdigest()}"


def canonical_json(value: Any) -> bytes:
    """A JSON value in the one form that RFC 8785 gives it.

    Raises:
        ValueError: it is no JSON value.
    """
    try:
        text = _write_plain(value)
    except (TypeError, ValueError):  # it has mappings of other classes, or is no JSON: the slow way tells
        text = None
    if text is not None and not _SPECIAL.search(text):
        return text.encode()
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts).encode("utf-8")  # half a pair of surrogates is a UnicodeEncodeError, which is a ValueError


def _write(value: Any, parts: list[str]) -> None:
    if isinstance(value, str):
        parts.append(_write_text(value))
    elif value is None or value is True or value is False:
        parts.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, (int, float)):
        parts.append(_number(value))
    elif isinstance(value, Mapping):
        _write_members(cast("Mapping[str, Any]", value), parts)
    elif isinstance(value, (list, tuple)):
        _write_items(cast("list[Any]", value), parts)
    else:
        raise ValueError(f"{type(value).__name__} is no JSON value")


def _write_members(members: Mapping[str, Any], parts: list[str]) -> None:
    comma = "{"
    for name in sorted(members, key=_sort_key):
        parts.append(f"{comma}{_write_text(name)}:")
        _write(members[name], parts)
        comma = ","
    parts.append("}" if comma == "," else "{}")


def _write_items(items: list[Any], parts: list[str]) -> None:
    comma = "["
    for item in items:
        parts.append(comma)
        _write(item, parts)
        comma = ","
    parts.append("]" if comma == "," else "[]")


def _sort_key(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _number(number: float) -> str:
    """As `JSON.stringify` writes it: the shortest digits that mean the same double."""
    if isinstance(number, int) and abs(number) <= _EXACT:
        return str(number)
    try:
        double = float(number)
    except OverflowError:
        raise ValueError("a number is too large for JSON") from None
    if not math.isfinite(double):
        raise ValueError("a number is infinite, or none")
    if double == 0:
        return "0"
    sign = "-" if double < 0 else ""
    return sign + _layout(*_shortest(abs(double)))


def _shortest(double: float) -> tuple[str, int]:
    """The digits of a positive double without leading and trailing zeros, and where the point stands before them."""
    text = repr(double)
    body, _, power = text.partition("e")
    whole, _, fraction = body.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    point = len(whole) - leading + int(power or 0)
    return digits.rstrip("0") or "0", point


def _layout(digits: str, point: int) -> str:
    """ECMAScript, Number::toString: `point` is the number of digits before the decimal point."""
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    power = point - 1
    mantissa = digits if count == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{mantissa}e{'+' if power >= 0 else '-'}{abs(power)}"
