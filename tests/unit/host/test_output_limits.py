"""Output within bounds, visibly, and the rest kept (R268, R270, C35, P20)."""

from __future__ import annotations

import logging
import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.clock import Clock

from trimaran import content
from trimaran.errors import ConfigError
from trimaran.host.context import count_tokens
from trimaran.host.output_limits import (
    OutputLimits,
    OutputMissing,
    OutputStore,
    cut_text,
    limit_output,
)
from trimaran.types import CallToolResult, TextContent

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
NO_LIMIT = OutputLimits(bytes=None, tokens=None)


def ok(*blocks: Any, **fields: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=b) if isinstance(b, str) else b for b in blocks], **fields)


def kind_of(block: Any) -> str:
    return block.to_json()["type"]


def quarter(text: str) -> int:
    """A simple count: one token for four characters."""
    return -(-len(text) // 4)


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


def test_a_cut_at_the_tokens_holds_with_a_real_vocabulary_too() -> None:
    """A beginning that ends within a word may count for more than a longer one, so the cut is checked."""
    limits = OutputLimits(tokens=25, cut_at_tokens=True)
    for text in ("internationalization " * 40, "x7Qd9" * 200, "antidisestablishmentarianism" * 20):
        limited = limit_output(ok(text), limits)
        assert count_tokens("".join(texts(limited.result)[:-1])) <= 25


# --- cutting text ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ("abc", 3, "abc"),
        ("abc", 0, ""),
        ("one two three four\nfive", 20, "one two three four\n"),
        ("one two three fours", 16, "one two three"),
        ("one two", 3, "one"),
        ("far\n" + "x" * 50, 40, "far\n" + "x" * 36),
        ("日本語", 7, "日本"),
        ("日本語", 2, ""),
        ("aaaaaaaae\u0301", 9, "aaaaaaaa"),
        ("aaaaaaaaa\r\n", 10, "aaaaaaaaa"),
        ("a" * 20 + FAMILY, 30, "a" * 20),
        ("aaaa\U0001f44d\U0001f3fd", 8, "aaaa"),
        ("aaaa\ud83d\ude00", 7, "aaaa"),
        ("aaaa\ud83d\ude00", 9, "aaaa"),
        (FAMILY, 6, "\U0001f468"),
        ("a" + "\u0301" * 100, 101, "a" + "\u0301" * 18),
    ],
)
def test_text_is_cut_where_a_reader_would_cut_it(text: str, most: int, cut: str) -> None:
    assert cut_text(text, most) == cut


@settings(max_examples=60)
@given(st.text("ab \n\r日\u0301\u200d\U0001f600\ud83d\ude00"), st.integers(0, 60))
def test_a_cut_text_is_a_beginning_that_fits(text: str, most: int) -> None:
    cut = cut_text(text, most)
    assert text.startswith(cut)
    assert len(cut.encode("utf-8", "surrogatepass")) <= most
    if cut != text:
        assert not ("\ud800" <= cut[-1:] <= "\udbff" and "\udc00" <= text[len(cut)] <= "\udfff") or len(cut) == 1


# --- a result --------------------------------------------------------------------------------------------------------


def test_output_within_its_limits_is_passed_on_as_it_is() -> None:
    result = ok("small", content.image(b"x"), structured_content={"a": 1})
    limited = limit_output(result, OutputLimits(), shelf=OutputStore())
    assert limited.result is result
    assert limited.notices == []
    assert limited.output_id is None
    assert limited.bytes == 5 + 4 + len('{"a":1}')
    assert limit_output(ok("x" * 10_000_000), NO_LIMIT).notices == []


def test_output_over_the_limit_is_cut_and_says_so_with_both_figures(caplog: pytest.LogCaptureFixture) -> None:
    """R270: `[truncated: <bytes>><limit>]`."""
    with caplog.at_level(logging.WARNING, "trimaran.host"):
        limited = limit_output(ok("word " * 100), OutputLimits(bytes=52), source="mcp__s__t")
    assert texts(limited.result) == ["word word word word word word word word word word", limited.notices[0]]
    assert limited.notices == ["[truncated: 500>52] Ask for less at a time."]
    assert limited.bytes == 500
    assert "the output of mcp__s__t was cut: [truncated: 500>52]" in caplog.text


def test_what_was_cut_is_kept_and_the_notice_says_where_to_go_on() -> None:
    """R270, P20."""
    shelf = OutputStore()
    whole = "\n".join(f"line {n}" for n in range(100))
    limited = limit_output(ok(whole), OutputLimits(bytes=200), shelf=shelf, owner="me")
    assert limited.output_id is not None
    shown, notice = texts(limited.result)
    found = re.search(rf"kept as output {limited.output_id}: (\d+) characters, go on at offset (\d+)\.$", notice)
    assert found is not None and int(found[1]) == len(whole) and int(found[2]) == len(shown)
    rest = shelf.page(limited.output_id, owner="me", offset=int(found[2]))
    assert shown + rest.text == whole
    assert rest.next_offset is None


def test_json_that_was_cut_is_called_incomplete() -> None:
    data = msgspec.json.encode({"rows": list(range(100))}).decode()
    assert "The JSON above is cut and incomplete." in limit_output(ok(data), OutputLimits(bytes=50)).notices[0]
    assert "JSON" not in limit_output(ok("[not] json " * 10), OutputLimits(bytes=50)).notices[0]
    assert "JSON" not in limit_output(ok("plain " * 10), OutputLimits(bytes=50)).notices[0]


def test_nothing_follows_the_text_that_was_cut() -> None:
    """Else it would read as if nothing were missing in between."""
    shelf = OutputStore()
    limited = limit_output(ok("a" * 10, "b" * 40, "c"), OutputLimits(bytes=30), shelf=shelf)
    assert texts(limited.result)[:2] == ["a" * 10, "b" * 20]
    assert "Left out: text (1 bytes)." in limited.notices[0]
    assert limited.output_id is not None
    page = shelf.page(limited.output_id, owner="", offset=31)
    assert page.text == "b" * 20 + "\nc"


def test_media_over_the_limit_are_replaced_by_a_notice_and_the_text_stays() -> None:
    result = ok("before", content.image(b"x" * 3000), content.audio(b"y" * 3000), "after", content.image(b"z"))
    limited = limit_output(result, OutputLimits(bytes=1000), shelf=OutputStore())
    assert [kind_of(block) for block in limited.result.content] == [
        "text",
        "text",
        "text",
        "text",
        "image",
        "text",
    ]
    assert texts(limited.result)[1:3] == [
        "[left out: image image/png (4000 bytes)]",
        "[left out: audio audio/wav (4000 bytes)]",
    ]
    assert limited.notices[0].startswith("[truncated: 8015>1000] Left out: image image/png (4000 bytes), audio")
    # All of the text is there, so there is nothing to go on with.
    assert limited.output_id is None


def test_a_flood_of_media_becomes_few_notices() -> None:
    limited = limit_output(ok(*[content.image(b"x" * 300) for _ in range(1000)]), OutputLimits(bytes=100))
    assert len(limited.result.content) == 11
    assert limited.notices[0].endswith("and 990 more. Ask for less at a time.")


def test_an_embedded_resource_is_cut_as_text_and_stays_a_resource() -> None:
    block = content.embedded(content.text_resource("file:///a", "line\n" * 100))
    limited = limit_output(ok(block), OutputLimits(bytes=50))
    held: Any = limited.result.content[0]
    assert held.to_json()["resource"] == {
        "uri": "file:///a",
        "mimeType": "text/plain",
        "text": "line\n" * 10,
    }
    blob = content.embedded(content.blob_resource("file:///b", b"x" * 300))
    assert "resource application/octet-stream (400 bytes)" in limit_output(ok(blob), OutputLimits(bytes=50)).notices[0]


def test_links_count_by_their_json() -> None:
    link = content.resource_link("file:///a" * 100, "a")
    assert "Left out: resource_link" in limit_output(ok(link), OutputLimits(bytes=50)).notices[0]


def test_structured_content_is_there_whole_or_not_at_all() -> None:
    rows = {"rows": list(range(100))}
    text = msgspec.json.encode(rows).decode()
    told = limit_output(ok(text, structured_content=rows), OutputLimits(bytes=100))
    assert told.bytes == len(text)  # said twice, counted once
    assert told.result.structured_content is msgspec.UNSET

    shelf = OutputStore()
    alone = limit_output(ok("100 rows", structured_content=rows), OutputLimits(bytes=100), shelf=shelf)
    assert texts(alone.result)[0] == "100 rows"
    assert alone.result.structured_content is msgspec.UNSET
    assert "Left out: structured content." in alone.notices[0]
    assert alone.output_id is not None
    assert shelf.page(alone.output_id, owner="", offset=len("100 rows\n")).text == text

    small = limit_output(ok(content.image(b"x" * 300), structured_content={"a": 1}), OutputLimits(bytes=100))
    assert small.result.structured_content == {"a": 1}


def test_an_error_stays_an_error() -> None:
    limited = limit_output(ok("no " * 100, is_error=True, meta={"k": 1}), OutputLimits(bytes=30))
    assert limited.result.is_error
    assert limited.result.meta == {"k": 1}


def test_a_clients_result_is_limited_as_well() -> None:
    class Result:
        content = [TextContent(text="x" * 100)]
        structured = {"a": 1}
        is_error = True
        meta = {"m": 1}

    limited = limit_output(Result(), OutputLimits(bytes=50))
    assert limited.result.is_error and limited.result.meta == {"m": 1}
    assert limit_output(Result(), OutputLimits()).result.structured_content == {"a": 1}


def test_blocks_may_be_mappings() -> None:
    limited = limit_output(CallToolResult(content=[{"type": "text", "text": "x" * 100}]), OutputLimits(bytes=50))
    assert texts(limited.result)[0] == "x" * 50


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_output_over_the_tokens_stays_with_a_warning_before_it(caplog: pytest.LogCaptureFixture) -> None:
    """R270, C35: a visible warning, and the log."""
    with caplog.at_level(logging.WARNING, "trimaran.host"):
        limited = limit_output(ok("x" * 400), OutputLimits(tokens=50, count=quarter), source="mcp__s__t")
    assert limited.tokens == 100
    assert texts(limited.result) == [limited.notices[0], "x" * 400]
    assert limited.notices[0].startswith("[large output: about 100 tokens, more than 50.")
    assert "mcp__s__t answered about 100 tokens, more than 50" in caplog.text


def test_output_can_be_cut_at_the_tokens() -> None:
    """C35: the option to truncate at the threshold."""
    shelf = OutputStore()
    limits = OutputLimits(tokens=10, cut_at_tokens=True, count=quarter)
    limited = limit_output(ok("abcd" * 4, "efgh " * 20), limits, shelf=shelf)
    assert limited.notices[0].startswith(f"[truncated: {limited.tokens}>10 tokens]")
    assert texts(limited.result)[:2] == ["abcd" * 4, "efgh efgh efgh efgh efgh"]
    assert limited.output_id is not None
    assert shelf.page(limited.output_id, owner="", offset=41).text.startswith(" efgh")


def test_what_is_left_after_a_cut_may_still_be_large() -> None:
    limited = limit_output(ok("x" * 4000), OutputLimits(bytes=2000, tokens=100))
    assert [notice.split(":")[0] for notice in limited.notices] == ["[large output", "[truncated"]
    assert texts(limited.result)[0] == limited.notices[0]


def test_tokens_are_counted_by_whoever_knows_better() -> None:
    limits = OutputLimits(tokens=3, cut_at_tokens=True, count=lambda text: len(text.split()))
    limited = limit_output(ok("one two three four five"), limits)
    assert limited.tokens == 5
    assert texts(limited.result)[0] == "one two three"


def test_the_limit_in_tokens_comes_from_one_variable() -> None:
    """R268: TRIMARAN_MAX_MCP_OUTPUT_TOKENS; without the prefix it is never read."""
    limits = OutputLimits(bytes=5)
    assert OutputLimits().tokens == 10_000
    assert limits.with_environment({"TRIMARAN_MAX_MCP_OUTPUT_TOKENS": " 77 "}) == OutputLimits(bytes=5, tokens=77)
    assert limits.with_environment({"MAX_MCP_OUTPUT_TOKENS": "77"}) == limits
    assert limits.with_environment({"TRIMARAN_MAX_MCP_OUTPUT_TOKENS": ""}) == limits
    for bad in ("0", "-1", "many", "1.5", "²"):
        with pytest.raises(ConfigError, match="TRIMARAN_MAX_MCP_OUTPUT_TOKENS is .*: give a whole number"):
            limits.with_environment({"TRIMARAN_MAX_MCP_OUTPUT_TOKENS": bad})


@pytest.mark.parametrize("wrong", [{"bytes": 0}, {"tokens": -1}])
def test_a_limit_of_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give 1 or more, or None for no limit"):
        OutputLimits(**wrong)


block_lists = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.text("ab \n日\u0301", max_size=60),
        st.integers(1, 80).map(lambda n: content.image(b"x" * n)),
    ),
    max_size=6,
)


@given(block_lists, st.integers(1, 120), st.booleans())
@example(["\x80\x80", "0\x80\x80\n", "0"], 5, True)
@settings(max_examples=50, deadline=None)
def test_shown_text_and_pages_make_up_the_whole(blocks: list[Any], most: int, by_tokens: bool) -> None:
    shelf = OutputStore()
    limits = (
        OutputLimits(bytes=None, tokens=most, cut_at_tokens=True)
        if by_tokens
        else OutputLimits(bytes=most, tokens=None)
    )
    result = ok(*blocks)
    limited = limit_output(result, limits, shelf=shelf)
    whole = "\n".join(text for text in texts(result) if text)
    if not limited.notices:
        assert limited.result is result
        return
    body = [text for text in texts(limited.result)[:-1] if not text.startswith("[left out: ")]
    shown = "\n".join(text for text in body if text)
    if limited.output_id is None:
        assert shown == whole
        return
    found = re.search(r"go on at offset (\d+)", limited.notices[-1])
    assert found is not None
    offset = int(found[1])
    assert whole[:offset] in (shown, shown + "\n")  # with what stands between two blocks, if the cut is there
    read = whole[:offset]
    at: int | None = offset
    while at is not None:
        page = shelf.page(limited.output_id, owner="", offset=at, limit=7)
        read += page.text
        at = page.next_offset
    assert read == whole
    if not by_tokens:
        assert sum(len(text.encode()) for text in body) <= most


# --- the shelf -------------------------------------------------------------------------------------------------------


def test_an_output_is_read_page_by_page() -> None:
    shelf = OutputStore()
    kept = shelf.keep("0123456789", owner="me")
    assert kept is not None
    assert shelf.page(kept, owner="me", limit=4) == ("0123", 0, 4, 10)
    assert shelf.page(kept, owner="me", offset=8, limit=4) == ("89", 8, None, 10)
    assert shelf.page(kept, owner="me", offset=50) == ("", 50, None, 10)
    for wrong in ({"offset": -1}, {"limit": 0}):
        with pytest.raises(ConfigError, match="a page begins at 0 or later"):
            shelf.page(kept, owner="me", **wrong)


@settings(max_examples=40)
@given(st.text("ab\r\n\u0301\u200d\ud83d\ude00", max_size=40), st.integers(1, 10))
def test_pages_make_progress_and_make_up_the_whole(text: str, limit: int) -> None:
    shelf = OutputStore()
    kept = shelf.keep(text, owner="me")
    assert kept is not None
    read, at = "", 0
    while True:
        page = shelf.page(kept, owner="me", offset=at, limit=limit)
        assert len(page.text) <= limit
        read += page.text
        if page.next_offset is None:
            break
        assert page.next_offset > at
        at = page.next_offset
    assert read == text


def test_an_output_belongs_to_its_owner() -> None:
    """Somebody else's id and one that never was are the same to whoever asks."""
    shelf = OutputStore()
    kept = shelf.keep("secret", owner="me")
    assert kept is not None
    said = []
    for asked in (kept, "never-was"):
        with pytest.raises(OutputMissing) as error:
            shelf.page(asked, owner="you")
        said.append(str(error.value).replace(asked, "X"))
    assert said[0] == said[1]
    assert shelf.page(kept, owner="me").text == "secret"


def test_an_output_is_kept_for_a_while() -> None:
    clock = Clock(0.0)
    shelf = OutputStore(ttl=10, clock=clock)
    kept = shelf.keep("a", owner="me")
    assert kept is not None
    clock.now = 9.9
    assert shelf.page(kept, owner="me").text == "a"
    clock.now = 10
    with pytest.raises(OutputMissing, match=r"kept \(any more\): call the tool again"):
        shelf.page(kept, owner="me")
    assert (len(shelf), shelf.size) == (0, 0)


def test_a_shelf_holds_so_many_and_so_much() -> None:
    shelf = OutputStore(most=3, most_bytes=10)
    kept = [shelf.keep(str(n), owner="me") for n in range(5)]
    assert len(shelf) == 3
    assert shelf.page(kept[2] or "", owner="me").text == "2"
    large = shelf.keep("日本語", owner="me")
    assert large is not None
    assert (len(shelf), shelf.size) == (2, 10)
    assert shelf.keep("x" * 11, owner="me") is None
    assert shelf.page(large, owner="me").text == "日本語"


def test_who_floods_the_shelf_pushes_out_only_what_is_theirs() -> None:
    shelf = OutputStore(most=10, most_bytes=100)
    kept = shelf.keep("quiet", owner="quiet")
    for _ in range(50):
        shelf.keep("x" * 30, owner="loud")
    assert kept is not None
    assert shelf.page(kept, owner="quiet").text == "quiet"
    assert shelf.size <= 100


def test_what_an_owner_kept_can_be_forgotten() -> None:
    shelf = OutputStore()
    mine, yours = shelf.keep("a", owner="me"), shelf.keep("b", owner="you")
    shelf.forget("me")
    shelf.forget("nobody")
    with pytest.raises(OutputMissing):
        shelf.page(mine or "", owner="me")
    assert shelf.page(yours or "", owner="you").text == "b"


@pytest.mark.parametrize("wrong", [{"most": 0}, {"most_bytes": 0}, {"ttl": 0}])
def test_a_shelf_without_room_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="a shelf needs room"):
        OutputStore(**wrong)


def test_output_larger_than_the_shelf_says_nothing_of_an_id() -> None:
    limited = limit_output(ok("x" * 100), OutputLimits(bytes=10), shelf=OutputStore(most_bytes=50))
    assert limited.output_id is None
    assert limited.notices == ["[truncated: 100>10] Ask for less at a time."]
