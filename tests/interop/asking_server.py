"""A server of ours on stdio that reports progress and asks."""

from __future__ import annotations

from trimaran import Context, Server

server = Server("asking", version="1", secret_keys=["the same for each start"])


@server.tool
async def slow(ctx: Context) -> str:
    for done in (1, 2, 3):
        await ctx.progress(done, total=3)
    return "done"


@server.tool
async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Your name?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"hello {answer.content['name']}"


if __name__ == "__main__":
    server.run()
