"""`trimaran auth login|logout|list`, and the commands that use what they keep, against a scripted authorization server."""

from __future__ import annotations

import asyncio
import http.server
import json
import stat
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest

from trimaran.apps.cli.auth.stored import expiry_in_words
from trimaran.oauth import ClientInfo, Credentials, ServerMetadata
from trimaran.state import FileTokens, token_key

from .conftest import Spawn
from .harness import HARBOUR, Done, plain, run_cli

Capsys = pytest.CaptureFixture[str]
MODERN = "2026-07-28"
SECRETS = ("access-", "refresh-", "code-", "client-s3cret")


class Harbourmaster:
    """An MCP server and the authorization server that guards it, on one loopback port."""

    def __init__(self) -> None:
        self.base = ""
        self.is_open = False
        self.denies = False
        self.revokes = True
        self.expires_in = 3600
        self.good: set[str] = set()
        self.refreshers: set[str] = set()
        self.revoked: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.clients = 0
        self._count = 0

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    @property
    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": f"{self.base}/login",
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "registration_endpoint": f"{self.base}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            **({"revocation_endpoint": f"{self.base}/revoke"} if self.revokes else {}),
        }

    def answer(self, verb: str, target: str, headers: Any, body: bytes) -> tuple[int, Any, dict[str, str]]:
        parts = urlsplit(target)
        match verb, parts.path:
            case "POST", "/mcp":
                return self._mcp(headers.get("Authorization", ""), json.loads(body))
            case "GET", "/.well-known/oauth-protected-resource/mcp":
                about = {"resource": self.url, "authorization_servers": [f"{self.base}/login"]}
                return 200, {**about, "scopes_supported": ["berth", "tide"]}, {}
            case "GET", "/.well-known/oauth-authorization-server/login":
                return 200, self.metadata, {}
            case "POST", "/register":
                self.clients += 1
                return 201, {**json.loads(body), "client_id": f"client-{self.clients}"}, {}
            case "GET", "/authorize":
                return self._authorize({name: values[0] for name, values in parse_qs(parts.query).items()})
            case "POST", "/token":
                return self._token({name: values[0] for name, values in parse_qs(body.decode()).items()})
            case "POST", "/revoke":
                self.revoked.append(parse_qs(body.decode())["token"][0])
                return 200, {}, {}
            case _:
                return 404, {}, {}

    def _mcp(self, authorization: str, message: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        if not self.is_open and authorization.removeprefix("Bearer ") not in self.good:
            metadata = f"{self.base}/.well-known/oauth-protected-resource/mcp"
            return 401, {}, {"WWW-Authenticate": f'Bearer resource_metadata="{metadata}"'}
        result: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if message["method"] == "server/discover":
            result |= {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
        else:
            result |= {"tools": [{"name": "moor", "inputSchema": {"type": "object"}}]}
        return 200, {"jsonrpc": "2.0", "id": message.get("id"), "result": result}, {}

    def _authorize(self, asked: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        self.forms.append(asked)
        answer = {"error": "access_denied"} if self.denies else {"code": "code-1"}
        back = urlencode({**answer, "state": asked["state"]})
        return 302, {}, {"Location": f"{asked['redirect_uri']}?{back}"}

    def _token(self, form: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        self.forms.append(form)
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self.refreshers:
                return 400, {"error": "invalid_grant"}, {}
            self.refreshers.discard(form["refresh_token"])
        self._count += 1
        self.good = {f"access-{self._count}"}
        self.refreshers.add(f"refresh-{self._count}")
        reply = {
            "access_token": f"access-{self._count}",
            "refresh_token": f"refresh-{self._count}",
            "token_type": "Bearer",
            "expires_in": self.expires_in,
        }
        return 200, reply, {}


@pytest.fixture
def harbour() -> Iterator[Harbourmaster]:
    master = Harbourmaster()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, found, headers = master.answer(self.command, self.path, self.headers, body)
            data = json.dumps(found).encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_DELETE = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        master.base = f"http://127.0.0.1:{server.server_port}"
        try:
            yield master
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileTokens:
    """The store that the commands use: none of this machine's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setitem(sys.modules, "keyring", None)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")  # for child processes
    for name in ("TRIMARAN_TOKEN", "TRIMARAN_MCP_OAUTH_PORT", "TRIMARAN_ALLOW_PRIVATE"):
        monkeypatch.delenv(name, raising=False)
    return FileTokens()


def log_in(spawn: Spawn, harbour: Harbourmaster, *words: str) -> Done:
    """`trimaran auth login` with a browser that says yes to everything."""
    child = spawn("auth", "login", *(words or (harbour.url,)), "--no-browser")
    page = child.wait_stderr("/authorize?").strip()
    urllib.request.urlopen(page, timeout=10).close()
    code = child.wait()
    return Done(code, "".join(child.rest()), child.all_stderr())


def keep(store: FileTokens, harbour: Harbourmaster, name: str = "", **fields: Any) -> Credentials:
    """A login as an earlier run left it."""
    name = name or urlsplit(harbour.url).netloc
    issuer = f"{harbour.base}/login"
    made = Credentials(
        **{
            "server_url": harbour.url,
            "name": name,
            "resource": harbour.url,
            "issuer": issuer,
            "access_token": "access-kept",
            "refresh_token": "refresh-kept",
            "expires_at": time.time() + 3600,
            "scopes": ("berth",),
            "metadata": msgspec.convert(harbour.metadata, ServerMetadata),
            "clients": {issuer: ClientInfo(client_id="client-0", client_secret="client-s3cret")},
            **fields,
        }
    )
    harbour.good.add("access-kept")
    harbour.refreshers.add("refresh-kept")
    asyncio.run(store.save(token_key(name, harbour.url), made.to_bytes()))
    return made


def kept(store: FileTokens, harbour: Harbourmaster, name: str = "") -> Credentials | None:
    record = asyncio.run(store.load(token_key(name or urlsplit(harbour.url).netloc, harbour.url)))
    return None if record is None else Credentials.from_bytes(record)


def tells_no_secret(*texts: str) -> bool:
    return not any(secret in text for secret in SECRETS for text in texts)


# login


def test_a_login_is_kept_and_used_by_the_next_command(
    capsys: Capsys, spawn: Spawn, harbour: Harbourmaster, store: FileTokens
) -> None:
    done = log_in(spawn, harbour)
    assert done.code == 0, done.err
    said = plain(done.out)
    assert f"Logged in to {harbour.url}" in said
    assert f"issuer {harbour.base}/login" in said
    assert "scopes berth tide" in said
    assert "refreshed without you" in said
    assert str(store.path) in done.out.replace("\n", "").replace(" ", "")
    assert tells_no_secret(done.out, done.err)
    assert "no keyring" in done.err
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    listed = run_cli(capsys, "list", harbour.url)
    assert listed.code == 0, listed.err
    assert "moor" in listed.out
    assert listed.err == "", "the warning is for those who log in"


def test_the_login_asks_for_what_it_was_told_to(spawn: Spawn, harbour: Harbourmaster, free_port: int) -> None:
    done = log_in(spawn, harbour, harbour.url, "--scope", "a", "--scope", "b c", "--port", str(free_port))
    assert done.code == 0, done.err
    asked, form = harbour.forms
    assert asked["scope"] == "a b c"
    assert asked["redirect_uri"] == f"http://127.0.0.1:{free_port}/callback"
    assert form["client_id"] == "client-1"


def test_a_client_registered_beforehand_shows_its_secret_from_the_environment(
    spawn: Spawn, harbour: Harbourmaster, monkeypatch: pytest.MonkeyPatch, store: FileTokens
) -> None:
    monkeypatch.setenv("BOAT_SECRET", "client-s3cret")
    done = log_in(spawn, harbour, harbour.url, "--client-id", "boat", "--client-secret-env", "BOAT_SECRET")
    assert done.code == 0, done.err
    assert harbour.forms[0]["client_id"] == "boat"
    assert harbour.clients == 0
    made = kept(store, harbour)
    assert made is not None
    assert made.client is not None
    assert made.client.client_secret == "client-s3cret"
    assert tells_no_secret(done.out, done.err)


def test_a_server_that_wants_no_login_is_told_apart(capsys: Capsys, harbour: Harbourmaster, store: FileTokens) -> None:
    harbour.is_open = True
    done = run_cli(capsys, "auth", "login", harbour.url, "--no-browser")
    assert done.code == 0, done.err
    assert "none is needed" in plain(done.out)
    assert asyncio.run(store.keys()) == []


def test_a_new_login_takes_the_place_of_the_old_one(spawn: Spawn, harbour: Harbourmaster, store: FileTokens) -> None:
    """A login that still works is no reason not to make another: with other scopes, or as somebody else."""
    keep(store, harbour)
    assert log_in(spawn, harbour).code == 0
    made = kept(store, harbour)
    assert made is not None
    assert made.access_token == "access-1"


def test_a_login_that_fails_leaves_the_old_one(spawn: Spawn, harbour: Harbourmaster, store: FileTokens) -> None:
    keep(store, harbour)
    harbour.denies = True
    done = log_in(spawn, harbour)
    assert done.code == 7
    assert "access_denied" in done.err
    made = kept(store, harbour)
    assert made is not None
    assert made.access_token == "access-kept"


def test_a_login_that_nobody_makes_is_given_up(capsys: Capsys, harbour: Harbourmaster) -> None:
    done = run_cli(capsys, "auth", "login", harbour.url, "--no-browser", "--timeout", "0.2")
    assert done.code == 7
    assert "within 0.2 s" in done.err


def test_a_login_can_be_interrupted(spawn: Spawn, harbour: Harbourmaster) -> None:
    child = spawn("auth", "login", harbour.url, "--no-browser")
    child.wait_stderr("Ctrl-C gives up")
    assert child.interrupt() == 130


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([HARBOUR], "a login goes with a URL"),
        (["--", "python", "boat.py"], "a login goes with a URL"),
        (["http://h/mcp", "more"], "one word too many"),
        ([], "TARGET is missing"),
        (["http://h/mcp", "--client-secret-env", "X"], "goes with --client-id"),
        (["http://h/mcp", "--client-id", "a", "--client-secret-env", "NOT_SET"], "not set"),
        (["http://h/mcp", "--client-metadata-url", "http://a"], "client_metadata_url"),
        (["http://h/mcp", "--timeout", "0"], "--timeout"),
        (["http://h/mcp", "--port", "70000"], "--port"),
    ],
    ids=["file", "command", "words", "nothing", "secret", "unset", "document", "timeout", "port"],
)
def test_a_login_that_cannot_work_is_refused_before_anything_is_asked(
    capsys: Capsys, words: list[str], said: str
) -> None:
    done = run_cli(capsys, "auth", "login", *words)
    assert done.code == 2
    assert said in done.err


def test_a_target_with_a_token_of_its_own_is_not_logged_in_to(capsys: Capsys, tmp_path: Path) -> None:
    config = tmp_path / ".mcp.json"
    config.write_text(json.dumps({"url": "http://h/mcp", "headers": {"authorization": "Bearer x"}}))
    done = run_cli(capsys, "auth", "login", str(config))
    assert done.code == 2
    assert "Authorization header of its own" in done.err


# The commands


def test_a_401_without_a_login_says_how_to_get_one(capsys: Capsys, harbour: Harbourmaster) -> None:
    done = run_cli(capsys, "list", harbour.url)
    assert (done.code, done.out) == (7, "")
    assert f"Run trimaran auth login {harbour.url}" in plain(done.err)
    assert "auth=" not in done.err


@pytest.mark.parametrize("command", [["list"], ["call", "moor"], ["read", "harbour://x"], ["prompt", "plan"]])
def test_every_command_uses_the_login(
    capsys: Capsys, harbour: Harbourmaster, store: FileTokens, command: list[str]
) -> None:
    keep(store, harbour)
    done = run_cli(capsys, command[0], harbour.url, *command[1:], "--timeout", "5")
    assert done.code != 7, done.err


def test_the_doctor_uses_the_login(capsys: Capsys, harbour: Harbourmaster, store: FileTokens) -> None:
    before = run_cli(capsys, "doctor", harbour.url, "--json", "--timeout", "5").json
    keep(store, harbour)
    done = run_cli(capsys, "doctor", harbour.url, "--json", "--timeout", "5")
    statuses = [{c["key"]: c["status"] for c in found["checks"]} for found in (before, done.json)]
    assert [s["modern"] for s in statuses] == ["skipped", "ok"]
    assert tells_no_secret(done.out, done.err)


def test_an_expired_login_is_refreshed_without_a_person_and_kept(
    capsys: Capsys, harbour: Harbourmaster, store: FileTokens
) -> None:
    keep(store, harbour, expires_at=time.time() - 5)
    done = run_cli(capsys, "list", harbour.url)
    assert done.code == 0, done.err
    made = kept(store, harbour)
    assert made is not None
    assert (made.access_token, made.refresh_token) == ("access-1", "refresh-1")
    assert harbour.forms[0]["refresh_token"] == "refresh-kept"


def test_a_login_that_has_ended_fails_at_once_with_what_to_do(
    capsys: Capsys, harbour: Harbourmaster, store: FileTokens
) -> None:
    """R254: never a browser, never a wait."""
    keep(store, harbour)
    harbour.good.clear()
    harbour.refreshers.clear()
    done = run_cli(capsys, "list", harbour.url)
    assert (done.code, done.out) == (7, "")
    assert plain(done.err).count(f"trimaran auth login {harbour.url}") == 1
    assert tells_no_secret(done.err)
    assert not any("response_type" in form for form in harbour.forms)


def test_a_token_or_a_header_of_the_command_line_comes_before_the_login(
    capsys: Capsys, harbour: Harbourmaster, store: FileTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(store, harbour, access_token="access-other", refresh_token=None)
    monkeypatch.setenv("BOAT_TOKEN", "access-kept")
    for words in (
        ["--token-env", "BOAT_TOKEN"],
        ["--bearer", "access-kept"],
        ["--header", "authorization=Bearer access-kept"],
    ):
        assert run_cli(capsys, "list", harbour.url, *words).code == 0, words
    assert run_cli(capsys, "list", harbour.url).code == 7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://h/mcp", "--token-env", "NOT_SET"], "not set"),
        (["http://h/mcp", "--token-env", "A", "--bearer", "b"], "contradict"),
        (["http://h/mcp", "--login", "A", "--bearer", "b"], "contradict"),
        (["http://h/mcp", "--login", "A"], "there is no login 'A'"),
        ([HARBOUR, "--token-env", "A"], "--token-env goes with a URL"),
        ([HARBOUR, "--login", "A"], "--login goes with a URL"),
    ],
    ids=["unset", "both", "login", "unknown", "token of a file", "login of a file"],
)
def test_credentials_that_make_no_sense_are_refused(capsys: Capsys, words: list[str], said: str) -> None:
    done = run_cli(capsys, "list", *words)
    assert done.code == 2
    assert said in plain(done.err)


def test_of_several_logins_the_one_without_a_name_or_the_named_one_is_used(
    capsys: Capsys, harbour: Harbourmaster, store: FileTokens
) -> None:
    keep(store, harbour, "captain", access_token="access-captain")
    keep(store, harbour, "mate", access_token="access-mate")
    harbour.good = {"access-mate"}
    done = run_cli(capsys, "list", harbour.url)
    assert done.code == 2
    assert "--login captain or --login mate" in done.err
    assert run_cli(capsys, "list", harbour.url, "--login", "mate").code == 0
    keep(store, harbour)
    harbour.good = {"access-kept"}
    assert run_cli(capsys, "list", harbour.url).code == 0


def test_the_login_of_another_url_is_never_sent(capsys: Capsys, harbour: Harbourmaster, store: FileTokens) -> None:
    """C33."""
    keep(store, harbour)
    done = run_cli(capsys, "list", f"{harbour.url}?x=1")
    assert done.code == 7


def test_a_store_that_cannot_be_used_is_said_and_does_no_harm_where_no_login_is_wanted(
    capsys: Capsys, harbour: Harbourmaster, store: FileTokens
) -> None:
    store.path.parent.mkdir(parents=True, mode=0o700)
    store.path.symlink_to("nowhere")
    harbour.is_open = True
    done = run_cli(capsys, "list", harbour.url)
    assert done.code == 0
    assert "symbolic link" in plain(done.err)
    assert run_cli(capsys, "list", harbour.url, "--login", "a").code == 2
    assert run_cli(capsys, "list", HARBOUR).err == "", "a command has no logins"


def test_a_record_that_cannot_be_read_is_said(capsys: Capsys, harbour: Harbourmaster, store: FileTokens) -> None:
    asyncio.run(store.save(token_key("old", harbour.url), b'{"of": "another time"}'))
    done = run_cli(capsys, "list", harbour.url)
    assert done.code == 7
    assert "cannot be read" in plain(done.err)
    assert "cannot be read" in plain(run_cli(capsys, "auth", "list").out)
    assert run_cli(capsys, "auth", "list", "--json").json == [{"name": "old", "readable": False}]
    assert run_cli(capsys, "auth", "logout", harbour.url).code == 0
    assert asyncio.run(store.keys()) == []


def test_who_never_logged_in_pays_for_no_keyring(
    capsys: Capsys, harbour: Harbourmaster, store: FileTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose rule: ours. With a store in use, the keyring is looked at."""
    looked: list[str] = []

    class Finder:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "keyring":
                looked.append(name)

    monkeypatch.delitem(sys.modules, "keyring")
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    harbour.is_open = True
    assert run_cli(capsys, "list", harbour.url).code == 0
    assert looked == []
    keep(store, harbour)
    assert run_cli(capsys, "list", harbour.url).code == 0
    assert looked != []


# list and logout


def test_the_list_says_everything_but_the_tokens(capsys: Capsys, harbour: Harbourmaster, store: FileTokens) -> None:
    assert "No logins are kept" in run_cli(capsys, "auth", "list").err
    assert run_cli(capsys, "auth", "list", "--json").json == []
    keep(store, harbour, "captain", granted=("berth", "\x1b[31mtide"), expires_at=1_000_000_000.0)
    keep(store, harbour, "mate", refresh_token=None, expires_at=None)
    done = run_cli(capsys, "auth", "list")
    assert done.code == 0
    said = plain(done.out)
    assert "captain" in said
    assert "days ago yes" in said
    assert "\x1b" not in done.out
    found = run_cli(capsys, "auth", "list", "--json")
    assert found.json[0] == {
        "name": "captain",
        "readable": True,
        "url": harbour.url,
        "issuer": f"{harbour.base}/login",
        "scopes": ["berth", "\x1b[31mtide"],
        "expires_at": "2001-09-09T01:46:40Z",
        "expired": True,
        "refreshable": True,
    }
    assert (found.json[1]["expires_at"], found.json[1]["refreshable"]) == (None, False)
    assert tells_no_secret(done.out, done.err, found.out)


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (3600, "in 1 hour"),
        (3599, "in 59 minutes"),
        (61, "in 1 minute"),
        (2 * 86400, "in 2 days"),
        (5, "in 5 seconds"),
        (0, "0 seconds ago"),
        (-7200, "2 hours ago"),
    ],
)
def test_expiry_is_said_in_words(left: float, words: str) -> None:
    assert expiry_in_words(1000.0 + left, 1000.0) == words
    assert expiry_in_words(None) == "at a time nobody named"


def test_a_logout_withdraws_the_tokens_and_forgets_them(
    capsys: Capsys, harbour: Harbourmaster, store: FileTokens
) -> None:
    keep(store, harbour)
    done = run_cli(capsys, "auth", "logout", harbour.url)
    assert done.code == 0, done.err
    assert "withdrawn there" in plain(done.out)
    assert harbour.revoked == ["refresh-kept", "access-kept"]
    assert kept(store, harbour) is None
    assert tells_no_secret(done.out, done.err)
    again = run_cli(capsys, "auth", "logout", harbour.url)
    assert again.code == 1
    assert "no login" in again.err


@pytest.mark.parametrize("how", ["no endpoint", "refusal", "nobody there", "inward"])
def test_a_logout_that_cannot_withdraw_forgets_all_the_same(
    capsys: Capsys, harbour: Harbourmaster, store: FileTokens, how: str, free_port: int
) -> None:
    made = keep(store, harbour)
    assert made.metadata is not None
    endpoints = {
        "no endpoint": None,
        "refusal": f"{harbour.base}/nowhere",
        "nobody there": f"http://127.0.0.1:{free_port}/revoke",
        "inward": "https://169.254.169.254/revoke",
    }
    metadata = msgspec.structs.replace(made.metadata, revocation_endpoint=endpoints[how])
    keep(store, harbour, metadata=metadata)
    done = run_cli(capsys, "auth", "logout", harbour.url)
    assert done.code == 0, done.err
    said = plain(done.out)
    assert "forgotten here" in said
    assert "withdrawn there" not in said
    assert "until it expires (in 59 minutes)" in said or "until it expires (in 1 hour)" in said
    assert kept(store, harbour) is None
    assert tells_no_secret(done.out, done.err)


def test_logout_takes_one_name_one_url_or_all(capsys: Capsys, harbour: Harbourmaster, store: FileTokens) -> None:
    for name in ("a", "b", "c"):
        keep(store, harbour, name)
    asyncio.run(store.save(token_key("a", "https://elsewhere.example/mcp"), b'{"of": "another time"}'))
    assert run_cli(capsys, "auth", "logout", harbour.url, "--name", "a").code == 0
    assert len(asyncio.run(store.keys())) == 3
    assert run_cli(capsys, "auth", "logout", harbour.url, "--name", "a").code == 1
    assert run_cli(capsys, "auth", "logout", harbour.url).code == 0
    assert asyncio.run(store.keys()) == [token_key("a", "https://elsewhere.example/mcp")]
    assert run_cli(capsys, "auth", "logout", "--all").code == 0
    assert asyncio.run(store.keys()) == []
    assert run_cli(capsys, "auth", "logout", "--all").code == 0
    assert run_cli(capsys, "auth", "logout", "--all", harbour.url).code == 2
    assert run_cli(capsys, "auth", "logout").code == 2
    assert run_cli(capsys, "auth", "logout", HARBOUR).code == 2


# help


def test_auth_alone_lists_its_commands(capsys: Capsys) -> None:
    done = run_cli(capsys, "auth")
    assert all(word in done.out + done.err for word in ("login", "logout", "list", "hash"))
    assert run_cli(capsys, "auth", "--help").code == 0


@pytest.mark.parametrize("command", ["login", "logout", "list", "hash"])
def test_every_command_of_auth_has_help(capsys: Capsys, command: str) -> None:
    done = run_cli(capsys, "auth", command, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: trimaran auth {command}")


def test_an_unknown_command_of_auth_is_refused(capsys: Capsys) -> None:
    assert run_cli(capsys, "auth", "logn").code == 2
