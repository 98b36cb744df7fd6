"""What was found out about definitions once need not be found out again."""

from __future__ import annotations

import pytest

from trimaran.host.context import facts as facts_module
from trimaran.host.context.facts import DefinitionFacts, cost_in, digest_of
from trimaran.types import Tool


def tool(name: str, description: str = "Reads.") -> Tool:
    return Tool(name=name, description=description, input_schema={"type": "object"})


def test_a_fact_is_found_out_once_for_each_definition() -> None:
    facts = DefinitionFacts()
    asked: list[str] = []

    def find(item: Tool) -> int:
        asked.append(item.name)
        return len(item.name)

    for item in (tool("read"), tool("read"), tool("write"), tool("read", "Reads, and sends.")):
        assert facts.get(digest_of(item), "length", lambda item=item: find(item)) == len(item.name)
    assert asked == ["read", "write", "read"]


def test_the_cost_in_another_format_is_another_fact() -> None:
    names = {
        cost_in("anthropic", {"fit": "auto"}, "whole"),
        cost_in("openai", {"fit": "auto"}, "whole"),
        cost_in("openai", {"fit": "loose"}, "whole"),
        cost_in("openai", {"fit": "auto"}, "plain"),
    }
    assert len(names) == 4


def test_what_has_no_digest_is_found_out_each_time() -> None:
    odd = Tool(name="odd", input_schema={"type": object()})  # pyright: ignore[reportArgumentType]
    assert digest_of(odd) is None
    facts = DefinitionFacts()
    assert [facts.get(None, "x", lambda value=value: value) for value in (1, 2)] == [1, 2]


def test_facts_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "_MOST", 3)
    facts = DefinitionFacts()
    for number in range(10):
        facts.get(str(number).encode(), "x", lambda: 1)
    assert len(facts._facts) == 3  # pyright: ignore[reportPrivateUsage]
