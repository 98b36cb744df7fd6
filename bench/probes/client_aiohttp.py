"""Bare aiohttp posting the same modern call: what an HTTP client alone costs. Decodes the answer with msgspec."""

import json
import sys
from pathlib import Path

import aiohttp
import msgspec
import uvloop
from common import arguments, expect, report, timed

sys.path.append(str(Path(__file__).parents[1]))

import messages


async def main() -> None:
    url, seconds, callers = arguments()
    params = {"name": "add", "arguments": messages.ARGUMENTS, "_meta": messages.META}
    headers = messages.request_headers("tools/call", params, era="modern")
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    decode = msgspec.json.Decoder().decode

    assert isinstance(url, str)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call() -> object:
            async with session.post(url, data=body, headers=headers) as response:
                return decode(await response.read())

        expect(await call())
        report(await timed(call, seconds=seconds, callers=callers))


if __name__ == "__main__":
    uvloop.run(main())
