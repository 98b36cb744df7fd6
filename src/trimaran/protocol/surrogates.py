"""Encode text that JSON cannot carry: lone surrogates become U+FFFD.

Python makes such text of file names that are not UTF-8 (`os.fsdecode`) and of emoji cut in half. One file name must not
cost the whole answer. Pure, and called only after the plain encoder has failed: ordinary values pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any, cast

import msgspec
from msgspec import Struct


def encode_repaired(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """`value` as JSON, after the encoder raised `UnicodeEncodeError` for it."""
    return msgspec.json.encode(
        _repaired(value), enc_hook=None if enc_hook is None else lambda obj: _repaired(enc_hook(obj))
    )


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, Mapping):
        return {_repaired(key): _repaired(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_repaired(item) for item in cast("Collection[Any]", value)]
    if isinstance(value, Struct):
        changes = {name: _repaired(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **changes)
    if is_dataclass(value) and not isinstance(value, type):
        # Not `dataclasses.replace`, which runs the author's `__post_init__` again.
        repaired = copy(value)
        for field in fields(value):
            object.__setattr__(repaired, field.name, _repaired(getattr(value, field.name)))
        return repaired
    return value
