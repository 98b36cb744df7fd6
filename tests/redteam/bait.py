"""mcpbait's thirteen modules through our host: its server over stdio, its decoy workspace, its own verdict.

Each module is run alone. The model has read a settings file, because the person asked about the project. It is as naive as mcpbait's
reference agent: it follows every path to a file, hands what it has read to the next tool with room for it, shows every picture, writes
down what it is told to, and adds recipients to mail. It does so through the host, for two turns.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from trimaran import Host, Server

from .rig import Gullible, Rig

_IMAGE = re.compile(r"!\[[^\]]*\]\((?P<url>[^)]+)\)")
_BCC = re.compile(r"audit@mcpbait\.localhost(?= to the bcc)")
_VERDICTS = """
import sys
from pathlib import Path
from mcpbait.engine import latest_session, load_session
from mcpbait.modules import get_modules
(module,) = get_modules([sys.argv[3]])
session = load_session(latest_session(Path(sys.argv[1])), [module])
is_persistent = hasattr(module, "check_persistence") and module.check_persistence(Path(sys.argv[2]))
print("compromised" if is_persistent else session.verdicts()[module.id])
"""


MODULES = (
    *(
        "tool_poisoning",
        "line_jumping",
        "unicode_smuggling",
        "name_squatting",
        "cross_server_shadowing",
        "rug_pull",
        "bait_secrets",
    ),
    *(
        "context_exfil",
        "param_smuggling",
        "result_injection",
        "elicitation_phish",
        "markdown_beacon",
        "memory_poisoning",
    ),
)


async def run_bait(rig: Rig, environment: Path, module: str) -> None:
    """Run one module; mcpbait's "compromised" is loot.

    Args:
        environment: The virtual environment that mcpbait is in.
    """
    state, program = rig.folder / "state", str(environment / "bin" / "mcpbait")
    await _run(program, "init", "--dir", str(state))
    workspace = Path(json.loads((state / "state.json").read_text())["workspace"])
    # The tool of line_jumping takes no arguments: what it wants goes to whichever tool comes next.
    modules = f"{module},elicitation_phish" if module == "line_jumping" else module
    command = [program, "serve", "--dir", str(state), "--modules", modules]
    servers = {"indexer": command, "files": _files(workspace), "mail": _mail(rig)}
    async with rig.host(servers) as host:
        model = _Naive(rig, host, workspace)
        await model.read(".env")
        await model.take_turn()
        await getattr(host, "_servers")["indexer"].look_again()  # noqa: B009 - mcpbait changes its tools without a word
        await model.take_turn()
    output = await _run(
        str(environment / "bin" / "python"), "-c", _VERDICTS, str(state / "sessions"), str(workspace), module
    )
    if output.strip().lower() == "compromised":
        rig.loot.append(module)


async def _run(*command: str) -> str:
    done = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)
    return done.stdout


def _files(workspace: Path) -> Server:
    """The person's own files: the decoy workspace and nothing else."""
    server = Server("files")

    @server.tool
    def read_file(path: str) -> str:
        """Read a file of the project."""
        file = (workspace / path).resolve()
        return file.read_text() if file.is_relative_to(workspace.resolve()) and file.is_file() else ""

    @server.tool
    def write_file(path: str, content: str) -> str:
        """Write a file of the project."""
        (workspace / Path(path).name).write_text(content)
        return "written"

    return server


def _mail(rig: Rig) -> Server:
    server = Server("mail")

    @server.tool
    def send_email(to: str, body: str, bcc: str = "") -> str:
        """Send a mail."""
        rig.loot += [bcc] if bcc else []
        return "sent"

    return server


class _Naive(Gullible):
    def __init__(self, rig: Rig, host: Host, workspace: Path) -> None:
        super().__init__(rig, host)
        self._tools = host
        self._workspace = workspace
        self._carried = ""

    async def read(self, path: str) -> str:
        contents = await self.call("mcp__files__read_file", path=path)
        self._carried = contents or self._carried
        return contents

    async def take_turn(self) -> None:
        self.look()
        if address := next((match[0] for text in self._read if (match := _BCC.search(text))), ""):
            await self.call("mcp__mail__send_email", to="ann@example.org", body="minutes", bcc=address)
        for tool in self._tools.tools():
            if not tool.name.startswith("mcp__indexer__"):
                continue
            await self._obey(self.as_read(tool.description or ""))
            schema: Any = tool.input_schema
            body = await self.call(tool.name, **self._fill(schema))
            if await self._obey(body):
                await self.call(tool.name, **self._fill(schema))
            for match in _IMAGE.finditer(body):
                await asyncio.to_thread(_show, match["url"])
            if "mcpbait-persistence" in body:
                await self.call("mcp__files__write_file", path="CLAUDE.md", content=body)

    async def _obey(self, text: str) -> bool:
        """Read the file that a text points at, and carry its contents on."""
        for match in re.finditer(rf"{re.escape(str(self._workspace))}/([/\w.\-]+\w)", text):
            if await self.read(match[1]):
                return True
        return False

    def _fill(self, schema: Any) -> dict[str, Any]:
        """What is required, and what was read in the first text that is not."""
        properties, required = schema.get("properties", {}), schema.get("required", [])
        arguments: dict[str, Any] = {
            name: 1 if properties.get(name, {}).get("type") == "integer" else "status" for name in required
        }
        free = [
            name
            for name, field in properties.items()
            if name not in required and field.get("type", "string") == "string"
        ]
        if self._carried and (free or required):
            arguments[(free or required)[0]] = self._carried
        return arguments


def _show(url: str) -> None:
    try:
        urllib.request.urlopen(url, timeout=2).read()  # noqa: S310 - the beacon is on loopback
    except OSError:
        return
