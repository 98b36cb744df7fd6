"""JSON pointers (RFC 6901) from the paths of violations, and values behind pointers. Pure."""

from __future__ import annotations

import ast
import re
from typing import Any, Final, cast

# One step of a path as `schema.validate.path_text` writes it: .name, [0] or ['a b'].
_STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|\[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]"""
)


def pointer_of(path: str, last: str = "") -> str:
    """`$.a[0]['b c']` as `/a/0/b c`; `last` is one more step."""
    steps: list[str] = []
    for match in _STEP.finditer(path):
        quoted = match["quoted"]
        steps.append(str(ast.literal_eval(quoted)) if quoted else match["name"] or match["index"])
    return "".join(map(step_of, [*steps, *([last] if last else [])]))


def step_of(name: str) -> str:
    """The step of a pointer that leads to a member."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def value_at(value: Any, pointer: str) -> Any:
    """The value behind a pointer; LookupError if there is none."""
    if pointer and not pointer.startswith("/"):
        raise LookupError(pointer)
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            if not name.isdecimal() or int(name) >= len(cast("list[Any]", value)):
                raise LookupError(pointer)
            value = cast("list[Any]", value)[int(name)]
        elif isinstance(value, dict) and name in value:
            value = cast("dict[str, Any]", value)[name]
        else:
            raise LookupError(pointer)
    return value
