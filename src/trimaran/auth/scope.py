"""Callers that an ASGI application above has authenticated: `ctx.auth` comes from the ASGI scope (R149).

    app = Starlette(routes=[Mount("/api", server.asgi(auth=FromScope()))], middleware=[Middleware(AuthenticationMiddleware, ...)])

This module verifies nothing: only code of the same process can write into a scope, so it is trusted. A
scope without an entry is a mistake of the operator, and the call is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast, final

from trimaran.errors import ConfigError
from trimaran.protocol.headers import HeaderLookup
from trimaran.types import Json

from .principal import Principal
from .provider import AuthRequest, Provider, check_realm, consult, is_async, logger, principal_from_info
from .refusal import Refused

PRINCIPAL: Final = "trimaran.principal"
"""Where `trimaran.serve.AuthMiddleware` leaves the principal."""

# Attributes that name a user, best first: those of Starlette, of Django, and common others.
_NAMES: Final = ("identity", "pk", "id", "sub", "username", "display_name", "name", "email")
_SCOPE_CLAIMS: Final = ("scope", "scp", "scopes")


@final
class FromScope(Provider):
    """Callers as a layer above has found them.

    `source` says where they are:

    - None: in `scope["user"]` and `scope["auth"]`, as Starlette's AuthenticationMiddleware and Django Channels leave them,
      or where `trimaran.serve.AuthMiddleware` does
    - the name of a key in `scope["state"]`, which FastAPI and Starlette call `request.state`
    - a function of the scope, sync or async; a sync one must be quick

    The value is a `Principal`, a mapping of claims (`sub` and `scope`, or `subject` and `scopes`), an object with
    `is_authenticated` and a name, or the name itself. None, and an object that is not authenticated, is refused; with
    `allow_anonymous` the call is anonymous. `resource_metadata` is the URL in challenges.
    """

    expects = "credentials that the application in front of this server accepts"
    needs_scope = True

    def __init__(
        self,
        source: str | Callable[..., object] | None = None,
        *,
        allow_anonymous: bool = False,
        required_scopes: Iterable[str] = (),
        realm: str | None = "mcp",
        resource_metadata: str | None = None,
        header_names: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(required_scopes)
        if source is not None and not callable(source) and not (isinstance(source, str) and source):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f'source is a key of scope["state"], FromScope("claims"), or a function of the scope, not {source!r}'
            )
        self._source = source
        self.allows_anonymous = allow_anonymous
        self._realm = check_realm(realm)
        self._metadata_url = resource_metadata
        self.offers_login: bool = resource_metadata is not None
        self.header_names: tuple[str, ...] = tuple(header_names)
        self._clock = clock

    def presents(self, request: AuthRequest) -> bool:
        scope = _scope_of(request)
        return scope is not None and bool(scope.get(PRINCIPAL) or scope.get("user") or scope.get("state"))

    def challenge(self, refusal: Refused) -> str:
        return refusal.bearer_challenge(self._realm, self._metadata_url, scopes=self.required_scopes)

    async def identify(self, request: AuthRequest) -> Principal | None:
        scope = _scope_of(request)
        if scope is None:
            logger.error("FromScope reads an ASGI scope, and this request has none: serve it with server.asgi()")
            raise Refused("server_error")
        try:
            principal = _read(await self._find(scope), scope)
        except (ValueError, LookupError) as error:
            logger.error("FromScope: %s", error)
            raise Refused("server_error") from None
        if principal is None:
            if self.allows_anonymous:
                return None
            raise Refused("missing")
        if principal.expires_at is not None and self._clock() >= principal.expires_at:
            raise Refused("expired_token")
        return principal

    async def _find(self, scope: Mapping[str, Any]) -> Any:
        source = self._source
        if source is None:
            if PRINCIPAL in scope:
                return scope[PRINCIPAL]
            if "user" not in scope:
                raise LookupError('nothing above has set scope["user"]: add the middleware, or name another source')
            return scope["user"]
        if isinstance(source, str):
            state: Any = scope.get("state")
            if not isinstance(state, Mapping) or source not in state:
                raise LookupError(f'nothing above has set {source!r} in scope["state"] (request.state.{source})')
            return cast("Mapping[str, Any]", state)[source]
        if is_async(source):
            return await consult("source of FromScope", source, scope)
        try:
            return source(scope)
        except Refused:
            raise
        except Exception as error:
            logger.error("the source of FromScope failed: %s", type(error).__name__)
            raise Refused.failed(error) from None


def _scope_of(request: Any) -> Mapping[str, Any] | None:
    return getattr(request, "scope", None)


def _read(value: Any, scope: Mapping[str, Any]) -> Principal | None:
    """The principal that this value describes; None for an anonymous caller. ValueError if it is neither."""
    if value is None or value == "":
        return None
    if isinstance(value, Principal):
        return value
    if isinstance(value, str):
        return _make({"subject": value}, scope)
    if isinstance(value, Mapping):
        return _make(dict(cast("Mapping[str, Any]", value)), scope)
    is_authenticated = getattr(value, "is_authenticated", None)
    if callable(is_authenticated):
        is_authenticated = is_authenticated()
    if is_authenticated is None:
        raise ValueError(f"a {type(value).__name__} describes no caller: it has no is_authenticated")
    if not is_authenticated:
        return None
    claims: Any = getattr(value, "claims", None)
    info: dict[str, Any] = {"claims": claims} if isinstance(claims, Mapping) else {}
    name = _name_of(value)
    return _make(info if name is None else {**info, "subject": name}, scope)


def _name_of(user: Any) -> str | None:
    for attribute in _NAMES:
        try:
            name: Any = getattr(user, attribute, None)
        except NotImplementedError:  # Starlette's BaseUser.identity
            continue
        if name is not None and name != "" and not callable(name):
            return str(name)
    return None


def _make(info: dict[str, Any], scope: Mapping[str, Any]) -> Principal:
    granted: Any = getattr(scope.get("auth"), "scopes", None)
    claims: Mapping[str, Any] = info.get("claims") or {}
    if granted is not None and not any(name in info or name in claims for name in _SCOPE_CLAIMS):
        info["scopes"] = list(granted)
    principal = principal_from_info(info, None)
    if principal.subject is None:
        # Sessions and tasks belong to a subject: two callers without one could not be told apart.
        raise ValueError("the caller that was found has no name: give it a subject, or sub")
    return principal


@final
class AsgiRequest:
    """An `AuthRequest` from an ASGI scope, for your own routes.

    `await auth.authenticate(AsgiRequest(request.scope))` in a FastAPI dependency, or in any other ASGI code.
    """

    def __init__(self, scope: Mapping[str, Json]) -> None:
        self.scope = scope
        headers: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self.headers: HeaderLookup = headers
        self.method: str = scope.get("method", "GET")
        root: str = scope.get("root_path", "")
        path: str = scope["path"]
        # Some frameworks leave the mount point in the path, and some take it away.
        self.path: str = path if path.startswith(root) else root + path
        self.query: str = scope.get("query_string", b"").decode("latin-1")

    @property
    def url(self) -> str | None:
        host = self.headers.get("host")
        return f"{self.scope.get('scheme', 'http')}://{host}{self.path}" if host else None

    @property
    def address(self) -> str | None:
        client = self.scope.get("client")
        return client[0] if client else None
