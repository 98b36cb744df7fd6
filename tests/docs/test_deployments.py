"""The unit, the compose file and the manifest of the gateway's page: each can be read, and what each starts does start.

What they name that is not here gets a stand-in: the path of the program, the folder of the configuration, the addresses. Nothing
listens beyond loopback.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.ports import find_port
from tests.support.program import listens
from tests.support.redis import redis_server
from tests.support.until import PATIENCE, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guides" / "gateway.md"
CONFIG = """
[gateway]
secret_keys = ["${GATEWAY_KEY}"]
auth = "none"
allowed_origins = []
allow_missing_origin = true
[server.boats]
command = "@PYTHON@"
args = ["@BOATS@"]
startup_timeout = 30
"""


def block(kind: str, word: str) -> str:
    """The block of the page that has this word."""
    blocks = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (text,) = [text for text in blocks if word in text]
    return text


class Gateway:
    """A process started by the words of the page."""

    def __init__(self, words: list[str], folder: Path, places: dict[str, str]) -> None:
        self.port = find_port()
        self._log = folder / f"log-{self.port}"
        config = folder / "mcp.toml"
        boats = ROOT / "tests" / "unit" / "apps" / "gateway" / "boats.py"
        config.write_text(CONFIG.replace("@PYTHON@", sys.executable).replace("@BOATS@", str(boats)))
        places = {"/etc/trimaran/mcp.toml": str(config), "8080": str(self.port), "0.0.0.0": "127.0.0.1", **places}  # noqa: S104 - what stands on the page
        assert Path(words[0]).name == "trimaran"
        command = [sys.executable, "-m", "trimaran", *(places.get(word, word) for word in words[1:])]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=folder, env={**os.environ, "GATEWAY_KEY": "0" * 64}
            )
        wait_until(lambda: listens(self.port) or self.process.poll() is not None, "the gateway listens")
        assert self.process.poll() is None, self.log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE) as reply:
            return reply.status, reply.read()

    def post(self, message: dict[str, Any], **headers: str) -> tuple[dict[str, str], Any]:
        heads = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/mcp",
            json.dumps({"jsonrpc": "2.0", **message}).encode(),
            {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **heads},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            text = reply.read().decode()
            return {name.lower(): value for name, value in reply.headers.items()}, json.loads(text) if text else None

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def started() -> Iterator[list[Gateway]]:
    gateways: list[Gateway] = []
    yield gateways
    for gateway in gateways:
        gateway.kill()


def test_the_unit_starts_reloads_and_stops_a_gateway(tmp_path: Path, started: list[Gateway]) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read_string(block("ini", "ExecStart"))
    service = unit["Service"]
    assert service["Environment"] == f"HOME={service['WorkingDirectory']}", "npx and uvx write there; / is read-only"
    gateway = Gateway(shlex.split(service["ExecStart"]), tmp_path, {})
    started.append(gateway)
    assert gateway.get("/readyz")[0] == 200
    reload = shlex.split(service["ExecReload"].replace("$MAINPID", str(gateway.process.pid)))
    subprocess.run(reload, check=True)
    wait_until(lambda: "the configuration was reloaded" in gateway.log, "the gateway has reloaded")
    assert gateway.end() == 0
    for line in gateway.log.splitlines():
        if line.startswith("{"):
            assert json.loads(line)["message"]


def test_the_services_of_the_compose_file_share_a_redis(tmp_path: Path, started: list[Gateway]) -> None:
    services = yaml.safe_load(block("yaml", "depends_on"))["services"]
    assert services["gateway"]["depends_on"] == ["redis"]
    shell, flag, script = services["gateway"]["command"]
    assert (shell, flag) == ("sh", "-c")
    assert "\n" not in script, "a shell ends the command there"
    install, run = script.split("&& exec ")  # without exec a signal would reach the shell only
    (requirement,) = [word for word in shlex.split(install) if word.startswith("trimaran")]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\w+", requirement)[1:]) <= extras.keys()
    with redis_server(tmp_path) as redis:
        for number in range(services["gateway"]["deploy"]["replicas"]):
            folder = tmp_path / str(number)
            folder.mkdir()
            started.append(Gateway(shlex.split(run), folder, {"redis://redis:6379/0": redis.url}))
        first, second = started
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        headers, _ = first.post({"id": 1, "method": "initialize", "params": hello})
        session = {"Mcp_Session_Id": headers["mcp-session-id"]}
        second.post({"method": "notifications/initialized"}, **session)
        sail = {"name": "boats_sail", "arguments": {"boat": "Ida"}}
        _, reply = second.post({"id": 2, "method": "tools/call", "params": sail}, **session)
        assert reply["result"]["content"][0]["text"] == "Ida sails"


def test_the_manifest_starts_a_gateway_that_its_probes_find(tmp_path: Path, started: list[Gateway]) -> None:
    deployment, service = yaml.safe_load_all(block("yaml", "kind: Deployment"))
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"] == service["spec"]["selector"]
    (mount,) = container["volumeMounts"]
    assert container["command"][2].startswith(mount["mountPath"] + "/")
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == [mount["name"]]
    (port,) = [port["containerPort"] for port in container["ports"]]
    assert service["spec"]["ports"][0]["targetPort"] == port
    gateway = Gateway(container["command"], tmp_path, {})
    started.append(gateway)
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port
        assert gateway.get(container[probe]["httpGet"]["path"])[0] == 200
    # A pod is ended by SIGTERM.
    os.kill(gateway.process.pid, signal.SIGTERM)
    assert gateway.process.wait(PATIENCE) == 0
