"""Definitions carry their digest, in the modern era, in every kind of list that is pinned."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran import Server, connect
from trimaran.protocol.definition_digests import META_KEY, definition_digest, definition_of
from trimaran.types import Prompt, ResourceTemplate, Tool


def sea() -> Server:
    server = Server("sea")

    @server.tool(meta={"example.com/k": 1})
    def depth(place: str, scale: float = 1e-7) -> int:
        """How deep it is."""
        return len(place)

    server.add_prompt(lambda: "x", name="sail")
    server.add_resource("sea://{place}", lambda place: place, name="place")
    server.add_resource("sea://all", lambda: "x", name="all")
    return server


def claimed(definition: Tool | Prompt | ResourceTemplate) -> Any:
    return (definition.meta or {}).get(META_KEY)


async def test_each_definition_has_the_digest_of_what_is_listed() -> None:
    async with connect(sea()) as client:
        (tool,) = await client.list_tools()
        (prompt,) = await client.list_prompts()
        (template,) = await client.list_resource_templates()
        (resource,) = await client.list_resources()
    for definition in (tool, prompt, template):
        assert claimed(definition) == definition_digest(definition_of(definition))
    assert tool.meta is not None and tool.meta["example.com/k"] == 1
    assert resource.meta is None


async def test_older_revisions_have_none() -> None:
    async with connect(sea(), era="legacy") as client:
        assert all(claimed(item) is None for item in await client.list_tools())


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_proxy_sends_its_own_and_not_its_targets(era: Any) -> None:
    proxy = Server.proxy(sea())
    proxy.transform("depth", description="Another text.")
    async with connect(proxy, era=era) as client:
        (tool,) = await client.list_tools()
    assert tool.description == "Another text."
    assert claimed(tool) == (definition_digest(definition_of(tool)) if era == "modern" else None)
