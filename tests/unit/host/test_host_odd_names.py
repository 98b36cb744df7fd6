"""Servers under the names that people have in their files: in the catalog, in rules, in mentions and in mcp.toml (R226)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.support.until import soon

from trimaran import Context, Host, Server
from trimaran.host import HostConfig, Machine, PermissionDenied, Question, Source, read_config
from trimaran.host.permissions import Policy, Rule, Subject, check, read_config_rules
from trimaran.host.trust.untrusted import configured_names

NAMES = [
    "GitHub",
    "awslabs.aws-documentation-mcp-server",
    "@scope/pkg",
    "My files (work)",
    "größe",
    "日本",
    "a:b",
    "x" * 120,
    "=,[]{}*?\\'\"",
]
ACCEPTED = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def make_server(name: str = "any") -> Server:
    server = Server("any", version="1")
    server.add_tool(lambda: name, name="which")
    server.add_resource("docs://style", lambda: "Short words.", name="style")

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Your name?", {"type": "object", "properties": {}})).action

    return server


def make_host(names: list[str], **options: Any) -> Host:
    defaults: dict[str, Any] = {"environ": {}, "allow": ["*"]}
    return Host({name: make_server(name) for name in names}, **{**defaults, **options})


async def test_servers_of_any_name_are_shown_so_and_called_by_names_that_providers_take() -> None:
    """R226, R271."""
    async with make_host(NAMES) as host:
        assert [status.name for status in host.status()] == sorted(NAMES)
        assert all(status.state == "connected" for status in host.status())
        tools = host.tools(format="openai")
        assert len(tools) == 2 * len(NAMES)
        for tool in tools:
            name = tool["function"]["name"]
            assert ACCEPTED.fullmatch(name)
            address = host.find(name)
            if address.tool == "which":
                assert (await soon(host.call(name))).data == address.server
        assert host.connected() == sorted(NAMES)
        assert host.whereis("@scope/pkg") is not None
        await soon(host.reload("My files (work)"))


async def test_a_catalog_with_a_separator_shows_the_names_as_they_are() -> None:
    """R219."""
    async with make_host(NAMES, separator=":") as host:
        assert {f"{name}:which" for name in NAMES} <= {tool.name for tool in host.tools()}
        assert (await soon(host.call("a:b:which"))).data == "a:b"
        assert (await soon(host.call("My files (work):which"))).data == "My files (work)"


@pytest.mark.parametrize("name", NAMES)
async def test_rules_are_about_a_server_of_any_name(name: str) -> None:
    """R238, R239: by its safe name, or as its own rules."""
    async with make_host(["other", name]) as host:
        called = next(tool.name for tool in host.tools() if host.find(tool.name) == (name, "which"))
        rule = host.explain(called).decision.act.names[-1]
    for options in ({"deny": [rule]}, {"deny": [f"{rule.rpartition('__')[0]}__*"]}):
        async with make_host(["other", name], **options) as host:
            with pytest.raises(PermissionDenied):
                await soon(host.call(called))
            assert (await soon(host.call("mcp__other__which"))).data == "other"
    own = Policy([Rule.of("deny", "wh*", server=name)])
    assert own.decide(Subject.tool(name, "which")).is_denied
    assert not own.decide(Subject.tool("other", "which")).is_denied


@pytest.mark.parametrize("name", ["GitHub", "@scope/pkg", "My files (work)", "größe"])
async def test_questions_of_a_server_of_any_name_can_be_forbidden(name: str) -> None:
    """R241, R260."""
    questions: list[Question] = []

    def person(question: Question) -> None:
        questions.append(question)
        question.accept({})

    for rules in ([], [f"Elicit({name})"]):
        async with make_host([name], on_question=person, deny=rules) as host:
            called = next(tool.name for tool in host.tools() if tool.name.endswith("ask"))
            assert (await soon(host.call(called))).data == ("decline" if rules else "accept")
    assert [question.server for question in questions] == [name]


async def test_rules_tell_servers_apart_whose_names_differ_in_replaced_characters_only() -> None:
    """R238: what is allowed for one is not allowed for its namesake."""
    async with make_host(["a.b", "a_b"], allow=["mcp__a_b__*"]) as host:
        assert (await soon(host.call("mcp__a_b__which"))).data == "a_b"
        other = next(tool.name for tool in host.tools() if host.find(tool.name) == ("a.b", "which"))
        with pytest.raises(PermissionDenied):
            await soon(host.call(other))


async def test_a_namesake_does_not_escape_its_own_rules() -> None:
    """R238."""
    text = """
[server."a.b"]
command = "x"
permissions.deny = ["which"]
[server.a_b]
command = "x"
"""
    config: HostConfig = read_config([(Source("f", "file"), text)], Machine(home="/h", workspace="/w", environ={}))
    host = Host(config, environ={}, allow=["*"])
    for name in ("a.b", "a_b"):
        await host._servers[name].stop()  # pyright: ignore[reportPrivateUsage]
    decided = {
        name: host.gate.decide(Subject.tool(name, "which", safe=host._servers.safe[name])).action  # pyright: ignore[reportPrivateUsage]
        for name in ("a.b", "a_b")
    }
    assert decided == {"a.b": "deny", "a_b": "allow"}
    await host.close()


@pytest.mark.parametrize(
    ("name", "mention"),
    [
        ("GitHub", "@GitHub:style"),
        ("awslabs.aws-docs", "@awslabs.aws-docs:style"),
        ("awslabs.aws-docs", "@awslabs_aws-docs:style"),
        ("@scope/pkg", "@@scope/pkg:style"),
        ("@scope/pkg", "@scope_pkg:style"),
        ("My files", "@My files:style"),
        ("My files", "@My_files:docs://style"),
        ("größe", "@größe:style"),
        ("a:b", "@a:b:style"),
    ],
)
async def test_a_server_of_any_name_is_mentioned_by_it_or_by_its_safe_name(name: str, mention: str) -> None:
    """R264."""
    async with make_host(["a", name]) as host:
        found = await soon(host.expand(f"See {mention}, please."))
        assert [(one.server, one.uri) for one in found.mentions] == [(name, "docs://style")], found.problems
        assert "Short words." in found.text
        assert found.text.endswith(", please.")


async def test_mentions_are_completed_in_a_form_that_can_be_written() -> None:
    """R264."""
    async with make_host(["GitHub", "@scope/pkg", "My files", "awslabs.aws-docs"]) as host:
        assert await soon(host.complete_mention("@")) == ["@GitHub:", "@My_files:", "@awslabs.aws-docs:", "@scope_pkg:"]
        assert await soon(host.complete_mention("@My_files:st")) == ["@My_files:style"]
        assert await soon(host.complete_mention("@awslabs.aws-docs:")) == ["@awslabs.aws-docs:style"]


def test_rules_of_a_table_with_a_quoted_name_are_read() -> None:
    """R226, R238."""
    text = """
[server."awslabs.aws-docs"]
command = "uvx"
[server."awslabs.aws-docs".permissions]
allow = ["read_*"]
[permissions]
deny = ["mcp__awslabs_aws-docs__delete_*", "Elicit(awslabs.aws-docs)"]
"""
    config = read_config([(Source("f", "file"), text)], Machine(home="/h", workspace="/w", environ={}))
    assert not config.problems
    host = Host(config, environ={})
    assert host.problems() == []
    decide = host.gate.decide
    assert decide(Subject.tool("awslabs.aws-docs", "read_page")).action == "allow"
    assert decide(Subject.tool("awslabs.aws-docs", "delete_page")).action == "deny"
    assert decide(Subject.elicit("awslabs.aws-docs")).action == "deny"


async def test_a_lazy_server_of_any_name_is_started_by_a_call_of_its_safe_name() -> None:
    """R230."""
    text = '[server."@scope/pkg"]\ncommand = "x"\nlazy = true\n'
    config = read_config([(Source("f", "file"), text)], Machine(home="/h", workspace="/w", environ={}))
    from trimaran import connect

    host = Host(config, environ={}, allow=["*"])
    server = host._servers["@scope/pkg"]  # pyright: ignore[reportPrivateUsage]
    server._dial = lambda **options: connect(make_server("pkg"), **options)  # pyright: ignore[reportPrivateUsage]
    async with host:
        assert host.status()[0].state == "idle"
        assert (await soon(host.call("mcp__scope_pkg__which"))).data == "pkg"


async def test_host_check_and_explain_agree_on_the_safe_name_of_each_server() -> None:
    """The user's server keeps the plain name and the project's server gets a digest (R238, R240, R243)."""
    user = "[server.'docs.en']\ncommand = 'x'\n[permissions]\ndeny = ['mcp__docs_en__drop']\n"
    project = "[server.'docs en']\ncommand = 'x'\n"
    texts = [(Source("u.toml", "user"), user), (Source("p.toml", "project"), project)]
    config = read_config(texts, Machine(home="/u", workspace="/w", environ={}))
    safe = configured_names(config)
    assert safe["docs.en"] == "docs_en"
    assert re.fullmatch("docs_en_[0-9a-f]{8}", safe["docs en"])
    host = Host(config, environ={})
    assert host._servers.safe == safe  # pyright: ignore[reportPrivateUsage]
    assert host.problems() == []
    assert check(read_config_rules(config).rules, {"docs.en": ["drop"], "docs en": ["drop"]}, safe) == []
    await host.close()
