"""Tools for tests of servers, clients and transports.

    from trimaran.testing import connected

    async def test_add():
        async with connected(server) as client:
            assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5

Everything here runs in memory unless it says otherwise, waits on the event loop's clock and never on chance. The pytest
fixtures are in `trimaran.testing.pytest_plugin`, which pytest finds by itself; that is why this module, like `trimaran`,
loads nothing until a name is used.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .cassette import Recorder as Recorder, Replayer as Replayer, record as record, replay as replay
    from .channels import channel_pair as channel_pair, channel_to as channel_to, connected as connected
    from .contract import CHANNEL_CHECKS as CHANNEL_CHECKS, check_channel as check_channel
    from .faults import (
        Corrupt as Corrupt,
        Cut as Cut,
        Delay as Delay,
        Drop as Drop,
        Duplicate as Duplicate,
        FaultChannel as FaultChannel,
        Reorder as Reorder,
        seeded_plan as seeded_plan,
    )
    from .script import ScriptedPeer as ScriptedPeer
    from .stores import STORE_CHECKS as STORE_CHECKS, check_store as check_store
    from .transcript import Transcript as Transcript
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "cassette": "Recorder Replayer record replay",
            "channels": "channel_pair channel_to connected",
            "contract": "CHANNEL_CHECKS check_channel",
            "faults": "Corrupt Cut Delay Drop Duplicate FaultChannel Reorder seeded_plan",
            "script": "ScriptedPeer",
            "stores": "STORE_CHECKS check_store",
            "transcript": "Transcript",
        },
    )
