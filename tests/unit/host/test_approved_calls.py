"""Calls that a person asked for: `Host.call(approved=True)`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimaran import Host, Server
from trimaran.host import PermissionDenied


async def test_a_call_that_a_person_asked_for_is_made_and_written_down_unless_a_rule_denies_it(tmp_path: Path) -> None:
    """Also while nobody is there to ask: the person has asked for it already."""
    audit = tmp_path / "audit.jsonl"
    server = Server("calc", version="1")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with Host({"calc": server}, deny=["mcp__calc__add(9*)"], audit=audit) as host:
        assert (await host.call("mcp__calc__add", {"a": 1, "b": 2}, approved=True)).data == 3
        with pytest.raises(PermissionDenied, match="global deny"):
            await host.call("mcp__calc__add", {"a": 9, "b": 2}, approved=True)
        with pytest.raises(PermissionDenied, match="nobody is here to ask"):
            await host.call("mcp__calc__add", {"a": 1, "b": 2})
    decisions = [(line["action"], line["by"]) for line in map(json.loads, audit.read_text().splitlines())]
    assert decisions[:3] == [("ask", "default"), ("allow", "person"), ("deny", "rule")]
