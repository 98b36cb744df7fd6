from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.support.faults import ask, call, http, modern, modern_headers, modern_http
from tests.support.until import until

from trimaran import Server, connect
from trimaran.apps.gateway.metrics import Metrics
from trimaran.errors import CallError, ConfigError, ProtocolError, ToolError, Unauthorized
from trimaran.host.permissions.subjects import Subject
from trimaran.serve import HttpServer
from trimaran.transports.relayed_request import RelayedRequest

from .conftest import child, gateway_of, remote

pytestmark = pytest.mark.slow

FORMS: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
KEYS = """
[gateway.auth]
provider = "apikey"
[gateway.auth.provider_opts.keys]
ann-key-123 = { subject = "ann", scopes = ["boats:read"], groups = ["crew"] }
bob-key-123 = { subject = "bob" }
[gateway.groups]
dev = ["bob"]
"""


def client_of(gateway: Any, key: str, **options: Any) -> Any:
    return connect(gateway.url, headers={"X-API-Key": key}, **options)


async def test_who_has_no_credentials_is_refused_at_every_endpoint() -> None:
    async with gateway_of(child("boats") + KEYS) as gateway:
        for path in ("/mcp", "/servers/boats/mcp"):
            with pytest.raises(Unauthorized):
                await connect(gateway.url.removesuffix("/mcp") + path).open()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_rules_name_their_callers_and_hide_what_is_denied(era: Any) -> None:
    rules = """
[permissions]
allow = ["mcp__boats__sail to group:crew", "mcp__boats__s* to user:bob", "mcp__boats__prompts_get to scope:boats:*"]
deny = ["mcp__boats__sail(Titanic) to group:crew"]
"""
    async with gateway_of(child("boats") + KEYS + rules) as gateway:
        async with client_of(gateway, "ann-key-123", era=era) as ann:
            assert [tool.name for tool in await ann.list_tools_all()] == ["boats_sail"]
            assert [prompt.name for prompt in await ann.list_prompts_all()] == ["boats_plan"]
            assert (await ann.call_tool("boats_sail", {"boat": "Ida"})).data == "Ida sails"
            refused = await ann.call_tool("boats_sail", {"boat": "Titanic"})
            assert refused.is_error
            assert refused.content[0].text == "you may not use mcp__boats__sail here."
            with pytest.raises(CallError, match="boats_sink"):
                await ann.call_tool("boats_sink", {"boat": "Ida"})
        async with client_of(gateway, "bob-key-123", era=era) as bob:
            assert {tool.name for tool in await bob.list_tools_all()} == {"boats_sail", "boats_sink"}
            assert (await bob.call_tool("boats_sail", {"boat": "Titanic"})).data == "Titanic sails"
            assert await bob.list_prompts_all() == []
            assert await bob.list_resources_all() == []


async def test_each_caller_has_a_limit_of_its_own_for_a_tool() -> None:
    limit = '[[gateway.limit]]\ntools = "mcp__boats__s*"\nrate = "2/hour"\n'
    async with gateway_of(child("boats") + KEYS + limit) as gateway:
        async with client_of(gateway, "ann-key-123") as ann, client_of(gateway, "bob-key-123") as bob:
            for _ in range(2):
                await ann.call_tool("boats_sail", {"boat": "Ida"})
            with pytest.raises(CallError, match="may be called 2/hour") as raised:
                await ann.call_tool("boats_sail", {"boat": "Ida"})
            data: Any = raised.value.data
            assert data["kind"] == "rate_limited"
            assert data["retry_after"] > 60
            assert (await ann.call_tool("boats_sink", {"boat": "Ida"})).is_error
            assert (await bob.call_tool("boats_sail", {"boat": "Ida"})).data == "Ida sails"


async def test_an_answer_that_is_sent_again_is_another_call_for_its_limit() -> None:
    """Each one runs the tool. A caller that is asked needs only one call for as many as it likes, otherwise."""
    limit = '[[gateway.limit]]\ntools = "mcp__boats__captain"\nrate = "2/hour"\n'
    async with gateway_of(child("boats") + KEYS + limit) as gateway:

        async def captain(**more: Any) -> Any:
            message = modern("tools/call", {"name": "boats_captain", "arguments": {}, **more}, **FORMS)
            reply = await ask(gateway.http.port, modern_http(message, **{"X-API-Key": "ann-key-123"}))
            return reply.json

        asked = (await captain())["result"]
        answers = {key: {"action": "accept", "content": {"name": "Ann"}} for key in asked["inputRequests"]}
        replies = [await captain(requestState=asked["requestState"], inputResponses=answers) for _ in range(4)]
        assert ["result" in reply for reply in replies] == [True, True, False, False]
        assert replies[-1]["error"]["data"]["kind"] == "rate_limited"


async def test_a_server_gets_the_arguments_that_were_judged() -> None:
    """Servers differ in which of two members of one name they read. Where a rule is about it, they get one."""
    seen: list[bytes] = []

    class Exact:
        def list_tools(self, cursor: Any, ctx: Any) -> list[dict[str, Any]]:
            return [{"name": "sail", "inputSchema": {"type": "object"}}]

        def call_tool(self, name: str, arguments: Any, ctx: Any) -> str:
            seen.append(bytes(ctx.call.params.arguments))
            return name

    rules = '[permissions]\ndeny = ["mcp__exact__sail(boat=Titanic)"]\n'
    message = json.dumps(call("exact_sail", {"boat": "Titanic", "x": "Ida"})).replace('"x"', '"boat"').encode()
    async with HttpServer(Server("exact", version="1", callbacks=Exact()), port=0) as target:
        async with gateway_of(remote("exact", target.url) + rules) as gateway:
            reply = await ask(gateway.http.port, http(message, modern_headers(call("exact_sail"))))
    assert (reply.status, seen) == (200, [b'{"boat":"Ida"}'])


async def test_the_audit_log_has_a_line_for_every_decision_and_every_call(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    text = f'[gateway]\naudit = "{audit}"\n' + child("boats") + KEYS + '[permissions]\ndeny = ["mcp__boats__sink"]\n'
    async with gateway_of(text) as gateway, client_of(gateway, "ann-key-123") as ann:
        await ann.call_tool("boats_sail", {"boat": "the secret boat"})
        with pytest.raises(CallError):
            await ann.call_tool("boats_sink", {"boat": "Ida"})
        await ann.get_prompt("boats_plan", {"harbour": "Kiel"})
    assert "the secret boat" not in audit.read_text()
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    seen = [(line["event"], line["act"], line["caller"], line.get("action") or line["status"]) for line in lines]
    assert seen == [
        ("decision", "mcp__boats__sail", "ann", "allow"),
        ("call", "mcp__boats__sail", "ann", "ok"),
        ("decision", "mcp__boats__sink", "ann", "deny"),
        ("call", "mcp__boats__sink", "ann", "denied"),
        ("decision", "mcp__boats__prompts_get", "ann", "allow"),
        ("call", "mcp__boats__prompts_get", "ann", "ok"),
    ]
    assert lines[0]["arguments_digest"]
    assert lines[1]["seconds"] > 0


async def test_a_result_over_the_limit_is_cut_and_says_so() -> None:
    text = child("boats") + 'output_limit = "2KB"\n'
    async with gateway_of(text) as gateway, connect(gateway.url) as client:
        result = await client.call_tool("boats_flood", {"size": 5000})
        assert len(result.content[0].text) < 2100  # pyright: ignore[reportAttributeAccessIssue]
        assert "Ask for less at a time." in result.content[-1].text  # pyright: ignore[reportAttributeAccessIssue]
        assert (await client.call_tool("boats_flood", {"size": 10})).data == "x" * 10


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize(
    "token", ["sesame-open-0123456789", 'sesame "open" \\ \u00e9 0123456789'], ids=["plain", "escaped"]
)
async def test_a_secret_that_a_server_was_given_does_not_come_back(
    token: str, era: Literal["modern", "legacy"], tmp_path: Path
) -> None:
    audit = tmp_path / "audit.jsonl"
    options = f'[gateway]\naudit = "{audit}"\naudit_arguments = "full"\n'
    text = options + child("boats", "boats.py") + 'env = { API_TOKEN = "${TOKEN}" }\n'
    async with gateway_of(text, variables={"TOKEN": token}) as gateway, connect(gateway.url, era=era) as client:
        assert (await client.call_tool("boats_sail", {"boat": token})).data == "*** sails"
        assert (await client.call_tool("boats_sink", {"boat": token})).text == "*** does not sink"
        prompt = await client.get_prompt("boats_plan", {"harbour": token})
        assert token not in str(prompt.messages) and "***" in str(prompt.messages)
        with pytest.raises(CallError, match="aground at ") as caught:
            await client.call_tool("boats_ground", {"place": token})
        assert (caught.value.message, caught.value.data) == ("aground at ***", {"place": "***"})
    assert json.dumps(token)[1:-1] not in audit.read_text()


async def test_a_secret_does_not_come_back_in_another_spelling_either() -> None:
    text = child("boats", "boats.py") + 'env = { API_TOKEN = "${TOKEN}" }\n'
    token = 'ses/ame"open\u00fc-0123456789'
    async with gateway_of(text, variables={"TOKEN": token}) as gateway, connect(gateway.url) as client:
        for spelling in (token, json.dumps({"a": token}), json.dumps(token).replace("/", "\\/")):
            result = await client.call_tool("boats_sail", {"boat": spelling})
            assert "0123456789" not in str(result.data)
            assert "***" in str(result.data)


async def test_words_of_a_server_become_no_time_series() -> None:
    class Chatty:
        def list_tools(self, cursor: Any, ctx: Any) -> list[dict[str, Any]]:
            return [{"name": "fail", "inputSchema": {"type": "object"}}]

        def call_tool(self, name: str, arguments: Any, ctx: Any) -> Any:
            number = arguments["number"]
            raise ProtocolError(5_000_000 + number, "no", {"kind": f"made up {number}" * 1000}, status=200)

    async with HttpServer(Server("chatty", version="1", callbacks=Chatty()), port=0) as target:
        async with gateway_of(remote("chatty", target.url)) as gateway, connect(gateway.url) as client:
            for number in range(3):
                with pytest.raises(CallError):
                    await client.call_tool("chatty_fail", {"number": number})
            assert gateway.metrics is not None
            figures = gateway.metrics.render().decode()
            assert 'trimaran_gateway_errors_total{kind="other",server="chatty"} 3.0' in figures
            assert len(figures) < 10_000


def test_a_server_that_renames_its_tools_fills_a_bounded_table() -> None:
    metrics = Metrics(list)
    for number in range(21_000):
        metrics.count("one", f"tool {number}", "ok", "", 0.001)
    assert 'trimaran_gateway_calls_total{server="one",status="ok",tool="other"} 1000.0' in metrics.render().decode()


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("path", ["/mcp", "/servers/boats/mcp"])
async def test_a_call_of_what_the_caller_must_not_know_of_is_noted_and_told_only_with_the_rules_reason(
    tmp_path: Path, era: Any, path: str
) -> None:
    """Such a call left no trace, and the reason was told to nobody."""
    audit = tmp_path / "audit.jsonl"
    rules = """
[permissions]
deny = ["mcp__boats__sink", { pattern = "mcp__boats__die", reason = "Ask ops." }, "mcp__boats__prompts_get"]
"""
    prefix = "boats_" if path == "/mcp" else ""
    async with gateway_of(f'[gateway]\naudit = "{audit}"\n' + child("boats") + KEYS + rules) as gateway:
        url = gateway.url.removesuffix("/mcp") + path
        async with connect(url, headers={"X-API-Key": "ann-key-123"}, era=era) as ann:
            with pytest.raises(CallError, match="unknown tool"):
                await ann.call_tool(f"{prefix}sink", {"boat": "the secret boat"})
            with pytest.raises(CallError, match=r"you may not use mcp__boats__die here. Ask ops.") as told:
                await ann.call_tool(f"{prefix}die")
            with pytest.raises(CallError, match="unknown prompt"):
                await ann.get_prompt(f"{prefix}plan")
            assert told.value.data == {"kind": "denied"}
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["event"], line["act"], line["caller"]) for line in lines] == [
        (event, act, "ann")
        for act in ("mcp__boats__sink", "mcp__boats__die", "mcp__boats__prompts_get")
        for event in ("decision", "call")
    ]
    assert {line.get("status", line.get("action")) for line in lines} == {"denied", "deny"}
    assert "the secret boat" not in audit.read_text()


async def test_a_rule_that_can_match_nothing_is_reported_at_load() -> None:
    rules = '[permissions]\nallow = ["mcp__boats__sail", "mcp__boats__sial to group:crew", "mcp__ships__*"]\n'
    async with gateway_of(child("boats") + rules) as gateway:
        problems = "\n".join(gateway.report_rules())
        assert "Did you mean mcp__boats__sail?" in problems
        assert "mcp__ships__*" in problems
        assert "matches no tool there is" in problems


async def test_a_limit_that_can_match_nothing_is_reported_at_load() -> None:
    """A misspelt limit was no limit, without a word."""
    limits = "".join(
        f'[[gateway.limit]]\ntools = "{tools}"\nrate = "9/hour"\n' for tools in ("mcp__boats__*", "mcp__baots__*")
    )
    async with gateway_of(child("boats") + limits) as gateway:
        (problem,) = gateway.report_rules()
        assert problem.startswith("gateway.limit[1]: the rule matches no tool there is")


async def test_a_member_of_a_group_that_is_written_like_a_rule_is_reported_at_load() -> None:
    """Rules for the group matched nobody, without a word."""
    groups = '[gateway.groups]\ndev = ["user:ann", "bob"]\n'
    async with gateway_of(child("boats") + groups) as gateway:
        (problem,) = gateway.report_rules()
        assert problem.startswith("gateway.groups.dev: 'user:ann' is the subject of nobody")


async def test_a_caller_that_cannot_be_read_stops_the_load() -> None:
    rules = '[permissions]\nallow = ["mcp__boats__sail to group:"]\n'
    with pytest.raises(ConfigError, match="'group:' is not a caller: write group:NAME"):
        async with gateway_of(rules):
            pass


async def test_a_server_that_renames_its_tools_over_and_over_leaves_nothing_of_the_old_ones() -> None:
    chandler = Server("chandler")

    async def sell() -> str:
        return "sold"

    def rename(number: int) -> None:
        for name in [tool.name for tool in chandler.list_tools()]:
            chandler.tools.remove(name)
        for place in range(10):
            chandler.tool(name=f"sell_{number}_{place}")(sell)

    rename(0)
    async with (
        HttpServer(chandler, port=0) as http,
        gateway_of(remote("chandler", f"http://127.0.0.1:{http.port}/mcp")) as gateway,
        connect(gateway.url) as client,
    ):

        def names() -> set[str]:
            return {tool.name for tool in gateway.server.list_tools()}

        for number in range(10):
            rename(number)
            chandler.notify.tools_changed()
            await until(lambda number=number: f"chandler_sell_{number}_9" in names())
        known = [thing.name for thing in gc.get_objects() if isinstance(thing, Subject) and "__sell_" in thing.name]
        assert sorted(known) == [f"mcp__chandler__sell_9_{place}" for place in range(10)]
        assert (await client.call_tool("chandler_sell_9_3", {})).data == "sold"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_calls_on_shortcuts_are_counted_and_shown_as_all_others_are(
    era: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[bytes] = []
    receive = RelayedRequest.receive

    def note(self: RelayedRequest, result: bytes) -> None:
        answered.append(result)
        receive(self, result)

    monkeypatch.setattr(RelayedRequest, "receive", note)
    target = Server("boats", version="1")

    @target.tool
    async def sail(boat: str) -> str:
        if boat == "Titanic":
            raise ToolError("sunk")
        return f"{boat} sails"

    async with HttpServer(target, port=0) as place, gateway_of(remote("boats", place.url)) as gateway:
        control = gateway.served["boats"].control
        async with connect(gateway.url, era=era) as client:
            for boat in ("Ida", "Ida", "Ada", "Ada", "Titanic", "Ida"):
                await client.call_tool("boats_sail", {"boat": boat})
        assert answered
        assert control.active == 0
        statuses = [call.status for call in control.controls.recent]
        assert (statuses.count("ok"), statuses.count("tool_error")) == (5, 1)
        assert control.controls.metrics is not None
        counts = {key[2]: series.count for key, series in control.controls.metrics.calls.items()}
        assert counts == {"ok": 5, "tool_error": 1}


async def test_secrets_and_limits_of_results_hold_on_shortcuts() -> None:
    target = Server("boats", version="1")

    @target.tool
    async def say(text: str) -> str:
        return text

    more = 'output_limit = 200\n[server.boats.headers]\nX-Key = "hush-hush-hush"\n'
    async with HttpServer(target, port=0) as place, gateway_of(remote("boats", place.url) + more) as gateway:
        async with connect(gateway.url) as client:
            for _ in range(3):
                await client.call_tool("boats_say", {"text": "ahoy"})
            assert "hush" not in (await client.call_tool("boats_say", {"text": "hush-hush-hush"})).text
            longer = await client.call_tool("boats_say", {"text": "x" * 1000})
            assert len(longer.text) < 900
        assert gateway.served["boats"].control.active == 0
