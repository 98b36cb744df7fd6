"""The verdict table: what each answer to a greeting says about a server (protocol.md 2.5, 2.6)."""

from __future__ import annotations

import asyncio
import functools
import itertools
from typing import Any

import pytest
from tests.support.until import PATIENCE

from trimaran.client import negotiation
from trimaran.client.dialect import ServerDescription
from trimaran.client.negotiation import EraMemory, Manner, ended_early, meet
from trimaran.errors import (
    CallError,
    ConnectFailed,
    ConnectionLost,
    Error,
    HeaderMismatch,
    MissingCapability,
    RemoteProtocolError,
    TimedOut,
    TransportError,
    Unauthorized,
    UnexpectedStatus,
    UnsupportedVersion,
)
from trimaran.types import Implementation

MODERN, V11, V06 = "2026-07-28", "2025-11-25", "2025-06-18"


class Late:
    """An answer that takes its time."""

    def __init__(self, seconds: float, answer: Any) -> None:
        self.seconds = seconds
        self.answer = answer


class FakeInbox:
    link: Any = None

    def attach(self, link: Any) -> None:
        self.link = link

    def notice(self, frame: Any) -> None: ...

    def asked(self, frame: Any) -> None: ...

    def lost(self, error: Error | None) -> None: ...


class FakeLink:
    def __init__(self, world: World, manner: Manner) -> None:
        self.world = world
        self.manner = manner
        self.is_http = world.is_http
        self.is_closed = False

    def unread(self) -> int | None:
        return self.world.unread

    def is_working(self) -> bool:
        return self.world.is_working

    def stderr(self) -> list[str]:
        return self.world.stderr

    async def close(self) -> None:
        self.is_closed = True


WHO = "boat/1"


def manner_of(memory: EraMemory, key: str = "here") -> Manner | None:
    known = memory.recall(key)
    return known and known[0]


class FakeDialect:
    def __init__(self, world: World, manner: Manner, version: str | None) -> None:
        self.world = world
        self.era = "modern" if manner == "modern" else "legacy"
        self.manner = manner
        self.version = version or ""

    async def greet(self, link: Any, next_id: Any) -> ServerDescription:
        next_id()
        world = self.world
        name = f"{self.manner}@{self.version}" if self.version else self.manner
        world.greeted.append(name)
        answers = world.answers[self.manner]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is ...:
            await asyncio.Event().wait()
        if isinstance(answer, float):
            answer = Late(answer, None)
        if isinstance(answer, Late):
            await asyncio.sleep(answer.seconds)
            answer = answer.answer
        if isinstance(answer, Exception):
            raise answer
        info = Implementation(name="boat", version=world.release)
        return ServerDescription(MODERN if self.manner == "modern" else V11, {}, info)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


class World:
    """A target whose answers to each greeting are known: an error, None (welcome), ... (silence), or seconds."""

    key = "here"

    def __init__(self, *, is_http: bool, manners: tuple[Manner, ...] | None = None, **answers: Any) -> None:
        self.is_http = is_http
        self.manners: tuple[Manner, ...] = manners or (("modern", "legacy", "sse") if is_http else ("modern", "legacy"))
        self.answers: dict[str, list[Any]] = {
            manner: answer if isinstance(answer, list) else [answer] for manner, answer in answers.items()
        }
        self.greeted: list[str] = []
        self.links: list[FakeLink] = []
        self.memory = EraMemory()

    newest: str | None = None
    release = "1"
    unread: int | None = None
    is_working = False
    stderr: list[str] = []

    def describe(self) -> str:
        return "the world"

    def newest_revision(self) -> str | None:
        return self.newest

    async def close(self) -> None: ...

    async def dial(self, manner: Manner, inbox: Any, reuse: Any) -> Any:
        if reuse is not None and not self.is_http:
            return reuse
        if reuse is not None:
            await reuse.close()
        link = FakeLink(self, manner)
        self.links.append(link)
        return link

    async def meet(self, era: Any = "auto", version: str | None = None, patience: float = 5.0) -> Any:
        make: Any = functools.partial(FakeDialect, self)
        async with asyncio.timeout(PATIENCE):
            return await meet(
                self,  # pyright: ignore[reportArgumentType]
                FakeInbox,
                make,
                itertools.count(1).__next__,
                era=era,
                version=version,
                memory=self.memory,
                patience=patience,
            )

    async def fails(self, **options: Any) -> Error:
        with pytest.raises(Error) as caught:
            await self.meet(**options)
        assert all(link.is_closed for link in self.links), "a link was left open"
        return caught.value


def unsupported(*versions: str) -> UnsupportedVersion:
    return UnsupportedVersion(-32022, "no", {"supported": list(versions), "requested": MODERN})


BOTH = pytest.mark.parametrize("is_http", [True, False], ids=["http", "pipe"])


@pytest.fixture(autouse=True)
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(negotiation, "SILENCE", 0.02)
    monkeypatch.setattr(negotiation, "HTTP_SILENCE", 0.02)


# --- the table -------------------------------------------------------------------------------------------------------


@BOTH
async def test_a_discover_result_proves_a_modern_server(is_http: bool) -> None:
    world = World(is_http=is_http, modern=None)
    found = await world.meet()
    assert (found.manner, found.dialect.era, found.welcome.version) == ("modern", "modern", MODERN)
    assert found.inbox.link is found.link
    assert world.greeted == ["modern"]
    assert manner_of(world.memory) == "modern"


GO_ON: list[Error] = [
    CallError(-32601, "method not found"),
    CallError(-32602, "invalid params"),
    CallError(-32600, "not initialized"),
    CallError(-32603, "internal"),
    CallError(-32000, "server error"),
    CallError(-32002, "not initialized"),
    CallError(-32700, "parse error"),
    CallError(7, "custom"),
    RemoteProtocolError(-32700, "not JSON"),
    RemoteProtocolError(-32600, "no DiscoverResult"),
    UnexpectedStatus("400", status=400),
    UnexpectedStatus("404", status=404),
    UnexpectedStatus("405", status=405),
    UnexpectedStatus("406", status=406),
    ConnectionLost("it ended"),
]


@BOTH
@pytest.mark.parametrize("answer", GO_ON, ids=[f"{type(one).__name__}-{one}" for one in GO_ON])
async def test_everything_else_is_how_an_older_server_reacts(is_http: bool, answer: Error) -> None:
    """protocol.md 2.5.4, 2.6.3: the fallback must not key on a code."""
    world = World(is_http=is_http, modern=answer, legacy=None)
    assert (await world.meet()).manner == "legacy"
    assert world.greeted == ["modern", "legacy"]
    assert manner_of(world.memory) == "legacy"


STOP: list[Error] = [
    HeaderMismatch(-32020, "mismatch"),
    MissingCapability(-32021, "missing"),
    Unauthorized("401", status=401),
    Unauthorized("403", status=403),
    ConnectFailed("refused"),
]


@BOTH
@pytest.mark.parametrize("answer", STOP, ids=[f"{type(one).__name__}-{one}" for one in STOP])
async def test_what_proves_a_modern_server_or_says_nothing_ends_it(is_http: bool, answer: Error) -> None:
    """protocol.md 2.5.3, 2.6.2: do NOT initialize; 401 says nothing about the era."""
    world = World(is_http=is_http, modern=answer, legacy=None)
    assert await world.fails() is answer
    assert world.greeted == ["modern"]
    assert world.memory.recall("here") is None


async def test_a_server_error_is_not_remembered_as_an_era() -> None:
    """protocol.md 2.6: 5xx/network errors are not era evidence."""
    world = World(is_http=True, modern=UnexpectedStatus("503", status=503), legacy=None, sse=None)
    try:
        await world.meet()
    except UnexpectedStatus:
        pass
    assert world.memory.recall("here") is None


@BOTH
async def test_a_common_legacy_version_is_used_by_name(is_http: bool) -> None:
    """protocol.md 2.6: if the only mutual version is a legacy one, use `initialize` with it; the newest of several."""
    world = World(is_http=is_http, modern=unsupported("2099-01-01", V06, V11), legacy=None)
    assert (await world.meet()).manner == "legacy"
    assert world.greeted == ["modern", f"legacy@{V11}"]


@BOTH
@pytest.mark.parametrize("listed", [(), ("2099-01-01",)])
async def test_no_common_version_ends_it(is_http: bool, listed: tuple[str, ...]) -> None:
    world = World(is_http=is_http, modern=unsupported(*listed), legacy=None)
    assert isinstance(await world.fails(), UnsupportedVersion)
    assert world.greeted == ["modern"]


async def test_a_refusal_that_lists_nothing_readable_ends_it() -> None:
    for data in (None, [], {"supported": "x"}, {"supported": [1]}):
        world = World(is_http=True, modern=UnsupportedVersion(-32022, "no", data), legacy=None)
        assert isinstance(await world.fails(), UnsupportedVersion)


# --- silence ---------------------------------------------------------------------------------------------------------


async def test_silence_on_a_pipe_brings_in_the_handshake() -> None:
    """protocol.md 2.5.4."""
    world = World(is_http=False, modern=..., legacy=None)
    assert (await world.meet()).manner == "legacy"


async def test_the_first_welcome_decides() -> None:
    world = World(is_http=False, modern=0.06, legacy=...)
    assert (await world.meet()).manner == "modern"
    world = World(is_http=False, modern=0.5, legacy=0.02)
    assert (await world.meet()).manner == "legacy"


async def test_a_late_refusal_leaves_it_to_the_handshake() -> None:
    """protocol.md 2.5: ignore late answers of the probe."""
    world = World(is_http=False, modern=Late(0.03, CallError(-32601, "no")), legacy=0.05)
    assert (await world.meet()).manner == "legacy"


async def test_a_refused_handshake_in_the_race_proves_modern() -> None:
    """protocol.md 2.5 race: -32022 to the fallback is proof of modern; the probe is still under way."""
    world = World(is_http=False, modern=0.08, legacy=unsupported(MODERN))
    assert (await world.meet()).manner == "modern"


async def test_silence_over_http_gives_way_to_the_handshake() -> None:
    world = World(is_http=True, modern=..., legacy=None)
    assert (await world.meet()).manner == "legacy"
    assert world.links[0].is_closed


async def test_a_modern_refusal_of_the_handshake_is_probed_again_once() -> None:
    """protocol.md 2.5: re-probe once."""
    world = World(is_http=False, modern=[CallError(-32603, "starting"), None], legacy=unsupported(MODERN))
    assert (await world.meet()).manner == "modern"
    assert world.greeted == ["modern", "legacy", "modern"]
    world = World(is_http=False, modern=CallError(-32603, "starting"), legacy=unsupported(MODERN))
    await world.fails()
    assert world.greeted == ["modern", "legacy", "modern"]


async def test_a_child_that_dies_of_the_probe_is_started_again() -> None:
    """P30: old stdio servers that die on an unknown first message are respawned."""
    world = World(is_http=False, modern=ConnectionLost("it died"), legacy=None)
    found = await world.meet()
    assert found.manner == "legacy"
    assert [link.is_closed for link in world.links] == [True, False]
    assert found.link is world.links[1]


async def test_a_pipe_that_lives_is_used_for_both_greetings() -> None:
    world = World(is_http=False, modern=CallError(-32601, "no"), legacy=None)
    await world.meet()
    assert len(world.links) == 1


# --- what a child costs ----------------------------------------------------------------------------------------------


def death(*stderr: str, sent: bool = True) -> ConnectionLost:
    lost = ConnectionLost(f"it died, saying {stderr}", exit_code=1, stderr=stderr)
    lost.sent = sent
    return lost


async def test_a_child_that_ended_before_it_read_a_word_is_not_started_again() -> None:
    """No other greeting would help: half of the time to hear why."""
    world = World(is_http=False, modern=death("FATAL: API_KEY is not set", sent=False), legacy=None)
    error = await world.fails()
    assert isinstance(error, ConnectFailed)
    assert "API_KEY" in str(error)
    assert len(world.links) == 1


async def test_nor_is_one_whose_manner_is_remembered() -> None:
    world = World(is_http=False, modern=None, legacy=death("no key", sent=False))
    world.memory.note("here", "legacy", WHO)
    assert isinstance(await world.fails(), ConnectFailed)
    assert len(world.links) == 1


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (death("FATAL: no key"), death(), "FATAL: no key"),
        (death("FATAL: no key"), death("it is locked"), "FATAL: no key"),
        (death("input_value='server/discover'"), death("no disk"), "no disk"),
        (death(), death("no disk"), "no disk"),
    ],
    ids=["the second says nothing", "both say something", "the first died of the probe", "the first says nothing"],
)
async def test_of_two_deaths_the_one_that_is_the_cause_is_told(
    first: ConnectionLost, second: ConnectionLost, told: str
) -> None:
    error = await World(is_http=False, modern=first, legacy=second).fails()
    assert isinstance(error, ConnectFailed)
    assert error.stderr == [told]
    assert told in str(error)


@pytest.mark.parametrize(
    ("death", "told"),
    [
        (
            "the child process (boat) exited with status 3",
            "the server ended before it answered: the child process (boat) ",
        ),
        ("nothing was said", "boat ended before it answered: nothing was said"),
    ],
    ids=["named", "nameless"],
)
def test_an_early_end_names_the_server_once(death: str, told: str) -> None:
    error = ended_early("boat", ConnectionLost(death, exit_code=3))
    assert str(error).startswith(told)
    assert error.exit_code == 3


def test_a_script_that_runs_no_server_is_told_to() -> None:
    error = ended_early("boat", ConnectionLost("the child process (boat) exited with status 0", exit_code=0))
    assert str(error).endswith(
        "\nIt ended without an error: a script has to run its server, with server.run() at its end"
    )
    failed = ended_early("boat", ConnectionLost("exited with status 0", exit_code=0, stderr=["no key"]))
    assert "server.run()" not in str(failed)


async def test_a_child_that_has_read_the_probe_and_is_silent_gets_the_handshake_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(negotiation, "SILENCE", 60.0)
    world = World(is_http=False, modern=..., legacy=None)
    world.unread = 0
    assert (await world.meet(patience=600.0)).manner == "legacy"


async def test_a_child_that_works_on_the_probe_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it may take a while to answer; the handshake would make a server of both eras speak legacy."""
    monkeypatch.setattr(negotiation, "SILENCE", 60.0)
    world = World(is_http=False, modern=0.3, legacy=None)
    world.unread, world.is_working = 0, True
    assert (await world.meet(patience=600.0)).manner == "modern"
    assert world.greeted == ["modern"]


async def test_a_child_that_works_without_end_gets_the_handshake_after_the_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(negotiation, "SILENCE", 0.05)
    world = World(is_http=False, modern=..., legacy=None)
    world.unread, world.is_working = 0, True
    assert (await world.meet(patience=600.0)).manner == "legacy"


async def test_a_child_that_has_not_read_the_probe_yet_is_left_alone() -> None:
    """It is still starting: a second message might be the one that an old server dies of."""
    world = World(is_http=False, modern=0.3, legacy=None)
    world.unread = 256
    assert (await world.meet()).manner == "modern"
    assert world.greeted == ["modern"]


async def test_a_traceback_on_stderr_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not tell what was read."""
    monkeypatch.setattr(negotiation, "SILENCE", 60.0)
    world = World(is_http=False, modern=..., legacy=None)
    world.stderr = ["Traceback (most recent call last):", "KeyError: 'server/discover'"]
    assert (await world.meet(patience=600.0)).manner == "legacy"


async def test_a_command_that_would_die_of_the_probe_is_greeted_in_its_own_manner() -> None:
    world = World(is_http=False, modern=ConnectionLost("it died"), legacy=None)
    world.newest = V11
    assert (await world.meet()).manner == "legacy"
    assert world.greeted == ["legacy"]
    assert manner_of(world.memory) == "legacy"


async def test_a_guess_that_the_answer_belies_is_dropped() -> None:
    """Another library in the same environment answers: what it would rather speak is asked on a fresh child."""
    world = World(is_http=False, modern=None, legacy=None)
    world.newest = "2025-03-26"
    assert (await world.meet()).manner == "modern"
    assert world.greeted == ["legacy", "modern"]
    assert [link.is_closed for link in world.links] == [True, False]


async def test_what_is_remembered_or_asked_for_needs_no_guess() -> None:
    world = World(is_http=False, modern=None, legacy=None)
    world.newest = V11
    world.memory.note("here", "modern", WHO)
    assert (await world.meet()).manner == "modern"
    world.memory.forget("here")
    assert (await world.meet(era="modern")).manner == "modern"
    assert set(world.greeted) == {"modern"}


# --- HTTP+SSE --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 405, 410, 422])
async def test_a_handshake_refused_by_status_leads_to_the_transport_of_2024(status: int) -> None:
    """protocol.md 2.6.4: (2025-03-26 text: any 4xx) -> GET."""
    refusal = UnexpectedStatus(str(status), status=status)
    world = World(is_http=True, modern=refusal, legacy=refusal, sse=None)
    assert (await world.meet()).manner == "sse"
    assert world.greeted == ["modern", "legacy", "sse"]
    assert manner_of(world.memory) == "sse"
    assert [link.is_closed for link in world.links] == [True, True, False]


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_server_error_to_the_handshake_does_not(status: int) -> None:
    refusal = UnexpectedStatus(str(status), status=status)
    world = World(is_http=True, modern=UnexpectedStatus("404", status=404), legacy=refusal, sse=None)
    assert await world.fails() is refusal
    assert world.greeted == ["modern", "legacy"]


async def test_where_everything_fails_the_handshake_tells_most() -> None:
    refusal = UnexpectedStatus("404 to initialize", status=404)
    world = World(is_http=True, modern=CallError(-32601, "x"), legacy=refusal, sse=UnexpectedStatus("405", status=405))
    assert await world.fails() is refusal


@BOTH
async def test_a_server_that_ends_while_greeted_could_not_be_connected_to(is_http: bool) -> None:
    lost = ConnectionLost("it died", exit_code=3, stderr=["boom"])
    world = World(is_http=is_http, modern=lost, legacy=lost)
    error = await world.fails()
    assert isinstance(error, ConnectFailed)
    assert (error.exit_code, error.stderr) == (3, ["boom"])
    assert "it died" in str(error)


# --- wishes ----------------------------------------------------------------------------------------------------------


@BOTH
async def test_a_wanted_era_is_the_only_one_tried(is_http: bool) -> None:
    refusal = CallError(-32601, "no")
    world = World(is_http=is_http, modern=refusal, legacy=None)
    assert "no" in str(await world.fails(era="modern"))
    assert world.greeted == ["modern"]
    world = World(is_http=is_http, modern=None, legacy=None)
    assert (await world.meet(era="legacy")).manner == "legacy"
    assert world.greeted == ["legacy"]
    world = World(is_http=is_http, modern=None, legacy=None)
    assert (await world.meet(era="legacy", version=V06)).dialect.version == V06


async def test_a_target_without_the_wanted_era_says_so() -> None:
    world = World(is_http=True, manners=("sse",), sse=None)
    assert isinstance(await world.fails(era="modern"), UnsupportedVersion)
    assert world.greeted == []


# --- memory ----------------------------------------------------------------------------------------------------------


@BOTH
async def test_a_remembered_manner_is_greeted_first(is_http: bool) -> None:
    world = World(is_http=is_http, modern=None, legacy=None)
    world.memory.note("here", "legacy", WHO)
    assert (await world.meet()).manner == "legacy"
    assert world.greeted == ["legacy"]


REFUSALS: list[Error] = [
    CallError(-32601, "no"),
    unsupported(MODERN),
    UnexpectedStatus("404", status=404),
    ConnectionLost("it died"),
    TimedOut("late"),
]


@BOTH
@pytest.mark.parametrize("refusal", REFUSALS, ids=[type(one).__name__ for one in REFUSALS])
async def test_a_memory_that_fails_is_asked_again(is_http: bool, refusal: Error) -> None:
    """protocol.md 2.6: re-probe when it later fails."""
    world = World(is_http=is_http, modern=None, legacy=refusal)
    world.memory.note("here", "legacy", WHO)
    assert (await world.meet()).manner == "modern"
    assert world.greeted == ["legacy", "modern"]
    assert manner_of(world.memory) == "modern"
    is_another_needed = is_http or isinstance(refusal, ConnectionLost)
    assert [link.is_closed for link in world.links] == ([True, False] if is_another_needed else [False])


@BOTH
async def test_a_memory_says_nothing_where_an_era_is_wanted_or_credentials_are(is_http: bool) -> None:
    world = World(is_http=is_http, modern=None, legacy=None)
    world.memory.note("here", "legacy", WHO)
    assert (await world.meet(era="modern")).manner == "modern"
    world = World(is_http=is_http, modern=None, legacy=Unauthorized("401"))
    world.memory.note("here", "legacy", WHO)
    assert isinstance(await world.fails(), Unauthorized)
    assert world.greeted == ["legacy"]
    assert manner_of(world.memory) == "legacy"


async def test_a_target_without_a_key_is_not_remembered() -> None:
    """Dialer.key: empty: it is not."""
    world = World(is_http=False, modern=CallError(-32601, "no"), legacy=None)
    world.key = ""
    await world.meet()
    other = World(is_http=False, modern=None, legacy=None)
    other.key, other.memory = "", world.memory
    assert (await other.meet()).manner == "modern"


@BOTH
async def test_a_server_that_was_upgraded_is_asked_again_for_its_era(is_http: bool) -> None:
    """One of both eras takes the older handshake as well, and would never be spoken to in the new one."""
    world = World(is_http=is_http, modern=None, legacy=None)
    world.memory.note("here", "legacy", WHO)
    world.release = "2"
    assert (await world.meet()).manner == "modern"
    assert world.greeted == ["legacy", "modern"]
    assert world.memory.recall("here") == ("modern", "boat/2")
    assert [link.is_closed for link in world.links] == [True, False]


def test_an_era_is_remembered_for_an_hour_however_often_it_is_used() -> None:
    now = 0.0
    memory = EraMemory(clock=lambda: now)
    memory.note("here", "legacy", WHO)
    now = 3000.0
    memory.note("here", "legacy", WHO)
    assert manner_of(memory) == "legacy"
    now = 3601.0
    assert memory.recall("here") is None
    memory.note("here", "legacy", WHO)
    assert manner_of(memory) == "legacy"


def test_the_memory_is_bounded_and_forgets_the_oldest() -> None:
    memory = EraMemory(3)
    for name in "abcd":
        memory.note(name, "legacy", "")
    assert [manner_of(memory, name) for name in "abcd"] == [None, "legacy", "legacy", "legacy"]
    memory.note("b", "modern", "")
    memory.note("e", "modern", "")
    assert [manner_of(memory, name) for name in "bcde"] == ["modern", None, "legacy", "modern"]
    memory.forget("b")
    assert memory.recall("b") is None


@BOTH
@pytest.mark.parametrize("answers", [{"modern": ...}, {"modern": TransportError("x"), "legacy": ...}])
async def test_a_meeting_that_is_given_up_leaves_no_link_open(is_http: bool, answers: Any) -> None:
    world = World(is_http=is_http, **{"legacy": ..., **answers})
    task = asyncio.ensure_future(world.meet())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(link.is_closed for link in world.links)
