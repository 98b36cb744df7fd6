"""Users and passwords: who is let in, and that a guess costs the same whoever is guessed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import threading
from typing import Any

import pytest
from tests.support.until import PATIENCE

from trimaran.auth import Basic, Principal, Refused, basic, hash_password, hashes, provider
from trimaran.errors import ConfigError


def stored(password: str, iterations: int) -> str:
    """A stored form with fewer rounds than `hash_password` would make: tests are in a hurry."""
    salt = bytes(16)
    made = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    return f"pbkdf2-sha256${iterations}${base64.b64encode(salt).decode()}${base64.b64encode(made).decode()}"


@pytest.fixture
def enter(request_with: Any) -> Any:
    async def authenticate(provider: Basic, user: str, password: str) -> Any:
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return await provider.authenticate(request_with(f"Basic {pair}"))

    return authenticate


@pytest.fixture
def refused(enter: Any) -> Any:
    async def authenticate(provider: Basic, user: str, password: str) -> Refused:
        with pytest.raises(Refused) as caught:
            await enter(provider, user, password)
        return caught.value

    return authenticate


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rounds of PBKDF2 were run, call by call."""
    seen: list[int] = []
    derive = hashes.derive

    def counting(password: str, salt: bytes, iterations: int) -> bytes:
        seen.append(iterations)
        return derive(password, salt, iterations)

    monkeypatch.setattr(hashes, "derive", counting)
    monkeypatch.setattr(basic, "derive", counting)
    return seen


FORMS = {
    "in the clear": "geheim",
    "derived": stored("geheim", 10),
    "legacy": hash_password("geheim", "sha256-hex"),
    "in a mapping": {"password": "geheim"},
    "derived in a mapping": {"password": stored("geheim", 10)},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
async def test_the_right_password_is_let_in_and_no_other(enter: Any, refused: Any, form: Any) -> None:
    """R159, R160."""
    provider = Basic({"ada": form})
    assert (await enter(provider, "ada", "geheim")).subject == "ada"
    assert (await enter(provider, "ada", "geheim")).subject == "ada"
    for user, password in (
        ("ada", "Geheim"),
        ("ada", ""),
        ("ada", "geheim "),
        ("ada", "geheim:"),
        ("Ada", "geheim"),
        ("eve", "geheim"),
        ("", "geheim"),
        ("ada", f"{form}$"),
        ("ada", "gehei\u217f"),
    ):
        refusal = await refused(provider, user, password)
        assert (refusal.status, refusal.code) == (401, "invalid_credentials")


@pytest.mark.parametrize("form", [stored("geheim", 10), hash_password("geheim", "sha256-hex")])
async def test_what_is_stored_is_not_the_password(refused: Any, form: str) -> None:
    assert (await refused(Basic({"ada": form}), "ada", form)).status == 401


async def test_a_table_may_say_more_of_a_user(enter: Any) -> None:
    """R159: {password, scopes, metadata}."""
    provider = Basic({"ada": {"password": "geheim", "scopes": ["read"], "metadata": {"plan": "pro"}, "team": 7}})
    found = await enter(provider, "ada", "geheim")
    assert (found.scopes, found.metadata, found.claims) == ({"read"}, {"plan": "pro"}, {"team": 7})
    assert "geheim" not in repr(found)


async def test_names_and_passwords_may_be_of_any_script(enter: Any) -> None:
    assert (await enter(Basic({"émile": "pässwörd:ß"}), "émile", "pässwörd:ß")).subject == "émile"


async def test_who_has_no_password_is_challenged(request_with: Any) -> None:
    """R164: Basic realm charset="UTF-8"."""
    provider = Basic({"ada": "geheim"}, realm="the shop")
    for authorization in (None, "Bearer x", "Basic"):
        with pytest.raises(Refused) as caught:
            await provider.authenticate(request_with(authorization))
        assert caught.value.kind == "missing"
        assert dict(caught.value.headers)["www-authenticate"] == 'Basic realm="the shop", charset="UTF-8"'
    assert Basic({"ada": "x"}, realm=None).challenge(Refused("missing")) == 'Basic realm="mcp", charset="UTF-8"'
    with pytest.raises(Refused) as caught:
        await provider.authenticate(request_with("Basic !!!"))
    assert caught.value.status == 400
    assert provider.presents(request_with("basic x"))
    assert not provider.presents(request_with("Bearer x"))


# --- what a guess costs ----------------------------------------------------------------------------------------------


async def test_a_guess_costs_the_same_for_everyone_there_and_not(refused: Any, rounds: list[int]) -> None:
    """R159: an unknown user costs what a known one does; so does one whose password is stored more cheaply."""
    provider = Basic(
        {
            "dear": stored("geheim", 50),
            "cheap": stored("geheim", 20),
            "legacy": hash_password("geheim", "sha256-hex"),
            "plain": "geheim",
        }
    )
    for user in ("dear", "cheap", "legacy", "plain", "nobody", "", "x" * 1000):
        rounds.clear()
        await refused(provider, user, "falsch")
        assert sum(rounds) == 50, user


async def test_a_right_password_costs_no_less_than_a_wrong_one(enter: Any, rounds: list[int]) -> None:
    provider = Basic({"dear": stored("geheim", 50), "plain": "geheim"})
    for user in ("dear", "plain"):
        rounds.clear()
        await enter(provider, user, "geheim")
        assert sum(rounds) == 50


async def test_passwords_are_derived_in_a_thread(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def derive(password: str, salt: bytes, iterations: int) -> bytes:
        seen.append(threading.current_thread() is threading.main_thread())
        return bytes(32)

    monkeypatch.setattr(hashes, "derive", derive)
    monkeypatch.setattr(basic, "derive", derive)
    await refused(Basic({"ada": stored("geheim", 10)}), "ada", "falsch")
    await refused(Basic({"ada": stored("geheim", 10)}), "nobody", "falsch")
    assert seen == [False, False]


async def test_guesses_that_wait_are_bounded(enter: Any, refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_places", threading.BoundedSemaphore(3))
    gate = threading.Event()

    def derive(password: str, salt: bytes, iterations: int) -> bytes:
        gate.wait(5)
        return bytes(32)

    monkeypatch.setattr(hashes, "derive", derive)
    door = Basic({"ada": stored("geheim", 10)})
    waiting = [asyncio.create_task(refused(door, "ada", f"falsch{number}")) for number in range(3)]
    await asyncio.sleep(0)
    refusal = await refused(door, "ada", "falsch")
    assert (refusal.status, dict(refusal.headers)["retry-after"]) == (429, "5")
    gate.set()
    async with asyncio.timeout(PATIENCE):
        assert {refusal.status for refusal in await asyncio.gather(*waiting)} == {401}
    assert (await refused(door, "ada", "falsch")).status == 401


async def test_every_comparison_is_in_constant_time(enter: Any, refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """R161: also of a password in the clear, and of texts of one length."""
    seen: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        seen.append((a, b))
        return a == b

    monkeypatch.setattr(basic.hmac, "compare_digest", compare)
    provider = Basic({"ada": "geheim"})
    await refused(provider, "ada", "x")
    await refused(provider, "nobody", "x")
    await enter(provider, "ada", "geheim")
    assert len(seen) == 3
    assert all(len(a) == len(b) == 32 for a, b in seen)


# --- memory ----------------------------------------------------------------------------------------------------------


async def test_who_was_let_in_is_known_again_for_a_minute(
    enter: Any, refused: Any, rounds: list[int], clock: Any
) -> None:
    provider = Basic({"ada": stored("geheim", 10)}, clock=clock)
    await enter(provider, "ada", "geheim")
    await enter(provider, "ada", "geheim")
    assert sum(rounds) == 10
    await refused(provider, "ada", "falsch")
    await refused(provider, "ada", "falsch")
    assert sum(rounds) == 30
    clock.now += 60
    await enter(provider, "ada", "geheim")
    assert sum(rounds) == 40


async def test_user_and_password_are_not_mixed_up_in_memory(enter: Any, refused: Any) -> None:
    provider = Basic({"a": "bc", "ab": "other"})
    await enter(provider, "a", "bc")
    await refused(provider, "ab", "c")
    assert b"bc" not in b"".join(provider._memory._known)
    assert provider._memory.keyed_digest("a", "bc") != Basic({"a": "bc"})._memory.keyed_digest("a", "bc")


async def test_remembering_can_be_turned_off(enter: Any, rounds: list[int]) -> None:
    provider = Basic({"ada": stored("geheim", 10)}, remember=0)
    await enter(provider, "ada", "geheim")
    await enter(provider, "ada", "geheim")
    assert sum(rounds) == 20


async def test_a_legacy_password_is_warned_about(enter: Any, caplog: pytest.LogCaptureFixture) -> None:
    """R160."""
    await enter(Basic({"ada": hash_password("geheim", "sha256-hex")}), "ada", "geheim")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "deprecated" in caplog.text


# --- verifiers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [True, {"scopes": ["read"]}, {"subject": "ada"}, Principal(), Principal(subject="ada")]
)
async def test_a_function_may_know_the_users(enter: Any, answer: Any) -> None:
    """R159: verifier(user, password), asked every time."""
    asked: list[tuple[str, str]] = []

    def verifier(user: str, password: str) -> Any:
        asked.append((user, password))
        return answer

    provider = Basic(verifier=verifier)
    for _ in range(2):
        assert (await enter(provider, "ada", "ge:heim")).subject == "ada"
    assert asked == [("ada", "ge:heim")] * 2
    provider = Basic(verifier=verifier, remember=5)
    for _ in range(2):
        await enter(provider, "ada", "ge:heim")
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("answer", "status"), [(None, 401), (False, 401), ("reason", 401), (7, 500), ({"scopes": 7}, 500)]
)
async def test_what_a_function_does_not_clearly_allow_is_refused(refused: Any, answer: Any, status: int) -> None:
    assert (await refused(Basic(verifier=lambda _user, _password: answer), "ada", "x")).status == status


async def test_a_function_that_fails_is_our_fault(refused: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def verifier(user: str, password: str) -> Any:
        raise RuntimeError(f"{user} {password}")

    assert (await refused(Basic(verifier=verifier), "ada", "geheim")).status == 500
    assert "geheim" not in caplog.text


async def test_a_user_may_expire(enter: Any, refused: Any, clock: Any) -> None:
    provider = Basic({"ada": {"password": "geheim", "expires_at": clock.now + 10}}, clock=clock)
    await enter(provider, "ada", "geheim")
    clock.now += 10
    assert (await refused(provider, "ada", "geheim")).kind == "invalid_credentials"


async def test_scopes_are_demanded_of_users_too(refused: Any) -> None:
    """R154."""
    assert (await refused(Basic({"ada": "x"}, required_scopes=["read"]), "ada", "x")).status == 403


async def test_the_form_of_passwords_can_be_said(enter: Any, refused: Any) -> None:
    digits = hash_password("geheim", "sha256-hex")
    assert await enter(Basic({"ada": digits}), "ada", "geheim")
    plain = Basic({"ada": digits}, hash_passwords=False)
    assert await enter(plain, "ada", digits)
    await refused(plain, "ada", "geheim")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "one of credentials= and verifier="),
        ({"credentials": {"ada": "x"}, "verifier": print}, "one of credentials= and verifier="),
        ({"credentials": {}}, "credentials must not be empty"),
        ({"credentials": [("ada", "x")]}, "not list"),
        ({"credentials": {"a:b": "geheim"}}, "without a colon"),
        ({"credentials": {"": "geheim"}}, "without a colon"),
        ({"credentials": {"a\n": "geheim"}}, "without a colon"),
        ({"credentials": {7: "geheim"}}, "without a colon"),
        ({"credentials": {"ada": ""}}, "ada has no password"),
        ({"credentials": {"ada": None}}, "ada has no password"),
        ({"credentials": {"ada": {}}}, "ada has no password"),
        ({"credentials": {"ada": {"password": "geheim", "scopes": 7}}}, "credentials: ada"),
        ({"credentials": {"ada": "pbkdf2-sha256$geheim"}}, "the password of ada is not a hash"),
        ({"credentials": {"ada": "geheim"}, "hash_passwords": True}, "the password of ada is not a hash"),
        ({"verifier": 7}, "verifier is a function"),
        ({"credentials": {"ada": "geheim"}, "realm": "\r\n"}, "realm"),
    ],
)
def test_what_cannot_work_is_said_at_once_and_no_password_is_quoted(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Basic(**options)
    assert "geheim" not in str(caught.value)
