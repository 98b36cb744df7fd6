"""YAML 1.2's core, by PyYAML: texts that look like dates stay texts, and only `true` and `false` are booleans.

A separate module, since PyYAML is an extra: importing it is the question whether it is there.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

__all__ = ["parse_yaml"]

# PyYAML is compiled on all platforms that have a wheel, and ten times as fast there.
_Safe: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_IS_BOOL: Final = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")


def _make_loader() -> Any:
    """The safe loader, with fewer texts that mean something else."""
    resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if not tag.endswith((":timestamp", ":bool"))]
        for first, pairs in _Safe.yaml_implicit_resolvers.items()
    }
    loader: Any = type("Loader", (_Safe,), {"yaml_implicit_resolvers": resolvers})
    loader.add_implicit_resolver("tag:yaml.org,2002:bool", _IS_BOOL, list("tTfF"))
    return loader


_Loader: Final = _make_loader()


def parse_yaml(data: bytes) -> Any:
    """The value in `data`.

    Raises:
        ValueError: it is not YAML.
    """
    try:
        return yaml.load(data, Loader=_Loader)  # noqa: S506
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
