"""Fixtures that hold the event loop of a test open, one for each async test runner; `pytest_plugin` chooses.

A fixture of ours that closes something must run while the loop it was opened in is still there. The runners end their loop
with the last async fixture that uses it, so these stay until ours are done.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncGenerator
from typing import Any

import pytest


@pytest.fixture(name="_mcp_loop_anyio")
async def mcp_loop_anyio() -> AsyncGenerator[None]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pytest.fail("Trimaran runs on asyncio: let `anyio_backend` be 'asyncio' for this test", pytrace=False)
    yield  # noqa: PT022 - what it gives up at the end is the loop


# A function of its own: pytest-asyncio marks it, and would take the one above for its own too.
async def _hold_loop() -> AsyncGenerator[None]:
    yield


if importlib.util.find_spec("pytest_asyncio") is not None:
    import pytest_asyncio

    _options: dict[str, Any] = {"name": "_mcp_loop_asyncio"}
    try:
        # Said, because a project's default may be wider than the loop of its tests, and outlive it the wrong way round.
        mcp_loop_asyncio: Any = pytest_asyncio.fixture(loop_scope="function", **_options)(_hold_loop)
    except TypeError:  # before pytest-asyncio 0.24 there was no other scope
        mcp_loop_asyncio = pytest_asyncio.fixture(**_options)(_hold_loop)
