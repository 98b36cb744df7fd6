"""A world for a grant at work: a stage whose token endpoint can be held back, and a person behind a door."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.oauth_stage import ISSUER, REDIRECT, SERVER, Stage, reply, token

from trimaran.oauth import Grant, HttpReply, HttpRequest, OAuth
from trimaran.transports.http_auth import SentCredentials
from trimaran.transports.oauth_driver import OAuthDriver

TOKEN = f"{ISSUER}/token"
CHALLENGE = {"www-authenticate": "Bearer"}


class World:
    """While `gate` is closed the token endpoint does not answer; while `door` is, the person does not agree."""

    def __init__(self, answers: Any = None) -> None:
        self.stage = Stage(answers)
        self.gate, self.door = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.door.set()
        self.reached, self.asked = asyncio.Event(), asyncio.Event()
        self.logins = 0

    async def fetch(self, request: HttpRequest) -> HttpReply:
        if request.url == TOKEN:
            self.reached.set()
            await self.gate.wait()
        return self.stage.answer(request)

    async def log_in(self, url: str) -> str:
        self.logins += 1
        self.asked.set()
        await self.door.wait()
        return f"{REDIRECT}?code=c&state={parse_qs(urlsplit(url).query)['state'][0]}"

    def person(self, **options: Any) -> OAuth:
        return OAuth(login=self.log_in, redirect_uri=REDIRECT, **options)

    def authority(self, grant: Grant) -> OAuthDriver:
        return OAuthDriver(grant, SERVER, fetch=self.fetch, now=lambda: self.stage.now, entropy=self.stage.entropy)

    @property
    def token_requests(self) -> int:
        return self.stage.urls.count(TOKEN)


def numbered() -> Callable[[HttpRequest], HttpReply]:
    """Another token each time."""
    count = 0

    def answer(request: HttpRequest) -> HttpReply:
        nonlocal count
        count += 1
        return reply(token(access_token=f"access-{count}", refresh_token=f"refresh-{count}"))

    return answer


async def sent(authority: OAuthDriver) -> SentCredentials:
    return await authority.credentials("POST", SERVER)


async def refuse(
    authority: OAuthDriver, what: SentCredentials, status: int = 401, headers: dict[str, str] | None = None
) -> bool:
    return await authority.refused(status, headers or CHALLENGE, what, SERVER, 0)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
