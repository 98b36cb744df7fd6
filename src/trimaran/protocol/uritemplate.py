"""Expand RFC 6570 URI templates, all four levels, and match URIs against them: the inverse, as far as one exists.

    {x} {x,y}        at least one character each, never a raw slash, `?` or `#`
    {+x} {x*} {+x*}  at least one character, any character: the forms that cross slashes; one string as it stands
    {/x} {.x} {#x}   may be absent, and is then missing from the result; exploded ({/x*}, {.x*}) it is a list
    {;x} {?x} {&x}   parameters in any order, each may be absent, unknown ones are ignored; exploded it is a list

Values are percent-decoded, so even `{x}` may contain a slash that was sent as %2F: check it before you build a file path.
Earlier expressions take as much as they can, but leave an optional expression behind them its part.

Matching cannot backtrack. Where each end is forced (`a/{x}/b/{y}`), one pass forward finds them. Otherwise, from the
last token to the first, a table is made of the positions from which the rest can match, and the pass forward picks
ends from it. The cost is tokens times length of the URI, whatever either says. Both are bounded: a template has at most
`MAX_URI` characters and 100 variables, and a URI of more than `MAX_URI` characters matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NoReturn, cast, final
from urllib.parse import quote

import msgspec

from trimaran.errors import DeclarationError, LocalProtocolError
from trimaran.types.wire import MAX_URI


class _Operator(msgspec.Struct, frozen=True):
    """A row of the table in RFC 6570, appendix A."""

    sign: str
    first: str
    separator: str
    is_named: bool = False
    if_empty: str = ""
    allow_reserved: bool = False


_OPERATORS: Final = {
    row.sign: row
    for row in (
        _Operator("", "", ","),
        _Operator("+", "", ",", allow_reserved=True),
        _Operator("#", "#", ",", allow_reserved=True),
        _Operator(".", ".", "."),
        _Operator("/", "/", "/"),
        _Operator(";", ";", ";", is_named=True),
        _Operator("?", "?", "&", is_named=True, if_empty="="),
        _Operator("&", "&", "&", is_named=True, if_empty="="),
    )
}


class _Variable(msgspec.Struct, frozen=True):
    name: str
    is_exploded: bool = False
    prefix: int | None = None


class _Expression(msgspec.Struct, frozen=True):
    operator: _Operator
    variables: tuple[_Variable, ...]


class _Literal(msgspec.Struct, frozen=True):
    text: str


class _Span(msgspec.Struct, frozen=True):
    """A stretch of the URI that holds variables.

    With an opener it may be absent, or the opener and any number of allowed characters; without one, it is at least
    one allowed character.
    """

    read: Callable[[str], list[tuple[_Variable, str | list[str]]]]
    run: re.Pattern[str]
    opener: str = ""
    longest: int | None = None


_RESERVED: Final = ":/?#[]@!$&'()*+,;="
_PERCENT_RUN: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_NAME: Final = re.compile(r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*")
_PREFIX: Final = re.compile(r"[1-9][0-9]{0,3}")
# Characters that RFC 6570 section 2.1 forbids in literals; the apostrophe is allowed, because URIs contain it.
_NOT_LITERAL: Final = re.compile(r"[\x00-\x20\x7f-\x9f\"<>\\^`|}\ud800-\udfff]|%(?![0-9A-Fa-f]{2})")

# A percent-encoded character that is not the same as the bare one (RFC 3986, 2.2) is held, while matching, as a lone
# surrogate: every character of the text is then one unit, and `%2F` is no slash. Lone surrogates cannot come in.
_SHIELD: Final = {code: 0xDC00 + code for code in range(128) if not (chr(code).isalnum() or chr(code) in "-._~")}
_UNSHIELD: Final = {shielded: code for code, shielded in _SHIELD.items()}
_NOT_TEXT: Final = re.compile("[\ud800-\udfff]")

_SEGMENT: Final = "/?#"
# Before these the first place that works is taken, before `.` and `/` the last: `a.tar.gz` has the extension `gz`,
# but a query starts at its first question mark.
_EARLY_OPENERS: Final = ";?&#"
_YES: Final = b"\x01"
_MOST_VARIABLES: Final = 100  # each costs a pass over the URI; real templates have three or four


@final
class UriTemplate:
    """A URI template, compiled once.

    Raises:
        DeclarationError: the template is malformed, and the message names the position; or it is too long.
    """

    __slots__ = ("_captures", "_lead", "_parts", "_plain_lead", "_tokens", "literal", "text", "variables")

    text: str
    variables: tuple[str, ...]
    """The names, each once, in the order they appear."""
    literal: bool
    """Whether there is no expression at all, so that the template is one plain URI."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = _parse(text)
        _check_size(text, self._parts)
        names = [var.name for part in self._parts if isinstance(part, _Expression) for var in part.variables]
        self.variables = tuple(dict.fromkeys(names))
        self.literal = all(isinstance(part, str) for part in self._parts)
        tokens = _compile(self._parts)
        self._lead = tokens[0].text if tokens and isinstance(tokens[0], _Literal) else ""
        self._plain_lead = "" if _NOT_TEXT.search(self._lead) else self._lead
        self._tokens = tuple(tokens[1:] if self._lead else tokens)
        self._captures = _forced_captures if _is_forced(self._tokens) else _captures

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UriTemplate) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def expand(self, values: Mapping[str, object]) -> str:
        """Fill the template in; None, an empty list and an empty mapping count as undefined.

        Raises:
            LocalProtocolError: a value is neither text, number, boolean, nor a flat list or mapping of these.
        """
        return "".join(
            _encode(part, allow_reserved=True) if isinstance(part, str) else _expand(part, values)
            for part in self._parts
        )

    def match(self, uri: str) -> dict[str, str | list[str]] | None:
        """Read the variables out of a URI; None when the URI is not one of this template's, or longer than `MAX_URI`."""
        if len(uri) > MAX_URI:
            return None
        # Most templates of a server begin otherwise; only a percent sign could hide that this one does not.
        if not uri.startswith(self._plain_lead) and "%" not in uri[: len(self._plain_lead)]:
            return None
        if _NOT_TEXT.search(uri):
            return None
        text = _shield(uri)
        if not text.startswith(self._lead):
            return None
        captures = self._captures(self._tokens, text, len(self._lead))
        return None if captures is None else _agree(captures)


def _parse(text: str) -> list[str | _Expression]:
    if len(text) > MAX_URI:
        raise DeclarationError(f"a URI template has at most {MAX_URI} characters, {text[:60]!r}... has {len(text)}")
    parts: list[str | _Expression] = []
    position = 0
    while position < len(text):
        start = text.find("{", position)
        end_of_literal = len(text) if start < 0 else start
        if end_of_literal > position:
            bad = _NOT_LITERAL.search(text, position, end_of_literal)
            if bad is not None:
                _malformed(text, bad.start(), f"{bad[0]!r} must be percent-encoded or paired")
            parts.append(text[position:end_of_literal])
        if start < 0:
            break
        end = text.find("}", start)
        if end < 0:
            _malformed(text, start, "this brace is never closed")
        parts.append(_parse_expression(text, start + 1, end))
        position = end + 1
    return parts


def _parse_expression(text: str, start: int, end: int) -> _Expression:
    sign = text[start] if start < end and text[start] in "+#./;?&=,!@|" else ""
    if sign not in _OPERATORS:
        _malformed(text, start, f"the operator {sign!r} is reserved for the future")
    position = start + len(sign)
    variables: list[_Variable] = []
    while True:
        name = _NAME.match(text, position, end)
        if name is None:
            _malformed(text, position, "a variable name is expected: letters, digits, underscores, inner dots")
        position = name.end()
        is_exploded, prefix = False, None
        if text[position] == "*":
            is_exploded = True
            position += 1
        elif text[position] == ":":
            digits = _PREFIX.match(text, position + 1, end)
            if digits is None:
                _malformed(text, position, "a prefix is a number from 1 to 9999")
            prefix = int(digits[0])
            position = digits.end()
        variables.append(_Variable(name[0], is_exploded, prefix))
        if position == end:
            return _Expression(_OPERATORS[sign], tuple(variables))
        if text[position] != ",":
            _malformed(text, position, "a comma or the closing brace is expected")
        position += 1


def _malformed(text: str, position: int, reason: str) -> NoReturn:
    raise DeclarationError(f"malformed URI template {text[:200]!r} at position {position}: {reason}")


def _check_size(text: str, parts: Sequence[str | _Expression]) -> None:
    variables = sum(len(part.variables) for part in parts if isinstance(part, _Expression))
    if variables > _MOST_VARIABLES:
        raise DeclarationError(
            f"a URI template has at most {_MOST_VARIABLES} variables, {text[:60]!r}... has {variables}"
        )


# Expansion.


def _expand(expression: _Expression, values: Mapping[str, object]) -> str:
    operator = expression.operator
    pieces = [
        piece
        for variable in expression.variables
        for piece in _expand_variable(operator, variable, values.get(variable.name))
    ]
    return operator.first + operator.separator.join(pieces) if pieces else ""


def _expand_variable(operator: _Operator, variable: _Variable, value: object) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, (Mapping, Sequence)) or isinstance(value, (str, bytes, bytearray)):
        text = _scalar(variable, value)[: variable.prefix]
        return [_named(operator, variable, _encode(text, allow_reserved=operator.allow_reserved))]
    if variable.prefix is not None:
        raise LocalProtocolError.invalid_params(f"variable {variable.name!r} has a prefix, so it cannot be a list")

    def encode(item: object) -> str:
        return _encode(_scalar(variable, item), allow_reserved=operator.allow_reserved)

    if isinstance(value, Mapping):
        mapping = cast("Mapping[object, object]", value)
        pairs = [(encode(key), encode(item)) for key, item in mapping.items() if item is not None]
        if variable.is_exploded:
            return [
                f"{key}={item}" if item or not operator.is_named else key + operator.if_empty for key, item in pairs
            ]
        items = [text for pair in pairs for text in pair]
    else:
        items = [encode(item) for item in cast("Sequence[object]", value) if item is not None]
        if variable.is_exploded:
            return [_named(operator, variable, item) for item in items]
    return [_named(operator, variable, ",".join(items))] if items else []


def _named(operator: _Operator, variable: _Variable, text: str) -> str:
    if not operator.is_named:
        return text
    return f"{variable.name}={text}" if text else variable.name + operator.if_empty


def _scalar(variable: _Variable, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise LocalProtocolError.invalid_params(
        f"variable {variable.name!r} must be text, a number, a boolean, or a flat list or mapping of these, "
        f"not {type(value).__name__}"
    )


def _encode(text: str, *, allow_reserved: bool) -> str:
    try:
        if not allow_reserved:
            return quote(text, safe="")
        # Reserved expansion lets triplets through as they are; any other percent sign is data.
        escapes = _PERCENT_RUN.findall(text)
        encoded = [quote(piece, safe=_RESERVED) for piece in _PERCENT_RUN.split(text)]
        return "".join(piece + run for piece, run in zip(encoded, [*escapes, ""], strict=True))
    except UnicodeEncodeError:
        raise LocalProtocolError.invalid_params("a lone surrogate is not text and cannot stand in a URI") from None


# Matching: compile.


def _compile(parts: Sequence[str | _Expression]) -> list[_Literal | _Span]:
    tokens: list[_Literal | _Span] = []
    query: list[_Variable] = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            tokens.append(_Literal(_shield(part)))
        elif part.operator.sign in ("?", "&") and index and _is_query(parts[index - 1]):
            # `{?a}{&b}` is one query to the reader: its parameters come in any order. The span made for the first
            # expression reads through this same list.
            query.extend(part.variables)
        elif part.operator.is_named:
            query = list(part.variables)
            tokens.append(_named_span(part.operator, query))
        elif part.operator.sign == "#":
            tokens.append(_fragment_span(part.variables))
        else:
            tokens.extend(_positional(part))
    return tokens


def _is_query(part: str | _Expression) -> bool:
    return isinstance(part, _Expression) and part.operator.sign in ("?", "&")


def _positional(expression: _Expression) -> list[_Literal | _Span]:
    """One token per variable, with a literal comma between those that have no opener of their own."""
    operator = expression.operator
    opener = operator.first
    tokens: list[_Literal | _Span] = []
    last = len(expression.variables) - 1
    for index, variable in enumerate(expression.variables):
        if tokens and not opener:
            tokens.append(_Literal(operator.separator))
        excluded = "" if operator.allow_reserved else _SEGMENT
        if variable.is_exploded:
            excluded = {"": "", "/": "?#"}.get(opener, _SEGMENT)
        elif index < last:
            # The last one takes the rest; the others stop at the separator that the next one needs.
            excluded += operator.separator
        tokens.append(
            _Span(_reader(variable, operator.separator if opener else ""), _run(excluded), opener, variable.prefix)
        )
    return tokens


def _reader(variable: _Variable, separator: str) -> Callable[[str], list[tuple[_Variable, str | list[str]]]]:
    if variable.is_exploded and separator:
        return lambda text: [(variable, text.split(separator))]
    return lambda text: [(variable, text)]


def _fragment_span(variables: tuple[_Variable, ...]) -> _Span:
    def read(text: str) -> list[tuple[_Variable, str | list[str]]]:
        return list(zip(variables, text.split(",", len(variables) - 1), strict=False))

    return _Span(read, _run(""), "#", variables[0].prefix if len(variables) == 1 else None)


def _named_span(operator: _Operator, variables: list[_Variable]) -> _Span:
    def read(text: str) -> list[tuple[_Variable, str | list[str]]]:
        pairs: dict[str, list[str]] = {}
        for parameter in text.split(operator.separator):
            name, _, value = parameter.partition("=")
            pairs.setdefault(name, []).append(value)
        captures: list[tuple[_Variable, str | list[str]]] = []
        for variable in variables:
            values = pairs.get(_shield(variable.name))
            if values is not None:
                captures.append((variable, values if variable.is_exploded else values[0]))
        return captures

    return _Span(read, _run("#" if operator.separator == "&" else _SEGMENT), operator.first)


def _run(excluded: str) -> re.Pattern[str]:
    return re.compile(f"[^{re.escape(excluded)}]+" if excluded else ".+", re.DOTALL)


@lru_cache(maxsize=8)  # a URI is matched against one template after the other
def _shield(text: str) -> str:
    return _PERCENT_RUN.sub(_shield_run, text) if "%" in text else text


def _shield_run(run: re.Match[str]) -> str:
    return bytes.fromhex(run[0].replace("%", "")).decode("utf-8", "surrogateescape").translate(_SHIELD)


# Matching: run.


def _is_forced(tokens: tuple[_Literal | _Span, ...]) -> bool:
    """Tell whether each span can only end where its run ends: at the end, or at a literal it could not run into."""
    for token, follower in zip(tokens, (*tokens[1:], None), strict=False):
        if isinstance(token, _Literal):
            continue
        if token.opener or token.longest is not None or isinstance(follower, _Span):
            return False
        if follower is not None and token.run.match(follower.text):
            return False
    return True


def _forced_captures(
    tokens: tuple[_Literal | _Span, ...], text: str, start: int
) -> list[tuple[_Variable, str | list[str]]] | None:
    captures: list[tuple[_Variable, str | list[str]]] = []
    position = start
    for token in tokens:
        if isinstance(token, _Literal):
            if not text.startswith(token.text, position):
                return None
            position += len(token.text)
            continue
        run = token.run.match(text, position)
        if run is None:
            return None
        captures.extend(token.read(run[0]))
        position = run.end()
    return captures if position == len(text) else None


def _captures(
    tokens: tuple[_Literal | _Span, ...], text: str, start: int
) -> list[tuple[_Variable, str | list[str]]] | None:
    tables = _tables(tokens, text)
    if not tables[0][0][start]:
        return None
    captures: list[tuple[_Variable, str | list[str]]] = []
    position = start
    for index, token in enumerate(tokens):
        if isinstance(token, _Literal):
            position += len(token.text)
            continue
        if token.opener:
            # The second table of an optional span: positions from which it can match while present.
            if not tables[index][1][position]:
                continue
            position += 1
        end = _end(tokens, tables, index, text, position)
        captures.extend(token.read(text[position:end]))
        position = end
    return captures


def _tables(tokens: tuple[_Literal | _Span, ...], text: str) -> list[tuple[bytearray, bytearray]]:
    """For each token, and for the end: from which positions can the rest match; from which with this one present."""
    after = bytearray(len(text) + 1)
    after[len(text)] = 1
    tables = [(after, after)]
    for token in reversed(tokens):
        if isinstance(token, _Literal):
            after = _before_literal(token.text, text, after)
            tables.append((after, after))
            continue
        here = _before_run(token, text, after)
        if token.opener:
            present = bytearray(len(after))
            position = text.find(token.opener)
            while position >= 0:
                present[position] = after[position + 1] | here[position + 1]
                position = text.find(token.opener, position + 1)
            here = _union(after, present)
            tables.append((here, present))
        else:
            tables.append((here, here))
        after = here
    tables.reverse()
    return tables


def _before_literal(literal: str, text: str, after: bytearray) -> bytearray:
    here = bytearray(len(after))
    position = text.find(literal)
    while position >= 0:
        here[position] = after[position + len(literal)]
        position = text.find(literal, position + 1)
    return here


def _before_run(span: _Span, text: str, after: bytearray) -> bytearray:
    here = bytearray(len(after))
    for run in span.run.finditer(text):
        start, end = run.span()
        last = after.rfind(_YES, start + 1, end + 1)
        if last < 0:
            continue
        if span.longest is None:
            here[start:last] = _YES * (last - start)
            continue
        nearest = last
        for position in range(last - 1, start - 1, -1):
            if after[position + 1]:
                nearest = position + 1
            here[position] = nearest - position <= span.longest
    return here


def _union(first: bytearray, other: bytearray) -> bytearray:
    merged = int.from_bytes(first, "little") | int.from_bytes(other, "little")
    return bytearray(merged.to_bytes(len(first), "little"))


def _end(
    tokens: tuple[_Literal | _Span, ...],
    tables: list[tuple[bytearray, bytearray]],
    index: int,
    text: str,
    position: int,
) -> int:
    """Choose the end of the span at `position`: as late as possible, so that the rest still matches."""
    span = tokens[index]
    assert isinstance(span, _Span)
    low = position if span.opener else position + 1
    run = span.run.match(text, position)
    high = position if run is None else run.end()
    if span.longest is not None:
        high = min(high, position + span.longest)
    early: list[int] = []
    late = -1
    for follower, (_, present) in zip(tokens[index + 1 :], tables[index + 1 :], strict=False):
        if not isinstance(follower, _Span) or not follower.opener:
            break
        if follower.opener in _EARLY_OPENERS:
            early.append(present.find(_YES, low, high + 1))
        else:
            late = max(late, present.rfind(_YES, low, high + 1))
    start = min((end for end in early if end >= 0), default=late)
    return start if start >= 0 else tables[index + 1][0].rfind(_YES, low, high + 1)


def _agree(captures: list[tuple[_Variable, str | list[str]]]) -> dict[str, str | list[str]] | None:
    """Decode the captures. A variable that appears twice must have one value; a prefix must be a prefix of it."""
    result: dict[str, str | list[str]] = {}
    prefixes: list[tuple[int, _Variable, str]] = []
    for variable, raw in captures:
        value = _unshield(raw) if isinstance(raw, str) else [_unshield(item) for item in raw]
        if value is None or (isinstance(value, list) and None in value):
            return None
        if variable.prefix is not None:
            prefixes.append((variable.prefix, variable, cast("str", value)))
        elif result.setdefault(variable.name, cast("str | list[str]", value)) != value:
            return None
    # The longest first: where the whole value is nowhere, it is the best that is known of it.
    for length, variable, value in sorted(prefixes, key=lambda prefix: -prefix[0]):
        if len(value) > length or result.setdefault(variable.name, value)[:length] != value:
            return None
    return result


def _unshield(text: str) -> str | None:
    if text.isascii():
        return text
    text = text.translate(_UNSHIELD)
    # Octets that are no UTF-8: two such URIs must not come out as one value.
    return None if _NOT_TEXT.search(text) else text
