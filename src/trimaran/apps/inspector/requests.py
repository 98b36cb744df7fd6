"""What can be wrong with a request to the inspector, and how the parts of one are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from trimaran.depth import decode_json
from trimaran.errors import Error


class BadRequest(Error):
    """The request cannot be understood or does not fit. `details` are further members of the answer."""

    kind = "bad_request"

    def __init__(self, message: str, *, status: int = 400, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.details: Mapping[str, Any] = details


class NotThere(Error):
    """No server, call, message or recording has this id."""

    kind = "not_there"
    status = 404


class WrongState(Error):
    """It cannot be done now: the server is not connected, for one."""

    kind = "wrong_state"
    status = 409


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a request brings; empty without a body."""
    if not body.strip():
        return {}
    try:
        value: Any = decode_json(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    return cast("dict[str, Any]", value)


def texts(value: Any, name: str) -> dict[str, str]:
    """A mapping of text to text."""
    if value is None:
        return {}
    members = cast("dict[Any, Any]", value) if isinstance(value, dict) else {None: None}
    if not all(isinstance(key, str) and isinstance(text, str) for key, text in members.items()):
        raise BadRequest(f"{name} must map names to texts")
    return cast("dict[str, str]", members)


def integer(value: str | None, name: str, default: int | None = None) -> int | None:
    """A number of a query."""
    if value is None or value == "":
        return default
    try:
        return int(value)
    except ValueError:
        raise BadRequest(f"{name} must be an integer, not {value[:40]!r}") from None
