"""A task: work that outlives the request which began it. One record, and how two protocols spell it.

    working <-> input_required -> completed | failed | cancelled

The last three are for good: whatever comes later changes nothing (R76). 2026-07-28 has an extension of its own for tasks,
2025-11-25 had an earlier one in its core; they differ in names (`ttlMs`, `ttl`), in what an `isError` result is called, and
in who waits for whom, and in nothing that is remembered: the record is `trimaran.state.TaskRecord`, in whatever store.
"""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from trimaran.errors import ProtocolError
from trimaran.state.contracts import TaskRecord

EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"

_ID: Final = re.compile(r"task_[0-9a-f]{32}")


def new_task_id() -> str:
    """128 random bits: only a program that was told the id knows it."""
    return f"task_{secrets.token_hex(16)}"


def is_task_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def unknown(id: str) -> ProtocolError:
    """The error for a task that does not exist, has expired, or belongs to somebody else: always the same (R80)."""
    return ProtocolError.invalid_params(f"there is no task {id[:100]!r}, or not any more")


# --- parts of a record that are bytes ------------------------------------------------------------------------------------
#
# All of it is JSON: it comes from JSON or goes there, and some of it (a result, a question) as it is.


class _Failure(Struct, omit_defaults=True):
    code: int
    message: str
    data: Any = None


class _Result(Struct):
    is_error: bool = field(name="isError", default=False)


_decode_failure: Final = msgspec.json.Decoder(_Failure).decode
_decode_result: Final = msgspec.json.Decoder(_Result).decode
_decode_inputs: Final = msgspec.json.Decoder(dict[str, dict[str, Any]]).decode


def write_error(error: ProtocolError) -> bytes:
    try:
        return msgspec.json.encode(_Failure(error.code, error.message, error.data))
    except (TypeError, ValueError, OverflowError, RecursionError):  # of `data`, which may be anything
        return msgspec.json.encode(_Failure(error.code, error.message))


def read_error(data: bytes) -> ProtocolError:
    failure = _decode_failure(data)
    return ProtocolError(failure.code, failure.message, failure.data)


def inputs_of(record: TaskRecord) -> dict[str, dict[str, Any]]:
    """The questions a task waits for, by key."""
    return _decode_inputs(record.inputs) if record.inputs else {}


def write_inputs(inputs: dict[str, dict[str, Any]]) -> bytes:
    return msgspec.json.encode(inputs) if inputs else b""


# --- how it is spelled -----------------------------------------------------------------------------------------------


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _common(record: TaskRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "taskId": record.id,
        "status": record.status,
        "createdAt": _time(record.created_ms),
        "lastUpdatedAt": _time(record.updated_ms),
    }
    if record.status_message is not None:
        fields["statusMessage"] = record.status_message
    return fields


def modern_form(record: TaskRecord, *, details: bool) -> dict[str, Any]:
    """A task as the extension has it; with details, the fields of its status."""
    fields = {**_common(record), "ttlMs": record.ttl_ms, "pollIntervalMs": record.poll_ms}
    if not details:
        return fields
    if record.status == "completed":
        fields["result"] = Raw(record.result or b"null")
    elif record.status == "failed" and record.error is not None:
        fields["error"] = Raw(record.error)
    elif record.status == "input_required":
        fields["inputRequests"] = Raw(record.inputs or b"{}")
    return fields


def legacy_form(record: TaskRecord) -> dict[str, Any]:
    """A task in the words of 2025-11-25, where a tool's own failure is a failed task."""
    fields = {**_common(record), "ttl": record.ttl_ms, "pollInterval": record.poll_ms}
    if record.status == "completed" and record.result is not None and _is_error(record.result):
        fields["status"] = "failed"
    return fields


def _is_error(result: bytes) -> bool:
    try:
        return _decode_result(result).is_error
    except msgspec.ValidationError:  # middleware may answer with anything
        return False
