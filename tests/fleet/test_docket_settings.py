"""A docket before there is any Redis: what it refuses, and how it says so. The rest is in `test_docket`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import docket as library  # noqa: F401 - a second of work, which is to be nobody's in particular
import pytest

from trimaran import Server
from trimaran.errors import ConfigError, DeclarationError
from trimaran.ext.tasks import Tasks
from trimaran.ext.tasks.docket import Docket
from trimaran.serve import share

NOWHERE = "redis://127.0.0.1:1/0"


def harbour(*, long_running: bool = True) -> Server:
    server = Server("harbour", version="1")

    @server.tool(long_running=long_running)
    async def errand() -> str:
        return "done"

    return server


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docket", None)
    with pytest.raises(ConfigError, match=r'pip install "trimaran\[docket\]"'):
        Docket()


@pytest.mark.parametrize("store", [None, "sqlite"])
async def test_a_server_without_a_store_on_redis_does_not_start(store: str | None, tmp_path: Path) -> None:
    server = harbour()
    server.enable_extension(Docket())
    share(server, f"sqlite:///{tmp_path}/boats.db" if store else None)
    try:
        with pytest.raises(ConfigError, match="need a store on Redis"):
            await server.start()
    finally:
        await server.stop()


def test_a_server_has_one_docket() -> None:
    server, docket = harbour(), Docket()
    assert Docket.of(server) is None
    server.enable_extension(docket)
    assert Docket.of(server) is docket
    for another in (Docket(), docket):
        with pytest.raises(DeclarationError, match="one docket"):
            server.enable_extension(another)


async def test_tasks_that_have_a_runner_go_to_no_docket() -> None:
    server = Server("harbour", version="1")
    server.enable_extension(Tasks(runner=Docket()))
    server.enable_extension(Docket())
    share(server, NOWHERE)
    try:
        with pytest.raises(ConfigError, match="one runner"):
            await server.start()
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (None, NOWHERE),
        ("REDIS://other:6379/1", "redis://other:6379/1"),
        ("redis+sentinel://a,b/boats/0", "redis+sentinel://a,b/boats/0"),
        ("rediss+cluster://user:secret@a:7000,b:7001/0", "rediss+cluster://user:secret@a:7000"),
    ],
)
def test_it_is_on_the_store_of_the_server_or_where_it_is_told(given: str | None, used: str) -> None:
    server, docket = harbour(), Docket(given)
    server.enable_extension(docket)
    share(server, NOWHERE)
    assert docket.where() == used


async def test_a_server_whose_tools_are_quick_has_nothing_to_work_on() -> None:
    server, docket = harbour(long_running=False), Docket()
    server.enable_extension(docket)
    share(server, NOWHERE)
    with pytest.raises(ConfigError, match="no tool of this server is declared long_running"):
        await docket.work()


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"drain": -1.0}], ids=str)
async def test_a_worker_refuses_numbers_that_mean_nothing(options: dict[str, float]) -> None:
    server, docket = harbour(), Docket()
    server.enable_extension(docket)
    with pytest.raises(ConfigError, match="concurrency must be 1 or more"):
        await docket.work(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"most_waiting": 0}, {"redelivery": 0.0}, {"redelivery": float("inf")}], ids=str)
def test_a_docket_refuses_numbers_that_mean_nothing(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="must be a positive number"):
        Docket(**options)  # type: ignore[arg-type]


def test_it_may_be_made_before_there_is_a_loop_and_used_in_several() -> None:
    server, docket = harbour(), Docket()
    server.enable_extension(docket)
    for _ in range(2):
        asyncio.run(docket.close())
