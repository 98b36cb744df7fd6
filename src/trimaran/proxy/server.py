"""`Server.proxy(target)`: a server whose tools, resources and prompts are those of another one.

It is an ordinary Server: it can be run, mounted, guarded and given middleware. Its registries follow the target.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from trimaran.client.options import Options
from trimaran.connecting import Target, connect
from trimaran.errors import ConfigError, Unauthorized
from trimaran.option_names import check_options
from trimaran.protocol.inbound import IncomingCall
from trimaran.server.server import Server

from .connections import MOST, CallerAuth, ConnectionBudget
from .upstream import CallControl, Review, Upstream

_OWN: Final = {
    "name": None,
    "start_timeout": 15.0,  # seconds; then the server serves without the target, and goes on trying
    "isolation": "shared",
    "max_connections": MOST,
}


def build_proxy(target: Target, **options: Any) -> Server:
    """A server that stands for `target`.

    Raises:
        ConfigError: the target or an option cannot be right; one that cannot be reached is no error.
    """
    check_options(options, Options.names() | _OWN.keys(), "Server.proxy")
    # Raises for a target that can never be right: a proxy that runs would only log it, and go on trying.
    connect(target, **{key: value for key, value in options.items() if key not in _OWN})
    return open_proxy(target, **options)[0]


def open_proxy(
    target: Target,
    *,
    server_options: Mapping[str, Any] | None = None,
    control: CallControl | None = None,
    caller_auth: Callable[[IncomingCall], CallerAuth] | None = None,
    is_personal: bool = True,
    budget: ConnectionBudget | None = None,
    review: Review | None = None,
    on_refused: Callable[[Unauthorized], Awaitable[object]] | None = None,
    **options: Any,
) -> tuple[Server, Upstream]:
    """The same, with what a gateway needs beside it: the connection itself, and a say in every call.

    Args:
        server_options: Keywords of `Server`.
        control: Decides about each call.
        caller_auth: Makes the credentials of a caller. Each caller then has a connection of its own, and the shared one
            lists the catalog only.
        is_personal: False: callers have their own credentials only once the target has refused the shared connection.
        budget: Bounds the connections of callers, together with those of other targets.
        review: Called with a kind and the definitions that the target lists; returns those to serve.
        on_refused: Called when the target refuses to let the proxy in. Returns credentials to try at once, or None; it
            may raise an error that says more. It is asked again after each attempt.
        options: Those of `Server.proxy`.
    """
    own = {key: options.pop(key, default) for key, default in _OWN.items()}
    if own["isolation"] not in ("shared", "caller"):
        raise ConfigError(f'isolation is "shared" or "caller", not {own["isolation"]!r}')

    @asynccontextmanager
    async def live(_: Server) -> AsyncGenerator[Upstream]:
        await upstream.start()
        try:
            yield upstream
        finally:
            await upstream.close()

    keywords: dict[str, Any] = dict(server_options or {})
    server = Server(own["name"] or "proxy", lifespan=live, **keywords)
    upstream = Upstream(
        server,
        target,
        control=control,
        caller_auth=caller_auth,
        is_personal=is_personal,
        budget=budget,
        review=review,
        on_refused=on_refused,
        **own,
        **options,
    )
    server.runtime.read_undeclared = upstream.read_undeclared
    for registry in (server.tools, server.prompts, server.resources, server.templates):
        registry.expect_reset(upstream.why_unlisted)
    server.runtime.dispatcher.relay()
    server.runtime.dispatcher.refresh()
    return server, upstream
