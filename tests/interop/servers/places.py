"""Start somebody else's server, as a real process, and visit it with our client.

Transports: stdio (the client starts the server), http (one endpoint), sse (HTTP+SSE, as it was in 2024-11-05).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from tests.support.ports import find_port

from trimaran import Client, connect, types
from trimaran.client.options import Era

from ..harness import MODULES, NODE, START_LIMIT, TOOLS, need

HERE = Path(__file__).resolve().parent
LIMIT = 20.0  # seconds for what is waited for; it comes within milliseconds, or the test fails
T = TypeVar("T")
names = (f"name-{number}" for number in itertools.count())


class Program:
    """How a server is started: one of ours that speaks over its pipes, or listens where it is told to."""

    def __init__(self, *command: str | Path, needs: Sequence[Path]) -> None:
        self.command = [str(part) for part in command]
        self.needs = needs

    def over_pipes(self, log: Path) -> list[str]:
        need(*self.needs)
        return [*self.command, "--log", str(log)]

    def over_http(self, log: Path) -> Listening:
        port = find_port()
        return Listening([*self.over_pipes(log), "--http", str(port)], port)


class Reference(Program):
    """A reference server, which takes what to be as an argument, its port from the environment, and writes no log."""

    def __init__(self, script: Path, *, http: str) -> None:
        super().__init__(NODE, "--import", HERE / "loopback.mjs", script, needs=[NODE, script])
        self._http = http

    def over_pipes(self, log: Path) -> list[str]:
        need(*self.needs)
        return [*self.command, "stdio"]

    def over_http(self, log: Path) -> Listening:
        need(*self.needs)
        port = find_port()
        return Listening([*self.command, self._http], port, {"PORT": str(port)})


SDK = Program(TOOLS / "peers" / "sdk" / "bin" / "python", HERE / "sdk_server.py", needs=[TOOLS / "peers" / "sdk"])
PLAIN_SDK = Program(*SDK.command, "--plain", needs=SDK.needs)
FASTMCP = Program(
    TOOLS / "peers" / "fastmcp" / "bin" / "python", HERE / "fastmcp_server.py", needs=[TOOLS / "peers" / "fastmcp"]
)
TYPESCRIPT = Program(NODE, HERE / "ts_server.mjs", needs=[NODE, MODULES / "@modelcontextprotocol" / "server"])
EVERYTHING_SCRIPT = MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
EVERYTHING = Reference(EVERYTHING_SCRIPT, http="streamableHttp")
EVERYTHING_OVER_SSE = Reference(EVERYTHING_SCRIPT, http="sse")
FILESYSTEM_SCRIPT = MODULES / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"


class Listening:
    """A server process on a port of its own, which can be ended and started again there."""

    def __init__(self, command: Sequence[str], port: int, environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._port = port
        self.origin = f"http://127.0.0.1:{port}"

    def url(self, path: str = "/mcp") -> str:
        return self.origin + path

    def start(self) -> None:
        with tempfile.TemporaryFile() as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self._environment
            )
            limit = time.monotonic() + START_LIMIT
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                    return
                if self._process.poll() is not None or time.monotonic() > limit:
                    output.seek(0)
                    words = output.read().decode(errors="replace")[-3000:]
                    self.kill()
                    pytest.fail(f"their server did not come up:\n{words}", pytrace=False)
                time.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def running(self) -> Iterator[Listening]:
        self.start()
        try:
            yield self
        finally:
            self.kill()


class Visiting:
    """A test class that goes to many places with one client for all its tests: mark it `asyncio(loop_scope="class")`."""

    program: Program
    places: Sequence[tuple[str, str]] = [
        ("http", "auto"),
        ("http", "modern"),
        ("http", "legacy"),
        ("stdio", "auto"),
        ("stdio", "modern"),
        ("stdio", "legacy"),
    ]
    """Transport and era."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "visitor" in metafunc.fixturenames:
            metafunc.parametrize("visitor", self.places, ids="-".join, indirect=True, scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def log(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """What the server wrote down."""
        return tmp_path_factory.mktemp("theirs") / "log"

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, log: Path) -> Iterator[Listening]:
        with cls.program.over_http(log).running() as server:
            yield server

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def visitor(cls, request: pytest.FixtureRequest, log: Path) -> AsyncIterator[Visit]:
        transport, era = request.param
        if transport == "stdio":
            target = cls.program.over_pipes(log)
        else:
            target = request.getfixturevalue("server").url("/sse" if transport == "sse" else "/mcp")
        async with Visit(transport, era).to(target) as visit:
            yield visit

    @pytest.fixture
    def visit(self, visitor: Visit) -> Visit:
        visitor.forget()
        return visitor


class Visit:
    """Our client somewhere, and who is behind it: a person, a model, a folder, and a book of all that was heard."""

    client: Client

    def __init__(self, transport: str, era: Era) -> None:
        self.transport = transport
        self.era: Era = era
        self.roots = [types.Root(uri="file:///home/ada", name="home")]
        self.forget()

    def forget(self) -> None:
        """Begin a new test with an empty book and in a good mood."""
        self.mood = "accept"
        self.questions: list[Any] = []
        self.prompts: list[Any] = []
        self.logs: asyncio.Queue[tuple[str, str | None, Any]] = asyncio.Queue()
        self.notices: asyncio.Queue[str] = asyncio.Queue()

    @property
    def modern(self) -> bool:
        return self.era != "legacy" and self.transport != "sse"

    @contextlib.asynccontextmanager
    async def to(self, target: Any, **options: Any) -> AsyncIterator[Visit]:
        """Connect, for as long as the context lasts; afterwards nothing of the client may still run."""
        before = asyncio.all_tasks()
        async with connect(
            target,
            era=self.era,
            on_elicit=self.elicit,
            on_sample=self.sample,
            on_log=self.log,
            on_notification=self.notice,
            roots=self.roots,
            client_info={"name": "visitor", "version": "1"},
            **options,
        ) as self.client:
            yield self
        left = asyncio.all_tasks() - before - {asyncio.current_task()}
        if left:
            _, left = await asyncio.wait(left, timeout=0.5)
        assert not left, f"tasks left running: {left}"

    async def elicit(self, ask: Any) -> Any:
        """Answer by mood; where that is good, in few words, leaving defaults alone."""
        self.questions.append(ask)
        if self.mood == "decline":
            return ask.decline()
        if self.mood == "cancel":
            return ask.cancel()
        if ask.mode == "url":
            return ask.accept()
        answers = {"street": "Elm 1", "pay": "cash", "name": "Zoë"}
        return ask.accept({field: answers[field] for field in ask.schema["properties"] if field in answers})

    async def sample(self, ask: Any) -> types.CreateMessageResult:
        self.prompts.append(ask)
        content = types.TextContent("short")
        return types.CreateMessageResult(role="assistant", content=content, model="fake-1", stop_reason="endTurn")

    async def log(self, entry: Any) -> None:
        self.logs.put_nowait((entry.level, entry.logger, entry.data))

    async def notice(self, method: str, params: Any) -> None:
        self.notices.put_nowait(method)


async def call_that_waits(client: Client, name: str, **options: Any) -> asyncio.Task[Any]:
    """Call `wait`, and go on once the server says that it waits."""
    began = asyncio.Event()
    options.setdefault("on_progress", lambda *_: began.set())
    call = asyncio.ensure_future(client.call_tool("wait", {"name": name}, **options))
    beginning = asyncio.ensure_future(began.wait())
    try:
        await asyncio.wait({call, beginning}, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
        assert began.is_set(), f"the call did not begin: {call!r}"
    finally:
        beginning.cancel()
    return call


async def until_told(call: Any, coming: Any) -> Any:
    """Do a thing until word of it comes: there is no sign that a stream stands but what arrives on it."""
    waiting = asyncio.ensure_future(coming)
    try:
        for _ in range(40):
            await call()
            await asyncio.wait({waiting}, timeout=LIMIT / 40)
            if waiting.done():
                return waiting.result()
        return pytest.fail("nothing was told")
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
