"""A Redis for each file that wants one; and the shared checks explain their failures like tests do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.state.redis_server import RedisServer, redis_server

pytest.register_assert_rewrite("tests.fleet.rig", "tests.fleet.verdict")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for the tests of a file."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server
