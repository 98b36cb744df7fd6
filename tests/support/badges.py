"""An authenticator as small as can be, and a server with something for everybody.

A badge says who its bearer is: `Bearer alice`, `Bearer alice@elsewhere` (another issuer), `Bearer alice+read+write` (with
scopes), `Bearer alice~-59.9` (whose time runs out so many seconds from now). Names that begin with "bad" are refused.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from trimaran import Context, Server
from trimaran.auth import Principal, Refused

ALICE = {"Authorization": "Bearer alice"}
BOB = {"Authorization": "Bearer bob"}
ALICE_ELSEWHERE = {"Authorization": "Bearer alice@elsewhere"}
NOBODY: dict[str, str | None] = {"Authorization": None}
BAD = {"Authorization": "Bearer bad"}
CHALLENGE = 'Bearer realm="badges"'


def badge(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


class Badges:
    """Every method an authenticator may have, but those of OAuth."""

    header_names: tuple[str, ...] = ("X-Badge",)
    is_open = False
    """May somebody without a badge come in, as nobody?"""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def authenticate(self, request: Any) -> Principal | None:
        self.seen.append((request.method, request.path, request.address, request.url))
        scheme, _, text = (request.headers.get("authorization") or "").partition(" ")
        if not scheme and self.is_open:
            return None
        refusal = None
        if not scheme:
            refusal = Refused("missing")
        elif scheme != "Bearer" or text.startswith("bad"):
            refusal = Refused("invalid_token", "that badge is not valid", reason=f"told apart by {text}")
        if refusal is not None:
            refusal.challenges = (CHALLENGE,)
            raise refusal
        text, _, left = text.partition("~")
        name, *scopes = text.split("+")
        subject, _, issuer = name.partition("@")
        return Principal(
            subject=subject,
            issuer=issuer or None,
            scopes=frozenset(scopes),
            expires_at=time.time() + float(left) if left else None,
        )


class Issued(Badges):
    """Badges of an office that hands out further ones to those who ask."""

    def step_up(self, request: Any, scopes: Sequence[str]) -> str:
        return f'{CHALLENGE}, error="insufficient_scope", scope="{" ".join(scopes)}"'


def demo(**options: Any) -> Server:
    server = Server("demo", version="1", **options)

    @server.tool
    async def whoami(ctx: Context) -> str:
        return "nobody" if ctx.auth is None else f"{ctx.auth.subject}@{ctx.auth.issuer}"

    @server.tool(scopes=["read", "write"])
    async def guarded() -> str:
        return "in"

    @server.tool(scopes=["read"])
    async def chatty() -> str:
        return "in"

    @server.resource("notes://guarded", scopes=["read"])
    async def note() -> str:
        return "in"

    @server.resource("files://{name}", scopes=["read"])
    async def file(name: str) -> str:
        return name

    @server.prompt(scopes=["read"])
    def ask(topic: str) -> str:
        return topic

    @server.completion(prompt="ask", argument="topic")
    async def topics(value: str) -> list[str]:
        return ["in"]

    @server.completion(template="files://{name}", argument="name")
    async def names(value: str) -> list[str]:
        return ["in"]

    return server
