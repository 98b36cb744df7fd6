"""A megabyte where a name belongs: it is refused in a few words, kept nowhere and looked up in no time.

Each text that a client sends and a server looks up, stores or repeats has a bound. What has none, a tool's own arguments,
is never repeated whole.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from trimaran import Context, Server
from trimaran.errors import DeclarationError
from trimaran.legacy.duplex import LegacyDuplex
from trimaran.protocol.uritemplate import UriTemplate
from trimaran.transports.memory import MemoryChannel
from trimaran.types.wire import MAX_URI

LONG = "x" * 1_000_000
PREFIX = "io.modelcontextprotocol/"
META = {PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": {}}


def demo() -> Server:
    server = Server("demo", version="1")

    @server.tool
    def pick(colour: str, size: int = 1, *, ctx: Context) -> str:
        return colour[:1]

    @server.tool
    async def steps(ctx: Context) -> str:
        for number in range(10):
            await ctx.progress(number)
        return "done"

    def note(path: str, a: list[str] | None = None) -> str:
        return "x"

    for number in range(100):
        server.add_resource(f"note://{number}/{{+path}}{{?a*}}", note, name=f"note{number}")

    @server.resource("file:///{+path}")
    def file(path: str) -> str:
        return "x"

    @server.prompt
    def greet(name: str) -> str:
        return "hello"

    return server


# where the long text stands: (method, params, the codes that will do; none if a result will)
PLACES: dict[str, tuple[str, dict[str, Any], set[int]]] = {
    "a method": (LONG, {}, {-32600}),
    "a tool": ("tools/call", {"name": LONG, "arguments": {}}, {-32602}),
    "the name of an argument": ("tools/call", {"name": "pick", "arguments": {LONG: 1}}, set()),
    "an argument": ("tools/call", {"name": "pick", "arguments": {"colour": "a", "size": LONG}}, set()),
    "two arguments": ("tools/call", {"name": "pick", "arguments": {"colour": [LONG], "size": LONG}}, set()),
    "a URI": ("resources/read", {"uri": "file:///" + LONG}, {-32602}),
    "a URI of percent signs": ("resources/read", {"uri": "file:///" + "%25" * 300_000}, {-32602}),
    "a URI of no template": ("resources/read", {"uri": "note://x/" + "a" * 8000}, {-32602, -32002}),
    "a cursor": ("tools/list", {"cursor": LONG}, {-32602}),
    "a cursor that fits": ("tools/list", {"cursor": "x" * 8000}, {-32602}),
    "a prompt": ("prompts/get", {"name": LONG}, {-32602}),
    "the name of a prompt's argument": ("prompts/get", {"name": "greet", "arguments": {LONG: "x"}}, {-32602}),
    "a prompt's argument": ("prompts/get", {"name": "greet", "arguments": {"name": 1, LONG: "x"}}, {-32602}),
    "a progress token": ("tools/call", {"name": "steps", "_meta": {"progressToken": LONG}}, {-32602}),
    "a prompt to complete": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": LONG}, "argument": {"name": "a", "value": "b"}},
        {-32602, -32601},
    ),
    "a template to complete": (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": LONG}, "argument": {"name": "a", "value": "b"}},
        {-32602, -32601},
    ),
    "an argument to complete": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": LONG}},
        {-32602, -32601},
    ),
    "a kind of reference": ("completion/complete", {"ref": {"type": LONG}, "argument": {}}, {-32602, -32601}),
}
MODERN_PLACES: dict[str, tuple[str, dict[str, Any], set[int]]] = {
    "a revision": ("tools/list", {"_meta": {**META, PREFIX + "protocolVersion": LONG}}, {-32022}),
    "a log level": ("tools/list", {"_meta": {**META, PREFIX + "logLevel": LONG}}, {-32602}),
    "a state": ("tools/call", {"name": "pick", "arguments": {"colour": "a"}, "requestState": LONG}, {-32602}),
    "a watched URI": (
        "subscriptions/listen",
        {"notifications": {"resourceSubscriptions": ["file:///" + LONG]}},
        {-32602},
    ),
    "a thousand watched URIs": (
        "subscriptions/listen",
        {"notifications": {"resourceSubscriptions": [f"file:///{n}/{LONG[:1000]}" for n in range(1000)]}},
        {-32602},
    ),
}
LEGACY_PLACES: dict[str, tuple[str, dict[str, Any], set[int]]] = {
    "a log level": ("logging/setLevel", {"level": LONG}, {-32602, -32601}),
    "a watched URI": ("resources/subscribe", {"uri": "file:///" + LONG}, {-32602}),
}
CASES = [
    *(("modern", place, case) for place, case in {**PLACES, **MODERN_PLACES}.items()),
    *(("legacy", place, case) for place, case in {**PLACES, **LEGACY_PLACES}.items()),
]


async def exchange(channel: MemoryChannel, message: dict[str, Any]) -> bytes:
    await channel.send(json.dumps(message).encode())
    async with asyncio.timeout(20):
        reply = await channel.receive()
    assert reply is not None
    return reply


async def initialize(channel: MemoryChannel, **changes: Any) -> bytes:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    reply = await exchange(
        channel, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {**params, **changes}}
    )
    await channel.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    return reply


@pytest.mark.parametrize(("era", "place", "case"), CASES, ids=[f"{era}: {place}" for era, place, _ in CASES])
async def test_a_long_text_is_answered_in_a_few_words(
    era: str, place: str, case: tuple[str, dict[str, Any], set[int]], caplog: pytest.LogCaptureFixture
) -> None:
    """Ours. The message says what is too long; neither the answer nor the log repeats it."""
    method, params, codes = case
    caplog.set_level(logging.DEBUG)
    channel = MemoryChannel(demo(), legacy=LegacyDuplex)
    try:
        if era == "legacy":
            await initialize(channel)
        else:
            params = {**params, "_meta": {**META, **params.get("_meta", {})}}
        reply = await exchange(channel, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    finally:
        await channel.close()
    assert len(reply) < 12_000
    answer = json.loads(reply)
    assert "error" not in answer or answer["error"]["code"] in codes or not codes
    assert "error" in answer or not codes
    assert sum(len(record.getMessage()) for record in caplog.records) < 12_000


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_request_with_a_long_id_is_refused_and_the_id_not_repeated(era: str) -> None:
    channel = MemoryChannel(demo(), legacy=LegacyDuplex)
    try:
        if era == "legacy":
            await initialize(channel)
        params = {"_meta": META} if era == "modern" else {}
        reply = json.loads(
            await exchange(channel, {"jsonrpc": "2.0", "id": LONG, "method": "tools/list", "params": params})
        )
    finally:
        await channel.close()
    assert reply["error"]["code"] == -32600
    assert reply["id"] is None
    assert reply["error"]["message"] == "id has at most 1024 characters, not 1000000"


@pytest.mark.parametrize(
    "changes",
    [{"clientInfo": {"name": LONG, "version": "1"}}, {"capabilities": {"x": LONG}}, {"protocolVersion": LONG}],
    ids=["name", "capabilities", "revision"],
)
async def test_a_client_that_says_too_much_of_itself_gets_no_session(changes: dict[str, Any]) -> None:
    """What it says is kept as long as the session lives, and there may be ten thousand of them."""
    channel = MemoryChannel(demo(), legacy=LegacyDuplex)
    try:
        reply = await initialize(channel, **changes)
    finally:
        await channel.close()
    assert len(reply) < 1000
    assert json.loads(reply)["error"]["code"] == -32602


async def test_a_session_watches_so_many_characters_and_no_more() -> None:
    channel = MemoryChannel(demo(), legacy=LegacyDuplex)
    try:
        await initialize(channel)
        answers: list[Any] = []
        for number in range(40):
            params = {"uri": f"file:///{number}/{LONG[:8000]}"}
            message = {"jsonrpc": "2.0", "id": number, "method": "resources/subscribe", "params": params}
            answers.append(json.loads(await exchange(channel, message)))
    finally:
        await channel.close()
    assert "result" in answers[31]
    assert answers[39]["error"]["code"] == -32602
    assert "characters together" in answers[39]["error"]["message"]


# --- templates -------------------------------------------------------------------------------------------------------


def test_a_uri_longer_than_any_matches_nothing() -> None:
    template = UriTemplate("file:///{+path}")
    fits = "file:///" + "a" * (MAX_URI - 8)
    assert template.match(fits) == {"path": fits[8:]}
    assert template.match(fits + "a") is None
    assert template.match("file:///" + "%2F" * 3_000_000) is None


@pytest.mark.parametrize("text", ["a:" + "b" * MAX_URI, "a:" + "{x}" * 101, "a:" + "{" + "x," * 100 + "x}", "{" * 9000])
def test_a_template_that_would_cost_too_much_is_refused_in_a_few_words(text: str) -> None:
    with pytest.raises(DeclarationError) as refusal:
        UriTemplate(text)
    assert len(str(refusal.value)) < 400
