"""Plain HTTP routes of a gateway, beside `/livez` and `/readyz` of every server.

    /health                  which servers answer
    /servers/NAME/health     200 while this one answers, else 503
    /metrics                 figures for Prometheus
    /                        the page
    /page/KEY                the page, /metrics and /health of a browser that signed in

Where callers authenticate, these are for administrators (`admins` in `[gateway]`); others learn only how many servers
answer. `/metrics` is for everybody if `open_metrics` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from trimaran.auth.refusal import Refused
from trimaran.protocol.headers import HeaderLookup
from trimaran.server.routes import RouteRequest
from trimaran.server.server import Server
from trimaran.transports.engine import HttpRequestHead

from .page import SignIn, StatusPage, read_form

if TYPE_CHECKING:
    from .gateway import Gateway, ServedUpstream

_TEXT: Final = {"content-type": "text/plain; charset=utf-8", "cache-control": "no-store"}
_NO_STORE: Final = {"cache-control": "no-store"}

Reply = tuple[int, Any, dict[str, str]]


@final
class _NoResponder:
    """A route answers by its value; only its address is asked for."""

    def __init__(self, address: str | None) -> None:
        self.address = address


@final
class Routes:
    """Declares the routes on the server of `/mcp`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._page = StatusPage(gateway)
        self._sign_in = SignIn(gateway.settings.secret_keys)

    def declare(self, server: Server) -> None:
        server.custom_route("/")(self.page)
        server.custom_route("/", methods=["POST"])(self.sign_in)
        server.custom_route("/health")(self.health)
        server.custom_route("/page/{key}")(self.page)
        server.custom_route("/page/{key}/health")(self.health)
        server.custom_route("/page/{key}/metrics")(self.metrics)
        server.custom_route("/servers/{name}/health")(self.server_health)
        server.custom_route("/metrics")(self.metrics)

    async def refusal(self, request: RouteRequest) -> Reply | None:
        """None if the caller is an administrator, or nobody is asked; else the reply."""
        if self._gateway.auth is None:
            return None
        return await self._judge(request, self._sign_in.headers(request))

    async def _judge(self, request: RouteRequest, headers: HeaderLookup) -> Reply | None:
        auth, settings = self._gateway.auth, self._gateway.settings
        assert auth is not None
        responder: Any = _NoResponder(request.address)
        head = HttpRequestHead(request.method, request.path, headers, responder)
        try:
            principal = await auth.authenticate(head)
        except Refused as refused:
            return refused.status, refused.body, dict(refused.headers)
        if self._gateway.controls.access.is_one_of(settings.admins, principal):
            return None
        return 403, "this is for administrators: admins in [gateway] lists them\n", _TEXT

    async def page(self, request: RouteRequest) -> Reply:
        refused = await self.refusal(request)
        if refused is None:
            return self._page.render(request.path.rstrip("/"))
        status, _, headers = refused
        _, form, form_headers = self._page.sign_in_form()
        challenge = {name: value for name, value in headers.items() if name == "www-authenticate"}
        return status, form, {**form_headers, **challenge}

    async def sign_in(self, request: RouteRequest) -> Reply:
        """Try what was typed as a token, and as a key in each header that the provider reads."""
        auth = self._gateway.auth
        credential = read_form(request.body).get("credential", "").strip()
        if auth is not None and credential.isascii() and credential.isprintable() and credential:
            for path, cookie, headers in self._sign_in.candidates(request, credential, auth.header_names):
                if await self._judge(request, headers) is None:
                    secure = "; Secure" if (self._gateway.settings.public_url or "").startswith("https") else ""
                    return 303, "", {"location": path, "set-cookie": cookie + secure, "cache-control": "no-store"}
        return self._page.sign_in_form("That is not a credential of an administrator.")

    async def health(self, request: RouteRequest) -> Reply:
        served = self._gateway.served
        up = sum(server.is_up for server in served.values())
        status = "ok" if up == len(served) and not self._gateway.failed else "degraded"
        answer: dict[str, Any] = {"status": status, "up": up, "servers": len(served)}
        if await self.refusal(request) is None:
            answer["servers"] = {name: describe(server) for name, server in served.items()}
            answer["failed"] = dict(self._gateway.failed)
            answer["problems"] = self._gateway.problems()
        return 200, answer, _NO_STORE

    async def server_health(self, request: RouteRequest) -> Reply:
        refused = await self.refusal(request)
        if refused is not None:
            return refused
        name = request.path_params["name"]
        served = next((server for server in self._gateway.served.values() if server.safe == name), None)
        if served is None:
            return 404, {"status": "unknown"}, _NO_STORE
        return (200 if served.is_up else 503), describe(served), _NO_STORE

    async def metrics(self, request: RouteRequest) -> Reply:
        refused = None if self._gateway.settings.open_metrics else await self.refusal(request)
        if refused is not None:
            return refused
        metrics = self._gateway.metrics
        if metrics is None:
            return 501, 'this needs the client of Prometheus: pip install "trimaran[gateway]"\n', _TEXT
        return 200, metrics.render(), {"content-type": metrics.content_type, **_NO_STORE}


def describe(served: ServedUpstream) -> dict[str, Any]:
    """The state of a server, for administrators."""
    about: dict[str, Any] = {"status": "up" if served.is_up else "down", "tools": len(served.server.tools)}
    client = served.upstream.client
    if client is None:
        about["reason"] = served.plan.mask(served.upstream.status)
    else:
        about |= {"era": client.era, "version": client.version}
    return about
