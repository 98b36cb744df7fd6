"""A login step by step, with an authorization server that is honest, or mean by order."""

from __future__ import annotations

from typing import Any

import aiohttp
from tests.support.inspector import Bench, open_bench
from tests.support.mean_authority import Mean


async def step(bench: Bench, flow: dict[str, Any]) -> dict[str, Any]:
    """One more request; the flow when it has stopped again."""
    id = flow["id"]
    await bench.post(f"/api/oauth/{id}/next")
    await bench.until(lambda: bench.inspector.logins.get(id).view.state != "running")
    return await bench.get(f"/api/oauth/{id}")


async def visit(mean: Mean, url: str) -> None:
    back = await mean.browse(url)
    async with aiohttp.ClientSession() as browser, browser.get(back) as page:
        assert page.status == 200, await page.text()


async def test_a_login_stops_before_each_request_and_shows_it() -> None:
    async with open_bench() as bench, Mean() as mean:
        server = await bench.add(mean.url)
        assert server.state == "needs-auth"
        flow = await bench.post(f"/api/servers/{server.id}/oauth")
        assert flow["state"] == "paused"
        assert flow["steps"] == []
        assert "without a token" in flow["next"]
        flow = await step(bench, flow)
        assert flow["steps"][0]["phase"] == "challenge"
        assert flow["steps"][0]["response"]["status"] == 401
        while flow["state"] == "paused":
            flow = await step(bench, flow)
        assert flow["state"] == "waiting-for-browser", flow
        await visit(mean, flow["authorizationUrl"])
        await bench.until(lambda: bench.inspector.logins.get(flow["id"]).view.state == "paused")
        flow = await bench.get(f"/api/oauth/{flow['id']}")
        assert "token" in flow["next"]
        while flow["state"] == "paused":
            flow = await step(bench, flow)
        assert flow["state"] == "done", flow
        phases = [entry["phase"] for entry in flow["steps"]]
        assert phases[0] == "challenge"
        assert phases[-4:] == ["registration", "authorization", "token", "call"]
        assert all(entry["ok"] for entry in flow["steps"][-4:])
        assert flow["result"]["hasRefreshToken"] in (True, False)
        assert not mean.spilled(str(flow)), "no code and no token is shown"
        await bench.until(lambda: server.state == "ready")

        again = await bench.post(f"/api/servers/{server.id}/oauth", {"what": "refresh", "auto": True})
        await bench.until(lambda: bench.inspector.logins.get(again["id"]).view.state in ("done", "failed"))
        again = await bench.get(f"/api/oauth/{again['id']}")
        assert again["state"] == "done", again
        assert "refresh" in [entry["phase"] for entry in again["steps"]]
        assert not mean.spilled(str(again))


async def test_what_is_wrong_is_told_with_its_remedy() -> None:
    for sin, phase in (
        ("no S256", "discovery"),
        ("registration refused", "registration"),
        ("issuer swapped", "discovery"),
    ):
        async with open_bench() as bench, Mean(sin) as mean:
            server = await bench.add(mean.url)
            flow = await bench.post(f"/api/servers/{server.id}/oauth", {"auto": True})
            await bench.until(lambda id=flow["id"]: bench.inspector.logins.get(id).view.state == "failed")
            flow = await bench.get(f"/api/oauth/{flow['id']}")
            last = flow["steps"][-1]
            assert last["phase"] == phase, flow
            assert last["problem"], sin
            assert last["remedy"], sin
            assert flow["failure"]["blame"] == "auth"


async def test_a_login_can_be_given_up() -> None:
    async with open_bench() as bench, Mean() as mean:
        server = await bench.add(mean.url)
        flow = await bench.post(f"/api/servers/{server.id}/oauth")
        await bench.call("DELETE", f"/api/oauth/{flow['id']}")
        await bench.call("GET", f"/api/oauth/{flow['id']}", status=404)
        memory = await bench.add(["true"], "not-http")
        await bench.post(f"/api/servers/{memory.id}/oauth", status=400)
