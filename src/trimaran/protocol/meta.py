"""`_meta`: the reserved keys of a request, and the peer they describe.

A client repeats the same `_meta` on every request, so `read_meta` remembers what it has read by the raw bytes; a
request from a known client costs one dictionary look-up instead of a decode. The memory is bounded and holds only
what any decode would give again, so forgetting it all is always safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, final, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from trimaran.depth import check_depth
from trimaran.errors import RemoteProtocolError
from trimaran.types import Implementation, Json
from trimaran.types.wire import Name

PREFIX: Final = "io.modelcontextprotocol/"
KEY_PROTOCOL_VERSION: Final = PREFIX + "protocolVersion"
KEY_CLIENT_INFO: Final = PREFIX + "clientInfo"
KEY_CLIENT_CAPABILITIES: Final = PREFIX + "clientCapabilities"
KEY_LOG_LEVEL: Final = PREFIX + "logLevel"
KEY_SUBSCRIPTION_ID: Final = PREFIX + "subscriptionId"
KEY_SERVER_INFO: Final = PREFIX + "serverInfo"

# Least to most severe (R56); the position is the rank.
LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)

_MEMO_ENTRIES: Final = 512  # distinct clients seen at once; a handful in practice
_MEMO_BYTES: Final = 2048  # a longer `_meta` is read each time, so that the memory stays under a megabyte


@final
class Peer(Struct, frozen=True):
    """The other program, as it described itself: on each request (modern) or once in `initialize` (legacy)."""

    version: str
    """The protocol revision spoken."""
    capabilities: Mapping[str, Json]
    info: Implementation | None = None

    def supports(self, capability: str) -> bool:
        """Did the peer declare this capability? A dotted path looks inside: `elicitation.url`."""
        node: Any = self.capabilities
        for part in capability.split("."):
            if not isinstance(node, Mapping) or part not in node:
                return False
            node = node[part]  # pyright: ignore[reportUnknownVariableType]
        return node is not None and node is not False

    def extension(self, identifier: str) -> Mapping[str, Json] | None:
        """The settings the peer declared for an extension, or None if it does not speak it."""
        extensions = self.capabilities.get("extensions")
        settings = extensions.get(identifier) if isinstance(extensions, Mapping) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        return settings if isinstance(settings, Mapping) else None  # pyright: ignore[reportUnknownVariableType]


class _Fields(Struct, frozen=True):
    protocol_version: str | UnsetType = field(name=KEY_PROTOCOL_VERSION, default=UNSET)
    client_capabilities: dict[str, Any] | UnsetType = field(name=KEY_CLIENT_CAPABILITIES, default=UNSET)
    client_info: Raw | UnsetType = field(name=KEY_CLIENT_INFO, default=UNSET)
    log_level: Name | UnsetType = field(name=KEY_LOG_LEVEL, default=UNSET)
    progress_token: int | Name | UnsetType = field(name="progressToken", default=UNSET)


@final
class RequestMeta(Struct, frozen=True):
    """The reserved keys of one request. `peer` is None on a request that names no revision: a legacy one."""

    peer: Peer | None = None
    log_level: str | None = None
    progress_token: int | str | None = None
    is_level_known: bool = True
    """Whether the log level is valid, or absent."""
    missing: str | None = None
    """The first required modern key that is absent, where a revision was named at all."""


NO_META: Final = RequestMeta()

_decode_fields = msgspec.json.Decoder(_Fields).decode
_decode_info = msgspec.json.Decoder(Implementation).decode


@final
class MetaReader:
    """Reads `_meta`, with a cache by its raw bytes."""

    def __init__(self) -> None:
        self._memo: dict[bytes, RequestMeta] = {}

    def read(self, raw: Raw | UnsetType) -> RequestMeta:
        """The reserved keys of a raw `_meta`; -32602 if one of them has the wrong type."""
        if raw is UNSET:
            return NO_META
        key = bytes(raw)
        cached = self._memo.get(key)
        if cached is not None:
            return cached
        meta = _read(key)
        if len(key) <= _MEMO_BYTES and meta.progress_token is None:
            if len(self._memo) >= _MEMO_ENTRIES:
                self._memo.clear()
            self._memo[key] = meta
        return meta


def _read(raw: bytes) -> RequestMeta:
    check_depth(raw, inside=2)
    try:
        fields = _decode_fields(raw)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError.invalid_params(f"params._meta is malformed: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteProtocolError.parse_error(f"params._meta is not valid JSON: {error}") from None
    token = None if fields.progress_token is UNSET else fields.progress_token
    if fields.protocol_version is UNSET:
        return RequestMeta(progress_token=token)
    missing = KEY_CLIENT_CAPABILITIES if fields.client_capabilities is UNSET else None
    level = None if fields.log_level is UNSET else fields.log_level
    peer = Peer(
        version=fields.protocol_version,
        capabilities={} if fields.client_capabilities is UNSET else fields.client_capabilities,
        info=_info(fields.client_info),
    )
    is_known = level is None or level in LOG_LEVELS
    return RequestMeta(peer=peer, log_level=level, is_level_known=is_known, progress_token=token, missing=missing)


def _info(raw: Raw | UnsetType) -> Implementation | None:
    # Display data, and only a SHOULD: a client that spells it oddly is served all the same.
    if raw is UNSET:
        return None
    try:
        return _decode_info(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
