"""A host over servers in this process: one catalog, routed calls, rules and a person before every call."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.until import PATIENCE, soon

import trimaran
from trimaran import Context, Host, Server
from trimaran.errors import Closed, ConfigError, LocalProtocolError, ProtocolError, TimedOut
from trimaran.host import (
    AlreadyRegistered,
    ConfigUnusable,
    ConsentBridge,
    ConsentLost,
    HostConfig,
    Machine,
    NotRegistered,
    OutputLimits,
    OutputMissing,
    PermissionDenied,
    Question,
    ServerUnavailable,
    Source,
    UnknownName,
    read_config,
)
from trimaran.types import Tool

ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
MACHINE = Machine(home="/home/ada", workspace="/work", environ={})


def make_calc() -> Server:
    server = Server("calc", version="1")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(name="say.it")
    def say(text: str) -> str:
        return text

    @server.tool
    def fail() -> str:
        raise trimaran.ToolError("out of ink")

    @server.tool
    async def wait(ctx: Context) -> str:
        for done in itertools.count(1):
            await ctx.progress(done)
            await asyncio.sleep(0.01)
        return "never"

    return server


def make_forms() -> Server:
    server = Server("forms", version="1")
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", form)
        return f"{answer.action} {(answer.content or {}).get('name')}"

    @server.tool
    async def sign_in(ctx: Context) -> str:
        answer = await ctx.elicit("Sign in", url="https://id.example/login?x=1")
        return answer.action

    @server.tool
    async def think(ctx: Context) -> str:
        message = await ctx.sample("What is a sail?", max_tokens=10)
        return message.text

    return server


def make_host(servers: Mapping[str, Any] | None = None, **options: Any) -> Host:
    options.setdefault("environ", {})
    return Host(servers if servers is not None else {"calc": make_calc()}, **options)


def configured(text: str) -> HostConfig:
    return read_config([(Source("mcp.toml", "file"), text)], MACHINE)


class Person:
    """Answers by a script, and keeps what was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.questions: list[Question] = []

    def __call__(self, question: Question) -> None:
        self.questions.append(question)
        self.answer(question)


# --- the catalog -----------------------------------------------------------------------------------------------------


@ERAS
async def test_every_servers_tools_are_there_under_names_that_providers_accept(era: str) -> None:
    """R219, R271: the schema is untouched."""
    async with make_host({"calc": make_calc(), "other": make_calc()}, options={"era": era}) as host:
        tools = {tool.name: tool for tool in host.tools()}
        assert {"mcp__calc__add", "mcp__other__add", "mcp__calc__say_it"} <= tools.keys()
        assert len(tools) == 8
        client = host.whereis("calc")
        assert client is not None
        theirs = {tool.name: tool for tool in await client.list_tools_all()}
        assert tools["mcp__calc__add"].input_schema == theirs["add"].input_schema
        assert host.find("mcp__calc__say_it") == ("calc", "say.it")


async def test_all_pages_are_listed() -> None:
    """R219."""
    server = Server("many", version="1", page_size=7)
    for number in range(30):
        server.add_tool(lambda: "x", name=f"tool_{number}")
    async with make_host({"many": server}) as host:
        assert len(host.tools()) == 30
        assert host.status()[0].tools == 30


@pytest.mark.parametrize("format", ["anthropic", "openai", "openai-responses", "gemini"])
async def test_a_models_call_finds_its_way_and_its_result_goes_back(format: Any) -> None:
    """R220, R222, R223, R274."""
    calls = {
        "anthropic": {"type": "tool_use", "id": "c1", "name": "mcp__calc__say_it", "input": {"text": "hi"}},
        "openai": {"id": "c1", "function": {"name": "mcp__calc__say_it", "arguments": '{"text": "hi"}'}},
        "openai-responses": {
            "type": "function_call",
            "call_id": "c1",
            "name": "mcp__calc__say_it",
            "arguments": '{"text": "hi"}',
        },
        "gemini": {"functionCall": {"id": "c1", "name": "mcp__calc__say_it", "args": {"text": "hi"}}},
    }
    async with make_host(allow=["*"], separator=":") as host:
        shapes = json.dumps(host.tools(format))
        name = host._catalog.names.provider("calc", "say.it")  # pyright: ignore[reportPrivateUsage]
        assert f'"{name}"' in shapes
        call = host.from_call(json.loads(json.dumps(calls[format]).replace("mcp__calc__say_it", name)), format)
        assert tuple(call) == ("calc:say.it", {"text": "hi"})
        result = await host.call(*call)
        told = json.dumps(host.to_result(result, call, format))
        assert "hi" in told
        assert "c1" in told
        failed = json.dumps(host.to_result(UnknownName("gone", name="x", reason="unknown_tool"), call, format))
        assert "gone" in failed
        with pytest.raises(ConfigError, match="format"):
            host.from_call({}, cast("Any", "morse"))
        with pytest.raises(ConfigError, match="format"):
            host.to_result(result, call, cast("Any", "morse"))


async def test_a_separator_makes_names_for_people() -> None:
    """R219, R221, C28."""
    async with make_host(separator=":", allow=["*"]) as host:
        assert "calc:say.it" in {tool.name for tool in host.tools()}
        assert (await host.call("calc:say.it", {"text": "hi"})).data == "hi"
        for name, reason in (("calc", "no_separator"), ("docs:add", "unknown_server"), ("calc:sub", "unknown_tool")):
            with pytest.raises(UnknownName) as unknown:
                await host.call(name)
            assert unknown.value.reason == reason


@ERAS
async def test_a_change_of_the_list_arrives_and_names_stay(era: str) -> None:
    """C40: what had a name keeps it, also when another tool would now have a better claim."""
    server = make_calc()
    changed = asyncio.Event()
    async with make_host({"calc": server}, allow=["*"], options={"era": era}, on_change=changed.set) as host:
        assert host.find("mcp__calc__say_it").tool == "say.it"
        changed.clear()
        server.add_tool(lambda: "other", name="say_it")
        server.remove_tool("add")
        async with asyncio.timeout(PATIENCE):
            while "mcp__calc__add" in {tool.name for tool in host.tools()}:
                await changed.wait()
                changed.clear()
        assert host.find("mcp__calc__say_it").tool == "say.it"
        assert len(host.tools()) == 4
        with pytest.raises(UnknownName):
            await host.call("mcp__calc__add", {"a": 1, "b": 2})


# --- calls -----------------------------------------------------------------------------------------------------------


async def test_a_call_is_routed_by_the_tools_own_name() -> None:
    """R221, R271."""
    async with make_host(allow=["*"]) as host:
        assert (await host.call("mcp__calc__add", {"a": 1, "b": 2})).data == 3
        assert (await host.call("mcp__calc__say_it", {"text": "hi"})).text == "hi"
        failed = await host.call("mcp__calc__fail")
        assert (failed.is_error, failed.text) == (True, "out of ink")


@pytest.mark.parametrize("arguments", [[1], "a=1", 5], ids=["list", "text", "number"])
async def test_arguments_are_an_object(arguments: Any) -> None:
    """R276."""
    async with make_host(allow=["*"]) as host:
        with pytest.raises(LocalProtocolError, match="give an object"):
            await host.call("mcp__calc__add", arguments)
        assert (await host.call("mcp__calc__fail", None)).is_error


async def test_a_call_ends_in_time_whatever_progress_says() -> None:
    """R274, R267, C39."""
    async with make_host(allow=["*"]) as host:
        heard: list[Any] = []
        with pytest.raises(TimedOut):
            await soon(host.call("mcp__calc__wait", timeout=0.05, on_progress=lambda *one: heard.append(one)))
        assert heard[0] == (1, None, None)


async def test_the_limits_of_time_come_from_tool_server_and_environment() -> None:
    """R230, R269."""
    text = '[server.calc]\ncommand = "x"\ntimeout = "20s"\n[server.calc.tools.wait]\ntimeout = "50ms"\n'
    host = Host(configured(text), environ={"TRIMARAN_MCP_TIMEOUT": "3s"})
    supervised = host._servers["calc"]  # pyright: ignore[reportPrivateUsage]
    assert (supervised.startup_timeout, supervised.call_timeout) == (3.0, 20.0)
    assert supervised.tool_timeouts == {"wait": 0.05}


async def test_a_call_that_is_given_up_is_cancelled_at_the_server() -> None:
    """R274."""
    server = Server("calc", version="1")
    began, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with make_host({"calc": server}, allow=["*"]) as host:
        call = asyncio.ensure_future(host.call("mcp__calc__wait"))
        await soon(began.wait())
        call.cancel()
        await soon(ended.wait())
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_large_output_is_cut_and_can_be_paged_through() -> None:
    """R268, R270."""
    server = Server("calc", version="1")
    server.add_tool(lambda: "line\n" * 1000, name="long")
    async with make_host({"calc": server}, allow=["*"], limits=OutputLimits(bytes=400, tokens=50)) as host:
        result = await host.call("mcp__calc__long")
        assert "[truncated: 5000>400]" in result.text
        assert "[large output" in result.text
        assert result.data == result.text
        output_id = result.text.partition("kept as output ")[2].partition(":")[0]
        whole, offset = "", 0
        while offset is not None:
            page = host.output(output_id, offset, 700)
            whole, offset = whole + page.text, page.next_offset
        assert whole == "line\n" * 1000
        with pytest.raises(OutputMissing):
            host.output("nobodys")


async def test_the_token_threshold_comes_from_the_environment() -> None:
    """R268, C35: over it there is a warning, and nothing is lost."""
    environ = {"TRIMARAN_MAX_MCP_OUTPUT_TOKENS": "1", "MAX_MCP_OUTPUT_TOKENS": "100000"}
    async with make_host(allow=["*"], environ=environ) as host:
        result = await host.call("mcp__calc__say_it", {"text": "more than one token"})
        assert "[large output: about" in result.text
        assert "more than one token" in result.text


# --- permissions -----------------------------------------------------------------------------------------------------


async def test_a_denied_call_names_the_rule_and_is_not_made() -> None:
    """R239, R240, R244."""
    text = """
    [server.calc]
    command = "x"
    [permissions]
    deny = [{ pattern = "mcp__calc__add(9*)", reason = "Nines are holy." }]
    """
    host = Host(configured(text), environ={}, allow=["*"])
    host._servers.add("calc", make_calc(), host._hooks)  # pyright: ignore[reportPrivateUsage]
    async with host:
        assert (await host.call("mcp__calc__add", {"a": 1, "b": 2})).data == 3
        with pytest.raises(
            PermissionDenied, match=r"global deny mcp__calc__add\(9\*\).*mcp.toml:5.*Nines are holy"
        ) as no:
            await host.call("mcp__calc__add", {"a": 9, "b": 2})
        assert no.value.decision.is_denied
        found = host.explain("mcp__calc__add", {"a": 9, "b": 2})
        assert found.decision.action == "deny"
        assert host.explain("mcp__calc__fail").decision.action == "allow"


async def test_what_would_be_asked_is_denied_while_nobody_is_there() -> None:
    """R245."""
    async with make_host() as host:
        with pytest.raises(PermissionDenied, match="nobody is here to ask.*allow"):
            await host.call("mcp__calc__add", {"a": 1, "b": 2})
    async with make_host(bridge=ConsentBridge()) as host:
        with pytest.raises(PermissionDenied, match="nobody is here to ask"):
            await host.call("mcp__calc__add", {"a": 1, "b": 2})
    async with make_host(auto_allow=True) as host:
        assert (await host.call("mcp__calc__add", {"a": 1, "b": 2})).data == 3


async def test_a_person_allows_once_always_or_not() -> None:
    """R239: session grants end with the session."""
    person = Person(lambda question: question.allow())
    async with make_host(on_question=person) as host:
        arguments = {"a": 1, "b": 2}
        for _ in range(2):
            assert (await host.call("mcp__calc__add", arguments)).data == 3
        assert len(person.questions) == 2
        asked = person.questions[0]
        assert (asked.kind, asked.tool, asked.arguments) == ("permission", "mcp__calc__add", arguments)
        assert asked.decision is not None
        assert isinstance(asked.request, Tool)
        person.answer = lambda question: question.allow("always")
        for _ in range(3):
            await host.call("mcp__calc__add", arguments)
        assert len(person.questions) == 3
        person.answer = lambda question: question.deny()
        with pytest.raises(PermissionDenied, match="refused by the person"):
            await host.call("mcp__calc__say_it", {"text": "x"})
        person.answer = lambda question: question.deny("always")
        for _ in range(2):
            with pytest.raises(PermissionDenied):
                await host.call("mcp__calc__fail")
        assert len(person.questions) == 5
        assert host.explain("mcp__calc__fail").decision.is_denied


async def test_what_a_person_saw_is_what_is_sent() -> None:
    """The arguments are copied before the question, and a tool that changes meanwhile is not called."""
    server = make_calc()
    arguments: dict[str, Any] = {"text": "harmless"}
    bridge = ConsentBridge()
    changed = asyncio.Event()
    async with make_host({"calc": server}, bridge=bridge, on_change=changed.set) as host, bridge.attend() as questions:
        call = asyncio.ensure_future(host.call("mcp__calc__say_it", arguments))
        question = await soon(anext(questions))
        arguments["text"] = "harmful"
        question.allow()
        assert (await soon(call)).data == "harmless"

        call = asyncio.ensure_future(host.call("mcp__calc__say_it", arguments))
        question = await soon(anext(questions))
        changed.clear()
        server.add_tool(lambda text: text, name="say.it", description="Now with teeth.", replace=True)
        await soon(changed.wait())
        question.allow()
        with pytest.raises(LocalProtocolError, match="changed while"):
            await soon(call)


async def test_when_whoever_was_asked_leaves_the_call_fails() -> None:
    """R259."""
    bridge = ConsentBridge()
    async with make_host(bridge=bridge) as host:
        async with bridge.attend() as questions:
            call = asyncio.ensure_future(host.call("mcp__calc__add", {"a": 1, "b": 2}))
            await soon(anext(questions))
        with pytest.raises(ConsentLost):
            await soon(call)


async def test_nobody_answering_is_a_no_even_with_auto_allow() -> None:
    """R259, R245: a person who is slow is not a person who is away."""
    bridge = ConsentBridge(cap=0.01)
    async with make_host(bridge=bridge, auto_allow=True) as host:
        async with bridge.attend():
            with pytest.raises(PermissionDenied, match="nobody answered within"):
                await soon(host.call("mcp__calc__add", {"a": 1, "b": 2}))
        assert (await host.call("mcp__calc__add", {"a": 1, "b": 2})).data == 3


async def test_decisions_are_written_down(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with make_host(audit=file, deny=["mcp__calc__fail"], on_question=lambda question: question.allow()) as host:
        await host.call("mcp__calc__add", {"a": 1, "b": 2})
        with pytest.raises(PermissionDenied):
            await host.call("mcp__calc__fail")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["act"], line["action"], line["by"]) for line in lines] == [
        ("mcp__calc__add", "ask", "default"),
        ("mcp__calc__add", "allow", "person"),
        ("mcp__calc__fail", "deny", "rule"),
    ]


@pytest.mark.parametrize("pattern", ["", "***"], ids=["empty", "no-glob"])
async def test_a_mistake_in_a_servers_rules_fails_that_server_whatever_runs_under_its_name(pattern: str) -> None:
    """R243, R272."""
    text = f'[server.calc]\ncommand = "x"\n[server.calc.permissions]\nallow = ["{pattern}"]\n'
    async with Host(configured(text), environ={}) as host:
        (status,) = host.status()
        assert (status.state, status.retries) == ("failed", False)
        assert "mcp.toml:4" in status.reason
        await host.stop_server("calc")
        with pytest.raises(ServerUnavailable, match="mcp.toml:4"):
            await host.start_server("calc", make_calc())


def test_a_mistake_in_the_global_rules_stops_the_load() -> None:
    """R226, R243."""
    with pytest.raises(ConfigError, match="--deny"):
        make_host(deny=["mcp__calc__add("])
    with pytest.raises(ConfigError, match=r"mcp.toml:2.*permissions.allow"):
        Host(configured('[permissions]\nallow = ["mcp__calc__add("]\n'), environ={})


@pytest.mark.parametrize("action", ["allow", "ask", "deny"])
def test_a_text_is_not_taken_for_a_list_of_rules(action: str) -> None:
    """Its characters would be: and the rule `*` allows everything."""
    with pytest.raises(ConfigError, match=f"{action} must be a list of rules"):
        Host({}, **{action: "mcp__calc__*"})  # pyright: ignore[reportArgumentType]


async def test_rules_without_effect_are_told() -> None:
    """R243."""
    async with make_host(allow=["mcp__calc__ad"]) as host:
        (problem,) = host.problems()
        assert "mcp__calc__ad" in problem


# --- what servers ask ------------------------------------------------------------------------------------------------


@ERAS
async def test_a_form_is_answered_through_the_bridge(era: str) -> None:
    """R257, R260: in the middle of a call, on both eras."""
    person = Person(lambda question: question.accept({"name": "Ada"}))
    options = {"era": era}
    async with make_host({"forms": make_forms()}, allow=["*"], on_question=person, options=options) as host:
        assert (await soon(host.call("mcp__forms__greet"))).data == "accept Ada"
        (question,) = person.questions
        assert (question.kind, question.server, question.message) == ("elicit", "forms", "Your name?")
        person.answer = lambda question: question.decline()
        assert (await soon(host.call("mcp__forms__greet"))).data == "decline None"
        person.answer = lambda question: question.cancel()
        assert (await soon(host.call("mcp__forms__greet"))).data == "cancel None"


@ERAS
async def test_a_page_is_shown_with_its_url_and_needs_a_yes(era: str) -> None:
    person = Person(lambda question: question.accept())
    options = {"era": era}
    async with make_host({"forms": make_forms()}, allow=["*"], on_question=person, options=options) as host:
        assert (await soon(host.call("mcp__forms__sign_in"))).data == "accept"
        (question,) = person.questions
        assert (question.kind, question.url, question.host) == ("url", "https://id.example/login?x=1", "id.example")


@ERAS
async def test_a_server_that_may_not_ask_is_declined_and_nobody_sees_it(era: str) -> None:
    """R241, R260."""
    person = Person(lambda question: question.accept({"name": "Ada"}))
    options = {"era": era}
    rules = {"allow": ["*"], "deny": ["Elicit(forms)"]}
    async with make_host({"forms": make_forms()}, on_question=person, options=options, **rules) as host:
        assert (await soon(host.call("mcp__forms__greet"))).data == "decline None"
        assert person.questions == []
        assert host.explain("Elicit(forms)").decision.is_denied


@ERAS
async def test_with_a_bridge_and_nobody_there_a_server_is_declined_at_once(era: str) -> None:
    """R258."""
    async with make_host({"forms": make_forms()}, allow=["*"], bridge=ConsentBridge(), options={"era": era}) as host:
        assert (await soon(host.call("mcp__forms__greet"))).data == "decline None"


@ERAS
async def test_without_a_bridge_no_server_is_told_that_it_may_ask(era: str) -> None:
    """R261."""
    server = Server("peer", version="1")

    @server.tool
    def declared(ctx: Context) -> list[str]:
        assert ctx.peer is not None
        return sorted(ctx.peer.capabilities)

    options: dict[str, Any] = {"allow": ["*"], "options": {"era": era}}
    async with make_host({"peer": server}, **options) as host:
        assert (await host.call("mcp__peer__declared")).data == []
    async with make_host({"peer": server}, bridge=ConsentBridge(), on_sample=lambda *_: "x", **options) as host:
        assert (await host.call("mcp__peer__declared")).data == ["elicitation", "sampling"]


@ERAS
async def test_a_person_allows_a_server_to_use_our_model(era: str) -> None:
    person = Person(lambda question: question.deny())
    sampled: list[str] = []

    async def sample(server: str, ask: Any) -> str:
        sampled.append(f"{server}: {ask.text}")
        return "cloth"

    servers = {"forms": make_forms()}
    async with make_host(servers, allow=["*"], on_question=person, on_sample=sample, options={"era": era}) as host:
        with pytest.raises(ProtocolError, match="rejected the sampling request"):
            await soon(host.call("mcp__forms__think"))
        assert sampled == []
        person.answer = lambda question: question.allow("always")
        for _ in range(2):
            assert (await soon(host.call("mcp__forms__think"))).data == "cloth"
        assert [question.kind for question in person.questions] == ["sampling", "sampling"]
        assert sampled == ["forms: What is a sail?"] * 2


# --- servers that come and go ----------------------------------------------------------------------------------------


async def test_servers_are_started_and_stopped_by_name() -> None:
    """R216, R217."""
    async with make_host({}, allow=["*"]) as host:
        assert host.tools() == []
        await host.start_server("calc", make_calc())
        assert host.connected() == ["calc"]
        assert host.whereis("calc") is not None
        assert (await host.call("mcp__calc__add", {"a": 1, "b": 2})).data == 3
        with pytest.raises(AlreadyRegistered):
            await host.start_server("calc", make_calc())
        await host.stop_server("calc")
        assert (host.connected(), host.tools(), host.whereis("calc")) == ([], [], None)
        with pytest.raises(NotRegistered):
            await host.stop_server("calc")
        with pytest.raises(UnknownName):
            await host.call("mcp__calc__add")
        await host.start_server("calc", make_calc())
        with pytest.raises(ConfigError, match="neither begins nor ends with a blank"):
            await host.start_server(" calc", make_calc())


async def test_two_starts_of_one_name_have_one_winner() -> None:
    """R217."""
    async with make_host({}) as host:
        ends = await asyncio.gather(*(host.start_server("calc", make_calc()) for _ in range(5)), return_exceptions=True)
        assert sorted(type(one).__name__ for one in ends) == ["AlreadyRegistered"] * 4 + ["NoneType"]
        assert host.connected() == ["calc"]


async def test_a_server_that_cannot_be_started_by_name_is_not_there() -> None:
    async with make_host({}) as host:
        with pytest.raises(ServerUnavailable, match="no-such-program"):
            await host.start_server("calc", ["./no-such-program-anywhere"])
        assert host.status() == []
        await host.start_server("calc", make_calc())


async def test_servers_are_disabled_enabled_and_reloaded() -> None:
    """R273."""
    async with make_host(allow=["*"]) as host:
        status = await host.disable("calc")
        assert (status.state, status.glyph, status.text) == ("disabled", "○", "disabled")
        assert host.tools() == []
        with pytest.raises(ServerUnavailable, match="enable"):
            await host.call("mcp__calc__add", {"a": 1, "b": 2})
        status = await host.enable("calc")
        assert (status.state, status.glyph, status.text) == ("connected", "●", "connected (4 tools)")
        before = host.whereis("calc")
        assert (await host.reload("calc")).state == "connected"
        assert host.whereis("calc") is not before
        assert (await host.call("mcp__calc__add", {"a": 1, "b": 2})).data == 3
        with pytest.raises(NotRegistered):
            await host.reload("docs")
        with pytest.raises(ConfigError, match="not on HTTP"):
            await host.authorize("calc")


async def test_one_bad_server_leaves_the_others_alone() -> None:
    """R272, R226, R218: what is wrong with each is kept."""
    text = """
    [server.typo]
    comand = "x"
    [server.unset]
    command = "${NO_SUCH_VARIABLE}"
    [server.missing]
    command = "./no-such-program-anywhere"
    [server.off]
    command = "x"
    disabled = true
    """
    host = Host(configured(text), environ={})
    host._servers.add("calc", make_calc(), host._hooks)  # pyright: ignore[reportPrivateUsage]
    async with host:
        found = {status.name: status for status in host.status()}
        assert [found[name].state for name in ("calc", "missing", "off", "typo", "unset")] == [
            "connected",
            "failed",
            "disabled",
            "failed",
            "failed",
        ]
        assert "did you mean 'command'?" in found["typo"].reason
        assert found["typo"].where == "mcp.toml:2"
        assert "NO_SUCH_VARIABLE" in found["unset"].reason
        assert "no-such-program" in found["missing"].reason
        assert (found["typo"].retries, found["unset"].retries, found["missing"].retries) == (False, False, True)
        assert found["missing"].glyph == "○"
        assert str(found["missing"]).startswith("○ missing: failed (")
        assert len(host.tools()) == 4
        with pytest.raises(ServerUnavailable, match="'missing' cannot be used now, failed .*tried again"):
            await host.call("mcp__missing__anything")
        with pytest.raises(ServerUnavailable, match=r"fix that, then host.reload\('typo'\)"):
            await host.call("mcp__typo__anything")


async def test_no_mcp_starts_nothing() -> None:
    """R269."""
    async with make_host(environ={"TRIMARAN_NO_MCP": "1"}) as host:
        (status,) = host.status()
        assert (status.state, status.reason) == ("disabled", "TRIMARAN_NO_MCP is set")


async def test_a_host_is_used_while_it_is_open() -> None:
    host = make_host(allow=["*"])
    with pytest.raises(Closed, match="not started"):
        await host.call("mcp__calc__add", {"a": 1, "b": 2})
    async with host:
        await host.start()
    await host.close()
    with pytest.raises(Closed):
        await host.call("mcp__calc__add", {"a": 1, "b": 2})
    with pytest.raises(Closed):
        await host.start()


async def test_closing_ends_whoever_waits_for_a_person() -> None:
    bridge = ConsentBridge()
    host = make_host(bridge=bridge)
    async with bridge.attend() as questions:
        async with host:
            call = asyncio.ensure_future(host.call("mcp__calc__add", {"a": 1, "b": 2}))
            await soon(anext(questions))
        with pytest.raises(ConsentLost, match="closed"):
            await soon(call)


async def test_closing_in_the_middle_of_everything_leaves_nothing() -> None:
    """From several tasks at once, while servers are reloaded, started and called."""
    host = make_host(allow=["*"])
    await host.start()
    work = [
        asyncio.ensure_future(host.reload("calc")),
        asyncio.ensure_future(host.reload("calc")),
        asyncio.ensure_future(host.start_server("other", make_calc())),
        asyncio.ensure_future(host.call("mcp__calc__wait")),
    ]
    await asyncio.sleep(0)
    await soon(asyncio.gather(host.close(), host.close(), host.disable("calc")))
    ends = await soon(asyncio.gather(*work, return_exceptions=True))
    assert all(not isinstance(one, BaseException) or isinstance(one, trimaran.Error) for one in ends), ends
    assert host.connected() == []


async def test_a_host_need_not_wait_for_its_servers() -> None:
    """C41."""
    async with make_host(wait=False, allow=["*"]) as host:
        assert host.status()[0].state == "starting"
        assert host.status()[0].glyph == "◐"
        await soon(host.ready())
        assert host.status()[0].state == "connected"


async def test_files_are_loaded(tmp_path: Path) -> None:
    """R225, R226."""
    file = tmp_path / "mcp.toml"
    file.write_text('[server.calc]\ncommand = "./no-such-program-anywhere"\n')
    async with Host.load(file, environ={}) as host:
        assert host.status()[0].where == f"{file}:1"
    file.write_text('[server.""]\ncommand = "x"\n')
    with pytest.raises(ConfigUnusable, match=r'mcp.toml:1: server.""'):
        Host.load(file)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="not both"):
        Host(bridge=ConsentBridge(), on_question=lambda question: None)
