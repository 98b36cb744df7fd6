"""What is offered at the cursor: never too much, never an error, and nothing a line cannot carry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran import Server
from trimaran.apps.console.completion import CompletionMenu, Option, complete
from trimaran.apps.console.input import CallLine, read_line
from trimaran.apps.console.lookup import COMMANDS
from trimaran.host import Host

from .fleet import Harbour, files, odd, open_harbour

LOOP = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 9}}, "properties": {"x": {"$ref": "#/$defs/A"}}}
MANY = {"type": "object", "properties": {f"p{number:03}": {"type": "string"} for number in range(200)}}
CHOICE = {
    "type": "object",
    "properties": {
        "size": {"anyOf": [{"const": 1}, {"const": 2}]},
        "hue": {"$ref": "#/$defs/Hue"},
        "bad": {"enum": ["\x1b[2J", "fine"]},
    },
    "required": ["hue"],
    "$defs": {"Hue": {"enum": ["red", "it's"]}},
}


@pytest.fixture(scope="module")
def harbour() -> Iterator[Harbour]:
    strange = odd(
        ("two words", CHOICE),
        ("\x1b[2Jclear", CHOICE),
        ("choice", CHOICE),
        ("many", MANY),
        ("ring", LOOP),
        ("read", {}),
    )
    with open_harbour(files=files(), odd=strange) as made:
        yield made


def at_end(harbour: Harbour, line: str, *, with_model: bool = False) -> CompletionMenu:
    return harbour.run(complete(line, len(line), harbour.host, is_message_default=with_model))


def texts(harbour: Harbour, line: str, *, with_model: bool = False) -> list[str]:
    """What the whole line would be with each of the options."""
    found = at_end(harbour, line, with_model=with_model)
    assert found.end == len(line)
    return [line[: found.start] + option.text for option in found.options]


# Commands


def test_a_slash_offers_the_commands_with_what_they_do(harbour: Harbour) -> None:
    assert texts(harbour, "/") == list(COMMANDS)
    assert at_end(harbour, "/mc") == CompletionMenu(
        0, 3, (Option("/mcp", "the servers: how they are, their tools, their rules"),)
    )
    assert texts(harbour, "/elp") == []
    assert texts(harbour, "  /qu", with_model=True) == ["  /quit"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("/tool files:w", ["/tool files:write_file"]),
        ("/explain wri", ["/explain files:write_file"]),
        ("/tools x", []),
        ("/resources f", ["/resources files"]),
        ("/prompts ", ["/prompts files", "/prompts odd"]),
        ("/prompts files ", []),
        ("/read @files:r", ["/read @files:readme"]),
        ("/read @o", ["/read @odd:"]),
        ("/prompt f", ["/prompt files:"]),
        ("/prompt files:", ["/prompt files:greet"]),
        ("/prompt files:greet ", ["/prompt files:greet who=", "/prompt files:greet how="]),
        ("/prompt files:greet who=x h", ["/prompt files:greet who=x how="]),
        ("/prompt odd:", []),
        ("/prompt nobody:x ", []),
        ("/quit ", []),
    ],
)
def test_what_follows_a_command_is_offered_by_what_it_takes(harbour: Harbour, line: str, wanted: list[str]) -> None:
    assert texts(harbour, line) == wanted


# Calls


def test_tools_that_begin_so_come_before_those_that_have_it_in_them(harbour: Harbour) -> None:
    assert texts(harbour, "files:")[:2] == ["files:add", "files:clear"]
    # First what the catalog's name begins with, then what the tool's own begins with, then the rest.
    assert texts(harbour, "read") == ["files:read_file", "odd:read"]
    assert texts(harbour, "!ITE") == ["!files:write_file"]
    assert at_end(harbour, "files:read").options == (
        Option("files:read_file", "Read a file. All of it, unless lines are given."),
    )


def test_a_name_that_nobody_can_type_is_not_offered_and_one_with_blanks_is_quoted(harbour: Harbour) -> None:
    offered = texts(harbour, "odd:")
    assert "'odd:two words'" in texts(harbour, "two")
    assert not any("\x1b" in text for text in offered)
    for text in offered:
        assert isinstance(read_line(f"{text} {{}}", harbour.host, is_message_default=False), CallLine)


async def test_a_server_that_waits_to_be_needed_is_offered_by_its_name(tmp_path: Path) -> None:
    """R230: nobody has asked it for its tools."""
    file = tmp_path / "mcp.toml"
    file.write_text('[server.late]\ncommand = "late"\nlazy = true\n')
    async with Host.load(file, separator=":") as host:
        found = await complete("la", 2, host, is_message_default=False)
    assert [option.text for option in found.options] == ["late:"]


def test_with_a_model_only_a_marked_line_is_a_call(harbour: Harbour) -> None:
    assert texts(harbour, "files:re", with_model=True) == []
    assert texts(harbour, "!files:re", with_model=True) == ["!files:read_file"]
    assert texts(harbour, "files:read_file ", with_model=True) == []
    assert texts(harbour, " ! files:re", with_model=True) == [" ! files:read_file"]
    assert texts(harbour, "!", with_model=True) == ["!" + text for text in texts(harbour, "")]
    assert texts(harbour, "! files:add ", with_model=True) == ["! files:add a=", "! files:add b="]
    assert texts(harbour, "!files:read_file pa", with_model=True) == ["!files:read_file path="]


def test_arguments_that_are_not_there_yet_are_offered_those_that_must_be_first(harbour: Harbour) -> None:
    found = at_end(harbour, "files:read_file ")
    assert found.options == (
        Option("path=", "string, required: Where it is."),
        Option("lines=", "array or null"),
        Option("mode=", "string"),
        Option("deep=", "boolean"),
    )
    assert texts(harbour, "odd:choice ") == ["odd:choice hue=", "odd:choice size=", "odd:choice bad="]
    assert texts(harbour, "files:read_file deep:=true lines=[1, 2] ") == [
        "files:read_file deep:=true lines=[1, 2] path=",
        "files:read_file deep:=true lines=[1, 2] mode=",
    ]
    assert texts(harbour, "files:read_file path=x\nli") == ["files:read_file path=x\nlines="]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("files:read_file deep=", ["true", "false"]),
        ("files:read_file deep=f", ["false"]),
        ("files:read_file mode=", ["fast", "'slow and sure'"]),
        ("files:read_file mode=slow", ["'slow and sure'"]),
        ("files:read_file mode='slow a", ["'slow and sure'"]),
        ("files:read_file mode:=", ['"fast"', '"slow and sure"']),
        ("files:read_file path=", []),
        ("files:read_file none=", []),
        ("odd:choice size=", ["1", "2"]),
        ("odd:choice hue=", ["red", '"it\'s"']),
        ("odd:choice bad=", ["fine"]),
    ],
)
def test_values_are_offered_where_the_schema_names_them(harbour: Harbour, line: str, values: list[str]) -> None:
    start = line.index("=") + 1
    found = at_end(harbour, line)
    assert [option.text for option in found.options] == values
    assert not values or found.start == start


def test_a_value_that_is_taken_is_the_value_that_was_meant(harbour: Harbour) -> None:
    for key, line in (("mode", "files:read_file path=x mode=slow"), ("hue", "odd:choice hue=it")):
        call = read_line(texts(harbour, line)[0], harbour.host, is_message_default=False)
        assert isinstance(call, CallLine)
        assert call.arguments[key] in ("slow and sure", "it's")


# Mentions


@pytest.mark.parametrize("with_model", [False, True])
def test_mentions_are_offered_from_the_first_sign_on(harbour: Harbour, with_model: bool) -> None:
    """R264: servers, then the names of what they have."""
    assert texts(harbour, "Read @", with_model=with_model) == ["Read @files:", "Read @odd:"]
    assert texts(harbour, "Read @files:", with_model=with_model) == ["Read @files:issue", "Read @files:readme"]
    assert texts(harbour, "@files:re", with_model=with_model) == ["@files:readme"]
    assert texts(harbour, "ada@files:re", with_model=with_model) == []
    assert texts(harbour, "@nobody:re", with_model=with_model) == []


def test_only_what_stands_before_the_cursor_counts(harbour: Harbour) -> None:
    line = "Read @files:re and weep"
    found = harbour.run(complete(line, 14, harbour.host, is_message_default=True))
    assert found == CompletionMenu(5, 14, (Option("@files:readme"),))
    for cursor in (-5, 999):
        assert harbour.run(complete("/qui", cursor, harbour.host, is_message_default=True)).end in (0, 4)


def test_words_of_a_template_are_asked_of_the_server(harbour: Harbour) -> None:
    """R265: they are positional; those before the cursor are what the server is told."""
    line = "One line.\nRead @files:issue 'x y' 4"
    wanted = [line[:-1] + text for text in ('"42 x y"', "42", '"4."')]
    assert texts(harbour, line) == texts(harbour, line, with_model=True) == wanted
    assert texts(harbour, "/read @files:issue p 4")[1:] == ["/read @files:issue p 42", '/read @files:issue p "4."']
    assert texts(harbour, "@files:issue p ")[1] == "@files:issue p 2"
    assert texts(harbour, "@files:issue ") == []
    assert texts(harbour, "@files:issue p 42 ") == []


# Bounds


def test_there_are_never_more_than_fifty(harbour: Harbour) -> None:
    assert len(at_end(harbour, "odd:many ").options) == 50


def test_help_is_one_safe_line(harbour: Harbour) -> None:
    server = Server("loud", version="1")
    server.add_tool(lambda: "x", name="shout", description="\a[red]HEY[/red]\n" + "x" * 500)
    server.add_tool(lambda: "x", name="shroud", description="\x1b[2JClear the screen.")
    with open_harbour(loud=server) as loud:
        shout, shroud = at_end(loud, "sh").options
    assert shout.help.startswith("\\x07[red]HEY[/red] xxx")
    assert shroud.help.startswith("[withheld by the host: terminal-escapes")
    assert max(len(shout.help), len(shroud.help)) <= 80


def test_a_server_that_is_in_trouble_is_one_without_options(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> list[str]:
        raise OSError("the cable is out")

    monkeypatch.setattr(Host, "complete_mention", fail)
    assert at_end(harbour, "@files:") == CompletionMenu(7, 7)


async def test_giving_up_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(*_: Any) -> list[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(Host, "complete_mention", wait)
    task = asyncio.create_task(complete("@files:re", 9, Host(separator=":"), is_message_default=True))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


PIECES = st.sampled_from(
    ["files:read_file", "odd:ring", "odd:choice", "@files:", "issue", "path", "=", ":=", "{", "'", '"', "\\", " ", "\n"]
    + ["/prompt", "/read", "/tool", "!", "files:greet"]
)
LINES = st.lists(PIECES | st.text(max_size=4), max_size=7).map("".join)


@pytest.mark.slow
def test_no_line_makes_completion_fail_or_offer_what_it_cannot_carry(harbour: Harbour) -> None:
    @settings(max_examples=60, deadline=None)
    @given(LINES, st.integers(-1, 40), st.booleans())
    def check(line: str, cursor: int, with_model: bool) -> None:
        found = harbour.run(complete(line, cursor, harbour.host, is_message_default=with_model))
        assert 0 <= found.start <= found.end <= len(line)
        assert len(found.options) <= 50
        assert all(option.text.isprintable() for option in found.options)

    check()
