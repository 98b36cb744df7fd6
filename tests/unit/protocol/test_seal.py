"""Sealed state: what was sealed opens for the same call in time, and nothing else opens at all."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from trimaran.errors import ConfigError, Error, StateRejected
from trimaran.protocol.seal import MAX_PAYLOAD_BYTES, Sealer

KEY = b"a passphrase of some length"
OLD = b"the key of last month, retired"
NOT_VALID = r"^the state is not valid for this call$"


def counting_random() -> object:
    state = 0

    def random(count: int) -> bytes:
        nonlocal state
        state += 1
        return state.to_bytes(count, "big")

    return random


def sealer(*keys: bytes, **options: int) -> Sealer:
    return Sealer(keys or (KEY,), random=os.urandom, **options)


def seal(by: Sealer, payload: bytes = b"payload", *, expires_at: float = 100.0) -> str:
    return by.seal(payload, purpose=b"journal", binding=b"alice|tools/call|abc", expires_at=expires_at)


def unseal(by: Sealer, text: str, *, now: float = 50.0) -> bytes:
    return by.open(text, purpose=b"journal", binding=b"alice|tools/call|abc", now=now)


@pytest.mark.parametrize(
    "payload", [b"", b"x", b"short", os.urandom(63), os.urandom(5000), b"a" * 64, b"a" * MAX_PAYLOAD_BYTES], ids=len
)
def test_what_was_sealed_opens(payload: bytes) -> None:
    by = sealer()
    assert unseal(by, seal(by, payload)) == payload


def test_the_text_is_url_safe_ascii_and_never_twice_the_same() -> None:
    by = sealer()
    one, two = seal(by), seal(by)
    assert one != two
    assert re.fullmatch(r"t1\.[A-Za-z0-9_-]{8}\.[A-Za-z0-9_-]+", one)


def test_the_payload_is_hidden_and_compressed_when_that_is_shorter() -> None:
    text = seal(sealer(), b"secret " * 1000)
    assert len(text) < 300
    assert "secret" not in text


def test_randomness_is_the_one_passed_in() -> None:
    one = Sealer([KEY], random=counting_random())  # pyright: ignore[reportArgumentType]
    two = Sealer([KEY], random=counting_random())  # pyright: ignore[reportArgumentType]
    assert seal(one) == seal(two)


def test_the_first_key_seals_and_every_key_opens() -> None:
    old, rotating, new = sealer(OLD), sealer(KEY, OLD), sealer(KEY)
    assert unseal(rotating, seal(old)) == b"payload"
    assert unseal(new, seal(rotating)) == b"payload"
    with pytest.raises(StateRejected, match=NOT_VALID):
        unseal(new, seal(old))
    with pytest.raises(StateRejected, match=NOT_VALID):
        unseal(old, seal(rotating))


def test_a_state_altered_at_any_character_is_refused() -> None:
    by = sealer(KEY, OLD)
    text = seal(by)
    for index, character in enumerate(text):
        for other in {"A", "B", "-", "_", ".", "=", "+", "é", "\0", " ", "\n"} - {character}:
            with pytest.raises(StateRejected, match=NOT_VALID):
                unseal(by, text[:index] + other + text[index + 1 :])


def test_every_other_last_character_is_refused() -> None:
    """The last character has bits that base64 ignores."""
    by = sealer()
    for payload in (b"1", b"12", b"123"):
        text = seal(by, payload)
        for code in range(33, 127):
            if chr(code) != text[-1]:
                with pytest.raises(StateRejected, match=NOT_VALID):
                    unseal(by, text[:-1] + chr(code))


def test_a_state_cut_or_extended_anywhere_is_refused() -> None:
    by = sealer()
    text = seal(by)
    for cut in range(len(text)):
        with pytest.raises(StateRejected, match=NOT_VALID):
            unseal(by, text[:cut])
        with pytest.raises(StateRejected, match=NOT_VALID):
            unseal(by, text[:cut] + "A" + text[cut:])
    for tail in ("A", "=", "==", " ", "\n", "AAAA"):
        with pytest.raises(StateRejected, match=NOT_VALID):
            unseal(by, text + tail)


@pytest.mark.parametrize(
    "text", ["", ".", "..", "t1", "t1..", "t2.x.y", "\ud800", "t1.\ud800.\ud800", "é" * 100], ids=ascii
)
def test_what_was_never_sealed_is_refused(text: str) -> None:
    with pytest.raises(StateRejected, match=NOT_VALID):
        unseal(sealer(), text)


@pytest.mark.parametrize(
    ("purpose", "binding"),
    [
        (b"journal", b"bob|tools/call|abc"),
        (b"task", b"alice|tools/call|abc"),
        (b"", b"journalalice|tools/call|abc"),
        (b"journala", b"lice|tools/call|abc"),
        (b"journal", b""),
    ],
)
def test_a_state_made_for_another_call_is_refused(purpose: bytes, binding: bytes) -> None:
    by = sealer()
    with pytest.raises(StateRejected, match=NOT_VALID):
        by.open(seal(by), purpose=purpose, binding=binding, now=50.0)


@pytest.mark.parametrize(
    ("now", "expires_at"), [(100.0, 100.0), (101.0, 100.0), (0.0, float("nan")), (float("nan"), 1.0)]
)
def test_a_state_whose_time_is_over_says_so(now: float, expires_at: float) -> None:
    by = sealer()
    with pytest.raises(StateRejected, match="has expired"):
        unseal(by, seal(by, expires_at=expires_at), now=now)


def test_a_forged_state_is_not_told_to_be_expired() -> None:
    by = sealer()
    text = seal(by)
    with pytest.raises(StateRejected, match=NOT_VALID):
        by.open(text, purpose=b"journal", binding=b"bob", now=1000.0)


def test_a_text_over_the_limit_is_neither_made_nor_looked_at() -> None:
    with pytest.raises(Error, match="too large to travel; the limit is 200"):
        seal(sealer(max_text=200), os.urandom(200))
    with pytest.raises(StateRejected, match=NOT_VALID):
        unseal(sealer(max_text=20), seal(sealer()))
    with pytest.raises(StateRejected, match=NOT_VALID):
        unseal(sealer(), "t1." + "A" * 10_000_000)


def test_a_payload_that_could_not_be_opened_again_is_not_sealed() -> None:
    with pytest.raises(Error, match="too large to seal"):
        seal(sealer(), b"a" * (MAX_PAYLOAD_BYTES + 1))


def test_a_genuine_text_that_inflates_past_the_bound_or_not_at_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import zlib

    by = sealer()
    bomb = zlib.compress(b"a" * (MAX_PAYLOAD_BYTES + 1))
    for fake in (bomb, b"not deflated", b""):
        monkeypatch.setattr(zlib, "compress", lambda payload, fake=fake: fake)
        text = seal(by, b"x" * 5000)
        with pytest.raises(StateRejected, match=NOT_VALID):
            unseal(by, text)


def test_a_sealer_needs_a_key_of_some_length() -> None:
    with pytest.raises(ConfigError, match="at least one key"):
        Sealer([], random=os.urandom)
    with pytest.raises(ConfigError, match="at least 16 bytes"):
        sealer(KEY, b"short")


def test_importing_and_making_a_sealer_does_not_import_cryptography() -> None:
    code = (
        "import sys; from trimaran.protocol.seal import Sealer; Sealer([b'k' * 16], random=bytes);"
        "assert not any(name.startswith('cryptography') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
