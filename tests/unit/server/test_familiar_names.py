"""The names that people bring from FastMCP and the official SDK: log methods, `report_progress`, tags (P55)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.memory_peer import Peer

from trimaran import Context, Server, connect
from trimaran.errors import DeclarationError
from trimaran.types import Tool


async def notes_of(server: Server, **meta: Any) -> list[dict[str, Any]]:
    """The params of the notifications that a call of the tool `t` sends."""
    async with Peer(server) as peer:
        assert "error" not in await peer.call("t", progressToken="p", logLevel="debug", **meta)
        return [message["params"] for message in peer.heard]


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_each_level_has_a_method_of_its_name(level: str, is_async: bool) -> None:
    """R56: the message goes out at that level, from a coroutine and from a plain function."""
    server = Server("s")

    async def speak(ctx: Context) -> None:
        await getattr(ctx, level)("hello", logger="app")

    def call(ctx: Context) -> None:
        getattr(ctx, level)("hello", logger="app")

    server.add_tool(speak if is_async else call, name="t")
    assert await notes_of(server) == [{"level": level, "data": "hello", "logger": "app"}]


async def test_extra_fields_go_beside_the_message() -> None:
    server = Server("s")

    @server.tool
    async def t(ctx: Context) -> None:
        await ctx.info("paid", extra={"amount": 3})

    assert await notes_of(server) == [{"level": "info", "data": {"message": "paid", "amount": 3}}]


async def test_report_progress_is_progress() -> None:
    """R55."""
    server = Server("s")

    @server.tool
    async def t(ctx: Context) -> None:
        await ctx.report_progress(1, 4, "a quarter")

    assert await notes_of(server) == [{"progressToken": "p", "progress": 1, "total": 4, "message": "a quarter"}]


async def test_tags_reach_clients_where_fastmcp_has_them() -> None:
    """A client of FastMCP reads `_meta.fastmcp.tags`; ours reads `.tags` on each kind of definition."""
    server = Server("s")
    server.add_tool(lambda: "x", name="t", tags={"b", "a"}, meta={"example.com/k": 1, "fastmcp": {"version": "2"}})
    server.add_resource("a://b", lambda: "x", tags=["r"])
    server.add_resource("a://{b}", lambda b: b, tags=["m"])
    server.add_prompt(lambda: "x", name="p", tags=("q",))
    async with connect(server) as client:
        (tool,) = await client.list_tools()
        (resource,) = await client.list_resources()
        (template,) = await client.list_resource_templates()
        (prompt,) = await client.list_prompts()
    meta = {key: value for key, value in (tool.meta or {}).items() if not key.startswith("io.modelcontextprotocol/")}
    assert meta == {"example.com/k": 1, "fastmcp": {"version": "2", "tags": ["a", "b"]}}
    assert (tool.tags, resource.tags, template.tags, prompt.tags) == ({"a", "b"}, {"r"}, {"m"}, {"q"})
    assert [t.name for t in server.list_tools() if "a" in t.tags] == ["t"]


def test_tags_of_older_servers_are_read_too() -> None:
    assert Tool(name="t", meta={"_fastmcp": {"tags": ["old", 3]}}).tags == {"old"}
    assert Tool(name="t").tags == Tool(name="t", meta={"fastmcp": 5}).tags == frozenset()


@pytest.mark.parametrize("tags", ["billing", [1]])
def test_tags_that_are_no_list_of_strings_are_refused(tags: Any) -> None:
    server = Server("s")
    for declare in (
        lambda: server.add_tool(lambda: "x", name="t", tags=tags),
        lambda: server.add_prompt(lambda: "x", name="p", tags=tags),
        lambda: server.add_resource("a://b", lambda: "x", tags=tags),
    ):
        with pytest.raises(DeclarationError, match="tags must be a set or a list of strings"):
            declare()
