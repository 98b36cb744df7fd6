"""A store that is down, slow, full or of another version: what does not need it goes on, the rest says so and recovers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.disks import small_disk
from tests.support.harness import Reply, Stream, initialize, request, serve
from tests.support.inside import inside
from tests.support.redis import RedisServer
from tests.support.until import until

from trimaran import Server
from trimaran.errors import ConfigError
from trimaran.serve import HttpServer
from trimaran.state import MemoryStore, StoreFull, StoreUnavailable

from .boats import Boat, pair

ADD = {"a": 1, "b": 2}


@pytest.fixture
def own(tmp_path: Path) -> Any:
    """A Redis that may be killed."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


def says_so(reply: Reply) -> bool:
    assert reply.status == 503, reply
    assert "cannot use its store" in reply.error["message"]
    assert int(reply.headers["retry-after"]) >= 1
    return True


async def recovers(act: Any) -> Reply:
    """Until it works again; the store is left alone for two seconds at most."""
    deadline = time.monotonic() + 10
    while (reply := await act()).status == 503:
        assert time.monotonic() < deadline, reply
        await asyncio.sleep(0.05)
    return reply


async def patiently(stream: Stream) -> Any:
    """The next message; what was cut is not tried again at once."""
    for _ in range(4):
        with contextlib.suppress(TimeoutError):
            return await stream.message()
    raise AssertionError("nothing came")


async def test_what_needs_no_store_goes_on_while_it_is_down(own: RedisServer) -> None:
    async with pair(own.url) as (one, two):
        session = await one.wire.initialize()
        elsewhere = two.at(session)
        own.kill()
        assert (await one.wire.call("add", ADD)).status == 200, "a modern call"
        for _ in range(3):
            assert (await session.call("add", ADD)).status == 200, "a session that is known here"
        assert says_so(await elsewhere.call("add", ADD)), "not 404: the client must not take its session for lost"
        assert says_so(await one.wire.post(initialize()))
        assert says_so(await session.ask("logging/setLevel", {"level": "error"}))
        assert says_so(await session.delete())
        own.start()
        assert (await recovers(lambda: elsewhere.call("add", ADD))).status == 200
        assert (await recovers(lambda: two.wire.post(initialize()))).status == 200


async def test_a_known_session_is_served_long_after_it_was_last_seen_in_the_store(own: RedisServer) -> None:
    async with pair(own.url) as (one, _):
        session = await one.wire.initialize()
        inner = next(iter(inside(one.server).sessions))
        own.kill()
        inner.checked_until = 0.0
        assert (await session.call("add", ADD)).status == 200


async def test_a_call_that_streams_ends_well_while_the_store_is_down(own: RedisServer) -> None:
    async with pair(own.url) as (one, _):
        session = await one.wire.initialize()
        async with await session.open_call("work", id="w", progress="p") as stream:
            await stream.message()
            own.kill()
            one.go.set()
            assert (await stream.message())["params"]["progress"] == 2
            assert (await stream.message())["id"] == "w"


async def test_changes_made_while_the_store_was_down_are_told_when_it_is_back(own: RedisServer) -> None:
    async with pair(own.url) as (one, two):
        wanted = {"notifications": {"toolsListChanged": True}}
        async with await two.wire.open_modern("subscriptions/listen", wanted) as stream:
            await stream.message()
            own.kill()
            one.server.notify.tools_changed()
            own.start()
            assert (await patiently(stream))["method"] == "notifications/tools/list_changed"


async def test_the_standing_stream_goes_on_when_the_store_is_back(own: RedisServer) -> None:
    async with pair(own.url) as (one, _):
        session = await one.wire.initialize()
        async with await session.get() as stream:
            await stream.raw_event()
            own.kill()
            one.server.notify.tools_changed()
            own.start()
            assert (await patiently(stream))["method"] == "notifications/tools/list_changed"


async def test_a_store_that_hangs_is_waited_for_no_longer_than_its_patience(own: RedisServer) -> None:
    async with pair(own.url) as (one, two):
        session = await one.wire.initialize()
        own.pause()
        try:
            assert (await session.call("add", ADD)).status == 200
            assert (await one.wire.call("add", ADD)).status == 200
        finally:
            own.resume()
        assert (await recovers(lambda: two.at(session).call("add", ADD))).status == 200


async def test_a_server_starts_without_its_store_and_finds_it_later(own: RedisServer) -> None:
    own.kill()
    boat = Boat()
    async with serve("http", boat.server, store=own.url) as boat.wire:
        assert (await boat.wire.call("add", ADD)).status == 200
        assert says_so(await boat.wire.post(initialize()))
        own.start()
        assert (await recovers(lambda: boat.wire.post(initialize()))).status == 200


async def test_data_of_another_version_is_refused_at_the_start(own: RedisServer) -> None:
    own.say("SET", "trimaran:{main}:schema", "999")
    with pytest.raises(ConfigError, match="another version"):
        await HttpServer(Server("boat", version="1"), port=0, store=own.url).start()


async def test_a_full_store_lets_no_session_in_and_serves_on(own: RedisServer) -> None:
    async with pair(own.url) as (one, _):
        session = await one.wire.initialize()
        assert own.say("CONFIG", "SET", "maxmemory-policy", "noeviction").startswith(b"+OK")
        assert own.say("CONFIG", "SET", "maxmemory", "100000").startswith(b"+OK")
        assert (await one.wire.post(initialize())).status == 503
        assert (await session.call("add", ADD)).status == 200
        own.say("CONFIG", "SET", "maxmemory", "0")
        assert (await one.wire.post(initialize())).status == 200


async def ready(boat: Boat) -> Any:
    return (await boat.wire.send("GET", path="/readyz")).json


async def test_on_a_full_disk_known_sessions_are_served_and_all_else_is_told_the_truth(tmp_path: Path) -> None:
    """Whose rule: ours (docs/guides/scale.md). Nobody is told of sessions that there are not, and nothing has to be restarted."""
    with small_disk(tmp_path / "disk") as disk:
        async with pair(f"sqlite:///{disk.folder}/boats.db") as (one, two):
            session, other = await one.wire.initialize(), await one.wire.initialize()
            inner = next(iter(inside(one.server).sessions))
            assert await ready(one) == {"status": "ready"}
            disk.fill()
            for _ in range(3):
                for known in inside(one.server).sessions:
                    known.checked_until = 0.0
                assert (await session.call("add", ADD)).status == 200, "a session that is known here"
                assert (await session.ask("tools/list")).status == 200
                assert (await one.wire.call("add", ADD)).status == 200, "a modern call"
            assert (await two.at(session).call("add", ADD)).status == 200, "it can be read, and so found, elsewhere"
            for refused in (
                await one.wire.post(initialize()),
                await session.ask("logging/setLevel", {"level": "error"}),
                await other.delete(),
            ):
                assert refused.status == 503 and "retry-after" in refused.headers
                assert "store is full" in refused.error["message"], refused
                assert str(tmp_path) not in str(refused.body)
            one.wire.engine.health._check_again = 0.0
            assert await ready(one) == {"status": "degraded", "reason": "the store takes no writes"}
            assert one.wire.engine.gauges().store_up is False
            disk.empty()
            assert (await recovers(lambda: one.wire.post(initialize()))).status == 200
            assert (await recovers(lambda: other.delete())).status == 204
            one.wire.engine.health._check_again = 0.0
            assert await ready(one) == {"status": "ready"}
            assert not inner.closed


class Refusing:
    """A store of an author's own that raises what nobody foresaw."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        if self.error is not None:
            raise self.error
        return getattr(self._store, name)


@pytest.mark.parametrize(
    ("error", "status"), [(StoreFull("full"), 200), (StoreUnavailable("away"), 200), (RuntimeError("a bug"), 500)]
)
async def test_whatever_a_store_raises_a_request_is_answered(error: Exception, status: int) -> None:
    """Not by hanging up. A store that is full or away does not stop a known session."""
    store = MemoryStore()
    sessions: Any = Refusing(store.sessions)
    store.sessions = sessions  # pyright: ignore[reportAttributeAccessIssue]
    boat = Boat()
    async with serve("http", boat.server, store=store) as boat.wire:
        session = await boat.wire.initialize()
        sessions.error = error
        next(iter(inside(boat.server).sessions)).checked_until = 0.0
        reply = await session.call("add", ADD)
        assert reply.status == status
        if status == 500:
            assert reply.error["message"].startswith("internal error")
        sessions.error = None
        assert (await session.call("add", ADD)).status == 200


async def test_sessions_beyond_the_limit_are_told_of_the_limit(own: RedisServer) -> None:
    async with pair(own.url, max_sessions=1) as (one, _):
        await one.wire.initialize()
        reply = await one.wire.post(initialize())
        assert reply.status == 503
        assert "1 sessions are open" in reply.error["message"]


async def test_a_redis_that_wants_another_password_does_not_end_known_sessions(own: RedisServer) -> None:
    async with pair(own.url) as (one, _):
        session = await one.wire.initialize()
        own.say("CONFIG", "SET", "requirepass", "new")
        own.hang_up_on_all("new")
        for _ in range(3):
            next(iter(inside(one.server).sessions)).checked_until = 0.0
            assert (await session.call("add", ADD)).status == 200
            assert says_so(await one.wire.post(initialize()))
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    "poison",
    [b"", b"\xc1", b"\x93\xa1a\xa7session\xa4oops", b"\x93\xa1a\xa6cancel\x01", b"\x93\xa1a\xa5ended\x80"],
    ids=["empty", "no msgpack", "no record", "no cancellation", "no id"],
)
async def test_a_poisoned_message_on_the_bus_is_dropped_and_counted(own: RedisServer, poison: bytes) -> None:
    async with pair(own.url) as (one, two):
        session = await one.wire.initialize()
        await inside(one.server).runtime.fleet.store.bus.publish("fleet", poison)
        await until(lambda: inside(two.server).runtime.fleet.poisoned == 1, "it was counted")
        assert (await two.at(session).call("add", ADD)).status == 200
        # Not only in the envelope that our own bus makes, but raw on the wire, too.
        own.say("PUBLISH", "trimaran:{main}:bus:fleet", poison)
        assert (await two.at(session).call("add", ADD)).status == 200


async def test_an_unknown_kind_of_news_is_passed_over(own: RedisServer) -> None:
    """A newer version may share the store for the time of an upgrade."""
    async with pair(own.url) as (one, two):
        await inside(one.server).runtime.fleet.tell("novelty", {"x": 1})
        await inside(one.server).runtime.fleet.tell("ended", "mcp_" + "0" * 32)
        assert inside(two.server).runtime.fleet.poisoned == 0
        assert (await two.wire.post(request("ping"))).status == 400
