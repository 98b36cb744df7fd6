"""FastMCP's client (4.1.2) on our server."""

from __future__ import annotations

import pytest

from .contract import (
    Asking,
    Calling,
    CallingLargely,
    Cancelling,
    Completing,
    Connecting,
    Introducing,
    Listing,
    Reading,
    Watching,
    WatchingBursts,
    assert_same_order,
)
from .harness import DEADLINE, HERE, TOOLS, Outcome, drive, need

PYTHON = TOOLS / "peers" / "fastmcp" / "bin" / "python"
DRIVER = (str(PYTHON), str(HERE / "fastmcp_client.py"))
MODES = {"modern": "auto", "legacy": "legacy"}
PLAIN_PLACES = [("http", "modern"), ("http", "legacy"), ("stdio", "modern"), ("stdio", "legacy")]
PLACES = [*PLAIN_PLACES, ("sse", "legacy")]

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]


def outcome(transport: str, era: str) -> Outcome:
    need(PYTHON)
    return drive(DRIVER, transport, era, MODES[era])


class TestFastMcp(
    Connecting, Introducing, Listing, Calling, Reading, Completing, Watching, WatchingBursts, Cancelling, Asking
):
    """Left out: changed resources, and on the modern era changes of any kind. The client has neither `subscribe` nor
    `listen` (there is no such word in its `fastmcp/client`), it only passes on what comes unasked."""

    @pytest.fixture(params=PLACES, ids="-".join)
    def report(self, request: pytest.FixtureRequest) -> Outcome:
        return outcome(*request.param)

    def test_a_structured_result_becomes_an_object_with_attributes(self, report: Outcome) -> None:
        assert report.ok("typed weather") == {"city": "Zürich", "speed": 3.25}

    def test_a_tool_error_is_raised_with_its_reason(self, report: Outcome) -> None:
        error = report.error("raised")
        assert (error["type"], error["message"]) == ("ToolError", "it failed: tired")


# Left out: five megabytes over HTTP+SSE. The client's SSE parser (httpx2) gives up the whole connection at an event of more
# than 1 MiB ("SSEError: Server-sent event exceeded the 1048576 byte limit."), and there every answer is an event.
class TestFastMcpWithLargeResults(CallingLargely):
    @pytest.fixture(params=PLAIN_PLACES, ids="-".join)
    def report(self, request: pytest.FixtureRequest) -> Outcome:
        return outcome(*request.param)


@pytest.mark.parametrize("transport", ["http", "stdio", "sse"])
def test_a_new_tool_is_told_on_the_legacy_era(transport: str) -> None:
    assert outcome(transport, "legacy").ok("changes") == ["notifications/tools/list_changed"]


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_one_tool_body_answers_both_eras_alike_and_each_step_runs_once(transport: str) -> None:
    assert_same_order(outcome(transport, "modern"), outcome(transport, "legacy"))
