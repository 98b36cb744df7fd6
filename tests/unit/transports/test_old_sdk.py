"""What the files of a command say about its server, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.transports.old_sdk import newest_revision


def environment(root: Path, *releases: str) -> Path:
    """A virtual environment with these releases of the SDK; the folder of its programs."""
    for release in releases:
        (root / "lib" / "python3.11" / "site-packages" / f"mcp-{release}.dist-info").mkdir(parents=True)
    (root / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        program(root / "bin" / name, "")
    return root / "bin"


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("release", ["1.0.0", "1.1.0", "1.6.0", "1.8.1"])
def test_a_release_that_dies_of_what_it_does_not_know_is_found(tmp_path: Path, release: str) -> None:
    folder = environment(tmp_path, release)
    script = program(folder / "server", f"#!{folder}/python\nimport server\n")
    assert newest_revision([str(script)], None, None) == "2025-03-26"


@pytest.mark.parametrize("releases", [(), ("1.9.0",), ("1.30.0",), ("2.3.0",), ("1.6.0", "2.3.0")])
def test_any_other_is_asked(tmp_path: Path, releases: tuple[str, ...]) -> None:
    folder = environment(tmp_path, *releases)
    script = program(folder / "server", f"#!{folder}/python\n")
    assert newest_revision([str(script)], None, None) is None


def test_an_interpreter_is_looked_at_where_it_stands(tmp_path: Path) -> None:
    folder = environment(tmp_path, "1.6.0")
    assert newest_revision([str(folder / "python3"), "-m", "server"], None, None) == "2025-03-26"
    assert newest_revision(["python3", "server.py"], {"PATH": str(folder)}, None) == "2025-03-26"
    assert newest_revision(["bin/python", "server.py"], None, str(tmp_path)) == "2025-03-26"


@pytest.mark.parametrize(
    "head",
    ["#!/usr/bin/env python3\n", "#!/bin/sh\n'''exec' '{folder}/python' \"$0\" \"$@\"\n' '''\n"],
    ids=["env", "a long path"],
)
def test_a_first_line_may_name_it_in_other_ways(tmp_path: Path, head: str) -> None:
    folder = environment(tmp_path / "a folder", "1.6.0")
    script = program(tmp_path / "server", head.replace("{folder}", str(folder)))
    assert newest_revision([str(script)], {"PATH": str(folder)}, None) == "2025-03-26"


def test_a_project_of_uv_has_its_environment_beside_it(tmp_path: Path) -> None:
    environment(tmp_path / "boats" / ".venv", "1.6.0")
    programs = {"PATH": str(program(tmp_path / "uv", "").parent)}
    for command in (
        ["uv", "--directory", str(tmp_path / "boats"), "run", "server"],
        ["uv", "run", f"--project={tmp_path}/boats", "server.py"],
    ):
        assert newest_revision(command, programs, None) == "2025-03-26"
    assert newest_revision(["uv", "run", "server"], programs, str(tmp_path / "boats")) == "2025-03-26"
    assert newest_revision(["uv", "run", "server"], programs, str(tmp_path)) is None
    assert newest_revision(["uv", "tool", "list"], programs, str(tmp_path / "boats")) is None


@pytest.mark.parametrize("text", ["#!/bin/sh\n", "#!/usr/bin/env node\n", "\x7fELF", "", "#!"])
def test_other_programs_say_nothing(tmp_path: Path, text: str) -> None:
    assert newest_revision([str(program(tmp_path / "server", text))], None, None) is None


def test_what_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert newest_revision([str(tmp_path / "nothing")], None, None) is None
    assert newest_revision(["no-such-command"], {"PATH": str(tmp_path)}, None) is None
