"""Any journal reads back, and any bytes are a journal or are refused."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.errors import ProtocolError, StateRejected
from trimaran.protocol.journal import InputRequest, Journal, digest, merge_responses, read_journal, write_journal

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, st.dictionaries(TEXT, JSON, max_size=3), max_size=3)
JOURNALS = st.builds(
    Journal,
    answers=OBJECTS,
    steps=st.dictionaries(TEXT, JSON, max_size=3),
    asked=st.dictionaries(TEXT, st.builds(InputRequest, TEXT, TEXT, TEXT), max_size=3),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JOURNALS)
def test_any_journal_reads_back(journal: Journal) -> None:
    assert read_journal(write_journal(journal)) == journal


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"\x83\xa7answers" + tail))
def test_any_bytes_are_a_journal_or_are_refused(data: bytes) -> None:
    with contextlib.suppress(StateRejected):
        read_journal(data)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JOURNALS, st.dictionaries(TEXT, JSON, max_size=4))
def test_merging_never_changes_an_answer_and_never_takes_one_that_was_not_asked(
    journal: Journal, responses: dict[str, Any]
) -> None:
    with contextlib.suppress(ProtocolError):
        merged = merge_responses(journal, responses)
        assert merged.answers.items() >= journal.answers.items()
        assert set(merged.answers) - set(journal.answers) <= set(journal.asked)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_a_digest_does_not_depend_on_the_order_of_keys(params: dict[str, Any]) -> None:
    assert digest("m", params) == digest("m", dict(reversed(params.items())))
