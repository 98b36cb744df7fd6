"""What the tests of a client's logins share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.mean_authority import Mean
from tests.support.oauth_stage import ISSUER, NOW, SERVER
from tests.support.oauth_world import TOKEN
from tests.support.until import PATIENCE

from trimaran import connect
from trimaran.oauth import (
    ClientInfo,
    Credentials,
)
from trimaran.oauth.metadata import ServerMetadata


@asynccontextmanager
async def meet(*sins: str, era: str = "modern") -> AsyncIterator[Mean]:
    async with asyncio.timeout(PATIENCE), Mean(*sins, era=era) as mean:
        yield mean


async def whoami(mean: Mean, auth: Any) -> str:
    async with connect(mean.url, auth=auth) as client:
        return (await client.call_tool("whoami")).text


def held(**changes: Any) -> Credentials:
    """A login of an hour ago, which can be refreshed."""
    return Credentials(
        **{
            "server_url": SERVER,
            "resource": SERVER,
            "issuer": ISSUER,
            "access_token": "access-0",
            "refresh_token": "refresh-0",
            "issued_at": NOW - 3600,
            "expires_at": NOW + 3600,
            "scopes": ("notes",),
            "metadata": ServerMetadata(
                issuer=ISSUER, token_endpoint=TOKEN, token_endpoint_auth_methods_supported=("client_secret_post",)
            ),
            "clients": {ISSUER: ClientInfo(client_id="client-1")},
            **changes,
        }
    )
