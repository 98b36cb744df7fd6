"""Every public name and signature, as a file: an API change is a visible diff of `api.txt`.

Rewrite it with `TRIMARAN_UPDATE=1 pytest tests/arch/test_api.py`, and say so in the changelog.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

SNAPSHOT = Path(__file__).with_name("api.txt")
PUBLIC = [
    "trimaran",
    "trimaran.types",
    "trimaran.errors",
    "trimaran.content",
    "trimaran.jsonrpc",
    "trimaran.serve",
    "trimaran.client",
    "trimaran.auth",
    "trimaran.oauth",
    "trimaran.state",
    "trimaran.ext",
    "trimaran.testing",
    "trimaran.schema",
    "trimaran.host",
    "trimaran.host.permissions",
    "trimaran.format",
]


class Raw:
    """A value that prints as the text it is made of."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def show(value: object) -> str:
    """A value's repr without what differs from run to run."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def signature(thing: Any) -> str:
    """The signature as written in the source: annotations are strings there, printed here without their quotes."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(...)"

    written: dict[str, Any] = {}
    for owner in reversed(thing.__mro__) if hasattr(thing, "__struct_fields__") else ():
        written.update(vars(owner).get("__annotations__", {}))  # msgspec's own signature has them resolved, and long

    def bare(annotation: Any) -> Any:
        return Raw(annotation) if isinstance(annotation, str) else annotation

    parameters = [
        p.replace(
            annotation=bare(written.get(p.name, p.annotation)),
            default=p.default if p.default is p.empty else Raw(show(p.default)),
        )
        for p in found.parameters.values()
    ]
    return str(found.replace(parameters=parameters, return_annotation=bare(found.return_annotation)))


def names(module: ModuleType) -> list[str]:
    """`__all__`; without one, what the module itself defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    own = (n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__)
    return sorted(n for n in own if not n.startswith("_"))


def describe_class(name: str, cls: type, public: set[type]) -> Iterator[str]:
    """A class with the members that are its own, or come from a base that is not public itself."""
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    yield f"class {name}({bases})" if bases else f"class {name}"
    members: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        if is_ours(owner) and (owner is cls or owner not in public):
            members.update(vars(owner))
    fields = getattr(cls, "__struct_fields__", ())
    if fields or "__init__" in members:
        yield f"    {signature(cls)}"
    for member, value in sorted(members.items()):
        if member.startswith("_") or member in fields:
            continue
        if isinstance(value, (staticmethod, classmethod)):
            yield f"    {type(value).__name__} {member}{signature(getattr(cls, member))}"
        elif isinstance(value, property):
            yield f"    property {member}"
        elif inspect.isfunction(value):
            yield from (f"    {line}" for line in describe_function(member, value))
        else:
            yield f"    {member}"


def describe_function(name: str, value: Any) -> Iterator[str]:
    """A line for each overload; without overloads, one."""
    for overload in typing.get_overloads(value) or [value]:
        yield f"{'async ' if inspect.iscoroutinefunction(overload) else ''}def {name}{signature(overload)}"


def is_ours(value: Any) -> bool:
    return inspect.isclass(value) and value.__module__.split(".")[0] == "trimaran"


def describe(name: str, value: Any, public: set[type]) -> Iterator[str]:
    if is_ours(value):
        yield from describe_class(name, value, public)
    elif inspect.isroutine(value):
        yield from describe_function(name, value)
    elif isinstance(value, (bool, int, float, str)) and not name.startswith("__"):
        yield f"{name} = {value!r}"
    else:
        yield name


def snapshot() -> str:
    modules = [importlib.import_module(name) for name in PUBLIC if importlib.util.find_spec(name)]
    public = {value for module in modules for name in names(module) if is_ours(value := getattr(module, name))}
    lines: list[str] = []
    for module in modules:
        lines.append(f"\n# {module.__name__}\n")
        for name in names(module):
            lines.extend(describe(name, getattr(module, name), public))
    return "\n".join(lines).lstrip("\n") + "\n"


def test_public_api_is_the_one_on_record() -> None:
    """Whose rule: ours: names are a contract."""
    now = snapshot()
    if os.environ.get("TRIMARAN_UPDATE"):
        SNAPSHOT.write_text(now)
    recorded = SNAPSHOT.read_text() if SNAPSHOT.exists() else ""
    diff = "\n".join(difflib.unified_diff(recorded.splitlines(), now.splitlines(), "api.txt", "now", lineterm="", n=0))
    assert not diff, f"the public API changed; if that is meant, run with TRIMARAN_UPDATE=1\n{diff}"
