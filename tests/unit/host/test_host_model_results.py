"""What a model reads of results: shaped, cut where they are too long, and read on in pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trimaran import Host, Server
from trimaran.host import OutputLimits, count_tokens

files = Server("files", version="1.0.0")
TEXT = "\n".join(f"line {number} of the long file, with some words" for number in range(3000))


@files.tool
def read(path: str) -> str:
    """Read a file."""
    return TEXT


@files.tool
def rows() -> list[dict[str, Any]]:
    """List rows."""
    return [{"id": number, "name": f"item {number}"} for number in range(20)]


async def answer(host: Host, name: str, arguments: dict[str, Any]) -> str:
    block = {"type": "tool_use", "id": "c1", "name": name, "input": arguments}
    message: Any = await host.answer({"role": "assistant", "content": [block]}, format="anthropic")
    return "\n".join(part["text"] for part in message["content"][0]["content"])


async def test_rows_reach_a_model_as_a_table_and_a_program_as_they_are() -> None:
    async with Host({"files": files}, allow=["*"]) as host:
        text = await answer(host, "mcp__files__rows", {})
        assert text.startswith("id,name\n0,item 0\n")
        assert (await host.call("mcp__files__rows")).data[0] == {"id": 0, "name": "item 0"}


async def test_a_long_result_is_cut_for_a_model_which_reads_on_to_the_end(tmp_path: Path) -> None:
    limits = OutputLimits(tokens=2000)
    async with Host({"files": files}, allow=["*"], limits=limits, outputs=tmp_path / "outputs") as host:
        assert "read_output" not in [tool["name"] for tool in host.tools(format="anthropic")]
        text = await answer(host, "mcp__files__read", {"path": "x"})
        assert count_tokens(text) < 2200
        match = re.search(
            r"kept as output (\S+): (\d+) characters, go on at offset (\d+) with the tool read_output", text
        )
        assert match is not None
        assert int(match[2]) == len(TEXT)
        assert host.tools(format="anthropic")[-1]["name"] == "read_output"
        whole, offset, pages = text[: int(match[3])], int(match[3]), 0
        while True:
            page = await answer(host, "read_output", {"id": match[1], "offset": offset})
            body, _, notice = page.rpartition("\n[characters ")
            whole += body
            pages += 1
            assert count_tokens(page) < 2200
            next_page = re.search(r"go on at offset (\d+)", notice)
            if next_page is None:
                break
            offset = int(next_page[1])
        assert whole == TEXT
        assert pages > 2
    async with Host({}, outputs=tmp_path / "outputs") as other:
        assert other.output(match[1], 0, 6).text == "line 0"


@pytest.mark.parametrize("room", [1_000_000, 20_000])
async def test_what_was_cut_for_its_bytes_and_again_for_its_tokens_is_told_once_and_truly(
    tmp_path: Path, room: int
) -> None:
    limits = OutputLimits(bytes=10_000, tokens=500)
    async with Host({"files": files}, allow=["*"], limits=limits, outputs=tmp_path / "outputs") as host:
        host._long_results._store._most_bytes = room  # pyright: ignore[reportPrivateUsage]
        text = await answer(host, "mcp__files__read", {"path": "x"})
    assert text.count("[truncated: ") == 1
    assert "Left out: text" not in text
    if room > len(TEXT):
        assert f": {len(TEXT)} characters, go on at offset" in text
    else:
        assert re.search(rf"The answer had {len(TEXT)} characters\. The first 9\d+ are kept as output \S+, go on", text)


async def test_a_small_limit_in_bytes_is_not_exceeded_by_its_own_notice() -> None:
    async with Host({"files": files}, allow=["*"], limits=OutputLimits(bytes=400)) as host:
        text = await answer(host, "mcp__files__read", {"path": "x"})
    assert text.startswith("line 0 of")
    assert text.count("[truncated: ") == 1
    assert f"{len(TEXT)} characters" in text


async def test_a_page_that_is_not_there_is_told_to_the_model() -> None:
    async with Host({"files": files}, allow=["*"]) as host:
        assert "no output" in await answer(host, "read_output", {"id": "gone"})
        assert "give the id" in await answer(host, "read_output", {"id": 3, "offset": -1})


async def test_a_program_gets_the_whole_with_a_warning() -> None:
    async with Host({"files": files}, allow=["*"], limits=OutputLimits(tokens=2000)) as host:
        result = await host.call("mcp__files__read", {"path": "x"})
        assert TEXT in result.text
        assert result.text.startswith("[large output")


async def test_a_result_that_came_by_call_tool_is_shaped_too() -> None:
    """A model that found a tool by search reads no more of its result than one that was told of the tool."""
    async with Host({"files": files}, allow=["*"]) as host:
        direct = await answer(host, "mcp__files__rows", {})
        assert await answer(host, "call_tool", {"name": "mcp__files__rows", "arguments": {}}) == direct
