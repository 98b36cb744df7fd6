"""Every shape the schema layer knows, with values: what real clients are shown and sent.

`SHAPES` holds annotations, `WRITTEN` output schemas that an author wrote. A value is what a tool returns.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import ipaddress
import pathlib
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import annotated_types
import attrs
import msgspec
import pydantic
import typing_extensions

from trimaran import Server

T = TypeVar("T")


@dataclass
class Place:
    """Somewhere."""

    name: str
    seen: dt.datetime | None = None


@dataclass
class Leg:
    start: Place
    end: Place


@dataclass
class Größe:
    cm: float


@dataclass
class Result:
    """An object that looks like an envelope and is none."""

    result: int


@dataclass
class Node:
    value: int
    children: list[Node] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    item: T
    more: list[T] = field(default_factory=list)


class Address(TypedDict, total=False):
    street: typing_extensions.Required[str]
    zip: str | None


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    ONE = 1
    HALF = 0.5
    WORD = "word"


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    label: str = ""


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str]


class Row(msgspec.Struct, array_like=True):
    key: str
    count: int = 0


class Sparse(msgspec.Struct, omit_defaults=True, rename="camel"):
    first_name: str = ""
    last_name: str | msgspec.UnsetType = msgspec.UNSET


@attrs.define
class Engine:
    power: float
    fuel: Literal["diesel", "petrol"] = "petrol"


class Circle(pydantic.BaseModel):
    kind: Literal["circle"] = "circle"
    radius: float


class Square(pydantic.BaseModel):
    kind: Literal["square"] = "square"
    side: decimal.Decimal


class Drawing(pydantic.BaseModel):
    shape: Annotated[Circle | Square, pydantic.Field(discriminator="kind")]
    more: list[Annotated[Circle | Square, pydantic.Field(discriminator="kind")]] = []


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]
    next: str | None = None


class Branch(pydantic.BaseModel):
    name: str
    twigs: list[Branch] = []
    parent: Branch | None = None


class Moment(pydantic.BaseModel):
    at: dt.datetime
    aware: pydantic.AwareDatetime
    clock: dt.time
    took: dt.timedelta
    day: dt.date
    id: pydantic.UUID4
    url: pydantic.AnyUrl
    ip: ipaddress.IPv6Address
    path: pathlib.Path
    secret: pydantic.SecretStr
    raw: bytes
    anything: Any = None
    price: Annotated[decimal.Decimal, pydantic.Field(ge=0)] = decimal.Decimal("1E+3")
    code: str = pydantic.Field(default="ab", pattern=r"^(?P<head>a)b$")


Tree = typing_extensions.TypeAliasType("Tree", "int | list[Tree]")
Meters = NewType("Meters", float)

NAIVE = dt.datetime(2026, 7, 28, 10, 30, 0, 250_000)
AWARE = dt.datetime(2026, 7, 28, 10, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))
ODD = dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=7230)))
PORTO = Place("Porto", NAIVE)
LEG = Leg(PORTO, Place("Faro"))
NODE = Node(1, [Node(2, [Node(3)])])
ID = uuid.UUID("12345678-1234-4678-9234-567812345678")
MOMENT = Moment(
    at=NAIVE,
    aware=AWARE,
    clock=dt.time(10, 30),
    took=dt.timedelta(days=-1, milliseconds=1),
    day=dt.date(2026, 7, 28),
    id=ID,
    url=pydantic.AnyUrl("https://exämple.com/a|b"),
    ip=ipaddress.IPv6Address("fe80::1%eth0"),
    path=pathlib.Path("/tmp"),  # noqa: S108
    secret=pydantic.SecretStr("x"),
    raw=b"raw",
)

SHAPES: dict[str, tuple[Any, list[Any]]] = {
    "boolean": (bool, [True, False]),
    "integer": (int, [0, -(2**40)]),
    "number": (float, [0.5, 3.0]),
    "integer_or_number": (int | float, [1, 0.5]),
    "maybe_text": (str | None, ["text", None]),
    "integer_or_text": (int | str, [1, "text"]),
    "anything_in_a_list": (list[Any], [[1, "a", None, {"x": []}]]),
    "bare_list": (list, [[1, "a"], []]),
    "texts": (list[str], [["a"], []]),
    "sequence": (Sequence[int], [[1, 2], (1, 2)]),
    "queue": (collections.deque[int], [collections.deque([1, 2])]),
    "set": (set[int], [{1, 2}, set()]),
    "frozen_set": (frozenset[str], [frozenset({"a"})]),
    "pair": (tuple[str, int], [("a", 1)]),
    "pair_alike": (tuple[float, float], [(0.5, 1.5)]),
    "triple": (tuple[str, int | None, Place], [("a", None, PORTO), ("a", 1, PORTO)]),
    "empty_tuple": (tuple[()], [()]),
    "numbers": (tuple[int, ...], [(1, 2, 3), ()]),
    "tuple_with_anything": (tuple[str, Any], [("a", {"b": 1}), ("a", None)]),
    "nested": (list[list[dict[str, list[int]]]], [[[{"a": [1]}], []]]),
    "object": (dict, [{"a": 1}]),
    "map": (dict[str, int], [{"a": 1}, {}]),
    "map_of_anything": (dict[str, Any], [{"a": None, "b": [1]}]),
    "map_by_number": (dict[int, str], [{1: "a"}]),
    "map_by_choice": (dict[Literal["a", "b"], int], [{"a": 1}]),
    "map_by_enum": (dict[Color, int], [{Color.RED: 1}]),
    "map_by_day": (dict[dt.date, float], [{dt.date(2026, 1, 1): 1.5}]),
    "map_by_id": (dict[uuid.UUID, int], [{ID: 1}]),
    "mapping": (Mapping[str, Place], [{"home": PORTO}]),
    "literal": (Literal["a", "b"], ["a"]),
    "literals_mixed": (Literal["a", 1, True, None], ["a", 1, True, None]),
    "enum": (Color, [Color.RED]),
    "enum_mixed": (Mixed, [Mixed.ONE, Mixed.HALF, Mixed.WORD]),
    "flag": (Rights, [Rights.READ | Rights.WRITE]),
    "maybe_enum": (Color | None, [Color.BLUE, None]),
    "datetime": (dt.datetime, [NAIVE, AWARE, ODD, dt.datetime.max]),
    "datetime_aware": (Annotated[dt.datetime, msgspec.Meta(tz=True)], [AWARE]),
    "datetime_or_text": (dt.datetime | str, [NAIVE, "soon"]),
    "date": (dt.date, [dt.date(2026, 2, 28), dt.date.min]),
    "time": (dt.time, [dt.time(10, 30), dt.time(10, 30, 0, 5), dt.time(10, tzinfo=dt.UTC)]),
    "timedelta": (
        dt.timedelta,
        [dt.timedelta(0), dt.timedelta(seconds=1.5), dt.timedelta(days=-3, microseconds=5), dt.timedelta.max],
    ),
    "decimal": (decimal.Decimal, [decimal.Decimal("0.10"), decimal.Decimal("1E+30"), decimal.Decimal("-0")]),
    "decimal_bounded": (Annotated[decimal.Decimal, annotated_types.Ge(0)], [decimal.Decimal("0.10")]),
    "uuid": (uuid.UUID, [ID]),
    "bytes_in_a_list": (list[bytes], [[b"\x00\xff", b""]]),
    "path": (pathlib.Path, [pathlib.Path("a b/ü")]),
    "pattern": (re.Pattern[str], [re.compile(r"(?P<a>x)\Z")]),
    "ipv4": (ipaddress.IPv4Address, [ipaddress.IPv4Address("192.0.2.1")]),
    "ipv6": (ipaddress.IPv6Address, [ipaddress.IPv6Address("::1"), ipaddress.IPv6Address("fe80::1%eth0")]),
    "network": (ipaddress.IPv4Network, [ipaddress.IPv4Network("192.0.2.0/24")]),
    "newtype": (Meters, [1.5]),
    "bounded_text": (Annotated[str, msgspec.Meta(min_length=1, pattern="^[a-z]+$")], ["abc"]),
    "bounded_integer": (Annotated[int, pydantic.Field(ge=1, le=9, description="A digit.")], [5]),
    "bounded_maybe": (Annotated[int | None, annotated_types.Ge(1)], [1, None]),
    "bounded_list": (Annotated[list[int], msgspec.Meta(max_length=3)], [[1]]),
    "bounded_alias": (Annotated[Tree, annotated_types.MaxLen(3)], [[1, [2]]]),
    "place": (Place, [PORTO, Place("Faro", AWARE)]),
    "maybe_place": (Place | None, [PORTO, None]),
    "integer_or_place": (int | Place, [5, PORTO]),
    "place_or_address": (Place | Address, [PORTO, {"street": "Main"}]),
    "places": (list[Place], [[PORTO, PORTO], []]),
    "leg": (Leg, [LEG]),
    "legs": (list[Leg], [[LEG, LEG], []]),
    "maybe_leg": (Leg | None, [LEG, None]),
    "legs_by_name": (dict[str, list[Leg]], [{"a": [LEG]}]),
    "leg_and_place": (tuple[Leg, Place], [(LEG, PORTO)]),
    "other_letters": (list[tuple[Größe, Größe]], [[(Größe(1.5), Größe(2))]]),
    "looks_like_an_envelope": (Result, [Result(5)]),
    "node": (Node, [NODE]),
    "nodes": (list[Node], [[NODE, NODE]]),
    "maybe_node": (Node | None, [NODE, None]),
    "tree": (Tree, [5, [1, [2, [3]]]]),
    "box": (Box[int], [Box(1, [2])]),
    "box_of_boxes": (Box[Box[Place]], [Box(Box(PORTO), [Box(PORTO)])]),
    "address": (Address, [{"street": "Main"}, {"street": "Main", "zip": None}]),
    "point": (Point, [Point(1), Point(1, "a")]),
    "points": (list[Point], [[Point(1, "a")]]),
    "cat_or_dog": (Cat | Dog, [Cat(9), Dog(["sit"])]),
    "cats": (list[Cat | Dog], [[Cat(9), Dog([])]]),
    "row": (Row, [Row("a", 1)]),
    "rows": (dict[str, Row], [{"x": Row("a")}]),
    "sparse": (Sparse, [Sparse(), Sparse("Ada", "L")]),
    "attrs": (Engine, [Engine(1.5)]),
    "model": (Circle, [Circle(radius=1)]),
    "models": (list[Circle | Square], [[Circle(radius=1), Square(side=decimal.Decimal("0.1"))]]),
    "discriminated": (Drawing, [Drawing(shape=Square(side=decimal.Decimal("1E+3")), more=[Circle(radius=1)])]),
    "discriminated_union": (
        Annotated[Circle | Square, pydantic.Field(discriminator="kind")],
        [Circle(radius=1), Square(side=decimal.Decimal(2))],
    ),
    "generic_model": (Page[Leg], [Page[Leg](items=[LEG], next="2")]),
    "generic_models": (list[Page[Branch]], [[Page[Branch](items=[Branch(name="a")])]]),
    "branch": (Branch, [Branch(name="a", twigs=[Branch(name="b")])]),
    "branches": (list[Branch], [[Branch(name="a", twigs=[Branch(name="b")])]]),
    "moment": (Moment, [MOMENT]),
    "moments": (list[Moment], [[MOMENT]]),
}

INTEGER = {"type": "integer"}
PLACE = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TWO = {"$defs": {"Place": PLACE}, "anyOf": [{"$ref": "#/$defs/Place"}, INTEGER]}
WRITTEN: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "no_type": ({"properties": {"n": INTEGER}}, [{"n": 1}, 5, [1], None]),
    "no_rule": ({"description": "Whatever comes."}, [{"n": 1}, 5, None]),
    "object_by_reference": ({"$ref": "#/$defs/Place", "$defs": {"Place": PLACE}}, [{"name": "Porto"}]),
    "object_by_definitions": ({"$ref": "#/definitions/P", "definitions": {"P": PLACE}}, [{"name": "Porto"}]),
    "array_with_definitions": (
        {"type": "array", "items": {"$ref": "#/definitions/P"}, "definitions": {"P": PLACE}},
        [[{"name": "Porto"}]],
    ),
    "sometimes_an_object": (TWO, [{"name": "Porto"}, 5]),
    "types_in_a_list": ({"type": ["object", "null"], "properties": {"n": INTEGER}}, [{"n": 1}, None]),
    "refers_to_its_root": (
        {"anyOf": [INTEGER, {"type": "array", "items": {"$ref": "#"}}]},
        [5, [1, [2]]],
    ),
    "object_refers_to_its_root": (
        {"type": "object", "properties": {"next": {"$ref": "#"}, "n": INTEGER}, "required": ["n"]},
        [{"n": 1, "next": {"n": 2}}],
    ),
    "refers_to_a_place_inside": (
        {"type": "array", "prefixItems": [PLACE, {"$ref": "#/prefixItems/0"}]},
        [[{"name": "Porto"}, {"name": "Faro"}]],
    ),
    "definition_refers_to_the_root": (
        {
            "anyOf": [INTEGER, {"$ref": "#/$defs/List"}],
            "$defs": {"List": {"type": "array", "items": {"$ref": "#"}}},
        },
        [5, [1, [2]]],
    ),
    "anchor": (
        {"type": "array", "items": {"$ref": "#place"}, "$defs": {"P": {"$anchor": "place", **PLACE}}},
        [[{"name": "Porto"}]],
    ),
    "newest_dialect": (
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "array", "items": INTEGER},
        [[1, 2]],
    ),
    "older_dialect": (
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": INTEGER},
        [[1, 2]],
    ),
    "booleans": ({"type": "object", "properties": {"a": True}, "additionalProperties": False}, [{"a": 1}, {}]),
    "own_document": (
        {"$id": "https://example.com/two", **TWO},
        [{"name": "Porto"}, 5],
    ),
    "dynamic": (
        {
            "$dynamicAnchor": "node",
            "anyOf": [INTEGER, {"type": "array", "items": {"$dynamicRef": "#node"}}],
        },
        [5, [1, [2]]],
    ),
    "recursive_anchor": (
        {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "$recursiveAnchor": True,
            "anyOf": [INTEGER, {"type": "array", "items": {"$recursiveRef": "#"}}],
        },
        [5, [1, [2]]],
    ),
}

# Patterns as Python or Rust take them, and as both and JavaScript do; None where one cannot.
PATTERNS: dict[str, str | None] = {
    r"^(?P<a>x)(?P=a)\Z": r"^(x)(?:\1)$",
    r"\A[\w.-]+@[\w\.-]+\.\w+\Z": r"^[\w.-]+@[\w\.-]+\.\w+$",
    r"[]a]": r"[\]a]",
    r"[^]a]": r"[^\]a]",
    r"[\w-.]": r"[\w\-.]",
    r"a{,3}": r"a{0,3}",
    r"a{2}b{1,}": r"a{2}b{1,}",
    r"{x}": r"\{x\}",
    r"x}": r"x\}",
    r"\-\_\@\ \#": r"-_@ #",
    r"\U0001F600": r"😀",
    r"(?i)a": None,
    r"a*+b": None,
    r"a+?b??": r"a+?b??",
    r"(?>a)": None,
    r"(?(1)a|b)": None,
    r"(?<=a)b(?<!c)": r"(?<=a)b(?<!c)",
    r"(?#note)a": r"a",
    r"[[]": r"[\[]",
    r"\N{DIGIT ONE}": None,
    r"a]b": r"a\]b",
    r"[a\-z]": r"[a\-z]",
    r"\p{L}+": None,
    r"\a": r"\x07",
    r"[\d-\w]": r"[\d\-\w]",
    "\\\\": "\\\\",
    r"ä+": r"ä+",
    r"[^\W\d_]": r"[^\W\d_]",
    r"(a|b)*?": r"(a|b)*?",
    r"(?P<n>\d{4})-(?P<m>\d\d)": r"(\d{4})-(\d\d)",
    r"\.\/\:": r"\.\/:",
    r"(a)(?P<n>b)(?P=n)1": r"(a)(b)(?:\2)1",
    r"(?<y>\d+)x": r"(\d+)x",
    r"\d{4}-\d{2}": r"\d{4}-\d{2}",
    r"[\U0001F600]": r"[😀]",
}


def make_server(*, written: bool = True) -> Server:
    """A server whose tools return the values of every shape, by number, and take them."""
    server = Server("shapes", version="1")
    for name, (annotation, values) in SHAPES.items():
        server.add_tool(_giver(values, annotation), name=name, inline=True)
        server.add_tool(_taker(annotation), name=f"take_{name}", inline=True)
    for name, (schema, values) in (WRITTEN if written else {}).items():
        server.add_tool(_giver(values, Any), name=name, output_schema=schema, inline=True)
    return server


def _giver(values: list[Any], annotation: Any) -> Any:
    def give(number: int) -> Any:
        return values[number]

    give.__annotations__ = {"number": int, "return": annotation}
    return give


def _taker(annotation: Any) -> Any:
    def take(value: Any) -> bool:
        return True

    take.__annotations__ = {"value": annotation, "return": bool}
    return take


if __name__ == "__main__":
    make_server(written="--written" in sys.argv).run()
