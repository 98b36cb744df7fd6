"""`trimaran serve recording.json`: a server that answers as in a session that `trimaran inspect` recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from .target import is_behind_dashes

if TYPE_CHECKING:
    from trimaran.server.server import Server


def is_mock(ctx: click.Context, words: Sequence[str]) -> bool:
    """True if the words name the file of a recording, perhaps with a server of it: recording.json#boats."""
    if is_behind_dashes(ctx) or len(words) != 1 or ".json" not in words[0]:
        return False
    from trimaran.apps.inspector.mock import is_recording

    return is_recording(words[0].partition("#")[0])


class MockSource(NamedTuple):
    """A recording to serve."""

    path: str
    server: str | None

    @classmethod
    def read(cls, words: Sequence[str]) -> MockSource:
        path, _, server = words[0].partition("#")
        return cls(path, server or None)

    def load(self) -> Server:
        from trimaran.apps.inspector.mock import load_mock

        return load_mock(self.path, self.server)
