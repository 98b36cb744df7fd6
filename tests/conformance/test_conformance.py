"""The official conformance suite, one test per leg; `run.py` does the work and says what each leg is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")
SERVER_LEGS = ["25", "26", "stable", "more-26"]
CLIENT_LEGS = [
    "client-25",
    "client-25-pinned",
    "client-26",
    "client-26-pinned",
    "client-stable",
    "client-more-25",
    "client-more-25-pinned",
    "client-more-26",
    "client-more-26-pinned",
    "client-more-stable",
]


@pytest.mark.slow
@pytest.mark.deadline(240)  # above every bound inside run.py, so that run.py ends its server itself
@pytest.mark.parametrize("leg", [*SERVER_LEGS, *CLIENT_LEGS])
def test_official_suite_finds_what_is_expected(leg: str) -> None:
    """Whose rule: the spec's, as its authors test it."""
    done = subprocess.run([sys.executable, RUN, "--leg", leg], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.deadline(240)
@pytest.mark.parametrize("leg", ["25", "more-26"])
def test_official_suite_finds_the_same_on_a_store(leg: str, tmp_path: Path) -> None:
    """Sessions, replay and tasks in a store, as one of several processes has them."""
    server = f"{sys.executable} {RUN.with_name('server.py')} --store sqlite:///{tmp_path / 'store.db'}"
    done = subprocess.run(
        [sys.executable, RUN, "--leg", leg, "--server", server],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.deadline(240)
@pytest.mark.parametrize(("leg", "era"), [("25", "legacy"), ("25", "modern"), ("26", "modern"), ("26", "legacy")])
def test_official_suite_finds_the_same_through_a_proxy(leg: str, era: str) -> None:
    """Both eras in and out. What one era cannot say in the other is listed in expected.toml, with the reason."""
    done = subprocess.run(
        [sys.executable, RUN, "--leg", leg, "--through", era], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"\n{done.stdout}\n{done.stderr}"
