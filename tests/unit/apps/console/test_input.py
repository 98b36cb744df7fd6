"""What a line means: a command, a call, a message; and what is said about one that means nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trimaran.apps.console.input import (
    COMMANDS,
    CallLine,
    CommandLine,
    LineError,
    MessageLine,
    ServerNotStarted,
    read_line,
)
from trimaran.apps.console.shell_words import quote, split_words
from trimaran.host import Host

from .fleet import files, odd, open_harbour

CLOSED = {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    strange = odd(("open", OPEN), ("two words", CLOSED), ("bare", {"type": "object"}), ("ring", {"$ref": "#"}))
    with open_harbour(files=files(), odd=strange) as harbour:
        yield harbour.host


def said(line: str, host: Host, *, with_model: bool = False) -> str:
    """The complaint about a line: sentences on one line, and not many of them."""
    with pytest.raises(LineError) as caught:
        read_line(line, host, is_message_default=with_model)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 700
    return text


# Commands


@pytest.mark.parametrize("with_model", [False, True])
def test_a_line_that_begins_with_a_slash_is_a_command(host: Host, with_model: bool) -> None:
    assert read_line(" /mcp ", host, is_message_default=with_model) == CommandLine("/mcp")
    line = '/prompt files:greet who=\'Ada L.\' how="so \\" so"'
    assert read_line(line, host, is_message_default=with_model) == CommandLine(
        "/prompt", ("files:greet", "who=Ada L.", 'how=so " so')
    )


def test_a_command_that_is_none_is_told_with_the_nearest_one(host: Host) -> None:
    assert said("/hepl me", host) == "There is no command '/hepl'. Did you mean /help? /help lists them."
    assert said("/", host) == "There is no command '/'. /help lists them."
    assert "quote is not closed" in said("/tools it's", host)
    assert read_line("/own x", host, is_message_default=False, commands={"/own": ""}) == CommandLine("/own", ("x",))


# Calls


@pytest.mark.parametrize("name", ["files:read_file", "files__read_file", "mcp__files__read_file"])
def test_a_tool_is_known_by_every_name_it_has(host: Host, name: str) -> None:
    """R221: the name of the catalog, of a provider, and of a permission rule."""
    wanted = CallLine("files:read_file", {"path": "notes.txt"})
    assert read_line(f"{name} path=notes.txt", host, is_message_default=False) == wanted
    assert read_line(f"!{name} path=notes.txt", host, is_message_default=True) == wanted
    assert read_line(f"! {name} path=notes.txt", host, is_message_default=False) == wanted


@pytest.mark.parametrize(
    ("rest", "arguments"),
    [
        ("notes.txt", {"path": "notes.txt"}),
        ("'my notes.txt' deep=yes", {"path": "my notes.txt", "deep": True}),
        ("mode=fast 42", {"path": "42", "mode": "fast"}),
        ("https://host.example/?a=b", {"path": "https://host.example/?a=b"}),
        ("'path=x'", {"path": "path=x"}),
        ("path=", {"path": ""}),
        ("path=a=b", {"path": "a=b"}),
        ("path=5", {"path": "5"}),
        (r"path=C:\data\x", {"path": r"C:\data\x"}),
        (r"path=a\ b\\c", {"path": r"a b\c"}),
        ("path='a\nb'", {"path": "a\nb"}),
        ("path=x\nlines=[1]", {"path": "x", "lines": [1]}),
        ("path=x lines:=[1, 2]", {"path": "x", "lines": [1, 2]}),
        ("path=x lines=[1, 2] deep=off", {"path": "x", "lines": [1, 2], "deep": False}),
        ("path=x lines:='[1, 2]'", {"path": "x", "lines": [1, 2]}),
        ('path:="a b" lines=null', {"path": "a b", "lines": None}),
        ('{"path": "x", "unheard": {"of": 1}}', {"path": "x", "unheard": {"of": 1}}),
        ("{}", {}),
    ],
)
def test_arguments_are_read_by_the_schema_of_the_tool(host: Host, rest: str, arguments: Any) -> None:
    assert read_line(f"files:read_file {rest}", host, is_message_default=False) == CallLine(
        "files:read_file", arguments
    )


def test_a_tool_that_takes_anything_gets_anything(host: Host) -> None:
    assert read_line("odd:open a=1 b=2", host, is_message_default=False) == CallLine("odd:open", {"a": 1, "b": "2"})
    assert read_line("odd:bare b=2", host, is_message_default=False) == CallLine("odd:bare", {"b": "2"})
    assert read_line("odd:ring b:=2", host, is_message_default=False) == CallLine("odd:ring", {"b": 2})
    assert read_line("'odd:two words' path=a", host, is_message_default=False) == CallLine(
        "odd:two words", {"path": "a"}
    )
    assert read_line("files:clear", host, is_message_default=False) == CallLine("files:clear", {})


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            "files:rad_file x",
            "The server files has no tool 'rad_file'. Did you mean files:read_file? /tools files: lists those it has.",
        ),
        ("files:", "The server files has no tool ''. /tools files: lists those it has."),
        ("files__rad_file", "There is no tool 'files__rad_file'. Did you mean files:read_file? /tools lists them."),
        ("!read_file x", "There is no tool 'read_file'. Did you mean files:read_file? /tools lists them."),
        (
            "!fils:read_file",
            "There is no server 'fils'. Did you mean files:read_file? The servers are files and odd.",
        ),
        ("!", 'After "!" comes the name of a tool, such as !files:read_file. /tools lists them.'),
        (
            "files:read_file pth=x",
            "The tool files:read_file has no argument 'pth'. Did you mean path? It takes path (string, required), "
            "lines (array or null), mode (string), deep (boolean).",
        ),
        (
            "files:write_file path=x",
            "The tool files:write_file needs text: add text=VALUE. It takes path (string, required), "
            "text (string, required).",
        ),
        ("files:clear now", "'now' is not an argument: write key=value, or key:=JSON. It takes no arguments."),
        (
            "files:add 3",
            "'3' is not an argument: write key=value, or key:=JSON. It takes a (integer, required), b (integer, required).",
        ),
    ],
)
def test_a_call_that_cannot_be_meant_is_told_with_what_would_do(host: Host, line: str, complaint: str) -> None:
    assert said(line, host) == complaint


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("files:read_file my notes.txt", "as in path='my notes.txt'"),
        ("files:read_file notes.txt path=x", "'notes.txt' is one word too many"),
        ("files:read_file path=a path=b", "'path' occurs twice"),
        ("files:read_file path='a", "A quote is not closed, in 'path=a'"),
        ('files:read_file {"path": ', "what follows files:read_file is not JSON"),
        ("files:read_file path=x lines:=[1", "lines:=[1 is not JSON"),
        ("files:read_file path=x deep=maybe", "wants true or false here"),
        ("files:add a=1 b=NaN", "wants an integer here"),
        ("files:" + "x" * 10_000, "..."),
        ("!\x1b[2J", r"\x1b[2J"),
    ],
    ids=["words", "twice", "again", "quote", "object", "json", "truth", "nan", "long", "escape"],
)
def test_what_is_wrong_with_a_call_is_named(host: Host, line: str, part: str) -> None:
    assert part in said(line, host)


def test_a_server_that_is_away_is_told_and_not_guessed_at() -> None:
    """Its tools stay known, and cannot be called."""
    with open_harbour(files=files()) as harbour:
        harbour.run(harbour.host.disable("files"))
        told = said("files:read_file notes.txt", harbour.host)
    assert told == "The server files cannot be used now, disabled. /mcp says more, and what can be done."


def test_a_call_of_a_server_that_is_not_up_yet_says_whom_to_wait_for() -> None:
    """R230: how its arguments are read is known once it is up."""
    with asyncio.Runner() as runner:
        host = Host({"files": files()}, separator=":", wait=False)
        runner.run(host.start())
        try:
            for line in ("files:read_file x", "mcp__files__read_file x", "!files__read_file x"):
                with pytest.raises(ServerNotStarted, match="^The server files cannot be used now, starting") as caught:
                    read_line(line, host, is_message_default=False)
                assert caught.value.server == "files"
            runner.run(host.wake("files"))
            wanted = CallLine("files:read_file", {"path": "x"})
            assert read_line("files:read_file x", host, is_message_default=False) == wanted
        finally:
            runner.run(host.close())


# Messages


@pytest.mark.parametrize(
    "line",
    ["Compare @docs:readme with @files:readme", "note: this", "https://host.example/", "read_file x", "it's late", ""],
)
@pytest.mark.parametrize("with_model", [False, True])
def test_everything_else_is_a_message(host: Host, line: str, with_model: bool) -> None:
    assert read_line(line, host, is_message_default=with_model) == MessageLine(line)


def test_with_a_model_to_talk_to_a_call_needs_its_mark(host: Host) -> None:
    for line in ("files:read_file notes.txt", "files:rad_file: what is it?", "files:add"):
        assert read_line(line, host, is_message_default=True) == MessageLine(line)


# Splitting


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20))
@example("")
@example("a'b\"c")
@example("{x")
@example("k:=[1 2]")
@example("\\")
def test_a_quoted_text_is_one_word_again(text: str) -> None:
    (token,) = split_words(quote(text))
    assert (token.text, token.is_open) == (text, False)
    assert [one.text for one in split_words(f"key={quote(text)}  b")] == [f"key={text}", "b"]


def test_words_know_where_they_stand() -> None:
    line = " a 'b c' d=[1, 2]  \"e"
    assert [line[token.start : token.end] for token in split_words(line)] == ["a", "'b c'", "d=[1, 2]", '"e']
    assert [token.is_open for token in split_words(line)] == [False, False, False, True]
    assert [token.text for token in split_words(line, most=2)] == ["a", "b c"]


PIECES = st.sampled_from(
    [
        "files:read_file",
        "odd:ring",
        "files:",
        "path",
        "=",
        ":=",
        "{",
        "[1",
        "]",
        "'",
        '"',
        "\\",
        " ",
        "\n",
        "@",
        "/",
        "!",
    ]
)
LINES = st.lists(PIECES | st.text(max_size=4), max_size=8).map("".join)


def test_no_line_makes_reading_it_fail(host: Host) -> None:
    @settings(max_examples=100, deadline=None)
    @given(LINES, st.booleans())
    def check(line: str, with_model: bool) -> None:
        try:
            found = read_line(line, host, is_message_default=with_model)
        except LineError as error:
            assert str(error)
        else:
            assert isinstance(found, CommandLine | CallLine | MessageLine)

    check()


def test_every_command_says_what_it_does() -> None:
    assert all(name.startswith("/") and does for name, (_, does) in COMMANDS.items())
