"""`server.run("http", inspect=True)`: the inspector beside a server of one's own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from trimaran import Server
from trimaran.errors import ConfigError

PROGRAM = """
from trimaran import Server
server = Server("boat")

@server.tool
def add(a: int, b: int) -> int:
    '''Add.'''
    return a + b

server.run("http", port=0, inspect=True)
"""


def ask(url: str, body: Any, session: str = "") -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {session}"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:  # noqa: S310
        return json.load(answer)


def test_a_server_opens_the_whole_inspector_with_doctor_and_typed_targets(tmp_path: Path) -> None:
    file = tmp_path / "boat.py"
    file.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(file)], stderr=subprocess.PIPE, text=True) as program:  # noqa: S603
        try:
            assert program.stderr is not None
            link = next(re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line) for line in program.stderr)
            assert link is not None
            origin, _, token = link[0].partition("?token=")
            session = ask(f"{origin}api/login", {"token": token})["session"]
            ask(f"{origin}api/servers/boat/doctor", {}, session)
            added = ask(f"{origin}api/servers", {"target": f"{sys.executable} {file}", "connect": False}, session)
            assert added["transport"] == "stdio"
        finally:
            program.terminate()
        assert program.wait(10) == 0


@pytest.mark.parametrize(
    "options",
    [{"host": "0.0.0.0", "allowed_origins": []}, {"workers": 2}],  # noqa: S104
)
def test_it_is_for_one_process_on_this_machine(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="inspect=True"):
        Server("boat").run("http", port=0, inspect=True, **options)
