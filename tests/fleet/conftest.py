"""Stores for the tests of a fleet: a Redis for each file that wants one, and files."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from tests.support.redis import RedisServer
from tests.support.redis import redis as redis


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisServer) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'fleet.db'}"
    return f"{redis.url}?namespace={secrets.token_hex(4)}"


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'fleet.db'}"
