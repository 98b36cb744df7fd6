"""The option `sandbox`: read, refused, and put into words."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.client.sandbox_policy import Sandbox, read_sandbox
from trimaran.errors import ConfigError


def test_strict_is_nothing_at_all() -> None:
    assert read_sandbox("strict") == Sandbox()
    assert str(Sandbox()) == "writes nothing; no network"
    assert read_sandbox(None) is None


def test_a_table_is_read() -> None:
    policy = read_sandbox(
        {"read": ["~/a"], "write": ["b"], "net": ["api.example.com", "*.example.org:8443"], "env": ["KEY"]}
    )
    assert policy == Sandbox(read=("~/a",), write=("b",), net=("api.example.com", "*.example.org:8443"), env=("KEY",))
    assert str(policy) == "reads ~/a; writes b; reaches api.example.com, *.example.org:8443; gets KEY"
    assert read_sandbox({"net": True}) == Sandbox(net=True)
    assert read_sandbox({"net": []}) == Sandbox()
    assert "the whole network" in str(Sandbox(net=True))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("loose", '"strict", or a table'),
        (True, '"strict", or a table'),
        ({"reads": []}, "no key 'reads'"),
        ({"read": "~"}, "sandbox.read must be a list"),
        ({"read": [""]}, "sandbox.read must be a list"),
        ({"write": ["a\0b"]}, "sandbox.write must be a list"),
        ({"net": "example.com"}, "sandbox.net must be a list"),
        ({"net": ["https://example.com/"]}, "lists hosts"),
        ({"net": ["a b"]}, "lists hosts"),
        ({"net": ["*"]}, "lists hosts"),
        ({"env": ["KEY=value"]}, "lists names of variables"),
    ],
)
def test_what_cannot_be_meant_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_sandbox(value)
