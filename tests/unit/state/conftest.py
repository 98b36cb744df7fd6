from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.redis import RedisServer, redis_server


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for the tests of a file."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server
