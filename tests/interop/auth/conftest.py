"""Fixture: `authority`, one OpenID provider for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .authority import Authority


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    authority = Authority()
    with authority.running():
        yield authority
