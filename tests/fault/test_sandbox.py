"""Servers in a real sandbox: a hostile one gets nothing, and those that people use work.

The tests fail where bubblewrap cannot run: a sandbox that was not tried is none.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from trimaran import Host, connect
from trimaran.client.client import Client
from trimaran.errors import ConfigError, Error
from trimaran.transports.sandbox_proxy import SandboxProxy

from ..support.until import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")]

TOOLS = Path(__file__).resolve().parents[2] / ".tools"
HOSTILE = str(Path(__file__).resolve().parents[1] / "support" / "hostile_stdio.py")
SECRET = "hunter2-of-the-host"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with keys in it, a secret in the environment, and bubblewrap on PATH."""
    assert (TOOLS / "bubblewrap" / "bwrap").exists(), "run scripts/setup-bubblewrap"
    monkeypatch.setenv("PATH", f"{TOOLS / 'bubblewrap'}:{os.environ['PATH']}")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text(SECRET)
    (home / "notes").mkdir()
    (home / "notes" / "a.txt").write_text("a note")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SECRET_TOKEN", SECRET)
    return home


Try = Callable[..., Awaitable[dict[str, Any]]]


@asynccontextmanager
async def hostile(sandbox: Any, **options: Any) -> AsyncGenerator[Try]:
    """What the hostile server got, or how it failed."""
    async with connect({"command": sys.executable, "args": [HOSTILE], "sandbox": sandbox}, **options) as client:

        async def attempt(action: str, *words: Any) -> dict[str, Any]:
            result = await client.call_tool("try", {"action": action, "with": list(words)})
            return json.loads(result.text)

        yield attempt


async def test_the_hostile_server_gets_all_of_it_without_a_sandbox(home: Path) -> None:
    """Else the tests below would prove nothing."""
    async with hostile(None) as attempt:
        assert SECRET in (await attempt("read", "~/.ssh/id_rsa"))["got"]
        assert (await attempt("write", str(home / "x")))["got"] == "written"
        assert len((await attempt("processes"))["got"]) > 3


async def test_keys_are_not_read(home: Path) -> None:
    async with hostile("strict") as attempt:
        for path in (
            "~/.ssh/id_rsa",
            str(home / ".ssh" / "id_rsa"),
            str(home / "notes" / "a.txt"),
            "/etc/shadow",
            f"/proc/{os.getpid()}/environ",
            f"/proc/1/root{home}/.ssh/id_rsa",
            f"/proc/self/root{home}/.ssh/id_rsa",
        ):
            assert "failed" in await attempt("read", path), path
        listing = (await attempt("run", f"find {home} /home -type f 2>/dev/null | head"))["got"]
        assert listing.strip() == "0"


async def test_no_secret_of_the_environment_is_seen() -> None:
    async with hostile("strict") as attempt:
        assert SECRET not in json.dumps(await attempt("environ"))
        assert SECRET not in json.dumps(await attempt("environments"))
        assert len((await attempt("processes"))["got"]) <= 3  # bubblewrap, and itself
    async with hostile({"env": ["SECRET_TOKEN"]}) as attempt:
        assert (await attempt("environ"))["got"]["SECRET_TOKEN"] == SECRET
    async with hostile("strict", env={"API_KEY": "its own"}) as attempt:
        assert (await attempt("environ"))["got"]["API_KEY"] == "its own"


async def test_nothing_is_written_outside(home: Path, tmp_path: Path) -> None:
    async with hostile("strict") as attempt:
        for path in (HOSTILE, sys.executable, "/usr/bin/owned", "/etc/owned", "/owned"):
            assert "failed" in await attempt("write", path), path
        # A setting of the kernel, written as it is: a server of root's could, for the file is root's.
        setting = "/proc/sys/vm/stat_interval"
        written = (await attempt("run", f"echo {Path(setting).read_text().strip()} > {setting}"))["got"]
        assert not written.startswith("0") and "ead-only" in written
        for path in (str(home / "owned"), "/tmp/trimaran-owned"):  # noqa: S108
            await attempt("write", path)  # into a folder of its own, which vanishes
            assert not os.path.exists(path)
        # What it removes is its own copy of nothing.
        await attempt("run", f"rm -rf {home} {tmp_path}")
    assert (home / ".ssh" / "id_rsa").read_text() == SECRET


async def test_it_reads_and_writes_what_is_listed_and_no_more(home: Path) -> None:
    (home / "out").mkdir()
    policy = {"read": [str(home / "notes")], "write": [str(home / "out")]}
    async with hostile(policy) as attempt:
        assert (await attempt("read", str(home / "notes" / "a.txt")))["got"] == "a note"
        assert "Read-only" in (await attempt("write", str(home / "notes" / "a.txt")))["failed"]
        assert (await attempt("write", str(home / "out" / "b.txt")))["got"] == "written"
        assert "failed" in await attempt("read", str(home / ".ssh" / "id_rsa"))
        await attempt("run", f"ln -s {home}/.ssh/id_rsa {home}/out/link")  # a link leads nowhere from in there
        assert "failed" in await attempt("read", str(home / "out" / "link"))
    assert (home / "out" / "b.txt").read_text() == "owned"


async def test_nothing_is_reached(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(tmp_path / "local"))
    local.listen()
    port = listener.getsockname()[1]
    try:
        async with hostile("strict") as attempt:
            for host, number in (("127.0.0.1", port), ("10.0.0.1", 80), ("192.0.2.1", 443)):
                assert "failed" in await attempt("connect", host, number)
            assert "failed" in await attempt("connect_unix", str(tmp_path / "local"))
            assert "failed" in await attempt("connect_unix", "\0abstract")
        async with hostile({"net": True}) as attempt:
            assert (await attempt("connect", "127.0.0.1", port))["got"] == "connected"
    finally:
        listener.close()
        local.close()


async def test_a_daemon_does_not_outlive_it(home: Path) -> None:
    (home / "out").mkdir()
    marker = home / "out" / "alive"
    async with hostile({"write": [str(home / "out")]}) as attempt:
        assert (await attempt("daemon", str(marker)))["got"] == "started"
        await until(marker.exists)
    marker.unlink(missing_ok=True)
    await asyncio.sleep(0.3)  # six times what it takes to write it again
    assert not marker.exists()


async def test_it_makes_no_namespaces_and_no_mounts() -> None:
    async with hostile("strict") as attempt:
        assert not (await attempt("run", "unshare --user --map-root-user true"))["got"].startswith("0")
        assert not (await attempt("run", "mount -t tmpfs none /mnt"))["got"].startswith("0")


async def test_what_namespaces_leave_open_is_closed() -> None:
    """Keyrings belong to the session and not to a namespace; VSOCK leads to a machine's host from every network."""
    keyring = ("system_call", "keyctl", 0, -3, 0)  # the id of the session's keyring
    async with hostile(None) as attempt:
        assert isinstance((await attempt(*keyring))["got"], int)
    for policy in ("strict", {"net": True}, {"net": ["example.com"]}):
        async with hostile(policy) as attempt:
            assert "not implemented" in (await attempt(*keyring))["failed"]
            # Its work is done by the kernel, past every filter of calls.
            assert "not implemented" in (await attempt("system_call", "io_uring_setup", 1, 0))["failed"]
            assert "not supported" in (await attempt("connect_vsock", 1))["failed"]
            assert (await attempt("descriptors"))["got"] == []


async def test_no_folder_in_memory_is_without_a_bound(home: Path) -> None:
    async with hostile("strict") as attempt:
        for folder in ("/dev", "/dev/shm", "/tmp", str(home)):  # noqa: S108
            assert (await attempt("free", folder))["got"] <= 256 * 1024 * 1024, folder
        # Python's locks and queues between processes need it.
        assert "0 " in (await attempt("run", "echo x > /dev/shm/a && echo y > /dev/null && cat /dev/shm/a"))["got"]


# --- a list of hosts -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def web() -> AsyncGenerator[int]:
    """A web server on loopback that says hello."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 29\r\nConnection: close\r\n\r\n"
            b"<html><p>hello sea</p></html>"
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_listed_host_is_reached_and_no_other() -> None:
    async with web() as port, web() as other, hostile({"net": [f"127.0.0.1:{port}"]}) as attempt:
        assert "hello sea" in (await attempt("fetch", f"http://127.0.0.1:{port}/"))["got"]
        refused = await attempt("fetch", f"http://127.0.0.1:{other}/")
        assert "403" in refused["failed"]
        assert "failed" in await attempt("connect", "127.0.0.1", port)  # only by the proxy
        assert "failed" in await attempt("fetch", "https://example.com/")


async def test_a_listed_name_must_not_lead_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever controls the name could point it at a service on loopback."""
    async with web() as port:
        proxy = SandboxProxy([f"inside.example:{port}"], is_local=False)
        await proxy.start()
        try:
            loop = asyncio.get_running_loop()

            async def resolve(host: str, number: int, **more: Any) -> list[Any]:
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", number))]

            reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.address))
            monkeypatch.setattr(loop, "getaddrinfo", resolve, raising=False)
            writer.write(f"CONNECT inside.example:{port} HTTP/1.1\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
        finally:
            monkeypatch.undo()
            await proxy.close()
        assert b" 403 " in answer and b"not a public address" in answer


# --- what people use -------------------------------------------------------------------------------------------------


def sandboxed(name: str) -> str:
    path = TOOLS / "sandboxed" / name
    assert path.exists(), "run scripts/setup-sandboxed"
    return str(path)


@asynccontextmanager
async def real(command: str, *args: str, sandbox: Any) -> AsyncGenerator[Client]:
    async with connect({"command": command, "args": list(args), "sandbox": sandbox}, connect_timeout=60) as client:
        yield client


async def test_the_filesystem_server_works_in_its_folder(home: Path) -> None:
    (home / "out").mkdir()
    program = sandboxed("node/node_modules/.bin/mcp-server-filesystem")
    async with real(program, str(home / "out"), sandbox={"write": [str(home / "out")]}) as client:
        await client.call_tool("write_file", {"path": str(home / "out" / "a.txt"), "content": "ahoy"})
        assert "ahoy" in (await client.call_tool("read_text_file", {"path": str(home / "out" / "a.txt")})).text
    assert (home / "out" / "a.txt").read_text() == "ahoy"
    async with real(program, str(home / "out"), sandbox={"read": [str(home / "out")]}) as client:
        result = await client.call_tool(
            "write_file", {"path": str(home / "out" / "b.txt"), "content": "no"}, raise_on_error=False
        )
        assert result.is_error
    assert not (home / "out" / "b.txt").exists()


async def test_the_git_server_works_on_its_repository(home: Path) -> None:
    repository = home / "repo"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(repository)]
    repository.mkdir()
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Set sail"]):
        subprocess.run([*git, *words], check=True)
    program = sandboxed("python/bin/mcp-server-git")
    async with real(program, "--repository", str(repository), sandbox={"read": [str(repository)]}) as client:
        assert "Set sail" in (await client.call_tool("git_log", {"repo_path": str(repository)})).text


async def test_the_fetch_server_reaches_the_listed_host_only() -> None:
    program = sandboxed("python/bin/mcp-server-fetch")
    async with web() as port, web() as other:
        async with real(
            program, "--ignore-robots-txt", "--allow-private-ips", sandbox={"net": [f"127.0.0.1:{port}"]}
        ) as client:
            assert (
                "hello sea" in (await client.call_tool("fetch", {"url": f"http://127.0.0.1:{port}/", "raw": True})).text
            )
            refused = await client.call_tool(
                "fetch", {"url": f"http://127.0.0.1:{other}/", "raw": True}, raise_on_error=False
            )
            assert refused.is_error
        async with real(program, "--ignore-robots-txt", "--allow-private-ips", sandbox="strict") as client:
            refused = await client.call_tool(
                "fetch", {"url": f"http://127.0.0.1:{port}/", "raw": True}, raise_on_error=False
            )
            assert refused.is_error


# --- refusals --------------------------------------------------------------------------------------------------------


async def test_without_the_tool_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    marker = tmp_path / "started"
    monkeypatch.setattr(shutil, "which", lambda name, *more, **options: None if name == "bwrap" else sys.executable)
    with pytest.raises(Error, match="apt-get install bubblewrap"):
        async with connect([sys.executable, "-c", f"open({str(marker)!r}, 'w')"], sandbox="strict"):
            pass
    assert not marker.exists()


async def test_a_path_that_is_not_there_is_named() -> None:
    with pytest.raises(Error, match=r"sandbox\.read names '/nowhere/at/all'"):
        async with hostile({"read": ["/nowhere/at/all"]}):
            pass


async def test_inherit_env_contradicts_a_sandbox() -> None:
    with pytest.raises(ConfigError, match="one of the two"):
        connect(["x"], sandbox="strict", inherit_env=True)


async def test_a_host_shows_the_sandbox_of_its_servers(home: Path) -> None:
    file = home / "mcp.toml"
    file.write_text(
        f'[server.odd]\ncommand = "{sys.executable}"\nargs = ["{HOSTILE}"]\n'
        'sandbox = { read = ["~/notes"], net = ["api.example.com"] }\n[permissions]\nallow = ["*"]\n'
    )
    async with Host.load(file, pins="off") as host:
        (status,) = host.status()
        assert status.state == "connected", status.reason
        assert status.sandbox == f"reads {home}/notes; writes nothing; reaches api.example.com"
        (home / "diary.txt").write_text("dear diary")
        result = await host.call("mcp__odd__try", {"action": "read", "with": [str(home / "diary.txt")]})
        assert "failed" in result.text


# --- the command line ------------------------------------------------------------------------------------------------


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trimaran", *words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("policy", ['"strict"', '{ net = ["api.example.com"] }'], ids=["strict", "hosts"])
async def test_no_command_starts_a_server_without_its_sandbox(home: Path, policy: str) -> None:
    file = home / "mcp.toml"
    file.write_text(f'[server.odd]\ncommand = "{sys.executable}"\nargs = ["{HOSTILE}"]\nsandbox = {policy}\n')
    arguments = ["try", "action=read", 'with:=["~/.ssh/id_rsa"]']
    done = await asyncio.to_thread(run_command, "call", f"{file}#odd", *arguments)
    assert "failed" in done.stdout and SECRET not in done.stdout, done
    checked = await asyncio.to_thread(run_command, "doctor", f"{file}#odd")
    assert "sandbox" in checked.stdout and "writes nothing" in checked.stdout, checked
    file.write_text(file.read_text().replace(policy, "{ reads = [] }"))
    refused = await asyncio.to_thread(run_command, "call", f"{file}#odd", *arguments)
    assert refused.returncode == 2 and "no key 'reads'" in refused.stderr
