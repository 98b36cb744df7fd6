"""The tour: drive the running demo once, station by station, so that a person sees each thing work.

Everything shown came over HTTP from the server, and each station checks that it is what it should be: a tour that ends
without a complaint is a test that passed. Eighty columns; on anything but a terminal, plain text and no control codes.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.style import Style
from rich.table import Table
from rich.text import Text

from trimaran import connect
from trimaran.errors import Error

if TYPE_CHECKING:
    from trimaran import Client
    from trimaran.client import Elicitation

Params = dict[str, Any]

_MARGIN: Final = 3
_SECONDS: Final = 10.0  # every station takes well under one; a call that takes ten is stuck
_ANSWER: Final = {"nights": 3, "power": True}


class TourFailed(Error):
    """A station of the tour did not show what it should."""

    exit_code = 1


def _expect(claim: bool, message: str) -> None:
    if not claim:
        raise TourFailed(message)


@final
class Tour:
    """One walk through the demo at `url`."""

    def __init__(self, url: str, console: Console) -> None:
        self._url = url
        self._console = console
        self._client: Client

    async def walk(self) -> None:
        """Visit every station.

        Raises:
            TourFailed: one of them failed; the message names it.
        """
        stations: list[tuple[str, str, Callable[[], Awaitable[None]]]] = [
            ("Discover the server", "server/discover", self._discover),
            ("List its tools", "tools/list", self._list_tools),
            ("Call a plain function", "tools/call find_boat", self._plain),
            ("Watch progress", "tools/call sail", self._progress),
            ("Structured output", "tools/call tide_table", self._structured),
            ("An image", "tools/call signal_flags", self._image),
            ("Streaming", "tools/call listen_in", self._stream),
            ("A question in the middle of a call", "tools/call book_berth", self._question),
            ("Resources", "resources/read", self._resources),
            ("A resource template", "resources/read log://friday", self._template),
            ("A prompt", "prompts/get plan_passage", self._prompt),
            ("Completion", "completion/complete", self._completion),
            ("The same tool, an older client", "initialize, tools/call book_berth", self._legacy),
        ]
        try:
            async with connect(self._url, era="modern", timeout=_SECONDS, on_elicit=self._answer) as self._client:
                for number, station in enumerate(stations, 1):
                    await self._visit(number, *station)
        except TourFailed:
            raise
        except Error as error:
            raise TourFailed(f"its start: {error}") from None

    async def _visit(self, number: int, title: str, method: str, show: Callable[[], Awaitable[None]]) -> None:
        self._headline(number, title, method)
        try:
            await show()
        except Error as error:
            raise TourFailed(f"station {number}, {title.lower()}: {error}") from None
        except (KeyError, IndexError, TypeError) as error:
            raise TourFailed(f"station {number}, {title.lower()}: the answer lacks something: {error!r}") from None

    # Showing

    def _headline(self, number: int, title: str, method: str) -> None:
        left = f"{number:>2} {title}"
        room = max(2, self._console.width - len(left) - len(method))
        self._console.print()
        self._console.print(f"[bold cyan]{left}[/]{' ' * room}[dim]{escape(method)}[/]", no_wrap=True)

    def _say(self, text: str) -> None:
        self._console.print(Padding(Text.from_markup(text), (0, 0, 0, _MARGIN), expand=False))

    def _table(self, table: Table) -> None:
        self._console.print(Padding(table, (0, 0, 0, _MARGIN), expand=False))

    async def _call(self, method: str, params: Params | None = None, **options: Any) -> Params:
        """Send a request by name, so that the tour shows results as they are on the wire."""
        return await self._client.request(method, params, **options)

    async def _tool(self, name: str, arguments: Params, **options: Any) -> Params:
        return await self._call("tools/call", {"name": name, "arguments": arguments}, **options)

    # Stations

    async def _discover(self) -> None:
        discovered = await self._call("server/discover")
        about = discovered["_meta"]["io.modelcontextprotocol/serverInfo"]
        self._say(
            f"[bold]{escape(about.get('title') or about['name'])}[/] {about['version']}, speaks {', '.join(discovered['supportedVersions'])}"
        )
        self._say(f"It offers {', '.join(discovered['capabilities'])}.")

    async def _list_tools(self) -> None:
        tools = (await self._call("tools/list"))["tools"]
        _expect(len(tools) >= 6, f"expected six tools, found {len(tools)}")
        table = Table.grid(padding=(0, 2))
        for tool in tools:
            table.add_row(f"[green]{tool['name']}[/]", escape(tool["description"].partition(". ")[0].rstrip(".")))
        self._table(table)

    async def _plain(self) -> None:
        result = await self._tool("find_boat", {"name": "tern"})
        boat = result["structuredContent"]
        self._say(f"find_boat(name='tern') -> {boat['name']}, a {boat['rig']} of {boat['metres']} m")
        missing = await self._tool("find_boat", {"name": "Titanic"})
        _expect(missing["isError"], "an unknown boat should be an error the model can read")
        self._say(f"find_boat(name='Titanic') -> [yellow]{escape(missing['content'][0]['text'])}[/]")

    async def _progress(self) -> None:
        reports: list[float] = []
        if self._console.is_terminal:
            columns = (
                TextColumn("  "),
                BarColumn(30),
                TextColumn("{task.completed:.0f}/{task.total:.0f} {task.description}"),
            )
            with Progress(*columns, console=self._console) as bar:
                task = bar.add_task("", total=5)

                def show(done: float, total: float | None, message: str | None) -> None:
                    reports.append(done)
                    bar.update(task, completed=done, total=total, description=message or "")

                result = await self._tool("sail", {"destination": "Gull Rock"}, on_progress=show)
        else:

            def show(done: float, total: float | None, message: str | None) -> None:
                reports.append(done)
                self._say(f"{done:g}/{total:g} {message}")

            result = await self._tool("sail", {"destination": "Gull Rock"}, on_progress=show)
        _expect(len(reports) == 5, f"expected five reports of progress, heard {len(reports)}")
        self._say(escape(result["content"][0]["text"]))

    async def _structured(self) -> None:
        result = await self._tool("tide_table", {"day": 1})
        day = result["structuredContent"]
        _expect(len(day["tides"]) == 4, "a day has four tides")
        table = Table("time", "tide", "height", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for tide in day["tides"]:
            table.add_row(tide["time"], tide["kind"], f"{tide['metres']} m")
        self._table(table)

    async def _image(self) -> None:
        block = (await self._tool("signal_flags", {"word": "trimaran"}))["content"][0]
        data = b64decode(block["data"])
        width, height = struct.unpack(">II", data[16:24])
        _expect(block["mimeType"] == "image/png" and data.startswith(b"\x89PNG"), "expected a PNG")
        if self._console.is_terminal and self._console.color_system in ("256", "truecolor"):
            self._console.print(Padding(_thumbnail(data, width, height, 6), (0, 0, 0, 1), expand=False))
        self._say(f"TRIMARAN in signal flags: a PNG of {width} x {height} pixels, {len(data):,} bytes")

    async def _stream(self) -> None:
        pieces: list[str] = []

        def show(done: float, total: float | None, message: str | None) -> None:
            pieces.append(message or "")
            self._say(escape((message or "").rstrip()))

        result = await self._tool("listen_in", {"channel": 16}, on_progress=show)
        _expect(
            "".join(pieces) == result["content"][0]["text"], "the streamed text differs from the result of the call"
        )

    async def _question(self) -> None:
        self._say("round 1: the call ends as [bold]input_required[/] and asks")
        await self._book(self._client, "Tern")
        self._say("round 2: the client sent the same call, with the answer and the sealed state")

    async def _book(self, client: Client, boat: str) -> None:
        before = await self._berths()
        result = await client.request("tools/call", {"name": "book_berth", "arguments": {"boat": boat}})
        self._booked(result["structuredContent"], before, await self._berths())

    def _answer(self, question: Elicitation) -> Any:
        fields: Any = question.schema["properties"]
        form = ", ".join(f"{name} ({field['type']})" for name, field in fields.items())
        answer = ", ".join(f"{name} = {str(value).lower()}" for name, value in _ANSWER.items())
        self._say(f'  [yellow]"{escape(question.message)}"[/]')
        self._say(f"  form: {escape(form)}; answer: [green]{answer}[/]")
        return question.accept(_ANSWER)

    def _booked(self, booking: Any, before: Params, after: Params) -> None:
        _expect(booking["booked"] and booking["nights"] == _ANSWER["nights"], f"the answer did not arrive: {booking}")
        _expect(len(after) == len(before) + 1, f"one berth should have been taken, not {len(after) - len(before)}")
        self._say(
            f"berth {booking['berth']}, {booking['nights']} nights, {booking['price']} sea shells; reserved exactly once"
        )

    async def _berths(self) -> Params:
        return msgspec.json.decode((await self._read("harbour://berths"))["text"])

    async def _read(self, uri: str) -> Params:
        return (await self._call("resources/read", {"uri": uri}))["contents"][0]

    async def _resources(self) -> None:
        listed = (await self._call("resources/list"))["resources"]
        table = Table.grid(padding=(0, 2))
        for resource in listed:
            contents = await self._read(resource["uri"])
            summary = (
                f"{len(b64decode(contents['blob'])):,} bytes"
                if "blob" in contents
                else contents["text"].partition("\n")[0]
            )
            table.add_row(f"[green]{resource['uri']}[/]", contents["mimeType"], escape(summary))
        self._table(table)

    async def _template(self) -> None:
        listed = (await self._call("resources/templates/list"))["resourceTemplates"]
        page = await self._read("log://friday")
        self._say(f"[green]{escape(listed[0]['uriTemplate'])}[/] with day = friday:")
        self._say(f"  {escape(page['text'])}")

    async def _prompt(self) -> None:
        request = {"name": "plan_passage", "arguments": {"destination": "Kelp Sound"}}
        prompt = await self._call("prompts/get", request)
        message = prompt["messages"][0]
        self._say(f"{message['role']}: {escape(message['content']['text'])}")

    async def _completion(self) -> None:
        for ref, argument, typed in (
            ({"type": "ref/prompt", "name": "plan_passage"}, "destination", "k"),
            ({"type": "ref/resource", "uri": "log://{day}"}, "day", "t"),
        ):
            completed = await self._call(
                "completion/complete", {"ref": ref, "argument": {"name": argument, "value": typed}}
            )
            values = completed["completion"]["values"]
            _expect(bool(values), f"nothing completes {argument} = {typed!r}")
            self._say(f"{argument} = {typed}... -> [green]{escape(', '.join(values))}[/]")

    async def _legacy(self) -> None:
        async with connect(self._url, era="legacy", timeout=_SECONDS, on_elicit=self._answer) as client:
            _expect(bool(client.session_id), "the handshake brought no session id")
            self._say(f"initialize -> {client.version}, session {(client.session_id or '')[:12]}...")
            self._say("while the call runs, the server sends [bold]elicitation/create[/]")
            await self._book(client, "Albatross")
        self._say("One function body served both eras.")


def _thumbnail(data: bytes, width: int, height: int, scale: int) -> Text:
    """An indexed PNG of ours in half blocks, two pixels to a character."""
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        chunks[data[at + 4 : at + 8]] = data[at + 8 : at + 8 + size]
        at += size + 12
    colours, pixels = chunks[b"PLTE"], zlib.decompress(chunks[b"IDAT"])

    def colour(x: int, y: int) -> str:
        index = 3 * pixels[min(y, height - 1) * (width + 1) + 1 + x]
        return "#" + colours[index : index + 3].hex()

    text = Text(no_wrap=True)
    half = scale // 2
    for y in range(half, height - scale, 2 * scale):
        for x in range(half, width, scale):
            text.append("▀", Style(color=colour(x, y), bgcolor=colour(x, y + scale)))
        text.append("\n")
    text.rstrip()
    return text
