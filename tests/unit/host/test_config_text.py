"""Files of others are changed in place: comments, order and everything that is not ours stay."""

from __future__ import annotations

import json
import tomllib
from typing import Any
from unittest.mock import Mock

import pytest

from trimaran.host import ConfigUnusable
from trimaran.host.config import jsontext, tomltext, yamltext
from trimaran.host.config.jsontext import read_json, set_member
from trimaran.host.config.tomltext import set_table, write_table
from trimaran.host.config.yamltext import read_yaml, set_entry

ENTRY = {"command": "x", "args": ["a"]}

# --- JSON ------------------------------------------------------------------------------------------------------------

ZED = """// my settings
{
  "theme": "One Dark", /* dark */
  "context_servers": {
    // the first
    "a": {
      "command": "y", // why
      "args": [],
    }, // done
  },
  "last": 1 // no comma here
}
"""


def test_json_with_comments_and_trailing_commas_is_read() -> None:
    assert read_json(ZED, "f") == {
        "theme": "One Dark",
        "context_servers": {"a": {"command": "y", "args": []}},
        "last": 1,
    }


def test_a_member_is_added_after_the_comments_of_the_others() -> None:
    made = set_member(ZED, ("context_servers", "b"), ENTRY, "f")
    new = """    }, // done
    "b": {
      "command": "x",
      "args": [
        "a"
      ]
    }
  },
"""
    assert made == ZED.replace("    }, // done\n  },\n", new)


def test_a_member_after_one_without_a_comma_leaves_its_comment_where_it_was() -> None:
    made = set_member(ZED, ("new", "b"), 1, "f")
    assert '  "last": 1, // no comma here\n  "new": {\n    "b": 1\n  }\n}\n' in made


def test_a_member_that_is_there_is_replaced_and_nothing_else() -> None:
    made = set_member(ZED, ("context_servers", "a"), {"url": "u"}, "f")
    assert made == ZED.replace(
        '{\n      "command": "y", // why\n      "args": [],\n    }', '{\n      "url": "u"\n    }'
    )


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("", '{\n  "k": {\n    "n": 1\n  }\n}\n'),
        ("  \n", '{\n  "k": {\n    "n": 1\n  }\n}\n'),
        ("{}", '{\n  "k": {\n    "n": 1\n  }\n}'),
        ("{ }\n", '{\n  "k": {\n    "n": 1\n  }\n}\n'),
        ('{"a":1}', '{"a":1,\n  "k": {\n    "n": 1\n  }\n}'),
        ('{\n\t"k": {}\n}', '{\n\t"k": {\n\t\t"n": 1\n\t}\n}'),
        ('{\n    "k": {"m": 2}\n}', '{\n    "k": {"m": 2,\n        "n": 1\n    }\n}'),
        ('{\r\n  "k": {}\r\n}\r\n', '{\r\n  "k": {\r\n    "n": 1\r\n  }\r\n}\r\n'),
        ("{\n  // nothing yet\n}", '{\n  // nothing yet\n  "k": {\n    "n": 1\n  }\n}'),
    ],
    ids=repr,
)
def test_the_style_of_the_file_is_kept(text: str, made: str) -> None:
    assert set_member(text, ("k", "n"), 1, "f") == made


def test_letters_outside_ascii_and_escapes_survive() -> None:
    made = set_member('{"ü\\u00e9": "\\ud83d\\ude00"}', ("k",), "日本\x7f", "f")
    assert made.startswith('{"ü\\u00e9": "\\ud83d\\ude00",')
    assert read_json(made, "f")["k"] == "日本\x7f"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", 1),
        ('{\n"a" 1}', 2),
        ('{"a": 1\n"b": 2}', 2),
        ('{"a": tru}', 1),
        ('{"a": "x\n"}', 1),
        ('{"a": 1}\n}', 2),
        ('{"a": "\\x"}', 1),
        ("{'a': 1}", 1),
        ("{,}", 1),
        ("[1 2]", 1),
        ("/* {}", 1),
        ("[" * 300, 1),
        ('{"a": 01}', 1),
        ('{"a": NaN}', 1),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_no_json_names_its_line(text: str, line: int) -> None:
    with pytest.raises(ConfigUnusable, match="this is not JSON") as caught:
        read_json(text, "f")
    assert caught.value.problem.line == line


def test_a_broken_file_is_not_changed_and_its_content_is_not_repeated() -> None:
    with pytest.raises(ConfigUnusable) as caught:
        set_member('{"token": hunter2}', ("k", "n"), 1, "f")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ['{"k": []}', '{"k": "x"}', "[]"])
def test_a_member_of_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ConfigUnusable, match="an object is expected here"):
        set_member(text, ("k", "n"), 1, "f")


def test_of_members_written_twice_the_last_is_the_one() -> None:
    made = set_member('{"k": {"n": 1}, "k": {"n": 2}}', ("k", "n"), 3, "f")
    assert json.loads(made) == {"k": {"n": 3}}


def test_json_members_know_their_lines() -> None:
    assert jsontext.lines_of(ZED, ("context_servers",), "f") == {"a": 6}
    assert jsontext.lines_of(ZED, ("context_servers", "a"), "f") == {"command": 7, "args": 8}
    assert jsontext.lines_of(ZED, ("nothing", "here"), "f") == {}


# --- TOML ------------------------------------------------------------------------------------------------------------

CODEX = """# mine
model = "o" # best

[mcp_servers.a] # first
command = "y"
# inside

[mcp_servers.a.env]
K = "v"

# about tui
[tui]
theme = "dark"
"""


def test_a_table_is_added_at_the_end() -> None:
    made = set_table(CODEX, ("mcp_servers", "b"), ENTRY, "f")
    assert made == CODEX + '\n[mcp_servers.b]\ncommand = "x"\nargs = ["a"]\n'


def test_a_table_that_is_there_is_replaced_where_it_stands() -> None:
    made = set_table(CODEX, ("mcp_servers", "a"), ENTRY, "f")
    assert made.startswith('# mine\nmodel = "o" # best\n\n[mcp_servers.a]\ncommand = "x"\nargs = ["a"]\n')
    assert made.endswith('# about tui\n[tui]\ntheme = "dark"\n')
    assert tomllib.loads(made)["mcp_servers"] == {"a": ENTRY}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[mcp_servers]\n",
        '[mcp_servers]\nb = { command = "y" }\n[other]\nx = 1\n',
        'mcp_servers.b.command = "y"\n',
        '[mcp_servers.b]\ncommand = """\n[tui]\n"""',
        "[other]\r\nx = 1\r\n",
        '[mcp_servers.c]\ncommand = "z"\n[mcp_servers.b]\n[mcp_servers.d]\n',
    ],
    ids=repr,
)
def test_a_table_goes_into_any_toml_and_the_rest_stays(text: str) -> None:
    before: Any = tomllib.loads(text)
    after = tomllib.loads(set_table(text, ("mcp_servers", "b"), ENTRY, "f"))
    before.setdefault("mcp_servers", {})["b"] = ENTRY
    assert after == before


def test_a_table_that_cannot_be_added_is_shown_masked() -> None:
    """An inline table is closed: nothing can be put in from outside."""
    with pytest.raises(ConfigUnusable, match="add it by hand") as caught:
        set_table('mcp_servers = { c = { command = "z" } }', ("mcp_servers", "b"), {"env": {"K": "hunter2"}}, "f")
    assert "[mcp_servers.b]" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_every_value_is_written_so_that_it_reads_the_same() -> None:
    table: dict[str, Any] = {
        "text": 'quote " backslash \\ tab \t end \r\n nul \x00 del \x7f ü 日本 😀',
        "numbers": [1, -2, 1.5, 1e300],
        "flags": [True, False],
        "empty": {},
        "none": [],
        "odd key": {"a.b": "c", "": "d"},
        "deep": {"x": {"y": {"z": [{"q": 1}]}}},
        "long": ["x" * 40, "y" * 40, "z" * 40],
        "wide": {f"K{n}": "v" * 20 for n in range(8)},
    }
    assert tomllib.loads(write_table(("server", "a-b"), {**table, "left_out": None})) == {"server": {"a-b": table}}


# --- YAML ------------------------------------------------------------------------------------------------------------

GOOSE = """# goose
GOOSE_PROVIDER: anthropic
extensions:
  developer:
    bundled: true
    enabled: true
    name: developer
    timeout: 300
    type: builtin
  # fetch pages
  fetch:
    args:
    - mcp-server-fetch
    bundled: null
    cmd: uvx
    description: ''
    enabled: true
    env_keys: []
    envs: {}
    name: fetch
    timeout: 300
    type: stdio
GOOSE_MODEL: x # last
"""

NEW = {"type": "stdio", "cmd": "x", "args": ["a: b", "# c"], "envs": {"K": "v"}, "env_keys": [], "enabled": True}


def test_an_entry_is_added_at_the_end_of_its_section() -> None:
    made = set_entry(GOOSE, "extensions", "b", NEW, "f")
    added = (
        '  b:\n    type: "stdio"\n    cmd: "x"\n    args:\n    - "a: b"\n    - "# c"\n    envs:\n      K: "v"\n'
        "    env_keys: []\n    enabled: true\n"
    )
    assert made == GOOSE.replace("GOOSE_MODEL", f"{added}GOOSE_MODEL")


def test_an_entry_that_is_there_is_replaced_and_nothing_else() -> None:
    made = set_entry(GOOSE, "extensions", "fetch", {"type": "stdio"}, "f")
    assert made == GOOSE[: GOOSE.index("  fetch:")] + '  fetch:\n    type: "stdio"\nGOOSE_MODEL: x # last\n'


@pytest.mark.parametrize(
    "text",
    ["", "# only a comment\n", "A: 1\n", "A: 1", "extensions: {}\nB: 2\n", "extensions:\nB: 2\n", "extensions: # none\n",
     "---\nA: 1\n", "A: 1\r\nextensions:\r\n  x:\r\n    type: builtin\r\n", "extensions:\n    x:\n        type: builtin\n",
     "\nextensions:\n\n  x:\n    type: builtin\n\n# end\n", 'extensions:\n  "b":\n    type: builtin\n'],
    ids=repr,
)  # fmt: skip
def test_an_entry_goes_into_any_yaml_that_is_read(text: str) -> None:
    before = read_yaml(text, "f")
    after = read_yaml(set_entry(text, "extensions", "b", NEW, "f"), "f")
    assert after == {**before, "extensions": {**(before.get("extensions") or {}), "b": NEW}}


@pytest.mark.parametrize(
    ("text", "line"),
    [("A: &x 1\nB: *x\n", 1), ("A: 1\nB:\n\t- x\n", 3), ("A: 1\nA: 2\n", 2), ("- a\n", 1), ("A: [1,\n", 1)],
    ids=repr,
)
def test_yaml_that_is_not_understood_is_left_alone_naming_its_line(text: str, line: int) -> None:
    with pytest.raises(ConfigUnusable, match="this YAML is not read here") as caught:
        set_entry(text, "extensions", "b", NEW, "f")
    assert caught.value.problem.line == line


@pytest.mark.parametrize("text", ["extensions: [a]\n", "extensions: x\n"])
def test_a_section_that_is_no_map_is_left_alone(text: str) -> None:
    with pytest.raises(ConfigUnusable, match="add it by hand"):
        set_entry(text, "extensions", "b", NEW, "f")


def test_yaml_entries_know_their_lines() -> None:
    assert yamltext.lines_of(GOOSE, "extensions") == {"developer": 4, "fetch": 11}


def test_what_is_put_in_is_read_again_before_anybody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard itself: a writer that spoils the file is caught by the reader."""
    monkeypatch.setattr(tomltext, "write_table", Mock(return_value="[oops]\n"))
    monkeypatch.setattr(jsontext, "_dumped", Mock(return_value="1"))
    monkeypatch.setattr(yamltext, "_written", Mock(return_value=["  oops: 1"]))
    for change in (
        lambda: set_table(CODEX, ("mcp_servers", "b"), ENTRY, "f"),
        lambda: set_member(ZED, ("context_servers", "b"), ENTRY, "f"),
        lambda: set_entry(GOOSE, "extensions", "b", NEW, "f"),
    ):
        with pytest.raises(ConfigUnusable, match="add it by hand"):
            change()
