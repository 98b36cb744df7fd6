"""What tests of the host share."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran import Server, connect
from trimaran.errors import ConnectFailed
from trimaran.host import connect_plan


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that a host starts: each is a server in this process, but for one that is missing."""
    commands: list[str] = []

    def dial(target: Any, **options: Any) -> Any:
        commands.append(target["command"])
        if target["command"] == "missing":
            raise ConnectFailed("there is no such program")
        server = Server("any", version="1")
        for name in ("look", "push"):
            server.add_tool(lambda: "ok", name=name)
        return connect(server, **options)

    monkeypatch.setattr(connect_plan, "connect", dial)
    return commands
