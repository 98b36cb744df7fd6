"""`trimaran doctor` on URLs: a good server, and a bad one with one fault at a time."""

from __future__ import annotations

import asyncio
import datetime
import http.server
import ipaddress
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from trimaran.apps.cli.doctor.auth import authorization_server_urls, resource_metadata_urls
from trimaran.apps.cli.doctor.http import reach
from trimaran.apps.cli.doctor.report import Report

from .conftest import Spawn
from .harness import HARBOUR, Done, plain, run_cli
from .test_doctor import checks, statuses

Capsys = pytest.CaptureFixture[str]
MODERN = "2026-07-28"


class Sloppy:
    """A 2026-07-28 server over bare HTTP that refuses nothing; tests bend it further."""

    def __init__(self) -> None:
        self.url = ""
        self.page = b"<html>hello</html>"

    def post(self, handler: http.server.BaseHTTPRequestHandler, message: dict[str, Any]) -> None:
        """Answer one message."""
        if message.get("method") in ("server/discover", "tools/list"):
            result: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            if message["method"] == "server/discover":
                result |= {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
            else:
                result |= {"tools": []}
            self.reply(handler, 200, {"jsonrpc": "2.0", "id": message.get("id"), "result": result})
        else:
            error = {"code": -32601, "message": "no"}
            self.reply(handler, 200, {"jsonrpc": "2.0", "id": message.get("id"), "error": error})

    def other(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """Answer GET, DELETE and OPTIONS."""
        self.reply(handler, 200, self.page, Content_Type="text/html")

    def reply(self, handler: http.server.BaseHTTPRequestHandler, status: int, body: Any = b"", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        named = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        for name, value in {**named, **{k.replace("_", "-"): v for k, v in headers.items()}}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)


@contextmanager
def serving(patient: Sloppy, context: ssl.SSLContext | None = None) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            patient.post(self, json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0)))))

        def do_GET(self) -> None:
            patient.other(self)

        do_DELETE = do_OPTIONS = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that hangs up is what some tests are about

    server = Server(("127.0.0.1", 0), Handler)
    scheme = "http"
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    patient.url = f"{scheme}://127.0.0.1:{server.server_port}/mcp"
    try:
        yield patient.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def examine(capsys: Capsys, patient: Sloppy, *words: str) -> Done:
    with serving(patient) as url:
        return run_cli(capsys, "doctor", url, "--json", "--timeout", "5", *words)


# A good server


@pytest.mark.slow
def test_a_healthy_server_gets_a_clean_bill(capsys: Capsys, spawn: Spawn, free_port: int) -> None:
    spawn("serve", HARBOUR, "--port", str(free_port)).wait_stderr("is served at")
    done = run_cli(capsys, "doctor", f"http://127.0.0.1:{free_port}/mcp", "--json")
    assert done.code == 0, done.out
    found = statuses(done)
    assert set(found.values()) == {"ok", "skipped"}, done.out
    assert {key for key, status in found.items() if status == "skipped"} == {"tls", "authorization", "x-mcp-header"}
    seen = {key: check["seen"] for key, check in checks(done).items()}
    assert seen["header-mismatch"] == "refused: HTTP 400, error -32020"
    assert seen["unknown-method"] == "refused: HTTP 404, error -32601"
    assert seen["host"] == seen["origin"] == "refused: HTTP 403"
    assert "no redirect" in seen["slash"]
    assert "unbuffered" in seen["stream"]


@pytest.mark.slow
def test_the_report_reads_well_at_eighty_columns(capsys: Capsys, spawn: Spawn, free_port: int) -> None:
    spawn("serve", HARBOUR, "--port", str(free_port)).wait_stderr("is served at")
    lines = run_cli(capsys, "doctor", f"http://127.0.0.1:{free_port}/mcp").out.splitlines()
    assert max(map(len, lines)) <= 80
    sections = [line for line in lines if line and not line.startswith(" ")][:-1]
    assert sections == ["Network", "Access", "Protocol", "Timing", "Tools", "HTTP"]


@pytest.mark.slow
def test_a_modern_only_server_works_with_a_warning(capsys: Capsys, spawn: Spawn, free_port: int) -> None:
    spawn("serve", HARBOUR, "--port", str(free_port), "--no-legacy").wait_stderr("is served at")
    done = run_cli(capsys, "doctor", f"http://127.0.0.1:{free_port}/mcp", "--json")
    assert done.code == 0, done.out
    assert statuses(done, "modern", "legacy", "get", "delete") == {
        "modern": "ok",
        "legacy": "warn",
        "get": "ok",
        "delete": "ok",
    }


@pytest.mark.slow
def test_a_wrong_path_is_found_out_and_the_right_one_named(capsys: Capsys, spawn: Spawn, free_port: int) -> None:
    spawn("serve", HARBOUR, "--port", str(free_port)).wait_stderr("is served at")
    done = run_cli(capsys, "doctor", f"http://127.0.0.1:{free_port}/wrong", "--json")
    assert done.code == 1
    assert checks(done)["path"]["fix"] == f"Use http://127.0.0.1:{free_port}/mcp"


# No server


def test_a_closed_port_fails_at_the_connection(capsys: Capsys, free_port: int) -> None:
    done = run_cli(capsys, "doctor", f"http://127.0.0.1:{free_port}/mcp", "--json")
    assert done.code == 1
    assert statuses(done, "dns", "connect", "modern") == {"dns": "ok", "connect": "fail", "modern": "skipped"}


def test_a_name_that_does_not_resolve_fails_at_the_name(capsys: Capsys) -> None:
    done = run_cli(capsys, "doctor", "http://no-such-host.invalid/mcp")
    assert done.code == 1
    assert "Begin with: name." in done.out


async def test_something_that_is_not_http_fails_at_the_first_request(capsys: Capsys) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        done = await asyncio.to_thread(run_cli, capsys, "doctor", f"http://127.0.0.1:{port}/mcp", "--json")
    assert done.code == 1
    assert statuses(done, "connect", "answer") == {"connect": "ok", "answer": "fail"}


def test_a_plain_web_server_is_no_mcp_server(capsys: Capsys) -> None:
    class Web(Sloppy):
        def post(self, handler: Any, message: Any) -> None:
            self.other(handler)

    done = examine(capsys, Web())
    assert done.code == 1
    assert statuses(done, "path", "modern") == {"path": "fail", "modern": "skipped"}
    assert "text/html" in checks(done)["path"]["seen"]


def test_a_redirect_is_a_failure_with_its_target(capsys: Capsys) -> None:
    """P16."""

    class Moved(Sloppy):
        def post(self, handler: Any, message: Any) -> None:
            self.reply(handler, 307, Location="https://elsewhere.example/mcp")

    done = examine(capsys, Moved())
    assert done.code == 1
    assert "HTTP 307 to https://elsewhere.example/mcp" in checks(done)["redirect"]["seen"]


def test_a_refusal_that_is_no_challenge_is_quoted(capsys: Capsys) -> None:
    """P15."""

    class Guarded(Sloppy):
        def post(self, handler: Any, message: Any) -> None:
            error = {"code": -32600, "message": "the Host header is not allowed; set ALLOWED_HOSTS"}
            self.reply(handler, 403, {"jsonrpc": "2.0", "id": None, "error": error})

    done = examine(capsys, Guarded())
    assert "set ALLOWED_HOSTS" in checks(done)["access"]["seen"]


# A sloppy server, one fault at a time


def test_a_server_that_refuses_nothing_is_found_out(capsys: Capsys) -> None:
    done = examine(capsys, Sloppy())
    assert done.code == 1
    assert statuses(
        done, "modern", "unknown-method", "header-mismatch", "version", "host", "origin", "get", "delete"
    ) == {
        "modern": "ok",
        "unknown-method": "fail",
        "header-mismatch": "fail",
        "version": "fail",
        "host": "fail",
        "origin": "fail",
        "get": "fail",
        "delete": "fail",
    }
    assert statuses(done, "identity", "stream", "cors") == {"identity": "warn", "stream": "skipped", "cors": "ok"}
    for check in done.json["checks"]:
        if check["status"] in ("warn", "fail"):
            assert check["why"], check
            assert check["fix"], check


def bent(**ways: Callable[..., None]) -> Sloppy:
    return type("Bent", (Sloppy,), ways)()


def test_a_trailing_slash_that_redirects_is_warned_of(capsys: Capsys) -> None:
    """P16."""

    def post(self: Sloppy, handler: Any, message: Any) -> None:
        if handler.path.endswith("/"):
            self.reply(handler, 307, Location="/mcp")
        else:
            Sloppy.post(self, handler, message)

    assert statuses(examine(capsys, bent(post=post)), "slash") == {"slash": "warn"}


def test_a_405_without_allow_is_warned_of(capsys: Capsys) -> None:
    def other(self: Sloppy, handler: Any) -> None:
        self.reply(handler, 405)

    assert statuses(examine(capsys, bent(other=other)), "get", "delete") == {"get": "warn", "delete": "warn"}


def test_cors_that_forgets_a_header_is_warned_of(capsys: Capsys) -> None:
    def other(self: Sloppy, handler: Any) -> None:
        origin = handler.headers.get("Origin", "")
        allowed = {"Access_Control_Allow_Origin": origin, "Access_Control_Allow_Headers": "Content-Type, Mcp-Method"}
        self.reply(handler, 204, **allowed)

    done = examine(capsys, bent(other=other))
    assert statuses(done, "cors") == {"cors": "warn"}
    assert "without mcp-protocol-version, mcp-name" in checks(done)["cors"]["seen"]


def test_cors_for_everybody_is_warned_of_on_this_machine(capsys: Capsys) -> None:
    def other(self: Sloppy, handler: Any) -> None:
        self.reply(handler, 204, Access_Control_Allow_Origin="*")

    assert "every web page may call" in checks(examine(capsys, bent(other=other)))["cors"]["seen"]


@pytest.mark.parametrize(
    ("headers", "event", "status"),
    [
        ({"X_Accel_Buffering": "no"}, True, "ok"),
        ({}, True, "warn"),
        ({"X_Accel_Buffering": "no", "Content_Encoding": "identity"}, True, "warn"),
        ({"X_Accel_Buffering": "no"}, False, "fail"),
    ],
    ids=["good", "no-hint", "encoded", "held-back"],
)
def test_events_that_are_held_back_are_noticed(
    capsys: Capsys, headers: dict[str, str], event: bool, status: str
) -> None:
    """P29; protocol.md 1.2, proxy hint."""
    ack = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {}}
    body = f"data: {json.dumps(ack)}\n\n".encode() if event else b": waiting\n\n"

    def post(self: Sloppy, handler: Any, message: Any) -> None:
        if message["method"] == "subscriptions/listen":
            self.reply(handler, 200, body, Content_Type="text/event-stream", **headers)
        else:
            Sloppy.post(self, handler, message)

    assert statuses(examine(capsys, bent(post=post)), "stream") == {"stream": status}


def test_a_wrong_content_type_is_a_failure(capsys: Capsys) -> None:
    def post(self: Sloppy, handler: Any, message: Any) -> None:
        reply = self.reply
        self.reply = lambda handler, status, body=b"", **_: reply(handler, status, body, Content_Type="text/plain")
        try:
            Sloppy.post(self, handler, message)
        finally:
            self.reply = reply

    done = examine(capsys, bent(post=post))
    assert done.code == 1


# Credentials


class Protected(Sloppy):
    """Wants a token; `files` are its well-known documents."""

    challenge = 'Bearer resource_metadata="{base}/.well-known/oauth-protected-resource/mcp", scope="read"'

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str | None]] = []
        self.resource: dict[str, Any] | None = {"resource": "{base}/mcp", "authorization_servers": ["{base}/login"]}
        self.server: dict[str, Any] | None = {
            "issuer": "{base}/login",
            "authorization_endpoint": "{base}/authorize",
            "token_endpoint": "{base}/token",
            "code_challenge_methods_supported": ["S256"],
            "registration_endpoint": "{base}/register",
        }

    @property
    def base(self) -> str:
        return self.url.removesuffix("/mcp")

    def post(self, handler: Any, message: Any) -> None:
        if handler.headers.get("Authorization") == "Bearer good":
            Sloppy.post(self, handler, message)
            return
        headers = {"WWW_Authenticate": self.challenge.replace("{base}", self.base)} if self.challenge else {}
        self.reply(handler, 401, **headers)

    def other(self, handler: Any) -> None:
        self.seen.append((handler.path, handler.headers.get("Authorization")))
        files = {
            "/.well-known/oauth-protected-resource/mcp": self.resource,
            "/.well-known/oauth-authorization-server/login": self.server,
        }
        found = files.get(handler.path)
        if found is None:
            self.reply(handler, 404)
        else:
            self.reply(handler, 200, json.dumps(found).replace("{base}", self.base).encode())


def test_a_protected_server_with_good_metadata_passes_and_says_what_is_missing(capsys: Capsys) -> None:
    done = examine(capsys, Protected())
    assert done.code == 0, done.out
    assert statuses(
        done, "authorization", "token", "challenge", "resource-metadata", "authorization-server", "modern"
    ) == {
        "authorization": "ok",
        "token": "skipped",
        "challenge": "ok",
        "resource-metadata": "ok",
        "authorization-server": "ok",
        "modern": "skipped",
    }
    assert "dynamic registration" in checks(done)["authorization-server"]["seen"]


def test_with_a_good_token_the_rest_is_examined(capsys: Capsys) -> None:
    done = examine(capsys, Protected(), "--bearer", "good")
    assert statuses(done, "modern") == {"modern": "ok"}


def test_a_bad_token_fails_and_is_never_sent_to_a_well_known_address(capsys: Capsys) -> None:
    patient = Protected()
    done = examine(capsys, patient, "--bearer", "stale")
    assert done.code == 1
    assert statuses(done, "token", "resource-metadata") == {"token": "fail", "resource-metadata": "ok"}
    assert patient.seen
    assert all(token is None for _, token in patient.seen)


@pytest.mark.parametrize(
    ("challenge", "status"), [("", "fail"), ("Basic realm=x", "fail"), ('Bearer error="invalid_token"', "warn")]
)
def test_a_challenge_that_helps_nobody_is_found(capsys: Capsys, challenge: str, status: str) -> None:
    patient = Protected()
    patient.challenge = challenge
    done = examine(capsys, patient)
    assert statuses(done, "challenge", "resource-metadata") == {"challenge": status, "resource-metadata": "ok"}


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        (None, "404"),
        ({"resource": "https://other.example/mcp", "authorization_servers": ["{base}/login"]}, "other.example"),
        ({"resource": "{base}/mcp", "authorization_servers": []}, "missing or empty"),
        ({}, "resource is 'None'"),
    ],
    ids=["absent", "of-another", "no-server", "empty"],
)
def test_resource_metadata_that_cannot_be_used_fails(
    capsys: Capsys, resource: dict[str, Any] | None, said: str
) -> None:
    """protocol.md 4.1, 2."""
    patient = Protected()
    patient.resource = resource
    done = examine(capsys, patient)
    assert done.code == 1
    found = checks(done)["resource-metadata"]
    assert found["status"] == "fail"
    assert said in plain(found["details"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"issuer": "{base}/login/"}, "to the letter"),
        ({"code_challenge_methods_supported": ["plain"]}, "S256"),
        ({"token_endpoint": None}, "token_endpoint is missing"),
    ],
    ids=["issuer", "pkce", "endpoint"],
)
def test_an_authorization_server_that_cannot_be_used_fails(capsys: Capsys, change: dict[str, Any], said: str) -> None:
    """protocol.md 4.1, 4 and 5."""
    patient = Protected()
    assert patient.server is not None
    patient.server |= change
    found = checks(examine(capsys, patient))["authorization-server"]
    assert found["status"] == "fail"
    assert said in plain(found["details"])


class Keyed(Protected):
    """Wants something that people pass by hand, and has no OAuth."""

    def __init__(self, challenge: str, **credentials: str) -> None:
        super().__init__()
        self.challenge = challenge
        self.credentials = credentials
        self.resource = self.server = None

    def post(self, handler: Any, message: Any) -> None:
        if all(handler.headers.get(name.replace("_", "-")) == value for name, value in self.credentials.items()):
            Sloppy.post(self, handler, message)
        else:
            self.reply(handler, 401, **({"WWW_Authenticate": self.challenge} if self.challenge else {}))


KEYED = ('ApiKey header="X-Boat"', {"X_Boat": "good"}, "--header X-Boat=KEY", "an API key in the header X-Boat")
BASIC = ('Basic realm="x"', {"Authorization": "Basic good"}, "Authorization=Basic", "user and password (Basic)")
FIXED = ('Bearer realm="mcp"', {"Authorization": "Bearer good"}, "--bearer TOKEN", "a token (Bearer)")


@pytest.mark.parametrize(
    ("challenge", "credentials", "way", "shown"), [KEYED, BASIC, FIXED], ids=["key", "basic", "token"]
)
def test_a_server_without_oauth_is_not_called_broken(
    capsys: Capsys, challenge: str, credentials: dict[str, str], way: str, shown: str
) -> None:
    """People pass its credentials by hand: the report says how, and misses no metadata."""
    done = examine(capsys, Keyed(challenge, **credentials))
    assert done.code == 0, done.out
    found = checks(done)
    assert found["authorization"]["status"] == "ok"
    assert way in found["token"]["seen"]
    assert shown in found["challenge"]["seen"]
    assert found["resource-metadata"]["status"] == "skipped"


def test_a_server_that_was_examined_in_part_is_not_called_well(capsys: Capsys) -> None:
    with serving(Keyed(KEYED[0], **KEYED[1])) as url:
        done = run_cli(capsys, "doctor", url, "--timeout", "5")
    assert done.out.rstrip().endswith("Pass credentials for the rest.")


@pytest.mark.parametrize(
    ("challenge", "credentials", "way", "shown"), [KEYED, BASIC, FIXED], ids=["key", "basic", "token"]
)
def test_a_server_that_takes_the_credentials_is_not_called_open(
    capsys: Capsys, challenge: str, credentials: dict[str, str], way: str, shown: str
) -> None:
    [(name, value)] = credentials.items()
    done = examine(capsys, Keyed(challenge, **credentials), "--header", f"{name.replace('_', '-')}={value}")
    assert statuses(done, "authorization", "modern") == {"authorization": "ok", "modern": "ok"}
    assert "yours are good: HTTP 401 without" in checks(done)["authorization"]["seen"]


@pytest.mark.parametrize(
    ("challenge", "credentials", "way", "shown"), [KEYED, BASIC, FIXED], ids=["key", "basic", "token"]
)
def test_credentials_that_are_refused_fail_and_the_report_says_how_to_pass_others(
    capsys: Capsys, challenge: str, credentials: dict[str, str], way: str, shown: str
) -> None:
    [name] = credentials
    done = examine(capsys, Keyed(challenge, **credentials), "--header", f"{name.replace('_', '-')}=stale")
    assert done.code == 1
    found = checks(done)
    assert found["token"]["status"] == "fail"
    assert way in found["token"]["fix"]
    assert ("a token is checked for" in found["token"]["fix"]) == (way == FIXED[2])
    assert found["resource-metadata"]["status"] == "skipped"


def test_a_server_that_wants_nothing_is_called_open_whatever_is_passed(capsys: Capsys) -> None:
    done = examine(capsys, Sloppy(), "--header", "X-Boat=key")
    assert checks(done)["authorization"]["seen"] == "the server asks for no credentials; it did not need yours"


def test_a_bare_401_is_still_a_failure(capsys: Capsys) -> None:
    done = examine(capsys, Keyed("", Authorization="Bearer good"))
    assert statuses(done, "challenge", "resource-metadata") == {"challenge": "fail", "resource-metadata": "fail"}


def test_an_address_that_is_neither_https_nor_local_is_not_fetched(capsys: Capsys) -> None:
    """protocol.md 4.1.14."""
    patient = Protected()
    patient.challenge = 'Bearer resource_metadata="http://metadata.example/latest"'
    patient.resource = None
    details = checks(examine(capsys, patient))["resource-metadata"]["details"]
    assert details[0] == "http://metadata.example/latest: not https, not fetched"


def test_where_metadata_is_looked_for() -> None:
    """protocol.md 4.1, 2 and 3."""
    assert resource_metadata_urls("https://a.example/x/mcp", None) == [
        "https://a.example/.well-known/oauth-protected-resource/x/mcp",
        "https://a.example/.well-known/oauth-protected-resource",
    ]
    assert resource_metadata_urls("https://a.example", "https://b.example/m")[0] == "https://b.example/m"
    assert authorization_server_urls("https://a.example/t") == [
        "https://a.example/.well-known/oauth-authorization-server/t",
        "https://a.example/.well-known/openid-configuration/t",
        "https://a.example/t/.well-known/openid-configuration",
    ]
    assert authorization_server_urls("https://a.example/") == [
        "https://a.example/.well-known/oauth-authorization-server",
        "https://a.example/.well-known/openid-configuration",
    ]


# TLS


def test_https_on_a_port_without_tls_is_no_matter_of_certificates(capsys: Capsys) -> None:
    with serving(Sloppy()) as url:
        done = run_cli(capsys, "doctor", url.replace("http://", "https://"), "--json")
    check = checks(done)["tls"]
    assert check["seen"] == "this port speaks HTTP without TLS: use http:// in the URL"
    assert check["fix"] == "Write http:// in the URL, or give the server a certificate."


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that signs itself, with its key, good for a week."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_a_certificate_nobody_trusts_fails(capsys: Capsys, certificate: Path) -> None:
    with serving(Sloppy(), tls(certificate)) as url:
        done = run_cli(capsys, "doctor", url, "--json", "--timeout", "5")
    assert done.code == 1
    assert "certificate is refused" in checks(done)["tls"]["seen"]


async def test_a_certificate_that_is_trusted_passes_with_a_warning_near_its_end(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    report = Report("t")
    with serving(Sloppy(), tls(certificate)) as url:
        assert await reach(report, url, 5.0)
    (found,) = [check for check in report.checks if check.key == "tls"]
    assert found.status == "warn"
    assert "certificate good for 6 days" in found.seen
    assert found.seen.startswith("TLSv1.3 in ")


# The transport of 2024


@pytest.mark.slow
def test_the_transport_of_2024_is_met_as_such_and_warned_of(capsys: Capsys, tmp_path: Path, free_port: int) -> None:
    """R136."""
    script = tmp_path / "old.py"
    script.write_text(
        "import sys\nfrom trimaran import Server\nserver = Server('old', version='1')\n@server.tool\ndef t() -> str:\n    'x'\n"
        "    return ''\nserver.run('http', port=int(sys.argv[1]), sse_path='/sse', on_ready=lambda _: print('ready', flush=True))\n"
    )
    child = subprocess.Popen([sys.executable, str(script), str(free_port)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        done = run_cli(capsys, "doctor", f"http://127.0.0.1:{free_port}/sse", "--json", "--timeout", "5")
    finally:
        child.terminate()
        child.wait(20)
        assert child.stdout is not None
        child.stdout.close()
    assert done.code == 0, done.out
    assert statuses(done, "modern", "legacy", "transport", "content-type", "get", "delete", "host", "origin") == {
        "modern": "warn",
        "legacy": "ok",
        "transport": "warn",
        "content-type": "ok",
        "get": "ok",
        "delete": "skipped",
        "host": "ok",
        "origin": "ok",
    }
