"""An authenticator starts before the endpoint listens and ends with it (R166); wrong options are told at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.badges import ALICE, Badges, demo
from tests.support.harness import AsgiCarrier, Wire, serve

from trimaran import Server
from trimaran.auth import Bearer
from trimaran.errors import ConfigError, ProtocolError
from trimaran.oauth.effects import HttpRequest
from trimaran.serve import HttpServer
from trimaran.transports.admission import Admission


class Living(Badges):
    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.story: list[str] = []
        self.error = error
        self.fetch: Any = None

    async def start(self, fetch: Any) -> None:
        self.fetch = fetch
        self.story.append("started")
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        self.story.append("closed")


async def lifespan(app: Any, *kinds: str) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    todo = [{"type": f"lifespan.{kind}"} for kind in kinds]

    async def receive() -> Any:
        return todo.pop(0)

    async def send(message: Any) -> None:
        said.append(message)

    await app({"type": "lifespan"}, receive, send)
    return said


async def test_an_authenticator_is_started_before_anything_is_served_and_closed_at_the_end() -> None:
    auth = Living()
    http = HttpServer(demo(), port=0, auth=auth)
    assert auth.story == []
    async with http:
        assert auth.story == ["started"]
    assert auth.story == ["started", "closed"]


@pytest.mark.parametrize(
    "error", [ConfigError("no keys at https://issuer.example"), OSError("unreachable")], ids=["ours", "its"]
)
async def test_an_authenticator_that_cannot_start_keeps_the_endpoint_closed(free_port: int, error: Exception) -> None:
    """R166: its own error, no listener, and what had been started before is ended."""
    ended: list[str] = []

    @contextlib.asynccontextmanager
    async def life(server: Server) -> AsyncIterator[None]:
        yield None
        ended.append("lifespan")

    http = HttpServer(demo(lifespan=life), port=free_port, auth=Living(error))
    with pytest.raises(type(error), match=str(error)):
        await http.start()
    assert ended == ["lifespan"]
    with pytest.raises(OSError, match="refused|Connect call failed"):
        await asyncio.open_connection("127.0.0.1", free_port)


async def test_an_asgi_lifespan_starts_and_ends_it() -> None:
    auth = Living()
    said = await lifespan(demo().asgi(auth=auth), "startup", "shutdown")
    assert [m["type"] for m in said] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert auth.story == ["started", "closed"]


async def test_an_asgi_lifespan_fails_with_the_reason() -> None:
    """R166: the host then does not serve."""
    said = await lifespan(demo().asgi(auth=Living(ConfigError("no keys"))), "startup")
    assert said == [{"type": "lifespan.startup.failed", "message": "no keys"}]


async def test_without_a_lifespan_the_first_request_starts_it_once() -> None:
    """P14: a mounted app is told nothing; requests that come together wait for the one start."""
    auth = Living()
    app = demo().asgi(auth=auth, host="127.0.0.1")
    wire = Wire(AsgiCarrier(app), "/mcp", app.engine)
    replies = await asyncio.gather(*(wire.modern("tools/list", headers=ALICE) for _ in range(5)))
    assert {r.status for r in replies} == {200}
    assert auth.story == ["started"]
    await app.aclose()
    assert auth.story == ["started", "closed"]


async def test_what_cannot_start_lets_nobody_in_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Fails closed; the reason is in the log, not in the reply."""
    auth = Living(ConfigError("no keys at the issuer"))
    app = demo().asgi(auth=auth, host="127.0.0.1")
    wire = Wire(AsgiCarrier(app), "/mcp", app.engine)
    reply = await wire.modern("tools/list", headers=ALICE)
    assert reply.status == 500
    assert b"keys" not in reply.body
    assert "no keys at the issuer" in caplog.text
    assert auth.seen == []
    auth.error = None
    assert (await wire.modern("tools/list", headers=ALICE)).status == 200
    await app.aclose()


async def test_after_the_end_nobody_is_let_in() -> None:
    """What was closed is not asked, and not started again by a late request."""
    auth = Living()
    app = demo().asgi(auth=auth, host="127.0.0.1")
    wire = Wire(AsgiCarrier(app), "/mcp", app.engine)
    await wire.modern("tools/list", headers=ALICE)
    await app.aclose()
    assert (await wire.modern("tools/list", headers=ALICE)).status == 503
    assert auth.story == ["started", "closed"]


async def test_a_server_can_be_started_again() -> None:
    auth = Living()
    http = HttpServer(demo(), port=0, auth=auth)
    for _ in range(2):
        async with http:
            pass
    assert auth.story == ["started", "closed", "started", "closed"]


async def test_an_authenticator_needs_neither_start_nor_close(binding: str) -> None:
    async with serve(binding, demo(), auth=Badges()) as wire:
        assert (await wire.modern("tools/list", headers=ALICE)).status == 200


async def test_an_authenticator_may_fetch_from_where_its_operator_says() -> None:
    """Its URLs are the operator's own configuration, so a private address will do; the fetcher ends with the endpoint."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"keys":[]}')
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    class Fetching(Living):
        body = b""

        async def start(self, fetch: Any) -> None:
            reply = await fetch(HttpRequest(step="keys", url=f"http://127.0.0.1:{port}/jwks"))
            self.body = reply.body

    issuer = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = issuer.sockets[0].getsockname()[1]
    auth = Fetching()
    try:
        async with HttpServer(demo(), port=0, auth=auth):
            assert auth.body == b'{"keys":[]}'
    finally:
        issuer.close()
        await issuer.wait_closed()


async def test_what_it_fetches_with_is_made_when_needed_and_ends_with_the_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []

    class Fetcher:
        def __init__(self, *, allow_private: bool) -> None:
            self.allow_private = allow_private
            self.closed = False
            made.append(self)

        async def __call__(self, request: HttpRequest) -> str:
            return f"from {request.url}"

        async def close(self) -> None:
            self.closed = True

    monkeypatch.setattr("trimaran.transports.fetch.Fetcher", Fetcher)
    auth = Living()
    async with HttpServer(demo(), port=0, auth=auth):
        assert made == []
        request = HttpRequest(step="keys", url="https://10.0.0.1/jwks")
        assert [await auth.fetch(request) for _ in range(2)] == ["from https://10.0.0.1/jwks"] * 2
        assert [(f.allow_private, f.closed) for f in made] == [(True, False)]
    assert made[0].closed


async def test_a_bearer_provider_guards_an_endpoint(binding: str) -> None:
    """R155: a real one, whole."""
    from joserfc import jwt
    from joserfc.jwk import OctKey

    secret = "a secret that is long enough for HS256"
    token = jwt.encode({"alg": "HS256"}, {"sub": "alice", "exp": 32503680000}, OctKey.import_key(secret))
    async with serve(binding, demo(), auth=Bearer(secret=secret)) as wire:
        refused = await wire.call("whoami")
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        reply = await wire.call("whoami", headers={"Authorization": f"Bearer {token}"})
        assert reply.result["content"][0]["text"] == "alice@None"


@pytest.mark.slow
def test_serving_without_an_authenticator_loads_nothing_of_it() -> None:
    """Whose rule: ours (the budgets in bench/README.md)."""
    program = (
        "import sys\nfrom trimaran import Server\nServer('a', version='1').asgi()\n"
        "found = [m for m in sys.modules if m.startswith('trimaran.auth') or m.endswith('.entrance')]\n"
        "found += [m for m in ('joserfc', 'cryptography', 'aiohttp') if m in sys.modules]\n"
        "assert not found, found"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


WORKERS = """
import sys
from trimaran import Server
from trimaran.errors import ConfigError, ProtocolError

class Unready:
    async def start(self, fetch):
        raise ConfigError("no keys at the issuer")
    async def authenticate(self, request): ...

Server("w", version="1").run("http", port=int(sys.argv[1]), workers=2, auth=Unready())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need fork")
def test_workers_that_cannot_start_end_the_whole(tmp_path: Path, free_port: int) -> None:
    """R166: no worker is tried again and again; the reason is on standard error."""
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    done = subprocess.run([sys.executable, str(script), str(free_port)], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert "no keys at the issuer" in done.stderr
    assert 1 <= done.stderr.count("no keys at the issuer") <= 2  # the second may be stopped before it gets that far
    assert "a worker could not start" in done.stderr


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"auth": object()},
        {"auth": "token"},
        {"auth": Bearer},
        {"auth": type("Silent", (), {"authenticate": None})()},
        {"public_url": "api.example.com"},
        {"public_url": "ftp://api.example.com/mcp"},
        {"public_url": "https:///mcp"},
        {"public_url": "https://api.example.com/mcp?a=1"},
        {"public_url": "https://api.example.com/mcp#a"},
        {"public_url": "https://me:hunter2@api.example.com/mcp"},
        {"public_url": "https://api.example.com:port/mcp"},
        {"public_url": "https://api.example.com/m cp"},
        {"public_url": 5},
        {"authentication": Badges()},
    ],
    ids=lambda options: " ".join(f"{k} {v}" if isinstance(v, (str, int)) else k for k, v in options.items()),
)
def test_wrong_options_are_told_before_anything_is_served(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        HttpServer(demo(), port=0, **options)
    assert "hunter2" not in str(raised.value)
    assert next(iter(options)) in str(raised.value)


async def test_who_waits_for_the_start_while_the_endpoint_closes_is_answered() -> None:
    begun = asyncio.Event()

    class Slow:
        async def start(self, fetch: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        async def authenticate(self, request: Any) -> None: ...

    entrance = Admission(Slow(), None)
    request: Any = None
    caller = asyncio.ensure_future(entrance.identify(request))
    await asyncio.wait_for(begun.wait(), 5)
    await entrance.close()
    with pytest.raises(ProtocolError, match="stopping") as refused:
        await caller
    assert refused.value.status == 503
