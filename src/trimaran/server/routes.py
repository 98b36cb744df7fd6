"""Plain HTTP routes beside the endpoint: declared on a server, served wherever its endpoint is (`transports/custom_routes.py`).

Nothing here knows HTTP beyond a method, a path and headers. A path is exact, or has variables: `/users/{id}`. The paths
of the endpoint, of the health routes and of OAuth metadata are refused, so that nobody's route is silently out of reach.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias, final

import msgspec

from trimaran.depth import MAX_CONTAINERS, check_depth
from trimaran.errors import DeclarationError, ProtocolError
from trimaran.protocol.headers import HeaderLookup
from trimaran.types import Json

__all__ = ["CustomRoutes", "RouteHandler", "RouteRequest"]

RouteHandler: TypeAlias = Callable[[Any], Awaitable[Any] | Any]

HEALTH_PATHS: Final = ("/livez", "/readyz", "/gauges")
_METADATA: Final = "/.well-known/oauth-protected-resource"
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_VARIABLE: Final = re.compile(r"\\\{(\w+)\\\}")


@final
class RouteRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A request for a route of your own."""

    method: str
    path: str
    query_params: dict[str, str]
    """The last value of each name in the query."""
    path_params: dict[str, str]
    """The variables of the path."""
    headers: HeaderLookup
    """Headers by lower-case name: `request.headers.get("user-agent")`."""
    body: bytes
    address: str | None = None
    """The address of the caller, if it is known."""

    def json(self) -> Json:
        """The body, decoded from JSON. Text that is no JSON, or too deep, is answered with 400."""
        try:
            check_depth(self.body, max_containers=MAX_CONTAINERS)
            return msgspec.json.decode(self.body)
        except ValueError as error:
            raise ProtocolError.invalid_request(f"the body is not the JSON that this takes: {error}") from None

    @property
    def text(self) -> str:
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            raise ProtocolError.invalid_request("the body is not text in UTF-8") from None


@final
class _Route:
    __slots__ = ("handlers", "pattern")

    def __init__(self, path: str) -> None:
        self.pattern = re.compile(_VARIABLE.sub(r"(?P<\1>[^/]+)", re.escape(path)))
        self.handlers: dict[str, RouteHandler] = {}
        """By method."""


@final
class CustomRoutes:
    """The routes of one server."""

    __slots__ = ("_endpoints", "_exact", "_patterns")

    def __init__(self) -> None:
        self._exact: dict[str, _Route] = {}
        self._patterns: dict[str, _Route] = {}
        self._endpoints: set[str] = set()
        """The paths of endpoints that serve this server."""

    def add(self, path: str, methods: Collection[str], handler: RouteHandler) -> None:
        if not isinstance(path, str) or not path.startswith("/"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DeclarationError(f'a route must have a path that starts with "/", not {path!r}')
        if isinstance(methods, str) or not methods or not all(method in _METHODS for method in methods):
            raise DeclarationError(f'{path}: methods must be a list like ["GET", "POST"], not {methods!r}')
        _check_free(path, self._endpoints)
        routes = self._patterns if "{" in path else self._exact
        route = routes.get(path) or _Route(path)
        duplicates = sorted(route.handlers.keys() & set(methods))
        if duplicates:
            raise DeclarationError(
                f"there is already a route for {duplicates[0]} {path}; choose another path or method"
            )
        route.handlers.update(dict.fromkeys(methods, handler))
        routes[path] = route

    def reserve(self, paths: Iterable[str]) -> None:
        """Take paths for an endpoint.

        Raises:
            DeclarationError: a route has one of them already.
        """
        self._endpoints.update(paths)
        for path in self._exact:
            _check_free(path, self._endpoints)

    def find(self, path: str) -> tuple[Mapping[str, RouteHandler], dict[str, str]] | None:
        """The handlers of a path by method, and its variables."""
        route = self._exact.get(path)
        if route is not None:
            return route.handlers, {}
        for route in self._patterns.values():
            match = route.pattern.fullmatch(path)
            if match is not None:
                return route.handlers, match.groupdict()
        return None


def _check_free(path: str, endpoints: Collection[str]) -> None:
    if path in endpoints:
        raise DeclarationError(f"{path} is the path of the endpoint; choose another path for the route")
    if path in HEALTH_PATHS:
        raise DeclarationError(f"{path} is a health route of every server; choose another path, such as /health")
    if path.startswith(_METADATA):
        raise DeclarationError(f"{path} is where OAuth metadata is served; choose another path for the route")
