"""Secrets in arguments and entries are masked."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.until import soon

from trimaran.host import (
    ServerEntry,
)
from trimaran.host.connect_plan import plan_for
from trimaran.host.environment import read_environment
from trimaran.protocol.mask import Mask, mask_arguments

from .projects import read

pytestmark = pytest.mark.usefixtures("started")


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("TOKEN=hunter2", "TOKEN=***"),
        ("PASSWORD=hunter2", "PASSWORD=***"),
        ("key=hunter2", "key=***"),
        ("--env=API_KEY=hunter2", "--env=API_KEY=***"),
        ("-eAPI_KEY=hunter2", "-eAPI_KEY=***"),
        ("Authorization: Bearer hunter2", "Authorization: ***"),
        ("x-api-key:hunter2", "x-api-key:***"),
        ("--monkey-business", "--monkey-business"),
        ("token://hunter2", "token://hunter2"),
        ("notes: hunter2", "notes: hunter2"),
    ],
)
def test_an_argument_that_sets_a_secret_is_masked_however_it_sets_it(given: str, seen: str) -> None:
    assert mask_arguments(["run", given, "next"]) == ["run", seen, "next"]


@pytest.mark.parametrize(
    "text",
    ["-" + "auth" * 15_000 + "!", "KEY" * 20_000, "token" * 12_000, "https://a.example/?" + "a" * 60_000],
    ids=["flag", "setting", "header", "query"],
)
async def test_a_word_without_end_is_masked_soon(text: str) -> None:
    """A project's file is shown, masked, before anybody trusts it; what is slow here takes minutes."""
    made = asyncio.create_task(asyncio.to_thread(lambda: Mask(text, [text])))
    assert not (await soon(made))(text).endswith("***")


@pytest.mark.parametrize("kind", ["env", "headers"])
def test_a_secret_that_a_server_was_given_is_not_told_when_it_repeats_it(kind: str) -> None:
    target = {"command": "a"} if kind == "env" else {"transport": "http", "url": "https://a.example/mcp"}
    given = {"X-Auth-Token": "Bearer hunter2hunter2", "MODE": "production", "KEY": "short"}
    plan = plan_for("a", {**target, kind: given}, read_environment({}))
    text = "Bearer hunter2hunter2 / hunter2hunter2 is not known in production; shorts"
    assert plan.mask(text) == "*** / *** is not known in production; shorts"


def test_an_entry_is_masked_the_same() -> None:
    entry = read('[server.a]\ncommand = "a"\nenv = { API_KEY = "${K}" }', K="hunter2hunter2").servers["a"]
    assert isinstance(entry, ServerEntry)
    assert plan_for("a", entry, read_environment({})).mask("bad key hunter2hunter2") == "bad key ***"
