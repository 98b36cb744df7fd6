"""Prompts: a function's parameters are its arguments, its value the messages (R13, R33, R50, R52)."""

from __future__ import annotations

import logging
from typing import Any, Literal, NotRequired, TypedDict

import pytest
from tests.support.memory_peer import Peer
from tests.support.until import soon

from trimaran import Context, ProtocolError, Server, ToolError, connect, content
from trimaran.errors import DeclarationError
from trimaran.types import PromptArgument


@pytest.fixture
def server() -> Server:
    return Server("prompts", version="1")


def test_a_prompt_is_described_by_its_function(server: Server) -> None:
    """R33, R25."""

    @server.prompt(title="T", icons=[{"src": "s"}], meta={"m": 1})
    def greet(name: str, ctx: Context, tone: str = "kind") -> str:
        """Greet someone.

        Args:
            name: who
        """
        return name

    assert server.list_prompts()[0].to_json() == {
        "name": "greet",
        "title": "T",
        "description": "Greet someone.",
        "arguments": [{"name": "name", "description": "who", "required": True}, {"name": "tone"}],
        "icons": [{"src": "s"}],
        "_meta": {"m": 1},
    }


def test_arguments_may_be_written_out(server: Server) -> None:
    """R14."""
    server.add_prompt(
        lambda a, b="": a, name="p", arguments=[{"name": "a", "required": True}, PromptArgument(name="b", title="B")]
    )
    assert server.list_prompts()[0].to_json()["arguments"] == [
        {"name": "a", "required": True},
        {"name": "b", "title": "B"},
    ]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_annotations_reach_the_client_word_for_word(server: Server, era: Literal["modern", "legacy"]) -> None:
    """R26."""
    annotations: dict[str, Any] = {"audience": ["user"], "priority": 0.5, "x-colour": {"red": 1}}
    server.add_prompt(lambda: "x", name="p", annotations=annotations)
    async with connect(server, era=era) as client:
        (listed,) = await client.list_prompts()
    assert listed.annotations == annotations


@pytest.mark.parametrize(
    ("fn", "arguments", "hint"),
    [
        (lambda city: city, [{"name": "town"}, {"name": "city"}], "lists 'town', but the function takes 'city'"),
        (lambda: "x", [{"name": "town"}], "takes no arguments"),
        (lambda a, b: a, [{"name": "a"}], "needs 'b'"),
        (
            lambda a, b: a,
            [{"name": "a"}, {"name": "b", "required": False}],
            "'b' is optional, but the parameter has no",
        ),
        (lambda a, **more: a, [{"name": "b"}], "needs 'a'"),
        (lambda a: a, [{"name": "a"}, {"name": "a"}], "lists 'a' twice"),
    ],
)
def test_a_list_of_arguments_that_its_function_does_not_keep_is_refused(
    server: Server, fn: Any, arguments: Any, hint: str
) -> None:
    with pytest.raises(DeclarationError, match=hint):
        server.add_prompt(fn, name="p", arguments=arguments)


def test_one_parameter_of_another_name_is_a_slip_unless_it_can_take_the_whole_map(server: Server) -> None:
    """R28: what is annotated as a string is no map."""

    def visit(citty: str) -> str:
        return citty

    with pytest.raises(DeclarationError, match="lists 'city'"):
        server.add_prompt(visit, arguments=[{"name": "city"}])


def test_an_argument_without_a_word_on_it_is_required_if_the_function_requires_it(server: Server) -> None:
    """R33."""
    server.add_prompt(lambda a, b="": a, name="p", arguments=[{"name": "a"}, {"name": "b"}])
    assert [a.required for a in server.list_prompts()[0].arguments or ()] == [True, None]


class Trip(TypedDict):
    city: str
    days: NotRequired[int]


def plain(args, ctx: Context):  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]  # noqa: ANN001, ANN201
    return f"{args} {ctx.request_id}"  # pyright: ignore[reportUnknownVariableType]


def mapping(args: dict[str, str], ctx: Context) -> str:
    return f"{args} {ctx.request_id}"


def typed(trip: Trip, ctx: Context) -> str:
    return f"{trip} {ctx.request_id}"


def keywords(ctx: Context, **args: Any) -> str:
    return f"{args} {ctx.request_id}"


@pytest.mark.parametrize("fn", [plain, mapping, typed, keywords])
async def test_one_parameter_may_take_all_arguments_as_a_map(server: Server, fn: Any) -> None:
    """R28, R33: as tools have it."""
    server.add_prompt(fn, name="p", arguments=[{"name": "city", "required": True}, {"name": "days"}])
    prompt = await soon(server.get_prompt("p", {"city": "Oslo"}))
    assert prompt.to_json()["messages"][0]["content"]["text"] == "{'city': 'Oslo'} 0"
    with pytest.raises(ProtocolError, match="needs the argument 'city'") as caught:
        await server.get_prompt("p", {"days": "3"})
    assert caught.value.code == -32602


async def test_keywords_beside_named_parameters_take_what_is_left(server: Server) -> None:
    def p(a: int, **more: str) -> str:
        return f"{a!r} {more}"

    server.add_prompt(p, arguments=[{"name": "a"}, {"name": "b"}])
    prompt = await soon(server.get_prompt("p", {"a": "1", "b": "2"}))
    assert prompt.to_json()["messages"][0]["content"]["text"] == "1 {'b': '2'}"


def test_a_prompt_without_arguments_lists_none(server: Server) -> None:
    server.add_prompt(lambda: "x", name="p")
    assert server.list_prompts()[0].to_json() == {"name": "p"}


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.add_prompt(lambda: "x"),
        lambda s: s.add_prompt(lambda *a: "x", name="p"),
        lambda s: s.add_prompt(5, name="p"),
        lambda s: s.add_prompt(lambda: "x", name="p", colour=1),
        lambda s: s.add_prompt(lambda: "x", name="p", arguments=[{"title": "no name"}]),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(server: Server, declare: Any) -> None:
    """Every exception of the library is one of its own (errors.py)."""
    with pytest.raises(DeclarationError):
        declare(server)


async def test_arguments_are_converted_and_checked(server: Server) -> None:
    @server.prompt
    def count(n: int, flag: bool = False) -> str:
        return f"{n!r} {flag!r}"

    found = await soon(server.get_prompt("count", {"n": "3", "flag": "true"}))
    assert found.to_json()["messages"][0]["content"]["text"] == "3 True"
    for arguments in ({}, {"n": "many"}):
        with pytest.raises(ProtocolError) as caught:
            await server.get_prompt("count", arguments)
        assert caught.value.code == -32602


async def test_a_conversation_has_many_messages(server: Server) -> None:
    """R33, R52."""

    @server.prompt
    async def talk(ctx: Context) -> Any:
        """The talk."""
        return [content.user_message("hi"), content.assistant_message("hello"), content.image(b"x")]

    result = (await soon(server.get_prompt("talk"))).to_json()
    assert [m["role"] for m in result["messages"]] == ["user", "assistant", "user"]
    assert result["description"] == "The talk."


async def test_an_unknown_prompt_is_invalid_params(server: Server) -> None:
    """C6."""
    server.add_prompt(lambda: "x", name="p")
    async with Peer(server) as peer:
        error = (await peer.modern("prompts/get", {"name": "nope"}))["error"]
    assert (error["code"], error["data"]) == (-32602, {"name": "nope"})


@pytest.mark.parametrize("arguments", [[], "x", 1, None])
async def test_arguments_that_are_no_object_are_invalid_params(server: Server, arguments: Any) -> None:
    """R85."""
    server.add_prompt(lambda: "x", name="p")
    async with Peer(server) as peer:
        message = await peer.modern("prompts/get", {"name": "p", "arguments": arguments})
    assert message["error"]["code"] == -32602


async def test_a_failure_is_internal_and_redacted(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """R50, C26."""

    @server.prompt
    def bad() -> str:
        raise ValueError("secret")

    @server.prompt
    def wrong() -> Any:
        return [{"role": "system", "content": "x"}]

    async with Peer(server) as peer:
        with caplog.at_level(logging.ERROR, "trimaran"):
            first = (await peer.modern("prompts/get", {"name": "bad"}))["error"]
            second = (await peer.modern("prompts/get", {"name": "wrong"}))["error"]
    assert (first["code"], second["code"]) == (-32603, -32603)
    assert "secret" not in first["message"]
    assert "secret" in caplog.text
    assert '"user" or "assistant"' in second["message"]


async def test_a_deliberate_failure_says_its_own_words(server: Server) -> None:
    """R50: raised or returned."""

    @server.prompt
    def raised() -> str:
        raise ToolError("ask me tomorrow")

    server.add_prompt(lambda: ToolError("ask me tomorrow"), name="returned")
    async with Peer(server) as peer:
        for name in ("raised", "returned"):
            error = (await peer.modern("prompts/get", {"name": name}))["error"]
            assert error == {"code": -32603, "message": "ask me tomorrow"}


async def test_a_prompt_may_need_scopes(server: Server) -> None:
    """R183."""
    server.add_prompt(lambda: "x", name="p", scopes=["x"])
    with pytest.raises(ProtocolError) as caught:
        await server.get_prompt("p")
    assert caught.value.code == -32600
