"""`trimaran serve --auth`: a provider from one word, and what each wrong word is told."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.ports import find_port

from trimaran.apps.cli.load import load, parse
from trimaran.apps.cli.serve_auth import provider, read_keys
from trimaran.auth import hash_key
from trimaran.auth.apikey import ApiKey
from trimaran.auth.bearer import Bearer
from trimaran.auth.resource import ProtectedResource
from trimaran.errors import ConfigError

from .conftest import BOAT, META, MODERN, Spawn

KEY = "a-key-of-decent-length"
Run = Callable[..., CompletedProcess[str]]


@pytest.fixture(autouse=True)
def no_pepper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIMARAN_API_KEY_PEPPER", raising=False)


@pytest.fixture
def guarded(tmp_path: Path) -> Path:
    path = tmp_path / "guarded_boat.py"
    path.write_text(
        BOAT
        + f"""
from trimaran.auth.apikey import ApiKey

auth = ApiKey([{KEY!r}])
number = 1


class inner:
    keys = auth
"""
    )
    return path


def refusal(spec: str, served: Path, audience: str | None = None) -> str:
    target = parse(str(served))
    load(target)
    with pytest.raises(ConfigError) as caught:
        provider(spec, audience, target)
    assert KEY not in str(caught.value)
    return str(caught.value)


def who(found: Any, **headers: str) -> Any:
    return asyncio.run(found.authenticate(SimpleNamespace(headers=headers, method="POST", path="/mcp")))


# A provider by name


@pytest.mark.parametrize("name", ["auth", "inner.keys"])
def test_a_name_is_a_provider_of_the_served_file_which_is_imported_once(guarded: Path, name: str) -> None:
    target = parse(str(guarded))
    load(target)
    found = provider(name, None, target)
    assert isinstance(found, ApiKey)
    assert found is provider("auth", None, target)


def test_a_provider_may_live_in_another_file(guarded: Path, boat: Path) -> None:
    assert isinstance(provider(f"{guarded}:auth", None, parse(str(boat))), ApiKey)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("aut", "did you mean auth?"),
        ("number", "is a int, not a provider"),
        ("ApiKey", "is a class: write auth = ApiKey(...)"),
        ("inner.nothing", "has no 'inner.nothing'"),
        ("no/such.py:auth", "there is no file"),
        ("{guarded}", "say which of its names"),
        ("apikeys:", "names no file"),
        ("jwt:", "names no issuer"),
        ("jwt:https://login.example", "needs --audience"),
    ],
    ids=["near", "kind", "class", "inner", "file", "whole", "keys", "issuer", "audience"],
)
def test_what_is_no_provider_is_refused_with_what_would_be(guarded: Path, spec: str, said: str) -> None:
    assert said in refusal(spec.replace("{guarded}", str(guarded)), guarded)


def test_a_file_without_any_provider_is_told_how_to_make_one(boat: Path) -> None:
    assert "write auth = ApiKey" in refusal("auth", boat)


def test_a_provider_that_nobody_uses_keeps_the_server_from_starting(
    trimaran: Run, guarded: Path, free_port: int
) -> None:
    """`python boat.py` would have asked for a key; to serve without one in silence would open the door."""
    done = trimaran("serve", str(guarded), "--http", "--port", str(free_port))
    assert done.returncode != 0
    assert "--auth auth" in done.stderr
    assert "--auth none" in done.stderr
    assert provider("none", None, parse(str(guarded))) is None


def test_an_audience_goes_with_an_issuer_only(guarded: Path) -> None:
    assert "--audience goes with --auth jwt:ISSUER" in refusal("auth", guarded, "https://boats.example/mcp")


# Keys in a file


def test_the_keys_of_a_file_let_in_those_who_have_them(
    tmp_path: Path, boat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMARAN_API_KEY_PEPPER", "pepper")
    path = tmp_path / "keys.txt"
    path.write_text(
        f"# the fleet\n\n{hash_key(KEY, 'pepper')} tern read write  # captain\n{hash_key('another-key-of-mine')}\n"
    )
    found = provider(f"apikeys:{path}", None, parse(str(boat)))
    tern = who(found, **{"x-api-key": KEY})
    assert (tern.subject, tern.scopes) == ("tern", {"read", "write"})
    other = who(found, **{"x-api-key": "another-key-of-mine"})
    assert other.subject
    assert other.scopes == set()
    with pytest.raises(Exception, match="invalid_credentials|credential"):
        who(found, **{"x-api-key": "wrong"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no key"),
        ("# nothing\n", "holds no key"),
        (f"\n{KEY} tern\n", "line 2"),
        (f"{hash_key(KEY)}\n{hash_key(KEY)} tern\n", "line 2"),
        (f"{hash_key(KEY, 'pepper')}\n", "set TRIMARAN_API_KEY_PEPPER"),
        (None, "cannot be read"),
        (b"\xff", "not UTF-8"),
    ],
    ids=["empty", "comments", "key itself", "twice", "pepper", "missing", "bytes"],
)
def test_a_file_of_keys_that_cannot_work_is_refused_without_quoting_it(
    tmp_path: Path, text: str | bytes | None, said: str
) -> None:
    path = tmp_path / "keys.txt"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        read_keys(path)
    assert said in str(caught.value)
    assert KEY not in str(caught.value)


# An issuer


def test_an_issuer_with_a_url_for_audience_makes_a_protected_resource(boat: Path) -> None:
    url = "https://boats.example/mcp"
    found = provider("jwt:https://login.example", url, parse(str(boat)))
    assert isinstance(found, ProtectedResource)
    assert found.resource == url
    assert "/.well-known/oauth-protected-resource/mcp" in found.documents()


def test_an_issuer_with_another_audience_makes_a_bearer(boat: Path) -> None:
    assert isinstance(provider("jwt:https://login.example", "boats", parse(str(boat))), Bearer)


def test_an_issuer_that_is_not_safe_is_refused(boat: Path) -> None:
    with pytest.raises(ConfigError):
        provider("jwt:http://login.example", "https://boats.example/mcp", parse(str(boat)))


# The command


def ask(port: int, **headers: str) -> int:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/mcp",
        json.dumps(message).encode(),
        {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/list",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.slow
@pytest.mark.parametrize("reload", [[], ["--reload"]], ids=["plain", "reload"])
def test_a_server_with_keys_lets_in_only_those_who_have_one(
    spawn: Spawn, boat: Path, tmp_path: Path, free_port: int, reload: list[str]
) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text(f"{hash_key(KEY)} tern\n")
    child = spawn("serve", str(boat), "--auth", f"apikeys:{keys}", "--port", str(free_port), *reload)
    child.wait_stderr("is served at")
    assert ask(free_port) == 401
    assert ask(free_port, X_API_Key="wrong") == 401
    assert ask(free_port, X_API_Key=KEY) == 200


@pytest.mark.slow
def test_auth_alone_means_http(spawn: Spawn, guarded: Path, free_port: int) -> None:
    child = spawn("serve", str(guarded), "--auth", "auth", "--port", str(free_port))
    child.wait_stderr("is served at")
    assert ask(free_port) == 401
    assert ask(free_port, X_API_Key=KEY) == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--stdio", "--auth", "auth"], "--auth is an option of HTTP"),
        (["--http", "--audience", "a"], "--audience goes with"),
        (["--auth", "nothing"], "has no 'nothing'"),
        (["--auth", "apikeys:nowhere.txt"], "cannot be read"),
    ],
    ids=["stdio", "audience", "name", "keys"],
)
def test_a_server_with_an_impossible_auth_does_not_start(
    trimaran: Run, guarded: Path, words: list[str], said: str
) -> None:
    """R166."""
    done = trimaran("serve", str(guarded), *words)
    assert done.returncode != 0
    assert said in done.stderr
    assert "is served at" not in done.stderr


@pytest.mark.slow
def test_an_issuer_that_is_away_at_the_start_is_told_and_nobody_gets_in(
    spawn: Spawn, boat: Path, free_port: int
) -> None:
    issuer = f"http://127.0.0.1:{find_port()}"
    auth = ("--auth", f"jwt:{issuer}", "--audience", f"http://127.0.0.1:{free_port}/mcp")
    child = spawn("serve", str(boat), "--port", str(free_port), *auth)
    child.wait_stderr("tokens are refused with 503 until they can")
    child.wait_stderr("is served at")
    claims = {"iss": issuer, "sub": "ada", "aud": auth[3], "exp": 2**33}
    parts = ({"alg": "ES256", "typ": "at+jwt"}, claims, "signature")
    token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    assert ask(free_port) == 401
    assert ask(free_port, Authorization=f"Bearer {token}") == 503
