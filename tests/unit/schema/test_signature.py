"""Signatures compiled into schemas, and arguments read by them."""

# ruff: noqa: UP045
from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import functools
import pathlib
import typing
import uuid
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import annotated_types
import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from pydantic import Field

from trimaran.errors import DeclarationError
from trimaran.schema import ArgumentError, ExplicitArguments, Validator, compile_signature, schema_of

if TYPE_CHECKING:
    from elsewhere import Context, Nowhere


class Ctx:
    pass


class SubCtx(Ctx):
    pass


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Model(pydantic.BaseModel):
    n: int
    tags: list[str] = []


@dataclasses.dataclass
class Plain:
    a: int
    b: str = "x"


def schema_of_fn(fn, **options):
    return compile_signature(fn, **options).input_schema


def test_parameters_become_properties():
    def fn(a: int, b: str = "x", c: list[int] | None = None, d=5, *, e: float): ...

    assert schema_of_fn(fn) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string", "default": "x"},
            "c": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}], "default": None},
            "d": {"default": 5, "anyOf": schema_of(Any)["anyOf"]},
            "e": {"type": "number"},
        },
        "required": ["a", "e"],
    }


def test_a_function_without_parameters_takes_an_open_object():
    def fn(): ...

    signature = compile_signature(fn)
    assert signature.input_schema == {"type": "object", "properties": {}}
    assert signature.arguments(b'{"extra": 1}') == {}


def test_descriptions_come_from_the_annotation_and_then_from_the_docstring():
    def fn(a: Annotated[int, "noted"], b: int, c: int = Field(1, description="fielded")):
        """Does it.

        And more.

        Args:
            a: documented
            b: documented
            c: documented
        """

    signature = compile_signature(fn)
    said = {key: shape["description"] for key, shape in signature.input_schema["properties"].items()}
    assert said == {"a": "noted", "b": "documented", "c": "fielded"}
    assert signature.description == "Does it.\n\nAnd more."


def test_no_docstring_is_no_description():
    assert compile_signature(lambda a: a).description is None


def test_a_pydantic_field_works_as_note_and_as_default():
    def fn(
        a: Annotated[int, Field(ge=1)],
        b: int = Field(5, le=9),
        c: int = Field(...),
        d: list = Field(default_factory=list),
    ): ...

    signature = compile_signature(fn)
    assert signature.input_schema["required"] == ["a", "c"]
    assert signature.input_schema["properties"]["b"] == {"type": "integer", "maximum": 9, "default": 5}
    assert signature.arguments(b'{"a": 1, "c": 2}') == {"a": 1, "b": 5, "c": 2, "d": []}
    with pytest.raises(ArgumentError, match="argument 'a': 0 is less than the minimum of 1"):
        signature.arguments(b'{"a": 0, "c": 2}')


def test_an_alias_is_the_name_on_the_wire():
    def fn(from_: Annotated[int, Field(alias="from")]): ...

    signature = compile_signature(fn)
    assert signature.input_schema["required"] == ["from"]
    assert signature.arguments(b'{"from": 1}') == {"from_": 1}


def test_a_default_that_json_cannot_show_is_not_shown():
    sentinel = object()

    def fn(a: int = sentinel): ...

    signature = compile_signature(fn)
    assert signature.input_schema["properties"]["a"] == {"type": "integer"}
    assert signature.arguments(b"{}") == {"a": sentinel}


def test_a_mutable_default_is_not_shared_between_calls():
    def fn(a: list[int] = [1], b: dict = {}): ...

    signature = compile_signature(fn)
    first, second = signature.arguments(b"{}"), signature.arguments(b"{}")
    first["a"].append(2)
    assert second == {"a": [1], "b": {}}
    assert signature.arguments(b"{}")["b"] is not second["b"]


def test_an_immutable_default_is_the_very_object():
    default = Plain(1)

    def fn(a: Plain = default): ...

    assert compile_signature(fn).arguments(b"{}")["a"] is default


def test_extra_arguments_are_ignored():
    """C3."""

    def fn(a: int): ...

    assert compile_signature(fn).arguments(b'{"a": 1, "b": 2}') == {"a": 1}


@pytest.mark.parametrize(
    "annotation",
    [Ctx, SubCtx, Optional[Ctx], Ctx | None, Annotated[Ctx, "it"], "Ctx", "Ctx | None", "Optional[SubCtx]"],
    ids=str,
)
def test_the_context_is_left_out_of_the_schema(annotation):
    def fn(ctx, a: int): ...

    fn.__annotations__["ctx"] = annotation
    signature = compile_signature(fn, context_types=(Ctx,))
    assert signature.context_params == ("ctx",)
    assert list(signature.input_schema["properties"]) == ["a"]


def test_a_parameter_called_ctx_needs_no_annotation():
    signature = compile_signature(lambda ctx, a: a, context_types=(Ctx,), name="fn")
    assert signature.context_params == ("ctx",)
    assert list(signature.input_schema["properties"]) == ["a"]
    assert "ctx" in compile_signature(lambda ctx: ctx, name="fn").input_schema["properties"], (
        "where there is no context"
    )


def test_a_context_imported_for_the_type_checker_only_is_still_the_context():
    def fn(
        a: int,
        one: Context,
        two: Context | None = None,
        three: Optional[Context] = None,
        four: Annotated[Context, "x"] = None,
        five: Context[int] = None,
        six: "elsewhere.Context" = None,  # noqa: F821, UP037
        seven: "Context" = None,  # noqa: UP037
    ) -> Nowhere: ...

    signature = compile_signature(fn, context_types=(Ctx,))
    assert signature.context_params == ("one", "two", "three", "four", "five", "six", "seven")
    assert list(signature.input_schema["properties"]) == ["a"]
    assert signature.output_schema is None


def test_an_unresolvable_annotation_is_refused_with_its_parameter():
    def fn(a: int, b: list[Nowhere]): ...

    with pytest.raises(DeclarationError, match=r"'list\[Nowhere\]' of parameter 'b' of .*fn"):
        compile_signature(fn)


def test_local_types_are_resolved():
    @dataclasses.dataclass
    class Local:
        a: int

    def fn(x: Local) -> list[Local]: ...

    signature = compile_signature(fn)
    assert signature.arguments(b'{"x": {"a": 1}}') == {"x": Local(1)}
    assert signature.output_schema["items"]["required"] == ["a"]


def test_closed_over_types_are_resolved_after_their_function_returned():
    def make():
        Local = Plain

        def fn(x: Local):
            return Local

        return fn

    assert compile_signature(make()).arguments(b'{"x": {"a": 1}}') == {"x": Plain(1)}


def args(a, *rest): ...
def kwargs(a, **rest): ...
def positional(a, /): ...
def private(_a): ...
def strange(a: complex): ...
def opaque() -> complex: ...
def broken(a: Annotated[str, Field(pattern="(")]): ...


@pytest.mark.parametrize(
    ("fn", "remedy"),
    [
        (args, r"rest: list\[\.\.\.\]"),
        (kwargs, r"rest: dict\[str, \.\.\.\]"),
        (positional, "remove the `/`"),
        (private, "rename it to 'a'"),
        (strange, "parameter 'a' of strange: complex"),
        (opaque, "return annotation of opaque: complex"),
        (broken, "pattern"),
    ],
)
def test_a_signature_that_cannot_work_is_refused_with_the_remedy(fn, remedy):
    with pytest.raises(DeclarationError, match=remedy):
        compile_signature(fn)


def test_a_builtin_without_a_signature_is_refused():
    with pytest.raises(DeclarationError, match="wrap it in a function"):
        compile_signature(type)


def test_skipped_parameters_are_left_to_the_caller():
    def fn(a: int, _b: int, *rest): ...

    assert list(schema_of_fn(fn, skip=("_b", "rest"))["properties"]) == ["a"]


def test_the_name_given_is_the_name_in_messages():
    with pytest.raises(DeclarationError, match="the tool 'x' takes"):
        compile_signature(args, name="the tool 'x'")


class Callable_:
    def __call__(self, a: int) -> int:
        """Called."""

    def method(self, a: int) -> int:
        """Bound."""

    @classmethod
    def made(cls, a: int) -> int:
        """Made."""

    @staticmethod
    def static(a: int) -> int:
        """Static."""


def decorated(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs)

    return inner


async def coroutine(a: int) -> int:
    """Awaited."""


def two(b: int, a: int) -> int:
    """Partial."""


@pytest.mark.parametrize(
    ("fn", "description"),
    [
        (Callable_(), "Called."),
        (Callable_().method, "Bound."),
        (Callable_.made, "Made."),
        (Callable_.static, "Static."),
        (decorated(coroutine), "Awaited."),
        (coroutine, "Awaited."),
        (functools.partial(two, 1), "Partial."),
        (functools.partial(two, b=1), "Partial."),
        (functools.partial(functools.partial(two), b=1), "Partial."),
    ],
)
def test_every_kind_of_callable_is_read(fn, description):
    signature = compile_signature(fn)
    assert signature.input_schema == {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert signature.output_schema == {"type": "integer"}
    assert signature.description == description


def test_an_object_is_described_by_what_its_author_wrote_and_by_nothing_python_says():
    class Silent:
        def __call__(self, a: int) -> int: ...

    class Described:
        """Search the archive."""

        def __call__(self, a: int) -> int: ...

    class Decorator:
        """Decorates."""

        def __init__(self, fn):
            functools.update_wrapper(self, fn)

        def __call__(self, *args, **kwargs): ...

    assert compile_signature(Silent()).description is None
    assert compile_signature(Described()).description == "Search the archive."
    assert compile_signature(functools.partial(Described())).description == "Search the archive."
    assert compile_signature(Decorator(coroutine)).description == "Awaited."


@pytest.mark.parametrize("annotation", [None, Any, object, typing.NoReturn, collections.abc.AsyncIterator[int], Ctx])
def test_a_return_that_promises_no_structure_has_no_output_schema(annotation):
    def fn(): ...

    fn.__annotations__["return"] = annotation
    assert compile_signature(fn, is_content=lambda hint: hint is Ctx).output_schema is None


async def test_a_generator_has_no_output_schema_unless_told():
    async def fn() -> collections.abc.AsyncGenerator[int, None]:
        yield 1

    async def unannotated():
        yield 1

    assert compile_signature(fn).output_schema is None
    assert compile_signature(unannotated).output_schema is None
    assert compile_signature(fn, returns=Plain).output_schema["required"] == ["a", "b"]


def test_a_missing_argument_is_described():
    def fn(a: int, b: int, c: Literal["x", "y"], d: Any):
        """.

        Args:
            b: how many
        """

    signature = compile_signature(fn)
    for raw, message in [
        (b'{"a": 1, "c": "x", "d": 1}', "missing required argument 'b' (an integer: how many)"),
        (b'{"a": 1, "b": 1, "d": 1}', 'missing required argument \'c\' (one of "x", "y")'),
        (b'{"a": 1, "b": 1, "c": "x"}', "missing required argument 'd'"),
        (b'{"b": 1, "c": "x", "d": 1}', "missing required argument 'a' (an integer)"),
    ]:
        with pytest.raises(ArgumentError) as caught:
            signature.arguments(raw)
        assert str(caught.value) == message


def test_a_wrong_argument_is_named_with_its_place():
    def fn(count: int, items: list[Plain] = []): ...

    signature = compile_signature(fn)
    with pytest.raises(ArgumentError) as caught:
        signature.arguments(b'{"count": "many"}')
    assert str(caught.value) == 'argument \'count\': "many" is not of type "integer" (at $.count)'
    with pytest.raises(ArgumentError, match=r"argument 'items': .* \(at \$\.items\[0\]\.a\)") as caught:
        signature.arguments(b'{"count": "many", "items": [{"a": []}]}'.replace(b'"many"', b"1"))
    assert caught.value.violations[0].path == "$.items[0].a"


def test_all_violations_are_kept_and_the_first_is_told():
    def fn(a: int, b: int): ...

    with pytest.raises(ArgumentError, match="argument 'a'") as caught:
        compile_signature(fn).arguments(b'{"a": "x", "b": "y"}')
    assert [v.path for v in caught.value.violations] == ["$.a", "$.b"]


def test_what_only_the_type_can_judge_is_told_by_the_type():
    def fn(when: datetime.date, m: Model | None = None): ...

    with pytest.raises(ArgumentError, match="argument 'when': Invalid RFC3339"):
        compile_signature(fn).arguments(b'{"when": "never"}')


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b'{"a": NaN}', b'{"a": "\\ud800"}', b'{"a": "\xff"}', b"[" * 100_000, b'{"a": 1e999}'],
    ids=lambda raw: raw[:12],
)
def test_what_is_not_a_json_object_is_an_argument_error(raw):
    def fn(a: int): ...

    for reader in (compile_signature(fn), ExplicitArguments({"type": "object"})):
        with pytest.raises(ArgumentError) as caught:
            reader.arguments(raw)
        assert caught.value.violations


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": "\ud800"}, {"a": object()}, {"a": {1, 2}}, [], None])
def test_a_decoded_value_that_is_no_json_object_is_an_argument_error(value):
    def fn(a: int): ...

    with pytest.raises(ArgumentError):
        compile_signature(fn).arguments_from(value)


def test_decoded_arguments_are_read_like_raw_ones():
    def fn(a: int, when: datetime.date | None = None): ...

    signature = compile_signature(fn)
    assert signature.arguments_from({"a": 1}) == {"a": 1, "when": None}
    assert signature.arguments(msgspec.Raw(b'{"a": 1}')) == {"a": 1, "when": None}


def test_a_whole_float_is_an_integer_and_its_neighbours_stay():
    def fn(a: int, b: int | str, c: float, d: list[int]): ...

    read = compile_signature(fn).arguments(b'{"a": 1.0, "b": "5", "c": 2, "d": [3.0]}')
    assert read == {"a": 1, "b": "5", "c": 2.0, "d": [3]}
    assert [type(value) for value in read.values()] == [int, str, float, list]


def test_stringified_arguments_are_repaired_and_noted():
    """P24."""

    def fn(ids: list[int], text: str, model: Model | None = None): ...

    signature = compile_signature(fn)
    notes = []
    read = signature.arguments(b'{"ids": "[1, 2]", "text": "[3]", "model": "{\\"n\\": 4}"}', notes=notes)
    assert read == {"ids": [1, 2], "text": "[3]", "model": Model(n=4)}
    assert notes == [
        "argument 'ids' was a JSON string and was read as an array",
        "argument 'model' was a JSON string and was read as an object",
    ]
    assert signature.arguments(b'{"ids": "[1]", "text": ""}')["ids"] == [1]


def test_a_message_blames_no_argument_that_could_be_repaired():
    """A template's `{id}` is always text; of `notes://3/foo` the id is right."""

    def fn(id: int, part: Literal["title", "body"]): ...

    with pytest.raises(ArgumentError) as caught:
        compile_signature(fn).arguments_from({"id": "3", "part": "foo"})
    assert str(caught.value) == 'argument \'part\': "foo" is not one of "title" or "body" (at $.part)'


def test_a_repair_that_does_not_save_the_call_is_not_noted():
    def fn(a: int, b: int): ...

    notes = []
    with pytest.raises(ArgumentError, match="argument 'b'"):
        compile_signature(fn).arguments(b'{"a": "1", "b": "x"}', notes=notes)
    assert notes == []


def test_an_explicit_schema_is_kept_as_it_is():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    reader = ExplicitArguments(schema)
    assert reader.input_schema is schema
    assert reader.arguments(b'{"a": 1}') == {"a": 1}
    assert reader.arguments_from({"a": "1"}) == {"a": 1}
    with pytest.raises(ArgumentError) as caught:
        reader.arguments(b'{"b": 1}')
    assert str(caught.value) == "unknown argument 'b'; expected: 'a'"


def test_an_explicit_schema_without_properties_expects_no_arguments():
    with pytest.raises(ArgumentError, match="unknown argument 'b'; expected: no arguments"):
        ExplicitArguments({"type": "object", "additionalProperties": False}).arguments(b'{"b": 1}')


def test_an_explicit_schema_that_cannot_work_is_refused():
    with pytest.raises(DeclarationError, match="the schema of 'x'"):
        ExplicitArguments({"type": "array"}, owner="the schema of 'x'")
    with pytest.raises(DeclarationError):
        ExplicitArguments({"type": "object", "properties": {"a": {"type": "nothing"}}})


def test_a_violation_outside_the_named_properties_is_told_by_its_path():
    schema = {"type": "object", "patternProperties": {"^x": {"type": "integer"}}}
    with pytest.raises(ArgumentError, match=r'"a" is not of type "integer" \(at \$\.x1\)'):
        ExplicitArguments(schema).arguments(b'{"x1": "a"}')


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    X = "x"


class Forgiving(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value):
        return cls.A


class Bits(enum.Flag):
    R = 1
    W = 2


class Pair(NamedTuple):
    x: int
    y: str = ""


class Options(TypedDict, total=False):
    deep: typing.Required[bool]
    limit: int


class Cat(msgspec.Struct, tag=True):
    a: int


class Dog(msgspec.Struct, tag=True):
    b: str


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str = ""


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    a: Annotated[int, msgspec.Meta(ge=1)]


@dataclasses.dataclass
class Noted:
    a: Annotated[int, Field(ge=1)]
    b: Annotated[str, msgspec.Meta(pattern="^a$")] = "a"


ANNOTATIONS = [
    Any,
    bool,
    int,
    float,
    str,
    bytes,
    None,
    list[int],
    set[int],
    frozenset[str],
    tuple[int, str],
    tuple[int, ...],
    tuple[()],
    dict[str, int],
    dict[int, str],
    dict[Colour, int],
    dict[Literal["a", "b"], int],
    dict[Annotated[str, msgspec.Meta(min_length=2)], int],
    int | None,
    int | str | None,
    int | float,
    bool | int,
    list[int] | set[str],
    datetime.datetime | str,
    Literal["a", 1, None],
    Literal[True],
    Literal[1],
    Colour,
    Level,
    Mixed,
    Forgiving,
    Bits,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    uuid.UUID,
    decimal.Decimal,
    pathlib.Path,
    Annotated[int, msgspec.Meta(ge=1, lt=5)],
    Annotated[int, msgspec.Meta(multiple_of=3)],
    Annotated[float, msgspec.Meta(gt=0.5, le=2)],
    Annotated[float, msgspec.Meta(multiple_of=0.1)],
    Annotated[str, msgspec.Meta(min_length=1, max_length=2)],
    Annotated[str, msgspec.Meta(pattern=r"^\d$")],
    Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)],
    Annotated[set[int], msgspec.Meta(min_length=1, max_length=2)],
    Annotated[dict[str, int], msgspec.Meta(max_length=1)],
    Annotated[int | None, Field(ge=1)],
    Annotated[int, annotated_types.Interval(ge=1, le=3)],
    Annotated[str, annotated_types.Len(1, 2)],
    Plain,
    Noted,
    Pair,
    Options,
    Cat,
    Cat | Dog,
    Row,
    Closed,
    Model,
    list[Model] | None,
    Model | int,
]

WORDS = ["", "a", "b", "ab", "abc", "a\n", "1", "1\n", "\u0661", "red", "x", "\U0001f600", "aGk=", "P1D"]
TIMES = ["2020-01-02", "2020-01-02T00:00:00", "2020-01-02T00:00:00Z", "12:00:00", "0" * 32, str(uuid.UUID(int=1))]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 8),
    st.sampled_from([2**53 + 1, 2**63, 2**64, -(2**70), 0.3, 0.5, 1.0, 2.5, 1e300, -0.0]),
    st.sampled_from(WORDS + TIMES),
)
KEYS = st.sampled_from(["a", "b", "n", "tags", "x", "y", "deep", "limit", "type", "red", "1", "ab", "zz"])
VALUES = st.recursive(
    SCALARS | st.sampled_from([{"type": "Cat", "a": 1}, {"type": "Dog", "b": ""}, {"n": 1, "tags": ["a"]}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def arrays_deep(value):
    """How many arrays stand directly inside each other, at the deepest place."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        return max(map(arrays_deep, inner), default=0)
    return isinstance(value, list) + max((arrays_deep(item) for item in inner if isinstance(item, list)), default=0)


def signature_for(annotation):
    def fn(x): ...

    fn.__annotations__["x"] = annotation
    return compile_signature(fn)


COMPILED = [(signature := signature_for(annotation), Validator(signature.input_schema)) for annotation in ANNOTATIONS]


@pytest.mark.slow
@settings(max_examples=400, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES)
@example("a\n")
@example("1\n")
@example([1, 1, 1])
@example({"a": 1})
@example({"a": 1, "zz": 2})
@example([1, "a", 3])
def test_the_fast_road_accepts_nothing_the_schema_refuses(value):
    """But for arrays in arrays in arrays of anything, which a schema that every provider takes cannot say."""
    assume(arrays_deep(value) <= 2)
    raw = msgspec.json.encode({"x": value})
    for signature, validator in COMPILED:
        try:
            signature._decode(raw)
        except msgspec.DecodeError:
            continue
        assert validator.errors({"x": value}) == [], signature.input_schema


@pytest.mark.slow
@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES)
def test_reading_arguments_gives_a_value_or_an_argument_error(value):
    raw = msgspec.json.encode({"x": value})
    for signature, _ in COMPILED:
        try:
            signature.arguments(raw)
        except ArgumentError as error:
            assert str(error)
            assert error.violations


def test_the_form_of_a_text_is_said_behind_what_the_author_says() -> None:
    @dataclasses.dataclass
    class Stay:
        """A stay.

        Args:
            nights: how long
        """

        nights: datetime.timedelta

    def tool(
        at: datetime.datetime, key: Annotated[bytes, "the key"], until: datetime.time, stay: Stay, day: datetime.date
    ) -> None:
        """Book.

        Args:
            at: when
            day: which day
        """

    tool.__annotations__["stay"] = Stay
    properties = compile_signature(tool).input_schema["properties"]
    assert properties["at"]["description"] == "when (for example 2026-07-28T10:30:00Z)"
    assert properties["key"]["description"] == "the key (in base64)"
    assert properties["until"]["description"] == "for example 10:30:00"
    assert properties["stay"]["properties"]["nights"]["description"] == "how long (for example PT1H30M)"
    assert properties["day"]["description"] == "which day"


def test_a_result_says_base64_by_the_keyword_for_it() -> None:
    """No provider sees a result's schema; validators and generators of types read it."""
    assert schema_of(bytes, mode="output") == {"type": "string", "contentEncoding": "base64"}


Nested = typing.Union[int, list["Nested"]]  # noqa: UP007


def test_a_type_that_names_itself_by_text_is_refused_with_what_to_write():
    def fn(a: Nested): ...

    with pytest.raises(DeclarationError, match=r"'Nested' is text inside another type.*`type Nested = ...`"):
        compile_signature(fn)
