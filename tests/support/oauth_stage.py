"""A stage for flows: replies by URL, requests written down, and a person who always comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qs, parse_qsl, urlsplit

from trimaran.oauth.dpop import Nonces
from trimaran.oauth.effects import Browse, CallUser, Flow, HttpReply, HttpRequest, Redirect
from trimaran.oauth.grant import FlowEnvironment

T = TypeVar("T")

SERVER = "https://mcp.example.com/v1/mcp"
ISSUER = "https://as.example.com"
REDIRECT = "http://127.0.0.1:4000/callback"
NOW = 1_000_000.0

Answer = HttpReply | list[HttpReply] | Callable[[HttpRequest], HttpReply]


def reply(document: Any = None, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpReply:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return HttpReply(status, dict(headers or {}), body)


def resource(**changes: Any) -> dict[str, Any]:
    return {"resource": SERVER, "authorization_servers": [ISSUER], **changes}


def metadata(issuer: str = ISSUER, **changes: Any) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "registration_endpoint": f"{issuer}/register",
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
        **changes,
    }


def token(**changes: Any) -> dict[str, Any]:
    return {"access_token": "access-1", "token_type": "Bearer", "expires_in": 3600, **changes}


class Stage:
    """Answers a flow's effects. What is not on it is 404."""

    def __init__(self, answers: Mapping[str, Answer | dict[str, Any]] | None = None) -> None:
        self.answers: dict[str, Any] = {
            "https://mcp.example.com/.well-known/oauth-protected-resource/v1/mcp": resource(),
            f"{ISSUER}/.well-known/oauth-authorization-server": metadata(),
            f"{ISSUER}/register": reply({"client_id": "client-1"}, 201),
            f"{ISSUER}/token": token(),
            **(answers or {}),
        }
        self.requests: list[HttpRequest] = []
        self.visits: list[str] = []
        self.callback: Callable[[dict[str, str]], str] = lambda query: f"{REDIRECT}?code=code-1&state={query['state']}"
        self.now = NOW
        self._dice = 0
        self.nonces = Nonces()

    def entropy(self, count: int) -> bytes:
        self._dice += 1
        return self._dice.to_bytes(2, "big") * (count // 2)

    @property
    def world(self) -> FlowEnvironment:
        return FlowEnvironment(lambda: self.now, self.entropy, self.nonces)

    @property
    def urls(self) -> list[str]:
        return [request.url for request in self.requests]

    def form(self, url: str, number: int = -1) -> dict[str, str]:
        """The form that was posted to a URL."""
        found = [request for request in self.requests if request.url == url][number]
        return dict(parse_qsl((found.body or b"").decode(), keep_blank_values=True))

    def query(self, number: int = -1) -> dict[str, list[str]]:
        """What the person was sent to log in with."""
        return parse_qs(urlsplit(self.visits[number]).query)

    def answer(self, effect: Any) -> Any:
        if isinstance(effect, Redirect):
            return REDIRECT
        if isinstance(effect, Browse):
            self.visits.append(effect.url)
            return self.callback(dict(parse_qsl(urlsplit(effect.url).query)))
        if isinstance(effect, CallUser):
            return effect.function()
        assert isinstance(effect, HttpRequest)
        self.requests.append(effect)
        found = self.answers.get(effect.url, reply(b"<h1>Not Found</h1>", 404))
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if callable(found):
            found = found(effect)
        return found if isinstance(found, HttpReply) else reply(found)

    def play(self, flow: Flow[T]) -> T:
        answer: Any = None
        try:
            while True:
                answer = self.answer(flow.send(answer))
        except StopIteration as done:
            return done.value
