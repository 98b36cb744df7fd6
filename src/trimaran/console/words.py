"""What a person types: a command, a call of a tool, or a message.

    /mcp                                    a command: it begins with "/"
    files:read_file path=notes.txt          a call, where no model listens: the first word is a tool's name
    !files:read_file {"path": "notes.txt"}  a call, always
    Compare @docs:readme with this.         a message: everything else

Arguments are read by the tool's schema, as on the command line: `key=value`, `key:=JSON`, or one JSON object for all of
them, which is then sent as it is. A tool that needs one text and nothing else takes it without a name. What cannot be meant
is a `LineError` that says what would do: a misspelt tool is not a message, and a misspelt argument is not sent.

Nothing is called here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast, final

from msgspec import Struct

from trimaran.errors import Error
from trimaran.host import Host, ServerUnavailable, UnknownName
from trimaran.host.names import Address
from trimaran.host.plain import in_one_line
from trimaran.schema.words import Word, WordError, fit, parse_json, read_words, unknown_key
from trimaran.types import Tool

from .completion import Completion, Option, complete
from .history import looks_secret
from .known import COMMANDS, Argument, arguments_of, find_address, find_tool, main_argument, nearest, tools_of
from .split import Token, split

__all__ = [
    "COMMANDS",
    "Asleep",
    "Call",
    "Command",
    "Completion",
    "LineError",
    "Message",
    "Option",
    "complete",
    "is_unnamed_secret",
    "read_line",
]

_NAME: Final = re.compile(r"[A-Za-z_$][\w$.-]*")
_MOST_NAMED: Final = 8  # arguments in an error


class LineError(Error):
    """A line that cannot be meant; the text is for the person who typed it."""


@final
class Asleep(LineError):
    """A call of a server that was not started yet: `await host.wake(error.server)`, and read the line again."""

    def __init__(self, message: str, server: str) -> None:
        super().__init__(message)
        self.server = server


@final
class Command(Struct, frozen=True):
    """A word with "/" before it, and what follows."""

    name: str
    words: tuple[str, ...] = ()


@final
class Call(Struct, frozen=True):
    """A tool, by the catalog's name, and what to call it with."""

    name: str
    arguments: dict[str, Any]


@final
class Message(Struct, frozen=True):
    """Anything else; its mentions are not expanded yet."""

    text: str


def read_line(
    line: str, host: Host, *, is_message_default: bool, commands: Mapping[str, Any] = COMMANDS
) -> Command | Call | Message:
    """What a line means.

    Args:
        is_message_default: Is there a model to talk to? Then a call needs a "!" before it.
        commands: The names that commands have.

    Raises:
        Asleep: how it is to be read is known once a server is up that waits to be needed, or is being started.
        LineError: it means nothing; says what is wrong and what would do.
    """
    text = line.strip()
    if text.startswith("/"):
        return _command(text, commands)
    if text.startswith("!"):
        return _call(text[1:], host)
    if not is_message_default and text and _names_tool(split(text, most=1)[0].text, host):
        return _call(text, host)
    return Message(text)


def is_unnamed_secret(line: str, host: Host) -> bool:
    """Does a call give something without its name that is a secret by that name, or may be, since its tool is not known yet?"""
    tokens = split(line.strip().removeprefix("!"))
    bare = [token for token in tokens[1:] if "=" not in token.text]
    if not bare:
        return False
    try:
        tool = find_tool(host, find_address(host, tokens[0].text))
    except ServerUnavailable:
        return True
    except UnknownName as error:
        return error.reason == "unknown_tool"  # misspelt: what it takes can only be guessed
    except Error:
        return False
    main = main_argument(arguments_of(tool.input_schema)) if tool is not None else None
    return tool is None or (main is not None and looks_secret(f"{main}="))


def _command(text: str, commands: Mapping[str, Any]) -> Command:
    name = text.split(maxsplit=1)[0]
    if name not in commands:
        raise _error(f"there is no command {_short(name)}", nearest(name, commands), "/help lists them")
    tokens = split(text, len(name))
    _closed(tokens)
    return Command(name, tuple(token.text for token in tokens))


def _names_tool(word: str, host: Host) -> bool:
    """Is this a call? A name that a known server could have, and has not, is meant as one."""
    try:
        find_address(host, word)
    except UnknownName as error:
        return error.reason == "unknown_tool"
    except ServerUnavailable:
        return True
    return True


def _call(text: str, host: Host) -> Call:
    tokens = split(text)
    if not tokens:
        raise _error('after "!" comes the name of a tool, such as !files:read_file', "", "/tools lists them")
    first = tokens[0]
    address = _address(first.text, host)
    tool = find_tool(host, address)
    if tool is None:
        state = next((one.text for one in host.status() if one.name == address.server), "gone")
        told = f"the server {address.server} cannot be used now, {in_one_line(state, 1000)}"
        raise _error(told, "", "/mcp says more, and what can be done")
    return Call(tool.name, _arguments(text, first.end, tool))


def _address(word: str, host: Host) -> Address:
    try:
        return find_address(host, word)
    except ServerUnavailable as error:
        status = error.status
        told = f"the server {status.name} cannot be used now, {in_one_line(status.text, 1000)}"
        fault = _error(told, "", "/mcp says more, and what can be done")
        raise Asleep(str(fault), status.name) if status.state in ("idle", "starting") else fault from None
    except UnknownName as error:
        server, _, tool = word.partition(":")
        servers = [one.name for one in host.status()]
        names = [one.name for one in tools_of(host)]
        if error.reason == "unknown_tool" and server in servers:
            # Of this server's: what they all begin with would make any two of them look alike.
            word, names = tool, [name for name in names if name.startswith(f"{server}:")]
            said, more = f"the server {server} has no tool {_short(tool)}", f"/tools {server}: lists those it has"
        elif error.reason == "unknown_server":
            said, more = f"there is no server {_short(server)}", f"the servers are {_list(servers) or 'none'}"
        else:
            said, more = f"there is no tool {_short(word)}", "/tools lists them"
        raise _error(said, nearest(word, names), more) from None


# --- arguments -------------------------------------------------------------------------------------------------------


def _arguments(text: str, at: int, tool: Tool) -> dict[str, Any]:
    rest = text[at:].strip()
    if rest.startswith("{"):
        return _whole(rest, tool.name)
    schema: Any = tool.input_schema
    known = arguments_of(schema)
    tokens = split(text, at)
    _closed(tokens)
    try:
        words = _named(tokens, tool.name, known)
        _check_names(words, tool.name, known, schema)
        return fit(words, schema)
    except WordError as error:
        raise LineError(in_one_line(str(error), 400)) from None


def _whole(rest: str, name: str) -> dict[str, Any]:
    try:
        value = parse_json(rest, f"what follows {in_one_line(name, 100)}")
    except WordError as error:
        raise LineError(f'{in_one_line(str(error), 300)}; write one object, such as {{"key": "value"}}') from None
    return cast("dict[str, Any]", value)  # what begins with a brace, and is JSON, is an object


def _named(tokens: list[Token], name: str, known: list[Argument]) -> list[Word]:
    """Every word with the name of its argument; one may have been given without."""
    names = {one.name for one in known}
    bare = [token for token in tokens if not _has_key(token, names)]
    words = read_words(token.text for token in tokens if token not in bare)
    if not bare:
        return words
    main = main_argument(known)
    if main is None:
        raise _error(f"{_short(bare[0].text)} is no argument: write key=value, or key:=JSON", "", _takes(name, known))
    if len(bare) > 1 or any(word.key == main for word in words):
        example = f"{main}='{' '.join(token.text for token in bare)}'"
        said = f"{_short(bare[-1].text)} is one word too many: put quotes around a text with blanks, as in "
        raise _error(said + in_one_line(example, 60), "", _takes(name, known))
    return [Word(main, bare[0].text, False), *words]


def _has_key(token: Token, names: set[str]) -> bool:
    key, equals, _ = token.text.partition("=")
    key = key.removesuffix(":")
    return bool(equals) and not token.is_quoted and (key in names or _NAME.fullmatch(key) is not None)


def _check_names(words: list[Word], name: str, known: list[Argument], schema: Mapping[str, Any]) -> None:
    given = {word.key for word in words}
    names = [one.name for one in known]
    unknown = unknown_key(words, schema)
    if unknown is not None:
        said = f"the tool {in_one_line(name, 100)} has no argument {_short(unknown)}"
        raise _error(said, nearest(unknown, names), _takes(name, known))
    missing = [one.name for one in known if one.is_required and one.name not in given]
    if missing:
        said = f"the tool {in_one_line(name, 100)} needs {_list(missing)}: add {in_one_line(missing[0], 60)}=VALUE"
        raise _error(said, "", _takes(name, known))


def _takes(name: str, known: list[Argument]) -> str:
    if not known:
        return "it takes no arguments"
    ordered = sorted(known, key=lambda one: not one.is_required)
    said = [f"{in_one_line(one.name, 60)} ({one.kind}{', required' if one.is_required else ''})" for one in ordered]
    more = f" and {len(said) - _MOST_NAMED} more" if len(said) > _MOST_NAMED else ""
    return f"it takes {', '.join(said[:_MOST_NAMED])}{more}"


# --- sentences -------------------------------------------------------------------------------------------------------


def _closed(tokens: list[Token]) -> None:
    if tokens and tokens[-1].is_open:
        raise _error(f"a quote is not closed, in {_short(tokens[-1].text)}", "", "add it, or put a backslash before it")


def _error(said: str, near: str, more: str) -> LineError:
    """What is wrong, what may have been meant, what would do."""
    meant = f" Did you mean {in_one_line(near, 100)}?" if near else ""
    return LineError(f"{said[:1].upper()}{said[1:]}.{meant} {more[:1].upper()}{more[1:]}.")


def _short(word: str) -> str:
    return f"'{in_one_line(word, 60)}'"


def _list(names: list[str]) -> str:
    shown = [in_one_line(name, 60) for name in names[:_MOST_NAMED]]
    more = [f"{len(names) - len(shown)} more"] if len(names) > len(shown) else []
    return " and ".join(
        [", ".join(shown), *more] if more else [", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown
    )
