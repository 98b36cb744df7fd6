"""What a server may ask and who answers: declared from the handlers there are, checked before it leaves."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.until import PATIENCE, until

from trimaran.client.options import Options
from trimaran.client.server_requests import Deferred, ServerRequests
from trimaran.errors import ConfigError, LocalProtocolError, ProtocolError
from trimaran.types import CreateMessageResult, ElicitResult, Root


def asks(**options: Any) -> ServerRequests:
    return ServerRequests(Options.make(options))


def yes(ask: Any) -> Any:
    return ask.accept()


def jsonable(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


# --- capabilities ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "modern", "legacy"),
    [
        ({}, {}, {}),
        ({"on_elicit": yes}, {"elicitation": {"form": {}, "url": {}}}, {"elicitation": {"form": {}, "url": {}}}),
        ({"on_sample": yes}, {"sampling": {}}, {"sampling": {}}),
        ({"roots": []}, {"roots": {}}, {"roots": {"listChanged": True}}),
        ({"roots": list}, {"roots": {}}, {"roots": {"listChanged": True}}),
        ({"on_log": print, "on_notification": print, "on_request": print, "on_state": print}, {}, {}),
        ({"capabilities": {"sampling": True}}, {"sampling": {}}, {"sampling": {}}),
        ({"capabilities": {"sampling": False, "elicitation": None}}, {}, {}),
        ({"capabilities": {"roots": {"list_changed": True}}}, {"roots": {"listChanged": True}}, ...),
        ({"capabilities": {"roots": {"list_changed": False}}}, {"roots": {}}, ...),
        ({"capabilities": {"experimental": {"x": True, "y": {"z": False}}}}, ..., ...),
        ({"capabilities": {"extensions": {"com.example/x": {"on": True}}}}, ..., ...),
        (
            {"on_sample": yes, "capabilities": {"sampling": {"tools": True, "context": False}}},
            {"sampling": {"tools": {}}},
            ...,
        ),
    ],
)
def test_capabilities_follow_the_handlers(options: Any, modern: Any, legacy: Any) -> None:
    """R190: booleans become objects, list_changed becomes listChanged, false entries are dropped; vendors' stay."""
    made = asks(**options)
    found = made.capabilities(modern=True)
    assert found == (options["capabilities"] if modern is ... else modern)
    if legacy is not ...:
        assert made.capabilities(modern=False) == legacy


@pytest.mark.parametrize("declared", [{"url": False}, {"form": True, "url": False}, {"form": {}, "url": None}])
async def test_a_mode_that_is_left_out_is_refused(declared: Any) -> None:
    """R190: false entries are dropped, also where a handler implies them; `elicitation: {}` means form only (1.3)."""
    made = asks(on_elicit=yes, capabilities={"elicitation": declared})
    assert made.capabilities(modern=True) in ({"elicitation": {"form": {}}}, {"elicitation": {}})
    with pytest.raises(LocalProtocolError) as caught:
        await made.answer("elicitation/create", {"mode": "url", "message": "m", "url": "https://x.example/"})
    assert caught.value.code == -32602


def test_one_object_may_hold_all_handlers() -> None:
    """R200: plain functions or one handler object; a keyword wins over it."""

    class Handler:
        roots = ("file:///tmp",)

        async def on_elicit(self, ask: Any) -> Any:
            return "accept"

        def on_sample(self, ask: Any) -> str:
            return "from the object"

    made = asks(handler=Handler(), on_sample=yes)
    assert made.capabilities(modern=False).keys() == {"elicitation", "sampling", "roots"}
    assert made.on_sample is yes
    assert asks(handler=object()).capabilities(modern=False) == {}


def test_a_handler_that_cannot_be_called_is_named() -> None:
    with pytest.raises(ConfigError, match="on_elicit"):
        asks(on_elicit="yes")

    class Handler:
        on_sample = 5

    with pytest.raises(ConfigError, match="on_sample"):
        asks(handler=Handler())


# --- elicitation -----------------------------------------------------------------------------------------------------

FORM: Any = {
    "message": "who?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "age": {"type": "integer", "default": 7},
            "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
        },
        "required": ["name"],
    },
}


async def elicit(on_elicit: Any, params: Any = FORM, **options: Any) -> Any:
    return jsonable(await asks(on_elicit=on_elicit, **options).answer("elicitation/create", params))


async def test_a_form_is_shown_whole() -> None:
    """protocol.md 1.3: form is the default mode."""
    seen: list[Any] = []

    async def on_elicit(ask: Any) -> Any:
        seen.append(ask)
        return ask.decline()

    await elicit(on_elicit)
    (ask,) = seen
    assert (ask.message, ask.mode, ask.url, ask.elicitation_id) == ("who?", "form", None, None)
    assert ask.schema == FORM["requestedSchema"]
    assert ask.defaults == {"age": 7, "kind": "a"}
    assert ask.raw == FORM


@dataclasses.dataclass
class Person:
    name: str
    age: int


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (lambda ask: ask.accept({"name": "Ada"}), {"name": "Ada", "age": 7, "kind": "a"}),
        (lambda ask: {"name": "Ada", "age": 8}, {"name": "Ada", "age": 8, "kind": "a"}),
        (lambda ask: ElicitResult(action="accept", content={"name": "Ada"}), {"name": "Ada", "age": 7, "kind": "a"}),
        (lambda ask: {"action": "accept", "content": {"name": "Ada"}}, {"name": "Ada", "age": 7, "kind": "a"}),
        (lambda ask: Person("Ada", 9), {"name": "Ada", "age": 9, "kind": "a"}),
        (lambda ask: ask.accept({"name": "Ada", "action": "x"}), {"name": "Ada", "age": 7, "kind": "a", "action": "x"}),
    ],
    ids=["accept", "dict", "result", "shaped", "dataclass", "field-named-action"],
)
async def test_yes_in_every_form_with_the_defaults_filled_in(answer: Any, content: Any) -> None:
    """protocol.md 7.4: elicitation defaults filled in on accept."""
    assert await elicit(answer) == {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        (lambda ask: ask.decline(), "decline"),
        (lambda ask: ask.cancel(), "cancel"),
        (lambda ask: None, "cancel"),
        (lambda ask: False, "decline"),
        (lambda ask: "decline", "decline"),
        (lambda ask: {"action": "cancel"}, "cancel"),
        (lambda ask: ElicitResult(action="decline", content={"name": "x"}), "decline"),
    ],
)
async def test_no_in_every_form_carries_no_content(answer: Any, action: str) -> None:
    assert await elicit(answer) == {"action": action}


@pytest.mark.parametrize(
    ("content", "word"),
    [({}, "name"), ({"name": ""}, "name"), ({"name": "x", "age": "old"}, "age"), ({"name": "x", "kind": "c"}, "kind")],
)
async def test_an_answer_that_breaks_the_form_is_refused_here(content: Any, word: str) -> None:
    with pytest.raises(LocalProtocolError, match=word) as caught:
        await elicit(lambda ask: content)
    assert caught.value.code == -32602


async def test_a_form_that_cannot_be_checked_is_not_checked(caplog: pytest.LogCaptureFixture) -> None:
    params = {"message": "m", "requestedSchema": {"type": "no such type"}}
    assert (await elicit(lambda ask: {"a": 1}, params))["content"] == {"a": 1}
    assert "cannot be checked" in caplog.text


@pytest.mark.parametrize("params", [{}, {"requestedSchema": 5}, {"message": 5, "requestedSchema": {"properties": []}}])
async def test_a_sloppy_question_is_still_asked(params: Any) -> None:
    assert (await elicit(lambda ask: ask.accept({"a": ask.message}), params))["action"] == "accept"


async def test_a_url_is_consent_only() -> None:
    """protocol.md 1.3: accept = consent; no content."""
    seen: list[Any] = []

    def on_elicit(ask: Any) -> Any:
        seen.append(ask)
        return {"surplus": 1}

    params = {"mode": "url", "message": "go", "url": "https://x.example/?a=b", "elicitationId": "e-1"}
    assert await elicit(on_elicit, params) == {"action": "accept"}
    (ask,) = seen
    assert (ask.mode, ask.url, ask.elicitation_id, ask.schema) == ("url", "https://x.example/?a=b", "e-1", {})


@pytest.mark.parametrize("params", [{"mode": "url"}, {"mode": "url", "url": 5}, {"mode": "tv"}, {"mode": None}])
async def test_a_question_in_no_known_mode_is_invalid(params: Any) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        await elicit(yes, params)
    assert caught.value.code == -32602


async def test_an_answer_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="on_elicit returned int"):
        await elicit(lambda ask: 5)


# --- sampling --------------------------------------------------------------------------------------------------------

MESSAGES: Any = [
    {"role": "user", "content": {"type": "text", "text": "first"}},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]},
]


async def sample(on_sample: Any, params: Any = None) -> Any:
    given = {"messages": MESSAGES, "maxTokens": 9} if params is None else params
    return jsonable(await asks(on_sample=on_sample).answer("sampling/createMessage", given))


async def test_a_sampling_request_is_shown_whole() -> None:
    seen: list[Any] = []

    def on_sample(ask: Any) -> Any:
        seen.append(ask)
        return "x"

    params = {
        "messages": MESSAGES,
        "maxTokens": 9,
        "systemPrompt": "be kind",
        "temperature": 0.5,
        "stopSequences": ["."],
        "modelPreferences": {"hints": [{"name": "m"}]},
        "includeContext": "none",
        "tools": [{"name": "t"}],
        "toolChoice": {"mode": "auto"},
        "metadata": {"k": 1},
        "_meta": {"m": 1},
        "unheardOf": 1,
    }
    await sample(on_sample, params)
    (ask,) = seen
    assert ask.messages == MESSAGES
    assert (ask.max_tokens, ask.system_prompt, ask.temperature, ask.stop_sequences) == (9, "be kind", 0.5, ["."])
    assert ask.model_preferences == {"hints": [{"name": "m"}]}
    assert (ask.include_context, ask.tools, ask.tool_choice) == ("none", [{"name": "t"}], {"mode": "auto"})
    assert ask.metadata == {"k": 1}
    assert ask.raw == params
    assert ask.text == "ab"


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (
            "hi",
            {
                "role": "assistant",
                "content": {"type": "text", "text": "hi"},
                "model": "unknown",
                "stopReason": "endTurn",
            },
        ),
        (
            {"content": "hi", "model": "m"},
            {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
        ),
        (
            CreateMessageResult(role="assistant", content={"type": "image"}, model="m"),
            {"role": "assistant", "content": {"type": "image"}, "model": "m"},
        ),
    ],
    ids=["text", "mapping", "result"],
)
async def test_a_sample_in_every_form(answer: Any, result: Any) -> None:
    assert await sample(lambda ask: answer) == result


@pytest.mark.parametrize("answer", [None, False])
async def test_a_person_may_refuse_to_sample(answer: Any) -> None:
    """protocol.md 1.3: sampling rejected: error code -1."""
    with pytest.raises(ProtocolError) as caught:
        await sample(lambda ask: answer)
    assert caught.value.code == -1


@pytest.mark.parametrize("answer", [5, {"content": "x", "role": "robot"}, ["x"]])
async def test_a_sample_that_is_none_is_named(answer: Any) -> None:
    with pytest.raises(ConfigError, match="on_sample returned"):
        await sample(lambda ask: answer)


@pytest.mark.parametrize(
    "params", [{}, {"messages": 5, "maxTokens": 1}, {"messages": []}, {"messages": [5], "maxTokens": 1}]
)
async def test_a_malformed_sampling_request_is_invalid(params: Any) -> None:
    with pytest.raises(LocalProtocolError, match="malformed") as caught:
        await sample(lambda ask: "x", params)
    assert caught.value.code == -32602


# --- roots -----------------------------------------------------------------------------------------------------------


async def roots(given: Any) -> Any:
    return jsonable(await asks(roots=given).answer("roots/list", {}))["roots"]


async def test_roots_in_every_form(tmp_path: Path) -> None:
    uri = tmp_path.as_uri()
    given = [tmp_path, str(tmp_path), uri, Root(uri="file:///x", name="x"), {"uri": "file:///y", "name": "y"}]
    assert await roots(given) == [
        {"uri": uri, "name": tmp_path.name},
        {"uri": uri, "name": tmp_path.name},
        {"uri": uri},
        {"uri": "file:///x", "name": "x"},
        {"uri": "file:///y", "name": "y"},
    ]
    assert await roots([]) == []


async def test_roots_may_be_asked_for_each_time() -> None:
    count = 0

    async def current() -> Any:
        nonlocal count
        count += 1
        return [f"file:///{count}"]

    made = asks(roots=current)
    for number in (1, 2):
        assert jsonable(await made.answer("roots/list", {})) == {"roots": [{"uri": f"file:///{number}"}]}
    assert await roots(lambda: ["file:///plain"]) == [{"uri": "file:///plain"}]


@pytest.mark.parametrize(
    "given",
    ["file:///x", Path("/x"), 5, Root(uri="file:///x"), b"/x", [5], [None], [{}], [{"uri": 5}], ["https://x.example/"]],
    ids=repr,
)
def test_roots_that_are_none_are_named(given: Any) -> None:
    """Only file:// URIs are roots (protocol.md 1.3)."""
    with pytest.raises(ConfigError, match="root"):
        asks(roots=given)


async def test_roots_can_be_replaced() -> None:
    made = asks(roots=["file:///a"])
    assert made.has_roots
    made.set_roots(["file:///b"])
    assert jsonable(await made.answer("roots/list", {})) == {"roots": [{"uri": "file:///b"}]}
    assert not asks().has_roots


# --- the rest --------------------------------------------------------------------------------------------------------


async def test_ping_is_always_answered() -> None:
    assert await asks().answer("ping", {}) == {}


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list", "x/y"])
async def test_nobody_home_is_method_not_found(method: str) -> None:
    """R201."""
    with pytest.raises(ProtocolError) as caught:
        await asks().answer(method, {})
    assert caught.value.code == -32601
    assert method in caught.value.message


async def test_anything_else_goes_to_on_request() -> None:
    """R200: reply, or error(code, message)."""

    async def on_request(method: str, params: Any) -> Any:
        if params:
            raise ProtocolError(-5, "not that")
        return {"method": method}

    made = asks(on_request=on_request)
    assert await made.answer("x/y", {}) == {"method": "x/y"}
    with pytest.raises(ProtocolError, match="not that"):
        await made.answer("x/y", {"a": 1})


async def test_plain_handlers_run_in_a_thread_and_may_wait() -> None:
    """Contract: sync functions are allowed too (run in a thread): the loop turns meanwhile."""
    gate = threading.Event()
    threads: list[int] = []

    def on_request(method: str, params: Any) -> Any:
        threads.append(threading.get_ident())
        assert gate.wait(3)
        return {}

    task = asyncio.ensure_future(asks(on_request=on_request).answer("x", {}))
    async with asyncio.timeout(PATIENCE):
        await until(lambda: threads)
        gate.set()
        assert await task == {}
    assert threads != [threading.get_ident()]


async def test_a_plain_handler_may_return_an_awaitable() -> None:
    async def later() -> Any:
        return {"late": True}

    assert await asks(on_request=lambda method, params: later()).answer("x", {}) == {"late": True}


# --- deferred answers ------------------------------------------------------------------------------------------------


async def test_a_deferred_answer_may_come_from_another_thread() -> None:
    """R200: async(tag) answered later by reply_async."""
    kept: list[Deferred] = []

    async def on_elicit(ask: Any) -> Any:
        kept.append(Deferred())
        return kept[0]

    task = asyncio.ensure_future(elicit(on_elicit))
    async with asyncio.timeout(PATIENCE):
        await until(lambda: kept)
        assert not task.done()
        thread = threading.Thread(target=lambda: kept[0].reply({"name": "Ada"}))
        thread.start()
        assert (await task)["content"]["name"] == "Ada"
    thread.join()


async def test_a_deferred_answer_may_be_a_failure_and_only_the_first_counts() -> None:
    kept: list[Deferred] = []

    async def on_request(method: str, params: Any) -> Any:
        kept.append(Deferred())
        kept[0].fail(-9, "no", {"k": 1})
        kept[0].reply({"too": "late"})
        return kept[0]

    with pytest.raises(ProtocolError) as caught:
        await asks(on_request=on_request).answer("x", {})
    assert (caught.value.code, caught.value.message, caught.value.data) == (-9, "no", {"k": 1})


async def test_a_plain_handler_may_defer_too() -> None:
    """Contract: any handler may return Deferred(); plain ones run in a thread without a loop."""
    kept: list[Deferred] = []

    def on_request(method: str, params: Any) -> Any:
        kept.append(Deferred())
        return kept[0]

    task = asyncio.ensure_future(asks(on_request=on_request).answer("x", {}))
    async with asyncio.timeout(PATIENCE):
        await until(lambda: kept or task.done())
        for one in kept:
            one.reply({"ok": True})
        assert await task == {"ok": True}
