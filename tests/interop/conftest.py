"""The shared checks explain their failures like tests do."""

import pytest

pytest.register_assert_rewrite(
    "tests.interop.contract", "tests.interop.harness", "tests.interop.auth.authority", "tests.interop.auth.peers"
)
