"""A server with tasks is forgotten with its last user."""

from __future__ import annotations

import gc
import weakref

from trimaran import Server
from trimaran.ext.tasks import Tasks
from trimaran.ext.tasks.docket import Docket


def test_a_server_with_tasks_and_a_docket_does_not_outlive_its_last_user() -> None:
    server = Server("boat")
    server.enable_extension(Tasks())
    server.enable_extension(Docket())

    @server.tool(long_running=True)
    async def refit() -> str:
        """Refit it."""
        return "done"

    assert Tasks.of(server) is not None
    assert Docket.of(server) is not None
    gone = weakref.ref(server)
    del server, refit
    gc.collect()
    assert gone() is None
