"""An HTTP echo as a bare asyncio.Protocol: the fastest answer Python can give, to find the load generator's ceiling."""

import argparse
import asyncio
import re
from typing import cast

import uvloop

ID = re.compile(rb'"id":(\d+)')
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        if self.buffer:
            data = self.buffer + data
        length, request_id = LENGTH.search(data), ID.search(data)
        body_at = data.find(b"\r\n\r\n") + 4
        if length is None or request_id is None or len(data) < body_at + int(length[1]):
            self.buffer = data
            return
        self.buffer = b""
        answer = b'{"jsonrpc":"2.0","id":%b,"result":42222}' % request_id[1]
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer)
        )


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
