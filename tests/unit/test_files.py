"""Files that others wrote are read whole, within a limit, and never waited for."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from trimaran.apps.cli.arguments import read_args
from trimaran.apps.cli.serve_auth import read_keys
from trimaran.apps.cli.target import parse_target
from trimaran.apps.console.history import History
from trimaran.errors import Error
from trimaran.files import read_file
from trimaran.host.config import load_config
from trimaran.host.config.files import read_text
from trimaran.host.config.jsontext import lines_of as json_lines
from trimaran.host.config.jsontext import read_json
from trimaran.host.config.load import read_config
from trimaran.host.config.machine import Machine
from trimaran.host.config.model import ConfigUnusable, Source
from trimaran.host.config.tomltext import MAX_TOML, read_toml
from trimaran.host.trust import Trust
from trimaran.testing import replay
from trimaran.transports.old_sdk import newest_revision

needs_unix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither FIFOs nor /dev/zero")


def test_a_file_within_the_limit_is_read_whole(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"12345")
    link.symlink_to(file)
    assert read_file(file, 5) == read_file(str(link), 5) == b"12345"
    with pytest.raises(OSError, match="it has 5 bytes, and at most 4 are read") as refusal:
        read_file(file, 4)
    assert (refusal.value.errno, refusal.value.filename) == (errno.EFBIG, str(file))
    assert read_file(file, 4, at_least_head=True) == b"1234"
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none", 4)
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path, 4)


@pytest.fixture(params=["fifo", "device", "link to a device", "large"])
def trap(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What never ends, never begins, or is far too much, where a file of configuration is expected."""
    place = tmp_path / "mcp.toml"
    if request.param == "fifo":
        os.mkfifo(place)
    elif request.param == "device":
        return Path("/dev/zero")
    elif request.param == "link to a device":
        place.symlink_to("/dev/zero")
    else:
        with place.open("wb") as file:
            file.truncate(1 << 40)  # a hole: it takes no room
    return place


# What reads a file: it must end, and say what is wrong or take the file for an empty one.
READERS: dict[str, Callable[[Path], Any]] = {
    "mcp.toml": load_config,
    "a file of another program": read_text,
    "trusted projects": lambda path: Trust(path).files(),
    "stored keys": read_keys,
    "a cassette": replay,
    "the console's history": lambda path: History(path),
    "a file of servers on the command line": lambda path: parse_target(f"{path}#x"),
}


@needs_unix
@pytest.mark.parametrize("reader", READERS)
def test_nothing_that_stands_in_a_files_place_is_waited_for(trap: Path, reader: str) -> None:
    """Ours: a hostile project can put anything there, and it is read before any question of trust."""
    try:
        READERS[reader](trap)
    except (Error, click.UsageError, OSError) as refusal:
        assert len(str(refusal)) < 1000


@needs_unix
def test_arguments_come_from_a_pipe_too_but_not_from_one_without_end(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b'{"a": 1}')
    os.close(write_end)
    try:
        assert read_args(f"@/dev/fd/{read_end}") == {"a": 1}
    finally:
        os.close(read_end)
    with pytest.raises(click.UsageError, match="more than 16 MiB"):
        read_args("@/dev/zero")


# --- what is in them -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n" + "a." * 20_000 + "b = 1", "f.toml:2: this key has more than 16 parts"),
        ("[" + "a." * 20_000 + "b]", "f.toml:1: this key has more than 16 parts"),
        (" . ".join(['"a"'] * 17) + " = 1", "f.toml:1: this key has more than 16 parts"),
        ('"""\n""" = 1\nx = {y = """""", ' + "b." * 20_000 + 'c = "y"}', "f.toml:3: this key has more than 16 parts"),
        ('x = {y = """z"""", ' + "b." * 20_000 + 'c = "y"}', "f.toml:1: this key has more than 16 parts"),
        ("a = " + "[" * 33 + "]" * 33, "nested more than 32 deep"),
        ("a = " + "[" * 200_000, "nested more than 32 deep"),
        ("a = " + "{a=" * 33 + "1" + "}" * 33, "nested more than 32 deep"),
        ("#" * (MAX_TOML + 1), f"at most {MAX_TOML} are read"),
        ("a = " + "9" * 5000, "this is not TOML"),
    ],
    ids=["key", "header", "quoted key", "after a text", "quotes", "lists", "open", "tables", "long", "digits"],
)
def test_toml_that_would_take_long_is_refused_before_it_is_read(text: str, message: str) -> None:
    """A dotted key of 40 KB took ten seconds and 1.5 GB."""
    with pytest.raises(ConfigUnusable) as refusal:
        read_toml(text, "f.toml")
    assert message in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_dots_and_brackets_in_strings_and_comments_are_neither_parts_nor_levels() -> None:
    dots, brackets = "a." * 50, "[{" * 50
    text = f"""
# {dots} {brackets} don't
a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p = '{dots}{brackets}'  # sixteen parts
b = "{dots}\\"{brackets}"
c = \"\"\"{dots}
"{brackets}"\"\"\"\"
d = '''{brackets}''''
{"".join(f"[t{number}]" + chr(10) for number in range(200))}
"""
    content = read_toml(text, "f.toml")
    assert content["b"] == f'{dots}"{brackets}'
    assert content["c"].endswith('"')
    assert content["d"].endswith("'")


def test_thousands_of_servers_are_read_in_linear_time() -> None:
    """8,000 took 23 seconds, by a walk over all lines for each; this is counted in seconds only to be safe."""
    text = "".join(f"[server.s{number}]\ncommand = 'x'\n" for number in range(15_000))
    config = read_config([(Source("f.toml", "project"), text)], Machine.here())
    assert len(config.servers) == 15_000
    assert config.servers["s14999"].command == "x"


def test_json_files_have_the_depth_of_all_json() -> None:
    for comment in ("", "// comment\n"):
        read_json(comment + "[" * 128 + "]" * 128, "f")
        for depth in (129, 5000, 100_000):
            with pytest.raises(ConfigUnusable, match="nested more than 128 deep"):
                read_json(comment + "[" * depth + "]" * depth, "f")
        with pytest.raises(ConfigUnusable, match="this number is too long"):
            read_json(comment + "9" * 5000, "f")
    with pytest.raises(ConfigUnusable, match="nested more than 128 deep"):
        json_lines('{"a":' * 200 + "1" + "}" * 200, ("a",), "f")


@needs_unix
def test_a_program_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    program = tmp_path / "program"
    os.mkfifo(program, stat.S_IRWXU)
    assert newest_revision([str(program)], None, None) is None  # it looks at the first bytes of what it will run
