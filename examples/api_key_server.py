"""An HTTP server for callers with API keys, which it knows only as hashes.

    python examples/api_key_server.py
    trimaran call http://127.0.0.1:9090/mcp read_log --header X-API-Key=reader-key-of-the-example-4711
    claude mcp add --transport http log http://127.0.0.1:9090/mcp --header "X-API-Key: writer-key-of-the-example-0815"

The keys above are for trying it out. Make your own, and put what is printed into KEYS:

    TRIMARAN_API_KEY_PEPPER="$(openssl rand -base64 32)"      a secret of the server: keep it, and apart from the hashes
    trimaran auth hash --generate

Set PORT to listen elsewhere, and HOST=0.0.0.0 to be reached from other machines: then behind TLS.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from trimaran import Context, Server
from trimaran.auth import ApiKey, Principal, RateLimit

PEPPER = os.environ.get("TRIMARAN_API_KEY_PEPPER", "the pepper of an example")
KEYS = {
    "hmac-sha256$iu9n8c8VNS52hAcMRjuZVF5aTu2aMYzkeqtDczselgM=": {
        "subject": "reader",
        "scopes": ["log:read"],
    },
    "hmac-sha256$joUx/1y7g6K7jDQoWFM0LRID023JjxaizZdbfqDW6Uk=": {
        "subject": "skipper",
        "scopes": ["log:read", "log:write"],
        "metadata": {"boat": "Trimaran"},
    },
}

auth = ApiKey(KEYS, hash_keys=True, pepper=PEPPER, required_scopes=["log:read"])
limit = RateLimit(principal="120/minute", address="600/minute")

server = Server("log", version="1.0.0", instructions="The log book of a boat.")


@dataclass
class Entry:
    """A line of the log book."""

    author: str
    text: str


book: list[Entry] = []


def caller(ctx: Context) -> Principal:
    assert ctx.auth is not None, "over HTTP nobody comes this far without a key"
    return ctx.auth


@server.tool(annotations={"readOnlyHint": True})
async def read_log(last: int = 10) -> list[Entry]:
    """Read the last entries of the log book."""
    return book[-last:]


@server.tool(scopes=["log:write"])
async def write_log(text: str, ctx: Context) -> str:
    """Write a line into the log book, signed with the caller's name."""
    who = caller(ctx)
    book.append(Entry(who.subject or "somebody", text))
    return f"Entry {len(book)}, signed {who.subject} of the {who.metadata.get('boat', 'shore')}."


@server.tool(visible_to=["log:write"], annotations={"destructiveHint": True})
async def clear_log() -> str:
    """Tear out every page. Callers that may not write do not know of this tool."""
    count = len(book)
    book.clear()
    return f"{count} entries are gone."


if __name__ == "__main__":
    server.run(
        "http",
        host=os.environ.get("HOST", "127.0.0.1"),
        port=int(os.environ.get("PORT", "9090")),
        auth=auth,
        rate_limit=limit,
        # Programs send no Origin; web pages have no business here. Every caller has to show a key anyway.
        allowed_origins=[],
        allow_missing_origin=True,
    )
