"""`server.run("http", inspect=True)`: the inspector beside a server of one's own."""

from __future__ import annotations

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


def test_a_server_opens_its_inspector_and_writes_the_link(tmp_path: Path) -> None:
    file = tmp_path / "boat.py"
    file.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(file)], stderr=subprocess.PIPE, text=True) as program:  # noqa: S603
        try:
            assert program.stderr is not None
            link = next(re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line) for line in program.stderr)
            assert link is not None
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with browser.open(link[0]) as page:
                assert page.status == 200
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
