"""A task: work that outlives the request which began it. One record, and how two protocols spell it.

    working <-> input_required -> completed | failed | cancelled

The last three are for good: whatever comes later changes nothing (R76). 2026-07-28 has an extension of its own for tasks,
2025-11-25 had an earlier one in its core; they differ in names (`ttlMs`, `ttl`), in what an `isError` result is called, and
in who waits for whom, and in nothing that is remembered here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, Literal

from msgspec import Struct, field

from trimaran.errors import ProtocolError
from trimaran.types import CallToolResult

__all__ = ["ENDED", "EXTENSION", "RELATED", "Status", "Task", "legacy_form", "modern_form"]

EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
ENDED: Final = frozenset({"completed", "failed", "cancelled"})


class Task(Struct, kw_only=True):
    """What is known about one task."""

    id: str
    owner: Any
    """Whose it is: to anyone else it does not exist (R80, R102)."""
    name: str
    """What it runs: the tool's name, or what the host called it."""
    status: Status = "working"
    message: str | None = None
    created_at: float
    updated_at: float
    ttl_ms: int | None = None
    poll_ms: int = 1000
    result: Any = None
    error: ProtocolError | None = None
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """The questions it waits for, by key."""

    @property
    def is_over(self) -> bool:
        return self.status in ENDED


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _common(task: Task) -> dict[str, Any]:
    found: dict[str, Any] = {
        "taskId": task.id,
        "status": task.status,
        "createdAt": _time(task.created_at),
        "lastUpdatedAt": _time(task.updated_at),
    }
    if task.message is not None:
        found["statusMessage"] = task.message
    return found


def modern_form(task: Task, *, details: bool) -> dict[str, Any]:
    """A task in the words of the extension; with details, what its status brings along."""
    found = {**_common(task), "ttlMs": task.ttl_ms, "pollIntervalMs": task.poll_ms}
    if not details:
        return found
    if task.status == "completed":
        found["result"] = task.result
    elif task.status == "failed" and task.error is not None:
        error = task.error
        found["error"] = {"code": error.code, "message": error.message}
        if error.data is not None:
            found["error"]["data"] = error.data
    elif task.status == "input_required":
        found["inputRequests"] = dict(task.inputs)
    return found


def legacy_form(task: Task) -> dict[str, Any]:
    """A task in the words of 2025-11-25, where a tool's own failure is a failed task."""
    found = {**_common(task), "ttl": task.ttl_ms, "pollInterval": task.poll_ms}
    if task.status == "completed" and isinstance(task.result, CallToolResult) and task.result.is_error:
        found["status"] = "failed"
    return found
