"""The fixtures, used as a user's tests use them: in a pytest of its own, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# Each run of pytest takes a second or two, more on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.deadline(120)]

SERVER = '''
import pytest
from trimaran import Server

def make(answer="5"):
    server = Server("adder", version="1.0.0")

    @server.tool(inline=True)
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return answer

    return server
'''


class Folder:
    """A project of a user's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str, name: str = "test_it.py") -> None:
        (self.path / name).write_text(SERVER + text)

    def run(
        self,
        *arguments: str,
        plugins: tuple[str, ...] = ("pytest_asyncio.plugin",),
        asyncio_mode: str = "auto",
        loop_scope: str = "function",
    ) -> str:
        """Run pytest there; what it printed, the exit code first."""
        words = [word for name in ("trimaran.testing.pytest_plugin", *plugins) for word in ("-p", name)]
        if "pytest_asyncio.plugin" in plugins:
            words += [f"--asyncio-mode={asyncio_mode}", "-o", f"asyncio_default_fixture_loop_scope={loop_scope}"]
        # Our own settings are not the user's.
        (self.path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, *arguments],
            cwd=self.path,
            capture_output=True,
            text=True,
            # Only the plugins named: the others take most of the time of so short a run.
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        )
        return f"{done.returncode}\n{done.stdout}{done.stderr}"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def passes(output: str, count: int) -> None:
    assert output.startswith("0\n"), output
    assert f"{count} passed" in output, output


CLIENTS = """
seen = {}

async def test_a_client_is_opened_and_used(mcp_client):
    client = await mcp_client(make(), era="legacy")
    assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
    seen["first"] = client

async def test_it_was_closed_after_the_test(mcp_client):
    assert seen["first"].state == "closed"

async def test_several_are_open_at_once(mcp_client):
    server = make()
    one, two = await mcp_client(server), await mcp_client(server)
    assert one.state == two.state == "ready"

@pytest.fixture
async def ready(mcp_client):
    return await mcp_client(make())

async def test_a_client_opened_by_a_fixture_lives_in_the_test(ready):
    assert (await ready.call_tool("add", {"a": 2, "b": 3})).text == "5"

async def test_it_may_be_closed_by_the_test(mcp_client):
    client = await mcp_client(make())
    await client.close()

async def test_over_http(mcp_server_url, mcp_client):
    url = await mcp_server_url(make("over HTTP"))
    client = await mcp_client(url)
    assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "over HTTP"
    assert await mcp_server_url(make(), path="/other") != url

@pytest.mark.asyncio(loop_scope="module")
async def test_in_a_loop_of_the_module(mcp_server_url, mcp_client):
    client = await mcp_client(await mcp_server_url(make()))
    assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"

@pytest.mark.asyncio(loop_scope="session")
async def test_in_a_loop_of_the_session(mcp_server_url, mcp_client):
    client = await mcp_client(await mcp_server_url(make()))
    assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
"""


def test_clients_and_servers_are_closed_after_the_test_in_any_loop(folder: Folder) -> None:
    """P41: set-up and tear-down are different tasks, and the loop may be wider than the test."""
    folder.write(CLIENTS)
    passes(folder.run(), 8)


def test_the_default_loop_of_fixtures_may_be_wider_than_that_of_tests(folder: Folder) -> None:
    """P41: the fixture's loop would outlive the test's the wrong way round."""
    folder.write(CLIENTS)
    passes(folder.run("-k", "not fixture", loop_scope="session"), 7)


def test_strict_mode_does_as_well(folder: Folder) -> None:
    folder.write(
        """
pytestmark = pytest.mark.asyncio

async def test_strictly(mcp_server_url, mcp_client):
    client = await mcp_client(await mcp_server_url(make()))
    assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
"""
    )
    passes(folder.run(asyncio_mode="strict"), 1)


@pytest.mark.parametrize("plugins", [("anyio", "pytest_asyncio.plugin"), ("anyio",)], ids=["beside", "alone"])
def test_anyio_does_as_well(folder: Folder, plugins: tuple[str, ...]) -> None:
    folder.write(
        """
@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_with_anyio(mcp_server_url, mcp_client):
    client = await mcp_client(await mcp_server_url(make()))
    assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
"""
    )
    passes(folder.run(plugins=plugins, asyncio_mode="strict"), 1)


def test_without_a_runner_of_async_tests_the_fixtures_say_what_to_install(folder: Folder) -> None:
    folder.write("def test_it(mcp_client):\n    pass\n")
    output = folder.run(plugins=())
    assert output.startswith("1\n"), output
    assert "pip install pytest-asyncio" in output
    assert "Traceback" not in output


def test_a_failure_to_close_is_told(folder: Folder) -> None:
    folder.write(
        """
async def test_it(mcp_server_url, monkeypatch):
    from trimaran.serve import HttpServer

    stop = HttpServer.stop
    async def failing(self):
        await stop(self)
        raise OSError("the port would not go")
    monkeypatch.setattr(HttpServer, "stop", failing)
    await mcp_server_url(make())
"""
    )
    output = folder.run()
    assert "1 passed, 1 error" in output
    assert "the port would not go" in output


# Cassettes

RECORDED = """
import os

async def test_add(mcp_cassette):
    server = make(os.environ.get("ANSWER", "5"))
    client = await mcp_cassette(server, redact=("badge",))
    assert (await client.call_tool("add", {"a": 2, "b": 3})).text == os.environ.get("EXPECT", "5")

@pytest.mark.parametrize("n", [1])
async def test_two(mcp_cassette, n):
    one = await mcp_cassette(make("one"))
    two = await mcp_cassette(make("two"), name="second")
    assert (await two.call_tool("add", {"a": 2, "b": 3})).text == "two"
    assert (await one.call_tool("add", {"a": 2, "b": 3})).text == "one"
"""


def test_the_first_run_records_and_the_next_one_plays(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write(RECORDED)
    passes(folder.run(), 2)
    files = sorted(str(path.relative_to(folder.path)) for path in folder.path.rglob("*.jsonl"))
    assert files == [
        "cassettes/test_it/second.jsonl",
        "cassettes/test_it/test_add.jsonl",
        "cassettes/test_it/test_two-1.jsonl",
    ]
    assert not list(folder.path.rglob("*.part"))
    monkeypatch.setenv("ANSWER", "6")  # a server that changed, and is not asked
    passes(folder.run("--mcp-replay"), 2)


def test_a_recording_is_kept_if_its_test_passed(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write(RECORDED)
    path = folder.path / "cassettes/test_it/test_add.jsonl"
    monkeypatch.setenv("ANSWER", "6")
    assert "1 failed" in folder.run("-k", "test_add")
    assert list(path.parent.iterdir()) == []
    monkeypatch.setenv("EXPECT", "6")
    passes(folder.run("-k", "test_add"), 1)
    before = path.read_text()
    monkeypatch.setenv("ANSWER", "7")
    assert "1 failed" in folder.run("--mcp-record", "-k", "test_add")
    assert path.read_text() == before
    monkeypatch.setenv("EXPECT", "7")
    passes(folder.run("--mcp-record", "-k", "test_add"), 1)
    assert '"7"' in path.read_text()


def test_a_session_that_differs_fails_with_the_place(folder: Folder) -> None:
    folder.write(RECORDED)
    passes(folder.run("-k", "test_add"), 1)
    folder.write(RECORDED.replace('{"a": 2, "b": 3})).text == os', '{"a": 2, "b": 4})).text == os'))
    output = folder.run("-k", "test_add")
    assert "1 failed" in output
    assert "test_add.jsonl line" in output
    assert "recorded was tools/call (add)" in output
    folder.write(
        """
async def test_add(mcp_cassette):
    client = await mcp_cassette(make(), retries=0)
    with pytest.raises(Exception):
        await client.request("prompts/list", timeout=1)
"""
    )
    output = folder.run("-k", "test_add")
    assert "1 error" in output, output
    assert "the client sent prompts/list" in output


def test_recording_can_be_forbidden(folder: Folder) -> None:
    folder.write(RECORDED)
    output = folder.run("--mcp-replay", "-k", "test_add")
    assert "1 failed" in output
    assert "--mcp-replay forbids recording one" in output


def test_recording_and_not_recording_exclude_each_other(folder: Folder) -> None:
    folder.write("")
    assert "--mcp-record and --mcp-replay exclude each other" in folder.run("--mcp-replay", "--mcp-record")


def test_options_that_lead_to_the_server_are_not_needed_to_play(folder: Folder) -> None:
    folder.write(
        """
async def test_http(mcp_cassette, mcp_server_url, request):
    url = "http://127.0.0.1:1/mcp" if request.config.getoption("--mcp-replay") else await mcp_server_url(make())
    client = await mcp_cassette(url, headers={"X-Team": "blue"}, auth="secret-token", timeout=5)
    assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
"""
    )
    passes(folder.run(), 1)
    passes(folder.run("--mcp-replay"), 1)
    assert "secret-token" not in (folder.path / "cassettes/test_it/test_http.jsonl").read_text()


# The plugin itself


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"trimaran": "trimaran.testing.pytest_plugin"}
    assert not any(word.startswith("pytest") for word in project["dependencies"])


def test_importing_the_plugin_costs_next_to_nothing() -> None:
    """It is imported in every run of pytest wherever Trimaran is installed."""
    code = "import pytest, sys; before = set(sys.modules); import trimaran.testing.pytest_plugin; print(set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    loaded = eval(done.stdout)
    assert loaded == {"trimaran", "trimaran.lazy_names", "trimaran.testing", "trimaran.testing.pytest_plugin"}


def test_the_face_loads_nothing_until_a_name_is_used() -> None:
    code = "import sys; before = set(sys.modules); import trimaran.testing; print(set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert eval(done.stdout) <= {"trimaran", "trimaran.lazy_names", "trimaran.testing", "__future__"}
