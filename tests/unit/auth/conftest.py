"""What tests of authentication share: a clock to turn, requests to make, and tokens signed byte by byte.

Tokens are put together by hand, so that a test can say exactly what is wrong with one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from tests.support.clock import Clock

NOW = 1_800_000_000.0


class Request:
    method = "POST"
    path = "/mcp"
    query = ""
    url = "https://api.example/mcp"
    address = "192.0.2.1"

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = {name.lower(): value for name, value in headers.items()}


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Mint:
    """One key of every kind, and tokens signed with them."""

    secret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "HS256": OctKey.import_key(self.secret),
            "RS256": RSAKey.generate_key(2048),
            "ES256": ECKey.generate_key("P-256"),
            "ES384": ECKey.generate_key("P-384"),
            "EdDSA": OKPKey.generate_key("Ed25519"),
        }
        for other, same in (("HS512", "HS256"), ("PS256", "RS256"), ("RS512", "RS256")):
            self.keys[other] = self.keys[same]

    def jwk(self, alg: str, /, **more: Any) -> dict[str, Any]:
        return {**self.keys[alg].as_dict(private=False), **more}

    def pem(self, alg: str) -> str:
        return self.keys[alg].as_pem(private=False).decode()

    def claims(self, **changes: Any) -> dict[str, Any]:
        found = {
            "sub": "ada",
            "iss": "https://issuer.example",
            "aud": "https://api.example",
            "exp": NOW + 600,
            **changes,
        }
        return {name: value for name, value in found.items() if value is not ...}

    def token(self, alg: str = "HS256", *, header: dict[str, Any] | None = None, **changes: Any) -> str:
        return self.raw(alg, json.dumps(self.claims(**changes)).encode(), header=header)

    def raw(self, alg: str, payload: bytes, *, header: dict[str, Any] | bytes | None = None, key: Any = None) -> str:
        """A token with this very payload, or this very header, signed as `alg` whatever the header says."""
        if not isinstance(header, bytes):
            header = json.dumps({"alg": alg, "typ": "JWT", **(header or {})}).encode()
        signing_input = f"{b64(header)}.{b64(payload)}"
        signature = JWSRegistry.algorithms[alg].sign(signing_input.encode(), key or self.keys[alg])
        return f"{signing_input}.{b64(signature)}"


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture(scope="session")
def mint() -> Mint:
    return Mint()


@pytest.fixture
def request_with() -> Callable[..., Any]:
    """A request with an Authorization header, and others by name."""

    def make(authorization: str | None = None, **headers: str) -> Request:
        found = {name.replace("_", "-"): value for name, value in headers.items()}
        if authorization is not None:
            found["authorization"] = authorization
        return Request(found)

    return make
