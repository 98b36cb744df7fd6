"""The harness's own promise: a run that talked to nobody is not a good run."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import need


def test_a_missing_peer_fails_the_test_and_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="is missing: run `make setup`"):
        need(tmp_path, tmp_path / "absent")
