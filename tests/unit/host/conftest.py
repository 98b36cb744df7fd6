"""What tests of the host share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimaran import Server, connect
from trimaran.errors import ConnectFailed
from trimaran.host import connect_plan


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pins of its own for each test: servers of the same name and command list other tools elsewhere."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user-data"))


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
