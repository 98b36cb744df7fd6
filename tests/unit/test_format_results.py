"""Results in each provider's shape, and back (R274)."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran import content
from trimaran.errors import LocalProtocolError
from trimaran.format import (
    media_to_openai,
    result_from_anthropic,
    result_from_gemini,
    result_from_openai,
    result_to_anthropic,
    result_to_gemini,
    result_to_openai,
    result_to_openai_responses,
)
from trimaran.types import CallToolResult, TextContent

PNG, WAV, PDF = (
    content.image(b"png"),
    content.audio(b"wav"),
    content.blob_resource("file:///a.pdf", b"pdf", "application/pdf"),
)
LINK = content.resource_link("file:///a", "a", title="A", mime_type="text/plain", size=3, meta={"m": 1})
EMBEDDED = content.embedded(content.text_resource("file:///t", "line 1\nline 2"))


def ok(*blocks: Any, **fields: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=b) if isinstance(b, str) else b for b in blocks], **fields)


# --- Anthropic -------------------------------------------------------------------------------------------------------


def test_anthropic_takes_text_pictures_and_documents() -> None:
    assert result_to_anthropic(ok("hi", "", PNG, content.embedded(PDF)), "c1") == {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [
            {"type": "text", "text": "hi"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}},
            {"type": "text", "text": '[resource] {"uri":"file:///a.pdf","mimeType":"application/pdf"}'},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"}},
        ],
    }
    assert result_to_anthropic(ok("no", is_error=True), "c1")["is_error"] is True
    assert result_to_anthropic(ok(), "c1") == {"type": "tool_result", "tool_use_id": "c1"}


# --- OpenAI ----------------------------------------------------------------------------------------------------------


def test_chat_completions_takes_text_and_is_told_what_was_left_out() -> None:
    """R274: audio and the like become text notices."""
    assert result_to_openai(ok("hi"), "c1") == {"role": "tool", "tool_call_id": "c1", "content": "hi"}
    assert result_to_openai(ok(), "c1")["content"] == ""
    why = "left out: Chat Completions takes only text from a tool"
    assert result_to_openai(ok("hi", PNG, WAV), "c1")["content"] == [
        {"type": "text", "text": "hi"},
        {"type": "text", "text": f'[image] {{"mimeType":"image/png","bytes":3}} {why}'},
        {"type": "text", "text": f'[audio] {{"mimeType":"audio/wav","bytes":3}} {why}'},
    ]


def test_pictures_for_chat_completions_follow_in_a_message_of_their_own() -> None:
    result = ok(PNG, WAV, content.embedded(PDF), content.image(b"x", "image/tiff"), "text")
    assert "follows in the next message" in result_to_openai(result, "c1", media_follows=True)["content"][0]["text"]
    assert media_to_openai(result, ok(PNG)) == {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
            {"type": "input_audio", "input_audio": {"data": "d2F2", "format": "wav"}},
            {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,cGRm"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
        ],
    }
    assert media_to_openai(ok("text")) is None
    assert media_to_openai() is None


def test_responses_take_text_pictures_and_files() -> None:
    assert result_to_openai_responses(ok("hi"), "c1") == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": "hi",
    }
    assert result_to_openai_responses(ok(), "c1")["output"] == ""
    assert result_to_openai_responses(ok("hi", PNG, content.embedded(PDF)), "c1")["output"] == [
        {"type": "input_text", "text": "hi"},
        {"type": "input_image", "image_url": "data:image/png;base64,cG5n", "detail": "auto"},
        {"type": "input_text", "text": '[resource] {"uri":"file:///a.pdf","mimeType":"application/pdf"}'},
        {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,cGRm"},
    ]


def test_openai_has_no_flag_for_errors_so_the_text_says_it() -> None:
    assert result_to_openai(ok("no", is_error=True), "c1")["content"] == "[tool error] no"
    assert result_to_openai(ok(is_error=True), "c1")["content"] == "[tool error] "
    output = result_to_openai_responses(ok(PNG, "no", is_error=True), "c1")["output"]
    assert [one.get("text") for one in output] == [None, "[tool error] no"]


# --- Gemini ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "response"),
    [
        (ok("hi"), {"output": "hi"}),
        (ok("a", "b"), {"output": ["a", "b"]}),
        (ok(), {"output": []}),
        (ok("no", is_error=True), {"error": "no"}),
        (ok('{"a":1}', structured_content={"a": 1}), {"output": {"a": 1}}),
        (ok(structured_content=[1]), {"output": [1]}),
        (ok("one row", structured_content={"a": 1}), {"output": "one row", "structured": {"a": 1}}),
        (ok('{"a":1}', is_error=True, structured_content={"a": 1}), {"error": {"a": 1}}),
    ],
)
def test_gemini_takes_an_object(result: CallToolResult, response: dict[str, Any]) -> None:
    assert result_to_gemini(result, "t") == {"functionResponse": {"name": "t", "response": response}}


def test_gemini_takes_pictures_beside_the_response() -> None:
    made = result_to_gemini(ok("hi", PNG, WAV), "t", "c1")["functionResponse"]
    assert made["id"] == "c1"
    assert made["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "cG5n"}}]
    assert made["response"]["output"][1].startswith('[audio] {"mimeType":"audio/wav","bytes":3} left out')


# --- what every provider gets ----------------------------------------------------------------------------------------


def told(result: Any) -> list[str]:
    made = result_to_openai(result, "c")["content"]
    return [made] if isinstance(made, str) else [one["text"] for one in made]


def test_links_and_resources_are_told_with_what_a_model_needs() -> None:
    assert told(ok(LINK)) == [
        '[resource_link] {"uri":"file:///a","name":"a","title":"A","mimeType":"text/plain","size":3}'
    ]
    assert told(ok(EMBEDDED)) == ['[resource] {"uri":"file:///t","mimeType":"text/plain"}\nline 1\nline 2']
    blob = content.embedded(content.blob_resource("file:///z", b"12345"))
    assert told(ok(blob))[0].startswith(
        '[resource] {"uri":"file:///z","mimeType":"application/octet-stream"} '
        '{"mimeType":"application/octet-stream","bytes":5} left out'
    )


def test_a_block_of_an_unknown_kind_is_told_as_json() -> None:
    assert told({"content": [{"type": "hologram", "x": 1}]}) == ['[hologram] {"type":"hologram","x":1}']


@pytest.mark.parametrize(
    ("text", "structured"),
    [('{"a": 1}', {"a": 1}), ("5", {"result": 5}), ("five", {"result": "five"}), ("[1, 2]", {"result": [1, 2]})],
)
def test_structured_content_that_the_text_says_already_is_not_said_twice(text: str, structured: Any) -> None:
    assert told(ok(text, structured_content=structured)) == [text]


@pytest.mark.parametrize(
    ("text", "structured"),
    [("one row", {"a": 1}), ("1", {"result": True}), ("\ud800", {"a": 1}), ("5", {"result": 5, "b": 1})],
)
def test_structured_content_that_says_more_is_told_as_json(text: str, structured: Any) -> None:
    assert told(ok(text, structured_content=structured)) == [text, msgspec.json.encode(structured).decode()]
    assert told(ok(PNG, structured_content=structured))[1] == msgspec.json.encode(structured).decode()


def test_a_result_may_be_a_clients_or_the_mapping_on_the_wire() -> None:
    class Result:
        content = [TextContent(text="hi"), {"type": "text", "text": "there"}]
        structured = None
        is_error = True

    assert told(Result()) == ["[tool error] hi", "there"]
    Result.structured = {"a": 1}  # type: ignore[assignment]
    assert told(Result())[2] == '{"a":1}'
    wire = {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"a": 1}, "isError": True}
    assert told(wire) == ["[tool error] hi", '{"a":1}']


@pytest.mark.parametrize("wrong", [{}, {"content": "text"}, {"content": None}, 5])
def test_what_is_no_result_is_refused(wrong: Any) -> None:
    with pytest.raises(LocalProtocolError, match=re.escape("this is not a result of a tool: it has no content blocks")):
        result_to_anthropic(wrong, "c1")


# --- back ------------------------------------------------------------------------------------------------------------

BACK = [
    pytest.param(lambda r: result_from_anthropic(result_to_anthropic(r, "c")), id="anthropic"),
    pytest.param(lambda r: result_from_openai(result_to_openai(r, "c")), id="openai"),
    pytest.param(lambda r: result_from_openai(result_to_openai_responses(r, "c")), id="openai-responses"),
    pytest.param(lambda r: result_from_gemini(result_to_gemini(r, "t")), id="gemini"),
]
words = st.text(min_size=1, max_size=10).filter(lambda text: not text.startswith("["))
plain_blocks = st.one_of(
    words.map(content.text),
    st.builds(content.resource_link, words, words, title=st.none() | words, size=st.none() | st.integers(0, 9)),
    st.builds(lambda uri, text: content.embedded(content.text_resource(uri, text)), words, st.text(max_size=10)),
)
pictures = st.binary(max_size=6).map(content.image)
documents = st.binary(max_size=6).map(
    lambda data: content.embedded(content.blob_resource("a:b", data, "application/pdf"))
)


@pytest.mark.parametrize("there_and_back", BACK)
@given(blocks=st.lists(plain_blocks, max_size=5), is_error=st.booleans())
@settings(max_examples=15, deadline=None)
def test_text_links_and_resources_come_back_as_they_were(
    there_and_back: Any, blocks: list[Any], is_error: bool
) -> None:
    result = ok(*blocks, is_error=is_error)
    assert there_and_back(result) == result


@pytest.mark.parametrize("there_and_back", [BACK[0], BACK[2]])
@given(blocks=st.lists(plain_blocks | pictures | documents, max_size=5), is_error=st.booleans())
@settings(max_examples=15, deadline=None)
def test_pictures_and_documents_come_back_where_the_provider_takes_them(
    there_and_back: Any, blocks: list[Any], is_error: bool
) -> None:
    result = ok(*blocks, is_error=is_error)
    assert there_and_back(result) == result


@given(texts=st.lists(words, max_size=3), media=st.lists(pictures | documents, max_size=3), is_error=st.booleans())
@settings(max_examples=15, deadline=None)
def test_gemini_gives_back_every_block_if_not_their_order(texts: list[str], media: list[Any], is_error: bool) -> None:
    result = ok(*texts, *media, is_error=is_error)
    back = result_from_gemini(result_to_gemini(result, "t"))
    assert back.is_error is is_error
    assert sorted(map(repr, back.content)) == sorted(map(repr, result.content))


@pytest.mark.parametrize("structured", [{"a": [1, None]}, [1, 2], 5, None])
def test_gemini_gives_back_structured_content(structured: Any) -> None:
    text = msgspec.json.encode(structured).decode()
    for result in (ok(text, structured_content=structured), ok("so", "much", structured_content=structured)):
        assert result_from_gemini(result_to_gemini(result, "t")) == result


def test_what_others_wrote_is_read_as_well() -> None:
    assert result_from_anthropic({"tool_use_id": "c", "content": "hi"}) == ok("hi")
    search = {"type": "search_result", "title": "t"}
    url = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    read: list[Any] = list(result_from_anthropic({"content": [search, url]}).content)
    assert [block.text.split("]")[0] for block in read] == ["[search_result", "[image"]
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"}}
    held: Any = result_from_anthropic({"content": [document]}).content[0]
    assert held.to_json()["resource"] == {
        "uri": "attachment:0",
        "blob": "cGRm",
        "mimeType": "application/pdf",
    }
    by_id = {"type": "input_image", "file_id": "file-1"}
    kept: Any = result_from_openai({"type": "function_call_output", "output": [by_id]}).content[0]
    assert kept.text.startswith("[input_image]")
    assert result_from_gemini({"name": "t", "response": {"temperature": 5}}).structured_content == {"temperature": 5}
    sound = {"response": {"output": "hi"}, "parts": [{"inlineData": {"mimeType": "audio/wav", "data": "d2F2"}}]}
    assert result_from_gemini(sound) == ok("hi", WAV)


@pytest.mark.parametrize(
    "text",
    [
        "[resource_link] {}",
        '[resource_link] {"uri":"a:b","name":"a"}\nmore',
        "[resource_link] {not json}",
        '[resource] {"uri":"a:b"}',
        "[resource] {}\ntext",
        "[other] {}",
    ],
)
def test_text_that_only_looks_like_a_block_stays_text(text: str) -> None:
    assert result_from_openai({"role": "tool", "content": text}) == ok(text)
