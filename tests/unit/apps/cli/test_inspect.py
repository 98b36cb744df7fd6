"""`trimaran inspect`: how the servers of the command line are called on the page."""

from __future__ import annotations

import pytest

from trimaran.apps.cli.inspect import reach_of
from trimaran.apps.cli.target import Settings, Target


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (Target("https://example.com/mcp", url="https://example.com/mcp"), "example.com"),
        (Target("http://127.0.0.1:9090/mcp", url="http://127.0.0.1:9090/mcp"), "127.0.0.1:9090"),
        (Target("https://me:pw@example.com/mcp", url="https://me:pw@example.com/mcp"), "example.com"),
        (Target("https://example.com/#mcp", url="https://example.com/#mcp"), "example.com"),
        (Target(".mcp.json#notes", command=("npx", "-y", "notes")), "notes"),
        (Target("'.mcp.json#notes'", command=("npx", "-y", "notes")), "notes"),
        (Target(".mcp.json#far", url="https://example.com/mcp"), "far"),
        (Target("-- npx -y @scope/server-files .", command=("npx", "-y", "@scope/server-files", ".")), "server-files"),
        (Target("work/boat.py", command=("python", "work/boat.py")), "boat"),
    ],
)
def test_a_server_has_a_short_name_without_secrets(target: Target, name: str) -> None:
    assert reach_of(target, Settings(bearer=None)).name == name
