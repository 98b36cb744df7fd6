"""YAML 1.2's core, by PyYAML's parser: texts that look like dates stay texts, and only `true` and `false` are booleans.

The parser only says where maps, lists and scalars are; the values are built here. PyYAML would build them by recursion in C,
and a document of 100 KB that is nothing but brackets ends the process. An alias is a few bytes that stand for any number of
values, and whoever walks the document walks all of them: they are counted, and so are the levels.

A separate module, since PyYAML is an extra: importing it is the question whether it is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn, cast, final

import yaml

from trimaran.depth import MAX_DEPTH

# PyYAML is compiled on all platforms that have a wheel, and ten times as fast there.
_yaml: Final[Any] = yaml
_Parser: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_REPEATED: Final = 500_000
"""Values that aliases and merge keys stand for, in one document. Honest ones share a few hundred."""
_CORE: Final = "tag:yaml.org,2002:"
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(
    r"[-+]?(?:(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)
_AS_TEXT: Final = frozenset(("!", f"{_CORE}str", f"{_CORE}binary", f"{_CORE}timestamp"))
_RESOLVED: Final = frozenset((None, *(_CORE + name for name in ("null", "bool", "int", "float", "seq", "map"))))


def parse_yaml(data: bytes) -> Any:
    """The value in `data`.

    Raises:
        ValueError: it is not YAML, nests too deeply, or repeats too much by aliases.
    """
    try:
        return _Reader(data).read()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None


class _Built(NamedTuple):
    value: Any
    size: int
    """The values in it, itself among them."""
    levels: int


@final
class _Reader:
    """Builds the value of one document from the events of the parser."""

    def __init__(self, data: bytes) -> None:
        self._events: Iterator[Any] = _yaml.parse(data, Loader=_Parser)
        self._anchors: dict[str, _Built | None] = {}
        """None while the value is being built."""
        self._repeated = 0

    def read(self) -> Any:
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        built = self._build(next(self._events), 0)
        next(self._events)  # the end of the document
        if not isinstance(ending := next(self._events), yaml.StreamEndEvent):
            _fail(ending, "expected a single document")
        return built.value

    def _build(self, event: Any, depth: int) -> _Built:
        kind: Any = event.__class__
        if kind is yaml.AliasEvent:
            return self._repeat(event, depth)
        anchor = event.anchor
        if kind is yaml.ScalarEvent:
            built = _Built(_scalar(event), 1, 0)
        else:
            if event.tag not in _RESOLVED:
                _fail(event, f"the tag {event.tag!r} is not known")
            if depth >= MAX_DEPTH:
                _fail(event, f"nested too deeply: more than {MAX_DEPTH} levels")
            if anchor is not None:
                self._anchors[anchor] = None
            built = self._sequence(depth + 1) if kind is yaml.SequenceStartEvent else self._mapping(depth + 1)
        if anchor is not None:
            self._anchors[anchor] = built
        return built

    def _repeat(self, event: Any, depth: int) -> _Built:
        if event.anchor not in self._anchors:
            _fail(event, f"the alias {event.anchor!r} is not defined")
        built = self._anchors[event.anchor]
        if built is None:
            _fail(event, f"the alias {event.anchor!r} contains itself")
        self._count(event, built)
        if depth + built.levels > MAX_DEPTH:
            _fail(event, f"nested too deeply: more than {MAX_DEPTH} levels")
        return built

    def _count(self, event: Any, built: _Built) -> None:
        self._repeated += built.size
        if self._repeated > _MAX_REPEATED:
            _fail(event, f"aliases stand for more than {_MAX_REPEATED} values")

    def _sequence(self, depth: int) -> _Built:
        items: list[Any] = []
        size, levels = 1, 0
        while type(event := next(self._events)) is not yaml.SequenceEndEvent:
            item = self._build(event, depth)
            items.append(item.value)
            size += item.size
            levels = max(levels, item.levels)
        return _Built(items, size, levels + 1)

    def _mapping(self, depth: int) -> _Built:
        members: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        size, levels = 1, 0
        while type(event := next(self._events)) is not yaml.MappingEndEvent:
            key = self._build(event, depth).value
            if isinstance(key, dict | list):
                _fail(event, "a key must be a text or a number")
            is_merge = key == "<<" and event.implicit[0]
            begin = next(self._events)
            member = self._build(begin, depth)
            size += member.size
            levels = max(levels, member.levels)
            if not is_merge:
                members[key] = member.value
                continue
            self._count(begin, member)  # its members are copied
            for source in _sources(begin, member.value):
                for name, value in source.items():
                    merged.setdefault(name, value)
        return _Built({**merged, **members} if merged else members, size, levels + 1)


def _sources(event: Any, value: Any) -> Iterator[Mapping[Any, Any]]:
    """The maps that a merge key adds: one, or those of a list."""
    for source in cast("list[Any]", value) if isinstance(value, list) else [value]:
        if not isinstance(source, dict):
            _fail(event, "a merge key takes a map, or a list of maps")
        yield cast("dict[Any, Any]", source)


def _scalar(event: Any) -> Any:
    text: str = event.value
    tag: str | None = event.tag
    if tag in _AS_TEXT or (tag is None and not event.implicit[0]):
        return text
    if tag not in _RESOLVED:
        _fail(event, f"the tag {tag!r} is not known")
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL_OR_HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _fail(event: Any, reason: str) -> NoReturn:
    raise ValueError(f"{reason} (line {event.start_mark.line + 1})")
