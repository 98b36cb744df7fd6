"""Declaring tools: the steps that every provider's file shares (R220, R222).

A schema is fitted exactly unless told otherwise: changed where the provider would refuse it and the change loses nothing
(`fit.py`), the same object where it is fine as it is. A description that is too long for the provider is cut. Names of
tools are taken as they are: a host's names fit already, and `lint` says which others do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .definitions import AnyTools, Definition, is_one, read_tools
from .fit import Fit, fit_up_to
from .profiles import profile_named
from .results import Shape
from .trees import Schema

_DOTS: Final = " ..."


def declare(tools: AnyTools, write: Callable[[Definition], Shape]) -> Any:
    shapes = [write(definition) for definition in read_tools(tools)]
    return shapes[0] if is_one(tools) else shapes


def fit_tool_schema(schema: Schema, profile: str, fit: Fit) -> Schema:
    return schema if fit is None else fit_up_to(schema, profile, fit).schema


def fit_description(tool: Definition, profile: str, fit: Fit) -> str:
    most = profile_named(profile).most_description
    if fit is None or most is None or len(tool.description) <= most:
        return tool.description
    cut = tool.description[: most - len(_DOTS)]
    whole_words = cut.rpartition(" ")[0]
    return (whole_words if len(whole_words) > most // 2 else cut).rstrip() + _DOTS


def strict_schema_of(schema: Schema, profile: str, fit: Fit, *, is_strict: bool) -> Schema | None:
    """The schema for strict mode, or None where strict mode is not wanted, or not possible as far as it may be changed."""
    if not is_strict:
        return None
    fitted = fit_up_to(schema, profile, fit or "exact")
    if fitted.left or (fit is None and fitted.schema is not schema):
        return None
    return fitted.schema
