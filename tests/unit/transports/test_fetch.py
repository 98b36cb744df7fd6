"""Guarded requests over real sockets: where they go, where they never go, and what is said when they fail.

A name "of the internet" is one that `names` gives an address of 127.0.0.0/8 that this test counts as public.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gzip
import socket
import ssl
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from tests.support.until import PATIENCE

from trimaran.errors import AuthorizationFailed, Closed, UnsafeUrl
from trimaran.oauth.effects import HttpRequest
from trimaran.transports import fetch
from trimaran.transports.fetch import Fetcher
from trimaran.transports.name_lookup import HostAddress

LOOPS = ("asyncio", "uvloop")
SECONDS = PATIENCE
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
PUBLIC = "127.0.0.2"  # stands for the internet
INSIDE = "127.0.0.1"
BOMB = gzip.compress(b"\0" * 10_000_000)
NAMES = ("as.example.com", "mcp.example.com", "other.example.com", "inside.example.com", "localhost")


# --- a server, a proxy, a certificate --------------------------------------------------------------------------------


class Peer:
    """Answers each request with what `answer` makes of it; keeps the requests."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]
        self.requests: list[tuple[bytes, bytes]] = []
        self.connections = 0

    @property
    def heads(self) -> list[str]:
        return [head.decode("latin-1") for head, _ in self.requests]

    @property
    def targets(self) -> list[str]:
        return [head.split(" ")[1] for head in self.heads]


Answer = Callable[[str, bytes], "bytes | None"]


@contextlib.asynccontextmanager
async def serving(
    answer: Answer | bytes = OK, *, host: str = INSIDE, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Peer]:
    """A server; `answer` gets the head and the body and gives the whole response, or None to stay silent."""
    tasks: set[asyncio.Task[Any]] = set()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        peer.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = 0
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                body = await reader.readexactly(length)
                peer.requests.append((head, body))
                said = answer if isinstance(answer, bytes) else answer(head.decode("latin-1"), body)
                if said is not None:
                    writer.write(said)
                    await writer.drain()
                    if b"ontent-Length" not in said and b"chunked" not in said:
                        break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await writer.wait_closed()

    server = await asyncio.start_server(meet, host, 0, ssl=tls)
    peer = Peer(server)
    try:
        yield peer
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def proxying(to_port: int, *, says: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that tunnels whatever it is asked for to a port of this machine: its URL, and what it was asked."""
    asked: list[str] = []
    tasks: set[asyncio.Task[Any]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        writers = [writer]
        try:
            asked.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            writer.write(says)
            if b" 200 " in says:
                there, back = await asyncio.open_connection(INSIDE, to_port)
                writers.append(back)
                await asyncio.gather(pump(reader, back), pump(there, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            for one in writers:
                one.close()

    server = await asyncio.start_server(meet, INSIDE, 0)
    try:
        yield f"http://{INSIDE}:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Tls:
    """A certificate for every name of these tests, and who trusts it."""

    def __init__(self, folder: Path) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "harbour")])
        now = datetime.datetime.now(datetime.UTC)
        names: list[x509.GeneralName] = [x509.DNSName(one) for one in NAMES]
        names += [x509.IPAddress(ip_address(one)) for one in (PUBLIC, INSIDE)]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        cert_file, key_file = folder / "cert.pem", folder / "key.pem"
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(cert_file, key_file)
        self.client = ssl.create_default_context(cafile=str(cert_file))


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return Tls(tmp_path_factory.mktemp("tls"))


class Names:
    """What the names of a test resolve to: a list of answers each, the last of which stays."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []

    def set(self, host: str, *answers: str | list[str]) -> None:
        self.answers[host] = [[one] if isinstance(one, str) else one for one in answers]

    async def look_up(self, host: str, port: int, family: int) -> list[HostAddress]:
        self.asked.append(host)
        await asyncio.sleep(0)
        if host not in self.answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        answers = self.answers[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [HostAddress(socket.AF_INET6 if ":" in one else socket.AF_INET, one, port) for one in found]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    made = Names()
    monkeypatch.setattr(fetch, "look_up", made.look_up)
    return made


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch, names: Names) -> Names:
    """The names, where `PUBLIC` counts as an address of the internet."""
    judge = fetch.is_public_address
    monkeypatch.setattr(fetch, "is_public_address", lambda address: address == PUBLIC or judge(address))
    return names


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@contextlib.asynccontextmanager
async def fetching(**options: Any) -> AsyncIterator[Fetcher]:
    fetcher = Fetcher(**{"timeout": SECONDS, **options})
    try:
        yield fetcher
    finally:
        await fetcher.close()


def get(url: str, **more: Any) -> HttpRequest:
    return HttpRequest(step="metadata request", url=url, **more)


async def failure(awaitable: Awaitable[Any]) -> AuthorizationFailed:
    with pytest.raises(AuthorizationFailed) as caught:
        await awaitable
    error = caught.value
    assert str(error).startswith(f"the {error.step} failed: ")
    assert error.__cause__ is None  # what a library says may quote the request
    return error


def redirect(to: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


# --- a request and its answer ----------------------------------------------------------------------------------------


async def test_an_answer_comes_whole_with_its_headers_in_lower_case() -> None:
    said = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Many: a\r\nx-many: b\r\nContent-Length: 8\r\n\r\n"
        b'{"a": 1}'
    )
    async with serving(said) as peer, fetching() as fetcher:
        url = f"http://localhost:{peer.port}/.well-known/x?a=%7Eb&c=d+e"
        reply = await fetcher(get(url, headers={"X-Mine": "yes"}))
    assert (reply.status, reply.body, reply.url) == (200, b'{"a": 1}', url)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-many"] == "a, b"
    head = peer.heads[0]
    assert head.startswith("GET /.well-known/x?a=%7Eb&c=d+e HTTP/1.1\r\n")
    assert "X-Mine: yes\r\n" in head
    assert "Accept-Encoding: identity\r\n" in head


async def test_a_url_without_path_asks_for_the_root() -> None:
    async with serving() as peer, fetching() as fetcher:
        await fetcher(get(f"http://127.0.0.1:{peer.port}"))
        await fetcher(get(f"http://127.0.0.1:{peer.port}?x=1"))
        await fetcher(get(f"http://127.0.0.1:{peer.port}/caf\u00e9"))
    assert peer.targets == ["/", "/?x=1", "/caf%C3%A9"]


async def test_a_post_carries_its_body_and_headers() -> None:
    async with serving() as peer, fetching() as fetcher:
        reply = await fetcher(
            HttpRequest(
                step="token request",
                url=f"http://127.0.0.1:{peer.port}/token",
                method="POST",
                headers={"Content-Type": "application/x-www-form-urlencoded", "accept-encoding": "gzip"},
                body=b"grant_type=x",
            )
        )
    assert reply.status == 200
    head, body = peer.requests[0]
    assert body == b"grant_type=x"
    assert head.startswith(b"POST /token HTTP/1.1\r\n")
    assert b"Content-Type: application/x-www-form-urlencoded\r\n" in head
    assert head.lower().count(b"accept-encoding") == 1
    assert b"gzip" not in head


@pytest.mark.parametrize("status", [201, 204, 304, 400, 401, 404, 500, 503])
async def test_every_status_but_a_redirect_is_an_answer(status: int) -> None:
    body = b"" if status in (204, 304) else b"why"
    said = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
    async with serving(said) as peer, fetching() as fetcher:
        reply = await fetcher(get(f"http://127.0.0.1:{peer.port}/"))
    assert (reply.status, reply.body) == (status, body)


async def test_neither_cookies_nor_connections_are_kept() -> None:
    said = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    async with serving(said) as peer, fetching() as fetcher:
        for _ in range(2):
            await fetcher(get(f"http://localhost:{peer.port}/"))
    assert peer.connections == 2
    assert "cookie" not in peer.heads[1].lower()


async def test_tasks_use_one_fetcher_at_once() -> None:
    def answer(head: str, _: bytes) -> bytes:
        path = head.split(" ")[1].encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path)

    async with serving(answer) as peer, fetching() as fetcher:
        replies = await asyncio.gather(*(fetcher(get(f"http://127.0.0.1:{peer.port}/{n}")) for n in range(20)))
    assert [reply.body for reply in replies] == [b"/%d" % n for n in range(20)]


async def test_a_closed_fetcher_fetches_nothing() -> None:
    fetcher = Fetcher()
    await fetcher.close()
    await fetcher.close()
    with pytest.raises(Closed):
        await fetcher(get("http://127.0.0.1:1/"))


async def test_closing_ends_what_is_under_way() -> None:
    asked = asyncio.Event()

    def silent(_head: str, _body: bytes) -> None:
        asked.set()

    async with serving(silent) as peer, fetching() as fetcher:
        waiting = asyncio.create_task(failure(fetcher(get(f"http://127.0.0.1:{peer.port}/"))))
        await asyncio.wait_for(asked.wait(), SECONDS)
        await fetcher.close()
        error = await asyncio.wait_for(waiting, SECONDS)
    assert "ended before an answer came" in str(error)


@pytest.mark.slow
def test_the_http_library_is_loaded_only_to_fetch() -> None:
    code = "import sys, trimaran.transports.fetch; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0


# --- where a request may go ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:127.0.0.1]/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://user@example.com/",
        "https://example.com\\@127.0.0.1/",
        "file:///etc/passwd",
        "/relative",
    ],
)
async def test_an_unsafe_spelling_is_refused_before_any_look_up(names: Names, url: str) -> None:
    async with fetching() as fetcher:
        error = await failure(fetcher(get(url)))
    assert isinstance(error, UnsafeUrl)
    assert error.step == "metadata request"
    assert not names.asked


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.5.4",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.1.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
        "::1",
        "::",
        "::ffff:10.0.0.1",
        "64:ff9b::10.0.0.1",
        "2002:a00:1::",
        "fd00::1",
        "fe80::1",
        "fe80::1%eth0",
        "ff02::1",
    ],
)
async def test_a_name_that_resolves_inside_is_refused(names: Names, address: str) -> None:
    names.set("as.example.com", address)
    async with fetching() as fetcher:
        error = await failure(fetcher(get("https://as.example.com/x?secret")))
    assert isinstance(error, UnsafeUrl)
    assert f"as.example.com resolves to {address}" in str(error)
    assert "allow_private=True" in str(error)
    assert error.url == "https://as.example.com/x"


async def test_a_name_that_resolves_inside_is_fetched_where_that_is_allowed(names: Names, tls: Tls) -> None:
    names.set("as.example.com", INSIDE)
    async with serving(tls=tls.server) as peer, fetching(allow_private=True, ssl=tls.client) as fetcher:
        reply = await fetcher(get(f"https://as.example.com:{peer.port}/"))
    assert reply.status == 200


async def test_of_many_addresses_only_the_public_ones_are_used(internet: Names, tls: Tls) -> None:
    async with (
        serving(host=PUBLIC, tls=tls.server) as public,
        serving(tls=tls.server) as inside,
        fetching(ssl=tls.client) as fetcher,
    ):
        internet.set("as.example.com", [INSIDE, "10.0.0.1", "::1", PUBLIC, INSIDE])
        reply = await fetcher(get(f"https://as.example.com:{public.port}/"))
    assert reply.status == 200
    assert (public.connections, inside.connections) == (1, 0)


async def test_a_name_that_turns_inward_gains_nothing(internet: Names, tls: Tls) -> None:
    """DNS rebinding: judged is the very address that is connected to, and each request is judged again."""
    async with serving(host=PUBLIC, tls=tls.server) as public, fetching(ssl=tls.client) as fetcher:
        # The same port inside, so that whoever looked up twice would be answered there.
        inside = await asyncio.start_server(lambda _, writer: visited.append(writer), INSIDE, public.port)
        visited: list[asyncio.StreamWriter] = []
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(inside.close)
            internet.set("as.example.com", PUBLIC, INSIDE)
            url = f"https://as.example.com:{public.port}/"
            assert (await fetcher(get(url))).status == 200
            assert internet.asked == ["as.example.com"]
            error = await failure(fetcher(get(url)))
    assert isinstance(error, UnsafeUrl)
    assert public.connections == 1
    assert not visited


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("server", ["", "http://localhost:1/mcp", "http://127.0.0.1:1/mcp", "https://[::1]/mcp"])
async def test_this_machine_is_fetched_from_for_a_server_on_it_or_for_nobody(host: str, server: str) -> None:
    async with serving() as peer, fetching() as fetcher:
        reply = await fetcher(get(f"http://{host}:{peer.port}/", server_url=server))
    assert reply.status == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.9", "[::1]"])
@pytest.mark.parametrize(
    "server", ["https://mcp.example.com/mcp", "https://10.0.0.1/mcp", "https://localhost.evil.example/"]
)
async def test_a_server_elsewhere_sends_nobody_to_this_machine(host: str, server: str) -> None:
    async with serving() as peer, fetching() as fetcher:
        error = await failure(fetcher(get(f"http://{host}:{peer.port}/admin", server_url=server)))
        assert isinstance(error, UnsafeUrl)
        assert "this machine" in str(error)
        assert "allow_private=True" in str(error)
        assert peer.connections == 0


async def test_a_server_elsewhere_sends_to_this_machine_where_that_is_allowed() -> None:
    async with serving() as peer, fetching(allow_private=True) as fetcher:
        reply = await fetcher(get(f"http://localhost:{peer.port}/", server_url="https://mcp.example.com/mcp"))
    assert reply.status == 200


async def test_localhost_is_this_machine_or_nothing(names: Names) -> None:
    names.set("localhost", "10.0.0.1")
    async with fetching() as fetcher:
        error = await failure(fetcher(get("http://localhost:1/")))
    assert isinstance(error, UnsafeUrl)
    assert "not on this machine" in str(error)


async def test_the_servers_own_host_may_be_inside_and_no_other(names: Names, tls: Tls) -> None:
    for host in ("mcp.example.com", "other.example.com"):
        names.set(host, INSIDE)
    async with serving(tls=tls.server) as peer, fetching(ssl=tls.client) as fetcher:
        server = "https://MCP.example.com/mcp"
        reply = await fetcher(get(f"https://mcp.example.com:{peer.port}/", server_url=server))
        assert reply.status == 200
        error = await failure(fetcher(get(f"https://other.example.com:{peer.port}/", server_url=server)))
        assert isinstance(error, UnsafeUrl)
        assert peer.connections == 1


async def test_the_servers_own_literal_address_may_be_inside(free_port: int) -> None:
    """Nobody answers there, but it was tried."""
    async with fetching() as fetcher:
        own = await failure(fetcher(get(f"https://127.0.0.1:{free_port}/", server_url="https://127.0.0.1/mcp")))
        other = await failure(fetcher(get("https://10.0.0.5/", server_url="https://10.0.0.6/mcp")))
    assert not isinstance(own, UnsafeUrl)
    assert isinstance(other, UnsafeUrl)


async def test_reaches_do_not_mix_between_tasks(names: Names, tls: Tls) -> None:
    names.set("mcp.example.com", INSIDE)
    async with serving(tls=tls.server) as peer, fetching(ssl=tls.client) as fetcher:
        url = f"https://mcp.example.com:{peer.port}/"
        trusted = [fetcher(get(url, server_url="https://mcp.example.com/mcp")) for _ in range(5)]
        others = [fetcher(get(url, server_url="https://other.example.com/mcp")) for _ in range(5)]
        pairs = [one for pair in zip(trusted, others, strict=True) for one in pair]
        results = await asyncio.gather(*pairs, return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["HttpReply", "UnsafeUrl"] * 5


# --- redirects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_get_follows_redirects(status: int) -> None:
    def answer(head: str, _: bytes) -> bytes:
        return redirect("b?q=1", status) if head.startswith("GET /x/a ") else OK

    async with serving(answer) as peer, fetching() as fetcher:
        reply = await fetcher(get(f"http://localhost:{peer.port}/x/a"))
    assert reply.url == f"http://localhost:{peer.port}/x/b?q=1"
    assert peer.targets == ["/x/a", "/x/b?q=1"]


@pytest.mark.parametrize("count", [3, 4])
async def test_three_redirects_are_enough(count: int) -> None:
    def answer(head: str, _: bytes) -> bytes:
        number = int(head.split(" ")[1][1:])
        return redirect(f"/{number + 1}") if number < count else OK

    async with serving(answer) as peer, fetching() as fetcher:
        request = fetcher(get(f"http://localhost:{peer.port}/0"))
        if count == 3:
            assert (await request).status == 200
        else:
            assert "more than 3 times" in str(await failure(request))
    assert len(peer.requests) == 4


async def test_a_circle_of_redirects_ends() -> None:
    async with serving(redirect("/")) as peer, fetching() as fetcher:
        assert "more than 3 times" in str(await failure(fetcher(get(f"http://localhost:{peer.port}/"))))
    assert len(peer.requests) == 4


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_what_is_not_a_get_is_not_redirected(method: str, status: int) -> None:
    async with serving(redirect("/there?secret", status)) as peer, fetching() as fetcher:
        url = f"http://localhost:{peer.port}/token"
        error = await failure(fetcher(HttpRequest(step="token request", url=url, method=method, body=b"secret=1")))
    assert f"redirects a {method} ({status})" in str(error)
    assert "/there" in str(error)
    assert "secret" not in str(error)
    assert len(peer.requests) == 1


@pytest.mark.parametrize(
    "target",
    [
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "http://example.com/",
        "//10.0.0.1/",
        "https://[fd00::1]/",
        "https://2130706433/",
        "https://user:pass@example.com/",
        "https://example.com/#x",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://exam ple.com/",
    ],
)
async def test_a_redirect_is_judged_like_the_first_url(names: Names, target: str) -> None:
    names.set("localhost", INSIDE)
    async with serving(redirect(target)) as peer, fetching() as fetcher:
        error = await failure(fetcher(get(f"http://localhost:{peer.port}/")))
    assert isinstance(error, UnsafeUrl)
    assert names.asked == ["localhost"]


async def test_a_redirect_to_a_name_that_resolves_inside_is_refused(names: Names) -> None:
    names.set("localhost", INSIDE)
    names.set("inside.example.com", "10.0.0.1")
    async with serving(redirect("https://inside.example.com/")) as peer, fetching() as fetcher:
        error = await failure(fetcher(get(f"http://localhost:{peer.port}/", server_url="http://localhost/mcp")))
    assert isinstance(error, UnsafeUrl)
    assert "resolves to 10.0.0.1" in str(error)


@pytest.mark.parametrize("server", ["", "http://localhost:1/mcp"], ids=["nobody", "local"])
async def test_nobody_on_the_internet_redirects_to_this_machine(internet: Names, tls: Tls, server: str) -> None:
    """Also where the server, and so a first request, may be here."""
    internet.set("as.example.com", PUBLIC)
    internet.set("localhost", INSIDE)
    async with serving() as inside:
        there = redirect(f"http://localhost:{inside.port}/admin")
        async with serving(there, host=PUBLIC, tls=tls.server) as public, fetching(ssl=tls.client) as fetcher:
            error = await failure(fetcher(get(f"https://as.example.com:{public.port}/", server_url=server)))
    assert isinstance(error, UnsafeUrl)
    assert inside.connections == 0


async def test_nobody_on_the_internet_redirects_to_the_servers_own_host_inside(internet: Names, tls: Tls) -> None:
    internet.set("as.example.com", PUBLIC)
    internet.set("mcp.example.com", INSIDE)
    async with serving(tls=tls.server) as inside:
        there = redirect(f"https://mcp.example.com:{inside.port}/admin")
        async with serving(there, host=PUBLIC, tls=tls.server) as public, fetching(ssl=tls.client) as fetcher:
            error = await failure(
                fetcher(get(f"https://as.example.com:{public.port}/", server_url="https://mcp.example.com/mcp"))
            )
    assert isinstance(error, UnsafeUrl)
    assert inside.connections == 0


async def test_https_does_not_go_on_as_http(internet: Names, tls: Tls) -> None:
    internet.set("as.example.com", PUBLIC)
    there = redirect("http://as.example.com/")
    async with serving(there, host=PUBLIC, tls=tls.server) as public, fetching(ssl=tls.client) as fetcher:
        error = await failure(fetcher(get(f"https://as.example.com:{public.port}/")))
    assert isinstance(error, UnsafeUrl)
    assert "not https" in str(error)


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["same_origin", "other_origin"])
async def test_credentials_stay_with_their_origin(is_elsewhere: bool) -> None:
    headers = {"AUTHORIZATION": "Basic abc", "Cookie": "a=b", "DPoP": "proof", "Accept": "application/json"}
    async with serving() as other:
        async with serving(lambda h, _: redirect(there) if h.startswith("GET /a ") else OK) as peer:
            there = f"http://localhost:{other.port if is_elsewhere else peer.port}/b"
            async with fetching() as fetcher:
                await fetcher(get(f"http://localhost:{peer.port}/a", headers=headers))
        head = (other if is_elsewhere else peer).heads[-1]
    assert head.startswith("GET /b ")
    assert "Accept: application/json" in head
    for name in ("authorization", "cookie", "dpop"):
        assert (f"\r\n{name}: " in head.lower()) is not is_elsewhere


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "without saying where to"),
        (b"HTTP/1.1 302 Found\r\nLocation: \r\nContent-Length: 0\r\n\r\n", "without saying where to"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://[::1\r\nContent-Length: 0\r\n\r\n", "not a URL"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://x:99999/\r\nContent-Length: 0\r\n\r\n", "not a URL"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://\xff\xfe/\r\nContent-Length: 0\r\n\r\n", "not a safe URL"),
    ],
    ids=["none", "empty", "broken", "port", "bytes"],
)
async def test_a_redirect_to_nowhere_is_an_error(said: bytes, words: str) -> None:
    async with serving(said) as peer, fetching() as fetcher:
        assert words in str(await failure(fetcher(get(f"http://localhost:{peer.port}/"))))


# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["length", "chunked", "until_closed"])
@pytest.mark.parametrize("size", [100, 101])
async def test_a_body_may_be_as_long_as_allowed_and_no_longer(framing: str, size: int) -> None:
    body = b"x" * size
    said = {
        "length": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, body),
        "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (size, body),
        "until_closed": b"HTTP/1.1 200 OK\r\n\r\n" + body,
    }[framing]
    async with serving(said) as peer, fetching() as fetcher:
        request = fetcher(get(f"http://localhost:{peer.port}/", max_bytes=100))
        if size == 100:
            assert (await request).body == body
        else:
            assert "more than 100 bytes" in str(await failure(request))


async def test_a_huge_body_is_not_waited_for() -> None:
    """It is announced and never comes."""
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n") as peer, fetching() as fetcher:
        assert "more than" in str(await failure(fetcher(get(f"http://localhost:{peer.port}/"))))


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, identity", "GZIP"])
async def test_a_packed_body_is_refused(coding: str, status: int) -> None:
    said = b"HTTP/1.1 %d OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        coding.encode(),
        len(BOMB),
        BOMB,
    )
    async with serving(said) as peer, fetching() as fetcher:
        error = await failure(fetcher(get(f"http://localhost:{peer.port}/")))
    assert "not asked for" in str(error)


async def test_a_body_that_says_identity_is_taken() -> None:
    async with (
        serving(b"HTTP/1.1 200 OK\r\nContent-Encoding: Identity\r\nContent-Length: 2\r\n\r\nok") as peer,
        fetching() as fetcher,
    ):
        assert (await fetcher(get(f"http://localhost:{peer.port}/"))).body == b"ok"


@pytest.mark.parametrize("said", [None, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nslow"], ids=["head", "body"])
async def test_a_slow_answer_is_given_up(said: bytes | None) -> None:
    async with serving(lambda *_: said) as peer, fetching(timeout=0.1) as fetcher:
        error = await failure(fetcher(get(f"http://localhost:{peer.port}/x?secret")))
    assert str(error) == (
        f"the metadata request failed: no whole answer from http://localhost:{peer.port}/x within 0.1 s; try again later, or "
        "tell its operator"
    )


async def test_slow_redirects_share_one_limit_and_a_slow_name_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(host: str, port: int, family: int) -> Any:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(fetch, "look_up", never)
    async with fetching(timeout=0.1) as fetcher:
        assert "within 0.1 s" in str(await failure(fetcher(get("https://as.example.com/"))))


# --- what went wrong -------------------------------------------------------------------------------------------------


async def test_a_refused_connection_is_told_with_its_place_and_nothing_secret(free_port: int) -> None:
    async with fetching() as fetcher:
        error = await failure(
            fetcher(
                HttpRequest(
                    step="token request",
                    url=f"http://127.0.0.1:{free_port}/token?s3cret",
                    method="POST",
                    headers={"Authorization": "s3cret"},
                    body=b"s3cret",
                )
            )
        )
    assert str(error).startswith(
        f"the token request failed: no connection to http://127.0.0.1:{free_port}/token: connection refused; "
    )
    assert (error.step, error.url) == ("token request", f"http://127.0.0.1:{free_port}/token")
    assert "s3cret" not in repr(error.__dict__) + repr(error)


async def test_an_unknown_name_is_told(names: Names) -> None:
    async with fetching() as fetcher:
        error = await failure(fetcher(get("https://as.example.com/")))
    assert "its name cannot be resolved (Name or service not known)" in str(error)


async def test_a_name_without_addresses_is_told(names: Names) -> None:
    names.set("as.example.com", [])
    async with fetching() as fetcher:
        error = await failure(fetcher(get("https://as.example.com/")))
    assert "https://as.example.com/" in str(error)


async def test_an_untrusted_certificate_is_told_with_the_remedy(tls: Tls) -> None:
    async with serving(tls=tls.server) as peer, fetching() as fetcher:
        error = await failure(fetcher(get(f"https://localhost:{peer.port}/x?secret")))
    assert f"the certificate of https://localhost:{peer.port}/x is not trusted" in str(error)
    assert "cafile" in str(error)


async def test_a_certificate_for_another_name_is_not_trusted(names: Names, tls: Tls) -> None:
    names.set("stranger.example.com", INSIDE)
    async with serving(tls=tls.server) as peer, fetching(allow_private=True, ssl=tls.client) as fetcher:
        error = await failure(fetcher(get(f"https://stranger.example.com:{peer.port}/")))
    assert "is not trusted" in str(error)


async def test_tls_with_a_server_that_has_none_is_told() -> None:
    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(meet, INSIDE, 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with fetching() as fetcher:
            error = await failure(fetcher(get(f"https://127.0.0.1:{port}/")))
    finally:
        server.close()
    assert f"no connection to https://127.0.0.1:{port}/: this port speaks HTTP without TLS" in str(error)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"hello\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
    ],
    ids=["ssh", "text", "status", "header"],
)
async def test_what_is_not_http_is_told(said: bytes) -> None:
    async with serving(said) as peer, fetching() as fetcher:
        error = await failure(fetcher(get(f"http://localhost:{peer.port}/")))
    assert "that is not HTTP" in str(error)


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"X\r\nY": "b"}, {"X": "a\0b"}], ids=["value", "name", "nul"])
async def test_headers_that_would_break_the_request_apart_are_not_sent(headers: dict[str, str]) -> None:
    async with serving() as peer, fetching() as fetcher:
        await failure(fetcher(get(f"http://localhost:{peer.port}/", headers=headers)))
        assert not peer.requests


# --- proxies ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def https_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    yield lambda url: monkeypatch.setenv("HTTPS_PROXY", url)


async def test_a_proxy_of_the_environment_carries_the_request_and_resolves(
    names: Names, tls: Tls, https_proxy: Callable[[str], None]
) -> None:
    """The name is known to nobody here, and the proxy itself may be inside."""
    names.set("proxy.internal", INSIDE)
    async with serving(tls=tls.server) as peer, proxying(peer.port) as (proxy, asked):
        https_proxy(proxy.replace(INSIDE, "proxy.internal"))
        async with fetching(ssl=tls.client) as fetcher:
            reply = await fetcher(get("https://as.example.com/x"))
    assert reply.status == 200
    assert names.asked == ["proxy.internal"]
    assert [one.partition("\r\n")[0] for one in asked] == ["CONNECT as.example.com:443 HTTP/1.1"]
    assert peer.targets == ["/x"]


@pytest.mark.parametrize("bypass", ["as.example.com", ".example.com", "*"])
async def test_no_proxy_is_honoured(
    internet: Names, tls: Tls, https_proxy: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, bypass: str
) -> None:
    monkeypatch.setenv("NO_PROXY", bypass)
    internet.set("as.example.com", PUBLIC)
    async with serving(host=PUBLIC, tls=tls.server) as peer, proxying(peer.port) as (proxy, asked):
        https_proxy(proxy)
        async with fetching(ssl=tls.client) as fetcher:
            assert (await fetcher(get(f"https://as.example.com:{peer.port}/x"))).status == 200
    assert not asked
    assert peer.connections == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_this_machine_is_never_asked_through_a_proxy(
    tls: Tls, monkeypatch: pytest.MonkeyPatch, scheme: str, host: str
) -> None:
    async with (
        serving(tls=tls.server if scheme == "https" else None) as peer,
        proxying(peer.port) as (proxy, asked),
        fetching(ssl=tls.client) as fetcher,
    ):
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy)
        assert (await fetcher(get(f"{scheme}://{host}:{peer.port}/"))).status == 200
        assert not asked


@pytest.mark.parametrize("url", ["https://10.0.0.1/", "https://169.254.169.254/", "https://2130706433/"])
async def test_a_proxy_is_not_asked_for_an_address_inside(https_proxy: Callable[[str], None], url: str) -> None:
    async with proxying(1) as (proxy, asked):
        https_proxy(proxy)
        async with fetching() as fetcher:
            assert isinstance(await failure(fetcher(get(url))), UnsafeUrl)
        assert not asked


async def test_a_proxy_that_refuses_is_told_without_its_password(https_proxy: Callable[[str], None]) -> None:
    async with proxying(1, says=b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n") as (proxy, asked):
        https_proxy(proxy.replace("//", "//me:s3cret@"))
        async with fetching() as fetcher:
            error = await failure(fetcher(get("https://as.example.com/x")))
    assert f"the proxy {proxy} refused to connect to https://as.example.com/x (403)" in str(error)
    assert "s3cret" not in str(error)
    assert len(asked) == 1


async def test_a_proxy_that_is_not_there_is_told(https_proxy: Callable[[str], None], free_port: int) -> None:
    https_proxy(f"http://me:s3cret@127.0.0.1:{free_port}")
    async with fetching() as fetcher:
        error = await failure(fetcher(get("https://as.example.com/x")))
    assert f"no connection to the proxy http://127.0.0.1:{free_port}: connection refused" in str(error)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "proxy:3128", "nonsense", "http://[::1"])
async def test_a_proxy_that_cannot_be_is_told(https_proxy: Callable[[str], None], proxy: str) -> None:
    https_proxy(proxy)
    async with fetching() as fetcher:
        error = await failure(fetcher(get("https://as.example.com/x")))
    assert "proxy" in str(error)


def test_the_http_library_is_imported_in_a_thread() -> None:
    """Whose rule: ours. The first login at a gateway must not make its other callers wait for an import."""
    program = """
        import asyncio, sys, threading
        from importlib.abc import MetaPathFinder
        from trimaran.errors import AuthorizationFailed
        from trimaran.oauth.effects import HttpRequest
        from trimaran.transports.fetch import Fetcher

        class Watch(MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name == "aiohttp":
                    print(threading.current_thread() is threading.main_thread())

        async def main():
            fetcher = Fetcher(allow_private=True)
            try:
                await fetcher(HttpRequest(step="discovery", url="http://127.0.0.1:1/"))
            except AuthorizationFailed:
                await fetcher.close()

        sys.meta_path.insert(0, Watch())
        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["False"]
