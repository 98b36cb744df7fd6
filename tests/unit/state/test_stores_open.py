"""From a URL to a store: what is understood, and what is said about the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trimaran.errors import ConfigError
from trimaran.state import MemoryStore, RedisStore, SessionRecord, SqliteStore, open_store


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryStore),
        ("sqlite:///store.db", SqliteStore),
        ("SQLITE:////tmp/store.db", SqliteStore),
        ("redis://localhost", RedisStore),
        ("rediss://user:secret@localhost:6380/2", RedisStore),
        ("unix:///run/redis.sock", RedisStore),
        ("redis+sentinel://:secret@a:1,b/chief/3?sentinel_password=secret", RedisStore),
        ("rediss+sentinel://a/chief", RedisStore),
        ("redis+cluster://user:secret@a,b:7001,[::1]:7002", RedisStore),
    ],
)
async def test_url_names_a_store(url: str, kind: type) -> None:
    store = open_store(url)
    assert isinstance(store, kind)
    assert "secret" not in repr(store)
    await store.close()


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("", {}, "named by a URL"),
        ("store.db", {}, "named by a URL"),
        ("mongodb://localhost", {}, "no store of the kind 'mongodb': use one of memory://"),
        ("memory://x", {}, "has no name"),
        ("sqlite://", {}, "three or four slashes"),
        ("sqlite://store.db", {}, "three or four slashes"),
        ("sqlite:///", {}, "three or four slashes"),
        ("sqlite:///a.db?mode=ro", {}, "no options"),
        ("sqlite:///:memory:", {}, "memory://"),
        ("sqlite:///a.db", {"namespace": "x"}, "another file"),
        ("redis://localhost", {"namespace": "a b"}, "cannot be part of a key"),
        ("redis://localhost", {"namespace": "{x}"}, "cannot be part of a key"),
        ("redis://localhost:port", {}, "cannot be used"),
        ("redis+sentinel://a:26379", {}, "does not name the service"),
        ("redis+sentinel://,/chief", {}, "is not a host"),
        ("redis+cluster://", {}, "is not a host"),
    ],
)
async def test_url_that_names_none_is_refused_with_what_to_write(url: str, options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_store(url, **options)


async def test_url_with_a_secret_is_not_quoted_when_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        open_store("redis://me:sesame@localhost:port/0")
    assert "sesame" not in str(caught.value)


async def test_sqlite_path_is_relative_with_three_slashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///a%20b.db") as store:
        await store.sessions.create(SessionRecord(id="s"), ttl=60)
    async with open_store(f"sqlite:///{tmp_path}/a b.db") as store:
        assert await store.sessions.get("s")


async def test_redis_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ConfigError, match=r'pip install "trimaran\[redis\]"'):
        open_store("redis://localhost")


@pytest.mark.slow
def test_a_store_in_memory_loads_no_database() -> None:
    """Whose rule: ours (decision 0001: names resolve on demand)."""
    script = "from trimaran.state import open_store; open_store('memory://'); import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert not {"sqlite3", "redis", "trimaran.state.token_storage"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("redis://localhost?namespace=boats", "trimaran:{boats}:"),
        ("redis://localhost/1?namespace=b%2Dc&protocol=3", "trimaran:{b-c}:"),
        ("redis://localhost/1?protocol=3", "trimaran:{main}:"),
    ],
)
def test_a_namespace_may_be_in_the_url(url: str, prefix: str) -> None:
    store = open_store(url)
    assert isinstance(store, RedisStore)
    assert store._database.prefix == prefix  # pyright: ignore[reportPrivateUsage]


def test_a_bad_namespace_in_the_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be part of a key"):
        open_store("redis://localhost?namespace=a:b")
