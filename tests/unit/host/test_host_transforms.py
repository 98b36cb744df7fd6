"""The tools of a host's servers as `mcp.toml` shows them: names, words, arguments, choice; and the rules about them."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran import Host, Server
from trimaran.errors import LocalProtocolError
from trimaran.host import FailedEntry, Machine, PermissionDenied, ServerEntry, Source, ToolSettings, read_config
from trimaran.host.transforms import ToolTransforms
from trimaran.types import Tool

MACHINE = Machine(home="/u", workspace="/w", environ={"SHOP_KEY": "sesame"})
ENTRY = """
[server.shop]
command = "x"
exclude = ["tag:admin"]
PERMISSIONS

[server.shop.tools.search]
timeout = "50s"
name = "find"
description = "Find goods."

[server.shop.tools.search.arguments]
q = { name = "word" }
limit = { default = 2 }
api_key = { value = "${SHOP_KEY}" }

[server.shop.tools."purge_*"]
hidden = true
"""


def shop() -> Server:
    server = Server("shop", version="1")

    @server.tool
    def search(q: str, limit: int = 50, api_key: str = "none") -> list[str]:
        """Search."""
        return [q, str(limit), api_key]

    server.add_tool(lambda: "x", name="purge_all")
    server.add_tool(lambda: "x", name="secret", tags={"admin"})
    server.add_tool(lambda: "pong", name="ping")
    return server


def entry(text: str, machine: Machine = MACHINE) -> ServerEntry | FailedEntry:
    config = read_config([(Source("mcp.toml", "user"), text)], machine)
    return config.servers.get("shop") or config.failed["shop"]


def host(
    monkeypatch: pytest.MonkeyPatch, text: str = ENTRY, server: Server | None = None, permissions: str = ""
) -> Host:
    """A host whose entry is the text, and whose server is in memory."""
    monkeypatch.setattr(ServerEntry, "target", lambda self: server or shop())  # pyright: ignore[reportUnknownLambdaType]
    rules = permissions or 'permissions = { allow = ["*"] }'
    return Host(read_config([(Source("mcp.toml", "user"), text.replace("PERMISSIONS", rules))], MACHINE))


def test_an_entry_has_what_is_said_about_its_tools() -> None:
    shown = entry(ENTRY.replace("PERMISSIONS", 'include = ["s*"]\nread_only = true'))
    assert isinstance(shown, ServerEntry)
    assert (shown.include, shown.exclude, shown.read_only) == (("s*",), ("tag:admin",), True)
    assert shown.tools["purge_*"] == ToolSettings(transform={"hidden": True})
    assert shown.tools["search"].timeout == 50.0
    assert shown.tools["search"].transform["arguments"]["api_key"] == {"value": "sesame"}
    assert "sesame" not in repr(shown) + repr(shown.tools["search"])


@pytest.mark.parametrize(
    ("line", "key", "words"),
    [
        ("tools.a.nam = 1", "tools.a.nam", "did you mean 'name'?"),
        ("tools.a.wrap = 1", "tools.a.wrap", "this key is not known"),
        ("tools.a.name = 1", "tools.a.name", "a text that is not empty is expected, not 1"),
        ('tools."a*".name = "x"', "tools.a*.name", "a name is for one tool"),
        ("tools.a.arguments.q = 1", "tools.a.arguments.q", "a table is expected"),
        ("tools.a.arguments.q.hidden = 1", "tools.a.arguments.q.hidden", "true or false is expected, not 1"),
        ('tools.a.arguments.q.value = "${NONE}"', "tools.a.arguments.q.value", "NONE"),
        ('include = "a"', "include", "a list of names, patterns and tags is expected"),
        ('exclude = [""]', "exclude", "a list of names, patterns and tags is expected"),
        ("read_only = 1", "read_only", "true or false is expected"),
    ],
)
def test_a_mistake_is_told_with_its_key(line: str, key: str, words: str) -> None:
    failed = entry(f'[server.shop]\ncommand = "x"\n{line}\n')
    assert isinstance(failed, FailedEntry)
    assert [problem.key for problem in failed.problems] == [f"server.shop.{key}"]
    assert words in failed.reason


async def test_tools_are_shown_and_called_as_the_entry_says(monkeypatch: pytest.MonkeyPatch) -> None:
    async with host(monkeypatch) as running:
        tools = {tool.name: tool for tool in running.tools()}
        assert set(tools) == {"mcp__shop__find", "mcp__shop__ping"}
        find = tools["mcp__shop__find"]
        assert (find.description, list(find.to_json()["inputSchema"]["properties"])) == (
            "Find goods.",
            ["word", "limit"],
        )
        result = await running.call("mcp__shop__find", {"word": "hat", "api_key": "mine"})
        assert result.data == ["hat", "2", "sesame"]
        assert (await running.call("mcp__shop__ping")).text == "pong"
        with pytest.raises(
            LocalProtocolError, match="invalid arguments for mcp__shop__find: missing required argument 'word'"
        ):
            await running.call("mcp__shop__find", {"q": "hat"})


@pytest.mark.parametrize("pattern", ["search", "mcp__shop__search", "mcp__shop__find", "mcp__shop__search:q=h*"])
async def test_a_rule_holds_by_either_name_and_for_the_arguments_that_are_sent(
    monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    text = ENTRY.replace("PERMISSIONS", 'permissions = { allow = ["*"] }')
    if pattern == "search":
        text = ENTRY.replace("PERMISSIONS", 'permissions = { allow = ["*"], deny = ["search"] }')
    else:
        text = f'[permissions]\ndeny = ["{pattern}"]\n{text}'
    async with host(monkeypatch, text) as running:
        with pytest.raises(PermissionDenied):
            await running.call("mcp__shop__find", {"word": "hat"})
        assert running.explain("mcp__shop__find", {"word": "hat"}).decision.is_denied


async def test_a_tool_that_changes_behind_its_transform_is_another_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person allowed for good holds for the definition that the server has."""
    server = shop()
    async with host(monkeypatch, server=server) as running:
        before = running._catalog.tools[running.find("mcp__shop__find")].act  # pyright: ignore[reportPrivateUsage]
        supervised = running._servers["shop"]  # pyright: ignore[reportPrivateUsage]

        def search(q: str, limit: int = 50, api_key: str = "none", force: bool = False) -> list[str]:
            return [q]

        server.add_tool(search, replace=True, name="search", description="Search.")
        client = supervised.require()
        await supervised._list(client)  # pyright: ignore[reportPrivateUsage]
        after = running._catalog.tools[running.find("mcp__shop__find")].act  # pyright: ignore[reportPrivateUsage]
    assert before.definition != after.definition
    assert before.names == after.names


def test_the_limit_of_time_goes_by_the_servers_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    supervised = host(monkeypatch)._servers["shop"]  # pyright: ignore[reportPrivateUsage]
    assert supervised.tool_timeouts == {"search": 50.0}


def names(transforms: ToolTransforms, *tools: str) -> dict[str, str]:
    listed = [Tool(name=tool, input_schema={"type": "object", "properties": {"q": {}}}) for tool in tools]
    return {name: entry.original.name for name, entry in transforms.show(listed).items()}


def test_what_does_not_fit_is_left_out_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    table: Any = {
        "a": {"name": "b"},
        "c": {"arguments": {"x": {"hidden": True}}},
        "serch": {"description": "x"},
    }
    transforms = ToolTransforms("shop", table, exclude=["gone"])
    for _ in range(2):
        assert names(transforms, "a", "b", "c", "search") == {"b": "a", "search": "search"}
    assert names(transforms) == {}
    assert [record.getMessage() for record in caplog.records] == [
        "the server 'shop': mcp.toml names the tool 'gone', which the server does not have",
        "the server 'shop': mcp.toml names the tool 'serch', which the server does not have; did you mean 'search'?",
        "the server 'shop': the tools 'a' and 'b' would both be called 'b', so the second is left out; give one of them "
        "another name in mcp.toml",
        "the server 'shop': the tool 'c' is left out: tool 'c' has no argument 'x'; its arguments: 'q'",
    ]


def test_several_tables_change_one_tool_in_their_order() -> None:
    table: Any = {
        "search": {"name": "find", "arguments": {"q": {"name": "word"}}},
        "f*": {"arguments": {"word": {"name": "text"}, "none": {"hidden": True}}},
    }
    (entry,) = (
        ToolTransforms("shop", table)
        .show([Tool(name="search", input_schema={"type": "object", "properties": {"q": {"type": "string"}}})])
        .values()
    )
    assert entry.tool.input_schema == {"type": "object", "properties": {"text": {"type": "string"}}}
    assert entry.map_arguments({"text": "a"}, "find") == {"q": "a"}
    assert entry.guess_arguments({"text": 1}) == {"q": 1}
