"""The official Python SDK's client (mcp 2.3.0) on our server."""

from __future__ import annotations

import pytest

from .contract import CallingLargely, Everything, Introducing, WatchingBursts, assert_same_order
from .harness import DEADLINE, HERE, TOOLS, Outcome, drive, need

PYTHON = TOOLS / "peers" / "sdk" / "bin" / "python"
DRIVER = (str(PYTHON), str(HERE / "sdk_client.py"))
# The SDK's word for each: "auto" asks server/discover, a version is taken as given, "legacy" shakes hands.
MODES = {"modern": "auto", "pinned": "2026-07-28", "legacy": "legacy"}
PLAIN_PLACES = [("http", "modern"), ("http", "legacy"), ("stdio", "modern"), ("stdio", "legacy")]
PLACES = [*PLAIN_PLACES, ("sse", "legacy")]

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]


def outcome(transport: str, era: str) -> Outcome:
    need(PYTHON)
    return drive(DRIVER, transport, era, MODES[era])


class TestTheOfficialPythonClient(Everything, Introducing, WatchingBursts):
    @pytest.fixture(params=PLACES, ids="-".join)
    def report(self, request: pytest.FixtureRequest) -> Outcome:
        return outcome(*request.param)


class TestTheOfficialPythonClientToldTheVersion(Everything, CallingLargely, WatchingBursts):
    """It then sends no `server/discover`, so there is no introduction."""

    @pytest.fixture(params=["http", "stdio"])
    def report(self, request: pytest.FixtureRequest) -> Outcome:
        return outcome(request.param, "pinned")


# Left out: five megabytes over HTTP+SSE. The client's SSE parser (httpx2) gives up the whole connection at an event of more
# than 1 MiB ("SSEError: Server-sent event exceeded the 1048576 byte limit."), and there every answer is an event.
class TestTheOfficialPythonClientWithLargeResults(CallingLargely):
    @pytest.fixture(params=PLAIN_PLACES, ids="-".join)
    def report(self, request: pytest.FixtureRequest) -> Outcome:
        return outcome(*request.param)


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_one_tool_body_answers_both_eras_alike_and_each_step_runs_once(transport: str) -> None:
    """R288, with all tests above: the official client on our server."""
    assert_same_order(outcome(transport, "modern"), outcome(transport, "legacy"))
