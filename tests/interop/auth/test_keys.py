"""Other people's clients that know only OAuth meet a server that takes API keys: their users read which header is missing."""

from __future__ import annotations

import asyncio

import pytest

from trimaran import Server
from trimaran.auth import ApiKey
from trimaran.serve import HttpServer

from ..harness import DEADLINE, DRIVER_LIMIT, NODE, need
from .peers import CLIENTS, HERE

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]

SEEKERS = {**CLIENTS, "typescript-sdk-1": (NODE, HERE / "ts1_login.mjs")}


@pytest.mark.parametrize("client", SEEKERS)
async def test_their_client_shows_its_user_which_header_is_missing(client: str) -> None:
    program, script = SEEKERS[client]
    need(program)
    auth = ApiKey(["good-key"], header="X-Harbour-Key")
    async with HttpServer(Server("keyed", version="1.0.0"), port=0, auth=auth) as http:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            program, script, "auto", http.url, stdin=pipe, stdout=pipe, stderr=pipe
        )
        try:
            async with asyncio.timeout(DRIVER_LIMIT):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode != 0
    assert b"send an API key in the header X-Harbour-Key" in err, err.decode()[-4000:]
    assert b"open" not in out  # nobody is sent to a login page that is not there
