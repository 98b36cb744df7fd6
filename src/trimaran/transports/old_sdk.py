"""The age of a server's SDK, read from the command's files before it is started.

The official Python SDK before 1.9 dies of a first message that it does not know, such as `server/discover`, and only when
the next line comes: each meeting would cost a second start. Which SDK a console script or an interpreter would load stands
in the name of a directory beside it.

Nothing is run and nothing is imported. An unknown version is None, and a known one is a guess: a server on another library
may live in the same environment, so callers compare it with the server's answer.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from trimaran.files import read_file

_HEAD_BYTES: Final = 1024
_PYTHON: Final = re.compile(r"pythonw?[\d.]*(?:\.exe)?", re.IGNORECASE)
_SDK: Final = re.compile(r"mcp-(\d+)\.(\d+)[\w.]*\.dist-info")
# The first release that answers unknown requests, and the newest revision of the releases before it.
_ANSWERS_SINCE: Final = (1, 9)
_THEIR_NEWEST: Final = "2025-03-26"


def newest_revision(
    command: Sequence[str], env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None
) -> str | None:
    """The newest revision the server of this command can speak, if its files say that it dies of a newer one's greeting."""
    path = (env or {}).get("PATH") or os.environ.get("PATH", os.defpath)
    name = os.fspath(command[0])
    if os.path.dirname(name):
        name = os.path.join(os.path.abspath(cwd or ""), name)
    program = shutil.which(name, path=path)
    if program is None:
        return None
    if Path(program).stem == "uv" and "run" in command:
        prefix = _project(command, cwd) / ".venv"
    elif (interpreter := _interpreter(program, path)) is not None:
        prefix = Path(interpreter).parent.parent
    else:
        return None
    releases = {(int(major), int(minor)) for major, minor in _installed(prefix)}
    return _THEIR_NEWEST if releases and max(releases) < _ANSWERS_SINCE else None


def _project(command: Sequence[str], cwd: str | os.PathLike[str] | None) -> Path:
    """The folder of a project that `uv run` runs in."""
    words = [part for word in command for part in (word.split("=", 1) if word.startswith("--") else [word])]
    folder = Path(cwd or "")
    for flag, value in pairwise(words):
        if flag in ("--directory", "--project"):
            folder /= value
    return folder


def _interpreter(program: str, path: str) -> str | None:
    """The Python that would run this program, where it is one or its first lines name one."""
    if _PYTHON.fullmatch(os.path.basename(program)):
        return program
    try:
        head = read_file(program, _HEAD_BYTES, at_least_head=True).decode("utf-8", "replace")
    except OSError:
        return None
    if not head.startswith("#!"):
        return None
    # A path that is too long, or has a space, for #! stands on the second line: '''exec' '/path/to/python' "$0" "$@"
    for word in re.findall(r"""'''exec' ["']?([^"'\n]+?)["']? "\$0\"""", head) or head[2:].split("\n", 1)[0].split():
        if _PYTHON.fullmatch(os.path.basename(word)):
            return word if os.path.dirname(word) else shutil.which(word, path=path)
    return None


def _installed(prefix: Path) -> Iterable[tuple[str, str]]:
    """The releases of the SDK in the environment at this place; there should be one at most."""
    for folder in (*prefix.glob("lib/python3*/site-packages"), prefix / "Lib" / "site-packages"):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            if release := _SDK.fullmatch(name):
                yield release[1], release[2]
