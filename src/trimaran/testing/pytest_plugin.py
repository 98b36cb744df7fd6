"""The pytest fixtures: `mcp_client`, `mcp_server_url` and `mcp_cassette`.

pytest imports this module in every run where Trimaran is installed, so it loads nothing else until a fixture is used. Each
fixture is a factory to await. Their clients and servers are closed after the test, last first, in the loop they were made in: it does not
matter in which task a client was opened, nor which loop scope the test has (P41).

They need a runner of async tests: pytest-asyncio, or anyio's for tests marked `anyio`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import pytest

if TYPE_CHECKING:
    import asyncio

    from trimaran.client.client import Client
    from trimaran.server.server import Server

# Options that lead to a server; a cassette needs no leading.
_ABOUT_THE_WAY = ("auth", "headers", "ssl", "env", "cwd", "on_stderr", "grace")
_HAS_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trimaran", "MCP sessions on file (mcp_cassette)")
    group.addoption("--mcp-record", action="store_true", help="record every session again, from its server")
    group.addoption("--mcp-replay", action="store_true", help="record nothing: a session that is not on file fails")


def pytest_configure(config: pytest.Config) -> None:
    if _is_told(config, "mcp_record") and _is_told(config, "mcp_replay"):
        raise pytest.UsageError("--mcp-record and --mcp-replay exclude each other")


def _is_told(config: pytest.Config, option: str) -> bool:
    # A plugin that was loaded late has no options.
    return bool(config.getoption(option, False))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and "mcp_cassette" in getattr(item, "fixturenames", ()):
        item.stash[_HAS_PASSED] = report.passed
    return report


@final
class _Leftovers:
    """The clients that a test opened, and their loop."""

    def __init__(self) -> None:
        self._opened: list[tuple[asyncio.AbstractEventLoop, Callable[[], Any]]] = []

    def add(self, close: Callable[[], Any]) -> None:
        import asyncio

        self._opened.append((asyncio.get_running_loop(), close))

    def close(self) -> None:
        failure: BaseException | None = None
        while self._opened:
            loop, close = self._opened.pop()
            try:
                closing = close()
                if inspect.iscoroutine(closing):
                    _run(loop, closing)
            except BaseException as error:
                failure = failure or error
        if failure is not None:
            raise failure


def _run(loop: asyncio.AbstractEventLoop, closing: Any) -> None:
    if loop.is_closed():
        closing.close()
        raise RuntimeError(
            "the event loop was closed before the clients that were opened in it; await the fixture in the test itself"
        )
    loop.run_until_complete(closing)


@pytest.fixture
def _mcp_leftovers(request: pytest.FixtureRequest) -> Iterator[_Leftovers]:  # pyright: ignore[reportUnusedFunction]
    plugins = request.config.pluginmanager
    if not plugins.has_plugin("trimaran-loops"):
        from . import _loops

        plugins.register(_loops, "trimaran-loops")

    def is_here(*names: str) -> bool:
        return any(plugins.has_plugin(name) for name in names)

    if is_here("anyio", "anyio.pytest_plugin") and "anyio_backend" in request.fixturenames:
        request.getfixturevalue("_mcp_loop_anyio")
    elif is_here("asyncio", "pytest_asyncio", "pytest_asyncio.plugin"):
        request.getfixturevalue("_mcp_loop_asyncio")
    else:
        pytest.fail(
            "the mcp_ fixtures are for async tests, and nothing here runs those: pip install pytest-asyncio, "
            "or mark the test with @pytest.mark.anyio if you have anyio",
            pytrace=False,
        )
    leftovers = _Leftovers()
    yield leftovers
    leftovers.close()


@pytest.fixture
def mcp_client(_mcp_leftovers: _Leftovers) -> Callable[..., Awaitable[Client]]:
    """Open clients that are closed after the test: `client = await mcp_client(target, **options)`, as for `connect`."""

    async def open_one(target: Any, **options: Any) -> Client:
        from trimaran.connecting import open_client

        client = await open_client(target, **options)
        _mcp_leftovers.add(client.close)
        return client

    return open_one


@pytest.fixture
def mcp_server_url(_mcp_leftovers: _Leftovers) -> Callable[..., Awaitable[str]]:
    """Serve over HTTP on a free port until the test ends: `url = await mcp_server_url(server, **options)`.

    The options are those of `server.run("http", ...)`.
    """

    async def serve(server: Server, **options: Any) -> str:
        from trimaran.serve import HttpServer

        settings: dict[str, Any] = {"port": 0, **options}
        http = HttpServer(server, **settings)
        await http.start()
        _mcp_leftovers.add(http.stop)
        return http.url

    return serve


@pytest.fixture
def mcp_cassette(request: pytest.FixtureRequest, _mcp_leftovers: _Leftovers) -> Callable[..., Awaitable[Client]]:
    """Open clients whose sessions are on file: `client = await mcp_cassette(target, **options)`, as for `connect`.

    The first run records, later ones play back and need no server; `--mcp-record` records again, `--mcp-replay` records
    nothing. The file is `cassettes/<module>/<test>.jsonl` beside the module, or `name` there. A session is kept if its
    test passed. `order` and `redact` are those of `replay` and `record`.
    """
    opened = 0

    async def open_one(
        target: Any,
        *,
        name: str | None = None,
        order: Literal["strict", "lenient"] = "strict",
        redact: tuple[str, ...] = (),
        **options: Any,
    ) -> Client:
        nonlocal opened
        opened += 1
        path = _path_of(request, name, opened)
        is_recorded = path.exists() and not _is_told(request.config, "mcp_record")
        if not is_recorded and _is_told(request.config, "mcp_replay"):
            pytest.fail(f"there is no cassette at {path}, and --mcp-replay forbids recording one", pytrace=False)
        from trimaran.connecting import open_client

        if is_recorded:
            from .cassette import replay

            player = replay(path, order=order, redact=redact)
            # A test that passes although the session differed did not look.
            _mcp_leftovers.add(lambda: player.verify(complete=False))
            connect_options = {key: value for key, value in options.items() if key not in _ABOUT_THE_WAY}
            client = await open_client(player, **connect_options)
        else:
            options["tap"] = _record(path, target, redact, options.get("tap"))
            client = await open_client(target, **options)
        _mcp_leftovers.add(client.close)
        return client

    def _record(path: Path, target: Any, redact: tuple[str, ...], also: Any) -> Callable[[str, bytes], None]:
        from .cassette import record

        part = path.with_suffix(".part")
        recorder = record(part, target=target, redact=redact)

        def finish() -> None:
            recorder.close()
            if request.node.stash.get(_HAS_PASSED, False):
                part.replace(path)
            else:
                part.unlink()

        _mcp_leftovers.add(finish)

        def tap(direction: str, message: bytes) -> None:
            recorder(direction, message)
            if also is not None:
                also(direction, message)

        return tap

    return open_one


def _path_of(request: pytest.FixtureRequest, name: str | None, number: int) -> Path:
    if name is None:
        test = request.node.nodeid.partition("::")[2]
        name = re.sub(r"[^\w.-]+", "-", test).strip("-") + (f"-{number}" if number > 1 else "")
    return request.path.parent / "cassettes" / request.path.stem / f"{name.removesuffix('.jsonl')}.jsonl"
