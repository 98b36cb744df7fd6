"""Errors: one tree, codes with their HTTP statuses (protocol.md 1.7), values and exceptions at once (R278)."""

from __future__ import annotations

import inspect

import pytest

from trimaran import errors
from trimaran.errors import (
    CallCancelled,
    CallError,
    ConnectFailed,
    Disconnected,
    Error,
    HeaderMismatch,
    MissingCapability,
    NotReady,
    ProtocolError,
    RemoteProtocolError,
    ResourceMissing,
    TimedOut,
    ToolError,
    TransportError,
    Unauthorized,
    Unsupported,
    UnsupportedVersion,
)


def test_every_exception_of_the_library_has_one_root() -> None:
    found = [c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__]
    assert len(found) > 15
    assert all(issubclass(c, Error) for c in found)
    assert {c.__name__ for c in found} <= set(errors.__all__)


@pytest.mark.parametrize("kind", [UnsupportedVersion, MissingCapability, HeaderMismatch])
def test_what_a_peer_answers_is_a_call_error(kind: type) -> None:
    assert issubclass(kind, CallError)
    assert issubclass(kind, ProtocolError)


@pytest.mark.parametrize("kind", [ConnectFailed, Disconnected, TimedOut])
def test_a_local_failure_is_told_from_a_peers_error(kind: type) -> None:
    """protocol.md 1.7: local errors must be distinguishable from peer errors."""
    assert issubclass(kind, TransportError)
    assert not issubclass(kind, ProtocolError)


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (ProtocolError.parse_error(), -32700, 400),
        (ProtocolError.invalid_request("x"), -32600, 400),
        (ProtocolError.invalid_request("x", status=403), -32600, 403),
        (ProtocolError.method_not_found("x"), -32601, 404),
        (ProtocolError.invalid_params("x"), -32602, 400),
        (ProtocolError.internal_error(), -32603, 500),
        (ProtocolError.internal_error("x", status=503), -32603, 503),
        (ProtocolError(-32020, "x"), -32020, 400),
        (ProtocolError(-32021, "x"), -32021, 400),
        (ProtocolError(-32022, "x"), -32022, 400),
        (ProtocolError(1234, "x"), 1234, 200),
    ],
)
def test_a_code_travels_with_its_status(error: ProtocolError, code: int, status: int) -> None:
    """protocol.md 1.7; R278."""
    assert (error.code, error.status, error.data, error.request_id) == (code, status, None, None)


def test_an_error_says_its_message_and_its_code() -> None:
    error = ProtocolError.method_not_found("a/b", {"x": 1})
    assert str(error) == "method not found: a/b (-32601)"
    assert error.data == {"x": 1}


def test_a_subclass_makes_errors_of_its_own_kind() -> None:
    assert type(RemoteProtocolError.invalid_params("x")) is RemoteProtocolError


CLIENT_ERRORS = {
    "not ready": NotReady("the client is not open yet"),
    "unsupported": Unsupported("the server offers no prompts", method="prompts/list"),
    "an error of the server": CallError(-32050, "no"),
    "cancelled": CallCancelled("the call was cancelled"),
    "timeout": TimedOut("no answer within 5 s"),
    "unauthorized": Unauthorized("https://example.com/mcp wants credentials", status=401),
    "protocol version": UnsupportedVersion(-32022, "no", {"supported": ["2031-01-01", 7], "requested": "2026-07-28"}),
}


@pytest.mark.parametrize("condition", CLIENT_ERRORS)
def test_what_befalls_a_client_can_be_caught_apart(condition: str) -> None:
    """R277: each condition has a class of its own. A server that speaks no common revision has answered an error, too."""
    error = CLIENT_ERRORS[condition]
    caught_as = [name for name, other in CLIENT_ERRORS.items() if isinstance(error, type(other))]
    assert caught_as == ["an error of the server", condition] if condition == "protocol version" else [condition]


def test_an_error_carries_what_a_program_needs_to_go_on() -> None:
    """R277: the method, code and message, status, versions."""
    assert Unsupported("x", method="prompts/list").method == "prompts/list"
    assert (CallError(-32050, "no").code, CallError(-32050, "no").message) == (-32050, "no")
    assert Unauthorized("x", status=403).status == 403
    assert UnsupportedVersion(-32022, "x", {"supported": ["2031-01-01", 7]}).supported == ["2031-01-01"]
    for data in (None, [], {}, {"supported": "2031-01-01"}):
        assert UnsupportedVersion(-32022, "x", data).supported == []


def test_only_what_a_server_answered_is_called_its_answer() -> None:
    error = MissingCapability(-32021, "this needs sampling")
    assert str(error) == "this needs sampling (-32021)", "noticed by ourselves"
    error.request_id = 7
    assert str(error) == "the server answered: this needs sampling (-32021)"


def test_anything_can_be_wrapped() -> None:
    """R278."""
    error = ProtocolError(1, "x")
    assert ProtocolError.wrap(error) is error
    assert (ProtocolError.wrap("boom").code, ProtocolError.wrap("boom").message) == (-32603, "boom")
    assert ProtocolError.wrap(ToolError("boom")).message == "boom"
    assert ProtocolError.wrap("").message == "internal error"


@pytest.mark.parametrize(
    "anything", [ValueError("secret"), KeyError("secret"), errors.ConfigError("secret"), {"a": "secret"}, b"secret"]
)
def test_what_is_wrapped_leaks_nothing(anything: object) -> None:
    """R278: its text was not written for the peer; it is kept for the log."""
    error = ProtocolError.wrap(anything)
    assert (error.code, error.message, error.data) == (-32603, "internal error", None)
    assert "secret" not in str(error)
    assert error.__cause__ is (anything if isinstance(anything, Exception) else None)


def test_a_missing_resource_names_its_uri() -> None:
    """C6; protocol.md 1.7: -32602 on the modern era, data.uri."""
    error = ResourceMissing("a:b")
    assert (error.code, error.data) == (-32602, {"uri": "a:b"})


def test_a_tool_error_may_carry_blocks_and_meta() -> None:
    """R44, R46."""
    error = ToolError("x", content=[1], meta={"m": 1})
    assert (str(error), error.content, error.meta) == ("x", [1], {"m": 1})
    assert (ToolError().content, ToolError().meta) == (None, None)
    assert not issubclass(ToolError, ProtocolError)
