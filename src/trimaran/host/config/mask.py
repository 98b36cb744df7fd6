"""What a person may see of a configuration: names and places, not secrets.

Pure. Masked are the values of headers and of environment variables, secrets of OAuth, credentials and query values in
URLs, and arguments that look like a secret. A `${NAME}` stays: it names a secret, it is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from .expand import Reference, Unexpandable, parts_of

__all__ = ["MASK", "mask_text", "mask_url", "masked"]

MASK: Final = "***"

_SECRET_MAPS: Final = frozenset(
    {"env", "envs", "headers", "http_headers", "env_http_headers", "requestInit", "settings"}
)
_SECRET_KEY: Final = re.compile(
    r"secret|token(?!_?(?:url|endpoint|env))|password|passwd|api[-_]?key|credential", re.IGNORECASE
)
_FLAG: Final = re.compile(
    r"(--?[\w-]*(?:secret|token|password|passwd|api[-_]?key|credential|auth|header|bearer)[\w-]*)(?:=(.*))?",
    re.IGNORECASE | re.DOTALL,
)
# As services make them: sk-..., ghp_..., github_pat_..., xoxb-..., glpat-..., AKIA..., a JWT.
_TOKEN: Final = re.compile(
    r"(?:sk|pk|rk)[-_][\w-]{16,}|gh[opsur]_\w{16,}|github_pat_\w{16,}|xox[a-z]-[\w-]{10,}|glpat-[\w-]{10,}|AKIA[0-9A-Z]{12,}"
    r"|eyJ[\w-]{10,}\.[\w-]+(?:\.[\w-]*)?"
)
# A long piece of a path with letters and digits in it: some services put the key there.
_OPAQUE: Final = re.compile(r"(?<!/)/(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[A-Za-z0-9_=.-]{20,}(?=/|$)")
_SETTING: Final = re.compile(r"([A-Za-z_]\w*(?:SECRET|TOKEN|PASSWORD|KEY)\w*=)(.+)", re.IGNORECASE | re.DOTALL)


def masked(table: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as a person may see it, be it ours or another program's."""
    return {key: _value(key, value) for key, value in table.items()}


def _value(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        inner = cast("Mapping[str, Any]", value)
        if key in _SECRET_MAPS:
            return {name: _hidden(one) for name, one in inner.items()}
        return masked(inner)
    if isinstance(value, (list, tuple)):
        listed = cast("Sequence[Any]", value)
        return _arguments(listed) if key == "args" else [_value(key, one) for one in listed]
    if not isinstance(value, str):
        return value
    if _SECRET_KEY.search(key):
        return mask_text(value)
    return mask_url(value) if "://" in value else _TOKEN.sub(MASK, value)


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
    made = (
        MASK if isinstance(part, str) else str(part if not part.default else Reference(part.name, MASK))
        for part in parts
    )
    return "".join(made)


def mask_url(text: str) -> str:
    """A URL without user, password, the values of its query, and what looks like a token in its path."""
    text = re.sub(r"://[^/?#\s]*@", f"://{MASK}@", text)
    head, mark, query = text.partition("?")
    head = _OPAQUE.sub(lambda found: f"/{MASK}", head)
    query = re.sub(r"=([^&#]*)", lambda found: f"={mask_text(found[1])}", query)
    return _TOKEN.sub(MASK, f"{head}{mark}{query}")


def _arguments(listed: Sequence[Any]) -> list[Any]:
    made: list[Any] = []
    hides_next = False
    for one in listed:
        if not isinstance(one, str):
            made.append(one)
            continue
        flag = _FLAG.fullmatch(one)
        if hides_next and not (flag and one.startswith("--")):
            made.append(mask_text(one))
            hides_next = False
        elif flag:
            made.append(one if flag[2] is None else f"{flag[1]}={mask_text(flag[2])}")
            hides_next = flag[2] is None
        elif setting := _SETTING.fullmatch(one):
            made.append(setting[1] + mask_text(setting[2]))
            hides_next = False
        else:
            made.append(mask_url(one) if "://" in one else _TOKEN.sub(MASK, one))
            hides_next = False
    return made
