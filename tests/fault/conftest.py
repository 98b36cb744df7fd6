"""The shared checks explain their failures like tests do."""

import pytest

pytest.register_assert_rewrite("tests.fault.rig")
