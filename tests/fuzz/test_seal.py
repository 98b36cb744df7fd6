"""Whatever is sealed opens, and no alteration does."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.errors import StateRejected
from trimaran.protocol.seal import Sealer

SEALER = Sealer([b"0123456789abcdef", b"fedcba9876543210"], random=os.urandom)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=500), st.binary(max_size=20), st.binary(max_size=20), st.floats(1, 1e12))
def test_whatever_is_sealed_opens(payload: bytes, purpose: bytes, binding: bytes, expires_at: float) -> None:
    text = SEALER.seal(payload, purpose=purpose, binding=binding, expires_at=expires_at)
    assert SEALER.open(text, purpose=purpose, binding=binding, now=0.0) == payload


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=100), st.integers(min_value=0), st.characters())
def test_a_state_with_any_character_changed_is_refused(payload: bytes, index: int, other: str) -> None:
    text = SEALER.seal(payload, purpose=b"p", binding=b"b", expires_at=1.0)
    index %= len(text)
    if text[index] == other:
        return
    with pytest.raises(StateRejected, match="not valid for this call"):
        SEALER.open(text[:index] + other + text[index + 1 :], purpose=b"p", binding=b"b", now=0.0)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=200) | st.text("ABab01-_.=", max_size=200).map(lambda rest: "t1." + rest))
def test_any_text_never_sealed_is_refused(text: str) -> None:
    with pytest.raises(StateRejected, match="not valid for this call"):
        SEALER.open(text, purpose=b"p", binding=b"b", now=0.0)
