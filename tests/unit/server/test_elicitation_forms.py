"""Forms for elicitation: flat objects that clients can draw, and answers back into what the handler asked for."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from trimaran.errors import DeclarationError, ProtocolError
from trimaran.server.elicitation_forms import form_of


class Size(enum.Enum):
    small = "s"
    large = "l"


class Trip(msgspec.Struct):
    city: str
    days: int = 3
    size: Size = Size.small
    pace: Literal["slow", "fast"] = "slow"
    nick: str | None = None
    sure: bool = False
    price: float = 1.5


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Names(TypedDict):
    first: str


class Choosy(msgspec.Struct):
    tags: list[Literal["a", "b"]]


class Bounded(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=2, description="Your name")]


class Nested(msgspec.Struct):
    inner: Trip


class Listed(msgspec.Struct):
    words: list[str]


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def test_a_schema_is_sent_as_it_is_and_its_answer_is_a_mapping() -> None:
    form = form_of(SCHEMA)
    assert form.schema == SCHEMA
    assert form.read({"name": "Ada"}) == {"name": "Ada"}


def test_a_model_becomes_a_flat_object_of_primitives() -> None:
    """protocol.md 1.3."""
    schema = form_of(Trip).schema
    assert schema["type"] == "object"
    assert schema["required"] == ["city"]
    kinds = {k: f["type"] for k, f in schema["properties"].items()}
    assert kinds == {
        "city": "string",
        "days": "integer",
        "size": "string",
        "pace": "string",
        "nick": "string",
        "sure": "boolean",
        "price": "number",
    }
    assert schema["properties"]["size"]["enum"] == ["s", "l"]
    assert schema["properties"]["pace"]["enum"] == ["slow", "fast"]
    assert "$ref" not in str(schema)
    assert "$defs" not in schema
    assert "default" not in schema["properties"]["nick"]


def test_an_answer_comes_back_as_the_model() -> None:
    trip = form_of(Trip).read({"city": "Rome", "size": "l"})
    assert trip == Trip(city="Rome", size=Size.large)
    assert form_of(Point).read({"x": 1}) == Point(1)
    assert form_of(Names).read({"first": "Ada"}) == {"first": "Ada"}


def test_a_pydantic_model_is_a_form_too() -> None:
    import pydantic

    class Person(pydantic.BaseModel):
        name: str
        age: int = 1

    assert form_of(Person).read({"name": "Ada"}) == Person(name="Ada", age=1)


@pytest.mark.parametrize(
    ("spec", "value"), [(str, "x"), (int, 3), (float, 1.5), (bool, True), (Literal["a", "b"], "b")]
)
def test_a_single_primitive_is_wrapped_and_unwrapped(spec: Any, value: Any) -> None:
    form = form_of(spec)
    assert list(form.schema["properties"]) == ["value"]
    assert form.schema["required"] == ["value"]
    assert form.read({"value": value}) == value


def test_a_single_enum_comes_back_as_its_member() -> None:
    assert form_of(Size).read({"value": "l"}) is Size.large


def test_constraints_and_descriptions_reach_the_client() -> None:
    field = form_of(Bounded).schema["properties"]["name"]
    assert (field["minLength"], field["description"]) == (2, "Your name")


def test_a_list_of_choices_can_be_drawn() -> None:
    form = form_of(Choosy)
    assert form.schema["properties"]["tags"]["type"] == "array"
    assert form.read({"tags": ["a"]}) == Choosy(tags=["a"])


def test_defaults_fill_what_the_person_left_out() -> None:
    form = form_of({"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]})
    assert form.read({}) == {"a": "x"}
    assert form.read(None) == {"a": "x"}


@pytest.mark.parametrize(
    ("spec", "content"),
    [
        (SCHEMA, {}),
        (SCHEMA, None),
        (SCHEMA, {"name": 1}),
        (Trip, {"city": "Rome", "days": "many"}),
        (Trip, {"city": "Rome", "size": "xl"}),
        (Bounded, {"name": "a"}),
        (int, {"value": "x"}),
        (int, {}),
    ],
)
def test_an_answer_that_does_not_fit_is_invalid_params(spec: Any, content: Any) -> None:
    with pytest.raises(ProtocolError, match="does not fit the form") as caught:
        form_of(spec).read(content)
    assert caught.value.code == -32602


@pytest.mark.parametrize("content", ["text", 5, [1], [["a", 1]]])
def test_an_answer_that_is_no_object_is_invalid_params_too(content: Any) -> None:
    """The client is a stranger: whatever it sends is answered, never an exception of another kind."""
    with pytest.raises(ProtocolError) as caught:
        form_of(SCHEMA).read(content)
    assert caught.value.code == -32602


@pytest.mark.parametrize(
    "spec",
    [
        Nested,
        Listed,
        list[str],
        {"type": "string"},
        {"properties": {}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}},
    ],
)
def test_what_no_client_can_draw_is_refused(spec: Any) -> None:
    """protocol.md 1.3: one level of strings, numbers, booleans and choices."""
    with pytest.raises(DeclarationError):
        form_of(spec)


@pytest.mark.parametrize("field", [{"type": ["string", "null"]}, True])
def test_an_odd_field_of_a_schema_is_refused_or_drawn_but_nothing_breaks(field: Any) -> None:
    """Valid JSON Schema, so the author is told what to write instead, not shown a TypeError."""
    try:
        form_of({"type": "object", "properties": {"a": field}})
    except DeclarationError as error:
        assert "'a'" in str(error)


def test_what_only_the_type_can_tell_is_invalid_params_too() -> None:
    """A schema cannot say that the 30th of February is no date."""

    class Day(msgspec.Struct):
        when: datetime.date

    assert form_of(Day).read({"when": "2025-02-28"}) == Day(datetime.date(2025, 2, 28))
    with pytest.raises(ProtocolError) as caught:
        form_of(Day).read({"when": "2025-02-30"})
    assert caught.value.code == -32602


def test_choices_without_a_type_are_strings() -> None:
    form = form_of({"type": "object", "properties": {"a": {"enum": ["x"]}, "b": {"const": "y"}}})
    assert form.schema["properties"] == {"a": {"type": "string", "enum": ["x"]}, "b": {"type": "string", "enum": ["y"]}}


def test_a_form_of_a_type_is_made_once_and_a_schema_is_not_altered() -> None:
    assert form_of(Trip) is form_of(Trip)
    before = {"type": "object", "properties": {"a": {"enum": ["x"]}}}
    form_of(before)
    assert before == {"type": "object", "properties": {"a": {"enum": ["x"]}}}
