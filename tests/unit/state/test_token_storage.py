"""Where logins are kept: by every store alike, safe from other users, and lost by no race and no accident (R248, C33)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import types
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import pytest

from trimaran.errors import ConfigError
from trimaran.state import (
    FileTokens,
    KeyringTokens,
    MemoryTokens,
    StoreUnusable,
    TokenStore,
    default_tokens,
    keys_of_url,
    token_key,
    token_storage,
)

RECORD = b'{"access_token":"s3cret","scopes":["a"]}'
OTHER = b'{"access_token":"0ther"}'


class FakeKeyring:
    """A backend of `keyring`, which may refuse to work."""

    priority = 5.0

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.refuses = False
        self.most = 10**9

    def _check(self) -> None:
        if self.refuses:
            raise RuntimeError("locked; it was given s3cret")

    def get_password(self, service: str, username: str) -> str | None:
        self._check()
        assert service == "trimaran-mcp"
        return self.entries.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        assert len(password.encode("utf-16-le")) <= self.most, "the stub received bad data"
        self.entries[username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        del self.entries[username]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for every test, and no warning remembered from the one before."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(token_storage, "_warned", set())
    return tmp_path


@pytest.fixture(params=["memory", "file", "keyring", "keyring in parts"])
def store(request: pytest.FixtureRequest) -> TokenStore:
    match request.param:
        case "memory":
            return MemoryTokens()
        case "file":
            return FileTokens()
        case "keyring":
            return KeyringTokens(FakeKeyring())
        case _:
            return KeyringTokens(FakeKeyring(), most=10)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Every store


async def test_what_is_saved_is_loaded_to_the_byte(store: TokenStore) -> None:
    assert isinstance(store, TokenStore)
    record = '{"access_token": "s3cret", "name": "Möwe 🚢", "n": 1.50}'.encode()
    await store.save("boats:1", record)
    assert await store.load("boats:1") == record


async def test_an_unknown_key_loads_nothing(store: TokenStore) -> None:
    assert await store.load("nobody") is None
    assert await store.keys() == []
    assert await store.delete("nobody") is False


async def test_a_record_takes_the_place_of_the_one_before(store: TokenStore) -> None:
    await store.save("a", RECORD)
    await store.save("a", OTHER)
    assert await store.load("a") == OTHER
    assert await store.keys() == ["a"]


async def test_a_deleted_record_is_gone_and_the_others_stay(store: TokenStore) -> None:
    await store.save("a", RECORD)
    await store.save("b", OTHER)
    assert await store.delete("a") is True
    assert await store.delete("a") is False
    assert await store.load("a") is None
    assert await store.keys() == ["b"]


async def test_a_lock_is_held_by_one_task_at_a_time_and_others_wait_for_their_turn(store: TokenStore) -> None:
    inside, most, order = 0, 0, []

    async def work(number: int) -> None:
        nonlocal inside, most
        async with store.lock("a"):
            inside += 1
            most = max(most, inside)
            order.append(number)
            await asyncio.sleep(0)
            await store.save("a", RECORD)  # the lock of a key is no lock of the store
            inside -= 1

    async with asyncio.timeout(10):
        await asyncio.gather(*(work(number) for number in range(8)))
    assert (most, order) == (1, list(range(8)))


async def test_locks_of_other_keys_do_not_wait(store: TokenStore) -> None:
    async with asyncio.timeout(10), store.lock("a"), store.lock("b"):
        pass


async def test_a_lock_is_passed_on_when_a_waiter_gives_up_or_the_holder_fails(store: TokenStore) -> None:
    entered = asyncio.Event()

    async def hold() -> None:
        async with store.lock("a"):
            entered.set()
            await asyncio.Event().wait()

    async def pass_through() -> None:
        async with store.lock("a"):
            pass

    async with asyncio.timeout(10):
        holder = asyncio.create_task(hold())
        await entered.wait()
        quitter, patient = asyncio.create_task(pass_through()), asyncio.create_task(pass_through())
        await asyncio.sleep(0)
        quitter.cancel()
        holder.cancel()
        await patient
        for task in (quitter, holder):
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_a_waiter_cancelled_in_the_moment_of_its_turn_passes_it_on(store: TokenStore) -> None:
    async def take() -> None:
        async with store.lock("a"):
            pass

    async with asyncio.timeout(10):
        async with store.lock("a"):
            waiter = asyncio.create_task(take())
            await asyncio.sleep(0)
        waiter.cancel()  # its turn has been given, and it has not run since
        with pytest.raises(asyncio.CancelledError):
            await waiter
        await take()


async def test_a_lock_holds_between_the_loops_of_two_threads(store: TokenStore) -> None:
    inside = 0
    clashes: list[int] = []

    async def work() -> None:
        nonlocal inside
        for _ in range(20):
            async with store.lock("a"):
                inside += 1
                await asyncio.sleep(0)
                if inside != 1:
                    clashes.append(inside)
                inside -= 1

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    async with asyncio.timeout(20):
        await work()
    await asyncio.to_thread(thread.join, 20)
    assert not thread.is_alive()
    assert clashes == []


async def test_no_secret_is_in_the_repr(store: TokenStore) -> None:
    await store.save("a", RECORD)
    assert "s3cret" not in repr(store)


@pytest.mark.parametrize("record", [b"", b"s3cret", b'["s3cret"]', b'{"s3cret":', b'{"a":1}{"b":2}', b'{"a":"\xff"}'])
@pytest.mark.parametrize("make", [FileTokens, lambda: KeyringTokens(FakeKeyring())], ids=["file", "keyring"])
async def test_what_is_no_json_object_is_refused_unquoted_and_harms_nothing(
    make: Callable[[], TokenStore], record: bytes
) -> None:
    store = make()
    await store.save("a", RECORD)
    with pytest.raises(ConfigError) as caught:
        await store.save("b", record)
    assert "s3cret" not in str(caught.value)
    assert await store.keys() == ["a"]


# Keys


def test_a_key_is_the_name_and_the_hash_of_the_url_as_it_was_written() -> None:
    """C33, P50: another URL under the same name has another key, and no two spellings are made one."""
    key = token_key("boats", "https://boats.example/mcp")
    assert key == "boats:335f314281f7e9870cedc29924c0d44bdc461da85162fe4fbb30918783ed1829"
    assert key != token_key("boats", "https://boats.example/mcp/")
    assert key != token_key("boats", "https://BOATS.example/mcp")
    assert key != token_key("ships", "https://boats.example/mcp")


def test_the_keys_of_a_url_are_found_under_any_name() -> None:
    url = "https://boats.example/mcp"
    mine = [token_key("boats", url), token_key("a:b", url)]
    assert keys_of_url([*mine, token_key("boats", url + "/")], url) == mine


# The file


async def test_the_file_is_for_its_user_alone(home: Path) -> None:
    previous = os.umask(0)
    try:
        store = FileTokens()
        await store.save("a", RECORD)
        async with store.lock("a"):
            pass
    finally:
        os.umask(previous)
    assert store.path == home / "data" / "trimaran" / "mcp-tokens.json"
    assert mode(store.path) == 0o600
    assert mode(store.path.parent) == 0o700
    for path in store.path.parent.rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path


async def test_the_file_is_one_json_object() -> None:
    store = FileTokens()
    await store.save("a", RECORD)
    await store.save("b", OTHER)
    assert json.loads(store.path.read_bytes()) == {"a": json.loads(RECORD), "b": json.loads(OTHER)}


async def test_a_file_readable_by_others_is_closed_to_them_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    store = FileTokens()
    await store.save("a", RECORD)
    store.path.chmod(0o644)
    assert await store.load("a") == RECORD
    assert mode(store.path) == 0o600
    assert len(warnings_of(caplog)) == 1
    assert "0600" in warnings_of(caplog)[0]
    assert "s3cret" not in caplog.text


async def test_our_own_directory_is_closed_to_others_and_a_given_one_is_left_alone(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, given = home / "data" / "trimaran", home / "given"
    for directory in (own, given):
        directory.mkdir(parents=True)
        directory.chmod(0o755)
    await FileTokens().save("a", RECORD)
    await FileTokens(given / "tokens.json").save("a", RECORD)
    assert (mode(own), mode(given)) == (0o700, 0o755)
    assert mode(given / "tokens.json") == 0o600
    assert len(warnings_of(caplog)) == 1


async def test_a_symbolic_link_in_the_place_of_the_file_is_refused(home: Path) -> None:
    target = home / "elsewhere.json"
    target.write_text("{}")
    store = FileTokens()
    store.path.parent.mkdir(parents=True, mode=0o700)
    store.path.symlink_to(target)
    for attempt in (store.load("a"), store.save("a", RECORD), store.keys(), store.delete("a")):
        with pytest.raises(StoreUnusable, match="symbolic link"):
            await attempt
    assert target.read_text() == "{}"
    assert store.path.is_symlink()


@pytest.mark.parametrize("name", ["mcp-tokens.json.lock", "mcp-token_storage.json.new"])
async def test_a_planted_link_beside_the_file_is_not_written_through(home: Path, name: str) -> None:
    target = home / "elsewhere"
    target.write_text("mine")
    store = FileTokens()
    store.path.parent.mkdir(parents=True, mode=0o700)
    (store.path.parent / name).symlink_to(target)
    with contextlib.suppress(StoreUnusable):
        await store.save("a", RECORD)
    assert target.read_text() == "mine"


@pytest.mark.parametrize("kind", ["directory", "fifo"])
async def test_what_is_no_file_is_refused_at_once(kind: str) -> None:
    store = FileTokens()
    store.path.parent.mkdir(parents=True, mode=0o700)
    if kind == "directory":
        store.path.mkdir()
    else:
        os.mkfifo(store.path)
    async with asyncio.timeout(10):
        with pytest.raises(StoreUnusable, match="is not a file"):
            await store.load("a")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
async def test_a_file_of_another_user_is_refused() -> None:
    store = FileTokens()
    await store.save("a", RECORD)
    os.chown(store.path, 12345, -1)
    with pytest.raises(StoreUnusable, match="another user"):
        await store.load("a")


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"a": s3cret', b"\xff\xfe", b'"a"', b"[" * 100_000])
async def test_a_damaged_file_is_moved_aside_with_a_warning_and_work_goes_on(
    text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileTokens()
    await store.save("a", RECORD)
    store.path.write_bytes(text)
    assert await store.load("a") is None
    aside = store.path.with_name("mcp-tokens.json.damaged-1")
    assert aside.read_bytes() == text
    assert len(warnings_of(caplog)) == 1
    assert str(aside) in warnings_of(caplog)[0]
    assert "s3cret" not in caplog.text
    await store.save("b", OTHER)
    assert await store.keys() == ["b"]


async def test_a_save_over_a_damaged_file_loses_neither(caplog: pytest.LogCaptureFixture) -> None:
    store = FileTokens()
    for number in (1, 2):
        store.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        store.path.write_text(f"damaged {number}")
        store.path.chmod(0o600)
        await store.save("a", RECORD)
    for number in (1, 2):
        assert store.path.with_name(f"mcp-tokens.json.damaged-{number}").read_text() == f"damaged {number}"
    assert await store.load("a") == RECORD


async def test_an_empty_file_is_an_empty_store(caplog: pytest.LogCaptureFixture) -> None:
    store = FileTokens()
    store.path.parent.mkdir(parents=True, mode=0o700)
    store.path.touch(0o600)
    assert await store.keys() == []
    assert warnings_of(caplog) == []


async def test_what_a_killed_writer_left_behind_is_no_obstacle() -> None:
    store = FileTokens()
    await store.save("a", RECORD)
    store.path.with_name("mcp-tokens.json.new").write_bytes(b'{"half')
    await store.save("b", OTHER)
    assert await store.keys() == ["a", "b"]
    assert not store.path.with_name("mcp-tokens.json.new").exists()


async def test_a_write_that_fails_leaves_the_old_file_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileTokens()
    await store.save("a", RECORD)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreUnusable, match="No space left"):
            await store.save("a", OTHER)
    assert await store.load("a") == RECORD
    assert not store.path.with_name("mcp-tokens.json.new").exists()


async def test_a_cancelled_save_is_done_before_the_lock_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread cannot be cancelled: the next writer must not begin while the last one still writes."""
    store = FileTokens()
    started, go_on = threading.Event(), threading.Event()
    sync = os.fsync

    def slow(descriptor: int) -> None:
        started.set()
        assert go_on.wait(10)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    async with asyncio.timeout(10):
        first = asyncio.create_task(store.save("a", RECORD))
        await asyncio.to_thread(started.wait, 10)
        first.cancel()
        second = asyncio.create_task(store.save("b", OTHER))
        await asyncio.sleep(0)
        assert not first.done()
        go_on.set()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first
    assert sorted(await store.keys()) == ["a", "b"]


async def test_a_place_that_cannot_be_written_is_named(home: Path) -> None:
    (home / "data").write_text("a file, no directory")
    with pytest.raises(StoreUnusable, match=str(home / "data")):
        await FileTokens().save("a", RECORD)


async def test_reading_needs_neither_lock_nor_directory(home: Path) -> None:
    assert await FileTokens().load("a") is None
    assert not (home / "data").exists()


def test_where_the_file_is_follows_the_system() -> None:
    where = token_storage.data_directory
    assert where({"XDG_DATA_HOME": "/d"}, "linux", "/h") == PurePosixPath("/d/trimaran")
    assert where({}, "linux", "/h") == PurePosixPath("/h/.local/share/trimaran")
    assert where({"XDG_DATA_HOME": "relative"}, "linux", "/h") == PurePosixPath("/h/.local/share/trimaran")
    local = {"LOCALAPPDATA": "C:\\Users\\a\\AppData\\Local", "XDG_DATA_HOME": "/d"}
    expected = PureWindowsPath("C:/Users/a/AppData/Local/trimaran")
    assert where(local, "win32", "C:\\Users\\a") == expected
    assert where({}, "win32", "C:\\Users\\a") == expected


# Several processes

PREAMBLE = "import asyncio, os, sys\nfrom trimaran.state import FileTokens\nstore = FileTokens()\n"


def start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    with process:
        out, _ = process.communicate(timeout=25)
    assert process.returncode == 0
    return out


@pytest.mark.slow
async def test_processes_that_save_at_once_lose_no_update() -> None:
    code = """
async def main():
    sys.stdin.readline()
    for number in range(25):
        await store.save(f"{os.getpid()}-{number}", b'{"n":%d}' % number)
        if number % 5 == 4:
            assert await store.delete(f"{os.getpid()}-{number}")
asyncio.run(main())
"""
    processes = [start(code) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        await asyncio.to_thread(finish, process)
    expected = {f"{process.pid}-{n}" for process in processes for n in range(25) if n % 5 != 4}
    assert set(await FileTokens().keys()) == expected


HOLDER = """
async def main():
    async with store.lock("a"):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
"""


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the lock of "a" until it is told a line."""
    with start(HOLDER) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        if process.poll() is None:
            process.kill()


async def is_free(store: FileTokens) -> bool:
    """Can the lock be had at once? Fails the way it does for a person: by waiting in vain."""
    try:
        async with store.lock("a"):
            return True
    except StoreUnusable:
        return False


@pytest.mark.slow
async def test_a_lock_held_by_another_process_is_waited_for_within_bounds(
    holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileTokens()
    monkeypatch.setattr(token_storage, "REFRESH_SECONDS", 0.05)
    with pytest.raises(StoreUnusable) as caught:
        async with store.lock("a"):
            pass
    assert str(store.path) + ".locks" in str(caught.value)
    assert "another process" in str(caught.value)
    async with store.lock("b"):
        pass


@pytest.mark.slow
async def test_the_loop_goes_on_while_a_lock_is_waited_for(holder: subprocess.Popen[str]) -> None:
    store = FileTokens()
    async with asyncio.timeout(20):
        waiting = asyncio.create_task(is_free(store))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not waiting.done()
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert await waiting


@pytest.mark.slow
async def test_the_lock_of_a_killed_process_is_released(holder: subprocess.Popen[str]) -> None:
    store = FileTokens()
    async with asyncio.timeout(20):
        waiting = asyncio.create_task(is_free(store))
        await asyncio.sleep(0)
        holder.send_signal(signal.SIGKILL)
        assert await waiting


@pytest.mark.slow
async def test_the_lock_of_a_holder_that_forked_is_released_with_it(home: Path) -> None:
    """A child shares the descriptor: closing it in the parent alone would keep the lock."""
    code = """
async def main():
    async with store.lock("a"):
        child = os.fork()
        if child == 0:
            sys.stdin.readline()
            os._exit(0)
    print("released", flush=True)
    os.waitpid(child, 0)
asyncio.run(main())
"""
    with start(code) as process:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "released\n"
        async with asyncio.timeout(10):
            async with FileTokens().lock("a"):
                pass
        process.communicate("\n", timeout=20)


@pytest.mark.slow
async def test_one_refresh_at_a_time_over_processes() -> None:
    """Read, wait, write under the lock: without it, counts would be lost."""
    code = """
async def main():
    for _ in range(10):
        async with store.lock("count"):
            found = await store.load("count")
            number = int(found[5:-1]) if found else 0
            await asyncio.sleep(0)
            await store.save("count", b'{"n":%d}' % (number + 1))
asyncio.run(main())
"""
    processes = [start(code) for _ in range(3)]
    for process in processes:
        await asyncio.to_thread(finish, process)
    assert await FileTokens().load("count") == b'{"n":30}'


# The keyring


@pytest.fixture
async def backend() -> AsyncIterator[FakeKeyring]:
    yield FakeKeyring()


async def test_a_record_too_long_for_windows_is_cut_in_parts_and_old_parts_go(backend: FakeKeyring) -> None:
    backend.most = 2560
    store = KeyringTokens(backend, most=600)
    for size in (5000, 3000, 10):
        record = json.dumps({"t": "🚢" * size}, ensure_ascii=False).encode()
        await store.save("a", record)
        assert await store.load("a") == record
    assert backend.entries.keys() == {"a", "index"}
    await store.save("a", json.dumps({"t": "x" * 5000}).encode())
    assert len(backend.entries) > 5
    await store.delete("a")
    assert backend.entries == {}


@pytest.mark.parametrize(("text", "limit"), [("plain", 1200), ("Möwe", 600)])
def test_the_limit_of_windows_counts_in_utf_16(text: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    store = object.__new__(KeyringTokens)
    store._most = None
    assert store._limit(text) == limit
    assert len(("🚢" * 600).encode("utf-16-le")) <= 2560
    assert len(("x" * 1200).encode("utf-16-le")) <= 2560


async def test_the_index_of_a_keyring_goes_on_over_entries(backend: FakeKeyring) -> None:
    store = KeyringTokens(backend, most=200)
    keys = [token_key(f"server {n}", "https://h/mcp") for n in range(9)]
    for key in keys:
        await store.save(key, b"{}")
    assert await store.keys() == keys
    assert max(len(text) for text in backend.entries.values()) <= 200
    for key in keys[:-1]:
        assert await store.delete(key)
    assert await store.keys() == keys[-1:]
    assert sum(name.startswith("index") for name in backend.entries) == 1


async def test_a_record_with_a_part_missing_is_no_record(
    backend: FakeKeyring, caplog: pytest.LogCaptureFixture
) -> None:
    store = KeyringTokens(backend, most=10)
    await store.save("a", RECORD)
    part = next(name for name in backend.entries if name.endswith(".2"))
    del backend.entries[part]
    assert await store.load("a") is None
    assert "damaged" in warnings_of(caplog)[0]
    await store.save("a", OTHER)
    assert await store.load("a") == OTHER


async def test_a_keyring_that_refuses_is_said_without_its_words(backend: FakeKeyring) -> None:
    backend.refuses = True
    with pytest.raises(StoreUnusable) as caught:
        await KeyringTokens(backend).save("a", RECORD)
    assert "RuntimeError" in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_what_a_keyring_refuses_goes_to_the_fallback_with_one_warning(
    backend: FakeKeyring, caplog: pytest.LogCaptureFixture
) -> None:
    store = KeyringTokens(backend, fallback=FileTokens())
    await store.save("a", RECORD)
    backend.refuses = True
    await store.save("a", OTHER)
    assert await store.load("a") == OTHER
    assert await store.keys() == ["a"]
    assert len(warnings_of(caplog)) == 1
    backend.refuses = False
    assert await store.load("a") == OTHER, "the keyring has the older one"
    await store.save("a", RECORD)
    assert await FileTokens().keys() == []
    assert await store.load("a") == RECORD
    assert await store.delete("a")


async def test_a_keyring_that_never_answers_is_given_up(
    backend: FakeKeyring, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(token_storage, "KEYRING_SECONDS", 0.05)
    release = threading.Event()
    monkeypatch.setattr(backend, "get_password", lambda *_: release.wait(20) and None)
    store = KeyringTokens(backend, fallback=FileTokens())
    assert await store.load("a") is None
    assert "TimeoutError" in warnings_of(caplog)[0]
    release.set()


def install_keyring(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    module: Any = types.ModuleType("keyring")
    module.get_keyring = lambda: backend
    for name in ("get_password", "set_password", "delete_password"):
        setattr(module, name, lambda *words, name=name: getattr(backend, name)(*words))
    monkeypatch.setitem(sys.modules, "keyring", module)


async def test_the_keyring_is_the_default_where_there_is_one(
    backend: FakeKeyring, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install_keyring(monkeypatch, backend)
    store = default_tokens()
    assert isinstance(store, KeyringTokens)
    await store.save("a", RECORD)
    assert backend.entries["a"] == RECORD.decode()
    assert warnings_of(caplog) == []


class Useless(FakeKeyring):
    priority = 0.5


class Broken(FakeKeyring):
    @property
    def priority(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("no D-Bus")


@pytest.mark.parametrize("kind", ["not installed", "useless", "broken"])
def test_without_a_keyring_the_file_is_the_default_with_one_warning(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R248."""
    if kind == "not installed":
        monkeypatch.setitem(sys.modules, "keyring", None)
    else:
        install_keyring(monkeypatch, Useless() if kind == "useless" else Broken())
    assert isinstance(default_tokens(warn=False), FileTokens)
    assert warnings_of(caplog) == []
    store = default_tokens()
    default_tokens()
    assert isinstance(store, FileTokens)
    assert len(warnings_of(caplog)) == 1
    assert str(store.path) in warnings_of(caplog)[0]


def test_a_keyring_that_is_not_installed_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(StoreUnusable, match=r"trimaran\[keyring\]"):
        KeyringTokens()
