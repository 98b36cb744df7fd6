"""Servers that are late, die, flood or lie: each is its own affair, is told of, and heals where it can (R218, R272, R273)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.until import PATIENCE, soon

from trimaran import Host, Server, connect
from trimaran.client.link import ExitReport, Owner
from trimaran.errors import (
    AuthorizationFailed,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    Error,
    LoginRequired,
    Unauthorized,
    UnsafeUrl,
)
from trimaran.host import PermissionDenied, ServerStatus, ServerUnavailable, supervise
from trimaran.host.supervise import GLYPHS, SupervisedServer
from trimaran.testing import channel_to


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_PAUSES", (0.001, 0.01))
    monkeypatch.setattr(supervise, "_REST", 0.001)


class Moody:
    """A channel to a server in this process, which can be down, be cut, or keep silent."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.is_down = False
        self.is_silent = False
        self.opened = 0
        self.swallowed = 0
        self.is_closed = False
        self._inner: Any = None
        self._owner: Owner | None = None

    async def open(self, owner: Owner) -> None:
        if self.is_down:
            raise ConnectFailed("nobody home")
        self.opened += 1
        self._owner = owner
        self._inner = channel_to(self.server)
        await self._inner.open(owner)

    async def send(self, message: bytes) -> None:
        if self._owner is None:
            raise ConnectionLost("cut")
        if self.is_silent:
            self.swallowed += 1
        else:
            await self._inner.send(message)

    async def close(self) -> None:
        self.is_closed = True
        self._owner = None
        if self._inner is not None:
            await self._inner.close()

    def cut(self) -> None:
        owner, self._owner = self._owner, None
        assert owner is not None
        owner.lost(ConnectionLost("struck by lightning"))

    def describe(self) -> str:
        return "the moody one"

    def postmortem(self) -> ExitReport:
        return ExitReport()


def make_server() -> Server:
    server = Server("moody", version="1")
    server.add_tool(lambda: "ok", name="ping_it")
    return server


def make_host(target: Any, **options: Any) -> tuple[Host, Callable[[Callable[[], bool]], Any]]:
    """A host of one server, and a way to wait until something is so."""
    changed = asyncio.Event()

    async def until(is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                changed.clear()
                await changed.wait()

    options.setdefault("environ", {"TRIMARAN_MCP_TIMEOUT": "1s"})
    return Host({"moody": target}, allow=["*"], on_change=changed.set, **options), until


async def test_a_server_that_is_down_at_first_is_tried_again_in_the_background() -> None:
    """R272."""
    moody = Moody(make_server())
    moody.is_down = True
    host, until = make_host(moody)
    async with host:
        (status,) = host.status()
        assert (status.state, status.retries, status.tools) == ("failed", True, 0)
        assert "nobody home" in status.reason
        assert host.tools() == []
        moody.is_down = False
        await until(lambda: host.status()[0].state == "connected")
        assert [tool.name for tool in host.tools()] == ["mcp__moody__ping_it"]
        assert not host.status()[0].retries


async def test_death_is_told_and_so_is_healing() -> None:
    """R218: it disappears by itself; and it comes back."""
    moody = Moody(make_server())
    host, until = make_host(moody)
    async with host:
        assert host.connected() == ["moody"]
        moody.is_down = True
        moody.cut()
        (status,) = host.status()
        assert (status.state, status.glyph) == ("failed", "○")
        assert "struck by lightning" in status.reason
        assert (host.connected(), host.whereis("moody"), host.tools()) == ([], None, [])
        moody.is_down = False
        moody.server.add_tool(lambda: "new", name="second")
        await until(lambda: host.status()[0].state == "connected")
        assert len(host.tools()) == 2
        assert moody.opened == 2
        assert (await host.call("mcp__moody__second")).data == "new"


async def test_a_call_waits_for_a_server_that_heals() -> None:
    moody = Moody(make_server())
    host, _ = make_host(moody)
    async with host:
        moody.cut()
        async with asyncio.timeout(PATIENCE):
            assert (await host.call("mcp__moody__ping_it")).data == "ok"


async def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    """R272."""
    moody = Moody(make_server())
    moody.is_silent = True
    host, _ = make_host(moody, environ={"TRIMARAN_MCP_STARTUP_LIMIT": "50ms"})
    async with asyncio.timeout(PATIENCE), host:
        (status,) = host.status()
        assert status.state == "failed"
        assert "within 0.05 s" in status.reason
        assert "startup_limit" in status.reason


def supervised_channels(
    transport: str, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[SupervisedServer, list[Moody]]:
    """A server that gets a new channel each time it is dialed, and these channels."""
    monkeypatch.setattr(supervise, "_HEALTH", 0.001)
    made: list[Moody] = []

    def dial(**more: Any) -> Any:
        made.append(Moody(make_server()))
        return connect(made[-1], **{**more, "connect_timeout": PATIENCE}, **options)

    return SupervisedServer("one", transport, dial, startup_timeout=0.05, call_timeout=1), made


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_child_that_runs_and_does_not_answer_is_ended_and_started_again(
    monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    """R218: a dead child heals, and one that is as good as dead does, too."""
    server, made = supervised_channels("stdio", monkeypatch, era=era)
    server.start()
    await server.settled()
    first = server.client
    made[0].is_silent = True
    async with asyncio.timeout(PATIENCE):
        while len(made) < 2 or server.state != "connected":
            await asyncio.sleep(0.001)
    assert made[0].is_closed
    assert first is not None
    assert server.client is not first
    assert first.state == "closed"
    await server.stop()


async def test_what_is_no_child_of_ours_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server, made = supervised_channels("http", monkeypatch)
    server.start()
    await server.settled()
    made[0].is_silent = True
    async with asyncio.timeout(PATIENCE):
        while made[0].swallowed < 6:
            await asyncio.sleep(0.001)
    assert (server.state, server.status.retries, len(made)) == ("failed", True, 1)
    made[0].is_silent = False
    async with asyncio.timeout(PATIENCE):
        while server.state != "connected":
            await asyncio.sleep(0.001)
    assert len(made) == 1
    await server.stop()


@pytest.mark.parametrize(("steady", "pauses"), [(60.0, [0, 1, 2]), (0.0, [0, 0, 0])], ids=["short", "long"])
async def test_what_does_not_last_is_started_again_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, steady: float, pauses: list[int]
) -> None:
    """A child that is silent soon after each start is not started on and on."""
    waited: list[float] = []
    steps = (0.0011, 0.0012, 0.0013)
    sleep = asyncio.sleep

    async def note(seconds: float, *more: Any) -> None:
        if seconds in steps:
            waited.append(seconds)
        await sleep(seconds, *more)

    server, made = supervised_channels("stdio", monkeypatch)
    monkeypatch.setattr(supervise, "_PAUSES", steps)
    monkeypatch.setattr(supervise, "_STEADY", steady)
    monkeypatch.setattr(supervise.asyncio, "sleep", note)
    server.start()
    async with asyncio.timeout(PATIENCE):
        while len(waited) < 3:
            await sleep(0.001)
            for channel in made:
                channel.is_silent = channel.is_silent or server.state == "connected"
    await server.stop()
    assert waited[:3] == [steps[number] for number in pauses]


async def test_a_list_that_does_not_end_is_not_taken() -> None:
    server = Server("moody", version="1", page_size=1)
    for number in range(5):
        server.add_tool(lambda: "x", name=f"tool_{number}")
    host, _ = make_host(server)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervise, "_MOST_PAGES", 3)
        async with host:
            assert "more than 3 pages" in host.status()[0].reason
    host, _ = make_host(server)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervise, "_MOST_TOOLS", 4)
        async with host:
            assert "5 tools, more than the 4" in host.status()[0].reason


async def test_a_flood_of_changes_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two readings there is a rest; here one that outlasts the test."""
    monkeypatch.setattr(supervise, "_REST", 60.0)
    server = make_server()
    listings: list[str] = []

    @server.middleware("tools/list")
    async def note(call: Any, call_next: Any) -> Any:
        listings.append(call.method)
        return await call_next(call)

    host, until = make_host(server)
    async with host:
        server.add_tool(lambda: "new", name="new")
        await until(lambda: len(host.tools()) == 2)
        before = len(listings)
        for _ in range(200):
            server.notify.tools_changed()
            await asyncio.sleep(0)
        assert len(listings) == before


async def test_what_was_stopped_for_good_does_not_begin_again() -> None:
    server = supervised(ConnectFailed("not now"))
    await server.stop(for_good=True)
    server.start()
    await server.restart()
    await soon(server.settled())
    assert (server.state, server.reason) == ("disabled", "")


async def test_a_server_that_went_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_HEALTH", 0.02)
    moody = Moody(make_server())
    host, until = make_host(moody, environ={"TRIMARAN_MCP_TIMEOUT": "100ms"})
    async with host:
        moody.is_silent = True
        await until(lambda: host.status()[0].state == "failed")
        assert "no answer within 0.1 s" in host.status()[0].reason
        moody.is_silent = False
        await until(lambda: host.status()[0].state == "connected")


async def test_a_server_that_is_busy_with_a_call_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_HEALTH", 0.001)
    moody = Moody(make_server())
    host, _ = make_host(moody, environ={"TRIMARAN_MCP_TIMEOUT": "20ms"})
    async with host:
        began, ended = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            began.set()
            await ended.wait()

        moody.server.add_tool(work, name="ping_it", replace=True)
        call = asyncio.ensure_future(host.call("mcp__moody__ping_it"))
        async with asyncio.timeout(PATIENCE):
            await began.wait()
            moody.is_silent = True
            while moody.swallowed < 6:  # a request that nobody answers, and its cancellation
                assert host.status()[0].state == "connected"
                await asyncio.sleep(0.001)
            ended.set()
            await call


async def test_a_server_without_tools_is_connected_all_the_same() -> None:
    server = Server("docs", version="1")
    server.add_resource("docs://x", lambda: "x", name="x")
    async with Host({"docs": server}, environ={}) as host:
        assert host.status()[0].text == "connected (0 tools)"


# --- credentials -----------------------------------------------------------------------------------------------------


def supervised(failure: Error, *, can_log_in: bool = True) -> SupervisedServer:
    def dial(**options: Any) -> Any:
        raise failure

    return SupervisedServer("one", "http", dial, startup_timeout=1, call_timeout=1, can_log_in=can_log_in)


@pytest.mark.parametrize(
    ("failure", "can_log_in", "state", "retries"),
    [
        (LoginRequired("log in", step="login"), True, "needs_auth", False),
        (Unauthorized("who are you?"), True, "needs_auth", False),
        (AuthorizationFailed("a bad day", step="token request"), True, "needs_auth", True),
        (UnsafeUrl("http://inside", step="metadata"), True, "failed", False),
        (Unauthorized("who are you?"), False, "failed", False),
        (ConfigError("cannot be"), True, "failed", False),
        (ConnectFailed("not now"), True, "failed", True),
    ],
    ids=["login", "401", "issuer-down", "unsafe", "401-without-login", "config", "connect"],
)
async def test_what_a_start_fails_with_says_what_comes_next(
    failure: Error, can_log_in: bool, state: str, retries: bool
) -> None:
    """R254, R272, R273."""
    server = supervised(failure, can_log_in=can_log_in)
    server.start()
    await server.settled()
    assert (server.state, server.status.retries, server.reason) == (state, retries, str(failure))
    with pytest.raises(ServerUnavailable, match="authorize" if state == "needs_auth" else "one"):
        server.require()
    await server.stop()


async def test_a_login_that_ends_in_the_middle_is_noticed_by_the_call() -> None:
    moody = Moody(make_server())
    host, until = make_host(moody)
    async with host:
        one = host._servers["moody"]  # pyright: ignore[reportPrivateUsage]
        one._can_log_in = True  # pyright: ignore[reportPrivateUsage]
        one.suspect(Unauthorized("not enough", status=403))
        one.suspect(LoginRequired("the token ended", step="refresh"))
        await until(lambda: host.status()[0].state == "needs_auth")
        status = host.status()[0]
        assert (status.text, status.glyph, status.reason) == ("needs re-auth", "◐", "the token ended")
        with pytest.raises(ServerUnavailable, match=r"host.authorize\('moody'\)"):
            await host.call("mcp__moody__ping_it")
        assert (await host.reload("moody")).state == "connected"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("no such host", "failed (no such host)"),
        (
            "exited with status 1; its stderr says:\n    Traceback\n    KeyError: 'x'",
            "failed (exited with status 1; its stderr says: KeyError: 'x')",
        ),
        ("a.toml:1: bad\na.toml:2: bad too", "failed (a.toml:1: bad (and 1 more))"),
    ],
    ids=["one line", "stderr", "several problems"],
)
def test_a_state_in_one_line_has_what_went_wrong(reason: str, text: str) -> None:
    assert ServerStatus(name="a", state="failed", transport="stdio", reason=reason).text == text


def test_every_state_has_its_glyph() -> None:
    """R273."""
    shown = {state: ServerStatus(name="a", state=state, transport="http").glyph for state in GLYPHS}
    assert shown == {"connected": "●", "starting": "◐", "needs_auth": "◐", "failed": "○", "idle": "○", "disabled": "○"}
    assert ServerStatus(name="a", state="connected", transport="http", tools=1).text == "connected (1 tool)"


def test_denials_and_failures_are_different_errors() -> None:
    assert not issubclass(PermissionDenied, ServerUnavailable)
