"""Read a line that the person typed: a command, a call of a tool, or a message.

    /mcp                                    a command: it begins with "/"
    files:read_file path=notes.txt          a call, where no model listens: the first word is a tool's name
    !files:read_file {"path": "notes.txt"}  a call, always
    Compare @docs:readme with this.         a message: everything else

Arguments are read by the tool's schema, as on the command line: `key=value`, `key:=JSON`, or one JSON object for all of
them, which is then sent as it is. A tool that needs one text and nothing else takes it without a name. A line that cannot
be right is a `LineError` with the remedy: a misspelt tool is not a message, and a misspelt argument is not sent.

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
from trimaran.host.terminal_text import in_one_line
from trimaran.schema.typed_values import Word, WordError, fit, parse_json, read_words, unknown_key
from trimaran.types import Tool

from .history import looks_secret
from .lookup import COMMANDS, Argument, arguments_of, find_address, find_tool, main_argument, nearest, tools_of
from .shell_words import Token, split_words

_NAME: Final = re.compile(r"[A-Za-z_$][\w$.-]*")
_MOST_NAMED: Final = 8  # arguments in an error


class LineError(Error):
    """A line that cannot be meant; the text is for the person who typed it."""


@final
class ServerNotStarted(LineError):
    """A call of a server that was not started yet: `await host.wake(error.server)`, and read the line again."""

    def __init__(self, message: str, server: str) -> None:
        super().__init__(message)
        self.server = server


@final
class CommandLine(Struct, frozen=True):
    """A word with "/" before it, and what follows."""

    name: str
    words: tuple[str, ...] = ()


@final
class CallLine(Struct, frozen=True):
    """A tool, by the catalog's name, and what to call it with."""

    name: str
    arguments: dict[str, Any]


@final
class MessageLine(Struct, frozen=True):
    """Anything else; its mentions are not expanded yet."""

    text: str


def read_line(
    line: str, host: Host, *, is_message_default: bool, commands: Mapping[str, Any] = COMMANDS
) -> CommandLine | CallLine | MessageLine:
    """Read a line.

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
    if not is_message_default and text and _names_tool(split_words(text, most=1)[0].text, host):
        return _call(text, host)
    return MessageLine(text)


def is_unnamed_secret(line: str, host: Host) -> bool:
    """True if a call passes a value without its name, and the value is a secret by that name, or the tool is not known yet."""
    tokens = split_words(line.strip().removeprefix("!"))
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


def _command(text: str, commands: Mapping[str, Any]) -> CommandLine:
    name = text.split(maxsplit=1)[0]
    if name not in commands:
        raise _error(f"there is no command {_short(name)}", nearest(name, commands), "/help lists them")
    tokens = split_words(text, len(name))
    _closed(tokens)
    return CommandLine(name, tuple(token.text for token in tokens))


def _names_tool(word: str, host: Host) -> bool:
    """True if the word names a tool, or is a misspelt tool of a known server."""
    try:
        find_address(host, word)
    except UnknownName as error:
        return error.reason == "unknown_tool"
    except ServerUnavailable:
        return True
    return True


def _call(text: str, host: Host) -> CallLine:
    tokens = split_words(text)
    if not tokens:
        raise _error('after "!" comes the name of a tool, such as !files:read_file', "", "/tools lists them")
    first = tokens[0]
    address = _address(first.text, host)
    tool = find_tool(host, address)
    if tool is None:
        state = next((status.text for status in host.status() if status.name == address.server), "gone")
        problem = f"the server {address.server} cannot be used now, {in_one_line(state, 1000)}"
        raise _error(problem, "", "/mcp says more, and what can be done")
    return CallLine(tool.name, _arguments(text, first.end, tool))


def _address(word: str, host: Host) -> Address:
    try:
        return find_address(host, word)
    except ServerUnavailable as error:
        status = error.status
        problem = f"the server {status.name} cannot be used now, {in_one_line(status.text, 1000)}"
        fault = _error(problem, "", "/mcp says more, and what can be done")
        raise ServerNotStarted(str(fault), status.name) if status.state in ("idle", "starting") else fault from None
    except UnknownName as error:
        server, _, tool = word.partition(":")
        servers = [status.name for status in host.status()]
        names = [listed.name for listed in tools_of(host)]
        if error.reason == "unknown_tool" and server in servers:
            # Of this server's: what they all begin with would make any two of them look alike.
            word, names = tool, [name for name in names if name.startswith(f"{server}:")]
            problem, more = f"the server {server} has no tool {_short(tool)}", f"/tools {server}: lists those it has"
        elif error.reason == "unknown_server":
            problem, more = f"there is no server {_short(server)}", f"the servers are {_list(servers) or 'none'}"
        else:
            problem, more = f"there is no tool {_short(word)}", "/tools lists them"
        raise _error(problem, nearest(word, names), more) from None


# --- arguments -------------------------------------------------------------------------------------------------------


def _arguments(text: str, at: int, tool: Tool) -> dict[str, Any]:
    rest = text[at:].strip()
    if rest.startswith("{"):
        return _whole(rest, tool.name)
    schema: Any = tool.input_schema
    known = arguments_of(schema)
    tokens = split_words(text, at)
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
    return cast("dict[str, Any]", value)  # JSON that begins with a brace is an object


def _named(tokens: list[Token], name: str, known: list[Argument]) -> list[Word]:
    """Every word with the name of its argument; one may have been given without."""
    names = {argument.name for argument in known}
    bare = [token for token in tokens if not _has_key(token, names)]
    words = read_words(token.text for token in tokens if token not in bare)
    if not bare:
        return words
    main = main_argument(known)
    if main is None:
        raise _error(
            f"{_short(bare[0].text)} is not an argument: write key=value, or key:=JSON", "", _takes(name, known)
        )
    if len(bare) > 1 or any(word.key == main for word in words):
        example = f"{main}='{' '.join(token.text for token in bare)}'"
        problem = f"{_short(bare[-1].text)} is one word too many: put quotes around a text with blanks, as in "
        raise _error(problem + in_one_line(example, 60), "", _takes(name, known))
    return [Word(main, bare[0].text, False), *words]


def _has_key(token: Token, names: set[str]) -> bool:
    key, equals, _ = token.text.partition("=")
    key = key.removesuffix(":")
    return bool(equals) and not token.is_quoted and (key in names or _NAME.fullmatch(key) is not None)


def _check_names(words: list[Word], name: str, known: list[Argument], schema: Mapping[str, Any]) -> None:
    present = {word.key for word in words}
    names = [argument.name for argument in known]
    unknown = unknown_key(words, schema)
    if unknown is not None:
        problem = f"the tool {in_one_line(name, 100)} has no argument {_short(unknown)}"
        raise _error(problem, nearest(unknown, names), _takes(name, known))
    missing = [argument.name for argument in known if argument.is_required and argument.name not in present]
    if missing:
        problem = f"the tool {in_one_line(name, 100)} needs {_list(missing)}: add {in_one_line(missing[0], 60)}=VALUE"
        raise _error(problem, "", _takes(name, known))


def _takes(name: str, known: list[Argument]) -> str:
    if not known:
        return "it takes no arguments"
    ordered = sorted(known, key=lambda argument: not argument.is_required)
    texts = [
        f"{in_one_line(argument.name, 60)} ({argument.kind}{', required' if argument.is_required else ''})"
        for argument in ordered
    ]
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return f"it takes {', '.join(texts[:_MOST_NAMED])}{more}"


# --- sentences -------------------------------------------------------------------------------------------------------


def _closed(tokens: list[Token]) -> None:
    if tokens and tokens[-1].is_open:
        raise _error(f"a quote is not closed, in {_short(tokens[-1].text)}", "", "add it, or put a backslash before it")


def _error(problem: str, near: str, more: str) -> LineError:
    """An error: the problem, the likely meaning, and what to type instead."""
    meant = f" Did you mean {in_one_line(near, 100)}?" if near else ""
    return LineError(f"{problem[:1].upper()}{problem[1:]}.{meant} {more[:1].upper()}{more[1:]}.")


def _short(word: str) -> str:
    return f"'{in_one_line(word, 60)}'"


def _list(names: list[str]) -> str:
    listed = [in_one_line(name, 60) for name in names[:_MOST_NAMED]]
    more = [f"{len(names) - len(listed)} more"] if len(names) > len(listed) else []
    return " and ".join(
        [", ".join(listed), *more] if more else [", ".join(listed[:-1]), listed[-1]] if listed[1:] else listed
    )
