"""A server that says too much: memory stays bounded, the call ends, the others do not notice."""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import Any

import pytest
from tests.support.until import PATIENCE, soon, until

from trimaran.errors import CallError, RemoteProtocolError, TimedOut, TooManyPages

from .peers import ERAS, WIRES, Dock, EvilHttp, Exchange, Peak, assert_usable, failure_of, harmed, took

GROWTH = 150.0  # MB


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wire", "era"),
    [("json", "modern"), ("json", "legacy"), ("sse", "modern"), ("sse", "legacy"), ("stdio", "modern")],
)
async def test_an_answer_of_half_a_gigabyte_is_refused_without_holding_it(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era, timeout=2 * PATIENCE) as (client, _):
        await assert_usable(client)
        peak = Peak()
        error = await failure_of(client.call_tool("huge"), 2 * PATIENCE)
        assert isinstance(error, RemoteProtocolError), repr(error)
        assert "bytes" in str(error)
        assert peak.growth < GROWTH, f"grew by {peak.growth:.0f} MB"
        await assert_usable(client)


@ERAS
@WIRES
async def test_the_limit_of_a_message_is_an_option(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era, max_message_bytes=200_000) as (client, _):
        assert (await soon(client.call_tool("echo", {"text": "x" * 190_000}))).text == "x" * 190_000
        error = await harmed(client, client.call_tool("echo", {"text": "x" * 210_000}))
        assert isinstance(error, RemoteProtocolError), repr(error)
        assert "200000" in str(error)
        assert "max_message_bytes" in str(error)


@ERAS
@pytest.mark.slow
async def test_a_compressed_bomb_does_not_unfold(dock: Dock, era: str) -> None:
    """A gigabyte of zeros travels as one megabyte."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    bomb = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + piece * 1024

    async def explode(x: Exchange) -> None:
        await x.stream("application/json", Content_Encoding="gzip")
        for start in range(0, len(bomb), 4096):
            await x.chunk(bomb[start : start + 4096])
        await x.end()

    async with dock.open("json", era, timeout=20.0) as (client, peer):
        assert isinstance(peer, EvilHttp)
        peer.overrides["echo"] = explode
        await assert_usable(client)
        peak = Peak()
        error = await failure_of(client.call_tool("echo"), 25)
        assert isinstance(error, RemoteProtocolError), repr(error)
        assert peak.growth < GROWTH, f"grew by {peak.growth:.0f} MB"
        await assert_usable(client)


@ERAS
async def test_a_stream_without_an_answer_ends_with_the_deadline(dock: Dock, era: str) -> None:
    async with dock.open("sse", era) as (client, peer):
        with took(0.3, 2.5):
            error = await harmed(client, client.call_tool("babble", timeout=0.4))
        assert isinstance(error, TimedOut), repr(error)
        assert peer.calls("babble") == 1


@ERAS
@pytest.mark.slow
@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_ten_megabytes_of_notifications_before_the_answer(dock: Dock, wire: str, era: str) -> None:
    heard = 0

    def hear(method: str, params: Any) -> None:
        nonlocal heard
        heard += method == "notifications/chatter"

    async with dock.open(wire, era, timeout=15.0) as (client, _):
        peak = Peak()
        assert (await soon(client.call_tool("chatter"), 20)).text == "done"
        assert peak.growth < GROWTH, f"grew by {peak.growth:.0f} MB"
    async with dock.open(wire, era, timeout=15.0, on_notification=hear) as (client, _):
        assert (await soon(client.call_tool("chatter", {"n": 1000, "size": 10_000}), 20)).text == "done"
        await until(lambda: heard >= 1000)


@pytest.mark.slow
@pytest.mark.parametrize(("wire", "era"), [("sse", "modern"), ("sse", "legacy"), ("stdio", "modern")])
async def test_a_slow_log_handler_holds_up_nobody(dock: Dock, wire: str, era: str) -> None:
    """Four thousand entries of 50 kB: far more than may be kept for a handler that takes its time over each."""
    handled = 0

    async def slow(entry: Any) -> None:
        nonlocal handled
        handled += 1
        await asyncio.sleep(0.05)

    async with dock.open(wire, era, timeout=20.0, on_log=slow) as (client, _):
        peak = Peak()
        noisy = asyncio.create_task(client.call_tool("logs", {"n": 4000, "pad": 50_000}))
        started = time.monotonic()
        if wire == "sse":  # on a pipe, an answer stands in line behind what was said before it
            await assert_usable(client, 15)
            assert time.monotonic() - started < 15
        assert (await soon(noisy, 25)).text == "done"
        await assert_usable(client)
        assert handled > 0
        assert peak.growth < GROWTH, f"grew by {peak.growth:.0f} MB"
        with took(most=4.0):
            await soon(client.close())


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_what_waits_for_a_slow_handler_is_bounded_by_its_size_too(dock: Dock, wire: str) -> None:
    """Sixty entries of 5 MB, each within every limit, for a handler that is still at the first."""
    free = asyncio.Event()

    async def stuck(entry: Any) -> None:
        await free.wait()

    async with dock.open(wire, "modern", timeout=20.0, on_log=stuck) as (client, _):
        peak = Peak()
        assert (await soon(client.call_tool("logs", {"n": 60, "pad": 5_000_000}), 25)).text == "done"
        assert peak.growth < GROWTH, f"grew by {peak.growth:.0f} MB"


@pytest.mark.slow
async def test_requests_of_a_server_that_reads_no_answers_do_not_pile_up(dock: Dock) -> None:
    """It writes thousands before it reads again: what waits to be answered is bounded."""

    async def sample(ask: Any) -> str:
        return "words" * 100

    most = 0

    async def count() -> None:
        nonlocal most
        while True:
            most = max(most, len(asyncio.all_tasks()))
            await asyncio.sleep(0.005)

    async with dock.open("stdio", "legacy", timeout=25.0, on_sample=sample) as (client, _):
        counting = asyncio.create_task(count())
        assert (await soon(client.call_tool("samples", {"n": 8000}), 25)).text == "done"
        counting.cancel()
        assert most < 1000, f"{most} tasks at once"


@pytest.mark.parametrize("wire", ["sse", "stdio"])
@pytest.mark.parametrize("answering", [True, False], ids=["answered", "refused"])
async def test_a_flood_of_sampling_requests_is_worked_off(dock: Dock, wire: str, answering: bool) -> None:
    at_once = most = 0

    async def sample(ask: Any) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)
        at_once -= 1
        return "words"

    options: dict[str, Any] = {"on_sample": sample} if answering else {}
    async with dock.open(wire, "legacy", timeout=10.0, **options) as (client, peer):
        assert (await soon(client.call_tool("samples", {"n": 500}), 15)).text == "done"
        await assert_usable(client)

        def replies() -> list[dict[str, Any]]:
            return [message for message in peer.messages() if "method" not in message]

        await until(lambda: len(replies()) >= 500, seconds=10)
        for reply in replies():
            if "error" in reply:
                assert reply["error"]["code"] in ((-32603,) if answering else (-32601, -32603))
                assert not answering or "busy" in reply["error"]["message"]
            else:
                assert reply["result"]["content"]["text"] == "words"
        assert most <= 64, "a server decides how many handlers run at once"
        assert not answering or any("result" in reply for reply in replies())


@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_requests_of_a_modern_server_are_never_answered(dock: Dock, wire: str) -> None:
    """protocol.md 7.3: no responses ever sent."""
    asked: list[Any] = []

    async def sample(ask: Any) -> str:
        asked.append(ask)
        return "words"

    async with dock.open(wire, "modern", on_sample=sample) as (client, peer):
        assert (await soon(client.call_tool("samples", {"n": 50}))).text == "done"
        await assert_usable(client)
        assert not asked
        assert [message for message in peer.messages() if "method" not in message] == []


# --- lists -----------------------------------------------------------------------------------------------------------


@ERAS
@WIRES
async def test_an_endless_list_is_cut_off(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era, lists="endless", timeout=20.0) as (client, peer):
        error = await failure_of(client.list_tools_all(max_pages=40))
        assert isinstance(error, TooManyPages), repr(error)
        assert "40" in str(error)
        assert len(peer.messages("tools/list")) == 40
        await assert_usable(client)


async def test_an_endless_list_is_cut_off_by_default_too(dock: Dock) -> None:
    async with dock.open("json", "modern", lists="endless", timeout=20.0) as (client, peer):
        error = await failure_of(client.list_tools_all(), 20)
        assert isinstance(error, TooManyPages), repr(error)
        assert len(peer.messages("tools/list")) == 1000


async def test_all_pages_of_a_list_have_one_deadline(dock: Dock) -> None:
    """Whose rule: ours. A thousand pages that each come just in time would take half an hour with a timeout of 2."""
    async with dock.open("json", "modern", lists="endless", timeout=20.0, max_timeout=0.2) as (client, peer):
        error = await failure_of(client.list_tools_all(max_pages=1_000_000))
        assert isinstance(error, TimedOut), repr(error)
        assert "0.2 s" in str(error)
        assert peer.messages("tools/list")
        assert await client.list_tools()


@ERAS
@WIRES
@pytest.mark.parametrize("lists", ["loop", "ring"])
async def test_a_cursor_that_comes_again_is_noticed(dock: Dock, wire: str, era: str, lists: str) -> None:
    async with dock.open(wire, era, lists=lists) as (client, peer):
        error = await failure_of(client.list_tools_all())
        assert isinstance(error, RemoteProtocolError), repr(error)
        assert "cursor" in str(error)
        assert len(peer.messages("tools/list")) < 6
        await assert_usable(client)


@ERAS
async def test_a_call_ends_in_time_however_long_the_list_of_tools_is(dock: Dock, era: str) -> None:
    """Its schema may be looked up first; that time is the call's own."""
    async with dock.open("json", era, lists="endless") as (client, peer):
        assert isinstance(peer, EvilHttp)

        async def slow(x: Exchange) -> None:
            await asyncio.sleep(0.3)
            await peer.honest(x)

        peer.overrides["tools/list"] = slow
        with took(most=2.0):
            try:
                await soon(client.call_tool("add", {"a": 2, "b": 3}, timeout=0.7))
            except TimedOut:
                pass


@ERAS
@pytest.mark.parametrize("lists", ["endless", "loop"])
async def test_a_tool_that_is_not_listed_is_not_looked_for_at_each_call(dock: Dock, era: str, lists: str) -> None:
    async with dock.open("json", era, lists=lists) as (client, peer):
        for _ in range(3):
            error = await failure_of(client.call_tool("nobody"))
            assert isinstance(error, CallError), repr(error)
        assert len(peer.messages("tools/list")) <= 60


@ERAS
@pytest.mark.parametrize("lists", ["malformed", "null", "empty_cursor"])
async def test_a_sloppy_list_is_used_as_far_as_it_goes(
    dock: Dock, era: str, lists: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with dock.open("json", era, lists=lists) as (client, peer):
        found = await soon(client.list_tools_all())
        names = [tool.name for tool in found]
        assert {"add", "liar", "noisy"} <= set(names)
        if lists == "malformed":
            assert len([r for r in caplog.records if "tools/list" in r.getMessage()]) >= 3, caplog.text
        if lists == "empty_cursor":
            assert [m.get("params", {}).get("cursor") for m in peer.messages("tools/list")] == [None, ""]


@ERAS
@pytest.mark.parametrize("lists", ["nested", "odd_cursor"])
async def test_a_list_that_is_none_is_refused(dock: Dock, era: str, lists: str) -> None:
    async with dock.open("json", era, lists=lists) as (client, _):
        error = await failure_of(client.list_tools())
        assert isinstance(error, RemoteProtocolError), repr(error)
        assert "tools/list" in str(error)
        await assert_usable(client)


# --- rounds ----------------------------------------------------------------------------------------------------------


async def accept(ask: Any) -> Any:
    return ask.accept({"name": "Ada"})


@WIRES
@pytest.mark.parametrize("act", ["ask_forever", "shed_forever"])
async def test_a_call_that_asks_forever_is_given_up(dock: Dock, wire: str, act: str) -> None:
    from trimaran.errors import RoundsExceeded

    async with dock.open(wire, "modern", on_elicit=accept, max_rounds=4) as (client, peer):
        error = await harmed(client, client.call_tool(act))
        assert isinstance(error, RoundsExceeded), repr(error)
        assert "4" in str(error)
        assert 4 <= peer.calls(act) <= 5


@WIRES
@pytest.mark.parametrize("act", ["ask_nothing", "ask_wrongly", "ask_oddly"])
async def test_a_question_that_is_none_is_refused(dock: Dock, wire: str, act: str) -> None:
    async with dock.open(wire, "modern", on_elicit=accept) as (client, peer):
        error = await harmed(client, client.call_tool(act))
        assert isinstance(error, RemoteProtocolError), repr(error)
        words = {"ask_nothing": "input_required", "ask_wrongly": "inputRequests", "ask_oddly": "mind/read"}
        assert words[act] in str(error), str(error)
        assert peer.calls(act) == 1


@WIRES
async def test_a_question_nobody_can_answer_is_an_error_that_says_so(dock: Dock, wire: str) -> None:
    """The server asked for what was not declared: its fault, and the call must not hang."""
    async with dock.open(wire, "modern") as (client, _):
        error = await harmed(client, client.call_tool("ask"))
        assert isinstance(error, RemoteProtocolError), repr(error)
        assert "elicit" in str(error)


@WIRES
async def test_a_state_of_a_megabyte_comes_back_as_it_was(dock: Dock, wire: str) -> None:
    async with dock.open(wire, "modern") as (client, _):
        assert (await soon(client.call_tool("big_state"))).text == "the same"


@ERAS
@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_a_handler_that_fails_ends_its_call_only(dock: Dock, wire: str, era: str) -> None:
    async def broken(ask: Any) -> Any:
        raise ValueError("the handler's own fault")

    async with dock.open(wire, era, on_elicit=broken, timeout=3.0) as (client, _):
        beside = asyncio.create_task(client.call_tool("later"))
        try:
            result = await soon(client.call_tool("ask"))
            assert era == "legacy"
            assert result.text == "nobody"
        except Exception as error:
            assert era == "modern", repr(error)
            assert not isinstance(error, (BaseExceptionGroup, TimedOut))
        await soon(client.call_tool("release"))
        assert (await soon(beside)).text == "late"
        await assert_usable(client)


async def test_call_errors_stay_call_errors_under_any_status(dock: Dock) -> None:
    """protocol.md 8.2: the client must parse a JSON-RPC body under any status."""
    for status in (200, 400, 401, 404, 409, 418, 500, 503):
        async with dock.open("json", "modern") as (client, peer):
            assert isinstance(peer, EvilHttp)

            async def refuse(x: Exchange, status: int = status) -> None:
                from .evil import failure

                await x.reply(failure(x.id, -32050, "not today"), status)

            peer.overrides["echo"] = refuse
            error = await failure_of(client.call_tool("echo"))
            if status == 401:
                continue
            assert isinstance(error, CallError), f"{status}: {error!r}"
            assert error.code == -32050
