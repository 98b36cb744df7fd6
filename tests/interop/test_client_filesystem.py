"""Our client on `@modelcontextprotocol/server-filesystem` over stdio, in a folder made for the test."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.until import until

from trimaran import Client, ToolError, connect, errors, types

from .contract import PIXEL
from .harness import DEADLINE
from .servers.places import FILESYSTEM_SCRIPT, LIMIT, NODE, is_alive, need

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]


def command(*folders: Path) -> list[str]:
    need(NODE, FILESYSTEM_SCRIPT)
    return [str(NODE), str(FILESYSTEM_SCRIPT), *map(str, folders)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to work in, with another one beside it that is nobody's business."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    return inside


@pytest.fixture
async def client(folder: Path) -> AsyncIterator[Client]:
    async with connect(command(folder)) as client:
        yield client


async def test_files_are_written_read_edited_moved_and_found(client: Client, folder: Path) -> None:
    """A morning's work, checked on the disk."""
    note, moved = folder / "note.txt", folder / "drawer" / "kept.txt"
    await client.call_tool("write_file", {"path": note, "content": "žluťoučký kůň\nsecond line\n"})
    assert note.read_text(encoding="utf-8") == "žluťoučký kůň\nsecond line\n"
    read = await client.call_tool("read_text_file", {"path": str(note), "head": 1})
    assert read.data == {"content": "žluťoučký kůň"}
    assert read.text == "žluťoučký kůň"
    edits = [{"oldText": "second", "newText": "2nd"}]
    diff = await client.call_tool("edit_file", {"path": str(note), "edits": edits})
    assert "+2nd line" in diff.text
    await client.call_tool("create_directory", {"path": str(moved.parent)})
    await client.call_tool("move_file", {"source": str(note), "destination": str(moved)})
    assert moved.read_text(encoding="utf-8") == "žluťoučký kůň\n2nd line\n"
    listed = await client.call_tool("list_directory", {"path": str(folder)})
    assert listed.text == "[DIR] drawer"
    found = await client.call_tool("search_files", {"path": str(folder), "pattern": "**/*.txt"})
    assert found.text == str(moved)
    info = await client.call_tool("get_file_info", {"path": str(moved)})
    assert "isFile: true" in info.text


async def test_a_picture_is_a_typed_block(client: Client, folder: Path) -> None:
    (folder / "pixel.png").write_bytes(base64.b64decode(PIXEL))
    [image] = (await client.call_tool("read_media_file", {"path": str(folder / "pixel.png")})).content
    assert isinstance(image, types.ImageContent)
    assert (image.data, image.mime_type) == (PIXEL, "image/png")


async def test_two_megabytes_go_there_and_back(client: Client, folder: Path) -> None:
    text = "0123456789abcdef" * 131_072
    await client.call_tool("write_file", {"path": str(folder / "big.txt"), "content": text})
    assert (folder / "big.txt").stat().st_size == len(text)
    assert (await client.call_tool("read_text_file", {"path": str(folder / "big.txt")})).text == text


async def test_twenty_files_are_read_at_once(client: Client, folder: Path) -> None:
    for number in range(20):
        (folder / f"{number}.txt").write_text(str(number), encoding="utf-8")
    calls = [client.call_tool("read_text_file", {"path": str(folder / f"{n}.txt")}) for n in range(20)]
    assert [result.text for result in await asyncio.gather(*calls)] == [str(n) for n in range(20)]


async def test_what_lies_outside_is_refused(client: Client, folder: Path) -> None:
    outside = {"path": str(folder.parent / "secret.txt")}
    result = await client.call_tool("read_text_file", outside)
    assert result.is_error
    assert "Access denied" in result.text
    with pytest.raises(ToolError, match="Access denied"):
        await client.call_tool("read_text_file", outside, raise_on_error=True)


async def test_what_it_does_not_offer_is_not_asked_of_it(client: Client) -> None:
    """R192: it has tools and nothing else."""
    assert client.era == "legacy"
    assert set(client.server_capabilities) == {"tools"}
    for refused in (client.list_resources(), client.get_prompt("greet"), client.set_log_level("info")):
        with pytest.raises(errors.Unsupported):
            await refused


async def test_every_tool_is_described(client: Client) -> None:
    tools = {tool.name: tool for tool in await client.list_tools_all()}
    assert {"read_text_file", "write_file", "edit_file", "directory_tree"} <= set(tools)
    for tool in tools.values():
        assert tool.description
        assert tool.output_schema is not None


async def test_it_works_in_our_roots_and_moves_with_them(tmp_path: Path) -> None:
    """It is given no folder: it asks for our roots, and again when we say that they changed."""
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        place.mkdir()
        (place / "name.txt").write_text(place.name, encoding="utf-8")

    async def allowed(client: Client, wanted: Path) -> None:
        """It asks when it likes, and says nothing when it is done."""
        async with asyncio.timeout(LIMIT):
            while str(wanted) not in (await client.call_tool("list_allowed_directories")).text:
                await asyncio.sleep(0.01)

    async with connect(command(), roots=[first]) as client:
        await allowed(client, first)
        assert (await client.call_tool("read_text_file", {"path": str(first / "name.txt")})).text == "first"
        await client.set_roots([second])
        await allowed(client, second)
        assert (await client.call_tool("read_text_file", {"path": str(second / "name.txt")})).text == "second"
        assert (await client.call_tool("read_text_file", {"path": str(first / "name.txt")})).is_error


async def test_its_words_are_kept_and_it_is_gone_afterwards(folder: Path) -> None:
    async with connect(command(folder)) as client:
        pid = client.pid
        assert pid is not None
        await client.list_tools()
        await until(lambda: "Secure MCP Filesystem Server running on stdio" in client.stderr, seconds=LIMIT)
    assert not is_alive(pid)


async def test_a_child_that_dies_at_once_says_why(tmp_path: Path) -> None:
    """P34, P35: its own words, within the time it took to die."""
    with pytest.raises(errors.ConnectFailed) as failed:
        async with connect(command(tmp_path / "nowhere")):
            pass
    assert failed.value.exit_code == 1
    assert any("nowhere" in line for line in failed.value.stderr)
