"""The way to an HTTP server: certificates, credentials, proxies, addresses, and connections that do not last.

What goes wrong on it is an error that names the remedy; what is secret stays out of every message (R206, R208, R209).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.certificates import Authority
from tests.support.until import soon, until

from trimaran import Client, Server, connect, errors
from trimaran.serve import HttpServer

from . import evil
from .peers import ERAS, Dock, EvilHttp, Exchange, assert_usable, failure_of, sockets, took

SECRET = "s3cr3t-t0k3n"
CHALLENGE = 'Bearer realm="harbour", scope="tools"'


# --- certificates ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def harbour() -> Server:
    server = Server("harbour", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


@contextlib.asynccontextmanager
async def over_tls(tls: tuple[Path, Path], host: str = "127.0.0.1") -> AsyncIterator[HttpServer]:
    async with HttpServer(harbour(), host=host, port=0, tls=tls) as http:
        yield http


@ERAS
async def test_an_untrusted_certificate_is_refused_with_the_remedy(authority: Authority, era: Any) -> None:
    async with over_tls(authority.issue("127.0.0.1")) as http:
        error = await failure_of(connect(http.url, era=era).open())
    assert isinstance(error, errors.ConnectFailed), repr(error)
    for words in ("certificate", http.url, "ssl=", "cafile"):
        assert words in str(error)


@ERAS
@pytest.mark.parametrize("given", ["authority", "anything"])
async def test_a_certificate_of_a_known_authority_or_any_if_asked_for_is_accepted(
    authority: Authority, era: Any, given: str
) -> None:
    trust = authority.trust() if given == "authority" else False
    async with over_tls(authority.issue("127.0.0.1")) as http:
        async with connect(http.url, era=era, ssl=trust) as client:
            assert client.era == era
            await assert_usable(client)
            assert [tool.name for tool in await soon(client.list_tools())] == ["add"]


@ERAS
@pytest.mark.parametrize("flaw", ["expired", "for another host"])
async def test_a_flawed_certificate_is_refused_for_its_flaw(authority: Authority, era: Any, flaw: str) -> None:
    tls = authority.issue("127.0.0.1", days=-1) if flaw == "expired" else authority.issue("elsewhere.test")
    async with over_tls(tls) as http:
        error = await failure_of(connect(http.url, era=era, ssl=authority.trust()).open())
        assert isinstance(error, errors.ConnectFailed), repr(error)
        assert "certificate" in str(error)
        assert ("expired" if flaw == "expired" else "127.0.0.1") in str(error)
        async with connect(http.url, era=era, ssl=False) as client:
            await assert_usable(client)


@ERAS
async def test_plain_http_where_tls_is_expected_and_the_reverse_cannot_connect(authority: Authority, era: Any) -> None:
    async with HttpServer(harbour(), port=0) as http:
        url = http.url.replace("http", "https", 1)
        # The server waits for the end of a request line, so it is the client that has to lose its patience.
        error = await failure_of(connect(url, era=era, connect_timeout=0.5).open())
        assert isinstance(error, (errors.ConnectFailed, errors.TimedOut)), repr(error)
    async with over_tls(authority.issue("127.0.0.1")) as http:
        error = await failure_of(connect(http.url.replace("https", "http", 1), era=era).open())
        assert isinstance(error, (errors.ConnectFailed, errors.RemoteProtocolError, errors.UnexpectedStatus))


@pytest.mark.parametrize("wrong", ["ca.pem", 5, Path("ca.pem")], ids=["a text", "a number", "a path"])
async def test_an_ssl_option_of_the_wrong_kind_is_a_config_error(wrong: Any) -> None:
    with pytest.raises(errors.ConfigError, match="ssl"):
        async with connect("https://127.0.0.1:9/mcp", ssl=wrong):
            pass


# --- hosts that do not go on -----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def mute(dock: Dock) -> AsyncIterator[int]:
    """Accepts connections and says nothing."""
    peer = EvilHttp()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer._running.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                while await reader.read(65536):
                    pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in peer._running:
            task.cancel()
        await asyncio.gather(*peer._running, return_exceptions=True)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
async def test_a_host_that_accepts_and_says_nothing_is_bounded_by_connect_timeout(
    dock: Dock, scheme: str, era: Any
) -> None:
    """Neither a TLS handshake nor an answer ever begins."""
    before = sockets()
    async with mute(dock) as port:
        with took(least=0.3, most=2.5):
            error = await failure_of(connect(f"{scheme}://127.0.0.1:{port}/mcp", era=era, connect_timeout=0.6).open())
        assert isinstance(error, (errors.TimedOut, errors.ConnectFailed)), repr(error)
        assert str(port) in str(error)
    await until(lambda: sockets() <= before, "every socket is closed")


# --- credentials -----------------------------------------------------------------------------------------------------


class Gate:
    """Lets requests through that carry the right token; others get a 401."""

    def __init__(self, peer: EvilHttp, *accepted: str, status: int = 401) -> None:
        self.accepted = set(accepted)
        self.refused: list[Exchange] = []
        self._peer = peer
        self._status = status
        for verb in ("POST", "GET", "DELETE"):
            peer.overrides[verb] = self.check

    async def check(self, x: Exchange) -> None:
        if x.headers.get("authorization") in {f"Bearer {token}" for token in self.accepted}:
            await self._peer.honest(x)
        else:
            self.refused.append(x)
            await x.reply(b"who are you?", self._status, "text/plain", WWW_Authenticate=CHALLENGE)


class Wallet:
    """Tokens that wear out, one after the other; with coroutine functions or plain ones."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.challenges: list[str] = []

    def header(self) -> Any:
        return f"Bearer {self.tokens[0]}"

    def refresh(self, www_authenticate: str) -> Any:
        self.challenges.append(www_authenticate)
        if len(self.tokens) > 1:
            self.tokens.pop(0)
            return True
        return False


class SlowWallet(Wallet):
    async def header(self) -> Any:
        await asyncio.sleep(0)
        return super().header()

    async def refresh(self, www_authenticate: str) -> Any:
        await asyncio.sleep(0.01)
        return super().refresh(www_authenticate)


WALLETS = pytest.mark.parametrize("wallet", [Wallet, SlowWallet], ids=["plain", "async"])


@ERAS
async def test_a_token_goes_with_every_request(dock: Dock, era: Any) -> None:
    """R209: also with the stream of a session, and with its end."""
    peer = await dock.http(era)
    Gate(peer, SECRET)
    async with connect(peer.url, auth=SECRET, era=era) as client:
        await assert_usable(client)
        if era == "legacy":
            await until(lambda: any(x.verb == "GET" for x in peer.seen), "the stream was asked for")
    assert {x.headers.get("authorization") for x in peer.seen} == {f"Bearer {SECRET}"}
    if era == "legacy":
        assert {x.verb for x in peer.seen} == {"POST", "GET", "DELETE"}


@ERAS
@WALLETS
async def test_a_401_is_refreshed_once_and_the_request_made_once_more(dock: Dock, era: Any, wallet: Any) -> None:
    """R206: with what the server asks for."""
    peer = await dock.http(era)
    gate = Gate(peer, "new")
    made = wallet("old", "new")
    async with connect(peer.url, auth=made, era=era) as client:
        await assert_usable(client)
    assert made.challenges == [CHALLENGE]
    assert len(gate.refused) == 1


@ERAS
@WALLETS
async def test_a_401_after_the_refresh_is_unauthorized(dock: Dock, era: Any, wallet: Any) -> None:
    peer = await dock.http(era)
    gate = Gate(peer, "never")
    made = wallet("a", "b", "c")
    error = await failure_of(connect(peer.url, auth=made, era=era).open())
    assert isinstance(error, errors.Unauthorized), repr(error)
    assert (error.status, error.www_authenticate) == (401, CHALLENGE)
    assert made.challenges == [CHALLENGE]
    assert [x.headers["authorization"] for x in gate.refused] == ["Bearer a", "Bearer b"]


@ERAS
async def test_a_token_revoked_in_mid_conversation_is_renewed(dock: Dock, era: Any) -> None:
    peer = await dock.http(era)
    gate = Gate(peer, "one")
    wallet = SlowWallet("one", "two", "three")
    async with connect(peer.url, auth=wallet, era=era) as client:
        for token in ("two", "three"):
            await assert_usable(client)
            gate.accepted = {token}
        await assert_usable(client)
        gate.accepted = set()
        error = await failure_of(client.call_tool("echo", {"text": "x"}))
        assert isinstance(error, errors.Unauthorized), repr(error)
        assert client.state == "ready"
        gate.accepted = {"three"}
        await assert_usable(client)


@ERAS
@WALLETS
async def test_many_401s_at_once_all_get_through(dock: Dock, era: Any, wallet: Any) -> None:
    """The tokens of a wallet are few: a refresh for one call must not spoil the token of another."""
    peer = await dock.http(era)
    gate = Gate(peer, "old")
    made = wallet("old", "new")
    async with connect(peer.url, auth=made, era=era) as client:
        await assert_usable(client)
        gate.accepted = {"new"}
        calls = [client.call_tool("echo", {"text": str(i)}) for i in range(30)]
        results = await soon(asyncio.gather(*calls, return_exceptions=True))
        assert [getattr(one, "text", one) for one in results] == [str(i) for i in range(30)]
        assert len(made.challenges) == 1, f"{len(made.challenges)} refreshes for one token that wore out"


@ERAS
async def test_403_is_unauthorized_and_refreshes_nothing(dock: Dock, era: Any) -> None:
    peer = await dock.http(era)
    Gate(peer, "never", status=403)
    wallet = Wallet("old", "new")
    error = await failure_of(connect(peer.url, auth=wallet, era=era).open())
    assert isinstance(error, errors.Unauthorized), repr(error)
    assert error.status == 403
    assert wallet.challenges == []


class Broken(Wallet):
    """Its header can be had this often, and then no more."""

    def __init__(self, times: int) -> None:
        super().__init__(SECRET)
        self.left = times

    def header(self) -> Any:
        self.left -= 1
        if self.left < 0:
            raise LookupError("the keyring is locked")
        return super().header()


async def test_a_header_that_cannot_be_had_fails_its_call_only(dock: Dock) -> None:
    peer = await dock.http("modern")
    wallet = Broken(3)
    async with connect(peer.url, auth=wallet) as client:
        await assert_usable(client)
        for _ in range(2):
            with pytest.raises(Exception, match="the keyring is locked"):
                await soon(client.call_tool("add", {"a": 1, "b": 2}))
        wallet.left = 100
        await assert_usable(client)


@ERAS
async def test_a_header_that_cannot_be_had_at_the_start_fails_the_start(dock: Dock, era: Any) -> None:
    peer = await dock.http(era)
    client = connect(peer.url, auth=Broken(0), era=era)
    before = sockets()
    with pytest.raises(Exception, match="the keyring is locked"):
        await soon(client.open())
    assert client.state == "closed"
    assert peer.seen == []
    await until(lambda: sockets() <= before, "every socket is closed")


async def test_a_header_that_cannot_be_had_at_the_end_keeps_nothing_open(
    dock: Dock, caplog: pytest.LogCaptureFixture
) -> None:
    """close() is for giving up: what fails on the way to telling the server is no reason to stay."""
    peer = await dock.http("legacy")
    wallet = Broken(1000)
    client = connect(peer.url, auth=wallet, era="legacy")
    before = sockets()
    await soon(client.open())
    await assert_usable(client)
    wallet.left = 0
    await soon(client.close())
    assert client.state == "closed"
    await until(lambda: sockets() <= before, "every socket is closed")


async def test_a_header_that_fails_for_the_standing_stream_is_not_lost_in_a_task(
    dock: Dock, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream is opened in the background: nobody waits there for an exception."""
    peer = await dock.http("legacy")
    wallet = Broken(2)  # initialize, initialized; then GET
    async with connect(peer.url, auth=wallet, era="legacy"):
        await until(lambda: wallet.left < 0, "the stream was tried")
        wallet.left = 100
        await asyncio.sleep(0)
    import gc

    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("value", [5, b"Bearer x", "Bearer a\r\nX-Evil: 1"], ids=["a number", "bytes", "two lines"])
async def test_a_header_that_is_none_is_a_config_error(dock: Dock, value: Any) -> None:
    peer = await dock.http("modern")

    class Odd(Wallet):
        def header(self) -> Any:
            return value

    error = await failure_of(connect(peer.url, auth=Odd()).open())
    assert isinstance(error, errors.ConfigError), repr(error)
    assert not any("x-evil" in x.headers for x in peer.seen)


@ERAS
async def test_a_secret_is_in_no_message_no_repr_and_no_log(
    dock: Dock, era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """R208."""
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    peer = await dock.http(era)
    gate = Gate(peer, SECRET)
    for auth in (SECRET, Wallet(SECRET)):
        gate.accepted = {SECRET}
        async with connect(peer.url, auth=auth, era=era, timeout=0.5, retries=0) as client:
            await assert_usable(client)
            for tool in ("never", "hang_up", "half_reset", "nonsense"):
                said.append(repr(await failure_of(client.call_tool(tool))))
            gate.accepted = set()
            refusal = await failure_of(client.call_tool("echo", {"text": "x"}))
            assert isinstance(refusal, errors.Unauthorized)
            said.append(repr(refusal))
            said.append(repr(client))
    said.append(repr(await failure_of(connect(peer.url, auth=SECRET, era=era).open())))
    assert SECRET not in "\n".join(said)
    assert SECRET not in caplog.text


async def test_a_secret_is_not_shown_by_the_options_that_hold_it() -> None:
    """R208: tracebacks with local variables go to logs and to error trackers."""
    client = connect("http://127.0.0.1:9/mcp", auth=SECRET, headers={"X-Api-Key": SECRET}, env={"KEY": SECRET})
    assert SECRET not in repr(client._options)
    assert SECRET not in str(client._options)


async def test_a_bad_token_is_refused_without_being_shown() -> None:
    for bad in (f"{SECRET} {SECRET}", f"{SECRET}\r\nX-Evil: 1", f"{SECRET}\u2603"):
        with pytest.raises(errors.ConfigError) as caught:
            connect("http://127.0.0.1:9/mcp", auth=bad)
        assert SECRET not in str(caught.value)
    with pytest.raises(errors.ConfigError) as caught:
        connect("http://127.0.0.1:9/mcp", headers={"Authorization": f"Bearer {SECRET}\r\n"})
    assert SECRET not in str(caught.value)


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    """R208: addresses end up in messages, reprs and logs; credentials have options of their own."""
    with pytest.raises(errors.ConfigError, match="auth= or headers=") as caught:
        connect(f"http://ada:{SECRET}@127.0.0.1:1/mcp")
    assert SECRET not in repr(caught.value)


@ERAS
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_credentials_do_not_follow_a_redirect_to_another_origin(dock: Dock, era: Any, status: int) -> None:
    """Neither a token, nor headers, nor a session id."""
    peer = await dock.http(era)
    other = await dock.http(era)
    auth, headers = SECRET, {"X-Api-Key": SECRET}
    async with connect(peer.url, auth=auth, headers=headers, era=era, retries=0) as client:
        await assert_usable(client)

        async def away(x: Exchange) -> None:
            await x.reply(status=status, Location=other.url)

        peer.overrides["POST"] = peer.overrides["GET"] = away
        error = await failure_of(client.call_tool("echo", {"text": "x"}))
        assert isinstance(error, errors.ConnectFailed), repr(error)
        assert other.url in str(error)
        assert SECRET not in str(error)
    assert other.connections == 0


async def test_a_token_still_goes_with_a_redirect_within_the_origin(dock: Dock) -> None:
    peer = await dock.http("legacy")

    async def slash(x: Exchange) -> None:
        if x.path == "/mcp":
            await x.reply(status=307, Location="/mcp/")
        else:
            await peer.honest(x)

    for verb in ("POST", "GET", "DELETE"):
        peer.overrides[verb] = slash
    async with connect(peer.url, auth=SECRET, era="legacy") as client:
        for _ in range(5):
            await assert_usable(client)
    assert {x.headers.get("authorization") for x in peer.seen} == {f"Bearer {SECRET}"}
    redirected = [x for x in peer.seen if x.path == "/mcp"]
    assert len(redirected) == 1, "later requests go to the right place at once"
    assert peer.seen[-1].verb == "DELETE"
    assert peer.seen[-1].path == "/mcp/"


# --- cookies, addresses ----------------------------------------------------------------------------------------------


async def test_cookies_are_neither_needed_nor_kept_where_there_is_no_session(dock: Dock) -> None:
    """By name, since HTTP libraries keep none for addresses."""
    peer = await dock.http("modern")

    async def bake(x: Exchange) -> None:
        send, head = x.head, {"Set-Cookie": "who=ada; Path=/"}

        async def headed(status: int = 200, headers: Any = None) -> None:
            await send(status, {**(headers or {}), **head})

        x.head = headed  # type: ignore[method-assign]
        await peer.honest(x)

    peer.overrides["POST"] = bake
    async with connect(peer.url.replace("127.0.0.1", "localhost"), era="modern") as client:
        for _ in range(3):
            await assert_usable(client)
    assert [x.headers["cookie"] for x in peer.seen if "cookie" in x.headers] == []


@ERAS
async def test_an_ipv6_address_is_connected_to(era: Any) -> None:
    async with HttpServer(harbour(), host="::1", port=0) as http:
        assert "[::1]" in http.url
        async with connect(http.url, era=era) as client:
            await assert_usable(client)


@ERAS
@pytest.mark.parametrize("query", ["tenant=a", "tenant=a&x=1&x=2", "sig=a%2Fb%2Bc%3D%3D&t=%7E", "q=%E2%9B%B5&empty="])
async def test_the_query_of_a_url_goes_with_every_request_as_it_is(dock: Dock, era: Any, query: str) -> None:
    """A signed URL is worth nothing when its escapes are rewritten."""
    peer = await dock.http(era)
    async with connect(f"{peer.url}?{query}", era=era) as client:
        await assert_usable(client)
    assert {x.path for x in peer.seen} == {f"/mcp?{query}"}


# --- proxies ---------------------------------------------------------------------------------------------------------


class Proxy:
    """Forwards whatever is asked of it to one place: plain requests by absolute form, tunnels by CONNECT."""

    def __init__(self, port: int, *, status: int | None = None) -> None:
        self.heads: list[str] = []
        self._to = port
        self._status = status
        self._running: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._running.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode("latin-1"))
        if self._status is not None:
            writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % self._status)
            await writer.drain()
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._to)
        try:
            if head.startswith(b"CONNECT "):
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                verb, target, _ = head.split(b" ", 2)
                parts = urlsplit(target.decode())
                up_writer.write(head.replace(target, parts.path.encode(), 1))
            await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))
        finally:
            up_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # The connection of a forwarded request is used once: what follows on it would need rewriting too.
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    names = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")

    def put(**values: str) -> None:
        for name in names:
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    put()
    return put


@ERAS
async def test_the_proxy_of_the_environment_carries_plain_requests(dock: Dock, era: Any, environment: Any) -> None:
    peer = await dock.http(era)

    async def once(x: Exchange) -> None:
        x.keep = False
        head = x.head

        async def headed(status: int = 200, headers: Any = None) -> None:
            await head(status, {**(headers or {}), "Connection": "close"})

        x.head = headed  # type: ignore[method-assign]
        await peer.honest(x)

    for verb in ("POST", "GET", "DELETE"):
        peer.overrides[verb] = once
    async with Proxy(peer.port) as proxy:
        environment(http_proxy=proxy.url)
        async with connect("http://mcp.example.test/mcp", era=era) as client:
            await assert_usable(client)
        assert proxy.heads
        assert all(" http://mcp.example.test/mcp " in head for head in proxy.heads)


@ERAS
async def test_the_proxy_of_the_environment_carries_tls_by_a_tunnel(
    authority: Authority, era: Any, environment: Any
) -> None:
    """The credentials are for the server, and the proxy does not get to see them."""
    async with HttpServer(
        harbour(), port=0, tls=authority.issue("mcp.example.test"), allowed_hosts=["mcp.example.test"]
    ) as http:
        async with Proxy(http.port) as proxy:
            environment(HTTPS_PROXY=proxy.url)
            async with connect("https://mcp.example.test/mcp", era=era, ssl=authority.trust(), auth=SECRET) as client:
                await assert_usable(client)
            assert proxy.heads
            assert all(head.startswith("CONNECT mcp.example.test:443 ") for head in proxy.heads)
            assert SECRET not in "".join(proxy.heads)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.0.0.2"])
async def test_loopback_is_never_reached_through_a_proxy(dock: Dock, environment: Any, host: str) -> None:
    """guides/client.md: never for loopback addresses."""
    async with Proxy(1) as proxy:
        environment(http_proxy=proxy.url, https_proxy=proxy.url)
        await failure_of(connect(f"http://{host}:9/mcp", connect_timeout=2.0).open())
        assert proxy.heads == []


@pytest.mark.parametrize("excepted", ["mcp.invalid", ".invalid", "other.test,mcp.invalid", "*", "mcp.invalid:9"])
async def test_hosts_in_no_proxy_are_reached_directly(environment: Any, excepted: str) -> None:
    """`.invalid` never resolves: to go there directly fails, without the proxy having been asked."""
    async with Proxy(1) as proxy:
        environment(http_proxy=proxy.url, no_proxy=excepted)
        error = await failure_of(connect("http://mcp.invalid:9/mcp", connect_timeout=5.0).open())
        assert proxy.heads == []
        assert isinstance(error, (errors.ConnectFailed, errors.TimedOut)), repr(error)


@pytest.mark.parametrize("status", [403, 407, 502])
async def test_a_proxy_that_refuses_is_blamed_by_name(environment: Any, status: int) -> None:
    async with Proxy(1, status=status) as proxy:
        environment(https_proxy=proxy.url)
        error = await failure_of(connect("https://mcp.example.test/mcp").open())
        assert isinstance(error, errors.ConnectFailed), repr(error)
        assert str(status) in str(error)
        assert "proxy" in str(error)


async def test_a_proxy_that_is_not_there_is_blamed_by_name(environment: Any, free_port: int) -> None:
    environment(http_proxy=f"http://127.0.0.1:{free_port}")
    error = await failure_of(connect("http://mcp.example.test/mcp").open())
    assert isinstance(error, errors.ConnectFailed), repr(error)
    assert "proxy" in str(error)
    assert str(free_port) in str(error)


async def test_the_password_of_a_proxy_is_not_shown(environment: Any, free_port: int) -> None:
    environment(http_proxy=f"http://ada:{SECRET}@127.0.0.1:{free_port}")
    error = await failure_of(connect("http://mcp.example.test/mcp").open())
    assert isinstance(error, errors.ConnectFailed), repr(error)
    assert SECRET not in str(error)


# --- connections that do not last ------------------------------------------------------------------------------------


def closing_after(peer: EvilHttp, number: int, *, announced: bool) -> None:
    """Every so many exchanges the connection is closed after its answer: with a word of warning, or without."""

    async def serve(x: Exchange) -> None:
        if len(peer.seen) % number == 0:
            x.keep = False
            if announced:
                head = x.head

                async def headed(status: int = 200, headers: Any = None) -> None:
                    await head(status, {**(headers or {}), "Connection": "close"})

                x.head = headed  # type: ignore[method-assign]
        await peer.honest(x)

    peer.overrides["POST"] = serve


@pytest.mark.slow
@ERAS
@pytest.mark.parametrize("manner", ["announced", "unannounced and repeatable"])
async def test_hundreds_of_calls_survive_connections_closed_between_them(dock: Dock, era: Any, manner: str) -> None:
    """Each call is made once at the server: it reads none from a connection that it has closed."""
    peer = await dock.http(era)
    closing_after(peer, 10, announced=manner == "announced")
    idempotent, number = (None, 1000) if manner == "announced" else (True, 200)
    async with connect(peer.url, era=era, timeout=10.0) as client:
        await assert_usable(client)
        before = peer.calls("echo")
        for i in range(number):
            assert (await client.call_tool("echo", {"text": str(i)}, idempotent=idempotent)).text == str(i)
        assert peer.calls("echo") - before == number
        assert client.state == "ready"
    assert peer.connections >= number // 10


@ERAS
async def test_a_call_that_could_not_even_be_written_is_made_again(dock: Dock, era: Any) -> None:
    """ConnectionLost.sent: nothing went out on a connection that was closing, so any tool may be called again."""
    peer = await dock.http(era)
    closing_after(peer, 2, announced=False)
    async with connect(peer.url, era=era, timeout=10.0) as client:
        with contextlib.suppress(errors.ConnectionLost):
            await client.list_tools()
        for i in range(50):
            try:
                result = await client.call_tool("echo", {"text": str(i)})
            except errors.ConnectionLost as error:
                # Written, and then cut: that is a loss to report. Not written: it is not.
                assert "Cannot write" not in repr(error.__cause__) + repr(error.__cause__ and error.__cause__.__cause__)
                assert "Can not write" not in str(error)
            else:
                assert result.text == str(i)
        assert peer.calls("echo") <= 50


@ERAS
async def test_http_1_0_answers_are_answers(dock: Dock, era: Any) -> None:
    """No length, no keep-alive: the end of the connection is the end of the body."""
    peer = await dock.http(era)

    async def old(x: Exchange) -> None:
        async def reply(
            body: bytes = b"", status: int = 200, content_type: str = "application/json", **headers: str
        ) -> None:
            lines = [f"HTTP/1.0 {status} Whatever", f"Content-Type: {content_type}"]
            lines += [f"{k.replace('_', '-')}: {v}" for k, v in headers.items()]
            await x.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            x.cut()

        x.reply = reply  # type: ignore[method-assign]
        await peer.honest(x)

    for verb in ("POST", "GET", "DELETE"):
        peer.overrides[verb] = old
    async with connect(peer.url, era=era) as client:
        assert client.era == era
        for _ in range(5):
            await assert_usable(client)


async def closed_sockets(client: Client, before: set[str]) -> None:
    await soon(client.close())
    await until(lambda: sockets() <= before, "every socket is closed")


@pytest.mark.slow
@ERAS
@pytest.mark.parametrize("wire", ["json", "sse"])
async def test_a_thousand_calls_at_once(dock: Dock, era: Any, wire: str) -> None:
    peer = await dock.http(era, wire)
    before = sockets()
    client = connect(peer.url, era=era, timeout=20.0)
    await soon(client.open())
    calls = [client.call_tool("echo", {"text": str(i)}) for i in range(1000)]
    with took(most=15.0):
        results = await soon(asyncio.gather(*calls), 20.0)
    assert [one.text for one in results] == [str(i) for i in range(1000)]
    await closed_sockets(client, before)


async def in_one_piece(x: Exchange) -> None:
    """Answers `echo` with head and body in one write, as fast servers do: the answer is complete when it begins."""
    text = x.message["params"]["arguments"]["text"]
    result = evil.complete(x.peer.era, {"content": [{"type": "text", "text": text}]})
    body = evil.encode({"jsonrpc": "2.0", "id": x.id, "result": result})
    await x.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


@ERAS
async def test_connections_handed_from_call_to_call_answer_each_of_them(dock: Dock, era: Any) -> None:
    """An answered connection is free before its caller has run again; the next caller may be quicker."""
    peer = await dock.http(era)
    peer.overrides["echo"] = in_one_piece
    async with connect(peer.url, era=era, timeout=3.0) as client:
        await assert_usable(client)

        async def work(number: int) -> None:
            for n in range(40):
                text = f"{number}.{n}"
                assert (await client.call_tool("echo", {"text": text})).text == text

        await soon(asyncio.gather(*(work(number) for number in range(25))), 20)


@ERAS
async def test_a_call_given_up_with_its_answer_there_harms_no_other(dock: Dock, era: Any) -> None:
    """Its connection may carry somebody else's request by then."""
    peer = await dock.http(era)
    peer.overrides["echo"] = in_one_piece
    async with connect(peer.url, era=era, timeout=3.0, retries=0) as client:
        await assert_usable(client)

        async def work(number: int) -> None:
            for n in range(40):
                text = f"{number}.{n}"
                assert (await client.call_tool("echo", {"text": text})).text == text

        async def waver(number: int) -> None:
            for n in range(40):
                call = asyncio.ensure_future(client.call_tool("echo", {"text": "x"}))
                for _ in range(2 + (number * 5 + n) % 14):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)

        await soon(asyncio.gather(*(work(n) for n in range(8)), *(waver(n) for n in range(8))), 20)
