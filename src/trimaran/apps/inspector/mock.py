"""A server that answers as a recorded one did, in every era and on every transport.

A call is looked up by name and arguments. Where the same call was recorded several times, the answers come in their order,
and the last stays. A call that was not recorded fails, and the message says which arguments were. Questions are not asked
again: the mock gives the answer that came in the end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final, cast, final

import msgspec

from trimaran.errors import CODE_INTERNAL, ConfigError, ProtocolError, ToolError
from trimaran.files import read_file
from trimaran.server.server import Server
from trimaran.types import CallToolResult

from .recording import RecordedCall, RecordedServer, RecordedSession, read_recording

_LARGEST: Final = 256 * 1024 * 1024  # bytes of a recording
_HEAD: Final = 4096  # bytes in which the mark of a recording stands


def mock_server(session: RecordedSession, server: str | None = None) -> Server:
    """A server made of a recording; `server` chooses if it has several."""
    chosen = session.server(server)
    return Server(callbacks=_Answers(chosen, session.calls_of(chosen)))


def load_mock(path: str, server: str | None = None) -> Server:
    """A server made of the file of a recording."""
    try:
        data = read_file(path, _LARGEST)
    except OSError as error:
        raise ConfigError(f"the recording {path} cannot be read: {error.strerror or error}") from None
    return mock_server(read_recording(data), server)


def is_recording(path: str) -> bool:
    """True if a file looks like a recording."""
    try:
        return b'"trimaranRecording"' in read_file(path, _HEAD, at_least_head=True)
    except OSError:
        return False


def _key(kind: str, name: str, arguments: Any) -> bytes:
    return msgspec.json.encode([kind, name, arguments or {}], order="deterministic")


@final
class _Answers:
    """The callbacks of a mock: each list and each answer as it was recorded."""

    def __init__(self, server: RecordedServer, calls: list[RecordedCall]) -> None:
        self._server = server
        self._calls: defaultdict[bytes, list[RecordedCall]] = defaultdict(list)
        for call in calls:
            if call.state not in ("running", "waiting", "cancelling", "cancelled"):
                self._calls[_key(call.kind, call.name, call.arguments)].append(call)

    def server_info(self) -> dict[str, Any]:
        info: dict[str, Any] = self._server.info or {}
        return {"version": "0", **info, "name": info.get("name") or self._server.name}

    def instructions(self) -> str | None:
        return self._server.instructions

    def list_tools(self, cursor: str | None, ctx: object) -> list[dict[str, Any]]:
        return self._server.tools

    def list_resources(self, cursor: str | None, ctx: object) -> list[dict[str, Any]]:
        return self._server.resources

    def list_resource_templates(self, cursor: str | None, ctx: object) -> list[dict[str, Any]]:
        return self._server.templates

    def list_prompts(self, cursor: str | None, ctx: object) -> list[dict[str, Any]]:
        return self._server.prompts

    def call_tool(self, name: str, arguments: dict[str, Any], ctx: object) -> CallToolResult:
        if not any(tool.get("name") == name for tool in self._server.tools):
            raise ProtocolError.invalid_params(f"unknown tool: {name[:200]!r}", {"name": name[:200]})
        result = self._answer("tool", name, arguments)
        return CallToolResult(
            content=result.get("content") or [],
            structured_content=result.get("structuredContent", msgspec.UNSET),
            is_error=result.get("isError") is True,
            meta=result.get("_meta"),
        )

    def read_resource(self, uri: str, ctx: object) -> Any:
        if _key("resource", uri, None) not in self._calls:
            return None
        contents: list[Any] = self._answer("resource", uri, None).get("contents") or []
        from trimaran.types import BlobResourceContents, TextResourceContents

        kinds = [BlobResourceContents if "blob" in part else TextResourceContents for part in contents]
        return [msgspec.convert(part, kind) for part, kind in zip(contents, kinds, strict=True)]

    def get_prompt(self, name: str, arguments: dict[str, Any], ctx: object) -> Any:
        from trimaran.types import GetPromptResult

        result = self._answer("prompt", name, arguments)
        return GetPromptResult(messages=result.get("messages") or [], description=result.get("description"))

    def _answer(self, kind: str, name: str, arguments: Any) -> dict[str, Any]:
        recorded = self._calls.get(_key(kind, name, arguments))
        if not recorded:
            raise ToolError(f"{name} was not recorded with these arguments; recorded: {self._known(kind, name)}")
        call = recorded.pop(0) if len(recorded) > 1 else recorded[0]
        result: Any = call.result
        if isinstance(result, dict):
            return cast("dict[str, Any]", result)
        failure: dict[str, Any] = call.failure or {}
        code = failure.get("code")
        message = str(failure.get("message", "the recorded call failed"))
        raise ProtocolError(code if isinstance(code, int) else CODE_INTERNAL, message, failure.get("data"))

    def _known(self, kind: str, name: str) -> str:
        known = [
            msgspec.json.encode(calls[0].arguments or {}).decode()
            for calls in self._calls.values()
            if calls and (calls[0].kind, calls[0].name) == (kind, name)
        ]
        return "; ".join(known[:5])[:1000] or "nothing"
