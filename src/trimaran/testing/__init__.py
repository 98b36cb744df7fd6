"""Tools for the tests of those who write servers, clients and transports.

    from trimaran.testing import connected

    async def test_add():
        async with connected(server) as client:
            assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5

Everything here runs in memory unless it says otherwise, waits on the event loop's clock and never on chance. The pytest
fixtures are in `trimaran.testing.pytest_plugin`, which pytest finds by itself; that is why this module, like `trimaran`,
loads nothing until a name is used.
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself and costs more than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .cassette import Recorder, Replayer, record, replay
    from .channels import channel_pair, channel_to, connected
    from .contract import CHANNEL_CHECKS, check_channel
    from .faults import Corrupt, Cut, Delay, Drop, Duplicate, FaultChannel, Reorder, seeded_plan
    from .script import ScriptedPeer
    from .stores import STORE_CHECKS, check_store
    from .transcript import Transcript

__all__ = [
    "CHANNEL_CHECKS",
    "STORE_CHECKS",
    "Corrupt",
    "Cut",
    "Delay",
    "Drop",
    "Duplicate",
    "FaultChannel",
    "Recorder",
    "Reorder",
    "Replayer",
    "ScriptedPeer",
    "Transcript",
    "channel_pair",
    "channel_to",
    "check_channel",
    "check_store",
    "connected",
    "record",
    "replay",
    "seeded_plan",
]

_HOMES = {
    "CHANNEL_CHECKS": "contract",
    "Corrupt": "faults",
    "Cut": "faults",
    "Delay": "faults",
    "Drop": "faults",
    "Duplicate": "faults",
    "FaultChannel": "faults",
    "Recorder": "cassette",
    "Reorder": "faults",
    "Replayer": "cassette",
    "STORE_CHECKS": "stores",
    "ScriptedPeer": "script",
    "Transcript": "transcript",
    "channel_pair": "channels",
    "channel_to": "channels",
    "check_channel": "contract",
    "check_store": "stores",
    "connected": "channels",
    "record": "cassette",
    "replay": "cassette",
    "seeded_plan": "faults",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'trimaran.testing' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"trimaran.testing.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
