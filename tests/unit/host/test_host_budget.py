"""A host's tools within a budget of tokens: what is declared, what is told, and what may still be called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from trimaran import Host, Server
from trimaran.errors import ConfigError, LocalProtocolError
from trimaran.host import count_tokens

from ...support.until import until

FORMATS = ("anthropic", "openai", "openai-responses", "gemini")


def catalog(name: str, count: int) -> Server:
    server = Server(name, version="1.0.0")

    def add(number: int) -> None:
        @server.tool(
            name=f"{name}_{number}", description=f"Do thing {number} of {name}. It takes a while, and some care."
        )
        def work(path: str, mode: str = "fast", depth: int | None = None) -> str:
            return f"{name} {number} {path} {mode} {depth}"

    for number in range(count):
        add(number)
    return server


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with Host({"mail": catalog("mail", 30), "disk": catalog("disk", 5)}, allow=["*"]) as host:
        yield host


def tokens_of(tools: Any) -> int:
    return count_tokens(json.dumps(tools, separators=(",", ":"), ensure_ascii=False))


def names_of(tools: Any) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in tools]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("budget", [2300, 1800, 1400, 1000])
async def test_the_declared_tools_are_within_the_budget(host: Host, format: Any, budget: int) -> None:
    tools: Any = host.tools(format=format, budget=budget)
    assert tokens_of(tools) <= budget
    plan = host.budget_plan(format, budget=budget)
    assert plan is not None
    assert plan.budget == budget
    assert 0 <= plan.tokens - tokens_of(tools) <= 3 * len(tools)
    assert len(plan.cut) > 0


async def test_without_a_budget_every_tool_is_whole(host: Host) -> None:
    assert host.budget is None
    assert len(host.tools(format="anthropic")) == 35
    report = host.report()
    assert report.plan.cut == ()
    assert host.budget_plan() is None
    assert report.tokens == report.plan.whole


async def test_the_list_is_the_same_each_time(host: Host) -> None:
    first = host.tools(format="anthropic", budget=1400)
    assert host.tools(format="anthropic", budget=1400) == first
    async with Host({"disk": catalog("disk", 5), "mail": catalog("mail", 30)}) as other:
        assert other.tools(format="anthropic", budget=1400) == first


async def test_servers_that_do_not_fit_are_found_by_search(host: Host) -> None:
    names = names_of(host.tools(format="anthropic", budget=1400))
    assert names[0] == "search_tools"
    assert not any(name.startswith("mcp__mail") for name in names)
    assert sum(name.startswith("mcp__disk") for name in names) == 5
    assert host.report(budget=1400).plan.hidden == {"mail": 30}


async def test_a_hidden_tool_can_be_called_and_its_arguments_are_checked(host: Host) -> None:
    host.tools(format="anthropic", budget=1400)
    block = {"type": "tool_use", "id": "c1", "name": "mcp__mail__mail_3", "input": {"path": "x"}}
    result = await host.call(*host.from_call(block, "anthropic"))
    assert result.data == "mail 3 x fast None"
    with pytest.raises(LocalProtocolError, match=r"invalid arguments .*path.* Its whole schema: \{"):
        host.from_call({**block, "input": {"mode": "slow"}}, "anthropic")
    message: Any = await host.answer(
        {"role": "assistant", "content": [{**block, "input": {"mode": 3}}]}, format="anthropic"
    )
    assert message["content"][0]["is_error"] is True


async def test_a_tool_that_search_brought_in_is_declared_at_the_end(host: Host) -> None:
    before = host.tools(format="anthropic", budget=1400)
    await host.call("search_tools", {"query": "do thing 7 of mail", "limit": 1})
    after = host.tools(format="anthropic", budget=1400)
    assert after[: len(before)] == before
    assert names_of(after[len(before) :]) == ["mcp__mail__mail_7"]
    assert tokens_of(after) <= 1400


async def test_a_budget_that_cannot_be_met_is_a_problem_with_a_figure(host: Host) -> None:
    report = host.report(budget=50)
    assert report.plan.needed is not None
    assert not report.is_good
    assert any("cannot be met" in problem for problem in host.problems(format="anthropic", budget=50))
    assert names_of(host.tools(format="anthropic", budget=50))[0] == "search_tools"


async def test_a_budget_must_be_a_number_of_tokens_and_needs_a_format(host: Host) -> None:
    with pytest.raises(ConfigError, match="1 or more, not 0"):
        host.tools(format="anthropic", budget=0)
    with pytest.raises(ConfigError, match="1 or more"):
        Host({}, budget=-1)
    with pytest.raises(ConfigError, match="a budget is for tools in a format"):
        host.tools(budget=10)  # pyright: ignore[reportCallIssue]


MCP_TOML = """
[context]
budget = 900

[server.files]
command = "python"
args = ["-m", "tests.unit.host.echo"]
{more}
"""


def test_the_file_names_a_budget_and_the_host_may_name_another(tmp_path: Path) -> None:
    file = tmp_path / "mcp.toml"
    file.write_text(MCP_TOML.format(more=""))
    assert Host.load(file).budget == 900
    assert Host.load(file, budget=300).budget == 300


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[context]\nbudget = 0\n", "context.budget: a number of tokens is expected"),
        ('[context]\nbudget = "8k"\n', "context.budget: a number of tokens is expected"),
        ("[context]\nbuget = 10\n", "context.buget: this key is not known"),
        ("context = 3\n", "a table is expected, [context]"),
    ],
)
def test_a_mistake_in_the_table_is_told_and_costs_the_budget_alone(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "mcp.toml"
    file.write_text(text)
    host = Host.load(file)
    assert host.budget is None
    assert any(problem in line for line in host.problems())


def test_a_server_or_tool_that_is_both_lazy_and_always_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mcp.toml"
    file.write_text(MCP_TOML.format(more="lazy = true\nalways = true"))
    assert "lazy and always contradict each other" in Host.load(file).config.failed["files"].reason


def test_a_budget_of_a_project_that_nobody_trusts_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".trimaran").mkdir()
    (tmp_path / ".trimaran" / "mcp.toml").write_text("[context]\nbudget = 1\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert Host.load(workspace=tmp_path, trust=False).budget is None
    assert Host.load(workspace=tmp_path).budget == 1


# --- thousands of tools ----------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The definitions that were counted, as text."""
    texts: list[str] = []

    def count(text: str) -> int:
        texts.append(text)
        return len(text) // 4

    monkeypatch.setattr("trimaran.host.context.tokens.count_tokens", count)
    monkeypatch.setattr("trimaran.host.context.report.count_tokens", count)
    return texts


async def test_after_a_change_only_what_is_new_is_counted(counted: list[str]) -> None:
    mail = catalog("mail", 30)
    async with Host({"mail": mail}, allow=["*"]) as host:
        host.tools("anthropic", budget=1000)
        host.report("anthropic", budget=1000)
        counted.clear()
        mail.add_tool(lambda: "", name="newcomer", description="New.")
        mail.notify.tools_changed()
        await until(lambda: len(host.tools()) == 31)
        host.tools("anthropic", budget=2000)
        host.report("anthropic", budget=2000)
    assert any("newcomer" in text for text in counted)
    assert not any("mcp__mail__mail_" in text for text in counted)


async def test_others_have_their_turn_while_many_tools_are_prepared(
    counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimaran.host.provider_tools._COUNTING", 0.0)
    async with Host({"mail": catalog("mail", 30)}, allow=["*"]) as host:
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                before = len(counted)
                await asyncio.sleep(0)
                most = max(most, len(counted) - before)

        watcher = asyncio.create_task(watch())
        await host.prepare("anthropic", budget=10_000_000, report=True)
        assert len(counted) >= 60
        watcher.cancel()
        assert most <= 2
        counted.clear()
        report = host.report("anthropic", budget=10_000_000)
        assert len(host.tools("anthropic", budget=10_000_000)) == 30
        assert report is host.report("anthropic", budget=10_000_000)
        assert not counted
