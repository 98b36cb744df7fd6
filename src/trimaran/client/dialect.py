"""How a client speaks: what goes into a request, what a result must look like, how the conversation begins.

`Dialect` is the contract; `ModernDialect` is 2026-07-28, where every request says all there is to know about its sender.
The revisions with a handshake are `legacy/dialect.py`. A dialect writes and reads; it sends nothing by itself but its
greeting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from trimaran.errors import CODE_INVALID_REQUEST, RemoteProtocolError, UnsupportedVersion
from trimaran.protocol.headers import encode_value
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.meta import (
    KEY_CLIENT_CAPABILITIES,
    KEY_CLIENT_INFO,
    KEY_LOG_LEVEL,
    KEY_PROTOCOL_VERSION,
    KEY_SERVER_INFO,
)
from trimaran.protocol.read_reply import Frame, excerpt
from trimaran.protocol.versions import MODERN
from trimaran.types import Implementation, Json, as_object

from .link import Link, SharedHeaders

_MAX_HEADERS: Final = 256  # of as many tools and resources; more than a server is called for at a time
_KNOWN: Final = frozenset({"complete", "input_required", "task"})


@final
class ServerDescription(Struct, frozen=True):
    """The server's description of itself."""

    version: str
    capabilities: dict[str, Json]
    info: Implementation | None = None
    instructions: str | None = None
    raw: Mapping[str, Json] = {}


class Dialect(Protocol):
    era: Literal["modern", "legacy"]
    version: str

    async def greet(self, link: Link, next_id: Callable[[], int]) -> ServerDescription:
        """Begin the conversation.

        Raises:
            UnsupportedVersion: the server speaks no revision that we do; `supported` lists its own.
        """
        ...

    def write(
        self,
        id: RequestId,
        method: str,
        params: dict[str, Any],
        token: RequestId | None,
        level: str | None,
        extension: str | None = None,
    ) -> bytes:
        """A request. `params` belongs to the dialect from here on; `extension` is declared with this request alone."""
        ...

    def headers(self, method: str, name: str | None) -> Mapping[str, str]:
        """The headers beside it over HTTP. Not to be changed: requests may share them."""
        ...

    def outcome(self, frame: Frame) -> tuple[str, Raw]:
        """The type of a result ("complete", "input_required", ...) and the result; raises what the reply says."""
        ...


class _Request(Struct, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    method: str
    params: Any


class _BareRequest(Struct, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    method: str


class _Notice(Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True):
    method: str
    params: Any = None


def _enc_hook(value: Any) -> Any:
    from trimaran.schema.convert import enc_hook  # loads a good deal; few arguments need it

    return enc_hook(value)


encode: Final = msgspec.json.Encoder(enc_hook=_enc_hook).encode


def write_request(id: RequestId, method: str, params: Mapping[str, Any] | None) -> bytes:
    """A request as it is; without `params` where there are none, as plain JSON-RPC has it."""
    return encode(_Request(id, method, params) if params else _BareRequest(id, method))


def write_notice(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    return encode(_Notice(method, params or None))


class _DiscoverReply(Struct):
    """A list of revisions proves a modern server; it can be spoken to, whatever else is odd about it."""

    versions: list[str] = msgspec.field(name="supportedVersions")
    capabilities: Any = None
    instructions: Any = None
    meta: Any = msgspec.field(name="_meta", default=None)


class _TypedResult(Struct):
    result_type: str | UnsetType = msgspec.field(name="resultType", default=UNSET)


_decode_type = msgspec.json.Decoder(_TypedResult).decode
_decode_discover = msgspec.json.Decoder(_DiscoverReply).decode
_decode_any = msgspec.json.Decoder().decode


@final
class ModernDialect:
    """2026-07-28: nothing is remembered, everything is said each time."""

    era: Literal["modern", "legacy"] = "modern"
    version = MODERN

    def __init__(self, info: Mapping[str, Json], capabilities: Mapping[str, Json]) -> None:
        meta = {KEY_PROTOCOL_VERSION: MODERN, KEY_CLIENT_INFO: info, KEY_CLIENT_CAPABILITIES: capabilities}
        self._meta = msgspec.json.encode(meta)
        self._raw_meta = Raw(self._meta)
        self._declared_meta = meta
        self._declaring: dict[str, bytes] = {}
        self._headers: dict[tuple[str, str | None], SharedHeaders] = {}

    def write(
        self,
        id: RequestId,
        method: str,
        params: dict[str, Any],
        token: RequestId | None,
        level: str | None,
        extension: str | None = None,
    ) -> bytes:
        extra: dict[str, Any] | Raw | None = params.get("_meta")
        if isinstance(extra, Raw):
            pass  # whole already: it speaks for another client
        elif extra is None and token is None and level is None and extension is None:
            params["_meta"] = self._raw_meta
        else:
            params["_meta"] = self._merged(extra, token, level, extension)
        return encode(_Request(id, method, params))

    def _declare(self, extension: str) -> bytes:
        """The fields of every request, with one extension more."""
        encoded = self._declaring.get(extension)
        if encoded is None:
            capabilities: Any = self._declared_meta[KEY_CLIENT_CAPABILITIES]
            extensions: dict[str, Any] = {extension: {}, **(capabilities.get("extensions") or {})}
            declared: dict[str, Any] = {
                **self._declared_meta,
                KEY_CLIENT_CAPABILITIES: {**capabilities, "extensions": extensions},
            }
            encoded = self._declaring[extension] = msgspec.json.encode(declared)
        return encoded

    def _merged(
        self, extra: Mapping[str, Any] | None, token: RequestId | None, level: str | None, extension: str | None
    ) -> Raw:
        base = self._meta if extension is None else self._declare(extension)
        merged: dict[str, Any] = dict(extra or {})
        if token is not None:
            merged["progressToken"] = token
        if level is not None:
            merged[KEY_LOG_LEVEL] = level
        for key in (KEY_PROTOCOL_VERSION, KEY_CLIENT_INFO, KEY_CLIENT_CAPABILITIES):
            merged.pop(key, None)  # said once, and by us
        return Raw(base[:-1] + b"," + encode(merged)[1:] if merged else base)

    def headers(self, method: str, name: str | None) -> SharedHeaders:
        headers = self._headers.get((method, name))
        if headers is None:
            headers = SharedHeaders({"MCP-Protocol-Version": MODERN, "Mcp-Method": method})
            if name is not None:
                headers["Mcp-Name"] = encode_value(name)
            if len(self._headers) >= _MAX_HEADERS:
                self._headers.clear()
            self._headers[method, name] = headers
        return headers

    def outcome(self, frame: Frame) -> tuple[str, Raw]:
        result = frame.result
        if result is UNSET:
            raise frame.failure() or AssertionError
        try:
            kind = _decode_type(result).result_type
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, f"a result is an object, the server sent {excerpt(bytes(result))}"
            ) from None
        if kind is UNSET:  # an older draft's server; absent means complete
            return "complete", result
        if kind not in _KNOWN:
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, f"the server sent a result of the unknown type {kind[:80]!r}"
            )
        return kind, result

    async def greet(self, link: Link, next_id: Callable[[], int]) -> ServerDescription:
        try:
            return await self._discover(link, next_id())
        except UnsupportedVersion as refusal:
            # REQ client.version-retry: a server that lists the very revision it refused is asked once more.
            if MODERN not in refusal.supported:
                raise
        return await self._discover(link, next_id())

    async def _discover(self, link: Link, id: int) -> ServerDescription:
        message = self.write(id, "server/discover", {}, None, None)
        frame = await link.request(id, message, self.headers("server/discover", None))
        _, raw = self.outcome(frame)
        try:
            discovered = _decode_discover(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, f"the server's answer to server/discover is malformed: {error}"
            ) from None
        if MODERN not in discovered.versions:
            raise UnsupportedVersion(
                -32022,
                f"the server speaks {', '.join(discovered.versions)[:200] or 'no revision'}, not {MODERN}",
                {"supported": discovered.versions, "requested": MODERN},
            )
        info = (as_object(discovered.meta) or {}).get(KEY_SERVER_INFO)
        return read_welcome(MODERN, discovered.capabilities, info, discovered.instructions, _decode_any(raw))


def read_welcome(
    version: str, capabilities: Any, info: Any, instructions: Any, raw: Mapping[str, Json]
) -> ServerDescription:
    """The server's description of itself, each part as far as it can be read: none of them hides the others."""
    return ServerDescription(
        version,
        as_object(capabilities) or {},
        _read_info(info),
        instructions if isinstance(instructions, str) else None,
        raw,
    )


def _read_info(value: Any) -> Implementation | None:
    try:
        return None if value is None else msgspec.convert(value, Implementation)
    except msgspec.ValidationError:
        fields = as_object(value) or {}
        name, version = fields.get("name"), fields.get("version")
        if not isinstance(name, str):
            return None
        return Implementation(name=name, version=version if isinstance(version, str) else "")
