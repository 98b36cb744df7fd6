"""Stores when things go wrong: databases that are down, slow, full, locked, damaged or not ours; workers that are killed."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import secrets
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.disks import small_disk
from tests.support.redis import RedisServer, redis_server
from tests.support.until import PATIENCE, soon, until

from trimaran import outage_log
from trimaran.errors import ConfigError, TimedOut
from trimaran.state import (
    BusMessage,
    Gap,
    NoAnswer,
    RedisStore,
    SessionRecord,
    SqliteStore,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TaskRecord,
    open_store,
)

WORKER = Path(__file__).with_name("store_worker.py")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


async def eventually(what: str, attempt: Callable[[], Awaitable[Any]]) -> Any:
    """The first true result, of an attempt that may fail with StoreUnavailable until then."""
    deadline = time.monotonic() + PATIENCE
    last = ""
    while True:
        try:
            if found := await attempt():
                return found
        except StoreUnavailable as error:
            last = str(error)
        assert time.monotonic() < deadline, f"{what} did not happen within {PATIENCE:g} s: {last}"
        await asyncio.sleep(0.02)


def task(**more: Any) -> TaskRecord:
    now = int(time.time() * 1000)
    fields: dict[str, Any] = {"owner": "o", "created_ms": now, "expires_ms": now + 600_000, **more}
    return TaskRecord(id=secrets.token_hex(8), **fields)


async def heard(subscription: Any) -> BusMessage | Gap:
    return await soon(anext(subscription))


# --- Redis goes away -------------------------------------------------------------------------------------------------


async def test_redis_killed_and_restarted_loses_nothing_but_time(redis: RedisServer) -> None:
    """Whose rule: ours. Clear errors meanwhile, the gap told once, then everything as before."""
    async with RedisStore(redis.url, timeout=1) as store:
        record = await store.tasks.create(task())
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        await store.events.append("s", "g", b"1", ttl=60)

        async def respond(data: bytes) -> bytes:
            return data

        async with store.bus.subscribe("news") as news, store.bus.answer("w", respond):
            waiting = asyncio.ensure_future(store.events.wait("s", "g", 1, timeout=PATIENCE))
            assert await store.bus.request("w", b"x", timeout=PATIENCE) == b"x"
            redis.kill()
            with pytest.raises(StoreUnavailable, match=r"redis://127\.0\.0\.1.* is unavailable") as caught:
                await store.tasks.get(record.id)
            assert 0 < caught.value.retry_after <= 2
            attempts: list[Callable[[], Awaitable[Any]]] = [
                lambda: store.sessions.get("s"),
                lambda: store.events.append("s", "g", b"x", ttl=60),
                lambda: store.bus.publish("news", b"x"),
                lambda: store.tasks.claim(record.id, "w", seconds=1),
            ]
            for attempt in attempts:
                with pytest.raises(StoreUnavailable):
                    await attempt()
            assert not (await store.check()).is_up
            redis.start()
            await eventually("the recovery", lambda: store.tasks.get(record.id))
            assert await store.tasks.get(record.id) == record
            assert await store.sessions.get("s")
            assert isinstance(await heard(news), Gap)
            await store.bus.publish("news", b"again")
            assert await heard(news) == BusMessage("news", b"again", store.bus.name)
            assert await store.bus.request("w", b"y", timeout=PATIENCE) == b"y"
            # The number goes on: nobody hears of two different events by the same one.
            assert await store.events.append("s", "g", b"2", ttl=60) == 2
            async with asyncio.timeout(PATIENCE):
                assert await waiting
            assert (await store.check()).is_up


async def test_redis_that_was_never_there_is_said_so_and_found_when_it_comes(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    store = RedisStore(server.url, timeout=1)
    try:
        with pytest.raises(StoreUnavailable):
            await store.start()
        with pytest.raises(StoreUnavailable):
            async with store.bus.subscribe("x"):
                pass
        server.start()
        await eventually("the recovery", lambda: store.sessions.create(SessionRecord(id="s"), ttl=60))
        async with store.bus.subscribe("x") as news:
            await store.bus.publish("x", b"1")
            assert await heard(news) == BusMessage("x", b"1", store.bus.name)
    finally:
        await store.close()
        server.kill()


async def is_sending(store: RedisStore) -> bool:
    try:
        await store.bus.publish("ping", b"")
    except StoreUnavailable:
        return False
    return True


async def test_a_worker_that_is_not_back_yet_after_a_restart_of_redis_is_not_taken_for_gone(redis: RedisServer) -> None:
    namespace = secrets.token_hex(4)
    asking, asked = RedisStore(redis.url, namespace=namespace), RedisStore(redis.url, namespace=namespace)
    back = asyncio.Event()
    bus: Any = asked.bus
    read_messages = bus._read_messages

    async def come_back(*words: Any) -> None:
        await back.wait()
        await read_messages(*words)

    async def shout(data: bytes) -> bytes:
        return data.upper()

    async with asyncio.timeout(PATIENCE):
        await asking.start()
        await asked.start()
        try:
            async with asked.bus.answer("w", shout), asking.bus.subscribe("news") as news:
                assert await asking.bus.request("w", b"ahoy", timeout=5) == b"AHOY"
                bus._read_messages = come_back
                redis.kill()
                redis.start()
                assert isinstance(await anext(news), Gap)
                while not await is_sending(asking):  # the connection that sends finds out by itself
                    await asyncio.sleep(0.01)
                with pytest.raises(StoreUnavailable, match="is not back yet"):
                    await asking.bus.request("w", b"ahoy", timeout=0.2)
                waiting = asyncio.create_task(asking.bus.request("w", b"ahoy", timeout=PATIENCE))
                await asyncio.sleep(0)
                back.set()
                assert await waiting == b"AHOY"
        finally:
            back.set()
            await asking.close()
            await asked.close()


async def test_redis_that_does_not_answer_holds_nobody_up(redis: RedisServer) -> None:
    """Stopped, not dead: connections are taken, and nothing comes back."""
    async with RedisStore(redis.url, timeout=0.3) as store:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        redis.pause()
        try:
            async with asyncio.timeout(PATIENCE):
                outcomes = await asyncio.gather(*(store.sessions.get("s") for _ in range(100)), return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
            # And now it is left alone for a while: refused at once, without a try.
            with pytest.raises(StoreUnavailable):
                await store.sessions.get("s")
        finally:
            redis.resume()
        assert await eventually("the recovery", lambda: store.sessions.get("s"))


async def test_a_listener_notices_silence_and_tells_of_the_gap(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that is cut says nothing; so does a process that is stopped."""
    monkeypatch.setattr("trimaran.state.redis._PING", 0.05)
    monkeypatch.setattr("trimaran.state.redis._SILENCE", 0.3)
    async with RedisStore(redis.url, timeout=0.3) as store, store.bus.subscribe("news") as news:
        listening = store.bus._pubsub
        redis.pause()
        try:
            await until(lambda: store.bus._pubsub is not listening)
        finally:
            redis.resume()
        assert isinstance(await heard(news), Gap)
        await eventually("a message", lambda: published(store))
        assert await heard(news) == BusMessage("news", b"x", store.bus.name)


async def published(store: RedisStore) -> bool:
    await store.bus.publish("news", b"x")
    return True


async def test_a_listener_without_a_redis_does_not_spin(redis: RedisServer) -> None:
    """Whoever takes its place hangs up at once: the listener tries again, ever more slowly."""
    store = RedisStore(redis.url, timeout=1)
    connections = 0

    def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async with store, store.bus.subscribe("x"):
        redis.kill()
        impostor = await asyncio.start_server(hang_up, "127.0.0.1", redis.port)
        try:
            deadline = asyncio.get_running_loop().time() + 1.0
            while asyncio.get_running_loop().time() < deadline:
                with contextlib.suppress(StoreUnavailable):
                    await store.sessions.get("s")
                await asyncio.sleep(0.005)
        finally:
            impostor.close()
            await impostor.wait_closed()
    assert 1 <= connections < 40, f"{connections} connections were made in a second"


async def test_full_redis_is_said_to_be_full_and_still_read(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction") as server:
        async with RedisStore(server.url) as store:
            first = await store.tasks.create(task(journal=b"x" * 1000))
            with pytest.raises(StoreFull, match="is full"):
                for _ in range(100):
                    await store.tasks.create(task(journal=secrets.token_bytes(200_000)))
            assert await store.tasks.get(first.id) == first
            server.say("CONFIG", "SET", "maxmemory", "0")
            await store.tasks.create(task())


async def test_redis_with_data_of_another_version_is_refused(redis: RedisServer) -> None:
    redis.say("SET", "trimaran:{old}:schema", "99")
    store = RedisStore(redis.url, namespace="old")
    with pytest.raises(ConfigError, match=r"its schema is 99, this one reads 1"):
        await store.start()
    with pytest.raises(StoreUnavailable, match="its schema is 99"):  # whoever did not start it may come back
        await store.tasks.get("x")
    assert "schema is 99" in (await store.check()).detail
    await store.close()
    async with RedisStore(redis.url, namespace="new") as other:  # beside it there is room
        await other.tasks.get("x")


async def test_redis_with_a_password_says_so_without_telling_ours(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--requirepass", "right") as server:
        for credentials in ("", ":sesame@"):
            store = RedisStore(server.url.replace("//", f"//{credentials}"))
            with pytest.raises(ConfigError, match="user and password") as caught:
                await store.start()
            assert "sesame" not in f"{caught.value} {store!r}"
            await store.close()
        async with RedisStore(server.url.replace("//", "//:right@")) as store:
            assert (await store.check()).is_up


def become_a_replica(redis: RedisServer) -> Callable[[], object]:
    redis.say("REPLICAOF", "127.0.0.1", "1")
    return lambda: redis.say("REPLICAOF", "NO", "ONE")


def run_out_of_memory(redis: RedisServer) -> Callable[[], object]:
    redis.say("CONFIG", "SET", "maxmemory-policy", "noeviction")
    redis.say("CONFIG", "SET", "maxmemory", "1")
    return lambda: redis.say("CONFIG", "SET", "maxmemory", "0")


def fail_to_save(redis: RedisServer) -> Callable[[], object]:
    redis.say("CONFIG", "SET", "appendonly", "no")
    folder = redis.folder / "gone"
    folder.mkdir()
    redis.say("CONFIG", "SET", "dir", str(folder))
    folder.rmdir()
    redis.say("CONFIG", "SET", "save", "3600 1")
    deadline = time.monotonic() + PATIENCE
    while not redis.say("SET", "x", "1").startswith(b"-MISCONF"):
        redis.say("BGSAVE")
        assert time.monotonic() < deadline, "Redis saves where there is no folder"
        time.sleep(0.02)
    return lambda: redis.say("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (become_a_replica, "takes no writes: it is a replica: give the URL of the master"),
        (fail_to_save, "takes no writes: it cannot save its data"),
        (run_out_of_memory, "is full: give Redis more memory"),
    ],
    ids=["replica", "misconf", "full"],
)
async def test_redis_that_takes_no_writes_is_read_and_said_to_take_none(
    redis: RedisServer, harm: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with RedisStore(redis.url, timeout=2) as store:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        mend = harm(redis)
        for _ in range(5):
            with pytest.raises(StoreError, match=words):
                await store.sessions.create(SessionRecord(id=secrets.token_hex(4)), ttl=60)
            assert await store.sessions.get("s"), "reading goes on"
        health = await store.check()
        assert not health.is_up and health.is_read and words in health.detail
        assert [words in line for line in said(caplog)] == [True], said(caplog)
        async with contextlib.AsyncExitStack() as stack:  # a process that starts now reads, too
            late = (
                await stack.enter_async_context(RedisStore(redis.url, timeout=2)) if harm is not fail_to_save else store
            )
            assert await late.sessions.get("s")
        mend()
        await eventually("the recovery", lambda: store.sessions.create(SessionRecord(id="t"), ttl=60))
        assert (await store.check()).is_up


async def test_redis_that_wants_another_password_meanwhile_is_away_and_no_crash(redis: RedisServer) -> None:
    """Whose rule: ours. ConfigError is for `start`; whoever asks later may come back."""
    async with RedisStore(redis.url, timeout=2) as store:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        redis.say("CONFIG", "SET", "requirepass", "new")
        redis.hang_up_on_all("new")

        async def is_refused() -> bool:
            try:
                await store.sessions.get("s")
            except StoreUnavailable as error:
                return "Check the user and password" in str(error)
            return False

        await eventually("the refusal", is_refused)
        health = await store.check()
        assert not health.is_up and not health.is_read


async def test_poison_on_a_channel_of_redis_is_dropped_and_counted(redis: RedisServer) -> None:
    async with RedisStore(redis.url) as store, store.bus.subscribe("news") as news:
        for poison in (b"", b"junk", b"\xc1", b"\x93\xa1m\xa1x\x01", b"\x90" * 10_000):
            redis.say("PUBLISH", "trimaran:{main}:bus:news", poison)
        await store.bus.publish("news", b"good")
        assert await heard(news) == BusMessage("news", b"good", store.bus.name)
        assert store.bus.poisoned == 5


async def test_everything_in_redis_has_our_name_and_an_end(redis: RedisServer) -> None:
    """Whose rule: ours: TTLs on everything but the version of the schema."""
    async with RedisStore(redis.url, namespace="app") as store:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        await store.sessions.touch("s", ttl=120)
        await store.events.append("s", "g", b"1", ttl=60)
        await store.events.end("s", "r1", ttl=60)
        record = await store.tasks.create(task())
        await store.tasks.claim(record.id, "w", seconds=5)
        from redis import Redis

        with Redis.from_url(redis.url) as plain:
            keys: Any = plain.keys()
            assert len(keys) >= 9
            assert all(key.startswith(b"trimaran:{app}:") for key in keys), keys
            endless = [key for key in keys if plain.pttl(key) == -1]
            assert endless == [b"trimaran:{app}:schema"]


async def test_redis_cluster_and_sentinel_are_spoken_to(tmp_path: Path) -> None:
    """By their URLs, through the client library."""
    for name in ("cluster", "master", "sentinel"):
        (tmp_path / name).mkdir()
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(redis_server(tmp_path / "cluster", "--cluster-enabled", "yes"))
        node.say("CLUSTER", "ADDSLOTS", *(str(slot) for slot in range(16384)))
        master = stack.enter_context(redis_server(tmp_path / "master"))
        (tmp_path / "sentinel" / "s.conf").write_text(f"sentinel monitor chief 127.0.0.1 {master.port} 1\n")
        watch = RedisServer(tmp_path / "sentinel")
        watch.start_sentinel(tmp_path / "sentinel" / "s.conf")
        stack.callback(watch.kill)
        for url in (
            f"redis+cluster://127.0.0.1:{node.port}",
            f"redis+sentinel://127.0.0.1:1,127.0.0.1:{watch.port}/chief/0",
        ):
            store = open_store(url, timeout=3)
            try:
                record = await eventually("the first answer", lambda store=store: store.tasks.create(task()))
                assert await store.tasks.claim(record.id, "w", seconds=5)
                assert [found.id for found in (await store.tasks.list("o")).tasks] == [record.id]
                assert await store.events.append("s", "g", b"1", ttl=5) == 1
                async with store.bus.subscribe("x") as news:
                    await store.bus.publish("x", b"1")
                    assert await heard(news) == BusMessage("x", b"1", store.bus.name)
            finally:
                await store.close()


# --- SQLite ----------------------------------------------------------------------------------------------------------


async def test_locked_file_is_waited_for_within_bounds_and_still_read(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path, timeout=0.2) as store:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await store.sessions.get("s"), "readers wait for nobody"
            with pytest.raises(StoreUnavailable, match="locked by another process"):
                await store.sessions.touch("s", ttl=60)
            other.execute("ROLLBACK")
        assert await eventually("the recovery", lambda: store.sessions.touch("s", ttl=60))


async def test_file_that_cannot_be_written_is_said_so_at_the_start(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "absent" / "store.db")
    with pytest.raises(ConfigError, match="there is no directory .*absent; make it"):
        await store.start()
    await store.close()


async def test_file_that_becomes_read_only_refuses_writes_and_recovers(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db", timeout=0.2) as store:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        # Root may write anything; so SQLite itself is told to refuse.
        await store._database.write(lambda connection: connection.execute("PRAGMA query_only = 1"))
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            await store.sessions.touch("s", ttl=60)
        assert await eventually("the recovery", lambda: store.sessions.touch("s", ttl=60)), "a new connection is made"


@pytest.mark.parametrize("content", [b"not a database at all " * 100, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    store = SqliteStore(path)
    with pytest.raises(ConfigError, match=r"store\.db is damaged, or not a SQLite file"):
        await store.start()
    assert not (await store.check()).is_up
    await store.close()
    assert path.read_bytes() == content


async def test_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE sessions (mine TEXT)")
        other.commit()
    before = path.read_bytes()
    store = SqliteStore(path)
    with pytest.raises(ConfigError, match="database of another program"):
        await store.start()
    await store.close()
    assert path.read_bytes() == before


async def test_file_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")
        other.commit()
    store = SqliteStore(path)
    with pytest.raises(ConfigError, match="its schema is 99, this one reads 1"):
        await store.start()
    await store.close()


async def test_full_disk_is_said_to_be_full_and_still_read(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db") as store:
        first = await store.tasks.create(task())
        await store._database.write(lambda connection: connection.execute("PRAGMA max_page_count = 60"))
        with pytest.raises(StoreFull, match="disk is full") as caught:
            for _ in range(50):
                await store.tasks.create(task(journal=secrets.token_bytes(50_000)))
        assert caught.value.limit is None
        assert await store.tasks.get(first.id) == first
        await store._database.write(lambda connection: connection.execute("PRAGMA max_page_count = 100000"))
        await store.tasks.create(task())


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "trimaran.state"]


async def test_disk_that_is_really_full_refuses_writes_alone_and_recovers_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose rule: ours. Reading goes on, the check knows, and the log has one line for the whole time, and one at the end."""
    monkeypatch.setattr(outage_log, "_QUIET", 0.05)
    with small_disk(tmp_path / "disk") as disk:
        async with SqliteStore(disk.folder / "store.db") as store:
            record = await store.tasks.create(task())
            await store.sessions.create(SessionRecord(id="s"), ttl=60)
            assert (await store.check()).is_up
            disk.fill()
            for _ in range(5):
                with pytest.raises(StoreFull, match="its disk is full: make room"):
                    await store.sessions.touch("s", ttl=60)
                assert await store.sessions.get("s")
                assert await store.tasks.get(record.id) == record
            health = await store.check()
            assert not health.is_up and health.is_read and "make room" in health.detail
            assert len(said(caplog)) == 1, said(caplog)
            # A process that starts now cannot use it, and says so; when there is room it can.
            late = SqliteStore(disk.folder / "store.db")
            with contextlib.suppress(StoreFull):  # SQLite may get by with the room that it has
                await late.start()
            disk.empty()
            await eventually("the recovery", lambda: store.sessions.touch("s", ttl=60))
            await eventually("the recovery of the other", lambda: late.sessions.touch("s", ttl=60))
            await late.close()
            await asyncio.sleep(0.1)
            assert (await store.check()).is_up
            assert "takes writes again" in said(caplog)[-1]


async def test_new_file_on_a_full_disk_is_a_full_store_and_no_mistake(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        disk.fill()
        store = SqliteStore(disk.folder / "store.db")
        try:
            with pytest.raises(StoreFull, match="make room"):
                await store.start()
            disk.empty()
            await store.start()
        finally:
            await store.close()


async def test_disk_that_fails_is_said_so_and_recovers(tmp_path: Path) -> None:
    """A limit on the size of files fails as a broken disk does: with an I/O error."""
    async with SqliteStore(tmp_path / "store.db") as store:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
        try:
            with pytest.raises(StoreUnavailable, match=r"failed \(disk I/O error\): look at its disk"):
                await store.tasks.create(task(journal=secrets.token_bytes(50_000)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        await eventually("the recovery", lambda: store.tasks.create(task()))


async def test_file_that_is_removed_or_replaced_begins_anew_and_is_heard_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else this process would go on with a file that no other can see, and hear none of them."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store, store.bus.subscribe("news") as news:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        for _ in range(3):
            await store.bus.publish("news", b"before")
            assert await heard(news) == BusMessage("news", b"before", store.bus.name)
        for file in tmp_path.iterdir():
            file.unlink()

        async def is_gone() -> bool:
            return await store.sessions.get("s") is None and not await store.sessions.touch("s", ttl=60)

        await eventually("that it is noticed", is_gone)
        async with SqliteStore(path) as other:
            await other.sessions.create(SessionRecord(id="t"), ttl=60)
            assert await eventually("the other's session", lambda: store.sessions.get("t"))
            assert isinstance(await heard(news), Gap)
            await other.bus.publish("news", b"after")
            assert await heard(news) == BusMessage("news", b"after", other.bus.name)
    assert any("was removed or replaced" in line for line in said(caplog))


async def test_writes_that_wait_behind_a_lock_end_together_and_readers_wait_for_none(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path, timeout=0.5) as store:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            writes = [asyncio.ensure_future(store.sessions.touch("s", ttl=60)) for _ in range(20)]
            for _ in range(20):
                assert await store.sessions.get("s")
            assert not any(write.done() for write in writes)
            outcomes = await soon(asyncio.gather(*writes, return_exceptions=True))
            assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
            assert all("locked by another process" in str(outcome) for outcome in outcomes), outcomes
            assert await store.sessions.get("s"), "reading is not left alone for the sake of writes"
            health = await store.check()
            assert not health.is_up and health.is_read
            other.execute("ROLLBACK")
        assert await eventually("the recovery", lambda: store.sessions.touch("s", ttl=60))


async def test_poison_in_the_table_of_messages_is_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store, store.bus.subscribe("news") as news:
        with contextlib.closing(sqlite3.connect(path)) as other:
            for topic, data in (("news", "text"), ("news", 5), (b"news", b"x")):
                other.execute("INSERT INTO messages (topic, sender, data, at) VALUES (?, 'x', ?, 0)", (topic, data))
            other.commit()
        await store.bus.publish("news", b"good")
        assert await heard(news) == BusMessage("news", b"good", store.bus.name)
        assert store.bus.poisoned == 3


async def test_reader_that_slept_past_the_messages_hears_of_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store, store.bus.subscribe("news") as news:
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE sqlite_sequence SET seq = seq + 100 WHERE name = 'messages'")
            other.execute("INSERT INTO messages (id, topic, sender, data, at) VALUES (200, 'news', 'x', x'31', 0)")
            other.commit()
        assert isinstance(await heard(news), Gap)
        assert await heard(news) == BusMessage("news", b"1", "x")


async def test_file_of_a_store_is_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}, modes


async def test_many_processes_may_make_the_file_at_once(tmp_path: Path) -> None:
    async def start() -> None:
        async with SqliteStore(tmp_path / "store.db") as store:
            await store.tasks.create(task())

    await asyncio.gather(*(start() for _ in range(8)))
    async with SqliteStore(tmp_path / "store.db") as store:
        assert await store.tasks.count() == 8


async def test_record_that_cannot_be_read_is_taken_for_gone(tmp_path: Path, redis: RedisServer) -> None:
    """Whose rule: ours: what one record holds must not stop the others."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as file, RedisStore(redis.url) as server:
        for store in (file, server):
            await store.sessions.create(SessionRecord(id="s"), ttl=60)
            await store.tasks.create(task(created_ms=1))
            bad = await store.tasks.create(task(created_ms=2))
            good = await store.tasks.create(task(created_ms=3))
            with contextlib.closing(sqlite3.connect(path)) as other:
                other.execute("UPDATE sessions SET data = x'c1'")
                other.execute("UPDATE tasks SET data = x'00' WHERE id = ?", (bad.id,))
                other.commit()
            redis.say("HSET", "trimaran:{main}:session:s", "data", b"\xc1")
            redis.say("HSET", f"trimaran:{{main}}:task:{bad.id}", "data", b"\0")
            assert await store.sessions.get("s") is None
            assert await store.tasks.get(bad.id) is None
            assert await store.tasks.claim(bad.id, "w", seconds=5) is None
            assert len((await store.tasks.list("o")).tasks) == 2
            assert good.id in {due.id for due in await store.tasks.due()}


async def test_key_of_the_wrong_kind_fails_alone(redis: RedisServer) -> None:
    redis.say("SET", "trimaran:{main}:session:s", "text")
    async with RedisStore(redis.url) as store:
        await store.sessions.create(SessionRecord(id="other"), ttl=60)
        with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
            await store.sessions.get("s")
        assert await store.sessions.get("other")


# --- processes -------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def worker(url: str, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(WORKER), url, *words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout
    async with asyncio.timeout(PATIENCE):
        return (await process.stdout.readline()).decode().strip()


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisServer) -> str:
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else redis.url


@pytest.mark.slow
async def test_tasks_of_three_processes_run_once_each(url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_store(url) as store, contextlib.AsyncExitStack() as stack:
        workers = []
        made = [await store.tasks.create(task()) for _ in range(60)]
        for _ in range(3):
            workers.append(await stack.enter_async_context(worker(url, "run", str(log), "o", "120")))
        for process in workers:
            assert await line(process) == "ready"
        made += [await store.tasks.create(task()) for _ in range(60)]
        for process in workers:
            assert await line(process) == "done"
        page = await store.tasks.list("o", limit=1000)
        assert {found.status for found in page.tasks} == {"completed"}
    ran = log.read_text().split()
    assert sorted(ran) == sorted(record.id for record in made)


@pytest.mark.slow
async def test_task_of_a_killed_process_goes_to_another(url: str, tmp_path: Path) -> None:
    async with open_store(url) as store:
        record = await store.tasks.create(task())
        async with worker(url, "hold") as holder:
            assert await line(holder) == record.id
            assert await store.tasks.claim(record.id, "me", seconds=5) is None
            holder.kill()
            await holder.wait()
            mine = await eventually("the end of the lease", lambda: store.tasks.claim(record.id, "me", seconds=5))
        assert mine.worker == "me"
        assert await store.tasks.update(replace(mine, status="failed", error=b"its worker died"))


@pytest.mark.slow
async def test_processes_hear_ask_and_wait_for_each_other(url: str) -> None:
    async with open_store(url) as store:
        async with worker(url, "answer", "w7") as answering, worker(url, "listen", "news", "3") as listening:
            assert await line(answering) == "ready"
            assert await line(listening) == "ready"
            assert await store.bus.request("w7", b"abc", timeout=PATIENCE) == b"cba"
            for number in range(3):
                await store.bus.publish("news", b"%d" % number)
            assert [await line(listening) for _ in range(3)] == ["0", "1", "2"]
            answering.kill()
            await answering.wait()
            with pytest.raises((NoAnswer, TimedOut)):
                await store.bus.request("w7", b"abc", timeout=1)
        async with worker(url, "append", "s", "40") as appending:
            after, events = 0, []
            while True:
                assert await store.events.wait("s", "g", after, timeout=PATIENCE)
                page = await store.events.read("s", "g", after)
                events += [event.data for event in page.events]
                after = page.events[-1].number if page.events else after
                if page.is_ended and after == page.last:
                    break
            assert events == [b"%d" % number for number in range(40)]
            assert await line(appending) == "done"


def test_a_write_that_meets_a_reset_connection_is_a_store_that_is_away_on_uvloop_too(redis: RedisServer) -> None:
    """There it is a RuntimeError, where asyncio drops what was to be written."""
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        async with RedisStore(redis.url) as store:
            await store.sessions.create(SessionRecord(id="s"), ttl=60)
            pool: Any = store.sessions._database.client.connection_pool  # pyright: ignore[reportPrivateUsage]
            for connection in list(pool._available_connections):
                connection._writer.transport.abort()
            await asyncio.sleep(0)
            with pytest.raises(StoreUnavailable):
                await store.sessions.get("s")
            assert await eventually("it recovers by itself", lambda: store.sessions.get("s"))

    uvloop.run(main())


async def test_a_connection_that_is_closed_as_it_is_taken_is_a_store_that_is_away(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle connections are closed after a failure. One that is taken at that moment has lost its writer."""
    from redis.asyncio.connection import AbstractConnection

    send: Any = AbstractConnection._send_packed_command  # pyright: ignore[reportPrivateUsage]

    async def close_and_send(connection: Any, command: Any) -> None:
        monkeypatch.undo()
        await connection.disconnect()
        await send(connection, command)

    async with RedisStore(redis.url) as store:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
        monkeypatch.setattr(AbstractConnection, "_send_packed_command", close_and_send)
        with pytest.raises(StoreUnavailable):
            await store.sessions.get("s")
        assert await eventually("it recovers by itself", lambda: store.sessions.get("s"))


async def test_a_wait_can_be_cancelled_at_every_turn(redis: RedisServer) -> None:
    """Python 3.11's wait_for, within the library, swallows a cancellation that meets a result."""
    async with RedisStore(redis.url) as store:
        for turns in range(30):
            waiting = asyncio.ensure_future(store.events.wait("s", "g", 10**6, timeout=60))
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting}, timeout=PATIENCE)
            assert waiting.cancelled(), f"cancelled after {turns} turns, it goes on"


async def test_a_store_that_is_closed_waits_for_what_is_under_way(redis: RedisServer) -> None:
    """A connection in use would be given back to nobody, and left open."""
    store = RedisStore(redis.url)
    await store.start()
    reading = [asyncio.ensure_future(store.sessions.get("s")) for _ in range(20)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.wait(reading)
    assert all(one.exception() is None or isinstance(one.exception(), StoreUnavailable) for one in reading)


async def test_who_subscribes_anew_hears_nothing_from_before(redis: RedisServer) -> None:
    """A message that was on its way to those who have left is not for those who come while it arrives."""
    async with RedisStore(redis.url) as store:
        bus: Any = store.bus
        heard: list[bytes] = []

        class Listener:
            def receive(self, message: BusMessage) -> None:
                heard.append(message.data)

        bus.board._listeners["t"] = {Listener()}

        def arrive(kind: str, data: bytes = b"") -> None:
            envelope = bus.sealed("t", data)[1] if kind == "message" else 1
            bus._handle({"type": kind, "channel": (bus._prefix + "t").encode(), "data": envelope})

        bus._pending["t"] = 2  # left and asked for twice, and not answered yet
        arrive("message", b"old")
        arrive("subscribe")
        arrive("message", b"older than the last answer")
        arrive("subscribe")
        arrive("message", b"new")
        assert heard == [b"new"]
        bus.board._listeners.clear()
