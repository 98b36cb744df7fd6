"""A library logger only: importing, making and serving a server touch nobody else's logging (P12, P54)."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from tests.support.until import PATIENCE

from trimaran import Server
from trimaran.legacy.duplex import LegacyDuplex
from trimaran.server.handlers import incident
from trimaran.transports.memory import MemoryChannel

SCRIPT = """
import logging, sys
root = logging.getLogger()
before = (list(root.handlers), root.level, logging.lastResort, logging.raiseExceptions, logging.getLoggerClass())
import trimaran, trimaran.serve, trimaran.schema, trimaran.legacy.server_http, trimaran.transports.stdio, trimaran.transports.asgi
server = trimaran.Server("x")
server.add_tool(lambda: 1, name="t")
server.asgi()
import asyncio
asyncio.run(server.call_tool("t"))
after = (list(root.handlers), root.level, logging.lastResort, logging.raiseExceptions, logging.getLoggerClass())
assert before == after, (before, after)
ours = [n for n in logging.root.manager.loggerDict if n.split(".")[0] == "trimaran"]
for name in ours:
    logger = logging.getLogger(name)
    assert not [h for h in logger.handlers if not isinstance(h, logging.NullHandler)], name
    assert logger.level == logging.NOTSET, name
    assert logger.propagate, name
print("untouched")
"""


@pytest.mark.slow
def test_importing_and_making_a_server_leaves_logging_alone() -> None:
    """P12: in a fresh process, where nothing else has touched it."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout.strip() == "untouched", done.stderr
    assert done.stderr == "", "P54: silent by default"


async def test_serving_leaves_the_root_logger_alone() -> None:
    """P12."""
    root = logging.getLogger()
    before = list(root.handlers), root.level, root.filters[:]
    server = Server("x")
    server.add_tool(lambda: 1, name="t")
    channel = MemoryChannel(server, legacy=LegacyDuplex)
    request: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    await channel.send(json.dumps(request).encode())
    async with asyncio.timeout(PATIENCE):
        assert await channel.receive()
    await channel.close()
    assert (list(root.handlers), root.level, root.filters[:]) == before


def test_an_incident_is_logged_once_with_its_traceback_and_its_number(caplog: pytest.LogCaptureFixture) -> None:
    """P27."""
    try:
        raise ValueError("what happened")
    except ValueError as error:
        with caplog.at_level(logging.ERROR, "trimaran"):
            number = incident("a thing", error)
    (record,) = caplog.records
    assert record.name == "trimaran.server"
    assert record.getMessage() == f"a thing failed [{number}]"
    assert "what happened" in caplog.text
    assert len(number) == 8


def test_incidents_have_numbers_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "trimaran"):
        assert len({incident("x", ValueError()) for _ in range(50)}) == 50
