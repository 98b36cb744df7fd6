"""`/mcp`: the servers, what is wrong with them, their tools, and which rule holds for a tool (R240, R273).

Three screens, one behind the other: the servers; the tools of one of them; what one of them wrote to stderr. Each is a list
on the left and, on the right, what there is to say about the line that is chosen. Every key is named at the bottom.

Slow work happens in the background, so that the list stays usable.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from trimaran.errors import Error
from trimaran.host.terminal_text import in_one_line, safe
from trimaran.host.trust import UNTRUSTED

from .errors import show_fault, what_to_do
from .logincard import LoginCard
from .rendering import show_tool
from .status import style_of, word_of
from .trustcard import TrustCard

if TYPE_CHECKING:
    from trimaran.host import Host, ServerStatus

_EVERY: Final = 0.5  # seconds between two looks at what changes by itself
_MOST_LISTED: Final = 200  # tools of a server named in its summary; `t` has them all


class _Split(Screen[None]):
    """A list, and the details of its chosen line.

    Args:
        changes: How often something of the host's has changed so far.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "Back"),
        Binding("pageup", "scroll(-10)", show=False, priority=True),
        Binding("pagedown", "scroll(10)", "More", key_display="pgdn", priority=True),
    ]

    def __init__(self, host: Host, changes: Callable[[], int]) -> None:
        super().__init__()
        self.host = host
        self._changes = changes
        self._drawn: int | None = None
        self._seen: list[tuple[str, Text]] = []

    def compose(self) -> ComposeResult:
        yield Static(Text(self.heading()), classes="heading")
        with Horizontal():
            yield OptionList(classes="list", compact=True)
            with VerticalScroll(classes="detail", can_focus=False):
                yield Static(Text(""), id="detail")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.look()
        self.query_one(OptionList).focus()
        self.set_interval(_EVERY, self._look_again)

    def on_screen_resume(self) -> None:
        self.look()  # an answer on a card may have changed rules, which is not announced

    def heading(self) -> str:
        return ""

    def rows(self) -> list[tuple[str, Text]]:
        """The list: an id and a line each."""
        return []

    def about(self, chosen: str) -> RenderableType:
        """The details of the chosen line."""
        return Text("")

    def _look_again(self) -> None:
        # With thousands of tools a look costs; most of the time nothing has happened.
        if self._changes() != self._drawn:
            self.look()

    def look(self) -> None:
        """Draw it as it is now."""
        self._drawn = self._changes()
        rows = self.rows()
        if rows != self._seen:
            listed = self.query_one(OptionList)
            chosen = self.chosen
            self._seen = rows
            listed.set_options([Option(line, id=_id(name)) for name, line in rows])
            names = [name for name, _ in rows]
            listed.highlighted = names.index(chosen) if chosen in names else (0 if names else None)
        self.tell()

    def tell(self) -> None:
        chosen = self.chosen
        content = self.about(chosen) if chosen else Text("nothing here", style="dim")
        self.query_one("#detail", Static).update(content)

    @property
    def chosen(self) -> str:
        at = self.query_one(OptionList).highlighted
        return self._seen[at][0] if at is not None and at < len(self._seen) else ""

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self.query_one(".detail").scroll_home(animate=False)
        self.tell()

    def _open(self, screen: Screen[Any], then: Callable[[Any], None] | None = None) -> None:
        app: App[Any] = self.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - of whatever application this is
        app.push_screen(screen, then)

    def action_back(self) -> None:
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        self.query_one(".detail").scroll_relative(y=lines, animate=False)


def _id(name: str) -> str:
    """Any name as an id."""
    return f"row-{name.encode('utf-8', 'surrogatepass').hex()}"


@final
class ServersScreen(_Split):
    """The servers.

    Args:
        first: The one to look at first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "tools", "Tools"),
        Binding("s", "stderr", "Stderr"),
        Binding("r", "reload", "Reload"),
        Binding("e", "enable", "Enable"),
        Binding("d", "disable", "Disable"),
        Binding("a", "authorize", "Authorise"),
        Binding("p", "pins", "Pins", show=False),  # the text about what is held names it
    ]

    def __init__(self, host: Host, changes: Callable[[], int], *, first: str = "") -> None:
        super().__init__(host, changes)
        self._first = first
        self._busy: dict[str, str] = {}
        self._faults: dict[str, Text] = {}

    def on_mount(self) -> None:
        super().on_mount()
        names = [name for name, _ in self._seen]
        if self._first in names:
            self.query_one(OptionList).highlighted = names.index(self._first)

    def heading(self) -> str:
        return "Servers"

    def rows(self) -> list[tuple[str, Text]]:
        rows: list[tuple[str, Text]] = []
        for status in self.host.status():
            line = Text(no_wrap=True, overflow="ellipsis").append(f"{status.glyph} ", style=style_of(status))
            line.append(status.name, style="bold")
            state = f"{status.tools} tools" if status.state == "connected" else word_of(status)
            line.append(f"  {self._busy.get(status.name, state)}", style="dim")
            if status.withheld:
                line.append(f"  {status.withheld} held", style="yellow")
            if any(finding.severity == "ask" for finding in self.host.findings(status.name)):
                line.append("  warnings", style="red")
            rows.append((status.name, line))
        return rows

    def about(self, chosen: str) -> RenderableType:
        status = self._status_of(chosen)
        if status is None:
            return Text("")
        parts: list[RenderableType] = [self._summary(status)]
        if chosen in self._faults:
            parts.append(self._faults[chosen])
        if status.withheld:
            parts.append(self._list_held(chosen))
        if any(finding.severity != "note" for finding in self.host.findings(chosen)):
            parts.append(self._findings(chosen))
        tools = [tool for tool in self.host.tools() if self._is_of(tool.name, chosen)]
        if tools:
            listed = Text("\nTools\n", style="bold")
            for tool in tools[:_MOST_LISTED]:
                listed.append(f"{in_one_line(tool.name, 80)}", style="not bold")
                listed.append(f"  {in_one_line(tool.description or '', 120)}\n", style="not bold dim")
            if len(tools) > _MOST_LISTED:
                listed.append(f"... and {len(tools) - _MOST_LISTED} more: t lists them all", style="not bold dim")
            parts.append(listed)
        return Group(*parts)

    def _list_held(self, server: str) -> Text:
        """The definitions that wait for the person to agree."""
        text = Text("\nHeld, because they are not as you agreed to them: press p for the difference\n", style="yellow")
        for item in self.host.held(server)[:_MOST_LISTED]:
            text.append(f"{item.kind} {in_one_line(item.name, 80)}", style="default")
            text.append(f"  {item.state}\n", style="dim")
        return text

    def _findings(self, server: str) -> Text:
        """The findings in the texts of the server."""
        findings = [finding for finding in self.host.findings(server) if finding.severity != "note"]
        text = Text("\nFound in its words\n", style="yellow")
        for finding in findings[:_MOST_LISTED]:
            style = "red" if finding.severity == "ask" else "default"
            text.append(f"{finding.severity:<4} ", style=style).append(
                f"{in_one_line(str(finding), 300)}\n", style="default"
            )
        return text

    def _status_of(self, name: str) -> ServerStatus | None:
        return next((status for status in self.host.status() if status.name == name), None)

    def _is_of(self, name: str, server: str) -> bool:
        return self.host.find(name).server == server

    def _summary(self, status: ServerStatus) -> Text:
        text = Text(f"{status.glyph} ", style=style_of(status)).append(status.name, style="bold default")
        text.append(f"   {status.state.replace('_', ' ')}, {status.transport}\n", style="default not bold")
        client = self.host.whereis(status.name)
        if client is not None:
            info = client.server_info
            who = f"{info.name} {info.version}" if info is not None else "unnamed"
            text.append(f"{in_one_line(who, 80)}, speaks {client.version} ({client.era})\n", style="default")
        if status.where:
            text.append(f"{in_one_line(status.where, 200)}\n", style="dim")
        if status.sandbox:
            text.append(f"sandbox: {in_one_line(status.sandbox, 400)}\n", style="green")
        if status.reason:
            text.append(
                f"\n{safe(status.reason[:4000])}\n", style="red" if status.state == "failed" else style_of(status)
            )
        if status.state != "connected" and (advice := _advice(status)):
            text.append(f"{advice}\n", style="default")
        return text

    # --- keys --------------------------------------------------------------------------------------------------------

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_tools()

    def action_tools(self) -> None:
        if self.chosen:
            self._open(ToolsScreen(self.host, self.chosen, self._changes))

    def action_stderr(self) -> None:
        if self.chosen:
            self._open(StderrScreen(self.host, self.chosen))

    def action_reload(self) -> None:
        self._do("reloading", self.host.reload)

    def action_enable(self) -> None:
        status = self._status_of(self.chosen)
        if status is not None and status.reason.startswith(UNTRUSTED):
            self._open(TrustCard(self.host), self._trusted)
        else:
            self._do("enabling", self.host.enable)

    def _trusted(self, is_trusted: bool | None) -> None:
        if is_trusted:
            self._do("starting", lambda name: self.host.trust_project())

    def action_disable(self) -> None:
        self._do("disabling", self.host.disable)

    def action_pins(self) -> None:
        if self.chosen:
            self.host.ask_about_held(self.chosen)

    def action_authorize(self) -> None:
        if self.chosen:
            self._open(LoginCard(self.host, self.chosen), self._logged_in)

    def _logged_in(self, error: Exception | None) -> None:
        if error is not None and self.chosen:
            self._faults[self.chosen] = show_fault(error)
            self.tell()

    def _do(self, word: str, work: Callable[[str], Coroutine[Any, Any, Any]]) -> None:
        name = self.chosen
        if name and name not in self._busy:
            self._busy[name] = word
            self._faults.pop(name, None)
            # The application's: what was begun is brought to its end, also if this screen is left meanwhile.
            app: App[Any] = self.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            app.run_worker(partial(self._run, name, work), exit_on_error=False, group="servers")
            self.look()

    async def _run(self, name: str, work: Callable[[str], Coroutine[Any, Any, Any]]) -> None:
        try:
            await work(name)
        except Exception as error:
            self._faults[name] = show_fault(error)
        finally:
            self._busy.pop(name, None)
        if self in self.app.screen_stack:  # pyright: ignore[reportUnknownMemberType]
            self.look()


def _advice(status: ServerStatus) -> str:
    """The same as elsewhere, for somebody who is here already."""
    return what_to_do(status).replace("/mcp, then ", "press ").replace(" on the server", "")


@final
class ToolsScreen(_Split):
    """The tools of one server: what each takes, and which rule holds for it."""

    def __init__(self, host: Host, server: str, changes: Callable[[], int]) -> None:
        super().__init__(host, changes)
        self._server = server

    def heading(self) -> str:
        return f"Tools of {self._server}"

    def rows(self) -> list[tuple[str, Text]]:
        prefix = f"{self._server}:"
        return [
            (tool.name, Text(in_one_line(tool.name.removeprefix(prefix), 100), no_wrap=True, overflow="ellipsis"))
            for tool in self.host.tools()
            if self.host.find(tool.name).server == self._server
        ]

    def about(self, chosen: str) -> RenderableType:
        tool = next((listed for listed in self.host.tools() if listed.name == chosen), None)
        if tool is None:
            return Text("")
        return Group(*show_tool(tool), self._rule(chosen))

    def _rule(self, name: str) -> Text:
        """The effective rule (R240); what the others would have said is for `/explain`."""
        text = Text("\nPermission: ", style="bold")
        try:
            explained = self.host.explain(name)
        except Error as error:
            return text.append(safe(str(error)), style="not bold red")
        decision = explained.decision
        text.append(decision.action, style={"allow": "green", "deny": "red"}.get(decision.action, "yellow"))
        text.append(", unless the arguments say otherwise" if explained.depends else "", style="not bold")
        remembered = ", as you answered before" if decision.by == "remembered" else ""
        text.append(f"\n{safe(decision.because)}{remembered}", style="not bold")
        return text.append(
            f"\n/explain {in_one_line(name, 100)} lists every rule that has a say.", style="not bold dim"
        )


@final
class StderrScreen(Screen[None]):
    """The last lines that a server wrote to stderr."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "Back"),
        Binding("up", "scroll(-1)", "Up"),
        Binding("down", "scroll(1)", "Down"),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
    ]

    def __init__(self, host: Host, server: str) -> None:
        super().__init__()
        self._host = host
        self._server = server
        self._seen: list[str] | None = None

    def compose(self) -> ComposeResult:
        yield Static(Text(f"stderr of {self._server}, the last lines"), classes="heading")
        with VerticalScroll(id="tail", can_focus=False):
            yield Static(Text(""), id="lines")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one("#tail", VerticalScroll).anchor()
        self.look()
        self.set_interval(_EVERY, self.look)

    def look(self) -> None:
        lines = self._host.stderr(self._server)
        if lines != self._seen:
            self._seen = lines
            text = "\n".join(in_one_line(line, 500) for line in lines)
            nothing = "It wrote nothing, or it is no child of ours."
            self.query_one("#lines", Static).update(Text(text) if text else Text(nothing, style="dim"))

    def action_back(self) -> None:
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        self.query_one("#tail").scroll_relative(y=lines, animate=False)
