"""How a client speaks the revisions with a handshake: `initialize`, `notifications/initialized`, and plain requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, final

import msgspec
from msgspec import UNSET, Raw, Struct, field

from trimaran.client.dialect import ServerDescription, read_welcome, write_notice, write_request
from trimaran.client.link import Link
from trimaran.errors import CODE_INVALID_REQUEST, CODE_UNSUPPORTED_VERSION, RemoteProtocolError, UnsupportedVersion
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.read_reply import Frame, excerpt
from trimaran.protocol.versions import LATEST_LEGACY, LEGACY, is_legacy
from trimaran.types import Json


class _InitializeReply(Struct):
    version: Any = field(name="protocolVersion", default=None)
    capabilities: Any = None
    info: Any = field(name="serverInfo", default=None)
    instructions: Any = None


_decode_reply = msgspec.json.Decoder(_InitializeReply).decode
_decode_any = msgspec.json.Decoder().decode
_OPEN: Final = b"{"


@final
class LegacyDialect:
    era: Literal["modern", "legacy"] = "legacy"

    def __init__(self, info: Mapping[str, Json], capabilities: Mapping[str, Json], version: str | None = None) -> None:
        self._info = info
        self._capabilities = capabilities
        self._requested = version or LATEST_LEGACY
        self._is_pinned = version is not None
        self.version: str = self._requested
        self._headers: dict[str, str] = {}

    async def greet(self, link: Link, next_id: Callable[[], int]) -> ServerDescription:
        id = next_id()
        params = {"protocolVersion": self._requested, "capabilities": self._capabilities, "clientInfo": self._info}
        frame = await link.request(id, write_request(id, "initialize", params), None)
        _, raw = self.outcome(frame)
        welcome = self._read(raw)
        self.version = welcome.version
        self._headers = {"MCP-Protocol-Version": welcome.version}
        await link.send(write_notice("notifications/initialized"), self._headers)
        begin: Callable[[Mapping[str, str]], None] | None = getattr(link, "begin", None)
        if begin is not None:
            begin(self._headers)
        return welcome

    def _read(self, raw: Raw) -> ServerDescription:
        try:
            reply = _decode_reply(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, f"the server's answer to initialize is malformed: {error}"
            ) from None
        if not isinstance(reply.version, str):
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST,
                f"the server's answer to initialize names no protocolVersion: {excerpt(bytes(raw))}",
            )
        if not is_legacy(reply.version) or (self._is_pinned and reply.version != self._requested):
            ours = (self._requested,) if self._is_pinned else LEGACY
            raise UnsupportedVersion(
                CODE_UNSUPPORTED_VERSION,
                f"the server wants to speak {reply.version[:80]!r}; this client speaks {', '.join(ours)} here",
                {"supported": [reply.version], "requested": self._requested},
            )
        return read_welcome(reply.version, reply.capabilities, reply.info, reply.instructions, _decode_any(raw))

    def write(
        self,
        id: RequestId,
        method: str,
        params: dict[str, Any],
        token: RequestId | None,
        level: str | None,
        extension: str | None = None,
    ) -> bytes:
        if token is not None:
            params["_meta"] = {**(params.get("_meta") or {}), "progressToken": token}
        return write_request(id, method, params)

    def headers(self, method: str, name: str | None) -> dict[str, str]:
        return dict(self._headers)

    def outcome(self, frame: Frame) -> tuple[str, Raw]:
        failure = frame.failure()
        if failure is not None:
            raise failure
        result = frame.result
        assert result is not UNSET
        if not bytes(result).lstrip().startswith(_OPEN):
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, f"a result is an object, the server sent {excerpt(bytes(result))}"
            )
        return "complete", result
