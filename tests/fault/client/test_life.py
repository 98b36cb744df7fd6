"""The life of a client: entered, used and closed from any task, in any order; nothing is left when it is over (P6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran import Client, Context, Server, connect, open_client
from trimaran.errors import CallCancelled, Closed, ConnectionLost, Error, NotReady, TimedOut

from .peers import (
    ERAS,
    LAZY,
    WIRES,
    Dock,
    EvilHttp,
    assert_usable,
    evil_command,
    failure_of,
    sockets,
    took,
    turns_until_in_flight,
    wrapped,
)


def everything(client: Client) -> list[Any]:
    """One of each kind of call."""
    return [
        client.list_tools,
        client.list_tools_all,
        lambda: client.call_tool("add", {"a": 1, "b": 2}),
        lambda: client.request("tools/list"),
        lambda: client.read_resource("x://y"),
        lambda: client.get_prompt("p"),
        client.ping,
    ]


@ERAS
@WIRES
async def test_a_client_that_is_not_open_says_so(dock: Dock, wire: str, era: str) -> None:
    peer = await dock.http(era, wire)
    client = connect(evil_command(era) if wire == "stdio" else peer.url)
    assert client.state == "new"
    for call in everything(client):
        error = await failure_of(call())
        assert isinstance(error, NotReady), repr(error)
    assert peer.seen == []
    await soon(client.close())
    assert client.state == "closed"
    assert isinstance(await failure_of(client.list_tools()), Closed)


@ERAS
@WIRES
async def test_a_client_that_is_closed_says_so(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, _):
        await assert_usable(client)
        await soon(client.close())
        assert client.state == "closed"
        for call in everything(client):
            error = await failure_of(call())
            assert isinstance(error, Closed), repr(error)
        await soon(client.close())
        assert client.pid is None


@ERAS
@WIRES
async def test_closing_ends_the_calls_in_flight_at_once(dock: Dock, wire: str, era: str) -> None:
    """From another task than any of them."""
    async with dock.open(wire, era, timeout=20.0) as (client, peer):
        calls = [asyncio.create_task(client.call_tool("never")) for _ in range(20)]
        await until(lambda: peer.calls("never") == 20, "the server has them all")
        with took(most=3.0):
            await asyncio.create_task(soon(client.close()))
        with took(most=0.5):
            ended = await soon(asyncio.gather(*calls, return_exceptions=True))
        for error in ended:
            assert isinstance(error, (Closed, ConnectionLost)), repr(error)


@ERAS
@WIRES
async def test_a_client_may_be_entered_in_one_task_and_left_in_another(dock: Dock, wire: str, era: str) -> None:
    """P6."""
    peer = await dock.http(era, wire)
    target: Any = evil_command(era) if wire == "stdio" else peer.url
    manager = connect(target)
    client = await asyncio.create_task(manager.__aenter__())
    await asyncio.create_task(assert_usable(client))
    await assert_usable(client)
    await asyncio.create_task(manager.__aexit__(None, None, None))
    assert client.state == "closed"


@WIRES
async def test_clients_may_be_closed_in_any_order(dock: Dock, wire: str) -> None:
    """P6: first in, first out."""
    peer = await dock.http("modern", wire)
    target: Any = evil_command() if wire == "stdio" else peer.url
    clients = [await soon(open_client(target)) for _ in range(4)]
    for client in clients:
        await soon(client.close())
        for other in clients[clients.index(client) + 1 :]:
            await assert_usable(other)


@ERAS
@WIRES
async def test_close_may_be_called_by_many_at_once(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, _):
        await soon(asyncio.gather(*(client.close() for _ in range(10))))
        assert client.state == "closed"


@WIRES
async def test_closing_while_opening_ends_both(dock: Dock, wire: str) -> None:
    peer = await dock.http("modern", wire)
    peer.overrides["POST"] = lambda x: x.silence()
    target: Any = evil_command(start="silent") if wire == "stdio" else peer.url
    client = connect(target, grace=0.2)
    opening = asyncio.create_task(client.__aenter__())
    await until(lambda: client.state == "connecting", "it is under way")
    await asyncio.sleep(0.05)
    with took(most=3.0):
        await soon(client.close())
    with pytest.raises(Error):
        await soon(opening)


@WIRES
async def test_a_failed_opening_leaves_nothing(dock: Dock, wire: str, free_port: int) -> None:
    before = sockets()
    target: Any = ["no-such-command"] if wire == "stdio" else f"http://127.0.0.1:{free_port}/mcp"
    client = connect(target)
    for _ in range(2):
        error = await failure_of(client.__aenter__())
        assert isinstance(error, Error)
    await soon(client.close())
    await until(lambda: not sockets() - before, "no socket is left")


@ERAS
@WIRES
async def test_states_are_told_in_order(dock: Dock, wire: str, era: str) -> None:
    told: list[tuple[str, str, Any]] = []

    def hear(event: Any) -> None:
        told.append((event.previous, event.state, event.error))

    async with dock.open(wire, era, on_state=hear, retries=0) as (client, _):
        await assert_usable(client)
        await failure_of(client.call_tool("kill"))
        await assert_usable(client)
    await until(lambda: bool(told) and told[-1][1] == "closed", "the end was told")
    chain = [told[0][0], *(state for _, state, _ in told)]
    assert [previous for previous, _, _ in told] == chain[:-1], told
    assert chain[:3] == ["new", "connecting", "ready"], chain
    if wire == "stdio":
        assert chain[3:] == ["reconnecting", "ready", "closed"], chain
        assert isinstance(told[2][2], ConnectionLost)


@WIRES
async def test_a_state_handler_that_fails_harms_nobody(dock: Dock, wire: str) -> None:
    def broken(event: Any) -> None:
        raise ValueError("the handler's own fault")

    async with dock.open(wire, "modern", on_state=broken) as (client, _):
        await assert_usable(client)


# --- giving up -------------------------------------------------------------------------------------------------------


@ERAS
@WIRES
async def test_a_call_can_be_cancelled_by_its_id(dock: Dock, wire: str, era: str) -> None:
    """R196. The server is told: by notice, or over modern HTTP by the end of the stream."""
    async with dock.open(wire, era) as (client, peer):
        call = asyncio.create_task(client.call_tool("never"))
        await until(lambda: peer.calls("never") == 1, "the server has it")
        (id,) = client.requests
        client.cancel(id, reason="no longer wanted")
        error = await failure_of(wait_for(call))
        assert isinstance(error, CallCancelled), repr(error)
        assert "no longer wanted" in str(error)
        await assert_told(peer, wire, era, id)
        await assert_usable(client)
        client.cancel(id)
        client.cancel(987654)


@ERAS
@WIRES
@pytest.mark.parametrize("way", ["task", "deadline"])
async def test_the_server_is_told_that_nobody_waits_any_more(dock: Dock, wire: str, era: str, way: str) -> None:
    """R195."""
    async with dock.open(wire, era) as (client, peer):
        call = asyncio.create_task(client.call_tool("never", timeout=0.3 if way == "deadline" else 10))
        await until(lambda: peer.calls("never") == 1, "the server has it")
        id = peer.messages("tools/call")[-1]["id"]
        if way == "task":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await soon(call)
        else:
            assert isinstance(await failure_of(wait_for(call)), TimedOut)
        await assert_told(peer, wire, era, id)
        await assert_usable(client)


async def wait_for(task: asyncio.Task[Any]) -> Any:
    return await task


async def assert_told(peer: Any, wire: str, era: str, id: Any) -> None:
    if wire == "stdio" or era == "legacy":
        await until(
            lambda: [m["params"]["requestId"] for m in peer.messages("notifications/cancelled")] == [id],
            "the server was told",
            3,
        )
    else:
        assert isinstance(peer, EvilHttp)
        await until(lambda: any(x.tool == "never" and x.aborted for x in peer.seen), "the stream was ended")
        assert peer.messages("notifications/cancelled") == []


# --- deadlines -------------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_progress_extends_the_deadline(dock: Dock, wire: str, era: str) -> None:
    """P29."""
    seen: list[Any] = []
    async with dock.open(wire, era) as (client, _):
        call = client.call_tool(
            "ticks", {"n": 6, "every": 0.2}, timeout=0.6, on_progress=lambda *told: seen.append(told)
        )
        with took(1.1, 4.0):
            assert (await soon(call)).text == "ticked"
        assert seen == [(float(i), 6.0, None) for i in range(1, 7)]


@ERAS
@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_progress_does_not_extend_past_the_hard_maximum(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, _):
        with took(0.7, 2.0):
            error = await failure_of(
                client.call_tool("ticks", {"n": 15, "every": 0.1}, timeout=0.5, max_timeout=0.8, on_progress=print)
            )
        assert isinstance(error, TimedOut), repr(error)
        assert "0.8" in str(error), str(error)


@ERAS
@WIRES
async def test_the_hard_maximum_holds_without_progress_too(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, _):
        with took(0.2, 2.0):
            error = await failure_of(client.call_tool("never", timeout=5.0, max_timeout=0.3))
        assert isinstance(error, TimedOut), repr(error)


@pytest.mark.parametrize("wire", ["sse", "stdio"])
@pytest.mark.parametrize("method", ["roots/list", "ping", "no/such"])
async def test_a_server_that_keeps_asking_does_not_hold_off_the_deadline(dock: Dock, wire: str, method: str) -> None:
    """The clock may stand still while a person answers, but not for as long as the server likes."""
    async with dock.open(wire, "legacy", roots=["/tmp"]) as (client, _):
        with took(0.4, 2.5):
            error = await failure_of(client.call_tool("pester", {"method": method}, timeout=0.5, max_timeout=1.0))
        assert isinstance(error, TimedOut), repr(error)


async def test_a_notice_to_a_server_that_does_not_read_ends_too(dock: Dock) -> None:
    client = connect(wrapped(LAZY.replace("MOST", "1")), timeout=0.5, grace=0.2)
    await soon(client.__aenter__())
    try:
        with took(most=4.0):
            for _ in range(5):
                try:
                    await soon(client.notify("notifications/chatter", {"pad": "x" * 100_000}))
                except Error as error:
                    assert isinstance(error, TimedOut), repr(error)
                    break
    finally:
        await soon(client.close())


@ERAS
@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_a_client_may_be_closed_by_its_own_handler(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era, on_elicit=lambda ask: None, timeout=8.0) as (spare, _):
        await assert_usable(spare)
    box: list[Client] = []

    async def leave(ask: Any) -> Any:
        await box[0].close()
        return ask.decline()

    async with dock.open(wire, era, on_elicit=leave, timeout=8.0) as (client, _):
        box.append(client)
        with took(most=4.0):
            error = await failure_of(client.call_tool("ask"))
        assert isinstance(error, (Closed, ConnectionLost)), repr(error)
        await until(lambda: client.state == "closed", "it is closed")


@ERAS
@pytest.mark.parametrize("wire", ["json", "sse"])
async def test_a_deadline_covers_the_wait_for_a_new_connection(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era, retries=0) as (client, peer):
        assert isinstance(peer, EvilHttp)
        await peer.stop()
        with took(most=2.5):
            await failure_of(client.call_tool("add", {"a": 1, "b": 2}, timeout=1.0))


# --- ping ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["json", "stdio"])
async def test_pings_that_fail_end_the_connection_and_a_new_one_is_made(dock: Dock, wire: str) -> None:
    """R199: opt-in; so many in a row."""
    states: list[str] = []
    options: dict[str, Any] = {
        "ping_interval": 1.01,  # a ping may take as long, and 5 s at most
        "ping_failures": 2,
        "timeout": 0.3,
        "grace": 0.2,
        "on_state": lambda event: states.append(event.state),
    }
    journal = dock.journal()
    peer = await dock.http("legacy")
    if wire == "stdio":
        client = connect(evil_command("legacy", journal=journal.path, ping="0"), **options)
    else:
        peer.overrides["ping"] = lambda x: x.silence()
        client = connect(peer.url, **options)
    async with client:
        await until(lambda: "reconnecting" in states, "the pings failed", 10)
        await until(lambda: states[-1] == "ready", "it is ready again", 10)
        await soon(client.call_tool("add", {"a": 2, "b": 3}, timeout=5.0))
        seen = journal if wire == "stdio" else peer
        assert len(seen.messages("ping")) >= 2
        assert len(seen.messages("initialize")) >= 2


async def test_pings_that_succeed_change_nothing(dock: Dock) -> None:
    states: list[str] = []
    async with dock.open("stdio", "legacy", ping_interval=0.05, on_state=lambda event: states.append(event.state)) as (
        client,
        peer,
    ):
        await until(lambda: len(peer.messages("ping")) >= 4, "it pings")
        await assert_usable(client)
        assert states == ["connecting", "ready"]


# --- in memory -------------------------------------------------------------------------------------------------------


def harbour() -> Server:
    server = Server("memory", version="1")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool(timeout=600)
    async def never(ctx: Context) -> str:
        await asyncio.Event().wait()
        return "never"

    return server


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_the_same_holds_in_memory(era: Any) -> None:
    client = connect(harbour(), era=era, timeout=5.0)
    assert isinstance(await failure_of(client.list_tools()), NotReady)
    await soon(client.__aenter__())
    assert (await soon(client.call_tool("add", {"a": 1, "b": 2}))).data == 3
    with took(0.1, 2.0):
        assert isinstance(await failure_of(client.call_tool("never", timeout=0.2)), TimedOut)
    call = asyncio.create_task(client.call_tool("never"))
    await turns_until_in_flight(client)
    client.cancel(client.requests[0])
    assert isinstance(await failure_of(wait_for(call)), CallCancelled)
    call = asyncio.create_task(client.call_tool("never"))
    await turns_until_in_flight(client)
    await asyncio.create_task(soon(client.close()))
    assert isinstance(await failure_of(wait_for(call)), (Closed, ConnectionLost))
    assert isinstance(await failure_of(client.list_tools()), Closed)
