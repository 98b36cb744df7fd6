"""Install a program once, pinned, into `.tools/world/installs/NAME`.

The stamp `.ready` says what is there; a changed pin installs again. npm runs no install scripts unless a program's launcher
needs them. What the registry no longer has is a `Gone`, which skips the program; any other failure is a `NotInstalled`.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .sandbox import ROOT, TOOLS

INSTALLS = TOOLS / "world" / "installs"
LIMIT = 900.0  # seconds; the largest take about two minutes
_GONE = re.compile(r"E404|ETARGET|No matching version|not found in the package registry|there is no version of", re.I)


class NotInstalled(Exception):
    """The install failed; the text says why."""


class Gone(NotInstalled):
    """The registry has it no longer."""


@dataclass(frozen=True)
class Packages:
    """What to install: from npm or from PyPI, each package with its version."""

    name: str
    npm: tuple[str, ...] = ()
    pypi: tuple[str, ...] = ()
    scripts: bool = False
    python: str = ""
    """The Python to use, as uv names it; the one of our own virtualenv unless said."""

    @property
    def folder(self) -> Path:
        return INSTALLS / self.name

    @property
    def bin(self) -> Path:
        return self.folder / ("node_modules/.bin" if self.npm else "bin")

    @property
    def main(self) -> tuple[str, str]:
        """The package that the program is known by, and its version."""
        if self.npm:
            package, _, version = self.npm[0].rpartition("@")
        else:
            package, _, version = self.pypi[0].partition("==")
        return package, version


async def install(packages: Packages) -> Path:
    """The folder of the install, made if it is absent or of other versions. Two runs may ask for it at the same time."""
    INSTALLS.mkdir(parents=True, exist_ok=True)
    with (INSTALLS / f"{packages.name}.lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        return await _install(packages)


async def _install(packages: Packages) -> Path:
    stamp = packages.folder / ".ready"
    content = "\n".join([*packages.npm, *packages.pypi, f"scripts={packages.scripts}", packages.python]) + "\n"
    if stamp.exists() and stamp.read_text() == content:
        return packages.folder
    shutil.rmtree(packages.folder, ignore_errors=True)
    packages.folder.mkdir(parents=True)
    if packages.npm:
        (packages.folder / "package.json").write_text('{"private": true}\n')
        words = ["npm", "install", "--prefix", str(packages.folder), "--no-package-lock", "--save-exact", "--no-audit"]
        words += ["--no-fund", "--loglevel=error", *(() if packages.scripts else ("--ignore-scripts",))]
        await _run([*words, *packages.npm])
    else:
        uv, python = str(ROOT / "scripts" / "uv"), str(packages.folder / "bin" / "python")
        await _run([uv, "venv", "--clear", "--python", packages.python or _our_python(), str(packages.folder)])
        await _run([uv, "pip", "install", "--compile-bytecode", "--python", python, *packages.pypi])
    stamp.write_text(content)
    return packages.folder


def _our_python() -> str:
    return str((ROOT / ".venv" / "bin" / "python").resolve())


async def _run(command: Sequence[str]) -> None:
    """With this process's environment: it says where the registries are."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), LIMIT)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise NotInstalled(f"the install took more than {LIMIT:g} s") from None
    if process.returncode:
        text = re.sub(r"([a-z+]+://)[^/ ]+", r"\1<host>", output.decode(errors="replace"))
        lines = [line for line in text.splitlines() if line.strip()]
        kind = Gone if _GONE.search(text) else NotInstalled
        raise kind(" / ".join(lines[-3:])[:400])
