"""A program that nobody watches: it has credentials of its own, gets tokens by itself and keeps them fresh.

    SERVER=https://tides.example.com/mcp CLIENT_ID=... CLIENT_SECRET=... python examples/unattended_agent.py

Who issues the tokens and what to ask for is found out from the server. Without the variables it calls the server that
examples/protected_server.py runs on this machine, with the client that examples/tiny_issuer.py knows. A person would use
that server with `claude mcp add --transport http tides https://tides.example.com/mcp`.

With a key instead of a secret, which never leaves this machine: PRIVATE_KEY=key.pem in place of CLIENT_SECRET.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from trimaran import connect
from trimaran.errors import AuthorizationFailed, Error
from trimaran.oauth import ClientCredentials


def grant() -> ClientCredentials:
    client_id = os.environ.get("CLIENT_ID", "agent")
    if file := os.environ.get("PRIVATE_KEY"):
        return ClientCredentials(client_id=client_id, private_key=Path(file).read_bytes())
    return ClientCredentials(client_id=client_id, client_secret=os.environ.get("CLIENT_SECRET", "secret-of-an-example"))


async def main(url: str) -> int:
    try:
        async with connect(url, auth=grant(), timeout=10) as client:
            print((await client.call_tool("high_water", {"harbour": "Dover"})).data)
            # This needs more than the first token grants: the 403 says what, and the client gets it.
            print((await client.call_tool("correct", {"harbour": "Dover", "time": "05:15"})).data)
    except AuthorizationFailed as error:
        # Which step failed, where, and what its operator can do: for a log that somebody reads in the morning.
        print(f"no right to call ({error.step}): {error}", file=sys.stderr)
        return 1
    except Error as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(os.environ.get("SERVER", "http://127.0.0.1:9090/mcp"))))
