"""Completions: keyed by what is completed and which argument, cut to what the protocol allows (R34-R37)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.support.memory_peer import Peer

from trimaran import Context, Server
from trimaran.errors import DeclarationError
from trimaran.types import CompleteResult, Completion


def asking(fn: Any) -> Server:
    server = Server("completions", version="1")
    server.add_prompt(lambda name="": name, name="greet")
    server.add_completion(fn, prompt="greet", argument="name")
    return server


async def complete(server: Server, value: str = "a", **changes: Any) -> Any:
    params = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": value}, **changes}
    async with Peer(server) as peer:
        message = await peer.modern("completion/complete", params)
    return message["result"]["completion"] if "result" in message else message["error"]


async def test_a_handler_takes_what_was_typed_and_what_is_filled_in() -> None:
    """R34."""

    def fill(value: str, arguments: dict[str, str], ctx: Context) -> list[str]:
        return [value, *arguments.values(), str(ctx.request_id)]

    assert await complete(asking(fill), "x", context={"arguments": {"b": "c"}}) == {"values": ["x", "c", "1"]}
    assert await complete(asking(lambda v: [v]), "x", context={}) == {"values": ["x"]}
    assert await complete(asking(lambda partial, ctx: [partial, str(ctx.request_id)]), "x") == {"values": ["x", "1"]}


async def test_prompts_and_templates_have_keys_of_their_own() -> None:
    """R34."""
    server = asking(lambda v: ["prompt"])
    server.add_resource("a:{name}", lambda name: name)

    @server.completion(template="a:{name}", argument="name")
    async def names(value: str) -> list[str]:
        return ["template"]

    assert (await complete(server))["values"] == ["prompt"]
    assert (await complete(server, ref={"type": "ref/resource", "uri": "a:{name}"}))["values"] == ["template"]


@pytest.mark.parametrize(
    "changes",
    [
        {"ref": {"type": "ref/prompt", "name": "nope"}},
        {"ref": {"type": "ref/resource", "uri": "a:{name}"}},
        {"argument": {"name": "nope", "value": ""}},
    ],
)
async def test_nothing_registered_is_an_empty_list(changes: Any) -> None:
    """R37."""
    assert await complete(asking(lambda v: ["x"]), **changes) == {"values": []}


@pytest.mark.parametrize(
    "changes",
    [
        {"ref": {"type": "ref/tool", "name": "x"}},
        {"ref": {"name": "x"}},
        {"argument": {"name": "name"}},
        {"argument": {"name": "name", "value": 1}},
        {"context": {"arguments": {"a": 1}}},
        {"context": {"arguments": []}},
    ],
)
async def test_params_of_another_shape_are_invalid(changes: Any) -> None:
    """R36."""
    assert (await complete(asking(lambda v: []), **changes))["code"] == -32602


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (["a"], {"values": ["a"]}),
        (("a", "b"), {"values": ["a", "b"]}),
        (None, {"values": []}),
        ((["a"], True), {"values": ["a"], "hasMore": True}),
        ((["a"], False), {"values": ["a"], "hasMore": False}),
        (Completion(values=["a"], total=5, has_more=True), {"values": ["a"], "total": 5, "hasMore": True}),
        (CompleteResult(completion=Completion(values=["a"])), {"values": ["a"]}),
    ],
)
async def test_a_handler_may_return_any_of_these(returned: Any, expected: Any) -> None:
    """R34."""
    assert await complete(asking(lambda v: returned)) == expected


@pytest.mark.parametrize(
    "wrap", [list, lambda v: Completion(values=v), lambda v: CompleteResult(completion=Completion(values=v))]
)
async def test_a_hundred_values_are_sent_and_more_are_promised(wrap: Any) -> None:
    """R36: however they are returned."""
    found = await complete(asking(lambda v: wrap([str(n) for n in range(150)])))
    assert found["values"] == [str(n) for n in range(100)]
    assert found["hasMore"] is True
    assert found.get("total", 150) == 150


@pytest.mark.parametrize("returned", [[1], ["a", None], 5, "abc"])
async def test_what_is_no_list_of_strings_is_an_internal_error(returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    """R36; a lone string is a mistake, not its letters."""
    with caplog.at_level(logging.ERROR, "trimaran"):
        found = await complete(asking(lambda v: returned))
    assert found.get("code") == -32603, found


async def test_a_failure_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    """R50."""

    def bad(value: str) -> list[str]:
        raise ValueError("secret")

    with caplog.at_level(logging.ERROR, "trimaran"):
        error = await complete(asking(bad))
    assert error["code"] == -32603
    assert "secret" not in error["message"]
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {"fn": lambda v: []},
        {"fn": lambda v: [], "prompt": "p", "template": "a:{b}"},
        {"fn": lambda: ["x"], "prompt": "p"},
        {"fn": lambda a, b, c: [], "prompt": "p"},
        {"fn": 5, "prompt": "p"},
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(options: dict[str, Any]) -> None:
    fn = options.pop("fn")
    with pytest.raises(DeclarationError):
        Server("x").add_completion(fn, argument="a", **options)


async def test_a_shared_result_is_told_to_each_era_in_its_own_words() -> None:
    """protocol.md 1.5: resultType is absent on legacy revisions."""
    shared = CompleteResult(completion=Completion(values=["a"]))
    params = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": ""}}
    async with Peer(asking(lambda v: shared)) as peer:
        assert (await peer.modern("completion/complete", params))["result"]["resultType"] == "complete"
        await peer.initialize()
        assert (await peer.legacy("completion/complete", params))["result"] == {"completion": {"values": ["a"]}}
