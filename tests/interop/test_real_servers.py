"""Ten servers that nobody here wrote, over stdio: old and new, in Python, TypeScript and Go.

Each is met, listed, called once, and shown to `trimaran list` and `trimaran doctor`. The calls change nothing and stay on
this machine: where a server would reach out, it is sent to a port where nobody listens, and its error is the answer.
`scripts/setup-servers` installs them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trimaran import connect
from trimaran.errors import CallError

from .harness import DEADLINE, MODULES, NODE, TOOLS, need

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]

SERVERS = TOOLS / "servers"
NPM = SERVERS / "node" / "node_modules" / ".bin"
NOBODY = "http://127.0.0.1:9"
PATIENCE = 60.0
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "here", "cluster": {"server": NOBODY}}],
    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    "current-context": "here",
    "users": [{"name": "me", "user": {}}],
}


class Real(NamedTuple):
    """A server, what it speaks, and one call with a part of its answer."""

    command: tuple[str | Path, ...]
    revision: str
    tool: str
    arguments: dict[str, Any]
    answer: str
    env: Mapping[str, str] = {}
    unlisted: tuple[str, ...] = ()
    """What it declares, and cannot list."""


REAL = {
    # Dies of a first message it does not know, but only when the next line comes.
    "sqlite-sdk-1.1": Real(
        (SERVERS / "sqlite-sdk-1.1" / "bin" / "mcp-server-sqlite", "--db-path", "{home}/notes.db"),
        "2024-11-05",
        "list_tables",
        {},
        "[]",
        unlisted=("templates",),
    ),
    "sqlite-sdk-1.6": Real(
        (SERVERS / "sqlite-sdk-1.6" / "bin" / "mcp-server-sqlite", "--db-path", "{home}/notes.db"),
        "2024-11-05",
        "list_tables",
        {},
        "[]",
        unlisted=("templates",),
    ),
    "time-sdk-2": Real(
        (SERVERS / "time-sdk-2" / "bin" / "mcp-server-time", "--local-timezone", "UTC"),
        "2026-07-28",
        "get_current_time",
        {"timezone": "UTC"},
        '"timezone": "UTC"',
    ),
    # Declares logging, and does not know logging/setLevel.
    "ref-tools": Real(
        (NPM / "ref-tools-mcp",),
        "2025-06-18",
        "ref_read_url",
        {"url": NOBODY},
        "ECONNREFUSED",
        {"REF_API_KEY": "dummy", "REF_URL": NOBODY},
    ),
    # Declares resources, and does not know resources/templates/list.
    "puppeteer": Real(
        (NPM / "mcp-server-puppeteer",),
        "2024-11-05",
        "puppeteer_evaluate",
        {"script": "1"},
        "Could not find Chrome",
        unlisted=("templates",),
    ),
    # Its schemas do not say that they describe objects.
    "gitlab": Real(
        (NPM / "mcp-server-gitlab",),
        "2024-11-05",
        "search_repositories",
        {"search": "boats"},
        "ECONNREFUSED",
        {"GITLAB_PERSONAL_ACCESS_TOKEN": "dummy", "GITLAB_API_URL": NOBODY},
    ),
    "kubernetes": Real(
        (NPM / "kubernetes-mcp-server", "--kubeconfig", "{home}/kubeconfig"),
        "2026-07-28",
        "configuration_view",
        {},
        "current-context: here",
    ),
    "context7": Real(
        (NPM / "context7-mcp",),
        "2026-07-28",
        "resolve-library-id",
        {"libraryName": "boats", "query": "boats"},
        "fetch failed",
        {"CONTEXT7_API_URL": NOBODY},
    ),
    # Names of properties that Anthropic refuses, and more tools than OpenAI takes.
    "twilio": Real(
        (NPM / "twilio-mcp-server", f"AC{'0' * 32}/SK{'0' * 32}:dummy"),
        "2025-11-25",
        "TwilioApiV2010--FetchAccount",
        {},
        "error occurred",
        {"HTTPS_PROXY": NOBODY},
        unlisted=("templates",),
    ),
    "everything": Real(
        (NODE, MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js", "stdio"),
        "2025-11-25",
        "echo",
        {"message": "ahoy"},
        "Echo: ahoy",
    ),
}


class Place(NamedTuple):
    """A server with a home of its own, and an environment made from nothing."""

    server: Real
    command: list[str]
    env: dict[str, str]
    home: Path


@pytest.fixture(params=REAL)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    server = REAL[request.param]
    program = Path(server.command[0])
    if request.param == "sqlite-sdk-1.6" and sys.version_info >= (3, 14) and not program.exists():
        pytest.skip("the pydantic it needs has no wheel for this Python")
    need(NODE, program)
    (tmp_path / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    command = [str(word).replace("{home}", str(tmp_path)) for word in server.command]
    marker = uuid.uuid4().hex
    path = f"{NODE.parent}{os.pathsep}{os.defpath}"
    yield Place(server, command, {**server.env, "PATH": path, "HOME": str(tmp_path), "MARKER": marker}, tmp_path)
    deadline = time.monotonic() + 5
    while (left := processes_with(marker)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, f"left running: {left}"


def processes_with(marker: str) -> list[str]:
    """The processes, wherever they belong now, that inherited this marker; none where there is no /proc to ask."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it is gone, or somebody else's
            continue
    return found


async def test_it_is_met_listed_and_called(place: Place) -> None:
    server = place.server
    async with connect(place.command, env=place.env, connect_timeout=PATIENCE, timeout=PATIENCE) as client:
        assert client.version == server.revision
        assert server.tool in [tool.name for tool in await client.list_tools_all()]
        try:
            answer = (await client.call_tool(server.tool, server.arguments)).text
        except CallError as error:  # as some servers say that a tool failed
            answer = error.message
        assert server.answer in answer


async def test_the_command_line_lists_it(place: Place) -> None:
    """What it cannot list hides none of the rest, and is named."""
    code, out, err = await trimaran(place, "list", "--json")
    assert code == 0, err
    listed = json.loads(out)
    assert listed["version"] == place.server.revision
    assert place.server.tool in [tool["name"] for tool in listed["tools"]]
    assert tuple(listed.get("failures", {})) == place.server.unlisted


async def test_the_doctor_finds_that_it_works(place: Place) -> None:
    code, out, err = await trimaran(place, "doctor", "--json")
    failed = [check for check in json.loads(out)["checks"] if check["status"] == "fail"]
    assert (code, failed) == (0, []), err


async def trimaran(place: Place, *words: str) -> tuple[int, str, str]:
    """Run the command line on it; exit code, stdout, stderr."""
    passed = [word for name in (*place.server.env, "MARKER") for word in ("--env", name)]
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "trimaran.apps.cli",
            *words,
            "--timeout",
            f"{PATIENCE:g}",
            *passed,
            "--",
            *place.command,
        ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=place.env,
        cwd=place.home,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
