"""An HTTP server: http://127.0.0.1:9090/mcp, both eras on one endpoint.

    python examples/http_server.py
    claude mcp add --transport http notes http://127.0.0.1:9090/mcp

Set PORT to listen elsewhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from trimaran import Server, ToolError
from trimaran.errors import ResourceMissing

server = Server("notes", version="1.0.0", instructions="Keeps short notes as long as it runs.")


@dataclass
class Note:
    """A note."""

    title: str
    text: str


notes: dict[str, Note] = {}


@server.tool
def save_note(title: str, text: str) -> str:
    """Save a note under a title; an older note with that title is replaced."""
    if not title.strip():
        raise ToolError("A note needs a title. Pass a few words that say what it is about.")
    is_new = title not in notes
    notes[title] = Note(title, text)
    if not is_new:
        server.notify.resource_updated(f"note://{title}")
    return f"Saved {title!r}; {len(notes)} notes in all."


@server.tool(annotations={"readOnlyHint": True})
def find_notes(word: str) -> list[Note]:
    """Find the notes that contain a word."""
    return [n for n in notes.values() if word.lower() in f"{n.title} {n.text}".lower()]


@server.resource("note://{title}", mime_type="text/plain")
def read_note(title: str) -> str:
    """One note, by its title."""
    if title not in notes:
        raise ResourceMissing(f"note://{title}")
    return notes[title].text


@server.completion(template="note://{title}", argument="title")
def complete_title(typed: str) -> list[str]:
    return [title for title in notes if title.startswith(typed)]


if __name__ == "__main__":
    server.run("http", port=int(os.environ.get("PORT", "9090")))
