"""Results shaped for models: shorter, and nothing lost."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.depth import decode_json
from trimaran.host.context import count_tokens, images
from trimaran.host.context.result_shapes import compact_json, shape_result, write_table
from trimaran.types import CallToolResult, ImageContent, Json, TextContent

CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
)
ROWS = [
    {"id": number, "name": f"item {number}", "price": number * 1.5, "active": number % 2 == 0} for number in range(30)
]
NESTED = {"user": {"name": "Ada", "tags": ["a", "b"]}, "orders": [{"id": 1, "lines": [1, 2]}, {"id": 2, "lines": []}]}

CELL = re.compile(r'"(?:[^"\\]|\\.)*"|[^,]+')


def read_table(text: str) -> list[dict[str, Json]]:
    """The rows that `write_table` wrote."""
    head, *lines = text.split("\n")
    names = [str(cell) for cell in cells(head)]
    return [dict(zip(names, cells(line), strict=True)) for line in lines]


def cells(line: str) -> Iterator[Json]:
    for cell in CELL.findall(line):
        try:
            yield decode_json(cell)
        except ValueError:
            yield cell


@given(
    st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4, unique=True).flatmap(
        lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(names, CELLS)), min_size=3, max_size=6)
    )
)
def test_a_table_loses_nothing(rows: list[dict[str, Any]]) -> None:
    table = write_table(rows)
    assert table is not None
    assert read_table(table) == json.loads(json.dumps(rows))


@pytest.mark.parametrize(
    "value", ["12", "true", "null", "", " x", "x ", "a,b", 'say "x"', "[1", "{", "1e5", "-0", "a\nb", "NaN"]
)
def test_a_text_that_could_be_mistaken_is_quoted(value: str) -> None:
    rows: list[Any] = [{"a": value, "b": 1}] * 3
    table = write_table(rows)
    assert table is not None
    assert read_table(table) == rows


@pytest.mark.parametrize(
    "number", ["0.12345678901234567890123", "1.10", "1e400", "-0.0", "123456789012345678901234567890"]
)
@pytest.mark.parametrize("count", [1, 5])
def test_a_number_stays_as_it_is_written(number: str, count: int) -> None:
    text = "[" + ", ".join([f'{{"amount": {number}, "unit": "EUR"}}'] * count) + "]"
    (block,) = shape_result(CallToolResult(content=[TextContent(text=text)]), "anthropic").content
    assert isinstance(block, TextContent)
    assert len(block.text) < len(text)
    assert block.text.count(number) == count


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [1, 2, 3],
        [{}] * 3,
        [{"a": 1}] * 2,
        [{"a": 1}, {"a": 1}, {"b": 1}],
        [{"a": [1]}] * 3,
        [{"a": 1}, {"a": 2}, 3],
    ],
)
def test_what_is_not_uniform_is_no_table(rows: list[Any]) -> None:
    assert write_table(rows) is None


def test_uniform_rows_are_a_table_and_nested_data_is_minified_json() -> None:
    """Never one format for everything: each takes the one that is shorter."""
    rows, nested = compact_json(ROWS), compact_json(NESTED)
    assert rows.splitlines()[:2] == ["id,name,price,active", "0,item 0,0.0,true"]
    assert json.loads(nested) == NESTED
    assert count_tokens(rows) < 0.7 * count_tokens(json.dumps(ROWS, separators=(",", ":")))
    assert count_tokens(nested) < count_tokens(json.dumps(NESTED, indent=2))


def test_rows_under_a_name_keep_what_stands_beside_them() -> None:
    text = compact_json({"total": 30, "items": ROWS})
    first, name, *table = text.split("\n")
    assert json.loads(first) == {"total": 30}
    assert name == "items:"
    assert read_table("\n".join(table)) == ROWS


def test_a_result_says_its_data_once_and_short() -> None:
    text = json.dumps(ROWS, indent=2)
    shaped = shape_result(
        CallToolResult(content=[TextContent(text=text)], structured_content={"result": ROWS}), "anthropic"
    )
    (block,) = shaped.content
    assert isinstance(block, TextContent)
    assert read_table(block.text) == ROWS
    assert "structured_content" not in shaped.to_json()


def test_structured_content_that_no_text_tells_becomes_a_table() -> None:
    shaped = shape_result(
        CallToolResult(content=[TextContent(text="30 items")], structured_content={"items": ROWS}), "openai"
    )
    assert [type(block) for block in shaped.content] == [TextContent, TextContent]


@pytest.mark.parametrize("text", ["plain words", "{not json", "[1,2,3]", '{"a":1}', ""])
def test_what_gains_nothing_stays_the_same_object(text: str) -> None:
    result = CallToolResult(content=[TextContent(text=text)])
    assert shape_result(result, "anthropic") is result


def picture(width: int, height: int, kind: str = "PNG") -> ImageContent:
    from PIL import Image

    written = io.BytesIO()
    Image.effect_noise((width, height), 80).save(written, kind)
    return ImageContent(data=base64.b64encode(written.getvalue()).decode(), mime_type=f"image/{kind.lower()}")


def size_of(block: ImageContent) -> tuple[int, int]:
    from PIL import Image

    return Image.open(io.BytesIO(base64.b64decode(block.data))).size


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_large_picture_is_scaled_to_what_the_provider_uses(kind: str) -> None:
    large = picture(2400, 1200, kind)
    result = CallToolResult(content=[large])
    (scaled,) = shape_result(result, "anthropic").content
    assert isinstance(scaled, ImageContent)
    assert size_of(scaled) == (1568, 784)
    assert len(scaled.data) < len(large.data)
    assert shape_result(result, "gemini") is result


@pytest.mark.parametrize("data", ["not base64!", base64.b64encode(b"no picture " * 1000).decode(), ""])
def test_a_picture_that_cannot_be_read_stays_as_it_is(data: str) -> None:
    result = CallToolResult(content=[ImageContent(data=data, mime_type="image/png")])
    assert shape_result(result, "anthropic") is result


def test_a_picture_that_would_unpack_to_too_much_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_MOST_PIXELS", 1_000_000)
    result = CallToolResult(content=[picture(2400, 1200)])
    assert shape_result(result, "anthropic") is result


def test_without_pillow_a_picture_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    result = CallToolResult(content=[picture(2400, 1200)])
    monkeypatch.setattr(images, "_pillow", lambda: None)
    assert shape_result(result, "anthropic") is result
