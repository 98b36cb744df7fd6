"""Try each behaviour through each proxy, and write the table of docs/guides/proxying.md.

    python -m tests.world.proxies [NAME,...]

Every proxy is started as its documentation says, before an upstream of 2026-07-28 alone (ours) and one of 2025-11-25 alone (the
official SDK 1.28). Our client calls through it in each era. A proxy that stands before commands gets the upstream on stdio, the
others over HTTP. What does not happen within some seconds does not happen. Results of a part of the proxies replace theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.support.ports import find_port
from tests.support.program import listens

from trimaran import Client, connect
from trimaran.errors import Error

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "guides" / "proxying.md"
BEGIN, END = "<!-- proxies: begin -->", "<!-- proxies: end -->"
LIMIT = 6.0  # seconds for a behaviour to show
START_LIMIT = 60.0  # seconds for a proxy to open its port
RECOVERY_LIMIT = 20.0  # seconds from the death of the upstream to the next answer

Era = Literal["modern", "legacy"]
ERAS: tuple[Era, ...] = ("modern", "legacy")
SHORT = {"modern": "new", "legacy": "old"}
BEHAVIOURS = ("progress", "cancellation", "list changes", "elicitation")


@dataclass(frozen=True)
class Proxy:
    key: str
    label: str
    prefix: str = ""
    is_before_http: bool = False

    def command(self, port: int, upstream: str) -> list[str]:
        script = ROOT / "bench" / "servers"
        if self.key == "gateway":
            return [sys.executable, str(script / "trimaran_gateway.py"), "--port", str(port), "--upstream", upstream]
        if self.key == "fastmcp":
            python = ROOT / ".tools" / "peers" / "fastmcp" / "bin" / "python"
            return [str(python), str(script / "fastmcp_proxy.py"), "--port", str(port), "--upstream", upstream]
        return [sys.executable, str(script / "other_proxy.py"), self.key, "--port", str(port), "--upstream", upstream]


PROXIES = (
    Proxy("trimaran", "`trimaran serve -- COMMAND`"),
    Proxy("gateway", "`trimaran gateway`", "bench_", is_before_http=True),
    Proxy("fastmcp", "FastMCP 4.1.2, `create_proxy`", is_before_http=True),
    Proxy("mcp-proxy", "mcp-proxy 0.13 (PyPI)"),
    Proxy("npm-mcp-proxy", "mcp-proxy 6.7 (npm)"),
    Proxy("supergateway", "supergateway 4, stateful"),
    Proxy("contextforge", "ContextForge 1.0.7", "bench-", is_before_http=True),
)


class Stage:
    """A proxy, and the upstream behind it."""

    def __init__(self, proxy: Proxy, far: Era, folder: Path) -> None:
        self.proxy = proxy
        self.folder = folder
        self.ledger = folder / "ledger"
        self.port = find_port()
        self._upstream_port = find_port()
        python = ROOT / ".tools" / "peers" / "sdk-1.28" / "bin" / "python"
        script = [str(python), str(HERE / "old_server.py")]
        if far == "modern":
            script = [sys.executable, str(HERE / "new_server.py")]
        self._command = [*script, str(self.ledger)]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._upstream: subprocess.Popen[bytes] | None = None

    def _spawn(self, command: list[str], **more: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **more},
                cwd=ROOT / "bench" / "servers",
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    async def start(self) -> None:
        if self.proxy.is_before_http:
            await self.start_upstream()
        url = f"http://127.0.0.1:{self._upstream_port}/mcp"
        self._spawn(self.proxy.command(self.port, url), BENCH_COMMAND=shlex.join(self._command), BENCH_STREAMS="1")
        await _wait(lambda: listens(self.port), START_LIMIT)
        await asyncio.sleep(1.0)  # some open their port before they are ready

    async def start_upstream(self) -> None:
        self._upstream = self._spawn([*self._command, str(self._upstream_port)])
        await _wait(lambda: listens(self._upstream_port), START_LIMIT)

    async def revive(self) -> None:
        """Start an upstream that has died; a proxy before a command does that by itself."""
        if self._upstream is not None:
            self._upstream.kill()  # the call that was to end it may not have got through
            await asyncio.to_thread(self._upstream.wait)
            await self.start_upstream()

    def stop(self) -> None:
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @contextlib.asynccontextmanager
    async def client(self, near: Era) -> AsyncIterator[Client]:
        def answer(question: Any) -> Any:
            return question.accept({"name": "Ann"})

        async with connect(
            f"http://127.0.0.1:{self.port}/mcp", era=near, on_elicit=answer, timeout=LIMIT, connect_timeout=LIMIT
        ) as client:
            yield client

    def name(self, tool: str) -> str:
        return self.proxy.prefix + tool

    def words(self) -> str:
        return self.ledger.read_text() if self.ledger.exists() else ""


async def _wait(is_so: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError
        await asyncio.sleep(0.05)


async def progress(stage: Stage, client: Client) -> bool:
    reports: list[float] = []
    result = await client.call_tool(stage.name("slow"), on_progress=lambda value, total, message: reports.append(value))
    return result.text == "done" and reports == [1, 2, 3]


async def cancellation(stage: Stage, client: Client) -> bool:
    before = stage.words().count("cancelled")
    starts = stage.words().count("started")
    call = asyncio.ensure_future(client.call_tool(stage.name("hold")))
    try:
        await _wait(lambda: stage.words().count("started") > starts, LIMIT)
        call.cancel()
        await _wait(lambda: stage.words().count("cancelled") > before, LIMIT)
        return True
    finally:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


async def list_changes(stage: Stage, client: Client) -> bool:
    async with client.listen(tools=True) as changes:
        name = (await client.call_tool(stage.name("grow"))).text
        async for change in changes:
            if change.kind == "tools":
                break
    return stage.name(name) in {tool.name for tool in await client.list_tools_all(fresh=True)}


async def elicitation(stage: Stage, client: Client) -> bool:
    return (await client.call_tool(stage.name("greet"))).text == "hello Ann"


TRIES: dict[str, Callable[[Stage, Client], Awaitable[bool]]] = {
    "progress": progress,
    "cancellation": cancellation,
    "list changes": list_changes,
    "elicitation": elicitation,
}


async def attempt(stage: Stage, near: Era, behaviour: str) -> str:
    """`yes`, or why not."""
    try:
        async with asyncio.timeout(3 * LIMIT), stage.client(near) as client:
            async with asyncio.timeout(LIMIT * 1.5):
                return "yes" if await TRIES[behaviour](stage, client) else "another result"
    except (Error, TimeoutError, OSError, ExceptionGroup) as error:
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", f"{type(error).__name__}: {error}")[
            :200
        ]  # ports differ each time


async def recovery(stage: Stage, near: Era) -> str:
    try:
        async with asyncio.timeout(2 * LIMIT), stage.client(near) as client:
            await client.call_tool(stage.name("die"))
    except (Error, TimeoutError, OSError, ExceptionGroup):
        pass
    await stage.revive()
    deadline, why = time.monotonic() + RECOVERY_LIMIT, ""
    while time.monotonic() < deadline:
        try:
            async with asyncio.timeout(2 * LIMIT), stage.client(near) as client:
                result = await client.call_tool(stage.name("add"), {"a": 1, "b": 2})
                if "3" in result.text:
                    return "yes"
                why = result.text
        except (Error, TimeoutError, OSError, ExceptionGroup) as error:
            why = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", f"{type(error).__name__}: {error}")
        await asyncio.sleep(0.5)
    return why[:200] or "no answer"


async def judge(proxy: Proxy) -> dict[str, str]:
    cells: dict[str, str] = {}
    for far in ERAS:
        with tempfile.TemporaryDirectory() as folder:
            stage = Stage(proxy, far, Path(folder))
            try:
                await stage.start()
                for near in ERAS:
                    for behaviour in BEHAVIOURS:
                        cells[f"{behaviour} {near} {far}"] = await attempt(stage, near, behaviour)
                for near in ERAS:
                    cells[f"recovery {near} {far}"] = await recovery(stage, near)
            except TimeoutError:
                why = (Path(folder) / "log").read_text(errors="replace").strip().splitlines()[-1:]
                for near in ERAS:
                    for behaviour in (*BEHAVIOURS, "recovery"):
                        cells.setdefault(f"{behaviour} {near} {far}", f"it does not start: {''.join(why)[:150]}")
            finally:
                stage.stop()
        for cell, outcome in cells.items():
            if cell.endswith(far):
                print(f"{proxy.key}: {cell}: {outcome}", file=sys.stderr, flush=True)
    return cells


def cell(cells: dict[str, str], behaviour: str) -> str:
    pairs = [(near, far) for near in ERAS for far in ERAS]
    good = [f"{SHORT[near]} to {SHORT[far]}" for near, far in pairs if cells.get(f"{behaviour} {near} {far}") == "yes"]
    return "yes" if len(good) == len(pairs) else ", ".join(good) or "no"


def table(results: dict[str, dict[str, str]]) -> str:
    columns = (*BEHAVIOURS, "recovery")
    lines = ["| | progress | cancellation | list changes | elicitation | works again after the upstream died |"]
    lines.append("|---|---|---|---|---|---|")
    for proxy in PROXIES:
        if proxy.key in results:
            lines.append(f"| {proxy.label} | {' | '.join(cell(results[proxy.key], name) for name in columns)} |")
    return "\n".join(lines)


def write_page(results: dict[str, dict[str, str]]) -> None:
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{table(results)}\n{END}{tail}")


async def main() -> None:
    wanted = sys.argv[1].split(",") if len(sys.argv) > 1 and sys.argv[1] else [proxy.key for proxy in PROXIES]
    results: dict[str, dict[str, str]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for proxy in PROXIES:
        if proxy.key in wanted:
            results[proxy.key] = await judge(proxy)
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    write_page(results)
    print(table(results))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left running
    asyncio.run(main())
