"""Write messages: results, errors, notifications and requests out as bytes, each encoded exactly once.

Pure. A `Writer` belongs to one server: it knows how the server signs its modern results (`serverInfo` in `_meta`) and
how users' own types are encoded. Results are structs of `types/`; the writer completes those meant for a modern peer
with what every modern result must carry and leaves those for a legacy peer bare. `protocol/older_revisions.py` takes
out the fields that an older revision does not know at all, before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import msgspec
from msgspec import Raw, Struct

from trimaran.errors import ProtocolError
from trimaran.types import CallToolResult, Implementation, Json

from .inbound import RequestId
from .meta import KEY_SERVER_INFO
from .surrogates import encode_repaired

# The tag writes `"jsonrpc":"2.0"` first, with no field to fill.


class _Result(Struct, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    result: Any


class _Error(Struct, tag_field="jsonrpc", tag="2.0"):
    id: RequestId | None
    error: Any


class _ErrorBody(Struct, omit_defaults=True):
    code: int
    message: str
    data: Any = None


class _Notification(Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True):
    method: str
    params: Any = None


class _Request(Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True):
    id: RequestId
    method: str
    params: Any = None


_COMPLETE: Final = "complete"


@final
class Writer:
    """Encodes everything one server says."""

    def __init__(self, server_info: Implementation, enc_hook: Callable[[Any], Any] | None = None) -> None:
        self.encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=enc_hook).encode
        self._enc_hook = enc_hook
        self.sign(server_info)

    def sign(self, server_info: Implementation) -> None:
        """Write this name and version into the results from now on."""
        self._signature = {KEY_SERVER_INFO: msgspec.to_builtins(server_info)}
        self._raw_signature = Raw(msgspec.json.encode(self._signature))

    def modern_result(self, id: RequestId, result: Any) -> bytes:
        """A result for a modern peer: typed, and signed with the server's name."""
        if type(result) is CallToolResult and result.meta is None and result.result_type is None:
            # The common case of `completed`, spelled out. The result is left as it was: it may be somebody's own.
            result.result_type = _COMPLETE
            result.meta = self._raw_signature
            try:
                return self.encode(_Result(id, result))
            except UnicodeEncodeError:
                return encode_repaired(_Result(id, result), self._enc_hook)
            finally:
                result.result_type = result.meta = None
        return self._encode(_Result(id, result if type(result) is Raw else self.completed(result)))

    def raw_result(self, id: RequestId, result: bytes | Raw) -> bytes:
        """A result that is encoded already."""
        if type(id) is int:
            return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, result)
        return self._encode(_Result(id, Raw(result)))

    def legacy_result(self, id: RequestId, result: Any) -> bytes:
        """A result for a legacy peer, as it is."""
        return self._encode(_Result(id, result))

    def completed(self, result: Any) -> Any:
        """The result with `resultType` and the server's name in `_meta`, where it lacks them."""
        if isinstance(result, Raw):
            return result
        if isinstance(result, dict):
            signed: dict[str, Json] = {"resultType": _COMPLETE, **result}
            meta: Any = signed.get("_meta")
            signed["_meta"] = {**self._signature, **meta} if meta else self._raw_signature
            return signed
        meta = result.meta
        return msgspec.structs.replace(
            result,
            result_type=result.result_type or _COMPLETE,
            meta={**self._signature, **meta} if isinstance(meta, Mapping) else self._raw_signature,
        )

    def error(self, id: RequestId | None, error: ProtocolError) -> bytes:
        """An error. `id` is null where none could be read: plain JSON-RPC, which every revision's clients accept."""
        return self._encode(_Error(id, _ErrorBody(error.code, error.message, error.data)))

    def notification(self, method: str, params: Mapping[str, Json] | Struct | None = None) -> bytes:
        return self._encode(_Notification(method, params))

    def request(self, id: RequestId, method: str, params: Mapping[str, Json] | Struct | None = None) -> bytes:
        return self._encode(_Request(id, method, params))

    def _encode(self, message: Struct) -> bytes:
        try:
            return self.encode(message)
        except UnicodeEncodeError:
            return encode_repaired(message, self._enc_hook)
