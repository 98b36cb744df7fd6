"""`typing.get_type_hints` works on the public API, as dependency injectors, validators and writers of documentation call it.

A name that a module imports for type checkers alone is not there at run time. `LATE` has all of those, by the module that
an import of them would load: each is loaded when it is first used. Nothing but a signature that names one may fail, and
with these names it resolves as well: `get_type_hints(connect, localns={"Server": Server})`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import typing
from collections.abc import Iterator
from typing import Any

from .test_api import PUBLIC, is_ours, names

MODULES = [
    *PUBLIC,
    "trimaran.sync",
    "trimaran.host.options",
    "trimaran.client.option_types",
    "trimaran.connect_options",
]

# The other half of the library (a client of a remote server needs no server, a server no client); what a program may never
# do; what a host writes for models, and says about them; what an extra brings.
LATE = set(
    """
    trimaran.server.server trimaran.serve trimaran.client.client trimaran.connecting trimaran.connect_options
    trimaran.server.transform_options trimaran.proxy.options trimaran.openapi.server trimaran.auth.principal
    trimaran.auth.resource trimaran.oauth trimaran.state trimaran.transports.asgi trimaran.transports.endpoints
    trimaran.transports.engine
    trimaran.format trimaran.format.anthropic trimaran.format.gemini trimaran.format.openai trimaran.host.context.budget
    trimaran.host.context.code trimaran.host.context.report trimaran.host.trust.flow trimaran.host.trust.scan
    opentelemetry.metrics opentelemetry.trace
    """.split()
)


def public_things() -> Iterator[tuple[str, Any]]:
    """Every public class, method and function, with the overloads of the last two."""
    for module in map(importlib.import_module, MODULES):
        for name in names(module):
            value = getattr(module, name)
            label = f"{module.__name__}.{name}"
            yield from ((label, each) for each in with_overloads(value))
            for owner in filter(is_ours, value.__mro__ if is_ours(value) else ()):
                yield label, owner
                for member, attribute in vars(owner).items():
                    if member == "__init__" or not member.startswith("_"):
                        function = getattr(attribute, "__func__", getattr(attribute, "fget", attribute))
                        yield from ((f"{label}.{member}", each) for each in with_overloads(function))


def with_overloads(value: Any) -> list[Any]:
    return [value, *typing.get_overloads(value)] if inspect.isfunction(value) else []


@functools.cache
def names_for_checkers(module: str) -> dict[str, str]:
    """The names that a module imports under `if TYPE_CHECKING`, with their homes."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    guarded = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    lines = [line for node in guarded for line in ast.walk(node) if isinstance(line, ast.ImportFrom)]
    package = importlib.import_module(module).__package__
    return {
        alias.asname or alias.name: importlib.util.resolve_name("." * line.level + (line.module or ""), package)
        for line in lines
        for alias in line.names
    }


def missing_names(thing: Any, **late: Any) -> Iterator[tuple[str, str]]:
    """The names that the hints of a thing lack, each with its module. What they are is looked up, so that all are found."""
    try:
        typing.get_type_hints(thing, localns=late if inspect.isfunction(thing) else None, include_extras=True)
    except NameError as error:
        # `Target` names a Server wherever it stands.
        homes = {**names_for_checkers("trimaran.connecting"), **names_for_checkers(thing.__module__)}
        name = error.name or ""
        home = homes.get(name, "")
        yield name, home
        if inspect.isfunction(thing) and home:
            yield from missing_names(thing, **late, **{name: getattr(importlib.import_module(home), name)})


def test_annotations_resolve_except_for_names_that_are_imported_late() -> None:
    """Whose rule: ours (P52)."""
    missing: dict[str, set[str]] = {}
    for label, thing in public_things():
        for name, home in missing_names(thing):
            late = inspect.isfunction(thing) and home
            missing.setdefault(home if late else "not a late import", set()).add(f"{name} in {label}")
    surprises = {home: lacking for home, lacking in missing.items() if home not in LATE}
    assert not surprises, "import the name, or add its module to LATE and say why"
    assert missing.keys() >= LATE, "these are imported now"
