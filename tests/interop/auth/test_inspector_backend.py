"""The inspector's backend on servers that nobody here wrote: server-everything, and one guarded by oidc-provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.inspector import open_bench

from ..harness import DEADLINE
from ..servers.places import EVERYTHING
from .authority import Authority, Person
from .notes import guarded_notes

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]


async def test_server_everything_is_shown_called_recorded_and_mocked(tmp_path: Path) -> None:
    async with open_bench() as bench:
        server = await bench.add(EVERYTHING.over_pipes(tmp_path), "everything")
        assert server.state == "ready", server.failure
        view = await bench.get(f"/api/servers/{server.id}")
        assert (view["era"], view["revision"]) == ("legacy", "2025-11-25")
        assert view["counts"]["tools"] > 10
        assert view["counts"]["resources"] > 3
        recording = await bench.post("/api/recordings", {"name": "everything"})
        echo = await bench.tool(server.id, "echo", {"message": "ahoy"})
        assert "ahoy" in str(echo["result"])
        long = await bench.tool(server.id, "trigger-long-running-operation", {"duration": 1, "steps": 4})
        assert long["progress"]["progress"] == 4
        assert len(long["progressLog"]) == 4

        call = await bench.post(
            "/api/calls", {"server": server.id, "kind": "tool", "name": "trigger-elicitation-request"}
        )
        await bench.until(bench.inspector.questions.waiting)
        question = (await bench.get("/api/questions"))["questions"][0]
        assert question["call"] == call["id"]
        kinds = {field["kind"] for field in question["fields"]}
        assert {"text", "boolean", "integer", "choice"} <= kinds
        typed: dict[str, Any] = {field["name"]: "" for field in question["fields"]}
        typed["name"] = "Ada"
        await bench.post(f"/api/questions/{question['id']}", {"action": "accept", "typed": typed})
        assert "Ada" in str((await bench.finish(call))["result"])

        new = {"server": server.id, "kind": "tool", "name": "trigger-sampling-request", "arguments": {"prompt": "sail"}}
        call = await bench.post("/api/calls", new)
        await bench.until(bench.inspector.questions.waiting)
        question = (await bench.get("/api/questions"))["questions"][0]
        assert question["kind"] == "sampling"
        await bench.post(f"/api/questions/{question['id']}", {"action": "accept", "text": "a fair wind"})
        assert "a fair wind" in str((await bench.finish(call))["result"])

        structured = await bench.tool(server.id, "get-structured-content", {"location": "Chicago"})
        assert structured["structuredCheck"]["ok"]
        completion = await bench.post(
            f"/api/servers/{server.id}/complete",
            {"ref": {"type": "ref/prompt", "name": "completable-prompt"}, "argument": "department", "value": "E"},
        )
        assert "Engineering" in completion["values"]
        row = await bench.post(f"/api/recordings/{recording['id']}/stop")
        mock = await bench.post(f"/api/recordings/{row['id']}/mock")
        await bench.until(lambda: bench.inspector.servers.get(mock["id"]).catalog.is_complete)
        replayed = await bench.post(f"/api/recordings/{row['id']}/replay", {"server": mock["id"]})
        assert [result["same"] for result in replayed["results"]] == [True] * 5
        modern = await bench.post(f"/api/servers/{server.id}/try", {"what": "modern"})
        assert modern["variant"]["failure"]["blame"] in ("server", "transport")


@pytest.mark.parametrize("dpop", [False, True])
async def test_a_login_at_oidc_provider_step_by_step(authority: Authority, dpop: bool) -> None:
    async with open_bench() as bench, guarded_notes(authority, dpop=dpop) as url:
        server = await bench.add(url, "notes")
        assert server.state == "needs-auth"
        flow = await bench.post(f"/api/servers/{server.id}/oauth", {"auto": True, "dpop": dpop})
        await bench.until(lambda: bench.inspector.logins.get(flow["id"]).view.state == "waiting-for-browser")
        flow = await bench.get(f"/api/oauth/{flow['id']}")
        await Person().visit(flow["authorizationUrl"])
        await bench.until(lambda: bench.inspector.logins.get(flow["id"]).view.state in ("done", "failed"))
        flow = await bench.get(f"/api/oauth/{flow['id']}")
        assert flow["state"] == "done", flow
        assert {"challenge", "discovery", "registration", "authorization", "token", "call"} <= {
            step["phase"] for step in flow["steps"]
        }
        await bench.until(lambda: server.state == "ready" and server.catalog.is_complete)
        whoami = await bench.tool(server.id, "whoami")
        assert whoami["state"] == "ok"
