"""The server that the fault tests run in a process of its own: `python faulty_server.py stdio | http [option=value ...]`.

Over HTTP it prints its port on stdout, as one line, once it listens.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

from trimaran import Context, Server

OPTIONS: dict[str, Any] = {k: json.loads(v) for k, _, v in (a.partition("=") for a in sys.argv[2:])}
PRINT_EARLY = OPTIONS.pop("print_early", False)
RUN = {k: OPTIONS.pop(k) for k in ("legacy", "watch_parent") if k in OPTIONS}

server = Server("fault", version="1", **OPTIONS)
http: Any = None
ticked = 0
ended: list[str] = []


@server.tool(inline=True)
def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def echo(text: str) -> str:
    return text


@server.resource("memo://{name}")
async def memo(name: str) -> str:
    return name


@server.prompt
async def greet(name: str) -> str:
    return f"Hello {name}"


@server.tool
async def ticks(n: int, ctx: Context, size: int = 100) -> int:
    "Report progress n times, waiting for each to leave."
    global ticked
    ticked = 0
    text = "x" * size
    for i in range(n):
        await ctx.progress(i + 1, message=text)
        ticked += 1
        if i % 100 == 0:
            await asyncio.sleep(0)
    return ticked


@server.tool
async def few(n: int, ctx: Context) -> int:
    for i in range(min(n, 5)):
        await ctx.progress(i + 1)
    return 1


@server.tool
def shouts(n: int, ctx: Context, size: int = 100) -> int:
    "The same from a thread, which cannot wait."
    global ticked
    ticked = 0
    text = "x" * size
    for i in range(n):
        if ctx.cancelled:
            break
        ctx.progress(i + 1, message=text)
        ticked += 1
    return ticked


@server.tool
async def changes(n: int, uris: int = 0) -> int:
    "Announce n changes."
    for i in range(n):
        if uris:
            server.notify.resource_updated(f"memo://{'u' * 400}/{i % uris}", pad="p" * 200)
        else:
            server.notify.tools_changed()
        if i % 50 == 0:
            await asyncio.sleep(0)
    return n


@server.tool(timeout=600)
async def nap(seconds: float) -> str:
    try:
        await asyncio.sleep(seconds)
        return "rested"
    finally:
        ended.append("nap")


@server.tool(timeout=600)
async def noisy_nap(seconds: float, ctx: Context) -> str:
    "Streams first, then takes its time."
    await ctx.progress(1)
    await asyncio.sleep(seconds)
    await ctx.progress(2)
    return "rested"


@server.tool(timeout=600)
def block() -> str:
    "Never ends, and cannot be told to."
    threading.Event().wait()
    return "never"


@server.tool
async def leave(way: str) -> str:
    "Exits where it should raise."
    if way == "late":
        await asyncio.sleep(0.01)
    sys.exit(3)


@server.tool
def leave_thread(way: str) -> str:
    sys.exit(3)


@server.tool(inline=True)
def gauges() -> dict[str, Any]:
    "What the server holds right now."
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "sessions": 0 if server.sessions is None else len(server.sessions),
        "listeners": len(server.runtime.changes),
        "flights": 0 if http is None else len(http.engine.running_calls),
        "ticked": ticked,
        "ended": len(ended),
    }


@server.tool(inline=True)
def pollute(way: str) -> str:
    text = f"pollution by {way}"
    if way == "print":
        print(text, flush=True)
    elif way == "write":
        os.write(1, text.encode() + b"\n")
    elif way == "stdout_buffer":
        sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()
    elif way == "dunder":
        assert sys.__stdout__ is not None
        sys.__stdout__.write(text + "\n")
        sys.__stdout__.flush()
    elif way == "puts":
        libc = ctypes.CDLL(None)
        libc.puts(text.encode())
        libc.printf(b"%s\n", text.encode())
        libc.fflush(None)
    elif way == "child":
        subprocess.run(["/bin/echo", text], check=True)
    elif way == "child_stdin":
        subprocess.run(["/bin/cat"], check=True, timeout=5)
    elif way == "stderr":
        line = "e" * 1023 + "\n"
        for _ in range(10 * 1024):
            sys.stderr.write(line)
    elif way == "atexit":
        atexit.register(lambda: (print(text, flush=True), os.write(1, text.encode())))
    elif way == "libc_atexit":
        ctypes.CDLL(None).printf(b"%s\n", text.encode())  # stays in libc's buffer until exit
    else:
        raise ValueError(way)
    return way


def main() -> None:
    if PRINT_EARLY:
        print("pollution before run")
        threading.Thread(target=lambda: (time.sleep(1), print("pollution late", flush=True)), daemon=True).start()
    if sys.argv[1] == "stdio":
        server.run(**RUN)
        return

    def ready(made: Any) -> None:
        global http
        http = made
        print(made.port, flush=True)

    server.run("http", port=0, on_ready=ready, **RUN)


if __name__ == "__main__":
    main()
