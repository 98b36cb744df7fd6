"""`trimaran serve` between programs that nobody here wrote: official clients before it, real servers behind it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.until import wait_until

from trimaran import connect

from . import test_sdk, test_typescript
from .contract import CallingLargely, Everything, Introducing, WatchingBursts
from .harness import DEADLINE, Outcome, listening
from .test_real_servers import PATIENCE, Place, place

__all__ = ["place"]

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]

FAR = ("modern", "legacy")


class TestTheOfficialPythonClientBeforeAProxy(Everything, Introducing, WatchingBursts):
    @pytest.fixture(
        params=[(f"{near}+{far}", era) for near in ("http", "stdio") for far in FAR for era in ("modern", "legacy")],
        ids="-".join,
    )
    def report(self, request: pytest.FixtureRequest) -> Outcome:
        return test_sdk.outcome(*request.param)


class TestTheTypeScriptClientBeforeAProxy(Everything, CallingLargely, Introducing):
    def test_a_missing_resource_is_a_protocol_error(self, report: Outcome) -> None:
        """The client knows both codes and gives its caller one error for them, always with the modern code."""
        error = report.error("read missing")
        assert (error["type"], error["data"]) == ("ResourceNotFoundError", {"uri": "config://nowhere"})

    @pytest.fixture(
        params=[(f"{near}+{far}", era) for near in ("http", "stdio") for far in FAR for era in ("modern", "legacy")],
        ids="-".join,
    )
    def report(self, request: pytest.FixtureRequest) -> Outcome:
        return test_typescript.outcome(*request.param)


class TestTheTypeScriptClientOfTheFirstGenerationBeforeAProxy(Everything, CallingLargely, Introducing):
    @pytest.fixture(params=[f"{near}+{far}" for near in ("http", "stdio", "sse") for far in FAR])
    def report(self, request: pytest.FixtureRequest) -> Outcome:
        return test_typescript.outcome(request.param, "legacy", "v1")


@pytest.fixture
def url(place: Place) -> Iterator[str]:
    """A real server behind `trimaran serve`."""
    passed = [word for name in place.env if name != "PATH" for word in ("--env", f"{name}={place.env[name]}")]
    command = [sys.executable, "-P", "-m", "trimaran.apps.cli", "serve", *passed]
    path = {**os.environ, "PATH": place.env["PATH"] + os.pathsep + os.environ["PATH"]}
    before, os.environ["PATH"] = os.environ["PATH"], path["PATH"]
    try:
        with listening(lambda port: [*command, "--port", str(port), "--", *place.command]) as port:
            yield f"http://127.0.0.1:{port}/mcp"
    finally:
        os.environ["PATH"] = before


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_real_server_serves_callers_of_both_eras(place: Place, url: str, era: str) -> None:
    async with connect(url, era=era, timeout=PATIENCE, connect_timeout=PATIENCE) as client:  # pyright: ignore[reportArgumentType]
        assert place.server.tool in [tool.name for tool in await client.list_tools_all()]
        try:
            answer = (await client.call_tool(place.server.tool, place.server.arguments)).text
        except Exception as error:  # as some servers say that a tool failed
            answer = str(error)
        assert place.server.answer in answer


def test_a_port_behind_the_dashes_is_said_to_be_the_commands() -> None:
    command = [sys.executable, "-P", "-m", "trimaran.apps.cli", "serve", "--", sys.executable, "-c", "", "--port", "9"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert "to listen on it, write it before --" in done.stderr


@pytest.mark.parametrize("transport", ["--stdio", "--http"])
@pytest.mark.parametrize("missing", ["no-such-server-anywhere", "./no/such/server"])
def test_a_command_that_is_not_there_is_refused_before_anything_is_served(transport: str, missing: str) -> None:
    """It used to serve an empty list, with a warning now and then."""
    command = [sys.executable, "-P", "-m", "trimaran.apps.cli", "serve", transport, "--", missing, "--flag"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done
    assert "nothing is served: cannot start" in done.stderr
    assert missing.removeprefix(".") in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_nothing_is_left_when_the_proxy_is_killed(tmp_path: Path) -> None:
    script = "import os, time; open(os.environ['PID_FILE'], 'w').write(str(os.getpid())); time.sleep(600)"
    file = tmp_path / "pid"
    command = [sys.executable, "-P", "-m", "trimaran.apps.cli", "serve", "--port", "0", "--env", f"PID_FILE={file}"]
    proxy = subprocess.Popen([*command, "--", sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    try:
        child = int(wait_until(lambda: file.exists() and file.read_text()))
    finally:
        proxy.kill()
        proxy.wait()
    wait_until(lambda: not os.path.exists(f"/proc/{child}") or is_dead(child))


def is_dead(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
