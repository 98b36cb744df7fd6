"""`make attack` in small: a few attacks, a second each. That the peers are answered and the server lives, not how fast it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import hostile_servers
from .__main__ import Row, Run, attack_client, chosen, show
from .hostile_clients import ATTACKS, SMUGGLING
from .rig import Latency, Sample

pytestmark = [pytest.mark.slow, pytest.mark.deadline(120)]


async def assault(name: str, folder: Path) -> Row:
    row = await Run(folder, seconds=1.0)._measure_once(ATTACKS[name])
    row.faults = [fault for fault in row.faults if not fault.startswith("p99")]
    assert show(row).startswith(name)
    return row


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("nothing but calls", "200"),
        ("empty lines without end", "400"),
        ("smuggling", "400"),
        ("bodies over the limit", "413"),
        ("huge numbers", "400"),
        ("forged tokens", "401"),
        ("tasks that wait for nobody", "200"),
        ("fields without number for a gateway's page", "401"),
        ("through a gateway: a schema that doubles visits", "a result"),
        ("login at a gateway: an answer with tokens without end", "login"),
        ("signing keys without end", "401"),
    ],
)
async def test_an_attack_is_answered_and_the_server_goes_on(name: str, answer: str, tmp_path: Path) -> None:
    row = await assault(name, tmp_path)
    assert row.answers.get(answer), row
    assert not row.faults, row
    assert row.latency.p50 > 0, "the bystander was not served"


async def test_a_hostile_server_costs_its_call_no_more_than_the_deadline(tmp_path: Path) -> None:
    outcomes = await attack_client("comments without end, login document that never comes", tmp_path)
    assert len(outcomes) == 2
    for outcome in outcomes:
        assert outcome.ended.startswith("TimedOut"), outcome
        assert outcome.seconds < 5 * hostile_servers.TIMEOUT


async def test_what_a_server_says_at_length_is_read_by_a_host_within_the_deadline(tmp_path: Path) -> None:
    (outcome,) = await attack_client("before a host: exclamation marks", tmp_path)
    assert outcome.ended == "a result", outcome


def test_attacks_are_chosen_by_words_of_their_names() -> None:
    assert chosen(["slow heads", "slow bodies", "smuggling"], "HEADS, smug") == ["slow heads", "smuggling"]
    assert chosen(["a", "b"], "") == ["a", "b"]
    assert len(SMUGGLING) == len(set(SMUGGLING))


def test_a_server_that_stops_for_a_while_shows_in_the_figures() -> None:
    samples = [Sample(float(number), 0.001, "ok") for number in range(98)]
    latency = Latency.of([*samples, Sample(98.0, 0.5, "ok"), Sample(99.0, 0.4, '"503 busy"')])
    assert (latency.p50, latency.p99, latency.most) == (1.0, 500.0, 500.0)
    assert latency.faults == ['"503 busy"']
    assert Latency.of([]).faults
