"""The revisions and their eras (R18)."""

from __future__ import annotations

import pytest

from trimaran import negotiate, supported_versions
from trimaran.protocol.versions import LATEST_LEGACY, LEGACY, MODERN, SUPPORTED, is_legacy, is_modern


def test_the_revisions_are_listed_newest_first() -> None:
    """R18."""
    assert SUPPORTED == ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
    assert tuple(sorted(SUPPORTED, reverse=True)) == SUPPORTED
    assert (MODERN, *LEGACY) == SUPPORTED
    assert LATEST_LEGACY == "2025-11-25"


@pytest.mark.parametrize("version", SUPPORTED)
def test_every_revision_belongs_to_exactly_one_era(version: str) -> None:
    assert is_modern(version) != is_legacy(version)
    assert is_modern(version) == (version == MODERN)


@pytest.mark.parametrize("version", ["", "v999", "2026-07-29", "2025-11-25 ", "2025-11", "draft"])
def test_what_is_no_revision_belongs_to_no_era(version: str) -> None:
    assert not is_modern(version)
    assert not is_legacy(version)


def test_what_is_spoken_and_what_a_handshake_gets_can_be_asked() -> None:
    """R18: newest first; a supported version is echoed, any other gets the latest that has a handshake."""
    assert supported_versions() == ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
    assert [negotiate(version) for version in supported_versions()[1:]] == list(supported_versions()[1:])
    assert {negotiate(version) for version in ("2026-07-28", "1999-01-01", "2099-01-01", "")} == {"2025-11-25"}
