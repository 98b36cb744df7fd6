"""Routes of the interface: a method, a path with variables, and a handler of one request."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import msgspec
from msgspec import Struct

from trimaran.protocol.headers import HeaderLookup

from ..requests import BadRequest, integer, read_object

if TYPE_CHECKING:
    from ..inspector import Inspector
    from ..servers import InspectedServer

T = TypeVar("T")
_VARIABLE: Final = re.compile(r"\{(\w+)\}")


class Reply(Struct, kw_only=True):
    """An answer that is not plain JSON with status 200."""

    status: int = 200
    value: Any = None
    """Sent as JSON, unless there is a body."""
    body: bytes | None = None
    content_type: str = "application/json"
    headers: dict[str, str] = {}
    stream: AsyncGenerator[bytes, None] | None = None
    """Sent piece by piece, in place of a body."""


@final
class PageRequest:
    """One request to the interface."""

    def __init__(
        self,
        inspector: Inspector,
        method: str,
        path: str,
        *,
        variables: Mapping[str, str],
        query: Mapping[str, str],
        headers: HeaderLookup,
        body: bytes,
    ) -> None:
        self.inspector = inspector
        self.method = method
        self.path = path
        self.variables = variables
        self.query = query
        self.headers = headers
        self.raw_body = body

    @cached_property
    def body(self) -> dict[str, Any]:
        """The JSON object of the body."""
        return read_object(self.raw_body)

    @property
    def server(self) -> InspectedServer:
        """The server that the path names."""
        return self.inspector.servers.get(self.variables["id"])

    def number(self, name: str, default: int | None = None) -> int | None:
        """A whole number of the query."""
        return integer(self.query.get(name), name, default)

    def limit(self, default: int, most: int) -> int:
        """The `limit` of the query, within bounds."""
        return max(1, min(self.number("limit", default) or default, most))

    def read(self, kind: type[T]) -> T:
        """The body as a struct; BadRequest names what does not fit."""
        try:
            return msgspec.convert(self.body, kind)
        except msgspec.ValidationError as error:
            raise BadRequest(f"the body does not fit: {error}") from None

    def text(self, name: str) -> str:
        """A text that the body must have."""
        value = self.body.get(name)
        if not isinstance(value, str) or not value:
            raise BadRequest(f"{name} must be a text")
        return value


Handler = Callable[[PageRequest], Awaitable[Any]]


class Route(Struct, frozen=True):
    """One method of one path, such as `/api/calls/{id}`."""

    method: str
    path: str
    handler: Handler


@final
class RouteTable:
    """Finds the handler of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes: Final = tuple(routes)
        self._patterns = [(re.compile(_VARIABLE.sub(r"(?P<\1>[^/]+)", route.path)), route) for route in self.routes]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | list[str]:
        """The route and its variables; else the methods that the path has, none for an unknown path."""
        methods: list[str] = []
        for pattern, route in self._patterns:
            match = pattern.fullmatch(path)
            if match is not None:
                if route.method == method:
                    return route, match.groupdict()
                methods.append(route.method)
        return methods
