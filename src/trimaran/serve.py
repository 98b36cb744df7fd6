"""Serving: a Server, a transport and both eras put together.

`run` blocks and owns the process; `serve` runs inside a loop that is already there; `asgi` and `engine` hand the endpoint to
somebody else's HTTP server. Public binds must say whom they trust; more than one worker needs a shared store for legacy
sessions, so without one such a server speaks the modern era only, and says so.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, TypedDict, Unpack, final

from trimaran import legacy_seam
from trimaran.errors import ConfigError
from trimaran.option_names import check_options, suggestion
from trimaran.server.exchange import running_loop
from trimaran.server.handlers import logger
from trimaran.transports.engine import Authenticator, Engine, engines_of
from trimaran.transports.guard import Guard
from trimaran.transports.health import choose_health
from trimaran.transports.stop_signals import ENDS, hangup, hear

if TYPE_CHECKING:
    from trimaran.server.server import Server
    from trimaran.state import Store
    from trimaran.transports.admission import RateLimiter
    from trimaran.transports.asgi import AsgiApp
    from trimaran.transports.endpoints import Endpoints
    from trimaran.transports.middleware import AuthMiddleware, MetadataMiddleware
    from trimaran.transports.tls import Certificates
    from trimaran.workers import WorkerChannel

__all__ = ["AuthMiddleware", "HttpServer", "MetadataMiddleware", "asgi", "engine", "lifespan", "run", "serve", "share"]

Path: TypeAlias = str | os.PathLike[str]
Tls: TypeAlias = tuple[Path, Path] | Mapping[str, Path] | SSLContext
"""`("cert.pem", "key.pem")`; a mapping with certfile, keyfile, cacertfile, password; or a ready context."""
Transport: TypeAlias = Literal["stdio", "http", "streamable-http"]

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9090
# How long calls at work may take to finish after SIGTERM; the budget for everything is two seconds.
DRAIN_SECONDS: Final = 1.0


WORKER_VARIABLE: Final = "TRIMARAN_WORKER_CHANNEL"
"""Set for a worker that its supervisor started by the command line: it names the channel between them."""
# How long a port that is taken is waited for, when workers start.
_PORT_SECONDS: Final = 3.0


def __getattr__(name: str) -> Any:
    if name in ("AuthMiddleware", "MetadataMiddleware"):  # for applications; a server of its own loads neither
        from trimaran.transports import middleware

        return getattr(middleware, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class LegacyHttpOptions(TypedDict, total=False):
    """The options that concern clients of the revisions before 2026-07-28."""

    require_session: bool
    enable_get: bool
    allow_delete: bool
    sse_path: str | None
    sse_message_path: str | None
    retry_ms: int | None
    plain: bool
    validate_protocol_version: bool


class EndpointOptions(LegacyHttpOptions, total=False):
    """The options of an endpoint, whichever HTTP server carries it."""

    legacy: bool
    allowed_origins: Iterable[str] | None
    allow_missing_origin: bool | None
    allowed_hosts: Iterable[str] | None
    auth: Authenticator | None
    """A provider of `trimaran.auth`, or any object that can `authenticate(request)`."""
    rate_limit: RateLimiter | None
    """A `trimaran.auth.RateLimit`."""
    public_url: str | None
    """The URL of the endpoint as clients write it, behind a proxy."""
    store: Store | str | None
    """Where sessions and tasks live, for several processes or beyond the end of one: `sqlite:///boat.db`,
    `redis://localhost`, or an object that passes `trimaran.testing.check_store`."""
    health: bool
    """Answers `/livez` and `/readyz`; on by default."""
    gauges: bool
    """Answers `/gauges`."""
    ready_needs_store: bool
    """The server is not ready while its store is away."""
    tasks: Literal["docket"] | None
    """Leaves long-running tools to `trimaran worker`."""


class AsgiOptions(EndpointOptions, total=False):
    """The options of `server.asgi` and `server.engine`."""

    host: str | None
    """The address that the HTTP server binds, if it is known: the guard trusts loopback more."""


class HttpOptions(EndpointOptions, total=False):
    """The options of `HttpServer`, and of `server.run` and `server.serve` over HTTP."""

    host: str
    port: int
    path: str
    tls: Tls | None
    http2: bool | None
    backlog: int
    reuse_port: bool


_HTTP_NAMES: Final = (*HttpOptions.__annotations__, "workers", "on_ready", "inspect")


class StdioOptions(TypedDict, total=False):
    """The options of `server.run` and `server.serve` on stdio."""

    legacy: bool
    watch_parent: bool
    store: Store | str | None


class RunOptions(HttpOptions, total=False):
    """The options of all transports."""

    watch_parent: bool
    inspect: bool
    """HTTP on loopback, for development: opens the inspector beside the server, and writes its link to stderr."""


def engine(server: Server, path: str = "/mcp", **options: Unpack[AsgiOptions]) -> Engine:
    """The endpoint, for any HTTP server to carry."""
    check_options(options, {*AsgiOptions.__annotations__, "path"}, "the endpoint")
    auth, rate_limit, public_url = options.get("auth"), options.get("rate_limit"), options.get("public_url")
    share(server, options.get("store"))
    _hand_on_tasks(server, options.get("tasks"))
    _check_auth(auth)
    _check_rate_limit(rate_limit)
    _check_public_url(public_url)
    guard = Guard(
        options.get("host"),
        allowed_origins=options.get("allowed_origins"),
        allow_missing_origin=options.get("allow_missing_origin"),
        allowed_hosts=options.get("allowed_hosts"),
        public_url=public_url,
        headers=getattr(auth, "header_names", ()),
    )
    legacy_options = {name: value for name, value in options.items() if name in LegacyHttpOptions.__annotations__}
    return Engine(
        server,
        guard,
        path=path,
        legacy=legacy_seam.http_endpoint(server, legacy_options) if options.get("legacy", True) else None,
        auth=auth,
        rate_limit=rate_limit,
        public_url=public_url,
        health=choose_health(
            options.get("health", True), options.get("gauges", False), options.get("ready_needs_store", False)
        ),
    )


def share(server: Server, store: Store | str | None) -> None:
    """Give the server a store. One that is only this process's memory is what it has anyway."""
    if store is None or store == "memory://":
        return
    from trimaran.fleet import Fleet, fleet_of

    fleet = fleet_of(server)
    if fleet is None:
        _check_store(store)
        server.runtime.fleet = Fleet(server, store)
    elif store not in (fleet.url, fleet.store):
        raise ConfigError("a server has one store, and this one is served with another already; give both the same")


def _hand_on_tasks(server: Server, tasks: str | None) -> None:
    if tasks is None:
        return
    if tasks != "docket":
        raise ConfigError(f'tasks= takes "docket", which leaves them to `trimaran worker`, not {_kind(tasks)}')
    from trimaran.ext.tasks.docket import Docket

    if Docket.of(server) is None:
        server.enable_extension(Docket())


def _check_store(store: Any) -> None:
    from trimaran.state import Store

    if isinstance(store, type) or not isinstance(store, (str, Store)):
        raise ConfigError(
            f'store= takes a URL, store="redis://localhost" or store="sqlite:///boat.db", or a store, not {_kind(store)}'
        )


def _check_auth(auth: Any) -> None:
    if auth is None:
        return
    example = 'auth=Bearer(secret="...")'
    if isinstance(auth, type):
        raise ConfigError(f"auth= takes a provider, and {auth.__name__} is the class of one; make one: {example}")
    if not callable(getattr(auth, "authenticate", None)):
        raise ConfigError(
            f"auth= takes a provider of trimaran.auth, {example}, or an object with an async `authenticate(request)`; "
            f"{type(auth).__name__} has none"
        )


def _check_rate_limit(limit: Any) -> None:
    needed = ("client_address", "admit_address", "admit_principal")
    if limit is not None and (isinstance(limit, type) or not all(callable(getattr(limit, n, None)) for n in needed)):
        raise ConfigError(f"rate_limit= takes a trimaran.auth.RateLimit, not {_kind(limit)}")


def _check_public_url(url: Any) -> None:
    if url is None:
        return
    from urllib.parse import urlsplit

    example = 'public_url="https://api.example.com/mcp"'
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"public_url is the URL of the endpoint as clients write it, {example}, not {_kind(url)}")
    if any(sign in url for sign in "?#@"):  # unseen: what stands there may be a password
        raise ConfigError(f"public_url has a query, a fragment or credentials; leave that out, {example}")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is none
    except ValueError:
        raise ConfigError(f"public_url: {url!r} is not a URL; write {example}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"public_url: {url!r} is not absolute; write it whole, {example}")


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else repr(value)[:100]


@asynccontextmanager
async def lifespan(server: Server) -> AsyncGenerator[None]:
    """The life of a server that another application serves; see `Server.lifespan`."""
    try:
        await server.start()
        for endpoint in engines_of(server):
            await endpoint.start()
        yield
    finally:
        for endpoint in engines_of(server):
            await endpoint.drain(DRAIN_SECONDS)
        await server.stop()


def asgi(server: Server, path: str = "/mcp", **options: Unpack[AsgiOptions]) -> AsgiApp:
    """The endpoint as an ASGI app."""
    from trimaran.transports.asgi import AsgiApp

    return AsgiApp(engine(server, path, **options))


@final
class HttpServer:
    """A running HTTP server, as an async context manager (R15): `async with HttpServer(server, port=0) as http: http.url`."""

    def __init__(
        self,
        server: Server,
        *,
        host: str = DEFAULT_HOST,
        port: int = DEFAULT_PORT,
        path: str = "/mcp",
        tls: Tls | None = None,
        http2: bool | None = None,
        backlog: int = 2048,
        reuse_port: bool = False,
        **options: Unpack[EndpointOptions],
    ) -> None:
        check_options(options, _HTTP_NAMES, "an HTTP server")
        if getattr(options.get("auth"), "needs_scope", False):
            raise ConfigError(
                "FromScope reads what an ASGI application above has found out, and here nothing is above: mount "
                "server.asgi(auth=FromScope()) there, or pass another provider"
            )
        if isinstance(port, int) and not 0 <= port <= 65535:  # pyright: ignore[reportUnnecessaryIsInstance]  (nobody checks the caller)
            raise ConfigError(f"port must be a number from 0 to 65535, not {port}; 0 takes any that is free")
        self.server = server
        self.host = host
        self.port: int = port
        self.tls: bool = tls is not None
        certificates = _certificates(tls, http2)
        self.engine: Engine = engine(server, path, host=host, **options)
        self._endpoints: Endpoints | None = None
        from trimaran.transports.http1_server import Http1Server

        self._carrier = Http1Server(self.engine, host, port, backlog=backlog, reuse_port=reuse_port, tls=certificates)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.engine.path}"

    def open_endpoints(self) -> Endpoints:
        """Let the port serve more endpoints than this one: `endpoints.add(other.engine("/other"))`. Call it before `start`.

        To add an endpoint while the port is open, start its engine first; after removing one, end it.
        """
        if self._endpoints is None:
            from trimaran.transports.endpoints import Endpoints

            self._endpoints = self._carrier.engine = Endpoints(self.engine)
        return self._endpoints

    async def start(self) -> None:
        """Listen. Returns once connections are accepted; an authenticator that cannot start keeps it from that (R166)."""
        try:
            await self._carrier.engine.start()
            await self._carrier.start()
        except BaseException:
            await self._carrier.engine.drain(0.0)
            await self._stop_servers()
            raise
        self.port = self._carrier.port

    async def stop(self) -> None:
        """Take no more connections, end open streams properly, let calls finish for a moment, close."""
        self._carrier.stop_listening()
        await self._carrier.engine.drain(DRAIN_SECONDS)
        await self._carrier.stop()
        await self._stop_servers()

    async def _stop_servers(self) -> None:
        for server in self._carrier.engine.servers:
            await server.stop()

    async def __aenter__(self) -> HttpServer:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


def _certificates(tls: Tls | None, http2: bool | None) -> Certificates | None:
    if tls is None:
        if http2:
            raise ConfigError("http2=True needs tls=: clients speak HTTP/2 only where a TLS handshake has chosen it")
        return None
    from trimaran.transports.tls import Certificates

    return Certificates(tls, _protocols(http2))


def _protocols(http2: bool | None) -> list[str]:
    """The protocols that a TLS bind offers by ALPN: HTTP/2 if its extra is installed, unless told otherwise."""
    from importlib import import_module

    if http2 is False:
        return ["http/1.1"]
    try:
        import_module("trimaran.transports.http2_server")  # now, and not while the first client waits
    except ImportError:
        if http2:
            raise ConfigError('http2=True needs the extra `http2`: pip install "trimaran[http2]"') from None
        logger.info('HTTP/1.1 is served; for HTTP/2 on the same port: pip install "trimaran[http2]"')
        return ["http/1.1"]
    return ["h2", "http/1.1"]


def free_port(host: str) -> int:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def _check_bindable(host: str, port: int) -> None:
    """Workers share their port, so one that is taken would go unnoticed; ask first."""
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port") from None


def _stdio_options(server: Server, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a channel. The legacy half is among them, unless it is switched off."""
    for name in options:
        if name not in StdioOptions.__annotations__ and name in _HTTP_NAMES:
            raise ConfigError(f'{name}= is an option of HTTP, not of stdio: server.run("http", {name}=...)')
    check_options(options, StdioOptions.__annotations__, "stdio")
    share(server, options.pop("store", None))
    if not options.pop("legacy", True):
        return options
    return {**options, "legacy": legacy_seam.duplex_half()}


def _check_transport(transport: str) -> None:
    known = ("stdio", "http", "streamable-http")
    if transport not in known:
        hint = suggestion(transport, known)
        raise ConfigError(f'there is no transport {transport!r};{hint} use run() for stdio or run("http", port=9090)')


async def serve(
    server: Server,
    transport: Transport = "stdio",
    *,
    on_ready: Callable[[HttpServer], object] | None = None,
    **options: Unpack[RunOptions],
) -> None:
    """Serve inside a running loop until cancelled."""
    _check_transport(transport)
    if transport == "stdio":
        from trimaran.transports.stdio import serve_stdio

        await serve_stdio(server, **_stdio_options(server, {**options}))
        return
    inspects = _wants_inspector({**options}, 1)
    http_options: Any = {name: value for name, value in options.items() if name != "inspect"}
    async with HttpServer(server, **http_options) as http, _inspector(http, is_wanted=inspects):
        logger.info("serving %s on %s", server.name, http.url)
        if on_ready is not None:
            on_ready(http)
        await asyncio.Event().wait()


def _wants_inspector(options: Mapping[str, Any], workers: int) -> bool:
    """Whether the inspector is to be opened; ConfigError where it must not be."""
    if not options.get("inspect"):
        return False
    from trimaran.transports.guard import is_loopback

    host = options.get("host", DEFAULT_HOST)
    if not is_loopback(host) or options.get("tls") is not None:
        raise ConfigError(
            f"inspect=True is for development on this machine, and {host} is served to others; leave one of the two out"
        )
    if workers != 1:
        raise ConfigError("inspect=True looks at one process: leave out workers=")
    return True


@asynccontextmanager
async def _inspector(http: HttpServer, *, is_wanted: bool) -> AsyncGenerator[None]:
    if not is_wanted:
        yield
        return
    from trimaran.apps.cli.inspect_beside import open_inspector

    async with open_inspector(http.server.info.name, http.url):
        yield


def _require_no_loop(transport: Transport) -> None:
    if running_loop() is not None:
        raise ConfigError(
            "an event loop runs here already, as in a notebook or in an `async def`: write "
            f"await server.serve({transport!r}, ...) instead of server.run({transport!r}, ...)"
        )


def run(
    server: Server,
    transport: Transport = "stdio",
    *,
    workers: int = 1,
    on_ready: Callable[[HttpServer], object] | None = None,
    **options: Unpack[RunOptions],
) -> None:
    """Serve until EOF, SIGTERM or Ctrl-C. In a terminal, stderr shows the URL, or says that a program should start it."""
    _check_transport(transport)
    if transport == "stdio":
        from trimaran.transports.stdio import run_stdio

        known = _stdio_options(server, {**options} if workers == 1 else {**options, "workers": workers})
        _require_no_loop(transport)
        run_stdio(server, **known)
        return
    check_options(options, _HTTP_NAMES, "an HTTP server")
    _require_no_loop(transport)
    if type(workers) is not int or workers < 1:
        raise ConfigError(f"workers must be a positive integer, not {workers!r}")
    if workers != 1 and threading.current_thread() is not threading.main_thread():
        raise ConfigError("workers= starts processes and hears their signals, which only the main thread can do")
    inspects = _wants_inspector({**options}, workers)
    options.pop("inspect", None)
    if on_ready is None and sys.stderr is not None and sys.stderr.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        on_ready = announce
    if workers == 1 and WORKER_VARIABLE not in os.environ:
        _run_one(server, on_ready, {**options}, (*ENDS, *hangup()), inspects)
    else:
        _run_many(server, workers, on_ready, {**options})


def announce(http: HttpServer) -> None:
    """Tell whoever started it where the server is, on stderr."""
    sys.stderr.write(f"{http.server.info.name} is served at {http.url} (Ctrl-C ends it)\n")
    sys.stderr.flush()


def _run_one(
    server: Server,
    on_ready: Callable[[HttpServer], object] | None,
    options: dict[str, Any],
    ends: Iterable[signal.Signals],
    inspects: bool = False,
) -> None:
    async def main() -> None:
        stopping = asyncio.Event()
        hear(ends, stopping.set)
        http = HttpServer(server, **options)
        await http.start()
        try:
            async with _inspector(http, is_wanted=inspects):
                if on_ready is not None:
                    on_ready(http)
                await stopping.wait()
        finally:
            await http.stop()

    run_loop(main())


def run_loop(main: Any) -> None:
    """Run a coroutine on the fastest loop there is."""
    from trimaran.daemon_threads import own_process

    try:
        import uvloop
    except ImportError:
        asyncio.run(own_process(main))
    else:
        uvloop.run(own_process(main))


def _serve_seat(
    server: Server, seat: WorkerChannel, on_ready: Callable[[HttpServer], object] | None, options: dict[str, Any]
) -> NoReturn:
    """The life of one of several workers."""
    from trimaran.workers import work

    def serve_one(report: Callable[[], None]) -> None:
        def ready(http: HttpServer) -> None:
            report()
            if on_ready is not None:
                on_ready(http)

        _run_one(server, ready, options, ENDS)

    work(seat, serve_one)


def _is_shared(store: Any) -> bool:
    """Can several processes use it? An object of this process cannot be used by another, whatever is behind it."""
    if store is None or isinstance(store, str):
        from trimaran.state import open_store

        return store is not None and open_store(store).is_shared
    raise ConfigError('workers= needs the store as a URL, store="redis://localhost": each worker opens its own')


def _run_many(
    server: Server, workers: int, on_ready: Callable[[HttpServer], object] | None, options: dict[str, Any]
) -> None:
    if not hasattr(os, "fork"):
        raise ConfigError("workers needs a system with fork; run several servers on ports of their own instead")
    from trimaran.workers import WorkerSettings, adopt, supervise

    _check_sharing(workers, options)
    options["reuse_port"] = True
    seat = adopt(WORKER_VARIABLE)
    if seat is not None:
        server.runtime.share_secret_keys(seat.post.secret_keys)
        _serve_seat(server, seat, None, {**options, "port": seat.post.port})
    options["port"] = options.get("port", DEFAULT_PORT) or free_port(options.get("host", DEFAULT_HOST))
    keys = server.runtime.share_secret_keys()
    HttpServer(server, **options)  # every mistake in the options shows here, before anything forks
    server.runtime.fleet = None  # each worker is a process of its own in it
    _wait_until_bindable(options.get("host", DEFAULT_HOST), options["port"])

    def begin(seat: WorkerChannel) -> NoReturn:
        _serve_seat(server, seat, on_ready if seat.index == 0 else None, {**options})

    supervise(workers, WorkerSettings(options["port"], tuple(keys), WORKER_VARIABLE), begin)


def _check_sharing(workers: int, options: dict[str, Any]) -> None:
    if _is_shared(options.get("store")):
        return
    if options.setdefault("legacy", False):
        raise ConfigError(
            "legacy sessions live in one process's memory, so more than one worker cannot share them: give them a "
            'store, store="redis://localhost" or store="sqlite:///boat.db", or use workers=1, or legacy=False to '
            "serve 2026-07-28 clients only"
        )
    logger.warning("%d workers without a shared store: serving 2026-07-28 clients only", workers)


def _wait_until_bindable(host: str, port: int) -> None:
    """The workers of a supervisor that was killed a moment ago are about to leave the port."""
    until = time.monotonic() + _PORT_SECONDS
    while True:
        try:
            return _check_bindable(host, port)
        except ConfigError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
