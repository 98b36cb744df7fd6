"""Read typed words by a schema: `key=value` and `key:=JSON`, for the command line and the console.

The schema decides the meaning of a text: where a string is allowed it stays a string; where only an integer, a
boolean or JSON fits, it is read as that. The server checks sizes and patterns.

Pure. The schema comes from a peer, so the work is bounded for any schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, cast

from trimaran.depth import check_depth
from trimaran.errors import DeclarationError

from .validate import Validator

_YES: Final = frozenset({"true", "yes", "on", "y", "1"})
_NO: Final = frozenset({"false", "no", "off", "n", "0"})
_KINDS: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
_EVERYTHING: Final = frozenset(_KINDS)
_ARTICLES: Final = {
    "integer": "an integer",
    "array": "a JSON array",
    "object": "a JSON object",
    "boolean": "true or false",
}
_MAX_DEPTH: Final = 16  # of references and unions; deeper than anybody nests them by hand
_MAX_NODES: Final = 1000  # two unions that refer to each other have no end, and twice as many branches at each step

Schema = Mapping[str, Any]


class WordError(ValueError):
    """A word that cannot be read; the text has the reason and the remedy."""


class Word(NamedTuple):
    """One argument as it was typed."""

    key: str
    text: str
    is_json: bool


def read_words(words: Iterable[str]) -> list[Word]:
    """Split `key=value` and `key:=JSON`.

    Raises:
        WordError: a word is neither, or a key occurs twice.
    """
    by_key: dict[str, Word] = {}
    for word in words:
        key, equals, text = word.partition("=")
        is_json = key.endswith(":")
        key = key.removesuffix(":")
        if not equals or not key:
            raise WordError(f"{word!r} is not an argument: write key=value, or key:=JSON")
        if key in by_key:
            raise WordError(f"{key!r} occurs twice; for a list, write {key}:='[1, 2]'")
        by_key[key] = Word(key, text, is_json)
    return list(by_key.values())


def parse_json(text: str, where: str) -> Any:
    """The JSON value of a text; an error message begins with `where`.

    Raises:
        WordError: it is not JSON. NaN and Infinity are not, nor is a number that would become one.
    """
    try:
        check_depth(text)
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise WordError(f"{where} is not JSON: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is larger than any number")
    return value


def fit(words: Sequence[Word], schema: Schema) -> dict[str, Any]:
    """The words as the arguments a tool with this input schema wants.

    Raises:
        WordError: a text does not fit the schema.
    """
    known = properties_of(schema)
    return {
        word.key: parse_json(word.text, f"{word.key}:={word.text[:80]}")
        if word.is_json
        else _fit_one(word, known.get(word.key, True), schema)
        for word in words
    }


def unknown_key(words: Iterable[Word], schema: Schema) -> str | None:
    """The first key that a schema does not have. None where it declares no property, or says that it takes others.

    A schema without additionalProperties accepts any name; but a person who types an undeclared name mistyped it.
    """
    known = properties_of(schema)
    takes_others = schema.get("additionalProperties", False) is not False or "patternProperties" in schema
    return next((word.key for word in words if known and not takes_others and word.key not in known), None)


def properties_of(schema: Any) -> dict[str, Any]:
    """The properties an object schema declares; none where it is not one."""
    properties: Any = cast("Schema", schema).get("properties") if isinstance(schema, Mapping) else None
    return cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}


def _fit_one(word: Word, schema: Any, root: Schema) -> Any:
    kinds = kinds_of(schema, root)
    if "string" in kinds:
        if len(kinds) == 1 or _admits(schema, word.text, root):
            return word.text
        other = _as_json(word.text)
        return word.text if other is None or isinstance(other, str) or not _admits(schema, other, root) else other
    if "boolean" in kinds and "integer" not in kinds:
        truth = truth_of(word.text)
        if truth is not None:
            return truth
    value = _as_json(word.text)
    if value is None and word.text.strip() != "null":
        raise _misfit(word, kinds)
    if isinstance(value, float) and value.is_integer() and "integer" in kinds and "number" not in kinds:
        value = int(value)
    if not _kinds_of_value(value) & kinds:
        raise _misfit(word, kinds)
    return value


def truth_of(text: str) -> bool | None:
    """True or false in any of the usual words, else None."""
    word = text.strip().lower()
    return True if word in _YES else False if word in _NO else None


def _as_json(text: str) -> Any:
    try:
        return parse_json(text, "")
    except WordError:
        return None


def _misfit(word: Word, kinds: frozenset[str]) -> WordError:
    if "number" in kinds:
        kinds -= {"integer"}
    expected = " or ".join(
        _ARTICLES.get(kind, f"a {kind}" if kind != "null" else "null") for kind in _KINDS if kind in kinds
    )
    hint = ""
    if kinds & {"array", "object"}:
        example = "[1, 2]" if "array" in kinds else '{"a": 1}'
        hint = f", such as {word.key}='{example}'"
    return WordError(f"{word.key}={word.text!r}: the tool wants {expected or 'nothing at all'} here{hint}")


def _admits(schema: Any, value: Any, root: Schema) -> bool:
    definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
    try:
        return Validator({**schema, **definitions} if isinstance(schema, dict) else schema).is_valid(value)
    except DeclarationError:
        return isinstance(value, str)


def _kinds_of_value(value: Any) -> frozenset[str]:
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int():
            return frozenset({"integer", "number"})
        case float():
            return frozenset({"integer", "number"} if value.is_integer() else {"number"})
        case str():
            return frozenset({"string"})
        case list():
            return frozenset({"array"})
        case _:
            return frozenset({"object"})


def kinds_of(schema: Any, root: Schema) -> frozenset[str]:
    """The JSON types a schema lets through, by its own words; all of them where it says nothing."""
    return _Kinds(root).of(schema, 0)


class _Kinds:
    """One walk through a schema, with an end to it."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._seen = 0

    def of(self, schema: Any, depth: int) -> frozenset[str]:
        self._seen += 1
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self._seen > _MAX_NODES:
            return _EVERYTHING
        node = cast("dict[str, Any]", schema)
        kinds = _EVERYTHING
        declared: Any = node.get("type")
        if isinstance(declared, str):
            kinds &= {declared}
        elif isinstance(declared, list):
            kinds &= {item for item in cast("list[Any]", declared) if isinstance(item, str)}
        if isinstance(node.get("enum"), list):
            kinds &= frozenset[str]().union(*map(_kinds_of_value, node["enum"]))
        if "const" in node:
            kinds &= _kinds_of_value(node["const"])
        for key in ("anyOf", "oneOf"):
            if isinstance(node.get(key), list):
                kinds &= frozenset[str]().union(*(self.of(item, depth + 1) for item in node[key]))
        if isinstance(node.get("allOf"), list):
            for item in node["allOf"]:
                kinds &= self.of(item, depth + 1)
        if isinstance(node.get("$ref"), str):
            kinds &= self.of(target_of(node["$ref"], self._root), depth + 1)
        # A whole number is a number: `integer` under `number` must survive.
        if declared == "number":
            kinds |= {"integer"}
        return kinds


def target_of(reference: str, root: Schema) -> Any:
    """The target of a local reference; True, the schema of anything, for any other."""
    if not reference.startswith("#/"):
        return True
    node: Any = root
    for step in reference[2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or step not in node:
            return True
        node = cast("Mapping[str, Any]", node)[step]
    return node
