"""Names say what they hold: a count of vague names, by folder, that may only shrink.

A vague name is a pronoun or a participle that says nothing about the value: `found`, `one`, `made`. Counted is every place
that binds one: an assignment, to an attribute too, a loop, a comprehension, `with`, `except`, a pattern, `:=`, a parameter,
a function. A leading underscore changes nothing. What is left is public, is stored under that name, or stands in a
signature that others implement.
"""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from .test_layers import ROOT

VAGUE = frozenset(
    "asked found gave given got heard held it kept made mine one said shown taken that theirs they thing things this "
    "told wanted what".split()
)

# The most that a folder may have; "" are the modules beside the folders. A figure goes down, and never up.
MOST = {
    "": 4,
    "apps": 2,
    "auth": 0,
    "client": 4,
    "ext": 2,
    "format": 0,
    "host": 12,
    "legacy": 0,
    "oauth": 3,
    "openapi": 0,
    "protocol": 1,
    "proxy": 0,
    "schema": 0,
    "server": 2,
    "state": 0,
    "testing": 4,
    "transports": 1,
    "types": 0,
}
SLACK = 10  # how far a figure may lag behind, so that not every change touches this file


def bound_names(source: str) -> list[tuple[int, str]]:
    """Each place that binds a name: the line, and the name."""
    names: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.id))
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            names.append((node.lineno, node.name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.attr))
        elif isinstance(node, ast.arg):
            names.append((node.lineno, node.arg))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.append((node.lineno, node.name))
    return [(line, name.strip("_")) for line, name in names]


def vague_files() -> dict[str, Counter[str]]:
    """How many vague names each file binds, by folder."""
    folders: dict[str, Counter[str]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        path = file.relative_to(ROOT)
        names = [name for _, name in bound_names(file.read_text("utf-8")) if name in VAGUE]
        folders.setdefault(path.parts[0] if len(path.parts) > 1 else "", Counter())[str(path)] = len(names)
    return folders


FILES = vague_files()


@pytest.mark.parametrize("folder", sorted(FILES))
def test_vague_locals_only_become_fewer(folder: str) -> None:
    count, most = FILES[folder].total(), MOST.get(folder, 0)
    where = f"src/trimaran/{folder}"
    assert count <= most, (
        f"{where} binds {count} vague names and may bind {most}. Call the new ones by what they hold, not "
        f"{', '.join(sorted(VAGUE))}. Most stand in {FILES[folder].most_common(3)}"
    )
    assert count >= most - SLACK, f"{where} binds {count} vague names: write that down in MOST, in place of {most}"


def test_every_way_to_bind_a_name_is_counted() -> None:
    source = """
one = 1
for found in (): pass
with x as (made, _): pass
try: pass
except E as said: pass
match x:
    case [given, *kept]: pass
print([it for it in ()], (told := 1))
def shown(wanted, *, _asked): x._held = 1
lambda what: what
"""
    names = sorted(name for _, name in bound_names(source) if name in VAGUE)
    assert names == sorted("asked found given held it kept made one said shown told wanted what".split())
