"""The journal of a call: asks, answers and steps survive the round trip through the client, and nothing is guessed."""

from __future__ import annotations

import os
import re
from typing import Any

import msgspec
import pytest

from trimaran.errors import Error, ProtocolError, StateRejected
from trimaran.protocol.journal import (
    MAX_JOURNAL_BYTES,
    InputRequest,
    Journal,
    ask_key,
    check_same_ask,
    digest,
    merge_responses,
    read_journal,
    write_journal,
)
from trimaran.protocol.seal import Sealer


def shown(value: object) -> str:
    """A name for a test: the value without its address, which is another one in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


ELICIT = InputRequest("elicit-1", "elicitation/create", "0123456789abcdef")
ROOTS = InputRequest("roots-1", "roots/list", "fedcba9876543210")


@pytest.mark.parametrize(
    ("order", "method", "name", "key"),
    [
        (1, "elicitation/create", None, "elicit-1"),
        (2, "sampling/createMessage", None, "sample-2"),
        (1, "roots/list", None, "roots-1"),
        (3, "elicitation/create", "confirm", "confirm"),
        (3, "elicitation/create", "", ""),
        (1, "vendor/ask", None, "vendor/ask-1"),
    ],
)
def test_an_ask_is_named_explicitly_or_by_kind_and_order(order: int, method: str, name: str | None, key: str) -> None:
    assert ask_key(order, method, name) == key


def test_a_digest_ignores_the_order_of_keys_at_any_depth() -> None:
    one = digest("elicitation/create", {"a": 1, "b": {"c": [1, 2], "d": None}})
    assert one == digest("elicitation/create", {"b": {"d": None, "c": [1, 2]}, "a": 1})
    assert len(one) == 16
    assert int(one, 16) >= 0


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sampling/createMessage", {"a": 1}),
        ("elicitation/create", {"a": 2}),
        ("elicitation/create", {"a": "1"}),
        ("elicitation/create", {"a": 1, "b": None}),
        ("elicitation/create", {}),
        ("elicitation/create", None),
    ],
)
def test_a_digest_tells_different_asks_apart(method: str, params: Any) -> None:
    assert digest(method, params) != digest("elicitation/create", {"a": 1})


JOURNALS = [
    Journal(),
    Journal(asked={"elicit-1": ELICIT, "roots-1": ROOTS}),
    Journal(
        answers={"elicit-1": {"action": "accept", "content": {"ok": True, "n": 1.5, "é": None}}},
        asked={"elicit-1": ELICIT},
    ),
    Journal(steps={"charge": {"id": "c_1", "lines": [1, 2, 3]}, "nothing": None}),
]


@pytest.mark.parametrize("journal", JOURNALS)
def test_a_journal_reads_back_in_order(journal: Journal) -> None:
    again = read_journal(write_journal(journal))
    assert again == journal
    assert list(again.asked) == list(journal.asked)
    assert list(again.steps) == list(journal.steps)


def test_being_stateless_is_not_written() -> None:
    assert read_journal(write_journal(Journal(answers={"a": {}}, stateless=True))) == Journal(answers={"a": {}})


def test_a_journal_cut_at_any_byte_is_refused() -> None:
    data = write_journal(JOURNALS[2])
    for cut in range(len(data)):
        with pytest.raises(StateRejected):
            read_journal(data[:cut])


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\x80extra",
        b"\x91" * 100_000,
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode({"asked": {"a": 1}}),
        msgspec.msgpack.encode({"answers": 3}),
        msgspec.msgpack.encode({"asked": {"a": {"key": "a"}}}),
        b"\x81\xa5steps\x81\xa1\xff\x01",
    ],
    ids=lambda data: ascii(data)[:30],
)
def test_what_is_no_journal_is_refused(data: bytes) -> None:
    with pytest.raises(StateRejected, match="journal of this version"):
        read_journal(data)


def test_a_journal_too_large_to_travel_names_its_largest_entry() -> None:
    with pytest.raises(Error, match=r"step 'fetch' takes 5\d{4} of them; keep the results of steps small"):
        write_journal(Journal(steps={"small": 1, "fetch": "x" * 50_000}, answers={"a": {}}))
    with pytest.raises(Error, match="answer 'elicit-1' takes"):
        write_journal(Journal(answers={"elicit-1": {"content": "x" * 50_000}}))
    with pytest.raises(Error, match="too many asks"):
        write_journal(Journal(asked={str(n): InputRequest(str(n), "roots/list", "0" * 16) for n in range(2000)}))


def test_the_largest_journal_still_fits_into_a_sealed_state() -> None:
    room = MAX_JOURNAL_BYTES - len(write_journal(Journal(steps={"s": b"x" * 40_000}))) + 40_000
    data = write_journal(Journal(steps={"s": os.urandom(room)}))
    assert len(data) == MAX_JOURNAL_BYTES
    Sealer([b"k" * 16], random=os.urandom).seal(data, purpose=b"journal", binding=b"", expires_at=0.0)


@pytest.mark.parametrize("result", [object(), 2**70, {1: object()}], ids=shown)
def test_a_step_result_that_is_no_plain_data_is_named(result: object) -> None:
    with pytest.raises(Error, match="result of step 'charge' cannot be stored: .*return plain data"):
        write_journal(Journal(steps={"fine": 1, "charge": result}))


def test_an_answer_that_is_no_plain_data_is_an_error_too() -> None:
    with pytest.raises(Error, match="cannot be written"):
        write_journal(Journal(answers={"a": object()}))


ASKED = Journal(asked={"elicit-1": ELICIT, "roots-1": ROOTS}, steps={"charge": 1})


def test_answers_to_what_was_asked_are_kept_and_others_ignored() -> None:
    merged = merge_responses(ASKED, {"elicit-1": {"action": "accept"}, "unknown": 5})
    assert merged == Journal(answers={"elicit-1": {"action": "accept"}}, steps={"charge": 1}, asked=ASKED.asked)
    assert merged.stateless is False
    assert ASKED.answers == {}


def test_answers_add_up_over_rounds_and_the_first_one_stays() -> None:
    first = merge_responses(ASKED, {"elicit-1": {"action": "accept"}})
    second = merge_responses(first, {"elicit-1": {"action": "decline"}, "roots-1": {"roots": []}})
    assert second.answers == {"elicit-1": {"action": "accept"}, "roots-1": {"roots": []}}
    assert first.answers == {"elicit-1": {"action": "accept"}}


def test_a_journal_of_steps_only_takes_no_answers() -> None:
    journal = Journal(steps={"charge": 1})
    assert merge_responses(journal, {"elicit-1": {}}) == journal


def test_without_state_nothing_was_asked_and_nothing_is_answered() -> None:
    merged = merge_responses(None, {"elicit-1": {"action": "accept"}, "b": {}})
    assert not merged.answers
    assert merged.stateless


@pytest.mark.parametrize("response", [None, "text", 5, True, [], [{}]], ids=shown)
@pytest.mark.parametrize("journal", [None, ASKED])
def test_a_response_that_is_no_object_is_refused_by_key(journal: Journal | None, response: object) -> None:
    with pytest.raises(ProtocolError, match=r"inputResponses\['elicit-1'\] must be a result object") as caught:
        merge_responses(journal, {"elicit-1": response})
    assert caught.value.code == -32602


def test_the_same_ask_and_a_new_one_pass() -> None:
    check_same_ask(ASKED, ELICIT)
    check_same_ask(ASKED, InputRequest("elicit-2", "elicitation/create", "0" * 16))


@pytest.mark.parametrize(
    "ask",
    [
        InputRequest("elicit-1", "elicitation/create", "1" * 16),
        InputRequest("elicit-1", "roots/list", "0123456789abcdef"),
    ],
)
def test_another_ask_under_a_known_key_is_an_error_naming_both(ask: InputRequest) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_same_ask(ASKED, ask)
    assert caught.value.code == -32603
    for word in ("'elicit-1'", ELICIT.method, ELICIT.digest, ask.method, ask.digest):
        assert word in caught.value.message


def test_asks_and_journals_are_frozen() -> None:
    with pytest.raises(AttributeError):
        ELICIT.key = "x"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError):
        ASKED.stateless = True  # pyright: ignore[reportAttributeAccessIssue]
