"""What a host promises, where no other test of a host says it of the whole: each test cites its requirement.

The parts have their own tests beside this one. Here a promise is kept by a host, with everything in between.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.support.until import PATIENCE, soon

import trimaran
from trimaran import Context, Host, Server
from trimaran.errors import TimedOut
from trimaran.host import ConsentBridge, ConsentLost, HostConfig, Machine, Question, Source, UnknownName, read_config

ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
FORMATS = pytest.mark.parametrize("format", ["anthropic", "openai", "openai-responses", "gemini"])
ROOT = Path(__file__).resolve().parents[3]
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def make_server(*tools: str) -> Server:
    server = Server("one", version="1")
    for tool in tools:
        server.add_tool(lambda text="": f"said {text}", name=tool, description=f"Does {tool}.")
    return server


def make_asker() -> Server:
    server = Server("asker", version="1")

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", FORM)
        return f"{answer.action} {(answer.content or {}).get('name')}"

    return server


def configured(text: str) -> HostConfig:
    machine = Machine(home="/home/ada", workspace="/work", environ={})
    return read_config([(Source("mcp.toml", "file"), text)], machine)


# --- the catalog -----------------------------------------------------------------------------------------------------


async def test_a_server_that_fails_is_left_out_of_the_catalog_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """R219: which one and why is in the log, once, and the tools of the others are all there."""
    servers = {"good": make_server("a", "b"), "bad": ["./no-such-program-anywhere"]}
    with caplog.at_level(logging.WARNING, "trimaran.host"):
        async with Host(servers, environ={}, separator=":") as host:
            assert [tool.name for tool in host.tools()] == ["good:a", "good:b"]
    (warning,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert warning.getMessage().startswith("the server 'bad' failed: ")
    assert "no-such-program-anywhere" in warning.getMessage()


@FORMATS
async def test_a_models_catalog_is_the_same_as_a_persons(format: Any) -> None:
    """R220: every tool, once, in the same order, with its own description; and each name finds its tool again."""
    servers = {"b": make_server("say.it", "plain"), "a": make_server("x" * 80, "plain")}
    async with Host(servers, environ={}, separator=":") as host:
        ours = host.tools()
        shown = host.tools(format)
        declared = [one.get("function", one) for one in shown]
        assert [one["description"] for one in declared] == [tool.description for tool in ours]
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one["name"]) for one in declared)
        found = [host.find(one["name"]) for one in declared]
        assert found == [host.find(tool.name) for tool in ours]
        assert len(set(found)) == 4


async def test_a_name_is_split_at_its_first_separator_and_the_rest_is_the_tools() -> None:
    """R221: what the server says then is the caller's to know."""
    server = make_server("repo:search")
    server.add_tool(lambda: "x", name="strict", input_schema={"type": "object", "required": ["q"]})
    async with Host({"git": server}, environ={}, separator=":", allow=["*"]) as host:
        assert (await host.call("git:repo:search", {"text": "it"})).text == "said it"
        assert (await host.call("git:strict", {})).is_error
        for name, reason in (("search", "no_separator"), ("hg:repo:search", "unknown_server")):
            with pytest.raises(UnknownName) as unknown:
                await host.call(name)
            assert unknown.value.reason == reason


# --- models ----------------------------------------------------------------------------------------------------------

SDKS = {"anthropic", "openai", "google", "cohere", "mistralai", "litellm", "langchain", "ollama"}


def test_no_sdk_of_a_model_comes_with_the_package() -> None:
    """R224: neither with it nor with an extra of it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [one for extra in project["optional-dependencies"].values() for one in extra]
    named = {re.split(r"[^A-Za-z0-9_-]", text)[0].lower() for text in [*project["dependencies"], *extras]}
    assert {"msgspec", "textual"} <= named
    assert not {name for name in named if name.split("-")[0] in SDKS}


def test_no_sdk_of_a_model_is_imported_by_the_host() -> None:
    """R224: formats are made by hand. Only `conversation`, for the applications, may drive a model, with an SDK that the user brought."""
    source = Path(trimaran.__file__).parent
    imports = re.compile(rf"^\s*(?:import|from)\s+(?:{'|'.join(sorted(SDKS))})\b", re.MULTILINE)
    assert imports.search("if x:\n    from openai import OpenAI")
    found = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        if imports.search(file.read_text(encoding="utf-8"))
    }
    assert {name for name in found if not name.startswith("apps/conversation")} == set()


# --- the files -------------------------------------------------------------------------------------------------------


async def test_a_host_reads_the_users_file_and_the_projects_and_needs_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R225: what both have is wholly the project's. Disabled, so that nothing is started."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    work = tmp_path / "work"
    user, project = tmp_path / "config" / "trimaran" / "mcp.toml", work / ".trimaran" / "mcp.toml"
    async with Host.load(workspace=work, environ={}) as host:
        assert host.status() == []
    for file in (user, project):
        file.parent.mkdir(parents=True)
    user.write_text(
        '[server.mine]\ncommand = "x"\ndisabled = true\n'
        '[server.both]\ncommand = "x"\nargs = ["users"]\ntimeout = "1s"\ndisabled = true\n'
    )
    async with Host.load(workspace=work, environ={}) as host:
        assert [status.where for status in host.status()] == [f"{user}:4", f"{user}:1"]
    project.write_text('[server.both]\ntransport = "http"\nurl = "https://h.example/mcp"\ndisabled = true\n')
    async with Host.load(workspace=work, environ={}) as host:
        both, mine = host.status()
        assert (both.where, both.transport, both.state) == (f"{project}:1", "http", "disabled")
        assert (mine.where, mine.transport) == (f"{user}:1", "stdio")
        entry = host.config.servers["both"]
        assert (entry.args, entry.timeout) == ((), None)


async def test_an_edit_is_not_seen_before_the_next_host(tmp_path: Path) -> None:
    """R237: a reload makes the connection again, not the configuration."""
    file = tmp_path / "mcp.toml"
    file.write_text('[server.a]\ncommand = "./no-such-program-of-old"\n')
    async with Host.load(file, environ={}) as host:
        file.write_text('[server.a]\ncommand = "./no-such-program-of-late"\n[server.b]\ncommand = "x"\n')
        status = await soon(host.reload("a"))
        assert "of-old" in status.reason
        assert [one.name for one in host.status()] == ["a"]


# --- a person --------------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize(
    "rules",
    [{"ask": ["Elicit(asker)"]}, {"allow": ["Elicit(asker)"]}, {"allow": ["*"]}, {}],
    ids=["ask", "allow", "allow-all", "default"],
)
async def test_a_question_that_is_asked_about_or_allowed_is_shown(era: Any, rules: Any) -> None:
    """R260: no rule answers a form."""
    shown: list[str] = []

    def person(question: Question) -> None:
        shown.append(question.kind)
        if question.kind == "permission":
            question.allow()
        else:
            question.accept({"name": "Ada"})

    async with Host({"asker": make_asker()}, environ={}, on_question=person, options={"era": era}, **rules) as host:
        assert (await soon(host.call("mcp__asker__greet"))).text == "accept Ada"
    assert shown[-1] == "elicit"


@ERAS
@pytest.mark.parametrize("rule", ["Elicit(asker)", "Elicit:asker", "Elicit(ask*)", "Elicit"])
async def test_every_way_to_write_that_a_server_may_not_ask_holds(era: Any, rule: str) -> None:
    """R241, R260."""
    shown: list[Question] = []
    options: dict[str, Any] = {"on_question": shown.append, "options": {"era": era}, "environ": {}}
    async with Host({"asker": make_asker()}, allow=["*"], deny=[rule], **options) as host:
        assert (await soon(host.call("mcp__asker__greet"))).text == "decline None"
    assert shown == []


@ERAS
async def test_a_server_whose_question_nobody_answers_is_declined_in_time(
    era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """R259: five minutes, here a moment; the server hears a no, and the log of it."""
    bridge = ConsentBridge(cap=0.01)
    options: dict[str, Any] = {"bridge": bridge, "options": {"era": era}, "environ": {}, "allow": ["*"]}
    async with bridge.attend(), Host({"asker": make_asker()}, **options) as host:
        assert (await soon(host.call("mcp__asker__greet"))).text == "decline None"
    assert "nobody answered within 0.01 s" in caplog.text


@ERAS
async def test_a_server_whose_question_was_left_behind_gets_an_error(era: Any) -> None:
    """R259: whoever was to answer is gone, so the call ends, and is no yes."""
    bridge = ConsentBridge()
    options: dict[str, Any] = {"bridge": bridge, "options": {"era": era}, "environ": {}, "allow": ["*"]}
    async with Host({"asker": make_asker()}, **options) as host:
        async with bridge.attend() as questions:
            call = asyncio.ensure_future(host.call("mcp__asker__greet"))
            await soon(anext(questions))
        with pytest.raises(ConsentLost, match="the one who answers questions left"):
            await soon(call)


# --- resources -------------------------------------------------------------------------------------------------------


@ERAS
async def test_a_change_of_one_servers_resources_leaves_the_others_known(era: Any) -> None:
    """R262, R263: listed at the first mention, and again only where something changed."""
    asked: dict[str, int] = {"a": 0, "b": 0}

    def library(name: str) -> Server:
        server = Server(name, version="1")

        @server.middleware
        async def note(call: Any, proceed: Any) -> Any:
            asked[name] += call.method == "resources/list"
            return await proceed(call)

        server.add_resource(f"{name}://x", lambda: f"x of {name}", name="x")
        return server

    servers = {name: library(name) for name in asked}
    async with Host(servers, environ={}, options={"era": era}) as host:
        assert asked == {"a": 0, "b": 0}
        await host.expand("@a:x and @b:x")
        assert asked == {"a": 1, "b": 1}
        servers["a"].add_resource("a://y", lambda: "y", name="y")
        async with asyncio.timeout(PATIENCE):
            while "@a:y" not in await host.complete_mention("@a:"):
                await asyncio.sleep(0.001)
        await host.expand("@a:y and @b:x")
        assert asked == {"a": 2, "b": 1}


# --- limits and ends -------------------------------------------------------------------------------------------------


def make_sleeper(ended: asyncio.Event, began: asyncio.Event | None = None) -> Server:
    server = Server("sleeper", version="1")

    @server.tool
    async def sleep() -> None:
        if began is not None:
            began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    return server


@pytest.mark.parametrize(
    ("environ", "table", "said"),
    [
        ({"TRIMARAN_MCP_TOOL_TIMEOUT": "50ms", "MCP_TOOL_TIMEOUT": "9000"}, "", "0.05 s"),
        ({"MCP_TOOL_TIMEOUT": "60"}, "", "0.06 s"),
        ({"TRIMARAN_MCP_TOOL_TIMEOUT": "9s"}, 'timeout = "70ms"', "0.07 s"),
        ({"TRIMARAN_MCP_TOOL_TIMEOUT": "9s"}, 'timeout = "9s"\ntools.sleep.timeout = "80ms"', "0.08 s"),
    ],
    ids=["ours", "theirs", "file", "tool"],
)
async def test_a_call_is_given_up_after_the_time_that_has_the_first_say(
    environ: dict[str, str], table: str, said: str
) -> None:
    """R267, R269: the tool's, the server's, ours, then the variable that others know."""
    host = Host(configured(f'[server.s]\ncommand = "x"\n{table}\n'), environ=environ, allow=["*"])
    give_target(host, "s", make_sleeper(asyncio.Event()))
    async with host:
        with pytest.raises(TimedOut, match=re.escape(said)):
            await soon(host.call("mcp__s__sleep"))


def give_target(host: Host, name: str, server: Server) -> None:
    """Let a configured server be one of this process: all that is configured about it stays."""
    supervised = host._servers[name]  # pyright: ignore[reportPrivateUsage]
    options = host._options  # pyright: ignore[reportPrivateUsage]
    supervised._dial = lambda **more: trimaran.connect(server, **options, **more)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("environ", "table", "said"),
    [
        ({"TRIMARAN_MCP_TIMEOUT": "50ms", "MCP_TIMEOUT": "9000"}, "", "0.05 s"),
        ({"MCP_TIMEOUT": "60"}, "", "0.06 s"),
        ({"TRIMARAN_MCP_TIMEOUT": "9s"}, 'startup_timeout = "70ms"', "0.07 s"),
    ],
    ids=["ours", "theirs", "file"],
)
async def test_a_start_is_waited_for_as_long_as_the_first_that_has_a_say_says(
    environ: dict[str, str], table: str, said: str
) -> None:
    """R267, R269: the host stops waiting, and the server goes on starting."""
    host = Host(configured(f'[server.s]\ncommand = "x"\n{table}\n'), environ=environ)
    give_target(host, "s", make_silent())
    async with asyncio.timeout(PATIENCE), host:
        (status,) = host.status()
        assert (status.state, status.retries, status.reason) == ("starting", False, "")
        waits = host._servers["s"].startup_timeout  # pyright: ignore[reportPrivateUsage]
        assert said == f"{waits:g} s"


@pytest.mark.parametrize(
    ("environ", "table", "said"),
    [
        ({"TRIMARAN_MCP_STARTUP_LIMIT": "50ms"}, "", "0.05 s"),
        ({"TRIMARAN_MCP_STARTUP_LIMIT": "9s"}, 'startup_limit = "70ms"', "0.07 s"),
    ],
    ids=["environment", "file"],
)
async def test_a_start_is_given_up_after_the_limit_that_has_the_first_say(
    environ: dict[str, str], table: str, said: str
) -> None:
    """R269, R272: marked failed, with the limit that was too short."""
    host = Host(configured(f'[server.s]\ncommand = "x"\n{table}\n'), environ=environ)
    give_target(host, "s", make_silent())
    async with asyncio.timeout(PATIENCE), host:
        (status,) = host.status()
        assert (status.state, status.retries) == ("failed", True)
        assert said in status.reason
        assert "startup_limit" in status.reason


def make_silent() -> Server:
    """A server that answers nothing."""
    server = Server("slow", version="1")

    @server.middleware
    async def never(call: Any, proceed: Any) -> Any:
        await asyncio.Event().wait()

    return server


@ERAS
@pytest.mark.parametrize("way", ["given up", "timed out", "closed"])
async def test_whatever_ends_a_call_ends_it_at_the_server(era: Any, way: str) -> None:
    """R274: the person's cancel, the time limit, and the end of the host."""
    began, ended = asyncio.Event(), asyncio.Event()
    servers = {"s": make_sleeper(ended, began)}
    async with Host(servers, environ={}, allow=["*"], options={"era": era}) as host:
        call = asyncio.ensure_future(host.call("mcp__s__sleep", timeout=0.2 if way == "timed out" else None))
        await soon(began.wait())
        if way == "given up":
            call.cancel()
        elif way == "closed":
            await soon(host.close())
        [end] = await soon(asyncio.gather(call, return_exceptions=True))
        assert isinstance(end, (asyncio.CancelledError, trimaran.Error))
        await soon(ended.wait())


async def test_no_arguments_are_an_empty_object() -> None:
    """R276: null and nothing are the same to a server."""
    got: list[Any] = []
    server = make_server("say")

    @server.middleware
    async def note(call: Any, proceed: Any) -> Any:
        if call.method == "tools/call":
            got.append(json.loads(bytes(call.params.arguments)))
        return await proceed(call)

    async with Host({"s": server}, environ={}, allow=["*"]) as host:
        await host.call("mcp__s__say")
        await host.call("mcp__s__say", None)
        await host.call("mcp__s__say", {})
        call = host.from_call({"type": "tool_use", "id": "1", "name": "mcp__s__say", "input": None}, "anthropic")
        await host.call(*call)
    assert got == [{}] * 4
