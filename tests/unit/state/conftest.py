"""One Redis for the tests of a file."""

from tests.support.redis import redis as redis
