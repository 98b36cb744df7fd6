"""The same call under other circumstances."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.inspector import open_bench
from tests.unit.apps.inspector.test_interface import boats

from trimaran.auth import ApiKey
from trimaran.serve import HttpServer

ADD = {"kind": "tool", "name": "add", "arguments": {"a": 1, "b": 2}}


async def test_other_eras_revisions_and_capabilities() -> None:
    async with open_bench() as bench, HttpServer(boats(), port=0) as http:
        server = await bench.add(http.url)
        path = f"/api/servers/{server.id}/try"
        legacy = await bench.post(path, {"what": "legacy", "call": ADD})
        assert legacy["baseline"]["era"] == "modern"
        assert legacy["variant"]["era"] == "legacy"
        assert legacy["variant"]["ok"]
        assert any(line["mark"] == "+" and "legacy" in line["text"] for line in legacy["difference"])
        older = await bench.post(path, {"what": "revision", "value": "2025-03-26"})
        assert older["variant"]["revision"] == "2025-03-26"
        assert older["variant"]["tools"] == older["baseline"]["tools"]
        mute = await bench.post(path, {"what": "no-elicitation", "call": {"kind": "tool", "name": "book"}})
        assert mute["baseline"]["ok"]
        assert mute["variant"]["ok"] is False
        assert "fails" in mute["verdict"] or "differs" in mute["verdict"]
        await bench.post(path, {"what": "nothing"}, status=400)
        assert server.state == "ready"
        assert server.connections == 1


async def test_without_its_token_a_server_refuses() -> None:
    guarded = HttpServer(boats(), port=0, auth=ApiKey(["sesame-open-sesame"]))
    async with open_bench() as bench, guarded as http:
        server = await bench.add(http.url, headers={"X-Api-Key": "sesame-open-sesame"})
        assert server.state == "ready"
        tried = await bench.post(f"/api/servers/{server.id}/try", {"what": "no-token"})
        assert tried["baseline"]["ok"]
        assert tried["variant"]["failure"]["blame"] == "auth"


@pytest.mark.slow
async def test_a_bad_network_over_http() -> None:
    async with open_bench() as bench, HttpServer(boats(), port=0) as http:
        server = await bench.add(http.url)
        path = f"/api/servers/{server.id}/try"
        slow = await bench.post(path, {"what": "slow", "value": 50, "call": ADD})
        assert slow["same"], slow["difference"]
        assert slow["variant"]["callMs"] >= 50
        cut = await bench.post(path, {"what": "cut", "call": {"kind": "tool", "name": "slow"}})
        assert cut["baseline"]["ok"]
        assert cut["variant"]["failure"]["blame"] == "transport", cut["variant"]
        await bench.call("PATCH", f"/api/servers/{server.id}", {"options": {"era": "legacy"}})
        restarted = await bench.post(path, {"what": "restart", "call": ADD})
        assert restarted["variant"]["ok"], restarted["variant"]
        assert any("reconnecting" in event for event in restarted["variant"]["events"])


@pytest.mark.slow
async def test_a_bad_pipe_and_a_killed_process(tmp_path: Path) -> None:
    file = tmp_path / "boat.py"
    file.write_text(
        "from trimaran import Server\nserver = Server('boat')\n\n\n@server.tool\ndef add(a: int, b: int) -> int:\n"
        "    '''Add.'''\n    return a + b\n\n\nserver.run()\n"
    )
    async with open_bench() as bench:
        server = await bench.add([sys.executable, str(file)])
        assert server.state == "ready", server.failure
        path = f"/api/servers/{server.id}/try"
        killed = await bench.post(path, {"what": "restart", "call": ADD})
        assert killed["variant"]["ok"], killed["variant"]
        assert "killed" in str(killed["variant"]["events"])
        slow = await bench.post(path, {"what": "slow", "value": 30, "call": ADD})
        assert slow["same"], slow["difference"]
