"""`make world-files`: the files that we write are read by the programs they are for, and theirs by us.

    python -m tests.world.files [NAME,...]

For each agent of programs.toml, with a home of its own:

out   `trimaran install` registers a server that is started, `trimaran config export` one over HTTP and one over HTTP+SSE,
      both behind a header. The program must then reach each of them: it says so when it lists its servers, or its scripted
      model calls a tool of each.
in    The program's own command adds three such servers, and `trimaran config import` must make the right `mcp.toml`.

The exit code is 1 if something is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.ports import find_port

from .agents import AGENTS, Start
from .catalog import read_programs
from .guarded import KEY
from .install import NotInstalled, Packages, install
from .model import ScriptedModel
from .sandbox import HERE, Sandbox, Target, open_sandbox, wait_until_listening
from .scenario import Call, as_prompt, check

OURS = Path(sys.executable).with_name("trimaran")
LIMIT = 120.0  # seconds for one command of a program
CALLS = {
    "local": Call("add", {"a": 19, "b": 23}, ("42",)),
    "web": Call("knock", {}, ("let in",)),
    "old": Call("ring", {}, ("let in",)),
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Files:
    """How one agent is asked about its servers."""

    client: str
    """What `trimaran` calls it."""
    add: dict[str, list[str]]
    """The program's own commands that add a server: `local`, `web` and `old`, as far as it can."""
    connected: Callable[[str, str], bool] | None = None
    """Does its list say that this server is connected? None: it does not try, so its model calls a tool of each."""
    config: dict[str, str] = field(default_factory=dict)
    """Files that must be there first."""
    skips_sse: bool = False


def _line_says(*words: str) -> Callable[[str, str], bool]:
    def says(listing: str, name: str) -> bool:
        lines = [line for line in _COLOUR.sub("", listing).splitlines() if re.search(rf"\b{name}\b", line)]
        return any(word in line for line in lines for word in words)

    return says


_TRUSTED = json.dumps({"security": {"folderTrust": {"enabled": False}}})
_WEB, _OLD = "https://h.example/mcp", "https://h.example/sse"
_HEADER = "X-API-Key: abc"
_GEMINI: dict[str, list[str]] = {
    "local": ["mcp", "add", "local", "boat", "--deck", "-s", "user", "-e", "A=1"],
    "web": ["mcp", "add", "web", _WEB, "-s", "user", "-t", "http", "-H", _HEADER, "--timeout", "5000"],
    "old": ["mcp", "add", "old", _OLD, "-s", "user", "-t", "sse"],
}

AGENT_FILES: dict[str, Files] = {
    "claude-code": Files(
        "claude-code",
        {
            "local": ["mcp", "add", "-s", "user", "local", "-e", "A=1", "--", "boat", "--deck"],
            "web": ["mcp", "add", "-s", "user", "-t", "http", "web", _WEB, "-H", _HEADER],
            "old": ["mcp", "add", "-s", "user", "-t", "sse", "old", _OLD],
        },
        _line_says("Connected"),
    ),
    "codex": Files(
        "codex",
        {
            "local": ["mcp", "add", "local", "--env", "A=1", "--", "boat", "--deck"],
            "web": ["mcp", "add", "web", "--url", _WEB, "--bearer-token-env-var", "TOKEN"],
        },
        skips_sse=True,
    ),
    "gemini-cli": Files("gemini", _GEMINI, _line_says("- Connected"), {".gemini/settings.json": _TRUSTED}),
    "qwen-code": Files("qwen", _GEMINI, _line_says("- Connected"), {".qwen/settings.json": _TRUSTED}),
    "copilot-cli": Files(
        "copilot",
        {
            "local": ["mcp", "add", "local", "--env", "A=1", "--", "boat", "--deck"],
            "web": ["mcp", "add", "--transport", "http", "--header", _HEADER, "--timeout", "5000", "web", _WEB],
            "old": ["mcp", "add", "--transport", "sse", "old", _OLD],
        },
    ),
    "opencode": Files(
        "opencode",
        {
            "local": ["mcp", "add", "local", "--env", "A=1", "--", "boat", "--deck"],
            "web": ["mcp", "add", "web", "--url", _WEB, "--header", "X-API-Key=abc"],
        },
        _line_says("connected"),
    ),
}
EXPECTED: dict[str, dict[str, Any]] = {
    "local": {"command": "boat", "args": ["--deck"], "env": {"A": "1"}},
    "web": {"transport": "http", "url": _WEB, "headers": {"X-API-Key": "abc"}},
    "old": {"transport": "sse", "url": _OLD},
}


class Checked:
    """One program, its files, and what is wrong with them."""

    def __init__(self, packages: Packages) -> None:
        self.packages = packages
        self.files = AGENT_FILES[packages.name]
        self.faults: list[str] = []
        self.program = packages.bin / _program_of(packages.name)

    async def run(self) -> list[str]:
        async with open_sandbox() as sandbox, _guarded("knock") as web:
            async with _guarded("ring") as old:
                await self._out(sandbox, f"{web}/mcp", f"{old}/sse")
        async with open_sandbox() as sandbox:
            await self._in(sandbox)
        return self.faults

    # --- out ---------------------------------------------------------------------------------------------------------

    async def _out(self, sandbox: Sandbox, web: str, old: str) -> None:
        for name, text in self.files.config.items():
            sandbox.write(name, text)
        headers = f'headers = {{ X-API-Key = "{KEY}" }}'
        sandbox.write(
            ".config/trimaran/mcp.toml",
            f'[server.web]\ntransport = "http"\nurl = "{web}"\n{headers}\n'
            f'[server.old]\ntransport = "sse"\nurl = "{old}"\n{headers}\n',
        )
        client = self.files.client
        await self._trimaran(sandbox, "install", str(HERE / "server.py"), "--client", client, "--name", "local")
        names = ["local", "web"] if self.files.skips_sse else ["local", "web", "old"]
        await self._trimaran(sandbox, "config", "export", client, *names[1:])
        if self.files.skips_sse:
            refused = await self._trimaran(sandbox, "config", "export", client, "old", code=1)
            if "does not speak HTTP+SSE" not in refused:
                self.faults.append(f"nothing is said about HTTP+SSE: {refused[-300:]}")
        if self.files.connected is not None:
            listing = await self._theirs(sandbox, "mcp", "list")
            connected = self.files.connected
            self.faults += [
                f"{name} is not connected: {listing[-600:]}" for name in names if not connected(listing, name)
            ]
        else:
            await self._ask(sandbox, [CALLS[name] for name in names])

    async def _ask(self, sandbox: Sandbox, calls: Sequence[Call]) -> None:
        """Have the model call a tool of each server, from the file that we wrote."""
        async with ScriptedModel() as model:
            ours = {file: file.read_text() for file in _files_below(sandbox.home)}
            start = AGENTS[self.packages.name](sandbox, Target("stdio", ("true",)), model.url, as_prompt(calls))
            start = _without_harbour(start)
            for file, text in ours.items():
                # The agent's own settings, and our servers in place of the one it would be given.
                settings = file.read_text() if file.exists() else ""
                file.write_text(text if settings == text else f"{settings.partition('[mcp_servers')[0]}\n{text}")
            environment = sandbox.environment(start.variables, [self.packages.bin])
            finished = await sandbox.run(start.command, environment, LIMIT)
            faults = check(model.results, calls)
            self.faults += faults
            if faults:
                self.faults.append(finished.complaint())

    # --- in ----------------------------------------------------------------------------------------------------------

    async def _in(self, sandbox: Sandbox) -> None:
        for name, text in self.files.config.items():
            sandbox.write(name, text)
        for words in self.files.add.values():
            await self._theirs(sandbox, *words)
        await self._trimaran(sandbox, "config", "import", self.files.client)
        written = sandbox.home / ".config/trimaran/mcp.toml"
        servers: dict[str, Any] = tomllib.loads(written.read_text())["server"] if written.exists() else {}
        for name in self.files.add:
            expected = dict(EXPECTED[name])
            if self.files.client == "codex" and name == "web":
                expected["headers"] = {"Authorization": "Bearer ${TOKEN}"}
            if "--timeout" in self.files.add[name]:
                expected["timeout"] = "5s"
            if servers.get(name) != expected:
                self.faults.append(f"{name} is imported as {servers.get(name)}, not as {expected}")

    # --- running -----------------------------------------------------------------------------------------------------

    async def _trimaran(self, sandbox: Sandbox, *words: str, code: int = 0) -> str:
        finished = await sandbox.run([OURS, *words], sandbox.environment(), LIMIT)
        if finished.status != code:
            self.faults.append(f"trimaran {' '.join(words)}: {finished.complaint()}")
        return finished.stdout + finished.stderr

    async def _theirs(self, sandbox: Sandbox, *words: str) -> str:
        variables = {
            **dict.fromkeys(("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"), "dummy"),
            **dict.fromkeys(("IS_SANDBOX", "DISABLE_AUTOUPDATER", "OPENCODE_DISABLE_MODELS_FETCH"), "1"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "COPILOT_OFFLINE": "true",
        }
        environment = sandbox.environment(variables, [self.packages.bin])
        finished = await sandbox.run([self.program, *words], environment, LIMIT)
        if finished.status != 0:
            self.faults.append(f"{self.program.name} {' '.join(words)}: {finished.complaint()}")
        return finished.stdout + finished.stderr


def _program_of(name: str) -> str:
    """The program's word on the command line."""
    return {"claude-code": "claude", "gemini-cli": "gemini", "qwen-code": "qwen", "copilot-cli": "copilot"}.get(
        name, name
    )


def _files_below(home: Path) -> list[Path]:
    return [file for file in (home / ".codex/config.toml", home / ".copilot/mcp-config.json") if file.exists()]


def _without_harbour(start: Start) -> Start:
    """The agent started with its own file alone."""
    command = list(start.command)
    if "--additional-mcp-config" in command:
        at = command.index("--additional-mcp-config")
        del command[at : at + 2]
    return Start(command, start.variables)


@contextlib.asynccontextmanager
async def _guarded(tool: str) -> AsyncIterator[str]:
    port = find_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "guarded.py"), str(port), tool, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await wait_until_listening(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def main(names: Sequence[str]) -> int:
    programs = [program for program in read_programs() if program.name in AGENT_FILES]
    failed = 0
    for program in programs:
        if names and program.name not in names:
            continue
        try:
            await install(program.packages)
        except NotInstalled as error:
            print(f"{program.name}: skipped: {error}", flush=True)
            continue
        faults = await Checked(program.packages).run()
        failed += bool(faults)
        print(f"{program.name}: {'; '.join(faults) if faults else 'reads our file, and its file is read'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main([name for name in ",".join(sys.argv[1:]).split(",") if name])))
