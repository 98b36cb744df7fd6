"""Asking in the middle of a modern call: input_required, the retry, and what a state is good for (protocol.md 1.3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.support.harness import Channel, P, Reply, Wire, serve

from trimaran import Context, Server
from trimaran.server import input_rounds

FORM = {"elicitation": {}}
URL = {"elicitation": {"form": {}, "url": {}}}
ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Trip(msgspec.Struct):
    city: str
    days: int = 3


done: list[str] = []
"""What the tools have done, for the tests that count."""


def asking(**options: Any) -> Server:
    server = Server("asking", version="1", **options)

    @server.tool
    async def greet(ctx: Context, greeting: str = "Hello") -> str:
        answer = await ctx.elicit("Your name?", NAME)
        return f"{greeting} {answer.content['name']}" if answer.accepted else answer.action

    @server.tool
    async def greet_too(ctx: Context, greeting: str = "Hello") -> str:
        return (await ctx.elicit("Your name?", NAME)).action

    @server.tool
    async def plan(ctx: Context) -> str:
        answer = await ctx.elicit("Where to?", Trip)
        assert isinstance(answer.content, Trip)
        return f"{answer.content.days} days in {answer.content.city}"

    @server.tool
    async def twice(ctx: Context) -> str:
        first = await ctx.elicit("First?", NAME)
        second = await ctx.elicit(f"Second, {first.content['name']}?", NAME)
        return f"{first.content['name']} {second.content['name']}"

    @server.tool
    async def gathered(ctx: Context) -> str:
        answers = await asyncio.gather(ctx.elicit("A?", NAME, key="a"), ctx.elicit("B?", NAME, key="b"), ctx.roots())
        return f"{answers[0].content['name']} {answers[1].content['name']} {answers[2][0].uri}"

    @server.tool
    async def grouped(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(ctx.elicit("A?", NAME))
            two = group.create_task(ctx.sample("B?"))
        return f"{one.result().content['name']} {two.result().text}"

    @server.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit("Sign in", url="https://example.com/login")).action

    @server.tool
    async def sample(ctx: Context) -> str:
        return (await ctx.sample("Write a haiku", max_tokens=50, system="be brief")).text

    @server.tool
    async def sample_with_tools(ctx: Context) -> str:
        return (await ctx.sample("x", tools=[{"name": "t", "inputSchema": {"type": "object"}}])).text

    @server.tool
    async def roots(ctx: Context) -> list[str]:
        return [r.uri for r in await ctx.roots()]

    @server.tool
    async def pay(ctx: Context) -> str:
        order = await ctx.step("order", place_order)
        answer = await ctx.elicit(f"Pay {order}?", NAME)
        return f"{order} {answer.action}"

    @server.tool
    async def fickle(ctx: Context) -> str:
        done.append("fickle")
        return (await ctx.elicit(f"Question {len(done)}?", NAME)).action

    @server.tool
    async def stubborn(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Name?", NAME)).action
        except BaseException:
            return "swallowed"

    @server.tool
    def threaded(ctx: Context) -> str:
        return ctx.wait(ctx.elicit("Name?", NAME)).action

    @server.tool
    async def talkative(ctx: Context) -> str:
        await ctx.progress(1)
        answer = await ctx.elicit("Name?", NAME)
        await ctx.progress(2)
        return answer.action

    @server.tool
    async def cautious(ctx: Context) -> str:
        try:
            await ctx.elicit("Name?", NAME)
        except Exception:
            return "went on alone"
        return "asked"

    @server.prompt
    async def letter(ctx: Context, to: str) -> str:
        answer = await ctx.elicit("Tone?", NAME)
        return f"Write to {to}, {answer.content['name']}"

    @server.resource("secret://vault", cache_ttl=60)
    async def vault(ctx: Context) -> str:
        return f"opened with {(await ctx.elicit('Code?', NAME)).content['name']}"

    @server.resource("secret://{room}")
    async def room(ctx: Context, room: str) -> str:
        return f"{room} {(await ctx.elicit('Code?', NAME)).content['name']}"

    @server.prompt
    def plain(topic: str) -> str:
        return topic

    @server.completion(prompt="plain", argument="topic")
    async def topics(value: str, ctx: Context) -> list[str]:
        return [(await ctx.elicit("x", NAME)).action]

    return server


async def place_order() -> str:
    done.append("order")
    return f"order-{len(done)}"


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["http", "asgi"])
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with serve(request.param, asking()) as wire:
        yield wire


pytestmark = pytest.mark.asyncio(loop_scope="module")


def accept(name: str = "Ada") -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


def required(reply: Reply) -> tuple[dict[str, Any], str]:
    """What a reply asks for, and its state; the shape is checked on the way."""
    assert reply.status == 200
    result = reply.result
    assert result["resultType"] == "input_required"
    assert result["_meta"][P + "serverInfo"]["name"] == "asking"
    assert "ttlMs" not in result
    assert "cacheScope" not in result
    assert "content" not in result
    for asked in result["inputRequests"].values():
        assert set(asked) <= {"method", "params"}  # bare: no jsonrpc, no id
        assert "_meta" not in asked.get("params", {})
    return result["inputRequests"], result["requestState"]


async def retry(
    wire: Wire, name: str, state: str | None, answers: Any, arguments: Any = None, *, id: Any = 2, caps: Any = FORM
) -> Reply:
    more: dict[str, Any] = {"inputResponses": answers}
    if state is not None:
        more["requestState"] = state
    return await wire.call(name, arguments, more=more, id=id, caps=caps)


def text(reply: Reply) -> str:
    result = reply.result
    assert result["resultType"] == "complete", result
    return result["content"][0]["text"]


async def test_a_question_ends_the_round_and_its_answer_the_call(wire: Wire) -> None:
    """protocol.md 1.3: input_required with the bare request, then the same call with a new id, the answer and the state."""
    asked, state = required(await wire.call("greet", caps=FORM))
    ((key, question),) = asked.items()
    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == "Your name?"
    assert question["params"]["requestedSchema"] == NAME
    assert question["params"].get("mode", "form") == "form"
    assert text(await retry(wire, "greet", state, {key: accept()})) == "Hello Ada"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_refuse(wire: Wire, action: str) -> None:
    """protocol.md 1.3: decline and cancel are answers."""
    asked, state = required(await wire.call("greet", caps=FORM))
    assert text(await retry(wire, "greet", state, {next(iter(asked)): {"action": action}})) == action


async def test_questions_one_after_the_other_take_a_round_each(wire: Wire) -> None:
    """protocol.md 1.3, P36: what was answered before travels in the state, not again in inputResponses."""
    first, state = required(await wire.call("twice", caps=FORM))
    second, state = required(await retry(wire, "twice", state, {next(iter(first)): accept("Ada")}))
    assert next(iter(second.values()))["params"]["message"] == "Second, Ada?"
    assert not set(first) & set(second)
    assert text(await retry(wire, "twice", state, {next(iter(second)): accept("Bob")}, id=3)) == "Ada Bob"


async def test_questions_asked_together_go_out_together(wire: Wire) -> None:
    """P36: asyncio.gather makes one round of three questions."""
    asked, state = required(await wire.call("gathered", caps=ALL))
    assert sorted(q["method"] for q in asked.values()) == ["elicitation/create", "elicitation/create", "roots/list"]
    assert {"a", "b"} < set(asked)
    roots = next(k for k, q in asked.items() if q["method"] == "roots/list")
    answers = {"a": accept("Ada"), "b": accept("Bob"), roots: {"roots": [{"uri": "file:///x"}]}}
    assert text(await retry(wire, "gathered", state, answers, caps=ALL)) == "Ada Bob file:///x"


async def test_a_task_group_asks_together_too(wire: Wire) -> None:
    """P36, P5: no exception group escapes; one round of two questions."""
    asked, state = required(await wire.call("grouped", caps=ALL))
    by_method = {q["method"]: k for k, q in asked.items()}
    answers = {
        by_method["elicitation/create"]: accept("Ada"),
        by_method["sampling/createMessage"]: {
            "role": "assistant",
            "model": "m",
            "content": {"type": "text", "text": "said"},
        },
    }
    assert text(await retry(wire, "grouped", state, answers, caps=ALL)) == "Ada said"


async def test_a_missing_answer_is_asked_for_again(wire: Wire) -> None:
    """protocol.md 1.3: missing key -> a new input_required, not an error; what was answered is kept."""
    asked, state = required(await wire.call("gathered", caps=ALL))
    again, state = required(await retry(wire, "gathered", state, {"a": accept("Ada")}, caps=ALL))
    assert set(again) == set(asked) - {"a"}
    roots = next(k for k, q in asked.items() if q["method"] == "roots/list")
    answers = {"b": accept("Bob"), roots: {"roots": [{"uri": "file:///y"}]}}
    assert text(await retry(wire, "gathered", state, answers, caps=ALL, id=3)) == "Ada Bob file:///y"


async def test_a_retry_without_any_answer_is_asked_again(wire: Wire) -> None:
    """protocol.md 1.3: the state alone brings the same questions back."""
    asked, state = required(await wire.call("greet", caps=FORM))
    again, _ = required(await wire.call("greet", caps=FORM, more={"requestState": state}, id=2))
    assert again == asked


async def test_unknown_answers_are_ignored(wire: Wire) -> None:
    """protocol.md 1.3: extra keys do no harm."""
    asked, state = required(await wire.call("greet", caps=FORM))
    answers = {next(iter(asked)): accept(), "nobody-asked": accept("Eve"), "elicit-99": {"action": "cancel"}}
    assert text(await retry(wire, "greet", state, answers)) == "Hello Ada"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "greet", "arguments": {}}),
        ("tools/call", {"name": "gathered", "arguments": {}}),
        ("prompts/get", {"name": "letter", "arguments": {"to": "Bo"}}),
        ("resources/read", {"uri": "secret://vault"}),
        ("resources/read", {"uri": "secret://attic"}),
    ],
)
async def test_answers_to_what_was_never_asked_are_no_answers(wire: Wire, method: str, params: dict[str, Any]) -> None:
    """protocol.md 1.3: unknown answers are ignored and what is missing is asked for. Without a state nothing was asked."""
    answers = {"elicit-1": accept(), "a": accept(), "b": accept(), "roots-1": {"roots": []}}
    asked, state = required(await wire.modern(method, {**params, "inputResponses": answers}, caps=ALL))
    assert asked
    good = {
        key: accept() if one["method"] == "elicitation/create" else {"roots": [{"uri": "file:///y"}]}
        for key, one in asked.items()
    }
    reply = await wire.modern(method, {**params, "inputResponses": good, "requestState": state}, caps=ALL)
    assert reply.result["resultType"] == "complete"


async def test_a_state_is_good_for_no_other_call(wire: Wire) -> None:
    """protocol.md 6.4: bound to method, name and arguments, whatever the keys of the answers."""
    asked, state = required(await wire.call("greet", caps=FORM))
    answers = {key: accept() for key in asked}
    more = {"requestState": state, "inputResponses": answers}
    for method, params in (
        ("tools/call", {"name": "greet_too", "arguments": {}}),
        ("tools/call", {"name": "greet", "arguments": {"greeting": "Hi"}}),
        ("prompts/get", {"name": "letter", "arguments": {"to": "Bo"}}),
        ("resources/read", {"uri": "secret://vault"}),
    ):
        assert (await wire.modern(method, {**params, **more}, caps=FORM)).verdict == (400, -32602, 1)


@pytest.mark.parametrize("answer", [{"roots": []}, {"role": "assistant", "model": "m", "content": []}, {"action": 1}])
async def test_an_answer_of_another_kind_is_an_error(wire: Wire, answer: Any) -> None:
    """protocol.md 1.3: malformed -> -32602; what a form did not get is not taken for a yes."""
    asked, state = required(await wire.call("greet", caps=FORM))
    assert (await retry(wire, "greet", state, {next(iter(asked)): answer})).verdict == (400, -32602, 2)


async def test_an_answer_is_given_once(wire: Wire) -> None:
    """Journal: a key that has its answer keeps it, since the body has already acted on it."""
    first, state = required(await wire.call("twice", caps=FORM))
    key = next(iter(first))
    second, state = required(await retry(wire, "twice", state, {key: accept("Ada")}))
    answers = {key: accept("Mallory"), next(iter(second)): accept("Bob")}
    assert text(await retry(wire, "twice", state, answers, id=3)) == "Ada Bob"


@pytest.mark.parametrize(
    "answer", [None, "yes", 5, [], {"action": "perhaps"}, {}, {"action": "accept", "content": {"name": 5}}]
)
async def test_a_malformed_answer_is_an_error(wire: Wire, answer: Any) -> None:
    """protocol.md 1.3: malformed -> a JSON-RPC error, -32602."""
    asked, state = required(await wire.call("greet", caps=FORM))
    assert (await retry(wire, "greet", state, {next(iter(asked)): answer})).verdict == (400, -32602, 2)


async def test_answers_are_an_object(wire: Wire) -> None:
    """protocol.md 1.3."""
    _, state = required(await wire.call("greet", caps=FORM))
    assert (await retry(wire, "greet", state, [1])).verdict == (400, -32602, 2)


async def test_defaults_of_a_form_are_filled_in(wire: Wire) -> None:
    """protocol.md 1.3: a model becomes a flat form with its defaults; the handler gets the model back."""
    asked, state = required(await wire.call("plan", caps=FORM))
    schema = next(iter(asked.values()))["params"]["requestedSchema"]
    assert schema["properties"]["days"]["default"] == 3
    answer = {"action": "accept", "content": {"city": "Rome"}}
    assert text(await retry(wire, "plan", state, {next(iter(asked)): answer})) == "3 days in Rome"


# --- the state -------------------------------------------------------------------------------------------------------


async def test_a_tampered_state_is_refused(wire: Wire) -> None:
    """protocol.md 6.4: a state is attacker's input; any change is found, at every place in it."""
    asked, state = required(await wire.call("greet", caps=FORM))
    answers = {next(iter(asked)): accept()}
    middle = len(state) // 2
    for bad in (
        state[:-3],
        state + "A",
        "",
        "nonsense",
        state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :],
    ):
        assert (await retry(wire, "greet", bad, answers)).verdict == (400, -32602, 2), bad


async def test_a_state_is_a_string(wire: Wire) -> None:
    """protocol.md 1.3: opaque string."""
    assert (await wire.call("greet", caps=FORM, more={"requestState": 5})).verdict == (400, -32602, 1)


async def test_a_state_expires(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """protocol.md 1.3, Limits.input_ttl: a late retry is refused and says so."""
    asked, state = required(await wire.call("greet", caps=FORM))
    now = time.time() + 15 * 60 + 1
    monkeypatch.setattr(input_rounds.time, "time", lambda: now)
    reply = await retry(wire, "greet", state, {next(iter(asked)): accept()})
    assert reply.verdict == (400, -32602, 2)
    assert "expired" in reply.error["message"]


async def test_a_state_is_bound_to_its_arguments(wire: Wire) -> None:
    """protocol.md 1.3: method and params digest; the order of keys does not count."""
    asked, state = required(await wire.call("greet", {"greeting": "Hi"}, caps=FORM))
    answers = {next(iter(asked)): accept()}
    assert (await retry(wire, "greet", state, answers, {"greeting": "Bye"})).verdict == (400, -32602, 2)
    assert (await retry(wire, "greet", state, answers)).verdict == (400, -32602, 2)
    assert text(await retry(wire, "greet", state, answers, {"greeting": "Hi"})) == "Hi Ada"


async def test_a_state_is_bound_to_its_tool_and_method(wire: Wire) -> None:
    """protocol.md 1.3: a state of one tool is worth nothing to another, nor to another method."""
    asked, state = required(await wire.call("greet", caps=FORM))
    answers = {next(iter(asked)): accept()}
    assert (await retry(wire, "greet_too", state, answers)).verdict == (400, -32602, 2)
    more = {"requestState": state, "inputResponses": answers}
    assert (
        await wire.modern("prompts/get", {"name": "plain", "arguments": {"topic": "x"}, **more}, caps=FORM)
    ).verdict == (400, -32602, 1)
    assert (await wire.modern("resources/read", {"uri": "secret://vault", **more}, caps=FORM)).verdict == (
        400,
        -32602,
        1,
    )


async def test_a_state_is_bound_to_its_server(binding: str) -> None:
    """protocol.md 6.4: sealed with the server's keys; replicas that share a key accept each other's (P9)."""
    async with (
        serve(binding, asking(secret_keys=["k" * 32])) as one,
        serve(binding, asking(secret_keys=["k" * 32])) as two,
    ):
        asked, state = required(await one.call("greet", caps=FORM))
        answers = {next(iter(asked)): accept()}
        assert text(await retry(two, "greet", state, answers)) == "Hello Ada"
        async with serve(binding, asking()) as stranger:
            assert (await retry(stranger, "greet", state, answers)).verdict == (400, -32602, 2)


class Keys:
    """An authenticator as small as can be: the bearer token is the subject."""

    async def authenticate(self, request: Any) -> Any:
        return type("Principal", (), {"subject": request.headers.get("authorization"), "scopes": ()})()


async def test_a_state_is_bound_to_its_principal(binding: str) -> None:
    """protocol.md 1.3: another caller cannot use it."""
    async with serve(binding, asking(), auth=Keys()) as wire:
        alice, bob = {"Authorization": "alice"}, {"Authorization": "bob"}
        asked, state = required(await wire.call("greet", caps=FORM, headers=alice))
        more = {"requestState": state, "inputResponses": {next(iter(asked)): accept()}}
        assert (await wire.call("greet", caps=FORM, more=more, id=2, headers=bob)).verdict == (400, -32602, 2)
        assert text(await wire.call("greet", caps=FORM, more=more, id=2, headers=alice)) == "Hello Ada"


async def test_other_methods_take_no_state(wire: Wire) -> None:
    """protocol.md 1.3: rounds exist on three methods; elsewhere the fields mean nothing and nothing is asked."""
    reply = await wire.modern("tools/list", {"requestState": "junk", "inputResponses": {}})
    assert reply.result["resultType"] == "complete"
    ref = {"ref": {"type": "ref/prompt", "name": "plain"}, "argument": {"name": "topic", "value": ""}}
    assert (await wire.modern("completion/complete", ref, caps=ALL)).error["code"] == -32603


# --- prompts and resources -------------------------------------------------------------------------------------------


async def test_prompts_may_ask(wire: Wire) -> None:
    """protocol.md 1.3: prompts/get."""
    params = {"name": "letter", "arguments": {"to": "Bob"}}
    asked, state = required(await wire.modern("prompts/get", params, caps=FORM))
    more = {"requestState": state, "inputResponses": {next(iter(asked)): accept("warmly")}}
    result = (await wire.modern("prompts/get", {**params, **more}, caps=FORM, id=2)).result
    assert result["resultType"] == "complete"
    assert result["messages"][0]["content"]["text"] == "Write to Bob, warmly"
    other = {"name": "letter", "arguments": {"to": "Eve"}, **more}
    assert (await wire.modern("prompts/get", other, caps=FORM, id=2)).verdict == (400, -32602, 2)


@pytest.mark.parametrize(("uri", "expected"), [("secret://vault", "opened with 42"), ("secret://attic", "attic 42")])
async def test_resources_may_ask(wire: Wire, uri: str, expected: str) -> None:
    """protocol.md 1.3, 1.5: resources/read; no cache hints on input_required, hints again on the result."""
    asked, state = required(await wire.modern("resources/read", {"uri": uri}, caps=FORM))
    more = {"requestState": state, "inputResponses": {next(iter(asked)): accept("42")}}
    result = (await wire.modern("resources/read", {"uri": uri, **more}, caps=FORM, id=2)).result
    assert result["contents"][0]["text"] == expected
    assert "ttlMs" in result
    other = await wire.modern("resources/read", {"uri": "secret://cellar", **more}, caps=FORM, id=2)
    assert other.verdict == (400, -32602, 2)


# --- kinds and capabilities ------------------------------------------------------------------------------------------


async def test_a_page_to_visit(wire: Wire) -> None:
    """protocol.md 1.3: url mode carries mode, message, url and no elicitationId."""
    asked, state = required(await wire.call("visit", caps=URL))
    ((key, question),) = asked.items()
    assert question["params"] == {"mode": "url", "message": "Sign in", "url": "https://example.com/login"}
    assert text(await retry(wire, "visit", state, {key: {"action": "accept"}}, caps=URL)) == "accept"


async def test_sampling(wire: Wire) -> None:
    """protocol.md 1.3: a bare CreateMessageResult comes back."""
    asked, state = required(await wire.call("sample", caps={"sampling": {}}))
    ((key, question),) = asked.items()
    assert question["method"] == "sampling/createMessage"
    assert question["params"]["maxTokens"] == 50
    assert question["params"]["systemPrompt"] == "be brief"
    assert question["params"]["messages"] == [{"role": "user", "content": {"type": "text", "text": "Write a haiku"}}]
    answer = {"role": "assistant", "model": "m", "stopReason": "endTurn", "content": [{"type": "text", "text": "frog"}]}
    assert text(await retry(wire, "sample", state, {key: answer}, caps={"sampling": {}})) == "frog"


async def test_roots(wire: Wire) -> None:
    """protocol.md 1.3: roots are pulled through a round."""
    asked, state = required(await wire.call("roots", caps={"roots": {}}))
    ((key, question),) = asked.items()
    assert question["method"] == "roots/list"
    reply = await retry(
        wire,
        "roots",
        state,
        {key: {"roots": [{"uri": "file:///a"}, {"uri": "file:///b", "name": "b"}]}},
        caps={"roots": {}},
    )
    assert reply.result["structuredContent"] == ["file:///a", "file:///b"]


# tool, declared, required
LACKING: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("greet", {}, {"elicitation": {}}),
    ("greet", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
    ("visit", {"elicitation": {}}, {"elicitation": {"url": {}}}),
    ("visit", {}, {"elicitation": {"url": {}}}),
    ("sample", {"elicitation": {}}, {"sampling": {}}),
    ("sample_with_tools", {"sampling": {}}, {"sampling": {"tools": {}}}),
    ("roots", {}, {"roots": {}}),
]


def contains(whole: Any, part: Any) -> bool:
    return isinstance(whole, dict) and all(k in whole and contains(whole[k], v) for k, v in part.items())


@pytest.mark.parametrize(("tool", "declared", "needed"), LACKING)
async def test_what_the_request_does_not_declare_is_not_asked(
    wire: Wire, tool: str, declared: Any, needed: Any
) -> None:
    """protocol.md 1.3, 1.7: 400 -32021 with requiredCapabilities as an OBJECT; nothing undeclared is ever sent."""
    reply = await wire.call(tool, caps=declared)
    assert reply.verdict == (400, -32021, 1)
    assert contains(reply.error["data"]["requiredCapabilities"], needed)


async def test_capabilities_are_judged_on_every_request(wire: Wire) -> None:
    """protocol.md 1.1: never remembered: the same client, one request later, without the capability."""
    asked, state = required(await wire.call("twice", caps=FORM))
    reply = await retry(wire, "twice", state, {next(iter(asked)): accept()}, caps={})
    assert reply.verdict == (400, -32021, 2)


async def test_a_tool_may_go_on_without_asking(wire: Wire) -> None:
    """R59: the missing capability is an ordinary exception to the handler."""
    assert text(await wire.call("cautious")) == "went on alone"
    required(
        await wire.call("cautious", caps=FORM)
    )  # and the suspension is not one: `except Exception` does not eat it


# --- the body ------------------------------------------------------------------------------------------------------


async def test_a_step_is_taken_once(wire: Wire) -> None:
    """P36: the body runs again, its side effect does not; its result comes from the journal."""
    asked, state = required(await wire.call("pay", caps=FORM))
    assert done == ["order"]
    assert text(await retry(wire, "pay", state, {next(iter(asked)): accept()})) == "order-1 accept"
    assert done == ["order"]


async def test_a_retry_that_lost_its_state_takes_no_step_twice(wire: Wire) -> None:
    """P36: answers without the state they belong to cannot be trusted to have taken the step."""
    asked, _ = required(await wire.call("pay", caps=FORM))
    assert (await retry(wire, "pay", None, {next(iter(asked)): accept()})).verdict == (400, -32602, 2)
    assert done == ["order"]


async def test_a_body_that_asks_something_else_is_told_so(wire: Wire) -> None:
    """Ours (journal): a replay that differs is an error that names the question and the remedy, never a guess."""
    asked, state = required(await wire.call("fickle", caps=FORM))
    reply = await retry(wire, "fickle", state, {next(iter(asked)): accept()})
    assert reply.error["code"] == -32603
    assert next(iter(asked)) in reply.error["message"]
    assert "step" in reply.error["message"]


async def test_a_body_that_eats_the_suspension_is_suspended_all_the_same(wire: Wire) -> None:
    """Ours (rounds): what ends the call is the fact that it asked."""
    asked, state = required(await wire.call("stubborn", caps=FORM))
    assert text(await retry(wire, "stubborn", state, {next(iter(asked)): accept()})) == "accept"


async def test_a_plain_function_may_ask(wire: Wire) -> None:
    """Ours: `ctx.wait` in a thread."""
    asked, state = required(await wire.call("threaded", caps=FORM))
    assert text(await retry(wire, "threaded", state, {next(iter(asked)): accept()})) == "accept"


async def test_input_required_is_the_last_message_of_its_stream(wire: Wire) -> None:
    """protocol.md 3.4: nothing may follow it."""
    reply = await wire.call("talkative", caps=FORM, extra={"progressToken": 1})
    assert reply.is_stream
    assert [m.get("method") for m in reply.messages] == ["notifications/progress", None]
    assert reply.messages[-1]["result"]["resultType"] == "input_required"


async def test_rounds_on_a_channel() -> None:
    """protocol.md 1.3, 3.5: the same on stdio: no server requests, ever."""
    async with Channel(asking()) as channel:
        reply = (await channel.modern("tools/call", {"name": "greet"}, caps=FORM, id=1))["result"]
        assert reply["resultType"] == "input_required"
        more = {"requestState": reply["requestState"], "inputResponses": {k: accept() for k in reply["inputRequests"]}}
        assert (await channel.modern("tools/call", {"name": "greet", **more}, caps=FORM, id=2))["result"]["content"][0][
            "text"
        ] == "Hello Ada"
