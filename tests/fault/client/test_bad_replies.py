"""A server that answers nonsense: the call that got it fails with a typed error that names it, and nobody else notices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.until import soon

from trimaran import errors
from trimaran.errors import CallError, ConnectionLost, RemoteProtocolError, TimedOut

from .peers import ERAS, WIRES, Dock, assert_usable, failure_of, harmed, took

# What is said about each, whatever the wire: one of these words must be in the error.
NONSENSE: dict[str, tuple[str, ...]] = {
    "garbage": ("%PDF-1.7",),
    "cut_json": ("JSON", "not json", '{\\"jsonrpc', '{"jsonrpc'),
    "no_rpc": ("hello",),
    "bare_list": ("[1,2,3]", "Expected `object`"),
    "wrong_id": ("987654",),
    "string_id": ("id",),
    "bad_utf8": ("utf-8", "UTF-8"),
    "deep": ("nest", "deep"),
    "both": ("result and error",),
    "neither": ("result and error", "result nor"),
}
# These answer the right id, so that the call can end at once on every wire.
SHAPELESS: dict[str, tuple[str, ...]] = {
    "list_result": ("[1,2]", "object"),
    "text_result": ("done", "object"),
    "null_result": ("null", "object"),
}


@ERAS
@WIRES
@pytest.mark.parametrize("act", sorted(NONSENSE))
async def test_nonsense_is_named_and_harms_nobody_else(dock: Dock, wire: str, era: str, act: str) -> None:
    """Over HTTP the answer belongs to its request, so the call ends at once; on a pipe the deadline may have to."""
    async with dock.open(wire, era) as (client, _):
        timeout = 0.6 if wire == "stdio" else 5.0
        with took(most=3.0):
            error = await harmed(client, client.call_tool(act, timeout=timeout))
        expected = (RemoteProtocolError, TimedOut) if wire == "stdio" else (RemoteProtocolError,)
        assert isinstance(error, expected), repr(error)
        assert any(word in str(error) for word in NONSENSE[act]), str(error)


@ERAS
@WIRES
@pytest.mark.parametrize("act", sorted(SHAPELESS))
async def test_a_result_that_is_no_object_is_refused_at_once(dock: Dock, wire: str, era: str, act: str) -> None:
    async with dock.open(wire, era) as (client, _):
        with took(most=2.0):
            error = await harmed(client, client.call_tool(act))
        assert isinstance(error, RemoteProtocolError), repr(error)
        assert any(word in str(error) for word in SHAPELESS[act]), str(error)


@WIRES
async def test_an_unknown_result_type_is_refused(dock: Dock, wire: str) -> None:
    """protocol.md 1.5: unknown value = invalid response."""
    async with dock.open(wire, "modern") as (client, _):
        error = await harmed(client, client.call_tool("odd_type"))
        assert isinstance(error, RemoteProtocolError)
        assert "quantum" in str(error)


@WIRES
async def test_a_legacy_result_may_hold_what_looks_like_a_result_type(dock: Dock, wire: str) -> None:
    async with dock.open(wire, "legacy") as (client, _):
        assert (await soon(client.call_tool("odd_type"))).content == []


@ERAS
@WIRES
async def test_an_error_without_a_code_is_still_an_error(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, _):
        error = await harmed(client, client.call_tool("codeless"))
        assert isinstance(error, (CallError, RemoteProtocolError)), repr(error)
        assert "codeless" in str(error)


@ERAS
@WIRES
async def test_an_error_keeps_its_code_message_and_data(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, _):
        error = await harmed(client, client.call_tool("refuses"))
        assert isinstance(error, CallError)
        assert (error.code, error.message, error.data) == (-32050, "not today", {"until": "monday"})


@ERAS
@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_the_first_of_two_answers_counts(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, _):
        for _ in range(3):
            assert (await soon(client.call_tool("twice"))).text == "once"
        await assert_usable(client)


@ERAS
@WIRES
async def test_content_of_unknown_kind_is_kept_as_it_came(dock: Dock, wire: str, era: str) -> None:
    """P32: a client that is too strict makes tools unusable."""
    async with dock.open(wire, era) as (client, _):
        result = await soon(client.call_tool("odd_content"))
        assert result.content == [{"type": "hologram", "beam": 1}, {"type": "text"}, 7]
        assert (await soon(client.call_tool("no_content"))).content == []


@ERAS
@WIRES
async def test_no_answer_ends_with_the_deadline_which_is_named(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, peer):
        with took(0.2, 2.5):
            error = await harmed(client, client.call_tool("never", timeout=0.25))
        assert isinstance(error, TimedOut)
        assert "tools/call" in str(error)
        assert "0.25" in str(error)
        assert client.requests == ()
        assert peer.calls("never") == 1


@ERAS
@WIRES
async def test_half_an_answer_and_the_end_is_a_loss(dock: Dock, wire: str, era: str) -> None:
    """P2: also by a reset; on a pipe the exit code and the last words come along, and the next call has a new child."""
    async with dock.open(wire, era, retries=0) as (client, peer):
        for act in ("half_close", "half_reset", "hang_up", "kill"):
            with took(most=1.5):
                error = await failure_of(client.call_tool(act))
            assert isinstance(error, ConnectionLost), f"{act}: {error!r}"
            if wire == "stdio":
                code, words = (-9, []) if act in ("half_reset", "kill") else (3, ["fell over", "going down"])
                assert error.exit_code == code, f"{act}: {error.exit_code}"
                if words:
                    assert any(word in "\n".join(error.stderr) for word in words)
            await assert_usable(client)
            assert peer.calls(act) == 1, f"{act} was repeated, and it is not known to be safe"


@ERAS
@pytest.mark.parametrize("wire", ["json", "sse"])
async def test_a_cut_response_harms_no_other_call(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, _):
        for act in ("half_close", "half_reset"):
            error = await harmed(client, client.call_tool(act))
            assert isinstance(error, ConnectionLost), f"{act}: {error!r}"


@ERAS
@WIRES
async def test_half_an_answer_and_silence_ends_with_the_deadline(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, _):
        with took(0.25, 2.0):
            error = await failure_of(client.call_tool("half_stall", timeout=0.3))
        assert isinstance(error, TimedOut), repr(error)
        if wire != "stdio":  # there, whatever follows on the pipe continues the half line
            await assert_usable(client)


@ERAS
@WIRES
async def test_a_slow_answer_is_taken_within_the_deadline_only(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, _):
        assert (await soon(client.call_tool("drip", {"every": 0.002}))).text == "drop"
        with took(0.25, 2.0):
            error = await failure_of(client.call_tool("drip", {"every": 0.05}, timeout=0.3))
        assert isinstance(error, TimedOut), repr(error)


@ERAS
@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_progress_that_is_none_is_ignored(dock: Dock, wire: str, era: str) -> None:
    seen: list[Any] = []
    async with dock.open(wire, era) as (client, _):
        result = await soon(client.call_tool("rude_ticks", on_progress=lambda *told: seen.append(told)))
        assert result.text == "done"
        assert (5.0, None, None) in seen
        assert all(isinstance(told[0], (int, float)) for told in seen)
        await assert_usable(client)


@ERAS
@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_a_broken_progress_callback_harms_nobody(dock: Dock, wire: str, era: str) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("the callback's own fault")

    async with dock.open(wire, era) as (client, _):
        assert (await soon(client.call_tool("ticks", on_progress=broken))).text == "ticked"
        await assert_usable(client)


@ERAS
@pytest.mark.parametrize("check", ["warn", "strict", "off"])
async def test_output_against_its_schema(dock: Dock, era: str, check: str, caplog: pytest.LogCaptureFixture) -> None:
    """P32: warn unless told otherwise; the raw result is always within reach."""
    async with dock.open("json", era, schema_check=check) as (client, _):
        await client.list_tools()
        if check == "strict":
            error = await harmed(client, client.call_tool("liar"))
            assert isinstance(error, errors.InvalidOutput), repr(error)
            assert isinstance(error, RemoteProtocolError)
            assert "liar" in str(error)
            assert error.result.structured == {"n": "many"}
            return
        result = await soon(client.call_tool("liar"))
        assert result.structured == {"n": "many"}
        assert result.raw["structuredContent"] == {"n": "many"}
        warned = [record for record in caplog.records if "liar" in record.getMessage()]
        assert bool(warned) == (check == "warn"), caplog.text


@ERAS
@WIRES
async def test_many_calls_survive_one_bad_one_among_them(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, _):
        good = [asyncio.create_task(client.call_tool("echo", {"text": str(i)})) for i in range(50)]
        bad = [
            asyncio.create_task(client.call_tool(act, timeout=1.0))
            for act in ("garbage", "wrong_id", "list_result", "no_rpc", "bad_utf8")
        ]
        more = [asyncio.create_task(client.call_tool("echo", {"text": str(i)})) for i in range(50)]
        done = await soon(asyncio.gather(*good, *more))
        assert [result.text for result in done] == [str(i) for i in range(50)] * 2
        for error in await soon(asyncio.gather(*bad, return_exceptions=True)):
            assert isinstance(error, (RemoteProtocolError, TimedOut)), repr(error)
