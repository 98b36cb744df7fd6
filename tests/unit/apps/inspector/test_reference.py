"""The interface and its reference page say the same."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from trimaran.apps.cli import commands
from trimaran.apps.inspector.site import ROUTES

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs/reference/inspector.md").read_text()
ELSEWHERE = {"POST /api/login"}  # answered before anybody has a session


def test_every_route_is_on_the_page_and_every_path_of_the_page_is_a_route() -> None:
    documented = {
        f"{method} {re.sub('[?].*', '', path)}"
        for method, path in re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/api/[^\s`]*)", PAGE)
    }
    routes = {f"{route.method} {route.path}" for route in ROUTES}
    assert routes - documented == set()
    assert documented - routes == ELSEWHERE


def test_the_example_of_saved_calls_runs() -> None:
    run = CliRunner().invoke(commands, ["inspect", "--run", str(ROOT / "examples/calls.toml")], standalone_mode=False)
    assert run.return_value == 0, run.output
