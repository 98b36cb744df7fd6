"""Packages that load their names on demand say the same to type checkers and to the interpreter."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from .test_imports import loaded_by
from .test_layers import ROOT, module_name

FACES = [path for path in sorted(ROOT.rglob("__init__.py")) if "lazy_names(" in path.read_text("utf-8")]


def imported_for_checkers(path: Path) -> dict[str, str]:
    """Each name under TYPE_CHECKING, and the submodule it comes from."""
    block = next(node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.If))
    homes: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom) and node.level == 1 and node.module, ast.unparse(node)
        for alias in node.names:
            assert alias.name == alias.asname, f"{alias.name}: only `X as X` is a re-export to type checkers"
            homes[alias.name] = node.module
    return homes


@pytest.mark.parametrize("path", FACES, ids=module_name)
def test_type_checkers_and_the_interpreter_see_the_same_names(path: Path) -> None:
    """Whose rule: ours. Each name is the very object that the submodule on the import line defines."""
    package = importlib.import_module(module_name(path))
    homes = imported_for_checkers(path)
    public = set(package.__all__) - {"__version__"}
    assert public == homes.keys()
    assert dir(package) == sorted(package.__all__)
    for name, home in homes.items():
        module = importlib.import_module(f"{package.__name__}.{home}")
        assert getattr(package, name) is getattr(module, name)
    modules = {file.stem for file in path.parent.glob("*.py")}
    assert not modules & public, "a submodule hides the name once anything has imported it"
    scope: dict[str, object] = {}
    exec(f"from {package.__name__} import *", scope)
    assert public <= scope.keys()


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    trimaran = importlib.import_module("trimaran")
    with pytest.raises(AttributeError, match=r"module 'trimaran' has no attribute 'Servr'"):
        _ = trimaran.Servr


def test_lazy_names_load_no_module_of_the_standard_library() -> None:
    """Whose rule: ours (a bare `import trimaran` costs nothing)."""
    assert loaded_by("import trimaran") <= {"trimaran", "trimaran.lazy_names", "__future__"}
