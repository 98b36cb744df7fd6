"""Two gateway processes with one caller's login: its refresh token is shown to the issuer once."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from tests.support.issuer import Issuer, Person, issuer_at_work, protected
from tests.support.redis import redis_server
from tests.support.until import PATIENCE

from trimaran import Client, connect

from .test_gateway import Replica

pytestmark = pytest.mark.slow


CONFIG = """
[gateway]
secret_keys = ["the same key for all gateways"]
[gateway.auth]
provider = "apikey"
[gateway.auth.provider_opts.keys]
ann-key-123 = { subject = "ann" }
[server.notes]
transport = "http"
url = "@URL@"
"""


class SlowIssuer(Issuer):
    """Refreshes late, so that whoever does not wait for the other process is sure to meet it here."""

    async def token(self, request: Any) -> Any:
        if "grant_type=refresh_token" in request.text:
            await asyncio.sleep(0.3)
        return await super().token(request)


async def wait_for_tool(client: Client, name: str) -> None:
    """The catalog is listed with the caller's login, a moment after it."""
    async with asyncio.timeout(PATIENCE):
        while name not in {tool.name for tool in await client.list_tools_all(fresh=True)}:
            await asyncio.sleep(0.02)


async def test_two_processes_refresh_a_rotating_token_once(tmp_path: Path) -> None:
    config = tmp_path / "mcp.toml"
    with redis_server(tmp_path) as redis:
        async with (
            issuer_at_work(SlowIssuer()) as issuer,
            protected(issuer) as url,
            contextlib.AsyncExitStack() as end,
        ):
            config.write_text(CONFIG.replace("@URL@", url))
            replicas = await asyncio.gather(*(asyncio.to_thread(Replica, config, redis.url) for _ in range(2)))
            for replica in replicas:
                end.callback(replica.kill)
            person = Person()
            clients = [
                await end.enter_async_context(
                    connect(
                        f"http://127.0.0.1:{replica.port}/mcp", headers={"X-API-Key": "ann-key-123"}, on_elicit=person
                    )
                )
                for replica in replicas
            ]
            for client in clients:
                await client.call_tool("notes_login")
                await wait_for_tool(client, "notes_whoami")
                assert (await client.call_tool("notes_whoami")).data == "Ann"
            assert issuer.logins == 1
            for times in range(1, 4):
                issuer.tokens.clear()  # access tokens are over at the same moment everywhere
                results = await asyncio.gather(*(client.call_tool("notes_whoami") for client in clients))
                assert [result.data for result in results] == ["Ann", "Ann"]
                assert issuer.refreshes == times
            assert len(person.pages) == issuer.logins == 1
