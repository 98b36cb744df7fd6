"""Small servers, each with threads of its own: let these go at once when they are idle.

They are daemons and hurt nobody, but looking for child processes after each test reads a file per thread.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trimaran.server import threads


@pytest.fixture(autouse=True, scope="module")
def idle_threads_go_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "_IDLE_SECONDS", 0.02)
        yield
