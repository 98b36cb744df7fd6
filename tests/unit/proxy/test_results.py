"""Results that are none: repaired, or an error of the target's; nothing that a caller's client would fail on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import Raw

from trimaran import Server, connect
from trimaran.errors import CallError
from trimaran.proxy.results import MalformedResult, cache_hints, for_older, is_sound, repair
from trimaran.types import TextContent

from .harbour import ERAS, Era

ODD_SERVER = Path(__file__).parents[2] / "support" / "odd_server.py"
TEXT = {"type": "text", "text": "good"}
SOUND: list[dict[str, Any]] = [
    {"content": []},
    {"content": [TEXT], "isError": True, "_meta": {"a": 1}, "structuredContent": {"a": 1}},
    {"content": [TEXT | {"annotations": None, "_meta": {}}]},
    {"content": [{"type": kind, "data": "AA==", "mimeType": "a/b"} for kind in ("image", "audio")]},
    {"content": [{"type": "resource_link", "uri": "a:b", "name": "b"}]},
    {"content": [{"type": "resource", "resource": {"uri": "a:b", part: "AA=="}} for part in ("text", "blob")]},
]
CLEAR: list[dict[str, Any]] = [
    {"content": None},
    {"structuredContent": {"a": 1}},
    {"content": [TEXT], "isError": None},
]
WRONG: list[dict[str, Any]] = [
    {},
    {"content": "wrong"},
    {"content": {"type": "text"}},
    {"content": ["text"]},
    {"content": [None]},
    {"content": [{"text": "no type"}]},
    {"content": [{"type": "text"}]},
    {"content": [{"type": "text", "text": None}]},
    {"content": [{"type": "text", "text": 5}]},
    {"content": [TEXT, {"type": "image", "data": "AA=="}]},
    {"content": [{"type": "resource", "resource": "a:b"}]},
    {"content": [{"type": "resource", "resource": {"uri": "a:b"}}]},
    {"content": [{"type": "resource_link", "uri": "a:b"}]},
    {"content": [TEXT | {"annotations": "wrong"}]},
    {"content": [TEXT], "isError": "no"},
    {"content": [TEXT], "_meta": "wrong"},
]


def raw(result: dict[str, Any]) -> Raw:
    return Raw(json.dumps(result).encode())


@pytest.mark.parametrize("result", SOUND, ids=str)
def test_what_the_schema_allows_passes_as_it_is(result: dict[str, Any]) -> None:
    assert is_sound(raw(result), any_structure=False)
    assert repair(raw(result)).content == result["content"]


@pytest.mark.parametrize("result", CLEAR, ids=str)
def test_what_is_clear_is_put_right(result: dict[str, Any]) -> None:
    assert not is_sound(raw(result), any_structure=True)
    mended = repair(raw(result))
    assert (mended.content, mended.is_error) == (result.get("content") or [], False)


@pytest.mark.parametrize("result", WRONG, ids=str)
def test_what_is_wrong_is_told(result: dict[str, Any]) -> None:
    assert not is_sound(raw(result), any_structure=True)
    with pytest.raises(MalformedResult):
        repair(raw(result))


@pytest.mark.parametrize("era", ERAS)
async def test_content_of_an_unknown_kind_becomes_a_text_that_holds_it(era: Era) -> None:
    """Ours: the content of every revision is a closed list of kinds, and official clients fail on any other."""
    result = {"content": [TEXT, {"type": "video", "url": "a:b"}, {"type": "film", "data": "A" * 10_000}]}
    command = [sys.executable, str(ODD_SERVER), json.dumps({"tools/call": result})]
    async with connect(Server.proxy(command, name="far"), era=era) as client:
        good, video, film = (await client.call_tool("add", {"a": 1})).content
    assert isinstance(good, TextContent) and isinstance(video, TextContent) and isinstance(film, TextContent)
    assert good.text == "good"
    assert video.text == """[content of the unknown kind 'video'] {"type":"video","url":"a:b"}"""
    assert film.text.endswith(" ... (10,025 characters in all)") and len(film.text) < 2100


def test_structured_content_is_an_object_before_2026_07_28() -> None:
    result = raw({"content": [], "structuredContent": [1]})
    assert is_sound(result, any_structure=True)
    assert not is_sound(result, any_structure=False)


@pytest.mark.parametrize("result", WRONG, ids=str)
@pytest.mark.parametrize("era", ERAS)
async def test_a_caller_of_either_era_gets_a_typed_error(era: Era, result: dict[str, Any]) -> None:
    command = [sys.executable, str(ODD_SERVER), json.dumps({"tools/call": result})]
    async with connect(Server.proxy(command, name="far"), era=era) as client:
        with pytest.raises(CallError, match="far sent a malformed tool result") as caught:
            await client.call_tool("add", {"a": 1})
    assert caught.value.data == {"upstream": "far", "kind": "protocol"}


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("resources/read", {}),
        ("resources/read", {"contents": "wrong"}),
        ("resources/read", {"contents": [{"uri": "odd://one"}]}),
        ("resources/read", {"contents": [{"text": "hello"}]}),
        ("prompts/get", {"messages": "wrong"}),
        ("prompts/get", {"messages": [{"role": "user"}]}),
        ("prompts/get", {"messages": [{"role": "user", "content": {"type": "text"}}]}),
        ("prompts/get", {"messages": [{"role": 5, "content": TEXT}]}),
        ("prompts/get", {"messages": [], "description": 5}),
        ("prompts/get", {"messages": [{"role": "user", "content": {"type": "video", "url": "a:b"}}]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("era", ERAS)
async def test_so_does_one_who_reads_a_resource_or_gets_a_prompt(era: Era, method: str, result: dict[str, Any]) -> None:
    command = [sys.executable, str(ODD_SERVER), json.dumps({method: result})]
    async with connect(Server.proxy(command, name="far"), era=era) as client:
        with pytest.raises(CallError, match=f"far sent a malformed result of {method}") as caught:
            await (client.read_resource("odd://one") if method == "resources/read" else client.get_prompt("plan"))
    assert caught.value.data == {"upstream": "far", "kind": "protocol"}


@pytest.mark.parametrize(
    ("far", "scope", "hints"),
    [
        ("modern", "private", (60_000, "private")),
        ("modern", "public", (60_000, "public")),
        ("legacy", "public", (0, "private")),
    ],
)
@pytest.mark.parametrize("uri", ["log://today", "log://unlisted"])
async def test_the_target_says_who_may_keep_a_resource_and_for_how_long(
    far: Era, scope: Literal["private", "public"], hints: tuple[int, str], uri: str
) -> None:
    """A private resource of a target used to be public here, so a cache between could give it to everybody."""
    target = Server("far", version="1", cache_ttl=60, cache_scope=scope)

    class Unlisted:
        async def read_resource(self, uri: str, ctx: Any) -> str:
            return "below deck"

    @target.resource("log://today")
    async def today() -> str:
        return "calm"

    target.callbacks = Unlisted()
    async with connect(Server.proxy(target, era=far), era="modern") as client:
        raw = (await client.read_resource(uri)).raw
    assert (raw["ttlMs"], raw["cacheScope"]) == hints


@pytest.mark.parametrize("ttl", [-1, 2.5, "9", True, None])
def test_hints_that_say_nothing_keep_a_resource_out_of_caches(ttl: Any) -> None:
    assert cache_hints({"ttlMs": ttl, "cacheScope": "everybody"}) == (0, "private")


def older(result: dict[str, Any], *, wraps: bool = False) -> Any:
    written = for_older(raw(result), wraps=wraps)
    return None if written is None else json.loads(bytes(written))


def test_a_result_for_an_older_caller_keeps_its_parts_without_what_only_the_newest_revision_has() -> None:
    block = TEXT | {"annotations": {"priority": 1}, "x": [1.0]}
    meta = {"a": {"b": 12345678901234567890123}, "io.modelcontextprotocol/serverInfo": {"name": "boat", "version": "1"}}
    result = {"content": [block], "structuredContent": {"a": 1}, "isError": True, "resultType": "complete"}
    expected = {"content": [block], "structuredContent": {"a": 1}, "isError": True, "_meta": {"a": meta["a"]}}
    assert older(result | {"_meta": meta}) == expected
    assert older({"content": [], "resultType": "complete", "_meta": {}}) == {"content": []}


def test_structure_that_needs_an_envelope_is_left_for_whoever_shapes_the_result_on_its_way() -> None:
    assert older({"content": [TEXT], "structuredContent": 5}) is None
    assert older({"content": [TEXT], "structuredContent": None}) is None
    assert older({"content": [TEXT], "structuredContent": {"a": 1}}, wraps=True) is None
    assert older({"content": [TEXT]}, wraps=True) == {"content": [TEXT]}


@pytest.mark.parametrize("result", [*SOUND[3:], *CLEAR, *WRONG], ids=str)
def test_only_short_texts_are_written_for_older_callers_as_they_came(result: dict[str, Any]) -> None:
    assert older(result) is None
    assert older({"content": [TEXT | {"text": "x" * 20_000}]}) is None


def test_structure_that_is_no_object_is_sound_for_the_newest_revision_alone() -> None:
    result = raw({"content": [TEXT], "structuredContent": 5})
    assert is_sound(result, any_structure=True)
    assert not is_sound(result, any_structure=False)
