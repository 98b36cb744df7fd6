"""Messages for a client that does not read wait in a queue that is bounded by number and by bytes."""

from __future__ import annotations

import asyncio

from trimaran import Server
from trimaran.transports.bytequeue import ByteQueue
from trimaran.transports.duplex import Duplex


async def test_whoever_puts_waits_while_too_many_bytes_wait() -> None:
    queue = ByteQueue(most=1000, most_bytes=1000)
    await queue.put(b"x" * 1500)  # one always fits
    second = asyncio.ensure_future(queue.put(b"y"))
    third = asyncio.ensure_future(queue.put(b"z" * 10))
    await asyncio.sleep(0)
    assert not second.done()
    assert queue.held_bytes == 1500
    assert await queue.get() == b"x" * 1500
    assert await queue.get() == b"y"
    assert await queue.get() == b"z" * 10
    await asyncio.gather(second, third)
    assert queue.held_bytes == 0


async def test_whoever_puts_waits_while_too_many_messages_wait() -> None:
    queue = ByteQueue(most=2, most_bytes=1000)
    await queue.put(b"1")
    await queue.put(b"2")
    third = asyncio.ensure_future(queue.put(b"3"))
    await asyncio.sleep(0)
    assert not third.done()
    assert [await queue.get() for _ in range(3)] == [b"1", b"2", b"3"]
    await third


async def test_the_end_has_room_in_a_full_queue() -> None:
    queue = ByteQueue(most=100, most_bytes=100)
    for _ in range(4):
        await queue.put(b"x" * 30)
    assert queue.full()
    queue.end()
    kept = [await queue.get() for _ in range(queue.qsize())]
    assert kept[-1] is None
    assert len(kept) >= 3


async def test_notices_for_a_channel_that_is_not_read_are_bounded_in_bytes() -> None:
    """What comes on top is lost, as it is beyond a number of them; one always fits."""
    gate = asyncio.Event()
    written: list[int] = []

    async def write(data: bytes) -> None:
        await gate.wait()
        written.append(len(data))

    duplex = Duplex(Server("x", version="1"), write)
    for _ in range(10):
        duplex.put(b"x" * (3 << 20))
    duplex.put(b"y" * 100)
    gate.set()
    await duplex.close()
    assert written == [3 << 20, 3 << 20, 100]
    duplex.put(b"z" * (20 << 20))
    await duplex.close()
    assert written[-1] == 20 << 20
