"""Asking on the modern era: the call ends, comes back with answers, and its body meets its journal (protocol.md 1.3, 2.8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.memory_peer import ALL, Peer, texts
from tests.support.until import PATIENCE, soon

from trimaran import Context, Server

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def named(name: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


def serving(fn: Any, **options: Any) -> Server:
    server = Server("rounds", version="1", **options)
    server.add_tool(fn, name="t")
    return server


async def play(peer: Peer, answers: dict[str, Any], *, most: int = 10, arguments: Any = None) -> tuple[Any, list[Any]]:
    """Call the tool as a client would, answering what it asks, until it is done; and every round's questions."""
    rounds: list[Any] = []
    more: dict[str, Any] = {}
    for _ in range(most):
        result = await peer.call("t", arguments, more=more, caps=ALL)
        if result.get("resultType") != "input_required":
            return result, rounds
        rounds.append(result["inputRequests"])
        more = {
            "requestState": result["requestState"],
            "inputResponses": {k: answers[k] for k in result["inputRequests"] if k in answers},
        }
    raise AssertionError(f"more than {most} rounds: {rounds}")


async def test_a_question_ends_the_call_with_what_it_asks_and_a_state() -> None:
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Who?", NAME)).content["name"]

    async with Peer(serving(ask)) as peer:
        result = await peer.call("t", caps={"elicitation": {}})
        assert result["resultType"] == "input_required"
        assert result["inputRequests"] == {
            "elicit-1": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": NAME}}
        }
        assert isinstance(result["requestState"], str)
        assert "content" not in result
        assert "ttlMs" not in result
        found, _ = await play(peer, {"elicit-1": named("Ada")})
    assert texts(found) == ["Ada"]


async def test_only_a_question_that_says_so_takes_an_answer_that_came_unasked() -> None:
    async def ask(ctx: Context) -> str:
        name = (await ctx.elicit("Who?", NAME, key="who", early=True)).content["name"]
        town = (await ctx.elicit("Where?", NAME, key="where")).content["name"]
        return f"{name} in {town}"

    async with Peer(serving(ask)) as peer:
        unasked = {"inputResponses": {"who": named("Ada"), "where": named("Paris"), "other": named("x")}}
        first = await peer.call("t", more=unasked, caps=ALL)
        assert list(first["inputRequests"]) == ["where"]
        answered = {"requestState": first["requestState"], "inputResponses": {"where": named("Rome")}}
        assert texts(await peer.call("t", more=answered, caps=ALL)) == ["Ada in Rome"]


async def test_an_early_answer_needs_the_key_of_its_question(caplog: pytest.LogCaptureFixture) -> None:
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Who?", NAME, early=True)).content["name"]

    async with Peer(serving(ask)) as peer:
        assert (await peer.call("t", caps=ALL))["isError"]
    assert "early=True needs key=" in caplog.text


async def test_one_after_the_other_each_question_is_one_round() -> None:
    async def ask(ctx: Context) -> str:
        first = await ctx.elicit("First?", NAME)
        second = await ctx.elicit(f"After {first.content['name']}?", NAME)
        third = await ctx.sample("Third?", key="third")
        return f"{first.content['name']} {second.content['name']} {third.text}"

    said = {"role": "assistant", "content": {"type": "text", "text": "C"}, "model": "m"}
    async with Peer(serving(ask)) as peer:
        found, rounds = await play(peer, {"elicit-1": named("A"), "elicit-2": named("B"), "third": said})
    assert texts(found) == ["A B C"]
    assert [list(r) for r in rounds] == [["elicit-1"], ["elicit-2"], ["third"]]
    assert rounds[1]["elicit-2"]["params"]["message"] == "After A?"


@pytest.mark.parametrize("how", ["gather", "group", "tasks"])
async def test_questions_asked_together_are_one_round(how: str) -> None:
    async def ask(ctx: Context) -> str:
        asks = [ctx.elicit("A?", NAME, key="a"), ctx.elicit("B?", NAME, key="b"), ctx.elicit("C?", NAME, key="c")]
        if how == "gather":
            found = await asyncio.gather(*asks)
        elif how == "tasks":
            tasks = [asyncio.ensure_future(a) for a in asks]
            found = [await t for t in tasks]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(a) for a in asks]
            found = [t.result() for t in tasks]
        return " ".join(f.content["name"] for f in found)

    async with Peer(serving(ask)) as peer:
        found, rounds = await play(peer, {"a": named("A"), "b": named("B"), "c": named("C")})
    assert texts(found) == ["A B C"]
    assert [sorted(r) for r in rounds] == [["a", "b", "c"]]


async def test_a_missing_answer_is_asked_for_again() -> None:
    """protocol.md 1.3: re-ask, not an error."""

    async def ask(ctx: Context) -> str:
        a, b = await asyncio.gather(ctx.elicit("A?", NAME, key="a"), ctx.elicit("B?", NAME, key="b"))
        return f"{a.content['name']} {b.content['name']}"

    async with Peer(serving(ask)) as peer:
        first = await peer.call("t", caps=ALL)
        more = {"requestState": first["requestState"], "inputResponses": {"a": named("A"), "unknown": named("Z")}}
        second = await peer.call("t", caps=ALL, more=more)
        assert list(second["inputRequests"]) == ["b"]
        more = {"requestState": second["requestState"], "inputResponses": {"b": named("B"), "a": named("other")}}
        assert texts(await peer.call("t", caps=ALL, more=more)) == ["A B"], "an answer is given once"


async def test_a_step_runs_once_however_often_the_body_is_replayed() -> None:
    """P36."""
    ran: list[str] = []

    async def order(name: str) -> str:
        ran.append(name)
        return f"{name}-{len(ran)}"

    async def buy(ctx: Context) -> str:
        first = await ctx.step("order", order, "x")
        again = await ctx.step("order", order, "y")
        await ctx.elicit("Sure?", NAME)
        await ctx.elicit("Really?", NAME)
        last = await ctx.step("ship", order, "z")
        return f"{first} {again} {last}"

    async with Peer(serving(buy)) as peer:
        found, rounds = await play(peer, {"elicit-1": named(""), "elicit-2": named("")})
    assert len(rounds) == 2
    assert ran == ["x", "y", "z"]
    assert texts(found) == ["x-1 y-2 z-3"]


async def test_a_step_gives_the_same_the_first_time_as_on_a_replay() -> None:
    """Or the body could take another way when it is run again."""
    seen: list[Any] = []

    async def buy(ctx: Context) -> str:
        seen.append(await ctx.step("order", lambda: {"pair": (1, 2), 3: "x"}))
        return (await ctx.elicit("Sure?", NAME)).action

    async with Peer(serving(buy)) as peer:
        await play(peer, {"elicit-1": named("")})
    first, replayed = seen
    assert first == replayed


async def test_a_step_that_cannot_be_kept_is_the_authors_mistake(caplog: pytest.LogCaptureFixture) -> None:
    async def bad(ctx: Context) -> str:
        await ctx.step("make", lambda: "x" * 100_000)
        return (await ctx.elicit("?", NAME)).action

    async with Peer(serving(bad)) as peer:
        with caplog.at_level("ERROR", "trimaran"):
            message = await peer.modern("tools/call", {"name": "t"}, caps=ALL)
    assert message["error"]["code"] == -32603
    assert "'make'" in message["error"]["message"]


# --- bodies that do not let the suspension pass ----------------------------------------------------------------------


async def test_a_body_that_catches_everything_changes_nothing() -> None:
    async def stubborn(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Name?", NAME)).action
        except BaseException:
            return "swallowed"

    async with Peer(serving(stubborn)) as peer:
        found, rounds = await play(peer, {"elicit-1": named("")})
    assert (texts(found), len(rounds)) == (["accept"], 1)


async def test_a_body_that_catches_exceptions_does_not_see_it() -> None:
    async def careful(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Name?", NAME)).action
        except Exception:
            return "failed"

    async with Peer(serving(careful)) as peer:
        found, _ = await play(peer, {"elicit-1": named("")})
    assert texts(found) == ["accept"]


async def test_a_body_that_catches_everything_and_fails_otherwise_still_asks() -> None:
    async def confused(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Name?", NAME)).action
        except BaseException:
            raise ValueError("confused") from None

    async with Peer(serving(confused)) as peer:
        found, _ = await play(peer, {"elicit-1": named("")})
    assert texts(found) == ["accept"]


@pytest.mark.parametrize("how", ["except", "finally", "gather"])
async def test_a_body_that_asks_again_after_it_was_suspended_does_not_hang(how: str) -> None:
    """The round is over: whatever else the body asks waits for the next one, and the call ends now."""

    async def asks_on(ctx: Context) -> str:
        if how == "gather":
            first: Any = (await asyncio.gather(ctx.elicit("A?", NAME), return_exceptions=True))[0]
        elif how == "except":
            try:
                first = await ctx.elicit("A?", NAME)
            except BaseException as error:
                first = error
        else:
            try:
                first = await ctx.elicit("A?", NAME)
            finally:
                await ctx.elicit("B?", NAME)
            return "both"
        second = await ctx.elicit("B?", NAME)
        return f"{first.action} {second.action}"

    async with Peer(serving(asks_on)) as peer:
        found, _ = await soon(play(peer, {"elicit-1": named(""), "elicit-2": named("")}))
    assert texts(found) in (["accept accept"], ["both"])


async def test_a_branch_that_asks_late_is_not_left_waiting_for_ever() -> None:
    """Of two branches one asks at once, the other after some work: the call ends, and so does every task of it."""
    late: list[asyncio.Task[Any]] = []
    gate = asyncio.Event()

    async def ask(ctx: Context) -> str:
        async def slow() -> Any:
            await gate.wait()
            return await ctx.elicit("B?", NAME, key="b")

        late.append(asyncio.ensure_future(slow()))
        answers = await asyncio.gather(ctx.elicit("A?", NAME, key="a"), late[-1])
        return " ".join(a.content["name"] for a in answers)

    async with Peer(serving(ask)) as peer:
        first = await peer.call("t", caps=ALL)
        assert list(first["inputRequests"]) == ["a"]
        gate.set()
        done, waiting = await asyncio.wait(late, timeout=PATIENCE)
        for task in waiting:
            task.cancel()
        assert not waiting, "the branch waits for an answer that cannot come"
        for task in done:
            if not task.cancelled():
                task.exception()


async def test_a_step_at_work_is_kept_before_the_round_ends() -> None:
    """P36: or a side effect that was under way would be done again."""
    ran: list[str] = []
    gate = asyncio.Event()

    async def charge() -> str:
        ran.append("x")
        asyncio.get_running_loop().call_later(0.01, gate.set)
        await gate.wait()
        return "charged"

    async def buy(ctx: Context) -> str:
        answer, step = await asyncio.gather(ctx.elicit("?", NAME), ctx.step("charge", charge))
        return f"{answer.action} {step}"

    async with Peer(serving(buy)) as peer:
        found, rounds = await play(peer, {"elicit-1": named("")})
    assert (texts(found), len(rounds), ran) == (["accept charged"], 1, ["x"])


async def test_a_step_begun_after_the_round_is_over_does_not_run() -> None:
    ran: list[str] = []

    async def buy(ctx: Context) -> str:
        try:
            await ctx.elicit("?", NAME)
        except BaseException:
            await ctx.step("charge", lambda: ran.append("too early"))
        return "done"

    async with Peer(serving(buy)) as peer:
        found, _ = await play(peer, {"elicit-1": named("")})
    assert (texts(found), ran) == (["done"], [])


async def test_a_question_inside_a_step_does_not_hang() -> None:
    """Asked on the next round or refused with a reason, but never a wait that cannot end."""

    async def confirm(ctx: Context) -> str:
        return (await ctx.elicit("?", NAME)).action

    async def buy(ctx: Context) -> str:
        return await ctx.step("confirm", confirm, ctx)

    async with Peer(serving(buy)) as peer:
        found, _ = await soon(play(peer, {"elicit-1": named("")}))
    assert "error" in found or texts(found) == ["accept"]


async def test_a_state_is_good_for_its_own_caller_only() -> None:
    """protocol.md 1.3: bound to the principal."""

    class Caller:
        def __init__(self, subject: str) -> None:
            self.issuer, self.subject = "i", subject

    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("?", NAME)).action

    async with Peer(serving(ask)) as peer:
        peer._channel._duplex.principal = Caller("ada")
        state = (await peer.call("t", caps=ALL))["requestState"]
        more = {"requestState": state, "inputResponses": {"elicit-1": named("")}}
        peer._channel._duplex.principal = Caller("eve")
        assert (await peer.call("t", caps=ALL, more=more))["error"]["code"] == -32602
        peer._channel._duplex.principal = Caller("ada")
        assert texts(await peer.call("t", caps=ALL, more=more)) == ["accept"]


# --- what is refused -------------------------------------------------------------------------------------------------


async def test_a_body_that_asks_something_else_on_replay_is_told_so() -> None:
    asked: list[str] = []

    async def fickle(ctx: Context) -> str:
        asked.append("x")
        return (await ctx.elicit(f"Question {len(asked)}?", NAME)).action

    async with Peer(serving(fickle)) as peer:
        first = await peer.call("t", caps=ALL)
        more = {"requestState": first["requestState"], "inputResponses": {"elicit-1": named("")}}
        error = (await peer.call("t", caps=ALL, more=more))["error"]
    assert error["code"] == -32603
    assert "asked something else" in error["message"]


async def test_two_questions_with_one_key_are_the_authors_mistake() -> None:
    async def twice(ctx: Context) -> str:
        await asyncio.gather(ctx.elicit("A?", NAME, key="k"), ctx.elicit("B?", NAME, key="k"))
        return "x"

    async with Peer(serving(twice)) as peer:
        error = (await peer.call("t", caps=ALL))["error"]
    assert error["code"] == -32603
    assert "'k'" in error["message"]


async def test_a_retry_without_its_state_answers_nothing_and_repeats_no_steps() -> None:
    """protocol.md 1.3: a client echoes the state; without it nothing was asked, and a step could run twice."""
    ran: list[str] = []

    async def plain(ctx: Context) -> str:
        return (await ctx.elicit("?", NAME)).content["name"]

    async def stepping(ctx: Context) -> str:
        await ctx.step("once", lambda: ran.append("x"))
        return (await ctx.elicit("?", NAME)).content["name"]

    more = {"inputResponses": {"elicit-1": named("Ada")}}
    async with Peer(serving(plain)) as peer:
        again = await peer.call("t", caps=ALL, more=more)
        assert (again["resultType"], list(again["inputRequests"])) == ("input_required", ["elicit-1"])
    async with Peer(serving(stepping)) as peer:
        error = (await peer.call("t", caps=ALL, more=more))["error"]
    assert error["code"] == -32602
    assert "requestState" in error["message"]
    assert ran == []


@pytest.mark.parametrize(
    "more",
    [
        {"inputResponses": []},
        {"inputResponses": {"elicit-1": "Ada"}},
        {"inputResponses": {"elicit-1": None}},
        {"requestState": "forged"},
        {"requestState": ""},
        {"requestState": 5},
    ],
)
async def test_a_retry_that_makes_no_sense_is_invalid_params(more: Any) -> None:
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("?", NAME)).action

    async with Peer(serving(ask)) as peer:
        assert (await peer.call("t", caps=ALL, more=more))["error"]["code"] == -32602


async def test_a_state_is_good_for_its_own_call_only() -> None:
    """protocol.md 1.3: bound to method, name, arguments and server."""

    async def ask(ctx: Context, a: int = 0) -> str:
        return (await ctx.elicit("?", NAME)).action

    server = serving(ask)
    server.add_tool(ask, name="other")
    async with Peer(server) as peer, Peer(serving(ask)) as elsewhere:
        state = (await peer.call("t", {"a": 1}, caps=ALL))["requestState"]
        more = {"requestState": state, "inputResponses": {"elicit-1": named("")}}
        assert (await peer.call("t", {"a": 2}, caps=ALL, more=more))["error"]["code"] == -32602
        assert (await peer.call("other", {"a": 1}, caps=ALL, more=more))["error"]["code"] == -32602
        assert (await elsewhere.call("t", {"a": 1}, caps=ALL, more=more))["error"]["code"] == -32602
        assert texts(await peer.call("t", {"a": 1}, caps=ALL, more=more)) == ["accept"]


async def test_servers_with_the_same_keys_understand_each_others_states() -> None:
    """P9: replicas."""

    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("?", NAME)).action

    keys = ["a key that is long enough, shared by all"]
    async with Peer(serving(ask, secret_keys=keys)) as one, Peer(serving(ask, secret_keys=keys)) as two:
        state = (await one.call("t", caps=ALL))["requestState"]
        more = {"requestState": state, "inputResponses": {"elicit-1": named("")}}
        assert texts(await two.call("t", caps=ALL, more=more)) == ["accept"]


async def test_a_state_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("?", NAME)).action

    from trimaran.server import input_rounds

    clock = [1000.0]
    monkeypatch.setattr(input_rounds.time, "time", lambda: clock[0])
    async with Peer(serving(ask, input_ttl=10)) as peer:
        state = (await peer.call("t", caps=ALL))["requestState"]
        more = {"requestState": state, "inputResponses": {"elicit-1": named("")}}
        clock[0] += 9
        assert texts(await peer.call("t", caps=ALL, more=more)) == ["accept"]
        clock[0] += 2
        assert (await peer.call("t", caps=ALL, more=more))["error"]["code"] == -32602


async def test_prompts_and_resources_may_ask_and_completions_may_not(caplog: pytest.LogCaptureFixture) -> None:
    """protocol.md 1.3: only tools/call, prompts/get, resources/read."""

    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("?", NAME)).content["name"]

    async def complete(value: str, ctx: Context) -> list[str]:
        return [(await ctx.elicit("?", NAME)).action]

    server = Server("x")
    server.add_prompt(ask, name="p")
    server.add_resource("a:b", ask)
    server.add_completion(complete, prompt="p", argument="a")
    async with Peer(server) as peer:
        for method, params, field in (
            ("prompts/get", {"name": "p"}, "messages"),
            ("resources/read", {"uri": "a:b"}, "contents"),
        ):
            first = (await peer.modern(method, params, caps=ALL))["result"]
            assert first["resultType"] == "input_required"
            more = {"requestState": first["requestState"], "inputResponses": {"elicit-1": named("Ada")}}
            second = (await peer.modern(method, {**params, **more}, caps=ALL))["result"]
            assert "Ada" in str(second[field])
        params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}
        assert (await peer.modern("completion/complete", params, caps=ALL))["error"]["code"] == -32603


async def test_a_plain_function_asks_by_rounds_too() -> None:
    def ask(ctx: Context) -> str:
        return ctx.wait(ctx.elicit("?", NAME)).content["name"]

    async with Peer(serving(ask)) as peer:
        found, rounds = await soon(play(peer, {"elicit-1": named("Ada")}))
    assert (texts(found), len(rounds)) == (["Ada"], 1)


async def test_callbacks_may_ask_as_well() -> None:
    """R3."""

    class Callbacks:
        def server_info(self) -> dict[str, str]:
            return {"name": "x", "version": "1"}

        async def call_tool(self, name: str, args: Any, ctx: Context) -> str:
            return (await ctx.elicit("?", NAME)).content["name"]

    async with Peer(Server(callbacks=Callbacks())) as peer:
        found, rounds = await play(peer, {"elicit-1": named("Ada")})
    assert (texts(found), len(rounds)) == (["Ada"], 1)
