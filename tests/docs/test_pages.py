"""What the pages say is so: every Python block runs, prints what it claims, every link leads somewhere.

The blocks of one page share a module, in order, as if they had been typed into one file; those of the README run each alone,
since that is how they are pasted. A block below `<!-- file: NAME -->` is written to that file instead. A line `print(...)  # text` must print that text. `Server.run` is replaced, since it would serve forever; what it is given is checked all the same.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click import Context, Group

from trimaran import Server
from trimaran.apps.cli import COMMANDS
from trimaran.serve import HttpServer

from . import pages
from .pages import PAGES, ROOT, Block, blocks, name_of

RUN = [page for page in PAGES if any(b.language == "python" for b in blocks(page))]
README = ROOT / "README.md"
PASTED = [block for block in blocks(README) if block.language == "python"]
EXPECTED = re.compile(r"^\s*print\(.*\)  # (.+)$")
SHELLS = ("sh", "shell", "bash", "console")
# Programs a reader is told to type besides ours; a new one here is a decision, a misspelt one is a mistake.
PROGRAMS = {
    "claude",
    "curl",
    "git",
    "npx",
    "openssl",
    "pip",
    "python",
    "uv",
    "uvicorn",
    "cd",
    "pytest",
    "ruff",
    "pyright",
}


def whole(page: Path) -> str:
    return name_of(page)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What `Server.run` was given, checked as far as that goes without serving."""
    recorded: list[tuple[str, dict[str, Any]]] = []

    def run(self: Server, transport: str = "stdio", **options: Any) -> None:
        recorded.append((transport, dict(options)))
        if transport == "stdio":
            assert options.keys() <= {"legacy", "watch_parent"}, options
        else:
            assert transport == "http"
            for name in ("workers", "on_ready", "tls"):
                options.pop(name, None)
            HttpServer(self, **options)

    monkeypatch.setattr(Server, "run", run)
    return recorded


@pytest.mark.parametrize("page", [page for page in RUN if page != README], ids=whole)
def test_the_python_of_a_page_runs_and_prints_what_it_says(
    page: Path, runs: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    snippets = [b for b in blocks(page) if b.file or (b.language == "python" and not b.not_run)]
    run_together(page, snippets, monkeypatch, tmp_path)


@pytest.mark.parametrize("block", PASTED, ids=lambda block: f"line {block.line}")
def test_a_block_of_the_readme_runs_pasted_alone(
    block: Block, runs: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert block.not_run is None
    run_together(README, [block], monkeypatch, tmp_path)


def run_together(page: Path, snippets: list[Block], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMARAN_MCP_TIMEOUT", "20s")  # a busy machine starts children slowly
    # `python` is the one with the library, as in an activated environment.
    places = [str(Path(sys.executable).parent), str(ROOT / ".tools/bubblewrap"), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    monkeypatch.syspath_prepend(tmp_path)
    printed: list[tuple[int, str]] = []

    def show(*values: object, **options: Any) -> None:
        printed.append((sys._getframe(1).f_lineno, " ".join(map(str, values))))

    module.__dict__["print"] = show
    promised: dict[int, str] = {}
    for block in snippets:
        if block.file:
            Path(block.file).write_text(block.text)
            monkeypatch.delitem(sys.modules, Path(block.file).stem, raising=False)
            continue
        for number, line in enumerate(block.text.splitlines(), block.line):
            if found := EXPECTED.match(line):
                promised[number] = found[1]
        # Padded, so that a traceback names the line of the page.
        exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), module.__dict__)
    said = dict(printed)
    assert {number: said.get(number) for number in promised} == promised


def test_nearly_every_python_block_is_run() -> None:
    every = [(page, block) for page in PAGES for block in blocks(page) if block.language == "python"]
    left = [(page, block) for page, block in every if block.not_run]
    print(f"{len(every)} Python blocks, {len(left)} not run")
    for page, block in left:
        print(f"  {name_of(page)}:{block.line}: {block.not_run}")
    assert len(left) <= 0.05 * len(every)


@pytest.mark.parametrize("page", PAGES, ids=whole)
def test_the_commands_on_a_page_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in blocks(page):
        if block.language not in SHELLS:
            continue
        for words in pages.commands(block):
            check_command(words, targets, f"{name_of(page)}:{block.line}")


def check_command(words: list[str], targets: set[str], where: str) -> None:
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    program = words[0].removeprefix(".venv/bin/")
    if program == "make":
        assert all("=" in w or w in targets for w in words[1:]), (where, words)
    elif program == "trimaran":
        check_our_command(words[1:], where)
    elif program == "claude" and "--" in words:
        check_command(words[words.index("--") + 1 :], targets, where)
    else:
        assert program in PROGRAMS, (where, words)


def check_our_command(words: list[str], where: str) -> None:
    if words[0].startswith("-"):
        return
    assert words[0] in COMMANDS, (where, words)
    command = importlib.import_module(COMMANDS[words[0]][0]).command
    while isinstance(command, Group):
        words = words[1:]
        if words[0].startswith("-"):
            return
        found = command.get_command(Context(command), words[0])
        assert found is not None, (where, words)
        command = found
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    # What follows `--` is the command of a server, and not ours to know.
    ours = words[1 : words.index("--")] if "--" in words else words[1:]
    for word in ours:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, (where, word)


@pytest.mark.parametrize("page", PAGES, ids=whole)
def test_links_lead_somewhere(page: Path) -> None:
    for link in pages.links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}, which is not there"
        if anchor:
            assert anchor in pages.anchors(target), f"{name_of(page)}: {link} names no heading of {name_of(target)}"


@pytest.mark.parametrize("page", PAGES, ids=whole)
def test_files_named_on_a_page_exist(page: Path) -> None:
    for name in pages.named_files(page):
        places = (ROOT / name, pages.SOURCE / name, pages.DOCS / name, page.parent / name)
        assert any(place.exists() for place in places), f"{name_of(page)} names {name}, which is not there"


def test_every_page_is_reachable_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md", pages.DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for link in pages.links(page):
            if not re.match(r"[a-z]+:", link):
                waiting.append((page.parent / link.partition("#")[0]).resolve())
    assert sorted(map(name_of, set(PAGES) - seen)) == []


def test_pages_name_no_place_of_one_machine() -> None:
    for page in [*PAGES, *(ROOT / "examples").glob("*.py")]:
        text = page.read_text()
        for word in ("/work/", "/root/", "/home/"):
            assert word not in text, f"{name_of(page)} mentions {word}"


@pytest.mark.parametrize("page", PAGES, ids=whole)
def test_a_block_says_what_language_it_is_in(page: Path) -> None:
    known = {"python", "ts", "json", "text", "toml", "http", "ini", "yaml", *SHELLS}
    assert {b.language for b in blocks(page)} <= known
    for block in blocks(page):
        if block.language == "json":
            check_json(block, page)


def check_json(block: Block, page: Path) -> None:
    import json

    try:
        json.loads(block.text)
    except ValueError as error:
        pytest.fail(f"{name_of(page)}:{block.line}: {error}")
