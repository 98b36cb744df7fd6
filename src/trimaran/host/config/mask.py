"""A configuration as a person may see it: names and places, not secrets.

Pure. Masked are the values of headers and of environment variables, secrets of OAuth, credentials and query values in
URLs, and arguments that look like a secret: how, `trimaran.protocol.mask` knows. A `${NAME}` stays: it names a secret,
it is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from trimaran.protocol import mask
from trimaran.protocol.mask import MASK, TOKEN

from .expand import Reference, Unexpandable, parts_of

_SECRET_MAPS: Final = frozenset(
    {"env", "envs", "headers", "http_headers", "env_http_headers", "requestInit", "settings"}
)
# A key that names a URL, a file, a variable or a kind holds no secret itself.
_SECRET_KEY: Final = re.compile(
    r"(?:secret|token|password|passwd|api[-_]?key|private[-_]?key|credential|assertion)"
    r"(?!_?(?:url|endpoint|env|file|type|path))",
    re.IGNORECASE,
)


def masked(table: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as a person may see it, be it ours or another program's."""
    return {key: _value(key, value) for key, value in table.items()}


def _value(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        inner = cast("Mapping[str, Any]", value)
        if key in _SECRET_MAPS:
            return {name: _hidden(item) for name, item in inner.items()}
        return masked(inner)
    if isinstance(value, (list, tuple)):
        listed = cast("Sequence[Any]", value)
        return mask.mask_arguments(listed, mask_text) if key == "args" else [_value(key, item) for item in listed]
    if not isinstance(value, str):
        return value
    if is_secret_key(key):
        return mask_text(value)
    return mask_url(value) if "://" in value else TOKEN.sub(MASK, value)


def is_secret_key(key: str) -> bool:
    """Whether a value under this key is secret."""
    return _SECRET_KEY.search(key) is not None


def _hidden(value: Any) -> Any:
    if isinstance(value, str):
        return mask_text(value)
    return masked(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else MASK


def mask_text(text: str) -> str:
    """The text with everything but its references hidden."""
    if not text:
        return text
    try:
        parts = parts_of(text)
    except Unexpandable:
        return MASK
    hidden = (
        MASK if isinstance(part, str) else str(part if not part.default else Reference(part.name, MASK))
        for part in parts
    )
    return "".join(hidden)


def mask_url(text: str) -> str:
    """A URL without user, password, the values of its query, and words in its path that look like tokens."""
    return mask.mask_url(text, mask_text)
