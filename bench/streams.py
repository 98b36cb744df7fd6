"""Hold many `subscriptions/listen` streams open, in a process of its own, and say what reaches them.

Driven by lines on stdin, answered by one JSON line each:

    (start)  opens all streams, waits for every acknowledgement        {"acked": 10000, "seconds": 2.1}
    poke     calls the `poke` tool, waits for the change               {"reached": 10000, "seconds": 0.2}
    watch    answers at once, {"watching": 10000}; then, once all streams have ended (the bench sends SIGTERM),
             {"completed": 1000, "clean": 1000, "dropped": 0, "seconds": 0.4}

`poke 8001` calls the tool of the server on that port, another process than the one that has the streams.
`completed` streams got the final result event; `clean` ones also saw the HTTP body end properly; the rest were dropped.
`Holder` is the bench's end of that conversation.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, cast

import messages
import procs
import uvloop

ACK = b"notifications/subscriptions/acknowledged"
CHANGED = b"notifications/tools/list_changed"
RESULT = b'"result":'
ERROR = b'"error":'
BODY_END = b"0\r\n\r\n"
OPENING_AT_ONCE = 128  # well under any server's accept backlog
PATIENCE = 240  # seconds for the slowest step: a rival opening 10,000 streams
BUFFER_LIMIT = 65_536


class Listener(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.request = request
        self.seen = b""
        self.acked: asyncio.Future[None] = loop.create_future()
        self.changed: asyncio.Future[float] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        cast("asyncio.Transport", transport).write(self.request)

    def data_received(self, data: bytes) -> None:
        self.seen = (self.seen + data)[-BUFFER_LIMIT:]
        if not self.acked.done():
            if not self.seen.startswith(b"HTTP/1.1 200"):
                self.acked.set_exception(RuntimeError(f"listen answered {self.seen[:120]!r}"))
            elif ACK in self.seen:
                self.acked.set_result(None)
            elif ERROR in self.seen:
                self.acked.set_exception(RuntimeError(f"listen answered {self.seen[self.seen.find(ERROR) :][:120]!r}"))
        if not self.changed.done() and CHANGED in self.seen:
            self.changed.set_result(time.perf_counter())
        if not self.ended.done() and self.seen.endswith(BODY_END):
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self.acked, self.changed):
            if not waiting.done():
                waiting.set_exception(exc or ConnectionError("the stream was closed"))
                waiting.exception()  # read here: nobody may be waiting
        if not self.ended.done():
            self.ended.set_result(None)

    def rearm(self) -> None:
        """Wait for another change."""
        if self.changed.done() and not self.ended.done():
            self.changed = asyncio.get_running_loop().create_future()
            self.seen = self.seen[self.seen.rfind(CHANGED) + len(CHANGED) :]

    @property
    def is_completed(self) -> bool:
        return RESULT in self.seen

    @property
    def is_clean(self) -> bool:
        return self.is_completed and self.seen.endswith(BODY_END)


class Crowd:
    def __init__(self, port: int, count: int) -> None:
        self.port = port
        params = {"notifications": {"toolsListChanged": True}}
        template = messages.http_template(port, "subscriptions/listen", params, era="modern")
        self.listeners = [Listener(template.fill(messages.FIRST_ID + number)) for number in range(count)]

    async def open(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        gate = asyncio.Semaphore(OPENING_AT_ONCE)

        async def start(listener: Listener) -> None:
            async with gate:
                await loop.create_connection(lambda: listener, "127.0.0.1", self.port)
                await listener.acked

        started = time.perf_counter()
        outcomes = await asyncio.gather(*map(start, self.listeners), return_exceptions=True)
        failures = [outcome for outcome in outcomes if outcome is not None]
        answer: dict[str, Any] = {"acked": len(outcomes) - len(failures), "seconds": time.perf_counter() - started}
        return answer | ({"failure": str(failures[0])} if failures else {})

    async def poke(self, port: int) -> dict[str, Any]:
        for listener in self.listeners:
            listener.rearm()
        params = {"name": "poke", "arguments": {}}
        request = messages.http_template(port, "tools/call", params, era="modern").fill(messages.FIRST_ID)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        started = time.perf_counter()
        writer.write(request)
        outcomes = await asyncio.gather(*(one.changed for one in self.listeners), return_exceptions=True)
        times = [outcome for outcome in outcomes if isinstance(outcome, float)]
        head = await reader.readuntil(b"\r\n")
        writer.close()
        if not head.startswith(b"HTTP/1.1 200") or not times:
            return {"reached": len(times), "failure": f"poke answered {head!r}"}
        return {"reached": len(times), "seconds": max(times) - started}

    async def watch(self) -> dict[str, Any]:
        started = time.perf_counter()
        await asyncio.gather(*(one.ended for one in self.listeners))
        return {
            "completed": sum(one.is_completed for one in self.listeners),
            "clean": sum(one.is_clean for one in self.listeners),
            "dropped": sum(not one.is_completed for one in self.listeners),
            "seconds": time.perf_counter() - started,
        }


async def converse(port: int, count: int) -> None:
    async def bounded(step: Any) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                say(await step)
        except TimeoutError:
            say({"failure": f"not done after {PATIENCE} s"})

    crowd = Crowd(port, count)
    await bounded(crowd.open())
    loop = asyncio.get_running_loop()
    while command := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if command.startswith("poke"):
            await bounded(crowd.poke(int(command.removeprefix("poke") or port)))
        elif command == "watch":
            say({"watching": count})
            await bounded(crowd.watch())


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


class Holder(procs.Conversation):
    """The process above, as the bench sees it."""

    def __init__(self, python: Path, port: int, count: int) -> None:
        super().__init__([python, __file__, "--port", str(port), "--count", str(count)])

    def answer(self, seconds: float = PATIENCE + 10) -> dict[str, Any]:
        """Return the next JSON line; one with `failure` raises."""
        answer: dict[str, Any] = json.loads(self.receive(seconds))
        if "failure" in answer:
            raise procs.UnavailableError(answer["failure"])
        return answer

    def poke(self, count: int, port: int | None = None) -> float:
        """Return the seconds that a change takes to reach all of so many streams."""
        self.send(b"poke\n" if port is None else b"poke %d\n" % port)
        poked = self.answer()
        if poked["reached"] != count:
            raise procs.UnavailableError(f"the change reached only {poked['reached']} of {count} streams")
        return poked["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    options = parser.parse_args()
    procs.raise_file_limit()
    uvloop.run(converse(options.port, options.count))


if __name__ == "__main__":
    main()
