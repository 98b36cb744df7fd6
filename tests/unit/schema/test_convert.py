"""Types to schemas, values into types, types back to JSON."""

# ruff: noqa: UP006, UP007, UP045 - the old spellings are under test

import __future__

import collections
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import pathlib
import re
import subprocess
import sys
import typing
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar, Union

import annotated_types
import attrs
import msgspec
import pydantic
import pytest
import typing_extensions

from trimaran.errors import DeclarationError
from trimaran.schema import ConversionError, Validator, decoder_of, enc_hook, schema_of, to_jsonable


def shown(value: object) -> str:
    """A name for a test: the value without its address, which is another one in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


T = TypeVar("T")
UTC = datetime.UTC


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """How loud."""

    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    HALF = 0.5
    X = "x"


class Forgiving(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value):
        return cls.A


class Bits(enum.Flag):
    R = 1
    W = 2


class Point(NamedTuple):
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    deep: typing.Required[bool]
    limit: int


@dataclasses.dataclass
class Node:
    name: str
    kids: "list[Node]" = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Documented:
    """A documented thing.

    Attributes:
        size: how big
    """

    size: int
    colour: Annotated[Colour, "its colour"] = Colour.RED


@dataclasses.dataclass
class Derived:
    a: int
    extra: dataclasses.InitVar[int] = 0
    total: int = dataclasses.field(init=False)

    def __post_init__(self, extra):
        self.total = self.a + extra


@dataclasses.dataclass
class Box(Generic[T]):
    item: T
    more: list[T] = dataclasses.field(default_factory=list)


class Struct(msgspec.Struct, rename="camel"):
    """A struct."""

    item_count: Annotated[int, msgspec.Meta(ge=0, description="how many")]
    note: str | msgspec.UnsetType = msgspec.UNSET


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    a: int


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str = ""


class Tagged(msgspec.Struct, array_like=True, tag="t"):
    a: pathlib.Path


@attrs.define
class Attrs:
    n: int = attrs.field(validator=attrs.validators.gt(0))
    _private: str = "p"


@attrs.define
class Converted:
    n: int = attrs.field(converter=lambda n: n * 2)
    items: list[int] = attrs.Factory(list)


class Model(pydantic.BaseModel):
    """A model."""

    when: datetime.date = pydantic.Field(description="the day", alias="onDay")
    n: int = pydantic.Field(ge=0, default=1)


class Tree(pydantic.BaseModel):
    model: Model | None = None
    kids: list["Tree"] = []


class StrictModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    when: datetime.date


@pydantic.dataclasses.dataclass
class PydanticDataclass:
    n: int = pydantic.Field(ge=3)


@dataclasses.dataclass
class Holder:
    models: list[Model]
    where: pathlib.Path
    either: Model | int = 0


UserId = NewType("UserId", int)


class Sku(str):
    pass


Json = typing_extensions.TypeAliasType("Json", "Union[dict[str, Json], list[Json], str, int, None]")
Ids = typing_extensions.TypeAliasType("Ids", list[int])

NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}
STRING = {"type": "string"}
NULL = {"type": "null"}
PLAIN = [STRING, NUMBER, {"type": "boolean"}, {"type": "object"}]
ROW = {"type": "array", "items": {"anyOf": [*PLAIN, NULL]}}
ITEM = {"anyOf": [*PLAIN, ROW, NULL]}
ANYTHING = {"anyOf": [*PLAIN, {"type": "array", "items": ITEM}, NULL]}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Any, ANYTHING),
        (object, ANYTHING),
        (None, {"type": "null"}),
        (bool, {"type": "boolean"}),
        (int, INTEGER),
        (float, NUMBER),
        (str, STRING),
        (typing.LiteralString, STRING),
        (bytes, {"type": "string", "description": "in base64"}),
        (list, {"type": "array", "items": ITEM}),
        (list[int], {"type": "array", "items": INTEGER}),
        (typing.List[int], {"type": "array", "items": INTEGER}),
        (collections.abc.Sequence[int], {"type": "array", "items": INTEGER}),
        (collections.abc.Iterable[int], {"type": "array", "items": INTEGER}),
        (collections.deque[int], {"type": "array", "items": INTEGER}),
        (set[int], {"type": "array", "items": INTEGER}),
        (tuple, {"type": "array", "items": ITEM}),
        (tuple[int, ...], {"type": "array", "items": INTEGER}),
        (tuple[float, float], {"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [INTEGER, STRING],
                "items": {"anyOf": [INTEGER, STRING]},
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (tuple[()], {"type": "array", "items": ITEM, "minItems": 0, "maxItems": 0}),
        (dict, {"type": "object"}),
        (dict[str, Any], {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (collections.abc.Mapping[int, int], {"type": "object", "additionalProperties": INTEGER}),
        (
            dict[Colour, int],
            {
                "type": "object",
                "propertyNames": {"type": "string", "enum": ["red", "blue"]},
                "additionalProperties": INTEGER,
            },
        ),
        (Optional[int], {"anyOf": [INTEGER, {"type": "null"}]}),
        (int | str | None, {"anyOf": [INTEGER, STRING, {"type": "null"}]}),
        (Union[int, float], NUMBER),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, "a", None], {"anyOf": [{**INTEGER, "enum": [1]}, {**STRING, "enum": ["a"]}, NULL]}),
        (Literal[True], {"type": "boolean", "enum": [True]}),
        (Literal[Colour.RED], {"type": "string", "enum": ["red"]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"type": "integer", "enum": [1, 2], "description": "How loud."}),
        (Mixed, {"anyOf": [{**INTEGER, "enum": [1]}, {**NUMBER, "enum": [0.5]}, {**STRING, "enum": ["x"]}]}),
        (Bits, INTEGER),
        (UserId, INTEGER),
        (TypeVar("B", bound=int), INTEGER),
        (TypeVar("C", int, str), {"anyOf": [INTEGER, STRING]}),
        (TypeVar("F"), ANYTHING),
        (Sku, STRING),
        (datetime.datetime, {"type": "string", "description": "for example 2026-07-28T10:30:00Z"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.time, {"type": "string", "description": "for example 10:30:00"}),
        (datetime.timedelta, {"type": "string", "description": "for example PT1H30M"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (decimal.Decimal, {"anyOf": [{"type": "string"}, {"type": "number"}]}),
        (pathlib.Path, {"type": "string"}),
        (ipaddress.IPv4Address, {"type": "string", "format": "ipv4"}),
        (re.Pattern[str], {"type": "string"}),
        (pydantic.AnyUrl, {"type": "string", "minLength": 1}),
        (Ids, {"type": "array", "items": INTEGER}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Annotated[int, typing_extensions.Doc("how many")], {"type": "integer", "description": "how many"}),
        (Annotated[int, msgspec.Meta(ge=1, description="d")], {"type": "integer", "minimum": 1, "description": "d"}),
        (Annotated[int, pydantic.Field(gt=1, le=5)], {"type": "integer", "exclusiveMinimum": 1, "maximum": 5}),
        (
            Annotated[int, annotated_types.Interval(ge=1, lt=5)],
            {"type": "integer", "minimum": 1, "exclusiveMaximum": 5},
        ),
        (Annotated[str, annotated_types.Len(1, 3)], {"type": "string", "minLength": 1, "maxLength": 3}),
        (Annotated[str, pydantic.Field(pattern="^a")], {"type": "string", "pattern": "^a"}),
        (Annotated[list[int], msgspec.Meta(max_length=2)], {"type": "array", "items": INTEGER, "maxItems": 2}),
        (Annotated[dict, msgspec.Meta(min_length=1)], {"type": "object", "minProperties": 1}),
        (
            Annotated[Optional[str], pydantic.Field(max_length=3)],
            {"anyOf": [{**STRING, "maxLength": 3}, NULL]},
        ),
        (
            Annotated[int, msgspec.Meta(title="T", examples=[1], extra_json_schema={"x-y": 1})],
            {"type": "integer", "title": "T", "examples": [1], "x-y": 1},
        ),
        (
            Annotated[int, pydantic.Field(title="T", examples=[1], json_schema_extra={"x-y": 1}, strict=True)],
            {"type": "integer", "title": "T", "examples": [1], "x-y": 1},
        ),
        (
            Point,
            {
                "type": "array",
                "description": "In this order: x, y.",
                "items": INTEGER,
                "minItems": 1,
                "maxItems": 2,
            },
        ),
        (Row, {"type": "array", "items": ITEM, "description": "In this order: a, b.", "minItems": 1}),
        (
            Options,
            {"type": "object", "properties": {"deep": {"type": "boolean"}, "limit": INTEGER}, "required": ["deep"]},
        ),
        (
            Documented,
            {
                "type": "object",
                "description": "A documented thing.",
                "properties": {
                    "size": {"type": "integer", "description": "how big"},
                    "colour": {
                        "type": "string",
                        "enum": ["red", "blue"],
                        "description": "its colour",
                        "default": "red",
                    },
                },
                "required": ["size"],
            },
        ),
        (
            Struct,
            {
                "type": "object",
                "description": "A struct.",
                "properties": {
                    "itemCount": {"type": "integer", "minimum": 0, "description": "how many"},
                    "note": STRING,
                },
                "required": ["itemCount"],
            },
        ),
        (
            Closed,
            {"type": "object", "properties": {"a": INTEGER}, "required": ["a"], "additionalProperties": False},
        ),
        (
            Attrs,
            {"type": "object", "properties": {"n": INTEGER, "private": {**STRING, "default": "p"}}, "required": ["n"]},
        ),
        (
            Derived,
            {"type": "object", "properties": {"a": INTEGER, "extra": {**INTEGER, "default": 0}}, "required": ["a"]},
        ),
        (
            Box[int],
            {
                "type": "object",
                "properties": {"item": INTEGER, "more": {"type": "array", "items": INTEGER}},
                "required": ["item"],
            },
        ),
        (
            Model,
            {
                "type": "object",
                "description": "A model.",
                "properties": {
                    "onDay": {"type": "string", "format": "date", "description": "the day"},
                    "n": {"type": "integer", "minimum": 0, "default": 1},
                },
                "required": ["onDay"],
            },
        ),
    ],
    ids=shown,
)
def test_an_annotation_has_its_schema(annotation, schema):
    assert schema_of(annotation) == schema
    Validator(schema)


def test_a_recursive_type_refers_to_itself_by_name():
    schema = schema_of(Node)
    assert schema["type"] == "object"
    assert schema["properties"]["kids"] == {"type": "array", "items": {"$ref": "#/$defs/Node"}}
    assert Validator(schema).is_valid({"name": "a", "kids": [{"name": "b", "kids": []}]})
    assert not Validator(schema).is_valid({"name": "a", "kids": [{"nom": "b"}]})


def test_a_recursive_pydantic_model_refers_to_itself_by_name():
    schema = schema_of(Tree)
    assert schema["properties"]["kids"]["items"] == {"$ref": "#/$defs/Tree"}
    assert set(schema["$defs"]) == {"Tree"}


def test_a_type_used_twice_is_written_once():
    """P19."""
    schema = schema_of(tuple[Model, Model, Closed])
    assert schema["prefixItems"][:2] == [{"$ref": "#/$defs/Model"}] * 2
    assert set(schema["$defs"]) == {"Model", "Closed"}
    assert schema["$defs"]["Closed"]["additionalProperties"] is False


def test_a_definition_stands_before_those_that_refer_to_it():
    """Ours: autogen reads them in this order, and loses the whole server over a name it has not read yet."""
    inner = dataclasses.make_dataclass("Inner", [("n", int)])
    outer = dataclasses.make_dataclass("Outer", [("a", inner), ("b", inner)])
    assert list(schema_of(dict[str, tuple[outer, outer, inner]])["$defs"]) == ["Inner", "Outer"]


def test_a_default_of_none_is_shown_only_where_null_is_taken():
    class Settings(pydantic.BaseModel):
        limit: int = None  # pyright: ignore[reportAssignmentType]
        size: int | None = None

    plain = dataclasses.make_dataclass("Plain", [("limit", int, None), ("size", int | None, None)])
    for annotation in (Settings, plain):
        properties = schema_of(annotation)["properties"]
        assert properties == {"limit": INTEGER, "size": {"anyOf": [INTEGER, NULL], "default": None}}


def test_a_form_says_what_a_person_is_to_fill_in():
    """Programs have a field for `date-time`; what they put there has a zone."""
    assert schema_of(datetime.datetime, mode="form") == {"type": "string", "format": "date-time"}
    assert schema_of(decimal.Decimal, mode="form") == NUMBER
    model = pydantic.create_model("M", at=(datetime.datetime, ...), link=(pydantic.AnyUrl, ...))
    formats = {name: field["format"] for name, field in schema_of(model, mode="form")["properties"].items()}
    assert formats == {"at": "date-time", "link": "uri"}


def test_a_time_with_a_zone_keeps_its_format_on_the_way_in():
    aware = Annotated[datetime.datetime, msgspec.Meta(tz=True)]
    assert schema_of(aware) == {"type": "string", "format": "date-time"}
    assert schema_of(aware, mode="output") == STRING
    assert (
        schema_of(pydantic.create_model("M", at=(pydantic.AwareDatetime, ...)))["properties"]["at"]["format"]
        == "date-time"
    )


def test_a_model_used_alone_and_inside_another_is_written_once():
    for order in (tuple[Model, Tree], tuple[Tree, Model]):
        assert set(schema_of(order)["$defs"]) == {"Model", "Tree"}


def test_two_types_of_one_name_are_kept_apart():
    first = dataclasses.make_dataclass("Same", [("a", int)])
    second = dataclasses.make_dataclass("Same", [("b", int)])
    third = pydantic.create_model("Same", c=(int, ...))
    wrap = pydantic.create_model("Wrap", one=(third, ...), two=(third, ...))
    schema = schema_of(tuple[first, first, second, second, third, third, wrap])
    assert set(schema["$defs"]) == {"Same", "Same2", "Same3", "Wrap"}
    Validator(schema)


def test_a_property_called_default_or_enum_is_no_keyword():
    odd = dataclasses.make_dataclass("Odd", [("default", Closed), ("enum", Closed), ("properties", Closed)])
    schema = schema_of(odd)
    assert schema["properties"]["default"] == {"$ref": "#/$defs/Closed"}
    assert set(schema["$defs"]) == {"Closed"}


def test_a_rule_beside_a_reference_does_not_replace_the_rules_of_the_definition():
    name = typing_extensions.TypeAliasType("Name", Annotated[str, msgspec.Meta(max_length=3)])
    validator = Validator(schema_of(Annotated[name, msgspec.Meta(max_length=9)]))
    assert not validator.is_valid("long")


def test_models_nest_in_dataclasses_in_lists():
    schema = schema_of(list[Holder])
    assert schema["items"]["properties"]["models"]["items"] == {"$ref": "#/$defs/Model"}
    (holder,) = decoder_of(list[Holder])([{"models": [{"onDay": "2020-01-02"}], "where": "/tmp", "either": 3}])
    assert holder == Holder([Model(onDay=datetime.date(2020, 1, 2))], pathlib.Path("/tmp"), 3)


def test_a_defaultdict_makes_what_is_missing_where_the_type_of_its_values_can():
    assert decoder_of(collections.defaultdict[str, list[int]])({"a": [1]}).default_factory is list
    assert decoder_of(collections.defaultdict[str, Documented])({}).default_factory is None


def test_a_set_inside_a_pydantic_model_takes_duplicates_like_any_other():
    class Tags(pydantic.BaseModel):
        some: set[int]
        fixed: frozenset[int]

    fields = schema_of(Tags)["properties"]
    assert fields == {name: {"type": "array", "items": INTEGER} for name in ("some", "fixed")}
    assert schema_of(Tags, mode="output")["properties"]["some"]["uniqueItems"]


def test_output_schemas_say_what_is_sent():
    assert schema_of(set[int], mode="output") == {"type": "array", "items": INTEGER, "uniqueItems": True}
    assert schema_of(decimal.Decimal, mode="output") == {"type": "string"}
    assert schema_of(Documented, mode="output")["required"] == ["size", "colour"]
    assert "default" not in schema_of(Documented, mode="output")["properties"]["colour"]
    assert schema_of(Struct, mode="output")["required"] == ["itemCount"]
    assert schema_of(Options, mode="output")["required"] == ["deep"]
    assert schema_of(Derived, mode="output")["properties"]["total"] == INTEGER


@pytest.mark.parametrize(
    "annotation",
    [complex, type, typing.Callable[[], int], Literal[b"x"], "int", list[complex]],
)
def test_what_means_nothing_in_json_is_refused(annotation):
    with pytest.raises(DeclarationError):
        schema_of(annotation)


def test_a_bound_that_is_no_number_is_refused():
    with pytest.raises(DeclarationError, match="numbers only"):
        schema_of(Annotated[datetime.date, annotated_types.Ge(datetime.date(2020, 1, 1))])


def test_a_predicate_is_refused():
    with pytest.raises(DeclarationError, match="check the value"):
        schema_of(Annotated[str, annotated_types.Predicate(str.islower)])


def test_a_class_with_an_unresolvable_annotation_is_refused_by_name():
    bad = dataclasses.make_dataclass("Bad", [("x", "Nowhere")])
    with pytest.raises(DeclarationError, match="Nowhere"):
        schema_of(bad)


def test_a_model_pydantic_cannot_describe_is_refused():
    class Bad(pydantic.BaseModel):
        x: typing.Callable[[], int]

    with pytest.raises(DeclarationError, match="pydantic"):
        schema_of(Bad)


@pytest.mark.parametrize(
    ("annotation", "value", "built"),
    [
        (Any, {"a": [1]}, {"a": [1]}),
        (object, 1, 1),
        (list[object], [1], [1]),
        (int, 1, 1),
        (int, 1.0, 1),
        (list[int], [1.0, 2], [1, 2]),
        (TypeVar("C", int, str), "x", "x"),
        (list[TypeVar("D", int, str)], ["x", 1], ["x", 1]),
        (bytes, "aGk=", b"hi"),
        (set[int], [1, 1], {1}),
        (frozenset[int], [1], frozenset({1})),
        (collections.deque[int], [1], collections.deque([1])),
        (collections.OrderedDict[str, int], {"a": 1}, collections.OrderedDict(a=1)),
        (collections.defaultdict[str, int], {"a": 1}, collections.defaultdict(int, a=1)),
        (collections.defaultdict[str, list[int]], {"a": [1]}, collections.defaultdict(list, a=[1])),
        (collections.Counter[str], {"a": 1}, collections.Counter("a")),
        (collections.Counter, {"a": 2}, collections.Counter("aa")),
        (collections.Counter[pathlib.Path], {"a": 1}, collections.Counter([pathlib.Path("a")])),
        (collections.abc.Iterable[int], [1], [1]),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (dict[str, pathlib.Path], {"a": "b"}, {"a": pathlib.Path("b")}),
        (dict[pathlib.Path, int], {"a": 1}, {pathlib.Path("a"): 1}),
        (tuple[pathlib.Path, int], ["a", 1], (pathlib.Path("a"), 1)),
        (tuple[pathlib.Path, ...], ["a"], (pathlib.Path("a"),)),
        (set[pathlib.Path], ["a"], {pathlib.Path("a")}),
        (Optional[pathlib.Path], None, None),
        (Optional[pathlib.Path], "a", pathlib.Path("a")),
        (ipaddress.IPv4Address, "1.2.3.4", ipaddress.IPv4Address("1.2.3.4")),
        (re.Pattern, "a+", re.compile("a+")),
        (datetime.datetime | str, "2020-01-02T00:00:00Z", datetime.datetime(2020, 1, 2, tzinfo=UTC)),
        (datetime.datetime | str, "soon", "soon"),
        (str | datetime.datetime, "2020-01-02T00:00:00Z", "2020-01-02T00:00:00Z"),
        (list[int] | set[str], ["a"], {"a"}),
        (Closed | Options, {"deep": True}, {"deep": True}),
        (Closed | Options, {"a": 1}, Closed(1)),
        (Cat | Dog, {"type": "Dog", "name": "x"}, Dog("x")),
        (Colour, "red", Colour.RED),
        (str | Colour, "red", "red"),
        (Level, 2.0, Level.HIGH),
        (Mixed, 0.5, Mixed.HALF),
        (Mixed, "x", Mixed.X),
        (Forgiving, "a", Forgiving.A),
        (Bits, 3, Bits.R | Bits.W),
        (Literal[Colour.RED, 1], "red", Colour.RED),
        (Sku, "abc", Sku("abc")),
        (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
        (uuid.UUID, "12345678123456781234567812345678", uuid.UUID(int=0x12345678123456781234567812345678)),
        (Point, [1], Point(1, 0)),
        (Row, [1, "x"], Row(1, "x")),
        (Tagged, ["t", "p"], Tagged(pathlib.Path("p"))),
        (Derived, {"a": 1, "extra": 2}, Derived(1, 2)),
        (Attrs, {"n": 1, "private": "q"}, Attrs(1, "q")),
        (Converted, {"n": 2}, Converted(2)),
        (Box[pathlib.Path], {"item": "a"}, Box(pathlib.Path("a"))),
        (Node, {"name": "a", "kids": [{"name": "b"}]}, Node("a", [Node("b")])),
        (Model, {"onDay": "2020-01-02"}, Model(onDay=datetime.date(2020, 1, 2))),
        (StrictModel, {"when": "2020-01-02"}, StrictModel(when=datetime.date(2020, 1, 2))),
        (PydanticDataclass, {"n": 3}, PydanticDataclass(3)),
        (list[PydanticDataclass], [{"n": 3}], [PydanticDataclass(3)]),
        (Annotated[int, pydantic.AfterValidator(lambda n: n + 1)], 1, 2),
        (Ids, [1], [1]),
        (Json, {"a": [1, None, {"b": "c"}]}, {"a": [1, None, {"b": "c"}]}),
        (Annotated[str, msgspec.Meta(pattern="^a+$")], "aa", "aa"),
        (Annotated[float, msgspec.Meta(multiple_of=0.1)], 0.3, 0.3),
        (Annotated[set[int], msgspec.Meta(max_length=2)], [1, 2], {1, 2}),
        (Annotated[list[pathlib.Path], msgspec.Meta(max_length=1)], ["a"], [pathlib.Path("a")]),
        (Annotated[datetime.datetime, msgspec.Meta(tz=False)], "2020-01-02T00:00:00", datetime.datetime(2020, 1, 2)),
    ],
    ids=shown,
)
def test_a_fitting_value_is_built(annotation, value, built):
    result = decoder_of(annotation)(value)
    assert result == built
    assert type(result) is type(built)


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (int, "1", "$"),
        (int, 1.5, "$"),
        (int, True, "$"),
        (list[int], [1, "x"], "$[1]"),
        (dict[str, int], {"a": "x"}, "$.a"),
        (Node, {"name": "a", "kids": [{}]}, "$.kids[0]"),
        (Holder, {"models": [{"onDay": "never"}], "where": "x"}, "$"),
        (datetime.date, "never", "$"),
        (ipaddress.IPv4Address, "x", "$"),
        (re.Pattern, "(", "$"),
        (Forgiving, "zzz", "$"),
        (Mixed, True, "$"),
        (Literal[Colour.RED, 1], True, "$"),
        (Cat, {"lives": 9}, "$"),
        (Attrs, {"n": 0}, "$"),
        (Model, {"onDay": "2020-01-02", "n": "3"}, "$.n"),
        (PydanticDataclass, {"n": 1}, "$.n"),
        (Annotated[str, msgspec.Meta(pattern="^a+$")], "aa\n", "$"),
        (Annotated[list[pathlib.Path], msgspec.Meta(max_length=1)], ["a", "b"], "$"),
        (Annotated[int, annotated_types.Ge(1)], 0, "$"),
        (datetime.datetime | datetime.date, "never", "$"),
        (Json, {"a": 1.5}, "$"),
    ],
    ids=shown,
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(annotation, value, path):
    with pytest.raises(ConversionError) as caught:
        decoder_of(annotation)(value)
    assert caught.value.path.startswith(path)
    assert caught.value.reason


def test_a_key_that_does_not_fit_is_refused_with_the_path_of_its_mapping():
    with pytest.raises(ConversionError) as caught:
        decoder_of(dict[str, dict[int, str]])({"a": {"x": "y"}})
    assert (caught.value.path, caught.value.reason) == ("$[...]", "Expected `int`, got `str` as a key")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement `type` came with Python 3.12")
def test_an_alias_by_statement_may_contain_itself():
    """msgspec would go round in it for ever."""
    names: dict[str, typing.Any] = {}
    exec("type Json = dict[str, Json] | list[Json] | str | int | None", names)
    assert decoder_of(names["Json"])({"a": [1, None]}) == {"a": [1, None]}
    with pytest.raises(ConversionError):
        decoder_of(names["Json"])({"a": [1.5]})


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters came with Python 3.12")
def test_type_parameters_of_a_class_are_known_where_annotations_are_text():
    """`typing.get_type_hints` knows them from Python 3.12.4 on."""
    names: dict[str, typing.Any] = {"dataclass": dataclasses.dataclass, "__name__": __name__}
    # Not T, which this module defines: msgspec takes a name of the module for it.
    source = "@dataclass\nclass Held[L]:\n    left: L\n@dataclass\nclass Pair[I](Held[str]):\n    item: I\n"
    exec(compile(source, "<pair>", "exec", flags=__future__.annotations.compiler_flag), names)
    assert decoder_of(names["Held"][int])({"left": 1}).left == 1
    with pytest.raises(ConversionError):
        decoder_of(names["Held"][int])({"left": "x"})
    assert decoder_of(names["Pair"][int])({"left": "a", "item": 1}).item == 1


def test_read_only_of_typing_extensions_is_seen_through():
    class Fixed(typing_extensions.TypedDict):
        n: typing_extensions.ReadOnly[int]

    assert decoder_of(Fixed)({"n": 1}) == {"n": 1}
    with pytest.raises(ConversionError):
        decoder_of(Fixed)({"n": "x"})


def test_a_models_own_objection_carries_the_whole_path():
    with pytest.raises(ConversionError) as caught:
        decoder_of(dict[str, list[Model]])({"a": [{"onDay": "never"}]})
    assert caught.value.path.endswith(".onDay")


@pytest.mark.parametrize(
    ("value", "ready"),
    [
        ("x", "x"),
        (None, None),
        (Model(onDay=datetime.date(2020, 1, 2)), {"onDay": "2020-01-02", "n": 1}),
        (Holder([], pathlib.Path("a"), 1), {"models": [], "where": "a", "either": 1}),
        (
            {"a": [Model(onDay=datetime.date(2020, 1, 2))], 1: {2}},
            {"a": [{"onDay": "2020-01-02", "n": 1}], "1": [2]},
        ),
        (PydanticDataclass(3), {"n": 3}),
        (pydantic.AnyUrl("http://a.b/"), "http://a.b/"),
        (Struct(1), {"itemCount": 1}),
        (Point(1, 2), [1, 2]),
        (Mixed.HALF, 0.5),
        (b"hi", "aGk="),
        (re.compile("a"), "a"),
        (ipaddress.IPv4Address("1.2.3.4"), "1.2.3.4"),
        (collections.deque([1]), [1]),
        (collections.ChainMap({"a": 1}), {"a": 1}),
        (range(2), [0, 1]),
        ({"a": 1}.keys(), ["a"]),
        (Sku("a"), "a"),
        (datetime.timedelta(days=1), "P1D"),
    ],
    ids=shown,
)
def test_a_value_becomes_ready_for_json(value, ready):
    assert msgspec.json.decode(msgspec.json.encode(to_jsonable(value))) == ready
    assert msgspec.json.decode(msgspec.json.encode(value, enc_hook=enc_hook)) == ready


@pytest.mark.parametrize("value", [object(), {"a": [object()]}, complex(1), ValueError("x"), lambda: 1])
def test_a_value_with_no_json_form_is_refused_by_its_type(value):
    with pytest.raises(TypeError, match=r"builtins\.|has no JSON form"):
        to_jsonable(value)


def test_what_goes_out_fits_the_output_schema():
    for annotation, value in [
        (Holder, Holder([Model(onDay=datetime.date(2020, 1, 2))], pathlib.Path("a"))),
        (Derived, Derived(1, 2)),
        (Tree, Tree(kids=[Tree()])),
        (set[int], {1, 2}),
        (Cat | Dog, Cat(9)),
        (Attrs, Attrs(1)),
    ]:
        assert Validator(schema_of(annotation, mode="output")).errors(to_jsonable(value)) == []


@pytest.mark.slow
def test_neither_pydantic_nor_attrs_nor_jsonschema_is_imported_unasked():
    script = (
        "import sys, dataclasses\n"
        "from trimaran.schema import compile_signature, decoder_of, to_jsonable\n"
        "@dataclasses.dataclass\n"
        "class D:\n    a: int\n"
        "def f(a: int, d: list[D] | None = None) -> D: ...\n"
        "compile_signature(f).arguments(b'{\"a\": 1}')\n"
        "to_jsonable(D(1))\n"
        "assert not {'pydantic', 'attrs', 'attr', 'jsonschema_rs', 'asyncio'} & set(sys.modules), sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_path_is_known_wherever_its_python_keeps_it() -> None:
    """Python 3.13 defines `pathlib.Path` in `pathlib._local`."""

    class Path(pathlib.PurePosixPath): ...

    Path.__qualname__ = "Path"
    for module in ("pathlib", "pathlib._local"):
        Path.__module__ = module
        assert schema_of(Path) == {"type": "string"}
