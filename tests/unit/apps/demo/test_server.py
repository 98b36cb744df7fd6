"""The demo server, called in place: each thing it shows is really there."""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode
from typing import Any

import pytest

from trimaran.apps.demo import flags
from trimaran.apps.demo.server import BERTHS, MILES, harbour, server
from trimaran.errors import ProtocolError


def unpack(data: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and rows of palette indices; every checksum looked at."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size]) == (zlib.crc32(kind + body),)
        chunks[kind] = body
        at += size + 12
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    raw = zlib.decompress(chunks[b"IDAT"])
    return width, height, [raw[y * (width + 1) + 1 : (y + 1) * (width + 1)] for y in range(height)]


async def structured(name: str, arguments: dict[str, Any]) -> Any:
    result = await server.call_tool(name, arguments)
    assert not result.is_error, result
    return result.structured_content


def test_everything_is_described() -> None:
    for tool in server.list_tools():
        assert tool.description
        assert isinstance(tool.input_schema, dict)
        properties: Any = tool.input_schema.get("properties", {})
        assert all(field.get("description") for field in properties.values()), tool.name
    for other in (*server.list_resources(), *server.list_resource_templates(), *server.list_prompts()):
        assert other.description
        assert other.title
    for prompt in server.list_prompts():
        assert all(argument.description for argument in prompt.arguments or [])


async def test_a_boat_is_found_by_any_spelling_and_a_stranger_is_told_who_is_here() -> None:
    assert (await structured("find_boat", {"name": "TERN"}))["rig"] == "trimaran"
    stranger = await server.call_tool("find_boat", {"name": "Titanic"})
    assert stranger.is_error
    assert "Tern, Albatross, Puffin" in str(stranger.content)


@pytest.mark.parametrize("day", range(1, 29))
async def test_every_day_has_two_high_and_two_low_tides(day: int) -> None:
    tides = (await structured("tide_table", {"day": day}))["tides"]
    assert [tide["kind"] for tide in tides] == ["high", "low", "high", "low"]
    assert all(high["metres"] > low["metres"] > 0 for high, low in zip(tides[::2], tides[1::2], strict=True))


async def test_flags_are_a_png_one_flag_per_letter() -> None:
    block: Any = (await server.call_tool("signal_flags", {"word": "a-b c!"})).content[0]
    width, height, _ = unpack(b64decode(block.data))
    assert (width, height) == (8 + 3 * 56, 64)


def test_every_letter_has_a_flag_of_its_own() -> None:
    drawn = {letter: flags.hoist(letter) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
    assert len(set(drawn.values())) == 26


def test_a_picture_keeps_its_pixels() -> None:
    red, blue = (255, 0, 0), (0, 0, 255)
    assert unpack(flags.picture(4, 2, lambda x, y: red if x < 0.5 else blue)) == (4, 2, [b"\0\0\1\1"] * 2)


async def test_resources_are_text_json_and_binary() -> None:
    guide: Any = (await server.read_resource("harbour://guide")).contents[0]
    assert guide.mime_type == "text/markdown"
    berths: Any = (await server.read_resource("harbour://berths")).contents[0]
    assert berths.mime_type == "application/json"
    chart: Any = (await server.read_resource("harbour://chart.png")).contents[0]
    assert unpack(b64decode(chart.blob))[:2] == (160, 120)


async def test_the_log_has_five_days_and_no_sixth() -> None:
    page: Any = (await server.read_resource("log://monday")).contents[0]
    assert "Fog" in page.text
    with pytest.raises(ProtocolError, match="log://sunday"):
        await server.read_resource("log://sunday")


async def test_prompts_speak_of_what_they_were_given() -> None:
    plan = await server.get_prompt("plan_passage", {"destination": "Kelp Sound"})
    assert "Kelp Sound" in str(plan.messages[0])
    handover = await server.get_prompt("handover", {"day": "monday"})
    assert "log://monday" in str(handover.messages[0])


@pytest.mark.slow
async def test_sailing_goes_everywhere() -> None:
    for port, miles in MILES.items():
        result = await server.call_tool("sail", {"destination": port})
        assert f"{miles} sea miles" in str(result.content)


def test_a_full_harbour_says_so() -> None:
    before = dict(harbour.berths)
    try:
        taken = [harbour.reserve("Puffin") for _ in range(BERTHS - len(before))]
        assert len(set(taken)) == len(taken)
        with pytest.raises(Exception, match="berths are taken"):
            harbour.reserve("Tern")
        harbour.release(7)
        assert harbour.reserve("Tern") == 7
    finally:
        harbour.berths.clear()
        harbour.berths.update(before)
