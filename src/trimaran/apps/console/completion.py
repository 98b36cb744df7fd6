"""Completion at the cursor: commands, tools, their arguments and values, mentions and the words after them.

`complete` never raises and never answers more than fifty options. It may ask a server, for its resources, its prompts, or
what an argument may be; a server that does not answer is one without options.

An option replaces what stands between `start` and `end`, which is the cursor. Names that a line cannot carry, since there
are characters in them that nobody can type or see, are not offered.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, final

from msgspec import Struct

from trimaran.errors import Error
from trimaran.host import Host
from trimaran.host.terminal_text import in_one_line
from trimaran.types import Prompt

from .lookup import COMMANDS, Argument, arguments_of, find_address, find_tool, tools_of
from .shell_words import Token, quote, split_words

MOST_OPTIONS: Final = 50
_PATIENCE: Final = 5.0  # seconds for a server that is asked while somebody waits with a finger on Tab
# A server's name, or its safe name: a name with a blank or an "@" in it is mentioned by the latter.
_MENTION: Final = re.compile(r"(?<![\w@.])@[^\s@:]*(?::[^\s@]*)?$")
_MENTIONED: Final = re.compile(r"(?<![\w@.])@([^\s@:]+):([^\s@]+)(?=[ \t])")
_MOST_WORDS: Final = 8  # after a mention; no template has more placeholders
_TAKES_TOOL: Final = frozenset({"/tool", "/tools", "/explain"})
_TAKES_SERVER: Final = frozenset({"/resources", "/prompts", "/mcp"})


@final
class Option(Struct, frozen=True):
    """One thing that may stand there."""

    text: str
    help: str = ""


@final
class CompletionMenu(Struct, frozen=True):
    """The options that may replace `line[start:end]`."""

    start: int
    end: int
    options: tuple[Option, ...] = ()


async def complete(line: str, cursor: int, host: Host, *, is_message_default: bool) -> CompletionMenu:
    """The options at the cursor.

    Args:
        is_message_default: As for `read_line`.
    """
    cursor = max(0, min(cursor, len(line)))
    try:
        menu = await _Line(line[:cursor], host, is_message_default=is_message_default).complete()
    except Exception:  # a fault in a server's lists, names or schemas must not stop the typing
        menu = None
    return CompletionMenu(cursor, cursor) if menu is None else menu


@final
class _Line:
    """A line up to the cursor."""

    def __init__(self, head: str, host: Host, *, is_message_default: bool) -> None:
        self._head = head
        self._host = host
        self._is_message_default = is_message_default
        blanks = len(head) - len(head.lstrip())
        self._is_marked = head.startswith("!", blanks)
        self._tokens = split_words(head, blanks + 1 if self._is_marked else 0)
        self._first = self._tokens[0] if self._tokens else Token("", len(head), len(head))
        last = self._tokens[-1] if self._tokens else None
        # A word goes on until a blank comes, and one with an open quote beyond it.
        goes_on = last is not None and (last.is_open or last.end == len(head))
        self._current = last if last is not None and goes_on else Token("", len(head), len(head))

    async def complete(self) -> CompletionMenu | None:
        first = self._first.text
        is_first = self._current.start == self._first.start
        if self._is_marked:
            return self._tools(self._first.start) if is_first else self._argument(first)
        if first.startswith("/"):
            return await self._command(first)
        if not self._is_message_default and not is_first:
            try:
                return self._argument(first)
            except Error:
                pass  # it is a message, then
        if (menu := await self._mention()) is not None:
            return menu
        return self._tools(self._first.start) if is_first and not self._is_message_default else None

    def _offer(self, start: int, options: Iterable[Option]) -> CompletionMenu:
        """The options that a line can carry."""
        good: list[Option] = []
        for option in options:
            if option.text.isprintable() and len(option.text) <= 500:
                good.append(Option(option.text, in_one_line(option.help, 80)))
            if len(good) == MOST_OPTIONS:
                break
        return CompletionMenu(start, len(self._head), tuple(good))

    # --- commands ----------------------------------------------------------------------------------------------------

    async def _command(self, name: str) -> CompletionMenu | None:
        if self._current.start == self._first.start:
            options = [Option(name, f"{usage} {does}".strip()) for name, (usage, does) in COMMANDS.items()]
            return self._offer(self._first.start, _ranked(options, name, lambda option: [option.text]))
        if name == "/read":
            return await self._mention()
        if name == "/prompt":
            return await self._prompt()
        if len(self._tokens) > 2 or (len(self._tokens) == 2 and not self._current.text):
            return None  # the rest take one word
        if name in _TAKES_TOOL:
            return self._tools(self._current.start)
        if name in _TAKES_SERVER:
            servers = [Option(quote(status.name), status.text) for status in self._host.status()]
            return self._offer(self._current.start, _ranked(servers, self._current.text, lambda option: [option.text]))
        return None

    async def _prompt(self) -> CompletionMenu | None:
        named = self._tokens[1].text if len(self._tokens) > 1 else ""
        server, colon, _ = named.partition(":")
        start = self._current.start
        is_name = len(self._tokens) < 2 or start == self._tokens[1].start
        if is_name and not colon:
            names = [status for status in self._host.status() if status.state == "connected"]
            servers = [Option(quote(f"{status.name}:"), status.text) for status in names]
            return self._offer(start, _ranked(servers, named, lambda option: [option.text]))
        prompts = await self._prompts(server)
        if is_name:
            options = [
                Option(quote(f"{server}:{prompt.name}"), prompt.description or prompt.title or "") for prompt in prompts
            ]
            return self._offer(start, _ranked(options, named, lambda option: [option.text]))
        prompt = next((candidate for candidate in prompts if f"{server}:{candidate.name}" == named), None)
        listed = (prompt.arguments or []) if prompt is not None else []
        return self._names(
            [
                Argument(argument.name, "string", bool(argument.required), argument.description or "", ())
                for argument in listed
            ],
            skip=2,
        )

    async def _prompts(self, server: str) -> list[Prompt]:
        client = self._host.whereis(server)
        if client is None or "prompts" not in client.server_capabilities:
            return []
        async with asyncio.timeout(_PATIENCE):
            return await client.list_prompts_all(max_pages=10)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _tools(self, start: int) -> CompletionMenu:
        word = self._head[start:].lstrip("\"'")
        options = [Option(quote(tool.name), tool.description or tool.title or "") for tool in tools_of(self._host)]
        # The tools of a server that was never up are unknown, but its name is known.
        options += [
            Option(quote(f"{status.name}:"), status.text) for status in self._host.status() if status.state == "idle"
        ]
        return self._offer(
            start, _ranked(options, word, lambda option: [option.text, option.text.partition(":")[2] or option.text])
        )

    def _argument(self, name: str) -> CompletionMenu | None:
        """The options after a tool's name. Raises UnknownName if no tool has that name."""
        tool = find_tool(self._host, find_address(self._host, name))
        if tool is None:
            return None
        known = arguments_of(tool.input_schema)
        raw = self._head[self._current.start :]
        key, equals, begun = raw.partition("=")
        if not equals:
            return self._names(known, skip=1)
        argument = next((candidate for candidate in known if candidate.name == key.removesuffix(":")), None)
        if argument is None:
            return None
        is_json = key.endswith(":")
        texts = [_spelt(value, is_json=is_json) for value in argument.values]
        start = self._current.start + len(key) + 1
        ranked = _ranked(
            [Option(text) for text in texts], begun, lambda option: [option.text, option.text.strip("\"'")]
        )
        return self._offer(start, ranked)

    def _names(self, known: list[Argument], *, skip: int) -> CompletionMenu:
        """The arguments that are not there yet, those that must be first."""
        begun = self._current.text
        others = [token.text for token in self._tokens[skip:] if token.start != self._current.start]
        present = {text.partition("=")[0].removesuffix(":") for text in others if "=" in text}
        missing = sorted(
            (argument for argument in known if argument.name not in present),
            key=lambda argument: not argument.is_required,
        )
        # A name with a blank or a quote in it is for the JSON form.
        options = [
            Option(f"{argument.name}=", argument.help) for argument in missing if quote(argument.name) == argument.name
        ]
        return self._offer(self._current.start, _ranked(options, begun, lambda option: [option.text]))

    # --- mentions ----------------------------------------------------------------------------------------------------

    async def _mention(self) -> CompletionMenu | None:
        match = _MENTION.search(self._head)
        if match is not None:
            mentions = await self._host.complete_mention(match[0])
            # A mention ends at a blank, so a name with one in it cannot be mentioned.
            fit = [Option(mention) for mention in mentions if not re.search(r"[\s@]", mention[1:])]
            return self._offer(match.start(), fit)
        return await self._template()

    async def _template(self) -> CompletionMenu | None:
        """The words after a mentioned template, where its server can say what they may be."""
        line = self._head.rpartition("\n")[2]
        offset = len(self._head) - len(line)
        mentioned = list(_MENTIONED.finditer(line))
        if not mentioned:
            return None
        last = mentioned[-1]
        tokens = split_words(line, last.end())
        goes_on = bool(tokens) and (tokens[-1].is_open or tokens[-1].end == len(line))
        begun = tokens.pop() if goes_on else Token("", len(line), len(line))
        if len(tokens) >= _MOST_WORDS:
            return None
        words = [token.text for token in tokens]
        values = await self._host.complete_argument(last[1], last[2], words, begun.text)
        return self._offer(offset + begun.start, [Option(_in_quotes(value)) for value in values if '"' not in value])


def _ranked(options: list[Option], begun: str, names: Callable[[Option], list[str]]) -> list[Option]:
    """Those that begin so, then those that have it somewhere."""
    word = begun.lower()
    ranks: list[list[Option]] = [[], [], []]
    for option in options:
        spoken = [name.lower() for name in names(option)]
        if spoken[0].startswith(word):
            ranks[0].append(option)
        elif any(name.startswith(word) for name in spoken):
            ranks[1].append(option)
        elif word in spoken[0]:
            ranks[2].append(option)
    return [option for rank in ranks for option in rank]


def _spelt(value: Any, *, is_json: bool) -> str:
    """A value as it is typed after `key=` or `key:=`."""
    if isinstance(value, str) and not is_json:
        return quote(value)
    return json.dumps(value, ensure_ascii=False)


def _in_quotes(word: str) -> str:
    """As mentions read it: they know quotes, and nothing else."""
    return f'"{word}"' if re.search(r"\s", word) or word[-1:] in ".,;:!?)]}>'" else word
