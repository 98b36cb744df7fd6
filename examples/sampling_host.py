"""A host with a model: a server asks for a completion in the middle of a tool, and a person may say no.

    python examples/sampling_host.py                both eras, with a model that follows a script: no network, no cost
    python examples/sampling_host.py --serve        the server alone, on stdio
    claude mcp add reviewer -- python /path/to/examples/sampling_host.py --serve

Put a call to your model into `Model.complete` and a real question into `Host.allows`.
"""

from __future__ import annotations

import asyncio
import sys

from trimaran import Context, Server, connect, content
from trimaran.client import Sampling
from trimaran.errors import ProtocolError
from trimaran.types import CreateMessageResult

server = Server("reviewer", version="1.0.0")


@server.tool
async def review(text: str, ctx: Context) -> str:
    """Have a text reviewed by the client's model.

    Args:
        text: The text.
    """
    said = await ctx.sample(
        [content.user_message(f"Review this in one sentence: {text}")], max_tokens=100, system="You are kind."
    )
    return f"{said.model} says: {said.text}"


class Model:
    """Answers from a script."""

    name = "script-1"

    async def complete(self, prompt: str, system: str | None, max_tokens: int) -> str:
        subject = prompt.partition(": ")[2]
        return f"{subject!r} is short and to the point." if subject else "There is nothing to review."


class Host:
    """Stands between servers and the model: no prompt reaches it, and no token is spent, without consent."""

    most_tokens = 1000

    def __init__(self, model: Model) -> None:
        self._model = model

    def allows(self, ask: Sampling) -> bool:
        """Here a person would see the whole of `ask.messages`."""
        return ask.max_tokens <= self.most_tokens and "password" not in ask.text

    async def on_sample(self, ask: Sampling) -> CreateMessageResult | None:
        if not self.allows(ask):
            return None
        text = await self._model.complete(ask.text, ask.system_prompt, ask.max_tokens)
        return CreateMessageResult(
            role="assistant", content=content.text(text), model=self._model.name, stop_reason="endTurn"
        )


async def main() -> None:
    for era in ("modern", "legacy"):
        async with connect(server, era=era, handler=Host(Model())) as client:
            result = await client.call_tool("review", {"text": "Keep left."})
            print(f"{client.version}: {result.data}")
            try:
                await client.call_tool("review", {"text": "My password is harbour."})
            except ProtocolError as error:
                print(f"{client.version}: refused, {error.message}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        server.run()
    else:
        asyncio.run(main())
