"""Our client on servers of FastMCP (4.1.2): both eras over HTTP and stdio, and HTTP+SSE."""

from __future__ import annotations

import pytest
from tests.support.until import soon

from trimaran import errors

from .harness import DEADLINE
from .servers.contract import URI, Everything
from .servers.lifecycle import OverHttp, OverPipes
from .servers.places import FASTMCP, Visit, Visiting, names

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]


@pytest.mark.asyncio(loop_scope="class")
class TestAServerOfFastMcp(Visiting, Everything):
    """Left out: changed resources, and streams of changes on the modern era, which the library does not serve."""

    program = FASTMCP
    places = [*Visiting.places, ("sse", "auto"), ("sse", "legacy")]
    title = None
    log_data = {"msg": "counting", "extra": {"to": 5}}

    async def test_a_new_tool_is_told_on_the_legacy_era(self, visit: Visit) -> None:
        """It is told on the stream of the call that made it, unasked."""
        if not visit.modern:
            name = f"grown_{next(names)}"
            await visit.client.call_tool("grow", {"name": name})
            while await soon(visit.notices.get()) != "notifications/tools/list_changed":
                pass
            assert name in {tool.name for tool in await visit.client.list_tools_all()}

    async def test_what_cannot_be_listened_to_is_said(self, visit: Visit) -> None:
        """R192."""
        with pytest.raises(errors.Unsupported):
            await soon(visit.client.subscribe(URI, lambda uri: None))


class TestAServerOfFastMcpOverPipes(OverPipes):
    program = FASTMCP


class TestAServerOfFastMcpOverHttp(OverHttp):
    program = FASTMCP
