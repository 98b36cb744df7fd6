"""The layers of the library, proved from the imports in its source.

`LAYERS` is the picture of docs/concepts/internals.md: a unit imports only units on lines above its own, never a neighbour on the same line.
All imports count, also those inside functions and under TYPE_CHECKING. `trimaran/__init__.py` alone is free: it names
everything, and loads it on demand. A door that must open upward stands in `DOORS` with its reason, opens only inside a
function, and is removed when no longer used.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2] / "src" / "trimaran"

LAYERS = [
    {"errors"},
    {"types"},
    {"schema", "protocol", "oauth"},
    {"outage_log", "bounded_log", "daemon_threads"},
    {"server", "client", "auth", "state"},
    {"transports"},
    {"fleet"},
    {"legacy", "ext", "openapi"},
    {"legacy_seam"},
    {"serve", "connecting"},
    {"proxy"},
    {"sync", "testing", "host"},
    {"apps.conversation"},
    {"apps.inspector", "apps.console", "apps.demo", "apps.gateway"},
    {"apps.cli"},
]

# Top-level modules that belong to a unit of another name.
MEMBERS = {
    "content": "types",
    "format": "types",
    "jsonrpc": "protocol",
    "lazy_names": "errors",
    "option_names": "errors",
    "depth": "errors",
    "files": "errors",
    "paging": "errors",
    "durations": "errors",
    "connect_options": "connecting",
    "workers": "serve",
    "__main__": "apps.cli",
    "apps": "apps.cli",
}

# (importing module, imported unit) -> why. Keep it short: each is a hole in the picture.
DOORS: dict[tuple[str, str], str] = {
    ("trimaran.server.server", "serve"): "run, serve, asgi and engine hand the server to composition",
    ("trimaran.server.server", "transports"): "the type that asgi returns",
    ("trimaran.protocol.inbound", "server"): "the types of call.exchange and call.session",
    ("trimaran.server.context", "auth"): "the type of ctx.auth",
    ("trimaran.server.server", "openapi"): "from_openapi and from_fastapi make a server of a document",
    ("trimaran.server.server", "proxy"): "proxy, and mount with a remote target, make a server of a connection",
    ("trimaran.server.server", "connecting"): "the type of a target",
    ("trimaran.serve", "apps.cli"): "inspect=True opens the inspector beside a server, for development",
    ("trimaran.server.runtime", "ext"): "a long-running tool switches tasks on",
}

_PURE = "asyncio socket ssl subprocess threading time random secrets uuid tempfile aiohttp h2 uvloop http.client http.server urllib.request"
_NO_SOCKETS = "socket ssl subprocess multiprocessing aiohttp h2 http.client http.server urllib.request"

# What a unit may not import from outside: pure code has no I/O, loop, clock or dice; async logic has no sockets.
BANNED = {
    **dict.fromkeys(("errors", "types", "schema", "protocol", "oauth"), set(_PURE.split())),
    **dict.fromkeys(("server", "client", "auth"), set(_NO_SOCKETS.split())),
}

LINE = {unit: number for number, units in enumerate(LAYERS) for unit in units}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit_of(module: str) -> str:
    """The unit a module belongs to; "trimaran" for the package's own `__init__`. Each application is a unit."""
    parts = module.split(".")
    if parts[0] != "trimaran" or len(parts) == 1:
        return parts[0]
    top = ".".join(parts[1:3]) if parts[1] == "apps" else parts[1]
    return MEMBERS.get(top, top)


class Import(NamedTuple):
    """One name a file imports: where, what (absolute), and whether only inside a function or for the type checker."""

    line: int
    name: str
    is_lazy: bool


def is_lazy_block(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


@functools.cache
def imports(path: Path) -> list[Import]:
    """Every import of a file. `from a import b` counts as `a.b`, since b may be a module."""
    found: list[Import] = []
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    tree = ast.parse(path.read_text(), str(path))
    lazy = {id(inner) for node in ast.walk(tree) if is_lazy_block(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            source: list[str] = []
        elif isinstance(node, ast.ImportFrom):
            source = package[: len(package) - node.level + 1] if node.level else []
            source = [*source, *([node.module] if node.module else [])]
        else:
            continue
        found += [Import(node.lineno, ".".join([*source, alias.name]), id(node) in lazy) for alias in node.names]
    return found


MODULES = sorted(path for path in ROOT.rglob("*.py") if module_name(path) != "trimaran")


def test_every_module_has_a_place_in_the_picture() -> None:
    unknown = {module_name(path) for path in MODULES if unit_of(module_name(path)) not in LINE}
    assert not unknown, f"add to LAYERS or MEMBERS: {sorted(unknown)}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_module_imports_only_from_layers_above(path: Path) -> None:
    """Whose rule: ours (decision 0001)."""
    module = module_name(path)
    unit = unit_of(module)
    is_application = unit in LAYERS[-1] | LAYERS[-2]
    wrong: list[str] = []
    for line, name, is_lazy in imports(path):
        if name.split(".")[0] != "trimaran" or name == "trimaran.__version__":
            continue
        other = unit_of(name)
        if other not in LINE:
            if not is_application:  # which may use the public face, as any program does
                wrong.append(f"{path.name}:{line} takes {name} from the package's face: import it from where it lives")
        elif other == unit or LINE[other] < LINE.get(unit, len(LAYERS)):
            continue
        elif (module, other) not in DOORS:
            wrong.append(f"{path.name}:{line} imports {name}: {unit} stands above or beside {other}")
        elif not is_lazy:
            wrong.append(f"{path.name}:{line} imports {name} at the top: a door opens only inside a function")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", [p for p in MODULES if unit_of(module_name(p)) in BANNED], ids=module_name)
def test_module_leaves_the_outside_world_alone(path: Path) -> None:
    """Whose rule: ours (decision 0001: pure code, and async logic without sockets)."""
    banned = BANNED[unit_of(module_name(path))]
    wrong = [
        f"{path.name}:{found.line} imports {found.name}"
        for found in imports(path)
        if any(found.name == module or found.name.startswith(f"{module}.") for module in banned)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_door_is_still_used() -> None:
    used = {(module_name(path), unit_of(found.name)) for path in MODULES for found in imports(path)}
    unused = DOORS.keys() - used
    assert not unused, f"no longer needed, remove from DOORS: {sorted(unused)}"
