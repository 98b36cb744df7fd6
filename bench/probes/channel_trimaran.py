"""Our in-memory transport without a client on top: a modern call as JSON in, its answer decoded with msgspec."""

import sys
from pathlib import Path

import msgspec
import uvloop
from common import arguments, expect, report, sequential

from trimaran import Server
from trimaran.transports.memory import MemoryChannel

sys.path.append(str(Path(__file__).parents[1]))

import messages

server = Server("bench", version="1")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    _, seconds = arguments()
    channel = MemoryChannel(server)
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    params = {"name": "add", "arguments": messages.ARGUMENTS, "_meta": messages.META}
    request_id = 0

    async def call() -> object:
        nonlocal request_id
        request_id += 1
        await channel.send(encode({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}))
        answer = await channel.receive()
        return decode(answer or b"null")

    expect(await call())
    report(await sequential(call, seconds=seconds))
    await channel.close()


if __name__ == "__main__":
    uvloop.run(main())
