"""The official TypeScript clients on our server: 2.4.0 in both eras, and 1.x, which most programs still use."""

from __future__ import annotations

import pytest

from .contract import CallingLargely, Everything, Introducing, assert_same_order
from .harness import DEADLINE, HERE, MODULES, NODE, Outcome, drive, need

SCRIPT = str(HERE / "ts_client.mjs")
V2 = MODULES / "@modelcontextprotocol" / "client" / "package.json"
V1 = MODULES / "@modelcontextprotocol" / "sdk" / "package.json"
# The library's word for each: "auto" asks server/discover and may fall back, a version must be offered by it.
MODES = {"modern": "auto", "pinned": "2026-07-28", "legacy": "legacy"}
PLACES = [
    ("http", "modern"),
    ("http", "pinned"),
    ("http", "legacy"),
    ("stdio", "modern"),
    ("stdio", "pinned"),
    ("stdio", "legacy"),
    ("sse", "legacy"),
]

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]


def outcome(transport: str, era: str, library: str = "v2") -> Outcome:
    need(NODE, V1 if library == "v1" else V2)
    return drive((str(NODE), SCRIPT, library), transport, era, MODES[era])


# Left out: progress that comes in the same read as the result. Both generations handle a notification in a later
# microtask (`Promise.resolve().then(() => handler(...))` in `_onnotification`) but a response at once, dropping the call's
# progress handler; on stdio five notifications and the result are one read, and none of the five is heard.


class TestTheTypeScriptClient(Everything, CallingLargely, Introducing):
    def test_a_missing_resource_is_a_protocol_error(self, report: Outcome) -> None:
        """The client knows both codes and gives its caller one error for them, always with the modern code."""
        error = report.error("read missing")
        assert (error["type"], error["data"]) == ("ResourceNotFoundError", {"uri": "config://nowhere"})

    @pytest.fixture(params=PLACES, ids="-".join)
    def report(self, request: pytest.FixtureRequest) -> Outcome:
        return outcome(*request.param)


class TestTheTypeScriptClientOfTheFirstGeneration(Everything, CallingLargely, Introducing):
    @pytest.fixture(params=["http", "stdio", "sse"])
    def report(self, request: pytest.FixtureRequest) -> Outcome:
        return outcome(request.param, "legacy", "v1")


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_one_tool_body_answers_both_eras_alike_and_each_step_runs_once(transport: str) -> None:
    assert_same_order(outcome(transport, "modern"), outcome(transport, "legacy"))


def test_one_tool_body_answers_the_newest_and_the_oldest_client_alike() -> None:
    assert_same_order(outcome("http", "modern"), outcome("http", "legacy", "v1"))
