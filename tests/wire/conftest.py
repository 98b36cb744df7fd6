"""Both bindings prove the same behaviour (R147): a test that takes `binding` runs once on each."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["http", "asgi"])
def binding(request: pytest.FixtureRequest) -> str:
    return request.param
