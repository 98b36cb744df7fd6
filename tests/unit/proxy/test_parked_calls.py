"""A modern caller before an older target that asks: the target's call waits here between two requests of the caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import Reply, ask, call, modern_http
from tests.support.until import soon, until

from trimaran import Server
from trimaran.proxy import parked_calls
from trimaran.serve import HttpServer

from .harbour import Harbour

ABLE = {"elicitation": {"form": {}}}


@contextlib.asynccontextmanager
async def fronts(harbour: Harbour, number: int = 1, **options: Any) -> AsyncIterator[list[HttpServer]]:
    """Proxies before one target of 2025-11-25, each as if in a process of its own."""
    async with contextlib.AsyncExitStack() as stack:
        target = await stack.enter_async_context(HttpServer(harbour.server, port=0))
        yield [
            await stack.enter_async_context(
                HttpServer(Server.proxy(target.url, era="legacy"), port=0, **options),
            )
            for _ in range(number)
        ]


async def greet(front: HttpServer, **more: Any) -> Reply:
    message = call("greet", {})
    message["params"].update(more)
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = ABLE
    return await soon(ask(front.port, modern_http(message)))


def answers(reply: Reply) -> dict[str, Any]:
    """What a caller sends back for the questions in a reply."""
    result = reply.json["result"]
    assert result["resultType"] == "input_required"
    answer = {"action": "accept", "content": {"name": "Bo"}}
    return {"inputResponses": dict.fromkeys(result["inputRequests"], answer), "requestState": result["requestState"]}


def text_of(reply: Reply) -> str:
    return reply.json["result"]["content"][0]["text"]


async def test_the_retry_goes_on_with_the_call_that_asked() -> None:
    harbour = Harbour()
    async with fronts(harbour) as [front]:
        asked = await greet(front)
        assert (harbour.greeted, harbour.finished) == (1, 0)
        assert text_of(await greet(front, **answers(asked))) == "hello Bo"
    assert (harbour.greeted, harbour.finished) == (1, 1)


async def test_a_retry_that_is_sent_twice_gets_the_same_answer_twice() -> None:
    harbour = Harbour()
    async with fronts(harbour) as [front]:
        retry = answers(await greet(front))
        assert [text_of(await greet(front, **retry)) for _ in range(2)] == ["hello Bo", "hello Bo"]
    assert harbour.finished == 1


async def test_results_that_stay_for_a_retry_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand large ones would be kept for a minute, otherwise."""
    async with fronts(Harbour()) as [front]:
        first, second = answers(await greet(front)), answers(await greet(front))
        assert text_of(await greet(front, **first)) == "hello Bo"
        upstream = front.server.lifespan_state
        size = upstream._parked._kept_bytes
        assert size > 0
        monkeypatch.setattr(parked_calls, "_MOST_KEPT_BYTES", size + size // 2)
        assert text_of(await greet(front, **second)) == "hello Bo"
        assert text_of(await greet(front, **second)) == "hello Bo"
        assert (await greet(front, **first)).json["error"]["data"] == {"kind": "parked_call_lost"}
        monkeypatch.setattr(parked_calls, "_MOST_KEPT_BYTES", 1)
        third = answers(await greet(front))
        assert text_of(await greet(front, **third)) == "hello Bo", "one that is too large is answered all the same"
        assert (len(upstream._parked), upstream._parked._kept_bytes) == (0, 0)


async def test_another_process_of_the_fleet_takes_the_retry(tmp_path: Path) -> None:
    harbour = Harbour()
    keys = {"store": f"sqlite:///{tmp_path / 'fleet.db'}"}
    async with fronts(harbour, 2, **keys) as [one, two]:
        share_keys(one, two)
        retry = answers(await greet(one))
        assert text_of(await greet(two, **retry)) == "hello Bo"
    assert (harbour.greeted, harbour.finished) == (1, 1)


@pytest.mark.slow
async def test_when_its_process_is_gone_the_retry_is_an_error_and_no_second_run(tmp_path: Path) -> None:
    harbour = Harbour()
    async with fronts(harbour, 2, store=f"sqlite:///{tmp_path / 'fleet.db'}") as [one, two]:
        share_keys(one, two)
        retry = answers(await greet(one))
        await one.stop()
        error = (await greet(two, **retry)).json["error"]
        assert error["data"] == {"kind": "parked_call_lost"}
        assert "was not run again" in error["message"]
    assert (harbour.greeted, harbour.finished) == (1, 0)


def share_keys(one: HttpServer, two: HttpServer) -> None:
    """As the workers of one supervisor do."""
    two.server.runtime.share_secret_keys(one.server.runtime.share_secret_keys())


async def test_a_question_that_nobody_answers_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    harbour = Harbour()
    async with fronts(harbour) as [front]:
        upstream = front.server.lifespan_state
        monkeypatch.setattr(upstream._parked, "_ttl", 0.05)
        retry = answers(await greet(front))
        await until(lambda: len(upstream._parked) == 0)
        assert (await greet(front, **retry)).json["error"]["data"] == {"kind": "parked_call_lost"}
    assert harbour.finished == 0


async def test_a_caller_that_never_comes_back_makes_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked_calls, "_MOST", 1)
    harbour = Harbour()
    async with fronts(harbour) as [front]:
        first = answers(await greet(front))
        second = answers(await greet(front))
        assert (await greet(front, **first)).json["error"]["data"] == {"kind": "parked_call_lost"}
        assert text_of(await greet(front, **second)) == "hello Bo"


async def test_the_caller_with_the_most_open_questions_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked_calls, "_MOST", 3)
    addresses = iter(["modest", *["greedy"] * 4])
    monkeypatch.setattr(parked_calls, "place_of", lambda call: next(addresses))
    harbour = Harbour()
    async with fronts(harbour) as [front]:
        modest = answers(await greet(front))
        greedy = [answers(await greet(front)) for _ in range(4)]
        assert text_of(await greet(front, **modest)) == "hello Bo"
        assert "error" in (await greet(front, **greedy[0])).json
        assert text_of(await greet(front, **greedy[-1])) == "hello Bo"


@pytest.mark.slow
async def test_a_hundred_open_questions_keep_nobody_from_being_asked() -> None:
    """They share one connection to the target, whose own limit is for the questions to one person."""
    harbour = Harbour()
    async with fronts(harbour) as [front]:
        open_rounds = [answers(await greet(front)) for _ in range(100)]
        assert text_of(await greet(front, **open_rounds[-1])) == "hello Bo"
        assert text_of(await greet(front, **open_rounds[0])) == "hello Bo"


async def test_a_caller_that_leaves_before_the_question_cancels_the_targets_call() -> None:
    harbour = Harbour()
    async with fronts(harbour) as [front]:
        leaving = asyncio.ensure_future(ask(front.port, modern_http(call("hold", {}))))
        await soon(harbour.started.wait())
        leaving.cancel()
        await until(lambda: harbour.outcome == "cancelled")


async def test_the_state_of_one_call_does_not_continue_another() -> None:
    harbour = Harbour()
    async with fronts(harbour) as [front]:
        retry = answers(await greet(front))
        message = call("add", {"a": 1, "b": 2})
        message["params"].update(retry)
        reply = await ask(front.port, modern_http(message))
        assert "requestState was not accepted" in reply.json["error"]["message"]
