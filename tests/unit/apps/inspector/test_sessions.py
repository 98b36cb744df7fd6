"""Recorded sessions: a file, a mock server, a test file, a comparison; and saved calls without a page."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.inspector import Bench, open_bench
from tests.unit.apps.inspector.test_interface import boats

from trimaran import connect
from trimaran.apps.cli import commands
from trimaran.apps.inspector.mock import load_mock
from trimaran.apps.inspector.pytest_files import write_tests
from trimaran.apps.inspector.recording import RecordedCall, RecordedServer, RecordedSession
from trimaran.apps.inspector.saved_calls import read_calls, write_calls
from trimaran.serve import HttpServer


async def record(bench: Bench, server: str) -> dict[str, Any]:
    recording = await bench.post("/api/recordings", {"name": "a day at sea"})
    await bench.tool(server, "add", {"a": 1, "b": 2})
    await bench.tool(server, "fail")
    call = await bench.post("/api/calls", {"server": server, "kind": "tool", "name": "book"})
    await bench.until(bench.inspector.questions.waiting)
    question = bench.inspector.questions.waiting()[0]
    await bench.post(f"/api/questions/{question.id}", {"action": "accept", "content": {"name": "Ada"}})
    await bench.finish(call)
    read = await bench.post("/api/calls", {"server": server, "kind": "resource", "name": "boats://fleet"})
    await bench.finish(read)
    new = {"server": server, "kind": "prompt", "name": "greet", "arguments": {"name": "Ada"}}
    await bench.finish(await bench.post("/api/calls", new))
    return await bench.post(f"/api/recordings/{recording['id']}/stop")


@pytest.mark.slow
async def test_a_recording_becomes_a_mock_server_and_a_test_file_that_passes(tmp_path: Path) -> None:
    async with open_bench() as bench, HttpServer(boats(), port=0) as http:
        server = await bench.add(http.url, headers={"X-Api-Key": "sesame-open-sesame"})
        recording = await record(bench, server.id)
        assert recording["calls"] == 5
        path = f"/api/recordings/{recording['id']}"
        _, _, exported = await bench.raw("GET", f"{path}/export")
        assert "sesame-open-sesame" not in exported
        file = tmp_path / "day.json"
        file.write_text(exported)
        _, _, tests = await bench.raw("GET", f"{path}/pytest")
        imported = await bench.call("POST", "/api/recordings/import", json.loads(exported))
        assert imported["calls"] == 5
        same = await bench.post("/api/recordings/compare", {"a": recording["id"], "b": imported["id"]})
        assert same["same"], same
        mocked = await bench.post(f"/api/recordings/{imported['id']}/mock")
        await bench.until(lambda: bench.inspector.servers.get(mocked["id"]).catalog.is_complete)
        replayed = await bench.post(f"/api/recordings/{imported['id']}/replay", {"server": mocked["id"]})
        assert [result["same"] for result in replayed["results"]] == [True] * 5, replayed
        unknown = await bench.tool(mocked["id"], "add", {"a": 5, "b": 5})
        assert 'recorded: {"a":1,"b":2}' in str(unknown["result"])
        messages = await bench.get(f"/api/recordings/{imported['id']}/messages?method=tools/call&direction=out")
        assert messages["total"] == 4  # the question takes a second round
        await bench.call("DELETE", f"/api/recordings/{imported['id']}")

    async with HttpServer(load_mock(str(file)), port=0) as mock:
        for era in ("modern", "legacy"):
            async with connect(mock.url, era=era) as client:  # type: ignore[arg-type]
                assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"
                assert (await client.get_prompt("greet", {"name": "Ada"})).messages
    test_file = tmp_path / "test_boats.py"
    test_file.write_text(tests)
    command = [sys.executable, "-m", "trimaran", "serve", str(file)]
    check = f"import test_boats as t; t.TARGET = {command!r}; [f() for n, f in vars(t).items() if n.startswith('test_')]; print('all')"
    done = subprocess.run(  # noqa: S603, ASYNC221 - our own words
        [sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True, timeout=60, env={**os.environ}
    )
    assert done.stdout.strip() == "all", done.stderr


async def test_tests_answer_for_the_model_and_list_the_roots_that_were(tmp_path: Path) -> None:
    """A server without Trimaran: it asks for roots, for a model's turn, and then a person."""
    program = tmp_path / "asking.py"
    program.write_text(ASKING)
    async with open_bench() as bench:
        server = await bench.add([sys.executable, str(program)], "asking")
        await bench.call("PATCH", f"/api/servers/{server.id}", {"roots": [{"uri": "file:///sea"}]})
        recording = await bench.post("/api/recordings", {"name": "asked"})
        call = await bench.post("/api/calls", {"server": server.id, "kind": "tool", "name": "ask"})
        for answer in ({"text": "ahoy"}, {"content": {"ok": True}}):
            await bench.until(bench.inspector.questions.waiting)
            question = bench.inspector.questions.waiting()[0]
            await bench.post(f"/api/questions/{question.id}", {"action": "accept", **answer})
        done = await bench.finish(call)
        assert all(word in done["result"]["content"][0]["text"] for word in ("file:///sea", "ahoy", "ok"))
        await bench.post(f"/api/recordings/{recording['id']}/stop")
        _, _, recorded = await bench.raw("GET", f"/api/recordings/{recording['id']}/pytest?server={server.id}")
        _, _, pasted = await bench.raw("GET", f"/api/calls/{call['id']}/copy?as=pytest")
    for number, text in enumerate((recorded, pasted)):
        assert "file:///sea" in text
        check = f"import test_{number} as t; t.TARGET = {[sys.executable, str(program)]!r}; [f() for n, f in vars(t).items() if n.startswith('test_')]; print('all')"
        (tmp_path / f"test_{number}.py").write_text(text)
        done = subprocess.run(  # noqa: S603, ASYNC221 - our own words
            [sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True, timeout=60, env={**os.environ}
        )
        assert done.stdout.strip() == "all", (text, done.stderr)


ASKING = """
import json, sys

def write(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

ASKS = [
    ("roots/list", {}),
    ("sampling/createMessage", {"messages": [], "maxTokens": 5}),
    ("elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}),
]
heard, call = [], None
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        info = {"name": "asking", "version": "1"}
        write(id=id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        write(id=id, result={"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        heard, call = [], id
        write(id=0, method=ASKS[0][0], params=ASKS[0][1])
    elif method is None and call is not None:
        heard.append(message.get("result") or message.get("error"))
        if len(heard) < len(ASKS):
            write(id=len(heard), method=ASKS[len(heard)][0], params=ASKS[len(heard)][1])
        else:
            write(id=call, result={"content": [{"type": "text", "text": json.dumps(heard)}]})
    elif method is not None and id is not None:
        write(id=id, error={"code": -32601, "message": "no"})
"""


async def test_recordings_that_are_none_are_refused() -> None:
    async with open_bench() as bench:
        await bench.call("POST", "/api/recordings/import", {"log": 1}, status=400)
        await bench.call("GET", "/api/recordings/none/export", status=404)
        message = {"seq": 1, "at": 0.0, "server": "a", "direction": "in", "kind": "response", "size": 1}
        call = {"server": "a", "kind": "tool", "name": "add", "state": "ok"}
        for strange in ({"at": 1e300}, {"at": -1.0}, {"direction": "sideways"}, {"size": -1}, {"kind": "x"}):
            parts = {"calls": [{**call, **strange}]} if "kind" in strange else {"messages": [{**message, **strange}]}
            body = {"trimaranRecording": 1, "messages": [message], "calls": [call], **parts}
            await bench.call("POST", "/api/recordings/import", body, status=400)


async def test_two_recordings_are_compared_by_what_came() -> None:
    async with open_bench() as bench:
        server = await bench.add(boats())
        ids: list[str] = []
        for b in (2, 3):
            recording = await bench.post("/api/recordings", {"name": f"b is {b}"})
            await bench.tool(server.id, "add", {"a": 1, "b": b})
            await bench.tool(server.id, "fail")
            ids.append((await bench.post(f"/api/recordings/{recording['id']}/stop"))["id"])
        difference = await bench.post("/api/recordings/compare", {"a": ids[0], "b": ids[1]})
        assert not difference["same"]
        assert [call["same"] for call in difference["calls"]] == [False, True, False]


def test_tests_cover_every_server_that_was_called() -> None:
    servers = [
        RecordedServer(id="a", name="boats", target="http://127.0.0.1:9/mcp"),
        RecordedServer(id="b", name="boats", target="sh -c 'exec boats --all'"),
        RecordedServer(id="c", name="quiet", target="quiet"),
    ]
    calls = [RecordedCall(server=id, kind="tool", name="add", state="ok", result={"content": []}) for id in "aab"]
    text = write_tests(RecordedSession(name="two ports", servers=servers, calls=calls))
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    names = [function.name for function in functions if function.name.startswith("test_")]
    assert names == ["test_add_boats_1", "test_add_boats_1_2", "test_add_boats_2"]
    assert "TARGET_BOATS_1 = target(\"MCP_TARGET_BOATS_1\", 'http://127.0.0.1:9/mcp')" in text
    assert "['sh', '-c', 'exec boats --all']" in text
    assert "quiet" not in text


def test_a_test_runs_as_a_task_what_ran_as_one() -> None:
    server = RecordedServer(id="a", name="boats", target="http://127.0.0.1:9/mcp")
    call = RecordedCall(server="a", kind="tool", name="sail", state="ok", result={"content": []}, as_task=True)
    assert "connect(TARGET, tasks=True)" in write_tests(RecordedSession(name="sea", servers=[server], calls=[call]))


async def test_what_is_kept_so_far_says_since_when() -> None:
    async with open_bench() as bench:
        server = await bench.add(boats())
        await bench.tool(server.id, "add", {"a": 1, "b": 2})
        first = (await bench.get("/api/messages"))["messages"][0]
        begun = await bench.post("/api/recordings", {"sinceStart": True})
        assert begun["at"] == first["at"]
        assert begun["name"] == "session 1", "two without a name can be told apart"
        stopped = await bench.post(f"/api/recordings/{begun['id']}/stop")
        assert (stopped["at"], stopped["calls"]) == (first["at"], 1)


async def test_saved_calls_of_a_stranger_do_not_keep_the_inspector_busy() -> None:
    """An expression that takes `re` years is answered at once."""
    async with open_bench() as bench:
        server = await bench.add(boats())
        base = {"server": server.id, "kind": "prompt", "name": "greet", "arguments": {"name": "a" * 40 + "!"}}
        for number, (expression, passes) in enumerate([("(a+)+$", False), ("^Ahoy", True), ("(", False)]):
            calls = [{"id": "1", "title": "t", **base, "expect": [{"what": "text", "matches": expression}]}]
            await bench.call("PUT", "/api/saved", {"calls": calls})
            result = (await bench.post("/api/saved/run"))["results"][0]
            assert result["passed"] is passes, (number, result)


async def test_exported_calls_name_servers_as_the_calls_do() -> None:
    async with open_bench() as bench:
        await bench.add(boats(), "my boats")
        text = '[[call]]\nserver = "my boats"\ntool = "add"\n'
        await bench.raw("POST", "/api/saved/import", data=text)
        _, _, exported = await bench.raw("GET", "/api/saved/calls.toml")
        assert list(read_calls(exported, "calls.toml").servers) == ["my boats"]


async def test_imported_calls_are_added_to_those_that_are_saved() -> None:
    async with open_bench() as bench:
        server = await bench.add(boats())
        mine = {"id": "s1", "title": "mine", "server": server.id, "kind": "tool", "name": "add", "arguments": {}}
        await bench.call("PUT", "/api/saved", {"calls": [{**mine, "expect": []}]})
        text = b'[[call]]\nserver = "boats"\ntool = "add"\n[[call]]\nserver = "boats"\ntool = "fail"\n'
        for added in (2, 0):  # the same file again
            _, _, answer = await bench.raw("POST", "/api/saved/import", data=text)
            assert json.loads(answer)["added"] == added
        saved = (await bench.get("/api/saved"))["calls"]
        assert [call["title"] for call in saved] == ["mine", "tool add", "tool fail"]
        assert len({call["id"] for call in saved}) == 3


async def test_saved_calls_are_run_and_judged() -> None:
    async with open_bench() as bench:
        server = await bench.add(boats())
        base = {"server": server.id, "kind": "tool", "name": "add", "arguments": {"a": 1, "b": 2}}
        calls = [
            {"id": "1", "title": "good", **base, "expect": [{"what": "text", "equals": "3"}, {"what": "schema"}]},
            {"id": "2", "title": "bad", **base, "expect": [{"what": "text", "contains": "4"}]},
            {"id": "3", "title": "fails", **base, "name": "fail", "arguments": {}, "expect": [{"what": "error"}]},
            {"id": "4", "title": "fails too", **base, "name": "fail", "arguments": {}, "expect": []},
            {
                "id": "5",
                "title": "deep",
                **base,
                "expect": [{"what": "value", "path": "/content/0/type", "equals": "text"}],
            },
        ]
        await bench.call("PUT", "/api/saved", {"calls": calls})
        results = (await bench.post("/api/saved/run"))["results"]
        assert [result["passed"] for result in results] == [True, False, True, False, True], results
        _, _, text = await bench.raw("GET", "/api/saved/calls.toml")
        again = read_calls(text, "calls.toml")
        assert [call.name for call in again.calls] == ["add", "add", "fail", "fail", "add"]
        assert again.calls[0].expect[0].equals == "3"
        assert write_calls(again.calls, {}) in text


def test_saved_calls_run_without_a_page(tmp_path: Path) -> None:
    (tmp_path / "boat.py").write_text(
        "from trimaran import Server\nserver = Server('boat')\n\n\n@server.tool\ndef add(a: int, b: int) -> int:\n"
        "    '''Add.'''\n    return a + b\n"
    )
    calls = """
[server.boat]
target = "boat.py"

[[call]]
title = "adds"
tool = "add"
arguments = { a = 1, b = 2 }
expect = [{ what = "text", equals = "3" }]
"""
    file, junit = tmp_path / "calls.toml", tmp_path / "junit.xml"
    file.write_text(calls)
    run = CliRunner().invoke(commands, ["inspect", "--run", str(file), "--junit", str(junit)], standalone_mode=False)
    assert run.return_value == 0, run.output
    assert "1 passed, 0 failed" in run.output
    suite = ElementTree.fromstring(junit.read_text())  # noqa: S314 - our own file
    assert suite.attrib["tests"] == "1"
    file.write_text(calls.replace('equals = "3"', 'equals = "4"').replace('title = "adds"', 'title = "<&\\u0007>"'))
    run = CliRunner().invoke(commands, ["inspect", "--run", str(file), "--junit", str(junit)], standalone_mode=False)
    assert run.return_value == 1, run.output
    suite = ElementTree.fromstring(junit.read_text())  # noqa: S314 - our own file
    assert "expected" in suite[0][0].attrib["message"]
    file.write_text("[[call]]\ntool = 'x'\nresource = 'y'\n")
    assert CliRunner().invoke(commands, ["inspect", "--run", str(file)]).exit_code == 2


@pytest.mark.parametrize(
    ("calls", "options", "problem"),
    [
        ('[server.boat]\ntarget = "nowhere.py"\n', [], "nowhere.py"),
        ("[server]\nboat = 3\n", [], "needs target"),
        ("", ["--junit", "no/such/folder.xml"], "no folder"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_before_anything_runs(
    tmp_path: Path, calls: str, options: list[str], problem: str
) -> None:
    file = tmp_path / "calls.toml"
    file.write_text(calls)
    run = CliRunner().invoke(commands, ["inspect", "--run", str(file), *options])
    assert (run.exit_code, problem in run.output) == (2, True), run.output


@pytest.mark.slow
def test_a_run_waits_no_longer_than_it_was_told(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import asyncio\nfrom trimaran import Server\nserver = Server('slow')\n\n\n@server.tool\nasync def wait() -> str:\n"
        "    '''Wait.'''\n    await asyncio.Event().wait()\n    return ''\n"
    )
    file = tmp_path / "calls.toml"
    file.write_text('[server.slow]\ntarget = "slow.py"\n\n[[call]]\ntool = "wait"\n')
    run = CliRunner().invoke(commands, ["inspect", "--run", str(file), "--timeout", "3"], standalone_mode=False)
    assert "within 3 s" in run.output


def test_a_run_says_why_a_server_did_not_start(tmp_path: Path) -> None:
    (tmp_path / "gone.py").write_text("raise SystemExit('no wind today')\n")
    file = tmp_path / "calls.toml"
    file.write_text('[server.gone]\ntarget = "gone.py"\n\n[[call]]\ntool = "sail"\n')
    run = CliRunner().invoke(commands, ["inspect", "--run", str(file)], standalone_mode=False)
    assert run.return_value == 1, run.output
    assert "gone is failed: " in run.output
    assert "no wind today" in run.output
