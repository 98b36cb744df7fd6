"""The types of the options of a client's methods: a misspelt option is an error in pyright and mypy, and editors complete it.

The options of `connect` are in `connect_options.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias, TypedDict

from trimaran.types import Json, Root

__all__ = ["CallOptions", "ListenOptions", "LogLevel", "OnProgress", "Roots", "TaskOptions"]

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

OnProgress: TypeAlias = Callable[[float, float | None, str | None], object]
"""Called with the progress, the total if the server knows it, and a message."""
Roots: TypeAlias = Iterable[str | os.PathLike[str] | Root | Mapping[str, object]] | Callable[[], object]
"""Paths, `file://` URIs or Roots; or a function, plain or async, that returns them."""


class TaskOptions(TypedDict, total=False):
    """The options of `start_task`, beside `into`."""

    ttl: float | None
    raise_on_error: bool | None
    timeout: float | None
    meta: Mapping[str, Json] | None


class CallOptions(TypedDict, total=False):
    """The options of `call_tool`, beside `into`."""

    timeout: float | None
    max_timeout: float | None
    on_progress: OnProgress | None
    raise_on_error: bool | None
    idempotent: bool | None
    meta: Mapping[str, Json] | None


class ListenOptions(TypedDict, total=False):
    """The options of `listen`: which changes to hear of."""

    tools: bool
    prompts: bool
    resources_list: bool
    resources: Iterable[str]
