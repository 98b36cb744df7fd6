"""How a client and a server that know nothing of each other find a revision they both speak.

The modern greeting comes first, then the handshake, then (over HTTP) the transport of 2024. One table, `_verdict`, says
what each failure of the greeting means. The rule behind it: only an error that the modern specification defines, or a
real DiscoverResult, proves a modern server. Everything else (any other code, an HTML page, silence, a child that dies of
an unknown message) is how older servers react to something they have never heard of.

A child costs a start, so none is started twice without need. One that ends before it has read a word ended of itself: no
other greeting would help. One that has read the modern greeting and is silent gets the handshake on the same pipe; one that
has not read it yet is still starting, and is left alone. A command whose files say that it would die of the modern greeting
gets the handshake first.

The result is remembered per target, so that the next connection does not ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, final

from msgspec import Struct

from trimaran.errors import (
    CODE_UNSUPPORTED_VERSION,
    CallError,
    ConnectFailed,
    ConnectionLost,
    Error,
    HeaderMismatch,
    MissingCapability,
    ProtocolError,
    RemoteProtocolError,
    TimedOut,
    TransportError,
    Unauthorized,
    UnexpectedStatus,
    UnsupportedVersion,
)
from trimaran.protocol.versions import LEGACY, MODERN

from .deadline import SuspendableTimeout
from .dialect import Dialect, ServerDescription
from .link import Inbox, Link
from .options import Era
from .pipeline import Pipeline
from .stderr_summary import explain_stderr

Manner: TypeAlias = Literal["modern", "legacy", "sse"]
AnInbox = TypeVar("AnInbox", bound=Inbox)

# A pipe that stays silent this long gets the handshake too, and whoever answers first decides: a server that is still
# starting (npx may download for half a minute) reads both when it gets there.
SILENCE: Final = 2.0
# The same where it is known that the greeting was read: whoever knows it answers at once, or soon after the handshake. Time
# in which the server works, or waits for a processor, does not count.
READ_SILENCE: Final = 0.1
_LOOK: Final = 0.02  # seconds between two looks at whether it was read
# Over HTTP a request that hangs is no sign of an era; wait longer before trying the other one.
HTTP_SILENCE: Final = 10.0
_MEMORY_SECONDS: Final = 3600.0  # for which an era is remembered before the server is asked again


class Dialer(Protocol):
    """Knows one target and how to reach it."""

    key: str
    """The key by which the target's era is remembered; empty: it is not remembered."""
    manners: tuple[Manner, ...]
    """The ways this target can be spoken to, in the order to try."""

    def describe(self) -> str: ...

    async def dial(self, manner: Manner, inbox: Inbox, reuse: Link | None) -> Link:
        """Open a link for this manner of speaking, or go on with the one there is."""
        ...

    async def close(self) -> None:
        """Nothing will be dialled any more."""
        ...

    def newest_revision(self) -> str | None:
        """The newest revision that the server can speak, if that is known beforehand and it dies of a newer greeting."""
        ...


@final
class Negotiated(Struct, Generic[AnInbox]):
    """A link on which both sides have said hello."""

    link: Link
    inbox: AnInbox
    dialect: Dialect
    welcome: ServerDescription
    manner: Manner


@final
class EraMemory:
    """Which manner of speaking each target understood last, and who it was. Bounded; forgetting is always safe.

    A server of both eras takes the legacy handshake too, so a target that is upgraded would be taken for a legacy server for
    ever. The remembered era therefore counts only for a server of the same name and version, and for an hour.
    """

    def __init__(self, most: int = 1000, clock: Callable[[], float] = time.monotonic) -> None:
        self._known: dict[str, tuple[Manner, str, float]] = {}
        self._most = most
        self._clock = clock

    def recall(self, key: str) -> tuple[Manner, str] | None:
        """The manner, and the identity of the server that understood it."""
        known = self._known.get(key)
        return None if known is None or self._clock() - known[2] > _MEMORY_SECONDS else known[:2]

    def note(self, key: str, manner: Manner, identity: str) -> None:
        is_known = self.recall(key) == (manner, identity)
        before = self._known.pop(key, None)
        while len(self._known) >= self._most:
            del self._known[next(iter(self._known))]
        # Using what is known does not renew it.
        self._known[key] = (manner, identity, before[2] if before is not None and is_known else self._clock())

    def forget(self, key: str) -> None:
        self._known.pop(key, None)


def _identity(welcome: ServerDescription) -> str:
    return "" if welcome.info is None else f"{welcome.info.name}/{welcome.info.version}"


MakeDialect: TypeAlias = Callable[[Manner, str | None], Dialect]


async def meet(
    dialer: Dialer,
    make_inbox: Callable[[], AnInbox],
    make_dialect: MakeDialect,
    next_id: Callable[[], int],
    *,
    era: Era,
    version: str | None,
    memory: EraMemory,
    patience: float,
    on_failure: Callable[[Error], None] = lambda error: None,
) -> Negotiated[AnInbox]:
    """Open a link and greet the server on it. `on_failure` is told of each greeting that fails while there is another to try.

    Raises:
        UnsupportedVersion: there is no revision both speak.
        ConnectFailed: no connection, or the server ended before it answered.
        TimedOut, Unauthorized, UnexpectedStatus, RemoteProtocolError: as they say.
    """
    order: list[Manner] = [
        manner for manner in dialer.manners if era == "auto" or (manner == "modern") == (era == "modern")
    ]
    if not order:
        raise UnsupportedVersion(CODE_UNSUPPORTED_VERSION, f"{dialer.describe()} does not work in the {era} era")
    is_free = bool(dialer.key) and era == "auto" and version is None
    attempt = _Attempt(dialer, make_inbox, make_dialect, next_id, version, on_failure)
    try:
        meeting = await attempt.by_foreknowledge(order, memory, patience) if is_free else None
        meeting = meeting or await attempt.through(order, patience)
    except (CallError, UnexpectedStatus, RemoteProtocolError) as error:
        await attempt.drop()
        if era != "modern" or isinstance(error, UnsupportedVersion):
            raise
        raise _not_modern(error, dialer) from error
    except BaseException:
        await attempt.drop()
        raise
    if is_free and attempt.is_sure:  # what was asked for by name says nothing about what the server would rather speak
        memory.note(dialer.key, meeting.manner, _identity(meeting.welcome))
    return meeting


@final
class _Attempt(Generic[AnInbox]):
    """One walk through the manners of a target."""

    def __init__(
        self,
        dialer: Dialer,
        make_inbox: Callable[[], AnInbox],
        make_dialect: MakeDialect,
        next_id: Callable[[], int],
        version: str | None,
        on_failure: Callable[[Error], None],
    ) -> None:
        self._dialer = dialer
        self._on_failure = on_failure
        self._make_inbox = make_inbox
        self._inbox = make_inbox()
        self._make = make_dialect
        self._next_id = next_id
        self._version = version
        self._link: Link | None = None
        self.is_sure = True
        """Was every refusal on the way one that tells eras apart?"""

    async def drop(self) -> None:
        link, self._link = self._link, None
        self._inbox = self._make_inbox()  # what the old link says from now on concerns nobody
        if link is not None:
            with contextlib.suppress(Error):
                await link.close()

    async def by_foreknowledge(
        self, order: list[Manner], memory: EraMemory, patience: float
    ) -> Negotiated[AnInbox] | None:
        """Greet in the manner that is known, or can be guessed, to be the server's; None if it did not go as expected."""
        dialer = self._dialer
        known, identity = memory.recall(dialer.key) or (None, "")
        newest = dialer.newest_revision() if known is None and "legacy" in order else None
        manner = known or ("legacy" if newest is not None else None)
        if manner not in order or manner == order[0]:
            return None
        try:
            async with SuspendableTimeout(patience / 2):
                link = await self._dial(manner)
            # A child that is slow is not asked something else for that: it may be one that dies of it.
            async with SuspendableTimeout(patience / 2 if link.is_http else None):
                meeting = await self._greet_on(link, manner)
        except (TransportError, ProtocolError, TimeoutError) as error:
            if isinstance(error, Unauthorized):
                raise
            memory.forget(dialer.key)  # it may have been upgraded: ask again
            if isinstance(error, Error):
                await self._go_on(error, manner)
            return None
        except asyncio.CancelledError:
            memory.forget(dialer.key)
            raise
        is_other = known is not None and _identity(meeting.welcome) != identity
        if is_other or (newest is not None and meeting.welcome.version > newest):
            memory.forget(dialer.key)
            await self.drop()  # another server, or another library, answers: it may speak more than this
            return None
        return meeting

    async def _greet(self, manner: Manner) -> Negotiated[AnInbox]:
        return await self._greet_on(await self._dial(manner), manner)

    async def _greet_on(self, link: Link, manner: Manner) -> Negotiated[AnInbox]:
        dialect = self._make(manner, self._version)
        return Negotiated(link, self._inbox, dialect, await dialect.greet(link, self._next_id), manner)

    async def _dial(self, manner: Manner) -> Link:
        link = self._link = await self._dialer.dial(manner, self._inbox, self._link)
        self._inbox.attach(link)
        return link

    async def through(self, order: list[Manner], patience: float) -> Negotiated[AnInbox]:
        first: Error | None = None
        while order:
            manner = order.pop(0)
            try:
                if manner != "modern" or not order:
                    return await self._greet(manner)
                return await self._probe(patience)
            except UnsupportedVersion as refusal:
                self._version = _common_legacy(refusal)
                if manner != "modern":
                    if MODERN in refusal.supported and first is not None and "modern" in self._dialer.manners:
                        return await self._greet("modern")  # it was only slow to say so
                    raise
                if not order or self._version is None:
                    raise
            except (TransportError, ProtocolError) as error:
                if _verdict(error, manner) == "stop" or not order:
                    raise _explained(error, first, self._dialer, manner) from error.__cause__
                first = error if manner == "legacy" else first or error
                await self._go_on(error, manner)
        raise AssertionError("unreachable")

    async def _go_on(self, error: Error, manner: Manner) -> None:
        """A greeting failed, and there is another to try."""
        if isinstance(error, ConnectionLost) and not error.sent:
            raise _explained(error, None, self._dialer, manner) from error.__cause__
        self._on_failure(error)
        if isinstance(error, UnexpectedStatus) and error.status >= 500:
            self.is_sure = False  # its server may be modern, and ill
        if isinstance(error, ConnectionLost) and not (self._link is not None and self._link.is_http):
            await self.drop()  # the child died of it: start another

    async def _probe(self, patience: float) -> Negotiated[AnInbox]:
        """The modern greeting, with a limit; on a pipe the handshake joins in when it stays silent."""
        link = await self._dial("modern")
        dialect = self._make("modern", None)
        if link.is_http:
            limit = min(HTTP_SILENCE, patience / 2)
            try:
                async with SuspendableTimeout(limit, of_server=True):
                    welcome = await dialect.greet(link, self._next_id)
            except TimeoutError:
                raise TimedOut(f"{self._dialer.describe()} did not answer server/discover in {limit:g} s") from None
            return Negotiated(link, self._inbox, dialect, welcome, "modern")
        return await self._race(link, dialect, min(SILENCE, patience / 3))

    async def _race(self, link: Link, modern: Dialect, silence: float) -> Negotiated[AnInbox]:
        async def greet(dialect: Dialect, manner: Manner) -> Negotiated[AnInbox]:
            return Negotiated(link, self._inbox, dialect, await dialect.greet(link, self._next_id), manner)

        probe = asyncio.ensure_future(greet(modern, "modern"))
        tasks: list[asyncio.Future[Negotiated[AnInbox]]] = [probe]
        try:
            await self._listen(link, probe, silence)
            if probe.done():
                return probe.result()
            handshake = asyncio.ensure_future(greet(self._make("legacy", self._version), "legacy"))
            tasks.append(handshake)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if probe.done() and probe.exception() is None:
                # A server of both eras, only slow, answers the handshake too, and speaks legacy from then on.
                await asyncio.wait((handshake,), timeout=silence)
                is_legacy = handshake.done() and handshake.exception() is None
                return handshake.result() if is_legacy else probe.result()
            if handshake.done() and handshake.exception() is not None and not probe.done():
                # Only a modern server refuses like that; from any other the probe has had its time, and gets a little more.
                is_modern = isinstance(handshake.exception(), UnsupportedVersion)
                await asyncio.wait((probe,), timeout=None if is_modern else silence)
                return probe.result() if probe.done() else handshake.result()
            return await handshake
        finally:
            await _put_down(tasks)

    async def _listen(self, link: Link, probe: asyncio.Future[Any], silence: float) -> None:
        """Wait for the probe's answer until the server has been silent for too long."""
        unread: Callable[[], int | None] = getattr(link, "unread", lambda: None)
        stderr: Callable[[], Sequence[str]] = getattr(link, "stderr", tuple)
        is_working: Callable[[], bool] = getattr(link, "is_working", lambda: False)
        clock = asyncio.get_running_loop().time
        deadline, read_at = clock() + silence, None
        while not probe.done():
            waiting = unread()
            if waiting is None:
                read_at = None
                if clock() >= deadline or any(line.startswith("Traceback ") for line in stderr()):
                    return
            elif waiting > 0:
                read_at = None  # it is still starting, and may take as long as there is patience
            elif read_at is None:
                read_at = clock()
                deadline = read_at + silence
            elif clock() >= deadline:
                return
            elif is_working():
                read_at = clock()
            elif clock() - read_at >= READ_SILENCE:
                return
            await asyncio.wait((probe,), timeout=min(_LOOK, silence))


async def _put_down(tasks: list[asyncio.Future[Negotiated[AnInbox]]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # the loser's; nobody else will look


def _verdict(error: Error, manner: Manner) -> Literal["stop", "go on"]:
    """What a failed greeting says about the server: is there a point in trying the next manner?"""
    if isinstance(error, (Unauthorized, HeaderMismatch, MissingCapability)):
        return "stop"
    if isinstance(error, ConnectFailed):
        return "stop"
    if manner == "modern":
        return "go on"
    # After the handshake only the HTTP+SSE transport is left, and only a client error hints at it.
    if isinstance(error, UnexpectedStatus):
        return "go on" if 400 <= error.status < 500 else "stop"
    if isinstance(error, ProtocolError):
        return "go on" if 400 <= error.status < 500 else "stop"
    return "stop"


def not_ready(dialer: Dialer, limit: float, failures: list[Error], link: Link | None) -> Error:
    """Why the server did not get ready: the first child's death, if there was one; else what is known of its silence."""
    death = next((failure for failure in failures if isinstance(failure, ConnectionLost) and failure.stderr), None)
    if death is not None:
        again = f"\nStarted again, it did not get ready within {limit:g} s"
        return ended_early(dialer.describe(), death, again)
    clues = "" if link is None else link.oddities()
    if isinstance(link, Pipeline):
        clues += (
            "; it has not read its input yet (a server that speaks HTTP never does: use its URL)"
            if link.unread()
            else ""
        )
        clues += explain_stderr(link.stderr())
    return TimedOut(
        f"{dialer.describe()} did not get ready within {limit:g} s{clues}\nA slow start needs a larger connect_timeout"
    )


def ended_early(target: str, error: ConnectionLost, more: str = "") -> ConnectFailed:
    """The error for a server that ended while it was greeted. It names the target once: most deaths name it already."""
    subject = "the server" if target in str(error) else target
    if error.exit_code == 0 and not error.stderr:
        more += "\nIt ended without an error: a script has to run its server, with server.run() at its end"
    message = f"{subject} ended before it answered: {error}{more}"
    return ConnectFailed(message, exit_code=error.exit_code, stderr=error.stderr)


def _explained(error: Error, first: Error | None, dialer: Dialer, manner: Manner) -> Error:
    """The error for the caller. A server that ended while being greeted could not be connected to."""
    if isinstance(error, ConnectionLost):
        # The end of the first of two children is the cause, unless an unknown request ended it.
        if isinstance(first, ConnectionLost) and first.stderr and not _ended_by_the_probe(first):
            error = first
        return ended_early(dialer.describe(), error)
    # HTTP+SSE was the last straw to clutch at: where there is no such endpoint, what was said before tells more.
    return first if first is not None and manner == "sse" and isinstance(error, UnexpectedStatus) else error


def _ended_by_the_probe(error: ConnectionLost) -> bool:
    """Whether the end of its stderr quotes the modern probe."""
    return any("server/discover" in line for line in error.stderr)


def _not_modern(error: Error, dialer: Dialer) -> Error:
    """The modern era was asked for by name, and what came is no modern answer: say both."""
    hint = "era='modern' allows no older revision to be tried"
    if isinstance(error, UnexpectedStatus):
        return UnexpectedStatus(f"{error}; {hint}", status=error.status)
    if isinstance(error, RemoteProtocolError):
        return RemoteProtocolError(error.code, f"{error.message}; {hint}")
    return UnsupportedVersion(
        CODE_UNSUPPORTED_VERSION,
        f"{dialer.describe()} does not speak {MODERN}, and {hint}; {error}",
        {"supported": [], "requested": MODERN},
    )


def _common_legacy(refusal: UnsupportedVersion) -> str | None:
    """The newest legacy revision a server lists that we speak."""
    return next((version for version in LEGACY if version in refusal.supported), None)
