"""What all providers share."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Any

import pytest
from tests.support.until import PATIENCE

from trimaran.auth import Principal, Provider, Refused
from trimaran.auth import provider as module
from trimaran.auth.provider import VerifiedCredentials, ask, consult, in_thread


class Known(Provider):
    """Knows one caller, or refuses."""

    def __init__(self, answer: Any, **options: Any) -> None:
        super().__init__(**options)
        self.answer = answer

    def presents(self, request: Any) -> bool:
        return True

    def challenge(self, refusal: Refused) -> str:
        return f"Known kind={refusal.kind}"

    async def identify(self, request: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_a_provider_of_ones_own_needs_three_methods(request_with: Any) -> None:
    """R152."""
    ada = Principal(subject="ada", scopes=frozenset({"read"}))
    provider = Known(ada, required_scopes=["read"])
    await provider.start()
    assert await provider.authenticate(request_with()) is ada
    assert provider.header_names == ()
    assert provider.documents() == {}
    await provider.close()


async def test_every_refusal_gets_its_challenge(request_with: Any) -> None:
    """R152, R154."""
    with pytest.raises(Refused) as caught:
        await Known(Refused("invalid_token")).authenticate(request_with())
    assert caught.value.challenges == ("Known kind=invalid_token",)
    with pytest.raises(Refused) as caught:
        await Known(Principal(), required_scopes=["read"]).authenticate(request_with())
    assert (caught.value.status, caught.value.scopes) == (403, ("read",))
    own = Refused("invalid_token")
    own.challenges = ("Own",)
    with pytest.raises(Refused) as caught:
        await Known(own).authenticate(request_with())
    assert caught.value.challenges == ("Own",)


async def test_a_reason_is_logged_on_one_line(request_with: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trimaran.auth")
    with pytest.raises(Refused):
        await Known(Refused("invalid_token", reason="a\r\nb\x1b[0m")).authenticate(request_with())
    assert caplog.messages == ["refused: invalid_token (ab[0m)"]


async def test_what_is_missing_in_a_provider_is_plain(request_with: Any) -> None:
    class Empty(Provider): ...

    for call in (Empty().presents, lambda _request: Empty().challenge(Refused("missing"))):
        with pytest.raises(NotImplementedError):
            call(request_with())
    with pytest.raises(NotImplementedError):
        await Empty().authenticate(request_with())


async def test_a_thread_sees_the_context_of_the_caller() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("mine")
    assert await in_thread(variable.get) == "mine"
    assert await ask(variable.get) == "mine"


async def test_a_place_is_given_back_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    places = threading.BoundedSemaphore(1)
    monkeypatch.setattr(module, "_places", places)
    gate = threading.Event()

    def fail() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await in_thread(fail)
    task = asyncio.create_task(in_thread(gate.wait, 5))
    await asyncio.sleep(0)
    with pytest.raises(Refused) as caught:
        await in_thread(fail)
    assert caught.value.kind == "rate_limited"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    assert await in_thread(lambda: 7) == 7


@pytest.mark.parametrize(
    "error", [StopIteration, StopAsyncIteration, SystemExit, KeyboardInterrupt, asyncio.CancelledError]
)
async def test_whatever_a_function_raises_reaches_its_caller_as_an_exception(error: type[BaseException]) -> None:
    """And nobody waits for ever, nor does the server end."""

    def fail() -> None:
        raise error

    async with asyncio.timeout(PATIENCE):
        with pytest.raises((RuntimeError, StopAsyncIteration)):
            await in_thread(fail)
        with pytest.raises(Refused) as caught:
            await consult("verifier", fail)
    assert caught.value.status == 500


def test_memory_forgets_what_is_over_first(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 10)
    memory = VerifiedCredentials(clock)
    for number in range(10):
        memory.put(memory.digest(str(number)), Principal(subject=str(number)), clock.now + (1 if number % 2 else 100))
    clock.now += 1
    memory.put(memory.digest("new"), Principal(subject="new"))
    assert len(memory) == 6
    for number in range(20):
        memory.put(memory.digest(f"more-{number}"), Principal())
        assert len(memory) <= 10
    assert memory.get(memory.digest("more-19")) is not None
    memory.clear()
    assert len(memory) == 0


def test_memory_keeps_no_credential(clock: Any) -> None:
    memory = VerifiedCredentials(clock)
    memory.put(memory.digest("geheim"), Principal())
    memory.put(memory.keyed_digest("ada", "geheim"), Principal())
    assert "geheim" not in repr(vars(memory))


def test_digests_tell_all_credentials_apart(clock: Any) -> None:
    memory = VerifiedCredentials(clock)
    parts = [
        ("a", "b"),
        ("ab", ""),
        ("", "ab"),
        ("a", "1:b"),
        ("a1:", "b"),
        ("1:a", "b"),
        ("\udcff", ""),
        ("a", "b", ""),
    ]
    assert len({memory.keyed_digest(*pair) for pair in parts}) == len(parts)
