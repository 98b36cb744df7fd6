"""Finding the server a command line names, and saying kindly why there is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trimaran import Server
from trimaran.apps.cli.load import BrokenFile, load, parse
from trimaran.errors import ConfigError

Run = Callable[..., subprocess.CompletedProcess[str]]

HEAD = "from trimaran import Server\n"


@pytest.fixture(autouse=True)
def same_imports_afterwards() -> Iterator[None]:
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith("trimaran."):
            del sys.modules[name]


def write(directory: Path, text: str, name: str = "harbour_file.py") -> str:
    (directory / name).write_text(text)
    return str(directory / name)


def served(target: str) -> Server:
    return load(parse(target))


def refusal(target: str) -> str:
    with pytest.raises(ConfigError) as caught:
        served(target)
    return str(caught.value)


def test_the_only_server_is_found_whatever_its_name(tmp_path: Path) -> None:
    assert served(write(tmp_path, HEAD + 'x = Server("only")\n')).info.name == "only"


def test_a_server_under_two_names_is_one_server(tmp_path: Path) -> None:
    assert served(write(tmp_path, HEAD + 'x = y = Server("one")\n')).info.name == "one"


@pytest.mark.parametrize("name", ["server", "mcp", "app"])
def test_of_several_the_usual_name_is_served(tmp_path: Path, name: str) -> None:
    assert served(write(tmp_path, HEAD + f'other = Server("other")\n{name} = Server("usual")\n')).info.name == "usual"


def test_an_object_is_served_by_name_also_a_nested_one(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + 'a = Server("a")\nclass Fleet:\n    b = Server("b")\n')
    assert served(f"{path}:a").info.name == "a"
    assert served(f"{path}:Fleet.b").info.name == "b"


def test_a_file_imports_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, 'NAME = "beside"\n', "harbour_names.py")
    assert (
        served(write(tmp_path, HEAD + "from harbour_names import NAME\nserver = Server(NAME)\n")).info.name == "beside"
    )


def test_a_file_named_like_a_module_does_not_replace_it(tmp_path: Path) -> None:
    import json

    assert served(write(tmp_path, HEAD + 'server = Server("j")\n', "json.py")).info.name == "j"
    assert sys.modules["json"] is json


@pytest.mark.parametrize("name", ["email", "copy", "redis", "yaml"])
def test_a_file_named_like_a_module_that_is_imported_later_does_not_replace_it(
    trimaran: Run, tmp_path: Path, name: str
) -> None:
    """The server of e-mails is called email.py, and what checks its arguments imports `email`."""
    write(tmp_path, "class Shelf: ...\n", "neighbour.py")
    code = f"import {name}\nfrom neighbour import Shelf\nassert {name}.__file__ != __file__\n"
    file = write(
        tmp_path, f"{HEAD}{code}server = Server('s')\n@server.tool\ndef one() -> int: return 1\n", f"{name}.py"
    )
    done = trimaran("call", str(file), "one")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_a_module_is_found_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "harbour_fleet").mkdir()
    (tmp_path / "harbour_fleet" / "__init__.py").touch()
    write(tmp_path / "harbour_fleet", HEAD + 'server = Server("fleet")\n', "boats.py")
    monkeypatch.chdir(tmp_path)
    target = parse("harbour_fleet.boats:server")
    assert load(target).info.name == "fleet"
    assert target.directory == (tmp_path / "harbour_fleet").resolve()


def test_the_main_block_does_not_run(tmp_path: Path) -> None:
    served(write(tmp_path, HEAD + 'server = Server("s")\nif __name__ == "__main__":\n    raise AssertionError\n'))


# Refusals


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, "", "boat.py")
    assert f"did you mean '{tmp_path / 'boat.py'}'" in refusal(str(tmp_path / "baot.py"))
    assert "there is no file" in refusal(str(tmp_path / "zzzzzz.py"))
    assert "does not exist" in refusal(str(tmp_path / "nowhere" / "x.py"))


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    assert "is a directory" in refusal(str(tmp_path))


def test_a_missing_module_says_where_it_was_looked_for() -> None:
    assert "there is no module 'no_such_module_at_all'" in refusal("no_such_module_at_all:server")


def test_nonsense_is_told_what_to_write() -> None:
    assert "write my_server.py" in refusal("what is this")


def test_no_server_lists_what_was_found(tmp_path: Path) -> None:
    said = refusal(write(tmp_path, "import os\ndef helper(): ...\nNAME = 'x'\n"))
    assert "no trimaran.Server" in said
    assert "helper (function)" in said
    assert "NAME (str)" in said
    assert "os" not in said.partition("found")[2].split()


def test_several_servers_must_be_told_apart(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + 'red = Server("r")\ngreen = Server("g")\n')
    assert f"has 2 servers, red and green: say which, as in {path}:red" in refusal(path)


def test_a_wrong_name_lists_the_right_ones(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + 'red = Server("r")\n')
    assert refusal(f"{path}:blue") == f"{path} has no 'blue'; it has red"


def test_an_object_that_is_no_server_is_named_by_its_kind(tmp_path: Path) -> None:
    path = write(tmp_path, "def make(): ...\nx = 5\n")
    assert "is a function, not a trimaran.Server; if it makes one, write server = make()" in refusal(f"{path}:make")
    assert "is a int" in refusal(f"{path}:x")


def test_a_failing_import_shows_the_users_frames_only(tmp_path: Path) -> None:
    write(tmp_path, "import json\ndef parse():\n    json.loads('{')\n", "harbour_helper.py")
    path = write(tmp_path, "import harbour_helper\nharbour_helper.parse()\n")
    with pytest.raises(BrokenFile) as caught:
        served(path)
    said = str(caught.value)
    assert said.startswith(f"cannot import {path}\n")
    assert "harbour_file.py" in said
    assert "harbour_helper.py" in said
    assert "JSONDecodeError" in said
    assert "importlib" not in said
    assert "json/decoder.py" not in said
    assert "trimaran/apps/cli" not in said


def test_a_syntax_error_points_at_its_line(tmp_path: Path) -> None:
    said = refusal(write(tmp_path, "x = 1\ndef broken(:\n"))
    assert "line 2" in said
    assert "SyntaxError" in said


def test_a_file_that_exits_is_told_about_the_main_block(tmp_path: Path) -> None:
    assert "if __name__ == '__main__':" in refusal(write(tmp_path, "import sys\nsys.exit(3)\n"))


def test_a_relative_import_is_pointed_to_the_module_form(tmp_path: Path) -> None:
    assert "trimaran serve package.module:obj" in refusal(write(tmp_path, "from . import sibling\n"))
