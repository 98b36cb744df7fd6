"""Commands, which begin with a slash: `/help`, `/tools`, `/read` and the others.

A command either shows something or opens something; none changes a server. Each is a method named after it; which there are,
what they take and what they do is told in `lookup.py`.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trimaran.errors import Error
from trimaran.host.terminal_text import in_one_line, safe

from .input import LineError
from .lookup import COMMANDS
from .rendering import show_prompt, show_resource, show_tool

if TYPE_CHECKING:
    from trimaran.client.client import Client
    from trimaran.host import Host

    from .pages import Pages
    from .transcript import Kind

_MOST_ROWS: Final = 200  # of a list: beyond that a filter is needed to find anything
_MOST_PAGES: Final = 50


_KEYS: Final = (
    ("Tab", "complete: commands, tools, arguments, @server:resource"),
    ("Enter", "send; Ctrl+J begins a new line"),
    ("Up, Down", "the lines before and after"),
    ("PgUp, PgDn", "scroll"),
    ("Esc, Ctrl+C", "cancel the call that began last; the server is told"),
    ("Ctrl+Q, Ctrl+D", "end the console"),
)


class CommandsApp(Protocol):
    """The parts of the application that commands use."""

    host: Host
    pages: Pages

    def say(self, *parts: RenderableType, kind: Kind = "") -> Any: ...
    def open_servers(self, first: str = "") -> None: ...
    def clear_all(self) -> None: ...
    async def change_model(self, name: str) -> None: ...
    def exit(self) -> None: ...
    @property
    def columns(self) -> int: ...
    @property
    def has_pictures(self) -> bool: ...
    @property
    def model_name(self) -> str: ...


@final
class Commands:
    """The commands."""

    def __init__(self, app: CommandsApp) -> None:
        self._app = app

    async def run(self, name: str, words: Sequence[str]) -> None:
        """Do what a line says, `/tools` and what follows it.

        Raises:
            LineError: the words are not those it takes.
            Error: what it asks of a server failed.
        """
        work: Callable[[Sequence[str]], Awaitable[None]] = getattr(self, f"_{name.removeprefix('/')}")
        await work(words)

    # --- about the console -------------------------------------------------------------------------------------------

    async def _help(self, words: Sequence[str]) -> None:
        self._app.say(*show_help(has_model=bool(self._app.model_name)))

    async def _mcp(self, words: Sequence[str]) -> None:
        self._app.open_servers(words[0] if words else "")

    async def _clear(self, words: Sequence[str]) -> None:
        self._app.clear_all()

    async def _quit(self, words: Sequence[str]) -> None:
        self._app.exit()

    async def _model(self, words: Sequence[str]) -> None:
        if words:
            await self._app.change_model(" ".join(words))
        if self._app.model_name:
            self._app.say(Text(f"Messages go to {in_one_line(self._app.model_name)}, which may use the tools."))
        else:
            self._app.say(
                Text(
                    "There is no model: messages are only expanded. /model NAME takes one, such as anthropic:claude-..."
                )
            )

    async def _more(self, words: Sequence[str]) -> None:
        self._app.say(*self._app.pages.next(self._app.host))

    # --- tools -------------------------------------------------------------------------------------------------------

    async def _tools(self, words: Sequence[str]) -> None:
        filter_text = " ".join(words).lower()
        tools = [
            tool
            for tool in self._app.host.tools()
            if filter_text in tool.name.lower() or filter_text in (tool.description or "").lower()
        ]
        if not tools:
            message = (
                f"No tool has {in_one_line(filter_text, 60)!r} in its name or description."
                if filter_text
                else "No tools yet."
            )
            self._app.say(Text(message))
            return
        self._app.say(
            _table((tool.name, tool.description or "") for tool in tools[:_MOST_ROWS]), *_rest(tools, "tools")
        )

    async def _tool(self, words: Sequence[str]) -> None:
        name = _single_word(words, "/tool NAME")
        address = self._app.host.find(name)
        for tool in self._app.host.tools():
            if self._app.host.find(tool.name) == address:
                self._app.say(*show_tool(tool))
                return
        raise LineError(f"the server {address.server!r} is not connected now; /mcp says why")

    async def _explain(self, words: Sequence[str]) -> None:
        name = _single_word(words, "/explain NAME")
        self._app.say(Text(safe(self._app.host.explain(name).text())))

    # --- resources and prompts ---------------------------------------------------------------------------------------

    async def _resources(self, words: Sequence[str]) -> None:
        await self._list_all(words, "resources", self._resource_rows)

    @staticmethod
    async def _resource_rows(server: str, client: Client) -> list[tuple[str, str]]:
        listed, templates = await asyncio.gather(
            client.list_resources_all(max_pages=_MOST_PAGES),
            client.list_resource_templates_all(max_pages=_MOST_PAGES),
            return_exceptions=True,
        )
        if isinstance(listed, BaseException) and (isinstance(templates, BaseException) or not templates):
            raise listed
        # Many servers have resources and no templates, some the other way round: neither hides the other.
        rows = [] if isinstance(listed, BaseException) else listed
        more = [] if isinstance(templates, BaseException) else templates
        return [
            (f"@{server}:{resource.name}", f"{resource.uri}  {resource.description or ''}") for resource in rows
        ] + [
            (f"@{server}:{template.name} ...", f"{template.uri_template}  {template.description or ''}")
            for template in more
        ]

    async def _read(self, words: Sequence[str]) -> None:
        usage = "/read @SERVER:RESOURCE [WORDS]"
        if not words:
            raise LineError(f"the resource is missing: {usage}")
        server, colon, resource = words[0].removeprefix("@").partition(":")
        if not colon or not resource:
            raise LineError(f"{in_one_line(words[0], 60)!r} names no resource of a server: {usage}")
        result = await self._app.host.read_resource(server, resource, *words[1:])
        self._app.say(*show_resource(result, width=self._app.columns, pictures=self._app.has_pictures))

    async def _prompts(self, words: Sequence[str]) -> None:
        await self._list_all(words, "prompts", self._prompt_rows)

    @staticmethod
    async def _prompt_rows(server: str, client: Client) -> list[tuple[str, str]]:
        rows: list[tuple[str, str]] = []
        for prompt in await client.list_prompts_all(max_pages=_MOST_PAGES):
            arguments = [f"{a.name}=" if a.required else f"[{a.name}=]" for a in prompt.arguments or []]
            rows.append((" ".join([f"{server}:{prompt.name}", *arguments]), prompt.description or ""))
        return rows

    async def _prompt(self, words: Sequence[str]) -> None:
        usage = "/prompt SERVER:NAME [KEY=VALUE]"
        server, colon, name = words[0].partition(":") if words else ("", "", "")
        if not colon or not name:
            raise LineError(f"which prompt? {usage}")
        arguments: dict[str, str] = {}
        for word in words[1:]:
            key, equals, value = word.partition("=")
            if not equals or not key:
                raise LineError(f"{in_one_line(word, 60)!r} is not KEY=VALUE: {usage}")
            arguments[key] = value
        ((_, client),) = self._clients([server], "prompts") or [("", None)]
        if client is None:
            raise LineError(f"the server {server!r} has no prompts")
        result = await self._app.host.get_prompt(server, name, arguments)
        self._app.say(*show_prompt(result, width=self._app.columns, pictures=self._app.has_pictures))

    def _clients(self, words: Sequence[str], capability: str) -> list[tuple[str, Client]]:
        """The connected servers, or the one that is named, that have such things."""
        host = self._app.host
        if words:
            name = words[0].removeprefix("@").rstrip(":")
            known = [status.name for status in host.status()]
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known) or 'none'}"
                raise LineError(f"there is no server {in_one_line(name, 40)!r}; {hint}")
            if host.whereis(name) is None:
                raise LineError(f"the server {name!r} is not connected now; /mcp says why")
            names = [name]
        else:
            names = host.connected()
        connected = [(name, client) for name in names if (client := host.whereis(name)) is not None]
        return [(name, client) for name, client in connected if capability in client.server_capabilities]

    async def _list_all(
        self, words: Sequence[str], kind: str, list_one: Callable[[str, Client], Awaitable[list[tuple[str, str]]]]
    ) -> None:
        """List the entries of all servers, or of the named one. A server that fails does not hide the others."""
        clients = self._clients(words, kind)
        # All at once, so that a slow server does not delay the others.
        results = await asyncio.gather(*(list_one(*pair) for pair in clients), return_exceptions=True)
        rows: list[tuple[str, str]] = []
        for (server, _), listed in zip(clients, results, strict=True):
            if isinstance(listed, Error):
                self._app.say(
                    Text(f"! {server} does not list its {kind}: {in_one_line(str(listed), 300)}", style="yellow")
                )
            elif isinstance(listed, BaseException):
                raise listed
            else:
                rows += listed
        if rows:
            self._app.say(_table(rows[:_MOST_ROWS]), *_rest(rows, kind))
        else:
            self._app.say(Text(f"There are no {kind}."))


def _single_word(words: Sequence[str], usage: str) -> str:
    if len(words) != 1:
        raise LineError(f"one name is expected: {usage}")
    return words[0].removeprefix("!")


def _table(rows: Any) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=44)
    table.add_column(style="dim", overflow="fold")
    for name, about in rows:
        table.add_row(Text(in_one_line(name, 200)), Text(in_one_line(about, 300)))
    return table


def _rest(rows: Sequence[Any], kind: str) -> list[RenderableType]:
    more = len(rows) - _MOST_ROWS
    return [Text(f"... and {more:,} more {kind}; name a part of what you look for", style="dim")] if more > 0 else []


def show_help(*, has_model: bool) -> list[RenderableType]:
    forms = [
        ("server:tool key=value", "call a tool; key:=JSON, or one {...} for all arguments"),
        ("text with @server:resource", "send it to the model" if has_model else "see it with what the resource holds"),
        *((f"{name} {takes}".rstrip(), does) for name, (takes, does) in COMMANDS.items()),
    ]
    if has_model:
        forms[0] = ("!server:tool key=value", forms[0][1])
    head = Text("Type", style="bold")
    keys = Text("\nKeys", style="bold")
    return [head, _table(forms), keys, _table(_KEYS)]
