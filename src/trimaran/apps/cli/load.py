"""Find the Server a command line names: `FILE`, `FILE:obj`, `package.module` or `package.module:obj`.

`parse` only reads the text, so that a reloading front can watch the right directory without importing anything.
`load` imports: a file by its path, with its directory first on `sys.path`, or last if it has the name of another
module; a module by name, with the current directory first. Errors name the user's own file: a
traceback shows the frames of their code, not ours.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trimaran.errors import ConfigError

if TYPE_CHECKING:
    from trimaran.server.server import Server

# Common names of a server, most explicit first, for a module that has several.
USUAL_NAMES: Final = ("server", "mcp", "app")
_MOST_LISTED: Final = 12


class BrokenFile(ConfigError):
    """The user's file was found, but it does not yield a server; a change to it may fix that."""

    exit_code = 1


class ServerFile(NamedTuple):
    """The module to import, and the name in it to serve."""

    text: str
    file: Path | None
    module: str | None
    obj: str | None

    @property
    def directory(self) -> Path:
        """The directory of the code, which a reload watches."""
        if self.file is not None:
            return self.file.parent
        assert self.module is not None
        top = self.module.partition(".")[0]
        # A top-level name is looked up without importing anything.
        sys.path.insert(0, os.getcwd())
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            spec = None
        finally:
            sys.path.pop(0)
        if spec is None or spec.origin is None:
            return Path.cwd()
        return Path(spec.origin).resolve().parent


def parse(text: str) -> ServerFile:
    """Read a target; ConfigError if it names no file that exists."""
    head, colon, tail = text.rpartition(":")
    # `C:\boat.py` has a colon too, but what follows it is no name.
    if not colon or not _is_dotted(tail) or _is_drive(head):
        head, tail = text, ""
    obj = tail or None
    path = Path(head).expanduser()
    if path.is_file():
        return ServerFile(text, path.resolve(), None, obj)
    if head.endswith(".py") or os.sep in head or "/" in head or path.is_dir():
        raise ConfigError(_no_such_file(path))
    if not _is_dotted(head):
        raise ConfigError(
            f"{text!r} is neither a file nor a module: write my_server.py, my_server.py:obj or package.module:obj"
        )
    return ServerFile(text, None, head, obj)


def _is_dotted(text: str) -> bool:
    return bool(text) and all(part.isidentifier() for part in text.split("."))


def _is_drive(text: str) -> bool:
    return len(text) == 1 and text.isalpha() and os.name == "nt"


def _no_such_file(path: Path) -> str:
    if path.is_dir():
        return f"{str(path)!r} is a directory: name the file in it, such as {path / 'server.py'}"
    beside = sorted(p.name for p in path.parent.glob("*.py")) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, n=1)
    if near:
        return f"there is no file {str(path)!r}; did you mean {str(path.parent / near[0])!r}?"
    if not path.parent.is_dir():
        return f"there is no file {str(path)!r}: the directory {str(path.parent)!r} does not exist"
    return f"there is no file {str(path)!r} (looked in {path.parent.resolve()})"


def load(target: ServerFile) -> Server:
    """Import the target and return its server.

    Raises:
        BrokenFile: the import failed, or there is not exactly one server to serve.
        ConfigError: there is no such module.
    """
    module = _import_file(target.file) if target.file is not None else _import_module(target)
    if target.obj is not None:
        return _named(module, target)
    return _only(module, target)


def load_module(target: ServerFile) -> ModuleType:
    """The module of a target, which may be the one that is served: that is not imported a second time."""
    if target.file is None:
        return _import_module(target)
    known = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == str(target.file)]
    return known[-1] if known else _import_file(target.file)


def _import_file(path: Path) -> ModuleType:
    directory, name = str(path.parent), path.stem
    is_taken = _is_taken(name, path)
    if directory not in sys.path:
        # The user's email.py or redis.py must not take the place of a module that others import later.
        sys.path.insert(len(sys.path) if is_taken else 0, directory)
    if is_taken or not name.isidentifier():
        name = f"_trimaran_serves_{''.join(c if c.isalnum() else '_' for c in name)}"
    spec = importlib.util.spec_from_file_location(name, path, loader=None)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{str(path)!r} is not a Python file: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    # Registered as an import would: dataclasses and pickles look their module up here.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BrokenFile(_failure(str(path), error, path.parent)) from None
    return module


def _is_taken(name: str, path: Path) -> bool:
    """Whether there is another module of this name."""
    if name in sys.modules or name in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() != path


def _import_module(target: ServerFile) -> ModuleType:
    assert target.module is not None
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(target.module)
    except ModuleNotFoundError as error:
        if error.name is not None and (target.module == error.name or target.module.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {error.name!r} (looked in {here} and the installed packages); to serve a file, write {target.module.replace('.', '/')}.py"
            ) from None
        raise BrokenFile(_failure(target.module, error, target.directory)) from None
    except (Exception, SystemExit) as error:
        raise BrokenFile(_failure(target.module, error, target.directory)) from None


def _failure(place: str, error: BaseException, directory: Path) -> str:
    if isinstance(error, SystemExit):
        return f"{place} ended by itself while it was imported (sys.exit({error.code!r})); move that under if __name__ == '__main__':"
    trace = traceback.TracebackException.from_exception(error)
    _keep_own_frames(trace, directory)
    text = "".join(trace.format()).rstrip()
    hint = ""
    if isinstance(error, ImportError) and "relative import" in str(error):
        hint = "\nA file that is part of a package is served by its name: trimaran serve package.module:obj"
    return f"cannot import {place}\n{text}{hint}"


def _keep_own_frames(error: traceback.TracebackException, directory: Path) -> None:
    """Leave out the frames of our loader, of importlib and of installed packages, through the whole chain."""
    own = [
        f
        for f in error.stack
        if Path(f.filename).is_relative_to(directory) and "site-packages" not in Path(f.filename).parts
    ]
    error.stack = traceback.StackSummary.from_list(own)
    for other in (error.__cause__, error.__context__):
        if other is not None:
            _keep_own_frames(other, directory)


def _named(module: ModuleType, target: ServerFile) -> Server:
    value: Any = module
    assert target.obj is not None
    for part in target.obj.split("."):
        if not hasattr(value, part):
            servers = sorted(_servers(module))
            raise BrokenFile(
                f"{_origin(target)} has no {target.obj!r}"
                + (f"; it has {_and(servers)}" if servers else f"; {_inventory(module)}")
            )
        value = getattr(value, part)
    if _is_server(value):
        return value
    raise BrokenFile(
        f"{target.obj!r} in {_origin(target)} is a {_kind(value)}, not a trimaran.Server" + _hint_to_call(target, value)
    )


def _hint_to_call(target: ServerFile, value: Any) -> str:
    if callable(value) and not isinstance(value, type):
        return f"; if it makes one, write server = {target.obj}() in the file and serve that"
    return ""


def _only(module: ModuleType, target: ServerFile) -> Server:
    servers = _servers(module)
    if not servers:
        raise BrokenFile(
            f'no trimaran.Server in {_origin(target)}: write server = Server("name", version="1.0.0") at its top level; {_inventory(module)}'
        )
    if len({id(server) for server in servers.values()}) == 1:
        return next(iter(servers.values()))
    for name in USUAL_NAMES:
        if name in servers:
            return servers[name]
    names = list(servers)
    raise BrokenFile(
        f"{_origin(target)} has {len(names)} servers, {_and(names)}: say which, as in {_origin(target)}:{names[0]}"
    )


def _servers(module: ModuleType) -> dict[str, Server]:
    return {name: value for name, value in vars(module).items() if _is_server(value)}


def _is_server(value: Any) -> bool:
    # Imported here: parsing a target needs none of this.
    from trimaran.server.server import Server

    return isinstance(value, Server)


def _inventory(module: ModuleType) -> str:
    own = [
        f"{name} ({_kind(value)})"
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    ]
    if not own:
        return "the file defines nothing"
    more = len(own) - _MOST_LISTED
    return f"found {', '.join(own[:_MOST_LISTED])}" + (f" and {more} more" if more > 0 else "")


def _kind(value: Any) -> str:
    return "class" if isinstance(value, type) else type(value).__name__


def _origin(target: ServerFile) -> str:
    return target.text if target.obj is None else target.text.rpartition(":")[0]


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
