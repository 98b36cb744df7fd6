"""Frameworks and bridges: a driver per framework lists our tools and makes the calls of the scenario.

A framework's driver runs in its own install; a bridge runs between our server and our own client. Both report what they
were told, and the same checks as for the agents apply.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import find_port

from .install import Packages
from .sandbox import HERE, NODE_BIN, Finished, Sandbox, Target, wait_until_listening
from .scenario import Call, check, is_name_of, tools_of

DRIVERS = HERE / "drivers"
LIMIT = 180.0  # seconds; some open a session per call, on stdio a process


async def run_framework(packages: Packages, sandbox: Sandbox, target: Target, calls: Sequence[Call]) -> list[str]:
    """The faults of one run; none if everything is right."""
    driver = driver_of(packages)
    command = [packages.folder / "bin" / "python", driver]
    if packages.npm:  # a module's imports are looked for beside the module
        for file in (DRIVERS / "contract.mjs", driver):
            shutil.copy(file, packages.folder)
        command = [NODE_BIN / "node", packages.folder / driver.name]
    return await _drive(command, sandbox, target, packages.bin, calls)


def driver_of(packages: Packages) -> Path:
    return DRIVERS / f"{packages.name.replace('-', '_')}_driver{'.mjs' if packages.npm else '.py'}"


async def _drive(
    command: list[Path], sandbox: Sandbox, target: Target, bin_folder: Path, calls: Sequence[Call], era: str = "auto"
) -> list[str]:
    wire_calls = [{"tool": call.tool, "arguments": call.arguments} for call in calls]
    place = {"transport": target.transport, "command": target.command, "url": target.url}
    job = {**place, "calls": wire_calls, "era": era}
    variables = {
        "PYTHONUTF8": "1",
        "OPENAI_API_KEY": "dummy",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "OTEL_SDK_DISABLED": "true",
    }
    environment = sandbox.environment(variables, [bin_folder])
    finished = await sandbox.run([*command, json.dumps(job)], environment, LIMIT)
    return judge(finished, calls)


def judge(finished: Finished, calls: Sequence[Call]) -> list[str]:
    """The faults that a driver's report shows."""
    lines = finished.stdout.strip().splitlines()
    try:
        report = json.loads(lines[-1])
    except (IndexError, ValueError):
        return [f"no report; {finished.complaint()}"]
    tools = tools_of(calls)
    unseen = [tool for tool in tools if not any(is_name_of(tool, name) for name in report["tools"])]
    if len(unseen) == len(tools):
        return [f"none of our tools is listed; {report['error'] or finished.complaint()}"]
    faults = [f"{tool}: not listed" for tool in unseen]
    if report["error"]:
        faults.append(f"the driver ended with {report['error']}")
    results = [(name, text) for name, text in report["results"]]
    return faults + check(results, [call for call in calls if call.tool not in unseen])


# --- bridges ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bridge:
    """One way over a bridge: where our server stands, and how the bridge is started. `{port}` is the bridge's own."""

    server: str
    front: str
    command: Callable[[Target], list[str]]
    era: str = "auto"
    """Which era our client speaks; for bridges that cannot carry the question which it is."""
    because: str = ""
    """Why the era is not left to the client: a fault of the bridge."""


BRIDGES: dict[str, list[Bridge]] = {
    "mcp-remote": [Bridge("http", "stdio", lambda target: ["mcp-remote", target.url, "--allow-http"])],
    "mcp-proxy": [
        Bridge("http", "stdio", lambda target: ["mcp-proxy", "--transport", "streamablehttp", target.url]),
        Bridge("stdio", "http", lambda target: ["mcp-proxy", "--port", "{port}", "--", *target.command]),
    ],
    "supergateway": [
        Bridge(
            "http",
            "stdio",
            lambda target: ["supergateway", "--streamableHttp", target.url],
            era="legacy",
            because='Before an HTTP server, our client needs `era="legacy"`: supergateway opens a session of its own for a '
            "first request other than `initialize`, and then keeps the client's `notifications/initialized` to itself.",
        ),
        Bridge(
            "stdio",
            "http",
            lambda target: [
                *("supergateway", "--stdio", shlex.join(target.command), "--outputTransport", "streamableHttp"),
                *("--stateful", "--port", "{port}"),
            ],
        ),
    ],
}


async def run_bridge(
    bridge: Bridge, packages: Packages, sandbox: Sandbox, target: Target, calls: Sequence[Call]
) -> list[str]:
    """Our client in front of the bridge, our server behind it."""
    client = [Path(sys.executable), DRIVERS / "trimaran_driver.py"]
    words = bridge.command(target)
    if bridge.front == "stdio":
        front = Target("stdio", command=(str(packages.bin / words[0]), *words[1:]))
        return await _drive(client, sandbox, front, packages.bin, calls, bridge.era)
    async with _open_bridge(words, packages, sandbox) as port:
        front = Target("http", url=f"http://127.0.0.1:{port}/mcp")
        return await _drive(client, sandbox, front, packages.bin, calls, bridge.era)


@contextlib.asynccontextmanager
async def _open_bridge(words: list[str], packages: Packages, sandbox: Sandbox) -> AsyncIterator[int]:
    port = find_port()
    command = [str(packages.bin / words[0]), *(word.replace("{port}", str(port)) for word in words[1:])]
    async with sandbox.start(command, sandbox.environment(path=[packages.bin])):
        await wait_until_listening(port)
        yield port
