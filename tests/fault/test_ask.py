"""`trimaran ask`: a process of its own, the providers' own libraries, and providers on 127.0.0.1 that check every request."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.faults import is_alive
from tests.support.model_provider import Answer, AnthropicWire, Break, OpenAIWire, Status, Wire
from tests.support.until import until

pytestmark = [pytest.mark.slow, pytest.mark.deadline(120)]

LIMIT = 60.0  # seconds; an interpreter and a provider's library take a while on a busy machine

BOAT = """
import os
from trimaran import Context, Server, ToolError

server = Server("boat", version="1")

@server.tool
def depth(place: str) -> str:
    "How deep it is."
    return f"{place}: 12 m (from {os.getpid()})"

@server.tool
def sink() -> str:
    "Sink it."
    return "gone"

@server.tool
def leak() -> str:
    "Fail."
    raise ToolError("a plank is loose")

@server.tool
async def wants_to_know(ctx: Context) -> str:
    "Ask the person."
    return (await ctx.elicit("Really?", {"type": "object", "properties": {}})).action

@server.resource("log://today", name="today")
def today() -> str:
    return "Calm sea."

server.run()
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(params=[AnthropicWire, OpenAIWire], ids=["anthropic", "openai"])
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with request.param() as made:
        yield made


@pytest.fixture
async def claude() -> AsyncIterator[AnthropicWire]:
    async with AnthropicWire() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "boat.py").write_text(BOAT)
    (tmp_path / "mcp.toml").write_text(
        f"[server.boat]\ncommand = {sys.executable!r}\nargs = ['boat.py']\ncwd = {str(tmp_path)!r}\n"
        '[server.boat.permissions]\nallow = ["depth", "leak", "wants_to_know"]\ndeny = [{ pattern = "sink", reason = "Never." }]\n'
    )
    return tmp_path


async def start(wire: Wire, folder: Path, *words: str, **environ: str) -> asyncio.subprocess.Process:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    return await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "trimaran", "ask", "--config", "mcp.toml", "--model", wire.name, *words],
        cwd=folder,
        env={**kept, "HOME": str(folder), **wire.environ, **environ},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ask(wire: Wire, folder: Path, *words: str, stdin: str = "", **environ: str) -> Done:
    child = await start(wire, folder, *words, **environ)
    async with asyncio.timeout(LIMIT):
        out, err = await child.communicate(stdin.encode())
    assert child.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return Done(child.returncode, out.decode(), err.decode())


async def test_a_prompt_is_answered_with_the_tools_that_the_rules_allow(wire: Wire, folder: Path) -> None:
    """R236, R245: the answer on stdout, what happened on stderr."""
    wire.script = [
        Answer(["Let me look."], [("c1", "mcp__boat__depth", '{"place": "Oslo"}')]),
        Answer(["It is ", "12 m deep."]),
    ]
    done = await ask(wire, folder, "-p", "How deep is it?")
    assert (done.code, done.out) == (0, "It is 12 m deep.\n"), done.err
    assert "boat: connected (4 tools)" in done.err
    assert "Let me look." in done.err
    assert '> mcp__boat__depth {"place": "Oslo"}' in " ".join(done.err.split())
    assert "Oslo: 12 m" in done.err
    assert wire.said(wire.requests[0])[-1] == ("user", "How deep is it?")


def declared_names(request: dict[str, Any]) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in request["tools"]]


async def test_a_model_under_a_budget_searches_and_then_has_the_tool(wire: Wire, folder: Path) -> None:
    """The tool that was found is declared from the next request on, behind what was there before."""
    file = folder / "mcp.toml"
    many = (
        "from trimaran import Server\nserver = Server('many', version='1')\n"
        "for n in range(60):\n"
        "    server.add_tool(lambda: 'x', name=f'thing_{n}', description=f'Do the thing number {n}. ' + 'And more words. ' * 40,"
        " input_schema={'type': 'object'})\n"
        "server.run()\n"
    )
    (folder / "many.py").write_text(many)
    file.write_text(
        f"[context]\nbudget = 900\n{file.read_text()}"
        f"[server.many]\ncommand = {sys.executable!r}\nargs = ['many.py']\ncwd = {str(folder)!r}\nlazy = false\n"
        f'[server.boat.tools."*"]\nlazy = true\n'
    )
    wire.script = [
        Answer([], [("c1", "search_tools", '{"query": "how deep is the sea", "limit": 1}')]),
        Answer(
            [], [("c2", "mcp__boat__depth", '{"place": "Oslo"}'), ("c3", "call_tool", '{"name": "mcp__boat__sink"}')]
        ),
        Answer(["12 m."]),
    ]
    done = await ask(wire, folder, "-p", "How deep is it?")
    assert (done.code, done.out) == (0, "12 m.\n"), done.err
    first, second = declared_names(wire.requests[0]), declared_names(wire.requests[1])
    assert "mcp__boat__depth" not in first
    assert second == [*first, "mcp__boat__depth"]
    assert "Oslo: 12 m" in done.err
    assert "Never." in done.err


async def test_a_model_writes_code_over_the_tools(wire: Wire, folder: Path) -> None:
    pytest.importorskip("pydantic_monty")
    code = json.dumps(
        {"code": "for place in ('Oslo', 'Bergen'): print((await boat__depth(place=place)).split(' (')[0])"}
    )
    wire.script = [Answer([], [("c1", "run_code", code)]), Answer(["Both 12 m."])]
    done = await ask(wire, folder, "-p", "How deep is it?", "--code")
    assert (done.code, done.out) == (0, "Both 12 m.\n"), done.err
    assert declared_names(wire.requests[0]) == ["run_code"]
    assert "Oslo: 12 m Bergen: 12 m" in " ".join(done.err.split())


async def test_what_nobody_allowed_is_denied_and_said_and_the_model_goes_on(wire: Wire, folder: Path) -> None:
    """R245: what a person would be asked about, and what a rule forbids."""
    (folder / "mcp.toml").write_text((folder / "mcp.toml").read_text().replace('"depth", ', ""))
    calls: list[Any] = [("c1", "mcp__boat__depth", '{"place": "Oslo"}'), ("c2", "mcp__boat__sink", "{}")]
    wire.script = [Answer([], calls), Answer(["I may not."])]
    done = await ask(wire, folder, "-p", "Go.")
    assert (done.code, done.out) == (0, "I may not.\n")
    assert "denied: mcp__boat__depth needs a person's consent" in " ".join(done.err.split())
    assert "--allow mcp__boat__depth" in " ".join(done.err.split())
    assert "denied: mcp__boat__sink is denied by a rule" in " ".join(done.err.split())
    answers = wire.answers(wire.requests[1])
    assert "nobody is here to ask" in answers[0][1]
    assert "Never." in answers[1][1]


async def test_json_tells_the_calls_and_what_became_of_them(claude: AnthropicWire, folder: Path) -> None:
    claude.script = [
        Answer(
            ["Hm."],
            [
                ("c1", "mcp__boat__depth", '{"place": "Oslo"}'),
                ("c2", "mcp__boat__leak", "{}"),
                ("c3", "mcp__boat__sink", "{}"),
                ("c4", "mcp__boat__nothing", "{}"),
            ],
        ),
        Answer(["Done."], tokens=(20, 7)),
    ]
    done = await ask(claude, folder, "-p", "Go.", "--json", "--quiet")
    assert done.code == 0
    found = done.json
    assert (found["answer"], found["reason"], found["exit_code"], found["error"]) == ("Done.", "end_turn", 0, "")
    outcomes = {call["name"]: call["outcome"] for call in found["calls"]}
    assert outcomes == {
        "mcp__boat__depth": "returned",
        "mcp__boat__leak": "failed",
        "mcp__boat__sink": "denied",
        "mcp__boat__nothing": "denied",
    }
    assert found["calls"][0]["arguments"] == {"place": "Oslo"}
    assert found["calls"][0]["text"].startswith("Oslo: 12 m")
    assert found["tokens"] == {"input": 30, "output": 12}
    assert found["servers"] == [{"name": "boat", "state": "connected", "tools": 4, "reason": ""}]


async def test_the_prompt_comes_from_stdin_and_mentions_are_put_in(claude: AnthropicWire, folder: Path) -> None:
    """R264."""
    claude.script = [Answer(["Calm."])]
    done = await ask(claude, folder, "--system", "Be short.", stdin="What says @boat:today about the sea?\n")
    assert (done.code, done.out) == (0, "Calm.\n")
    assert "Calm sea." in claude.said(claude.requests[0])[-1][1]
    assert claude.requests[0]["system"] == "Be short." or "Be short." in json.dumps(claude.requests[0]["system"])


async def test_a_server_may_ask_nobody(claude: AnthropicWire, folder: Path) -> None:
    """R258, R261: no capability to ask is declared."""
    claude.script = [Answer([], [("c1", "mcp__boat__wants_to_know", "{}")]), Answer(["No."])]
    done = await ask(claude, folder, "-p", "Go.", "--json")
    assert (done.code, done.json["calls"][0]["outcome"]) in ((0, "failed"), (0, "error"))


async def test_a_run_that_does_not_come_to_an_end_says_why(claude: AnthropicWire, folder: Path) -> None:
    again = Answer([], [("c1", "mcp__boat__depth", '{"place": "x"}')])
    claude.script = [again]
    done = await ask(claude, folder, "-p", "Go.", "--max-turns", "1")
    assert (done.code, done.out) == (1, "")
    assert "--max-turns stopped it" in done.err
    claude.script = [Answer(["Half an an"], reason="max_tokens")]
    done = await ask(claude, folder, "-p", "Go.")
    assert (done.code, done.out) == (1, "Half an an\n")
    assert "the answer was cut" in done.err


async def test_a_provider_that_fails_and_one_that_is_slow_have_codes_of_their_own(
    claude: AnthropicWire, folder: Path
) -> None:
    claude.script = [Status(401, "invalid x-api-key", "authentication_error")]
    done = await ask(claude, folder, "-p", "Go.", "--json")
    assert done.code == 4
    assert done.json["error"]
    claude.script = [Break(["It is"], how="close")]
    assert (await ask(claude, folder, "-p", "Go.")).code == 4
    never = asyncio.Event()
    claude.script = [Answer(["Soon"], before_end=never)]
    child = await start(claude, folder, "-p", "Go.", "--timeout", "4")
    async with asyncio.timeout(LIMIT):
        out, err = await child.communicate(b"")
    never.set()
    assert child.returncode == 5, err
    assert b"no answer within 4 s (--timeout)" in err
    assert out in (b"Soon\n", b"")


@pytest.mark.parametrize(
    ("words", "environ", "told"),
    [
        (["-p", "Go."], {"ANTHROPIC_API_KEY": ""}, "set ANTHROPIC_API_KEY"),
        (["-p", "Go.", "--model", "unheard-of"], {}, "whose model is"),
        (["-p", " "], {}, "the prompt is empty"),
        (["-p", "Go.", "--allow", "nonsense"], {}, "can never match"),
        (["-p", "Go.", "--config", "none.toml"], {}, "none.toml"),
    ],
    ids=["key", "model", "prompt", "rule", "config"],
)
async def test_what_cannot_work_is_said_before_anything_is_started(
    claude: AnthropicWire, folder: Path, words: list[str], environ: dict[str, str], told: str
) -> None:
    done = await ask(claude, folder, *words, **environ)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


async def test_a_server_that_cannot_be_started_is_said_and_the_rest_works(claude: AnthropicWire, folder: Path) -> None:
    """R272."""
    with (folder / "mcp.toml").open("a") as file:
        file.write('[server.gone]\ncommand = "no-such-program-anywhere"\n')
    claude.script = [Answer(["Fine."])]
    done = await ask(claude, folder, "-p", "Go.")
    assert (done.code, done.out) == (0, "Fine.\n")
    assert "gone is not used: failed" in " ".join(done.err.split())


async def test_a_run_that_is_ended_leaves_no_child_behind(claude: AnthropicWire, folder: Path) -> None:
    """R275."""
    never = asyncio.Event()
    claude.script = [
        Answer([], [("c1", "mcp__boat__depth", '{"place": "Oslo"}')]),
        Answer(["Soon"], before_end=never),
    ]
    child = await start(claude, folder, "-p", "Go.")
    async with asyncio.timeout(LIMIT):
        await until(lambda: len(claude.requests) >= 2)
        pid = int(claude.answers(claude.requests[1])[0][1].partition("from ")[2].partition(")")[0])
        assert is_alive(pid)
        child.terminate()
        await child.communicate(b"")
    never.set()
    assert child.returncode == 143
    assert not is_alive(pid)
