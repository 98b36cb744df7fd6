"""Which headers go to the API with a request: those of the operator, and those of the caller that the operator names.

Only named headers and tokens of the caller are passed on. `Authorization` is no such header: `forward_token` passes the token
on, to the operations that take one (`security.py`). The transport's own headers are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from trimaran.errors import ConfigError
from trimaran.server.context import Context

from .requests import ApiRequest

_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_REFUSED: Final = frozenset(
    (
        "connection", "content-encoding", "content-length", "content-type", "cookie", "expect", "host", "keep-alive",
        "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip


class RequestHeaders:
    """The headers that every request of one server gets.

    Raises:
        ConfigError: a header cannot be forwarded.
    """

    def __init__(self, fixed: Mapping[str, str], forwarded: Iterable[str]) -> None:
        if isinstance(forwarded, str):
            raise ConfigError(f"forward_headers takes a list of names: [{forwarded!r}]")
        self._fixed = {name.lower(): value for name, value in fixed.items()}
        self._forwarded = frozenset(name.lower() for name in forwarded)
        self.names: frozenset[str] = self._forwarded | self._fixed.keys()
        """Headers that are no arguments: the operator or the caller says them."""
        for name in sorted(self._forwarded):
            if name == "authorization":
                raise ConfigError('forward_headers=["authorization"]: say forward_token=True to pass the token on')
            if name in _REFUSED or name.startswith("mcp-") or not _NAME.fullmatch(name):
                raise ConfigError(
                    f"forward_headers={[name]!r}: it belongs to the connection, or is not a header; name other headers"
                )

    def apply(self, request: ApiRequest, ctx: Context) -> None:
        request.headers.update(self._fixed)
        for name in self._forwarded:
            value = ctx.header(name)
            if value is not None:
                request.headers[name] = value
