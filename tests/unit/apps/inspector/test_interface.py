"""The inspector's interface over real HTTP: servers, catalog, calls, questions, wire, and who may come in."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.inspector import open_bench

from trimaran import Context, Server, ToolError
from trimaran.apps.inspector.servers import Reach, ServerSource
from trimaran.serve import HttpServer


def boats() -> Server:
    server = Server("boats", version="1.0.0", instructions="Ask about boats.")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def slow(ctx: Context) -> str:
        """Count to three."""
        for step in range(3):
            await ctx.progress(step + 1, total=3, message=f"step {step + 1}")
        await ctx.log("info", "counted")
        return "done"

    @server.tool
    def fail() -> str:
        """Fail."""
        raise ToolError("no wind")

    @server.tool
    async def book(ctx: Context) -> str:
        """Ask for a name."""
        schema = {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}}, "required": ["name"]}
        answer = await ctx.elicit("Under which name?", schema)
        return f"booked for {answer.content['name']}" if answer.action == "accept" else answer.action

    @server.tool
    async def wait() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return ""

    @server.tool(input_schema={"type": "object"}, output_schema={"type": "object", "required": ["speed"]})
    def lie(ctx: Context) -> Any:
        """Break its own output schema."""
        return {"knots": 3}

    @server.resource("boats://fleet", name="fleet")
    def fleet() -> str:
        """All boats."""
        return "Ada, Bea"

    @server.prompt
    def greet(name: str) -> str:
        """Greet a sailor."""
        return f"Ahoy {name}"

    return server


async def test_a_server_connects_and_is_described() -> None:
    async with open_bench() as bench:
        server = await bench.add(boats())
        view = await bench.get(f"/api/servers/{server.id}")
        assert view["state"] == "ready"
        assert view["era"] == "modern"
        assert view["info"]["name"] == "boats"
        assert view["instructions"] == "Ask about boats."
        assert view["counts"]["tools"] == 6
        assert [activity["what"] for activity in view["activities"]] == ["connecting", "ready"]
        catalog = await bench.get(f"/api/servers/{server.id}/catalog")
        add = next(tool for tool in catalog["tools"] if tool["definition"]["name"] == "add")
        assert add["definition"]["inputSchema"]["properties"]["a"]["type"] == "integer"
        assert add["tokens"] > 10
        assert catalog["resources"][0]["uri"] == "boats://fleet"
        assert catalog["prompts"][0]["name"] == "greet"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_calls_end_with_what_came_and_who_failed(era: str) -> None:
    async with open_bench() as bench, HttpServer(boats(), port=0) as http:
        server = await bench.add(http.url)
        await bench.call("PATCH", f"/api/servers/{server.id}", {"options": {"era": era}})
        await server.connect()
        await bench.until(lambda: server.catalog.is_complete)

        good = await bench.tool(server.id, "add", {"a": 1, "b": 2})
        assert good["state"] == "ok"
        assert good["result"]["content"][0]["text"] == "3"
        assert good["rounds"] == 1
        assert good["wireMs"] > 0
        assert good["ms"] >= good["wireMs"]

        failed = await bench.tool(server.id, "fail")
        assert (failed["state"], failed["failure"]["blame"]) == ("tool-error", "server")

        invalid = await bench.tool(server.id, "lie", {})
        assert invalid["state"] in ("invalid", "tool-error", "failed")

        unknown = await bench.tool(server.id, "nothing")
        assert unknown["state"] in ("failed", "tool-error")
        assert unknown["failure"]["blame"] == "server"
        assert "status" not in unknown["failure"], "nobody saw one: the error came in a body, or on stdio"

        slow = await bench.tool(server.id, "slow")
        assert slow["progress"] == {"progress": 3, "total": 3, "message": "step 3"}
        assert len(slow["progressLog"]) == 3
        assert [line["data"] for line in slow["logLines"]] == ["counted"]

        resource = {"server": server.id, "kind": "resource", "name": "boats://fleet"}
        read = await bench.finish(await bench.post("/api/calls", resource))
        assert read["result"]["contents"][0]["text"] == "Ada, Bea"
        prompt = {"server": server.id, "kind": "prompt", "name": "greet", "arguments": {"name": "Ada"}}
        greeted = await bench.finish(await bench.post("/api/calls", prompt))
        assert "Ahoy Ada" in str(greeted["result"])


async def test_bad_arguments_are_refused_and_can_be_sent_anyway() -> None:
    async with open_bench() as bench:
        server = await bench.add(boats())
        new = {"server": server.id, "kind": "tool", "name": "add", "arguments": {"a": "one"}}
        refusal = await bench.post("/api/calls", new, status=422)
        assert {violation["path"] for violation in refusal["violations"]} == {"/a", "/b"}
        assert not (await bench.post("/api/check", {"server": server.id, "tool": "add", "arguments": {"a": 1}}))["ok"]
        sent = await bench.finish(await bench.post("/api/calls", {**new, "sendAnyway": True}))
        assert sent["failure"]["blame"] == "server"
        odd = await bench.finish(await bench.post("/api/calls", {**new, "arguments": [1], "sendAnyway": True}))
        assert odd["state"] in ("failed", "tool-error")


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.slow
async def test_a_question_waits_for_a_person_and_is_checked(era: str) -> None:
    async with open_bench() as bench, HttpServer(boats(), port=0) as http:
        server = await bench.add(http.url)
        await bench.call("PATCH", f"/api/servers/{server.id}", {"options": {"era": era, "timeout": 300}})
        await server.connect()
        call = await bench.post("/api/calls", {"server": server.id, "kind": "tool", "name": "book"})
        await bench.until(bench.inspector.questions.waiting)
        question = (await bench.get("/api/questions"))["questions"][0]
        assert question["call"] == call["id"]
        assert question["era"] == era
        assert question["fields"][0]["name"] == "name"
        assert (await bench.get(f"/api/calls/{call['id']}"))["state"] == "waiting"
        path = f"/api/questions/{question['id']}"
        refusal = await bench.post(path, {"action": "accept", "content": {"name": "A"}}, status=422)
        assert "name" in refusal["problems"]
        await asyncio.sleep(0.4)  # longer than the call's own deadline, which stands still meanwhile
        await bench.post(path, {"action": "accept", "typed": {"name": "Ada"}})
        done = await bench.finish(call)
        assert done["result"]["content"][0]["text"] == "booked for Ada"
        assert done["waitMs"] >= 300
        assert done["rounds"] == (2 if era == "modern" else 1)
        assert done["questions"][0]["answer"]["action"] == "accept"
        await bench.post(path, {"action": "decline"}, status=404)


async def test_a_call_can_be_cancelled() -> None:
    async with open_bench() as bench:
        server = await bench.add(boats())
        call = await bench.post("/api/calls", {"server": server.id, "kind": "tool", "name": "wait"})
        await bench.until(lambda: bench.inspector.calls.get(call["id"]).row.request_ids)
        await bench.post(f"/api/calls/{call['id']}/cancel", {"reason": "enough"})
        done = await bench.finish(call)
        assert (done["state"], done["failure"]["blame"]) == ("cancelled", "person")
        # The server had it all the time: what never came back was not our own doing.
        assert done["wireMs"] > done["ownMs"]


async def test_the_wire_shows_messages_with_their_http() -> None:
    async with open_bench() as bench, HttpServer(boats(), port=0) as http:
        server = await bench.add(http.url, auth="sesame-open-sesame")
        call = await bench.tool(server.id, "add", {"a": 1, "b": 2})
        listed = await bench.get(f"/api/messages?server={server.id}&call={call['id']}")
        request, response = listed["messages"]
        assert request["summary"] == "tools/call add"
        assert response["pair"] == request["seq"]
        assert response["ms"] > 0
        assert request["exchange"] == response["exchange"]
        whole = await bench.get(f"/api/messages/{request['seq']}")
        assert whole["body"]["params"]["arguments"] == {"a": 1, "b": 2}
        headers = dict(whole["exchange"]["requestHeaders"])
        assert headers["Authorization"] == "Bearer ***"
        assert whole["exchange"]["status"] == 200
        assert any(entry["header"].lower() == "mcp-method" for entry in whole["exchange"]["decoded"])
        assert (await bench.get("/api/messages?q=AHOY"))["total"] == 0
        assert (await bench.get("/api/messages?method=tools/call&direction=in"))["total"] == 1
        _, _, curl = await bench.raw("GET", f"/api/messages/{request['seq']}/copy?as=curl")
        assert curl.startswith("curl ")
        assert "sesame" not in curl
        _, _, python = await bench.raw("GET", f"/api/calls/{call['id']}/copy?as=python")
        compile(python, "copied.py", "exec")
        har = await bench.get("/api/export/har")
        posts = [
            entry
            for entry in har["log"]["entries"]
            if "tools/call" in entry["request"].get("postData", {}).get("text", "")
        ]
        assert posts[0]["response"]["status"] == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_copied_curl_command_runs(era: str, tmp_path: Path) -> None:
    """In a session, which is masked and ends, it opens one of its own."""
    async with open_bench() as bench, HttpServer(boats(), port=0) as http:
        server = await bench.add(http.url)
        await bench.call("PATCH", f"/api/servers/{server.id}", {"options": {"era": era}})
        await bench.post(f"/api/servers/{server.id}/restart")
        await bench.until(lambda: server.state == "ready" and server.catalog.is_complete)
        call = await bench.tool(server.id, "add", {"a": 40, "b": 2})
        _, _, command = await bench.raw("GET", f"/api/calls/{call['id']}/copy?as=curl")
        assert ("initialize" in command) is (era == "legacy")
        file = tmp_path / "call.sh"
        file.write_text(command)
        shell = await asyncio.create_subprocess_exec("sh", str(file), stdout=asyncio.subprocess.PIPE)
        said, _ = await asyncio.wait_for(shell.communicate(), 20)
        assert b'"text":"42"' in said, said


async def test_a_request_that_is_answered_over_another_stream_is_no_curl_command() -> None:
    async with open_bench() as bench, HttpServer(boats(), port=0, sse_path="/sse") as http:
        server = await bench.add(http.url.replace("/mcp", "/sse"))
        call = await bench.tool(server.id, "add", {"a": 40, "b": 2})
        assert call["state"] == "ok"
        status, _, refusal = await bench.raw("GET", f"/api/calls/{call['id']}/copy?as=curl")
        assert status == 422
        assert "copy it as Python" in refusal
        _, _, program = await bench.raw("GET", f"/api/calls/{call['id']}/copy?as=python")
        assert "/sse" in program


async def test_a_prompt_is_not_asked_for_without_what_it_requires() -> None:
    async with open_bench() as bench:
        server = await bench.add(boats())
        new: dict[str, Any] = {"server": server.id, "kind": "prompt", "name": "greet"}
        for arguments, path in ((None, "/name"), ({}, "/name"), ({"name": 3}, "/name"), ([], "")):
            refusal = await bench.post("/api/calls", {**new, "arguments": arguments}, status=422)
            assert [violation["path"] for violation in refusal["violations"]] == [path]
        sent = await bench.finish(await bench.post("/api/calls", {**new, "sendAnyway": True}))
        assert sent["state"] == "failed"


async def test_a_line_of_stderr_is_in_the_list_or_in_a_later_event() -> None:
    program = "import sys; print('one', file=sys.stderr, flush=True); sys.stdin.read()"
    async with open_bench() as bench:
        reach = Reach(target=[sys.executable, "-c", program], name="odd", text="odd", transport="stdio")
        server = bench.inspector.add(reach, ServerSource(kind="process", label="a test"))
        server.begin_connecting()
        await bench.until(lambda: server.stderr)
        listed = await bench.get(f"/api/servers/{server.id}/stderr")
        assert [line["text"] for line in listed["lines"]] == ["one"]
        told = [event for event in bench.inspector.events.after(0) if event["type"] == "stderr"]
        assert [event["seq"] <= listed["seq"] for event in told] == [True]
        view = await bench.get(f"/api/servers/{server.id}")
        assert (view["state"], view["stderrLines"]) == ("connecting", 1)
        assert view["connectingSince"] == view["activities"][0]["at"]


async def test_events_come_in_batches_and_go_on_after_a_break() -> None:
    async with open_bench() as bench:
        server = await bench.add(boats())
        before = (await bench.get("/api/state"))["seq"]
        async with bench.events(before) as events:
            await bench.tool(server.id, "slow")
            await bench.until(lambda: [e for e in events if e["type"] == "call" and e["call"]["state"] == "ok"])
            kinds = {event["type"] for event in events}
            assert {"call", "message", "progress", "log"} <= kinds
            numbers = [event["seq"] for event in events]
            assert numbers == sorted(numbers)
        middle = numbers[len(numbers) // 2]
        async with bench.events(middle) as again:
            await bench.until(lambda: [e for e in again if e["type"] == "call" and e["call"]["state"] == "ok"])
            assert min(event["seq"] for event in again) > middle
        async with bench.events(10**9) as reset:
            await bench.until(lambda: reset)
            assert reset[0]["type"] == "reset"


async def test_nobody_without_the_link_comes_in() -> None:
    async with open_bench() as bench:
        session, bench.headers = bench.headers, {}
        for path in ("/api/state", "/api/events", "/", "/assets/x.js", "/frame/x"):
            assert (await bench.raw("GET", path))[0] == 401, path
        await bench.post("/api/login", {"token": "guess"}, status=401)
        await bench.post("/api/login", {"token": "guess" * 1000}, status=400)
        token = bench.inspector.access.renew()
        status, headers, page = await bench.raw("GET", f"/?token={token}")
        assert status == 200
        assert "</head>" not in page or session["Authorization"].partition(" ")[2] in page
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert (await bench.raw("GET", f"/?token={token}"))[0] == 401, "the token works once"
        jar = {"Cookie": cookie.partition(";")[0]}
        again = await bench.raw("GET", f"/?token={token}", headers=jar)
        assert (again[0], again[2]) == (303, ""), "whoever has the cookie is not told the session"
        assert (await bench.raw("GET", "/", headers=jar))[0] == 200
        for headers in (jar, {**jar, "Authorization": f"Bearer {jar['Cookie'].partition('=')[2]}"}):
            assert (await bench.raw("GET", "/api/state", headers=headers))[0] == 401, "cookies know no port"
        for headers in (
            {"Host": "evil.example"},
            {"Origin": "http://evil.example"},
            {"Origin": "http://127.0.0.1:1"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "empty"},
        ):
            assert (await bench.raw("GET", "/api/state", headers={**session, **headers}))[0] == 403, headers
        own = bench.url
        assert (await bench.raw("GET", "/api/state", headers={**session, "Origin": own}))[0] == 200
        mcp = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await bench.raw("POST", "/.mcp", mcp, headers=session))[0] == 401


async def test_the_largest_message_is_an_option_of_the_connection() -> None:
    server = Server("boats")

    @server.tool
    def cargo(size: int) -> str:
        return "x" * size

    async with HttpServer(server, port=0) as http, open_bench() as bench:
        harbour = await bench.add(http.url)
        path = f"/api/servers/{harbour.id}"
        await bench.call("PATCH", path, {"options": {"maxMessageBytes": 100}}, status=400)
        await bench.call("PATCH", path, {"options": {"maxMessageBytes": 50_000}})
        await bench.post(f"{path}/restart")
        await bench.until(lambda: harbour.state == "ready" and harbour.connections == 2)
        call = await bench.tool(harbour.id, "cargo", {"size": 60_000})
        assert call["state"] == "failed"
        assert "max_message_bytes" in call["failure"]["message"]
        assert call["failure"]["blame"] == "client", "it is our limit"
        assert "Largest message" in call["failure"]["hint"]
        assert (await bench.tool(harbour.id, "cargo", {"size": 40_000}))["state"] == "ok"


async def test_mistakes_of_a_page_are_told() -> None:
    async with open_bench() as bench:
        await bench.call("GET", "/api/nothing", status=404)
        await bench.call("DELETE", "/api/state", status=405)
        await bench.call("GET", "/api/servers/none", status=404)
        await bench.post("/api/servers", {"target": "no-such-file.py"}, status=400)
        await bench.post("/api/calls", {"server": "none"}, status=400)
        status, _, text = await bench.raw("POST", "/api/calls", headers={"Content-Type": "application/json"}, data=None)
        assert status == 400, text
        assert (await bench.raw("GET", "/..%2f..%2fsite.py"))[0] == 404
        server = bench.inspector.add(bench.inspector.parse_target("http://127.0.0.1:9/mcp"), _source())
        await bench.post("/api/calls", {"server": server.id, "kind": "tool", "name": "x"}, status=409)


def _source() -> Any:
    from trimaran.apps.inspector.servers import ServerSource

    return ServerSource(kind="page", label="typed in")


async def test_a_server_that_cannot_be_reached_is_shown_as_that() -> None:
    async with open_bench() as bench:
        server = await bench.add(
            ["python3", "-c", "import sys; print('no hull', file=sys.stderr); sys.exit(3)"], "dead"
        )
        view = await bench.get(f"/api/servers/{server.id}")
        assert view["state"] == "failed"
        assert view["failure"]["blame"] == "transport"
        assert "no hull" in str((await bench.get(f"/api/servers/{server.id}/stderr"))["lines"])


async def test_sampling_is_answered_by_hand_or_handed_to_a_model() -> None:
    server = Server("poet")

    @server.tool
    async def rhyme(ctx: Context) -> str:
        """Ask the client's model."""
        answer = await ctx.sample(
            [{"role": "user", "content": {"type": "text", "text": "A rhyme on sail?"}}], max_tokens=9
        )
        return f"{answer.model}: {answer.text}"

    async with open_bench() as bench:
        inspected = await bench.add(server)
        new = {"server": inspected.id, "kind": "tool", "name": "rhyme"}
        call = await bench.post("/api/calls", new)
        await bench.until(bench.inspector.questions.waiting)
        question = (await bench.get("/api/questions"))["questions"][0]
        path = f"/api/questions/{question['id']}"
        assert (question["kind"], question["message"]) == ("sampling", "A rhyme on sail?")
        assert not (await bench.get("/api/state"))["canSample"]
        await bench.post(path, {"action": "accept", "by": "model"}, status=400)

        async def sample(asked: Any) -> Any:
            return {"role": "assistant", "content": {"type": "text", "text": "gale"}, "model": "m-1"}

        bench.inspector.questions.sample_by_model = sample
        assert (await bench.get("/api/state"))["canSample"]
        await bench.post(path, {"action": "accept", "by": "model"})
        assert "m-1: gale" in str((await bench.finish(call))["result"])
        call = await bench.post("/api/calls", new)
        await bench.until(bench.inspector.questions.waiting)
        waiting = bench.inspector.questions.waiting()[0]
        await bench.post(f"/api/questions/{waiting.id}", {"action": "accept", "text": "tale", "model": "Ada"})
        assert "Ada: tale" in str((await bench.finish(call))["result"])
        call = await bench.post("/api/calls", new)
        await bench.until(bench.inspector.questions.waiting)
        await inspected.disconnect()
        done = await bench.finish(call)
        assert done["state"] == "failed"
        assert bench.inspector.questions.waiting() == [], "the question went with its server"
