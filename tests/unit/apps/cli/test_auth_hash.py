"""`trimaran auth hash`: stored forms that the providers accept, of secrets that nobody sees (R158-R161)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import subprocess
import sys
from typing import Any

import pytest

from trimaran.auth import verify_key, verify_password

from .harness import AtTerminal, Done, run_cli

Capsys = pytest.CaptureFixture[str]
KEY = "a-key-of-decent-length"


@pytest.fixture(autouse=True)
def no_pepper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIMARAN_API_KEY_PEPPER", raising=False)


def piped(capsys: Capsys, monkeypatch: pytest.MonkeyPatch, text: bytes, *words: str) -> Done:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    return run_cli(capsys, "auth", "hash", *words)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_key_from_a_pipe_is_hashed_without_its_line_end(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    done = piped(capsys, monkeypatch, KEY.encode() + end)
    assert (done.code, done.err) == (0, "")
    assert done.out == hashlib.sha256(KEY.encode()).hexdigest() + "\n"


@pytest.mark.parametrize("words", [[], ["--pepper-env", "TRIMARAN_API_KEY_PEPPER"], ["--key"]], ids=" ".join)
def test_a_key_with_a_pepper_is_an_hmac(capsys: Capsys, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setenv("TRIMARAN_API_KEY_PEPPER", "salt and pepper")
    done = piped(capsys, monkeypatch, KEY.encode(), *words)
    made = base64.b64encode(hmac.digest(b"salt and pepper", KEY.encode(), "sha256")).decode()
    assert done.out == f"hmac-sha256${made}\n"
    assert verify_key(KEY, done.out.strip(), "salt and pepper")
    assert "pepper" not in done.out


def test_a_password_gets_a_salt_and_the_rounds_asked_for(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(capsys, monkeypatch, b"s3cret\n", "--password", "--iterations", "100001")
    assert done.out.startswith("pbkdf2-sha256$100001$")
    assert verify_password("s3cret", done.out.strip())
    assert piped(capsys, monkeypatch, b"s3cret\n", "--password", "--iterations", "100001").out != done.out


def test_a_password_of_an_old_store_can_be_made(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(capsys, monkeypatch, b"s3cret", "--password", "--algorithm", "sha256-hex")
    assert done.out == hashlib.sha256(b"s3cret").hexdigest() + "\n"


def test_a_generated_key_is_shown_once_beside_the_output(capsys: Capsys) -> None:
    """So that `>> keys.txt` takes the stored form and not the key."""
    done = run_cli(capsys, "auth", "hash", "--generate")
    key = done.err.strip().splitlines()[-1]
    assert len(key) >= 43
    assert verify_key(key, done.out.strip())
    assert key not in done.out
    assert run_cli(capsys, "auth", "hash", "--generate").out != done.out


def test_a_short_key_is_warned_of_and_not_quoted(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(capsys, monkeypatch, b"hunter2")
    assert done.code == 0
    assert "can be guessed" in done.err
    assert "hunter2" not in done.err


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (b"", [], "no secret"),
        (b"\n", [], "no secret"),
        (b"one\ntwo\n", [], "more than one line"),
        (b"s3cret\xff", [], "not text"),
        (b"x" * 70_000, [], "more than one line"),
        (b"x", ["--password", "--generate"], "--generate goes with --key"),
        (b"x", ["--password", "--pepper-env", "X"], "--pepper-env goes with --key"),
        (b"x", ["--iterations", "200000"], "--iterations goes with --password"),
        (b"x", ["--algorithm", "sha256-hex"], "--algorithm goes with --password"),
        (b"x", ["--password", "--iterations", "10"], "--iterations"),
        (b"x", ["--pepper-env", "NOT_SET"], "not set"),
        (b"x", ["s3cret"], "unexpected extra argument"),
    ],
    ids=[
        "empty",
        "line",
        "lines",
        "bytes",
        "long",
        "generate",
        "pepper",
        "rounds",
        "algorithm",
        "few",
        "unset",
        "argv",
    ],
)
def test_what_cannot_be_hashed_is_refused(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch, text: bytes, words: list[str], said: str
) -> None:
    done = piped(capsys, monkeypatch, text, *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.slow
def test_at_a_terminal_a_secret_is_typed_twice_and_never_seen() -> None:
    with AtTerminal("auth", "hash") as terminal:
        terminal.answer("API key: ", KEY)
        terminal.answer("once more: ", KEY)
        assert terminal.end() == 0
        assert KEY not in terminal.seen
        assert hashlib.sha256(KEY.encode()).hexdigest() in terminal.seen


@pytest.mark.slow
def test_two_different_secrets_make_nothing() -> None:
    with AtTerminal("auth", "hash", "--password") as terminal:
        terminal.answer("Password: ", "one")
        terminal.answer("once more: ", "two")
        assert terminal.end() == 2
        assert "the two secrets differ" in terminal.seen


def test_hashing_loads_no_client_and_no_http_library() -> None:
    probe = (
        "import sys, trimaran.apps.cli.auth.hash as h; sys.argv = ['x']; h.command.main(['--generate'], standalone_mode=False); "
        "print(*(m for m in ('aiohttp', 'keyring', 'rich', 'trimaran.client', 'trimaran.state') if m in sys.modules))"
    )
    done: Any = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, text=True, timeout=25)
    assert done.stdout.splitlines()[1:] in ([], [""]), done.stdout
