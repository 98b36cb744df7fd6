"""Private data and strangers' words that met in a conversation hold up what can reach outside."""

from __future__ import annotations

from trimaran.host.config.model import Touch
from trimaran.host.trust.flow import DataFlow, DataFlows
from trimaran.host.trust.scan import ScanFinding

OUT: frozenset[Touch] = frozenset({"outside"})


def _finding(severity: str = "ask") -> ScanFinding:
    return ScanFinding(id="override", severity=severity, place="result", message="gives orders", excerpt="obey")  # pyright: ignore[reportArgumentType]


def test_a_way_out_is_held_up_only_when_both_have_met() -> None:
    talk = DataFlow()
    assert talk.leak("mail", OUT) == ""
    talk.add("web", frozenset({"untrusted"}))
    assert talk.leak("mail", OUT) == ""
    talk.add("files", frozenset({"private"}))
    reason = talk.leak("mail", OUT)
    assert "private data (from files)" in reason and "strangers (from web)" in reason and reason.startswith("mail can")
    assert talk.leak("files", frozenset({"private", "acts"})) == ""
    assert [arrival.to_json()["tool"] for arrival in talk.arrivals] == ["web", "files"]
    talk.clear()
    assert talk.leak("mail", OUT) == ""


def test_orders_that_the_model_has_read_hold_up_every_call_that_touches_something() -> None:
    talk = DataFlow()
    talk.add("web", frozenset(), [_finding("warn")])
    assert talk.orders(frozenset({"private"})) == []
    assert len(talk.orders(OUT)) == 1
    talk.add("web", frozenset(), [_finding("ask")])
    assert "the result of web gives orders [override]: “obey”" in talk.orders(frozenset({"private"}))
    assert talk.orders(None) != []
    assert talk.orders(frozenset()) == []
    assert talk.touched == {"untrusted"}
    talk.add("web", frozenset(), [_finding("note")])
    assert len(talk.arrivals) == 2


def test_ten_thousand_results_cost_a_bounded_memory_and_lose_nothing() -> None:
    talk = DataFlow()
    for number in range(10_000):
        talk.add(f"web{number}", frozenset({"untrusted"}))
    talk.add("files", frozenset({"private"}))
    assert len(talk.arrivals) == 256
    assert "and 252 more" in talk.leak("mail", OUT)


def test_conversations_are_apart_and_the_oldest_is_forgotten() -> None:
    known = DataFlows()
    known.get("a").add("web", frozenset({"untrusted"}))
    assert known.get("b").touched == frozenset()
    assert known.get("a").touched == {"untrusted"}
    for number in range(2000):
        known.get(str(number))
    assert known.get("a").touched == frozenset()
