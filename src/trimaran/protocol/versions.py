"""The revisions of the protocol: which exist, which era each belongs to, what each added.

One place knows these dates. Comparing two revisions is comparing their strings: they are ISO dates.
"""

from __future__ import annotations

from typing import Final

MODERN: Final = "2026-07-28"
V2025_11: Final = "2025-11-25"
V2025_06: Final = "2025-06-18"
V2025_03: Final = "2025-03-26"
V2024_11: Final = "2024-11-05"

# Newest first (R18).
LEGACY: Final = (V2025_11, V2025_06, V2025_03, V2024_11)
LATEST_LEGACY: Final = LEGACY[0]
SUPPORTED: Final = (MODERN, *LEGACY)

_LEGACY_SET: Final = frozenset(LEGACY)


def is_modern(version: str) -> bool:
    """Whether this is a revision without a handshake."""
    return version == MODERN


def is_legacy(version: str) -> bool:
    """Whether this is a revision that begins with `initialize`."""
    return version in _LEGACY_SET


def supported_versions() -> tuple[str, ...]:
    """The revisions that servers and clients speak, newest first."""
    return SUPPORTED


def negotiate(requested: str) -> str:
    """The revision that a server answers to an `initialize` which asks for `requested` (R18).

    That one, if it begins with a handshake; else the newest that does. 2026-07-28 is not negotiated: every request names it,
    and a handshake that asks for it is answered like one for an unknown revision.
    """
    return requested if is_legacy(requested) else LATEST_LEGACY
