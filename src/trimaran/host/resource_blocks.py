"""A resource as a block of a person's message: named, fenced, and within the limits of its server.

A server chooses the text, so nothing of it may end the fence or look like more than one word outside of it.
"""

from __future__ import annotations

from typing import Final

from trimaran.client.results import ResourceResult
from trimaran.types import TextResourceContents

_LONGEST_WORD: Final = 1000  # characters


def resource_text(resource: ResourceResult) -> str:
    """The text of a resource, with a line for each part that is none."""
    parts: list[str] = []
    for item in resource.contents:
        if isinstance(item, TextResourceContents):
            parts.append(item.text)
        else:
            size = len(item.blob) * 3 // 4 - item.blob[-2:].count("=")
            parts.append(f"[{item.mime_type or 'binary data'}, {size} bytes: not shown]")
    return "\n".join(parts)


def fence(server: str, uri: str, resource: ResourceResult, text: str) -> str:
    """The text of a resource in a fence, below a line that says where it is from."""
    kind = next((item.mime_type for item in resource.contents if item.mime_type), "text/plain")
    line = "`" * max(3, _longest_run(text) + 1)
    return f"\n[{one_word(uri)} of the server {server}, {one_word(kind)}]\n{line}\n{text}\n{line}\n"


def one_word(text: str) -> str:
    """A server's text as one short word, so that it can inject nothing outside the fence."""
    word = "".join(character if character.isprintable() and character not in " `[]" else "_" for character in text)
    return word if len(word) <= _LONGEST_WORD else word[:_LONGEST_WORD] + "..."


def _longest_run(text: str) -> int:
    """The length of the longest run of backticks; the fence around the text must be longer."""
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
