"""Output for a person: results on stdout; progress, log lines and errors on stderr.

A server's text is not trusted: its control characters are escaped. On a pipe, text goes
through as it came, and nothing is coloured, wrapped by us, or drawn.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import mimetypes
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, TextIO, final

import click
from rich.console import Console, RenderableType
from rich.highlighter import JSONHighlighter
from rich.padding import Padding
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from trimaran.host.terminal_text import in_one_line, safe, safe_json, to_json
from trimaran.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

_WIDTH: Final = 80  # of what is no terminal: logs are read at eighty columns
_LEVEL_STYLES: Final = {"warning": "yellow", "error": "red", "critical": "red", "alert": "red", "emergency": "red"}
# Where mimetypes knows nothing, or not the ending people use.
_ENDINGS: Final = {
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "image/jpeg": ".jpg",
    "image/svg+xml": ".svg",
    "image/webp": ".webp",
    "text/markdown": ".md",
    "application/json": ".json",
}


@final
class Screen:
    """The two streams of a command."""

    def __init__(self, *, quiet: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.quiet = quiet
        self.out: Console = _console(out or sys.stdout)
        self.err: Console = _console(err or sys.stderr)
        self.files_on: Console = self.out
        """Where the names of saved files are printed."""
        self.progress: ProgressView = ProgressView(self)

    # stdout

    def text(self, text: str) -> None:
        """Text of the server's, unwrapped, with a line end."""
        if self.out.is_terminal:
            text = safe(text)
        self.out.out(text, end="" if text.endswith("\n") else "\n", highlight=False)

    def value(self, value: Any) -> None:
        """A plain Python value: text as text, everything else as JSON."""
        if isinstance(value, str):
            self.text(value)
        elif self.out.is_terminal:
            self.out.print(JSONHighlighter()(Text(safe_json(to_json(value)))), soft_wrap=True)
        else:
            self.text(to_json(value))

    def raw(self, value: Any) -> None:
        """JSON for programs: never coloured, never wrapped. At a terminal, what it would act on is escaped as JSON does."""
        text = to_json(value)
        self.out.out(safe_json(text) if self.out.is_terminal else text, highlight=False)

    def lay_out(self, renderable: RenderableType) -> None:
        """Something with columns; on a pipe without the blanks that fill the last one."""
        if self.out.is_terminal:
            self.out.print(renderable)
            return
        with self.out.capture() as captured:
            self.out.print(renderable)
        for line in captured.get().splitlines():
            self.out.out(line.rstrip(), highlight=False)

    def write_bytes(self, data: bytes) -> None:
        """Bytes as they are; for redirection."""
        self.out.file.flush()
        stream: Any = getattr(self.out.file, "buffer", None)
        if stream is not None:
            stream.write(data)
            stream.flush()

    # stderr

    def note(self, text: str, style: str = "") -> None:
        """One remark of ours, also when quiet."""
        self.err.print(Text(safe(text), style=style), soft_wrap=True)

    def log(self, level: str, source: str | None, data: Any) -> None:
        """A log line of the server's."""
        if self.quiet:
            return
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
        line = Text(f"{in_one_line(level, 20)}: ", style=_LEVEL_STYLES.get(level, "dim"))
        line.append(f"{in_one_line(source, 60)}: " if source else "", style="dim")
        line.append(safe(text).rstrip("\n"), style="")
        self.err.print(line, soft_wrap=True)

    def child_line(self, line: str) -> None:
        """A line a child process wrote to stderr."""
        self.err.print(Text(f"server: {safe(line)}", style="dim"), soft_wrap=True)

    def problem(self, text: str, remedy: str = "") -> None:
        """Print an error and what to do about it."""
        line = Text("trimaran: ", style="bold red").append(safe(text), style="default not bold")
        self.err.print(line, soft_wrap=True)
        if remedy:
            self.err.print(Text(safe(remedy)), soft_wrap=True)

    # content

    def content(self, blocks: list[Any], saver: Saver) -> None:
        """Content blocks of any kind, in order."""
        for block in blocks:
            self.block(block, saver)

    def block(self, block: Any, saver: Saver) -> None:
        """One content block: text is printed, pictures and sounds are saved and named."""
        match block:
            case TextContent():
                self.text(block.text)
            case ImageContent() | AudioContent():
                self.saved(block.data, block.mime_type, saver)
            case ResourceLink():
                self._link(block)
            case EmbeddedResource():
                self.contents(block.resource, saver)
            case _:
                self.value(block)

    def contents(self, resource: Any, saver: Saver) -> None:
        match resource:
            case TextResourceContents():
                self.text(resource.text)
            case BlobResourceContents():
                self.saved(resource.blob, resource.mime_type or "application/octet-stream", saver)
            case _:
                self.value(resource)

    def _link(self, link: ResourceLink) -> None:
        about = ", ".join(in_one_line(part) for part in (link.mime_type, link.description) if part)
        self.text(f"{in_one_line(link.title or link.name)}: {safe(link.uri)}" + (f" ({about})" if about else ""))

    def saved(self, data: str, mime: str, saver: Saver) -> None:
        """Save base64 data and print where it is."""
        try:
            octets = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            self.note(f"trimaran: the server sent {in_one_line(mime)} that is not base64; it is not saved", "yellow")
            return
        path = saver.save(octets, mime)
        self.files_on.out(f"{path} ({in_one_line(mime)}, {len(octets):,} bytes)", highlight=False)

    def paragraph(self, text: Text | str, *, indent: int = 0) -> None:
        """Prose on stderr, wrapped."""
        self.err.print(Padding(text, (0, 0, 0, indent), expand=False))


def _console(file: TextIO) -> Console:
    reconfigure: Any = getattr(file, "reconfigure", None)
    if reconfigure is not None:
        # A code page that lacks a character is no reason to fail.
        reconfigure(errors="backslashreplace")
    if file.isatty():
        return Console(file=file, highlight=False, emoji=False, markup=False)
    # Programs read a pipe. rich would take its width from COLUMNS, and colour it where FORCE_COLOR or TTY_COMPATIBLE is set.
    return Console(file=file, highlight=False, emoji=False, markup=False, width=_WIDTH, force_terminal=False)


def holds_file(block: Any) -> bool:
    """True for a content block whose data is saved, not printed."""
    if isinstance(block, EmbeddedResource):
        return isinstance(block.resource, BlobResourceContents)
    return isinstance(block, (ImageContent, AudioContent))


_MOMENT: Final = 0.5  # seconds: what is quicker need not be announced
_COLUMNS: Final = (TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),)


@final
class _Count(ProgressColumn):
    """`3/5`, or `3` if the total is unknown."""

    def render(self, task: Task) -> Text:
        done = f"{task.completed:g}"
        return Text(done if task.total is None else f"{done}/{task.total:g}", style="cyan")


@final
class ProgressView:
    """On a terminal: a spinner with what is waited for, then a bar. Elsewhere: lines, once the server reports progress."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._bar: Progress | None = None
        self._last_mark: tuple[str, int] | None = None
        self._waiting: str | None = None
        """The text beside the spinner, until there is progress."""
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, text: str) -> None:
        """Say what is waited for, if it is not there in a moment. `stop` before anything is printed on stdout."""
        self.stop()
        if not self._screen.quiet and self._screen.err.is_terminal:
            self._waiting = in_one_line(text, 60)
            self._timer = asyncio.get_running_loop().call_later(_MOMENT, self._show_waiting)

    def _show_waiting(self) -> None:
        self._bar = Progress(SpinnerColumn(), *_COLUMNS, TimeElapsedColumn(), console=self._screen.err, transient=True)
        self._bar.add_task(self._waiting or "", total=None)
        self._bar.start()

    def update(self, name: str, progress: float, total: float | None, message: str | None) -> None:
        """Show how far a call is."""
        if self._screen.quiet:
            return
        label = in_one_line(message or name, 60)
        if not self._screen.err.is_terminal:
            self._print_progress_line(progress, total, label)
            return
        if self._waiting is not None:
            self.stop()
        if self._bar is None:
            self._bar = Progress(
                BarColumn(30), _Count(), TimeElapsedColumn(), *_COLUMNS, console=self._screen.err, transient=True
            )
            self._bar.add_task(label, total=total, completed=progress)  # pyright: ignore[reportArgumentType] - rich counts in ints, and adds up floats
            self._bar.start()
            return
        self._bar.update(self._bar.task_ids[0], completed=progress, total=total, description=label)

    def _print_progress_line(self, progress: float, total: float | None, message: str) -> None:
        # A thousand steps of one text are a hundred lines at most.
        mark = (message, int(100 * progress / total) if total else int(progress))
        if mark != self._last_mark:
            self._last_mark = mark
            count = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            self._screen.note(f"{count} {message}")

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Keep the bar off the screen while a person is asked something."""
        if self._waiting is not None:
            waiting = self._waiting
            self.stop()
            yield
            self.wait(waiting)
            return
        bar = self._bar
        if bar is None:
            yield
            return
        bar.stop()
        try:
            yield
        finally:
            bar.start()

    def stop(self) -> None:
        """Take the bar, or what is waited for, off the screen."""
        self._waiting = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@final
class Saver:
    """Writes files `stem-1.png`, `stem-2.png`, ... into a directory, and never over one that is there."""

    def __init__(self, directory: Path, stem: str) -> None:
        self._directory = directory
        self._stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", stem).strip("._")[:80] or "result"
        self._next = 1

    def save(self, data: bytes, mime: str) -> Path:
        """Write the data under the next free name."""
        bare = mime.partition(";")[0].strip().lower()
        ending = _ENDINGS.get(bare) or mimetypes.guess_extension(bare) or ".bin"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            while True:
                path = self._directory / f"{self._stem}-{self._next}{ending}"
                self._next += 1
                try:
                    with path.open("xb") as file:
                        file.write(data)
                except FileExistsError:
                    continue
                return path
        except OSError as error:
            raise click.UsageError(f"cannot save in {str(self._directory)!r}: {error.strerror or error}") from None
