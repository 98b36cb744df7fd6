"""The tests themselves: where a module is tested, where helpers live, how files are named.

`tests/unit` mirrors `src/trimaran`: the test of `host/config/entry.py` is `tests/unit/host/config/test_entry.py` or
`tests/unit/host/test_config_entry.py`, and may have more words at its end. `ELSEWHERE` names every module that has no such
file, and the place where it is tested.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SOURCES = TESTS.parent / "src" / "trimaran"

# A folder or a module -> where it is tested -> why not in a file of its own. The longest name that fits counts.
ELSEWHERE: dict[str, tuple[str, str]] = {
    "apps/cli": ("unit/apps/cli", "commands are run whole, and judged by what they print"),
    "apps/cli/ask": ("fault/test_ask.py", "it needs a provider of models"),
    "apps/console": ("unit/apps/console", "the screen is driven as a person drives it"),
    "apps/conversation": ("fault/test_model.py", "it needs a provider of models"),
    "apps/gateway": ("unit/apps/gateway", "a gateway is run whole, on a port of its own"),
    "apps/inspector": ("unit/apps/inspector", "an inspector is run whole, and asked over HTTP"),
    "apps/demo": ("unit/apps/demo/test_server.py", "parts of one server"),
    "auth": ("unit/auth", "rules that only show in a provider that uses them"),
    "client": ("wire/client", "a connection shows itself on the wire, to a scripted peer"),
    "connect_options": ("unit/client/test_option_names.py", "the options of one function"),
    "connecting": ("unit/client/test_connecting.py", "one door to all clients"),
    "daemon_threads": ("unit/server/test_threads.py", "the threads of the pool"),
    "ext/skills": ("unit/ext", "test_skills_*.py"),
    "ext/tasks": ("unit/ext/test_tasks.py", "its parts share one record; also tests/fault/test_task_*.py"),
    "fleet": ("fleet", "it takes several processes on one store"),
    "format": ("unit/test_format_schemas.py", "one pipeline, tested by what comes out at its end"),
    "host": ("unit/host", "test_host_*.py: parts of one host, tested through it"),
    "host/config": ("unit/host", "test_config_*.py"),
    "host/permissions": ("unit/host", "test_permissions_*.py"),
    "lazy_names": ("arch/test_lazy_names.py", "every lazy package is asked"),
    "legacy": ("wire", "an older era is what it says on the wire; in a fleet: tests/fleet"),
    "legacy_seam": ("arch/test_without_legacy.py", "the library is run without the package behind it"),
    "oauth": ("unit/oauth", "flows, which use every part"),
    "openapi": ("unit/openapi", "a document is turned into tools by all of its parts"),
    "proxy": ("unit/proxy", "a call goes through all of its parts"),
    "outage_log": ("fault/test_stores.py", "it speaks when a store is away"),
    "schema": ("unit/schema", "private halves of convert, signature and validate"),
    "server": ("unit/server", "parts of a call, tested by calls; access: tests/wire/auth"),
    "state": ("unit/state/test_stores.py", "one contract for every store"),
    "sync": ("fault/client/test_sync.py", "it needs peers that misbehave"),
    "testing": ("unit/testing", "helpers, tested where they are used"),
    "transports": ("wire", "each transport runs the same conversations"),
    "types": ("unit/types", "the schema of every revision is read against them"),
    "workers": ("fault/test_workers.py", "it takes processes"),
}

# Programs of their own (`make world`), whose parts some tests look at.
PROGRAMS = {"world"}


def modules() -> list[tuple[str, ...]]:
    paths = (path.relative_to(SOURCES).with_suffix("").parts for path in SOURCES.rglob("*.py"))
    return sorted(parts for parts in paths if not parts[-1].startswith("__"))


def mirrored(module: tuple[str, ...]) -> bool:
    """Is there a file in tests/unit with the module's name, in its folder or in one above that takes the folder into it?"""
    *folders, name = (part.strip("_") for part in module)
    for depth in range(len(folders) + 1):
        stem = "_".join([*folders[depth:], name])
        folder = TESTS.joinpath("unit", *folders[:depth])
        if any(folder.glob(f"test_{stem}.py")) or any(folder.glob(f"test_{stem}_*.py")):
            return True
        if depth and (any(folder.glob(f"test_{name}.py")) or any(folder.glob(f"test_{name}_*.py"))):
            return True
    return False


def elsewhere(module: tuple[str, ...]) -> str | None:
    """The entry that speaks for a module."""
    names = ["/".join(module[:length]) for length in range(len(module), 0, -1)]
    return next((name for name in names if name in ELSEWHERE), None)


def test_every_module_has_a_test_of_its_name_or_says_where_it_is_tested() -> None:
    homeless = ["/".join(module) for module in modules() if not mirrored(module) and elsewhere(module) is None]
    assert not homeless, f"give each a file in tests/unit, or say in ELSEWHERE where it is tested: {homeless}"


def test_the_places_exist_and_are_needed() -> None:
    needed = {elsewhere(module) for module in modules() if not mirrored(module)}
    assert not set(ELSEWHERE) - needed, "these have tests of their names now, or are gone"
    assert not [place for place, _ in ELSEWHERE.values() if not (TESTS / place).exists()]


def test_a_helper_that_two_suites_use_lives_in_support() -> None:
    astray: list[str] = []
    for file in sorted(TESTS.rglob("*.py")):
        own = file.relative_to(TESTS).parts
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (name := _module_of(file, node)) is not None:
                if len(name) > 2 and name[1] not in {own[0], "support", *PROGRAMS}:
                    astray.append(f"{'/'.join(own)}:{node.lineno} imports {'.'.join(name)}")
    assert not astray, "\n".join(["move what they share to tests/support:", *astray])


def test_every_name_that_one_test_file_takes_from_another_is_there() -> None:
    """A helper that moved meanwhile would be missed only when that file is collected."""
    lost: list[str] = []
    for file in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (module := _module_of(file, node)) is not None:
                path = TESTS.parent.joinpath(*module).with_suffix(".py")
                names = {alias.name for alias in node.names}
                if path.exists():
                    names -= _names_in(path)
                else:
                    folder = path.with_suffix("")
                    names -= {entry.stem for entry in folder.iterdir()} if folder.is_dir() else set()
                lost += [f"{file.relative_to(TESTS)}:{node.lineno}: {name} of {'.'.join(module)}" for name in names]
    assert not lost, lost


def _module_of(file: Path, node: ast.ImportFrom) -> tuple[str, ...] | None:
    """The module that is imported from, if it is one of the tests'."""
    name = tuple(node.module.split(".")) if node.module else ()
    if node.level:
        package = ("tests", *file.relative_to(TESTS).parts[:-1])
        name = package[: len(package) - node.level + 1] + name
    return name if name[:1] == ("tests",) else None


@functools.cache
def _names_in(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    return frozenset(names)


def test_one_place_knows_how_to_wait() -> None:
    """`until` and `soon` have one bound and one message; a class may have an `until` of its own that knows more."""
    pattern = re.compile(r"^(?:async )?def (?:until|soon|wait_until|eventually_true)\(", re.MULTILINE)
    files = [file for file in TESTS.rglob("*.py") if pattern.search(file.read_text())]
    others = {file.relative_to(TESTS).as_posix() for file in files} - {"support/until.py"}
    assert others <= {
        "fault/test_model.py",  # reads events until one of a kind
        "unit/apps/console/desk.py",  # lets the screen draw meanwhile
    }


def test_files_are_named_after_behaviour() -> None:
    vague = re.compile(r"review|misc|various|more|stuff|regression|issue|fixes")
    assert not [file.name for file in TESTS.rglob("test_*.py") if vague.search(file.stem)]
