"""Mirror call arguments in HTTP headers, and check that the mirror and the body agree.

Two jobs of one rule set (2026-07-28, Streamable HTTP, "Value encoding" and `x-mcp-header`):

    encode_value / decode_value     one value <-> one header text, base64 where plain text would not survive
    ParamHeaders                    a tool's annotated properties, compiled once from its inputSchema;
                                    `mirror` is the client's half, `check` the server's

A disagreement is always HeaderMismatch (-32020, 400). An annotation that cannot be honoured is a DeclarationError at
compile time: the server refuses the tool, the client drops it from its view. Whether the arguments satisfy their
schema is not asked here: values are compared as they are, so that a wrong type earns the schema's error, not ours.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, Protocol, cast, final

import msgspec

from trimaran.errors import CODE_HEADER_MISMATCH, DeclarationError, HeaderMismatch, LocalProtocolError

ANNOTATION: Final = "x-mcp-header"
HEADER_PREFIX: Final = "Mcp-Param-"

_OPEN: Final = "=?base64?"
_CLOSE: Final = "?="
_OWS: Final = " \t"

_PLAIN: Final = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# The exponent is short because nothing past 2^53 is comparable, and a long one only buys big arithmetic.
_NUMERAL: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?")

# Beyond this an integer does not survive a peer that reads JSON numbers as doubles.
_MAX_INTEGER: Final = 2**53 - 1

# A tuple: values from a schema are looked up in it, and need not be hashable.
_MIRRORED_TYPES: Final = ("string", "integer", "boolean")
# Keywords whose value is data, not schema: the annotation's name inside them means nothing.
_DATA_KEYWORDS: Final = frozenset({"const", "default", "enum", "examples"})
# Keywords whose keys are names chosen by the author, so a key spelled like the annotation is not one.
_NAMED_SUBSCHEMAS: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)


class HeaderLookup(Protocol):
    """Headers, asked for by lower-case name."""

    def get(self, key: str, /) -> str | None: ...


def encode_value(value: str | int | bool) -> str:
    """Write one value as a header text, wrapped in base64 when plain text would not arrive unchanged.

    Raises:
        LocalProtocolError: the string holds a lone surrogate, which no header and no JSON can carry.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if _PLAIN.fullmatch(value) and not (value.startswith(_OPEN) and value.endswith(_CLOSE)):
        return value
    try:
        octets = value.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError.invalid_params("a header value holds a lone surrogate, which is not text") from None
    return f"{_OPEN}{base64.b64encode(octets).decode('ascii')}{_CLOSE}"


def decode_value(text: str) -> str:
    """Read a header text back into the value it stands for; without both exact markers it stands for itself.

    Raises:
        HeaderMismatch: between the markers is not padded standard base64 of UTF-8.
    """
    # The length keeps `=?base64?=`, where the markers overlap, literal.
    if len(text) < len(_OPEN) + len(_CLOSE) or not (text.startswith(_OPEN) and text.endswith(_CLOSE)):
        return text
    inner = text[len(_OPEN) : -len(_CLOSE)]
    try:
        octets = base64.b64decode(inner, validate=True)
        # Stray bits behind the last octet decode too; only the one canonical spelling is let through.
        if base64.b64encode(octets).decode("ascii") == inner:
            return octets.decode()
    except (binascii.Error, ValueError):
        pass
    raise HeaderMismatch(
        CODE_HEADER_MISMATCH, "a header value between =?base64? and ?= must be padded standard base64 of UTF-8 text"
    )


def routing_name_matches(header: str | None, expected: str) -> bool:
    """Whether an `Mcp-Name` header names the same as the body; an unreadable one does not."""
    if header is None:
        return False
    try:
        return decode_value(header.strip(_OWS)) == expected
    except HeaderMismatch:
        return False


@final
class ParamHeader(msgspec.Struct, frozen=True):
    """One annotated property."""

    name: str
    """The header, as the client writes it."""
    lookup: str
    """The header, as `HeaderLookup` is asked for it."""
    path: tuple[str, ...]
    """The property names from the arguments' root to the value."""

    @property
    def argument(self) -> str:
        return ".".join(self.path)


@final
class ParamHeaders(msgspec.Struct, frozen=True):
    """The headers that mirror a tool's arguments, compiled once by `compile_param_headers`."""

    params: tuple[ParamHeader, ...]

    def check(self, headers: HeaderLookup, arguments: Mapping[str, Any]) -> None:
        """Compare the headers with the body.

        Raises:
            HeaderMismatch: a header is missing, is there for a null or absent value, or says something else.
        """
        for param in self.params:
            value = _dig(arguments, param.path)
            text = headers.get(param.lookup)
            if value is None:
                if text is not None:
                    raise _mismatch(f"header {param.name} is sent but argument {param.argument!r} is null or absent")
            elif text is None:
                raise _mismatch(f"header {param.name} is missing but argument {param.argument!r} has a value")
            elif not _agrees(_decode_named(text, param.name), value):
                raise _mismatch(f"header {param.name} must have the same value as argument {param.argument!r}")

    def mirror(self, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
        """List the headers a client sends along with these arguments, in the order the schema declares them.

        Raises:
            LocalProtocolError: a value cannot be mirrored, so that no server could accept the call.
        """
        mirrored: list[tuple[str, str]] = []
        for param in self.params:
            value = _dig(arguments, param.path)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if not isinstance(value, (str, int)) or (not isinstance(value, str) and abs(value) > _MAX_INTEGER):
                raise LocalProtocolError.invalid_params(
                    f"argument {param.argument!r} travels in header {param.name} too, so it must be a string, "
                    f"a boolean, or an integer within +-(2^53-1)"
                )
            mirrored.append((param.name, encode_value(value)))
        return mirrored


def compile_param_headers(schema: Mapping[str, Any]) -> ParamHeaders | None:
    """Collect the `x-mcp-header` annotations of an inputSchema; None when there are none.

    Raises:
        DeclarationError: some annotation is not valid; the message lists every reason.
    """
    params: list[ParamHeader] = []
    faults: list[str] = []
    names: dict[str, str] = {}
    for path, node, reachable, where in _annotated(schema):
        label: Any = node[ANNOTATION]
        fault = _fault_of(label, node, where, reachable=reachable and bool(path))
        if fault is None:
            lookup = (HEADER_PREFIX + label).lower()
            if lookup in names:
                fault = f"{where}: {label!r} is already the header of {names[lookup]} (case does not count)"
            else:
                names[lookup] = where
                params.append(ParamHeader(HEADER_PREFIX + label, lookup, path))
        if fault is not None:
            faults.append(fault)
    if faults:
        raise DeclarationError(f"invalid {ANNOTATION} annotation: " + "; ".join(faults))
    return ParamHeaders(tuple(params)) if params else None


def _fault_of(label: Any, node: Mapping[str, Any], where: str, *, reachable: bool) -> str | None:
    if not reachable:
        return f"{where}: only a property reached through `properties` alone can be annotated"
    if not isinstance(label, str) or not _TOKEN.fullmatch(label):
        return f"{where}: {label!r} is not a header name (letters, digits and !#$%&'*+-.^_`|~)"
    declared: Any = node.get("type")
    # `["string", "null"]` is still one mirrored type: a null value simply has no header.
    kinds = [kind for kind in _as_list(declared) if kind != "null"]
    if len(kinds) != 1 or kinds[0] not in _MIRRORED_TYPES:
        return f"{where}: the property's `type` must be string, integer or boolean, not {declared!r}"
    return None


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _annotated(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any], bool, str]]:
    """Walk every subschema in document order; yield (path, subschema, reached by `properties` alone, where it is).

    A stack instead of recursion: a server may send a very deep schema.
    """
    stack: list[tuple[Any, tuple[str, ...], bool, str]] = [(schema, (), True, "#")]
    while stack:
        node, path, reachable, where = stack.pop()
        below: list[tuple[Any, tuple[str, ...], bool, str]] = []
        if isinstance(node, list):
            items = cast("list[Any]", node)
            below = [(item, path, False, f"{where}/{index}") for index, item in enumerate(items)]
        elif isinstance(node, Mapping):
            keywords = cast("Mapping[str, Any]", node)
            if ANNOTATION in keywords:
                yield path, keywords, reachable, where
            for keyword, value in keywords.items():
                if keyword in _DATA_KEYWORDS or keyword == ANNOTATION:
                    continue
                if keyword in _NAMED_SUBSCHEMAS and isinstance(value, Mapping):
                    by_properties = reachable and keyword == "properties"
                    for name, subschema in cast("Mapping[str, Any]", value).items():
                        below.append((subschema, (*path, name), by_properties, f"{where}/{keyword}/{name}"))
                elif isinstance(value, (Mapping, list)):
                    below.append((cast("Any", value), path, False, f"{where}/{keyword}"))
        stack.extend(reversed(below))


def _dig(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = arguments
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Any]", value).get(name)
    return value


def _agrees(text: str, value: Any) -> bool:
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, (int, float)):
        # `42.0` and `42` are one integer to JSON, so they are one integer here.
        return abs(value) <= _MAX_INTEGER and bool(_NUMERAL.fullmatch(text)) and Decimal(text) == value
    return False


def _decode_named(text: str, name: str) -> str:
    try:
        return decode_value(text.strip(_OWS))
    except HeaderMismatch as error:
        raise _mismatch(f"header {name}: {error.message}") from None


def _mismatch(message: str) -> HeaderMismatch:
    return HeaderMismatch(CODE_HEADER_MISMATCH, message)
