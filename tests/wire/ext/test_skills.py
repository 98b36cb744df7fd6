"""Skills as bytes see them: on HTTP and ASGI, in both eras, and on a channel."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import Channel, Wire, serve
from tests.support.until import PATIENCE

from trimaran import Server
from trimaran.ext import Skills

EXTENSION = "io.modelcontextprotocol/skills"
TEA = "skill://kitchen/tea/SKILL.md"
LEAF = "skill://kitchen/tea/pictures/leaf.png"
TEXT = "---\nname: tea\ndescription: Make tea.\nsteps: [boil, pour]\n---\n\nBoil, then pour.\n"
PICTURE = b"\x89PNG\0\xff"


def listed(uri: str, data: bytes) -> dict[str, Any]:
    return {"uri": uri, "digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}


ENTRY = {
    "uri": TEA,
    "frontmatter": {"name": "tea", "description": "Make tea.", "steps": ["boil", "pour"]},
    "resources": [listed(TEA, TEXT.encode()), listed(LEAF, PICTURE)],
}


@pytest.fixture
def kitchen(tmp_path: Path) -> Path:
    (tmp_path / "kitchen/tea/pictures").mkdir(parents=True)
    (tmp_path / "kitchen/tea/SKILL.md").write_text(TEXT)
    (tmp_path / "kitchen/tea/pictures/leaf.png").write_bytes(PICTURE)
    return tmp_path


def served(folder: Path, **options: Any) -> Server:
    server = Server("kitchen", version="1", cache_ttl=5)
    server.enable_extension(Skills(folder, **options))
    return server


def bare(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key != "_meta"}


async def test_the_modern_era_lists_gets_reads_and_looks(binding: str, kitchen: Path) -> None:
    """Whose rule: SEP-2640. Mcp-Name goes with resources/read, and with none of the extension's own methods."""
    hints = {"resultType": "complete", "ttlMs": 5000, "cacheScope": "public"}
    async with serve(binding, served(kitchen)) as wire:
        hello = (await wire.modern("server/discover")).result["capabilities"]
        assert hello["extensions"] == {EXTENSION: {"directoryRead": True}}
        assert "resources" in hello
        assert bare((await wire.modern("skills/list")).result) == {"skills": [ENTRY], **hints}
        assert bare((await wire.modern("skills/get", {"uri": TEA})).result) == {"skill": ENTRY, **hints}
        [text] = (await wire.modern("resources/read", {"uri": TEA})).result["contents"]
        assert text == {"uri": TEA, "mimeType": "text/markdown", "text": TEXT}
        [picture] = (await wire.modern("resources/read", {"uri": LEAF})).result["contents"]
        assert picture == {"uri": LEAF, "mimeType": "image/png", "blob": base64.b64encode(PICTURE).decode()}
        inside = await wire.modern("resources/directory/read", {"uri": "skill://kitchen/tea"})
        about = {"uri": TEA, "name": "tea", "description": "Make tea.", "mimeType": "text/markdown", "size": len(TEXT)}
        folder = {"uri": "skill://kitchen/tea/pictures", "name": "pictures", "mimeType": "inode/directory"}
        assert bare(inside.result) == {"resources": [about, folder], "resultType": "complete"}
        assert (await wire.modern("resources/list")).result["resources"] == [about]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("skills/get", {"uri": "skill://kitchen/tea"}),
        ("skills/get", {"uri": 5}),
        ("skills/get", {}),
        ("skills/list", {"cursor": "x"}),
        ("skills/list", {"cursor": 5}),
        ("resources/directory/read", {"uri": TEA}),
        ("resources/directory/read", {"uri": "skill://kitchen/../kitchen"}),
        ("resources/read", {"uri": "skill://kitchen/tea/../../../etc/passwd"}),
        ("resources/read", {"uri": "skill://kitchen/tea/%2e%2e/%2e%2e/secret"}),
    ],
)
async def test_what_is_not_there_is_invalid_params(kitchen: Path, method: str, params: dict[str, Any]) -> None:
    async with serve("asgi", served(kitchen)) as wire:
        assert (await wire.modern(method, params)).error["code"] == -32602


async def test_the_legacy_era_has_the_same_without_cache_hints(binding: str, kitchen: Path) -> None:
    async with serve(binding, served(kitchen)) as wire:
        session = await wire.initialize()
        assert session.hello["capabilities"]["extensions"] == {EXTENSION: {"directoryRead": True}}
        assert (await session.ask("skills/list")).result == {"skills": [ENTRY]}
        assert (await session.ask("skills/get", {"uri": TEA})).result == {"skill": ENTRY}
        assert (await session.ask("skills/get", {"uri": LEAF})).error["code"] == -32602
        inside = await session.ask("resources/directory/read", {"uri": "skill://kitchen"})
        child = {"uri": "skill://kitchen/tea", "name": "tea", "mimeType": "inode/directory"}
        assert inside.result == {"resources": [child]}
        assert (await session.ask("resources/read", {"uri": LEAF})).result["contents"][0]["uri"] == LEAF
        await session.delete()


async def test_a_revision_without_extensions_reads_plain_resources(kitchen: Path) -> None:
    async with serve("asgi", served(kitchen)) as wire:
        session = await wire.initialize("2025-06-18")
        assert "extensions" not in session.hello["capabilities"]
        assert (await session.ask("skills/list")).error["code"] == -32601
        assert (await session.ask("resources/read", {"uri": TEA})).result["contents"][0]["text"] == TEXT
        await session.delete()


async def test_a_server_without_skills_has_none_of_it() -> None:
    server = Server("plain", version="1")
    server.add_resource("a:b", lambda: "x")
    async with serve("asgi", server) as wire:
        for method in ("skills/list", "skills/get", "resources/directory/read"):
            assert (await wire.modern(method, {"uri": TEA})).error["code"] == -32601
        assert "extensions" not in (await wire.modern("server/discover")).result["capabilities"]


async def test_a_listener_hears_that_the_skills_changed(kitchen: Path) -> None:
    async with serve("asgi", served(kitchen)) as wire:
        asked = {"notifications": {"resourcesListChanged": True, "resourceSubscriptions": [TEA]}}
        async with await wire.open_modern("subscriptions/listen", asked) as stream:
            assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
            (kitchen / "kitchen/tea/SKILL.md").write_text(TEXT.replace("Make", "Brew"))
            entry = (await wire.modern("skills/get", {"uri": TEA})).result["skill"]
            assert entry["frontmatter"]["description"] == "Brew tea."
            heard = [await stream.message() for _ in range(2)]
            assert [message["method"] for message in heard] == [
                "notifications/resources/list_changed",
                "notifications/resources/updated",
            ]
            assert heard[1]["params"]["uri"] == TEA


async def test_a_channel_carries_skills_too(kitchen: Path) -> None:
    async with Channel(served(kitchen)) as channel:
        assert (await channel.modern("skills/list"))["result"]["skills"] == [ENTRY]
        await channel.initialize()
        assert (await channel.ask("skills/get", {"uri": TEA}))["result"] == {"skill": ENTRY}


async def test_readers_and_a_writer_never_see_half_a_change(kitchen: Path) -> None:
    """Every answer is one moment of the folder: the text that is read is one that some listing had."""
    path = kitchen / "kitchen/tea/SKILL.md"

    async def digests(wire: Wire) -> set[str]:
        entry = (await wire.modern("skills/get", {"uri": TEA})).result["skill"]
        return {file["digest"] for file in entry["resources"]}

    async with serve("asgi", served(kitchen)) as wire, asyncio.timeout(PATIENCE * 3):
        for turn in range(10):
            text = TEXT + "x" * (turn % 2)
            path.write_text(text)
            [contents] = (await wire.modern("resources/read", {"uri": TEA})).result["contents"]
            assert contents["text"] == text
            assert "sha256:" + hashlib.sha256(text.encode()).hexdigest() in await digests(wire)
