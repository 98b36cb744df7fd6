"""Names that a package offers and loads only when they are used.

A package's `__init__.py` names each public name twice: in an import that only type checkers read, in the form
`X as X` that marks a re-export, and in the table given to `lazy_names`, which says the submodule it lives in.
tests/arch/test_lazy_names.py compares the two.

    TYPE_CHECKING = False  # type checkers take this name for true; `typing` itself would cost more than all else here
    if TYPE_CHECKING:
        from .store import Store as Store, open_store as open_store
    else:
        __all__, __getattr__, __dir__ = lazy_names(__name__, {"store": "Store open_store"})

Type checkers do not see `__getattr__`, so they report a name that does not exist. This module imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def lazy_names(
    package: str, names_by_module: dict[str, str]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """The `__all__`, `__getattr__` and `__dir__` of a package.

    Args:
        package: the package's `__name__`.
        names_by_module: submodule -> the names it defines, separated by spaces. A dotted submodule is allowed.
    """
    homes = {name: f"{package}.{module}" for module, names in names_by_module.items() for name in names.split()}
    public = sorted(homes)

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import importlib
        import sys

        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # so the next use does not come here
        return value

    return public, load, lambda: public
