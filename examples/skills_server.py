"""A server that ships the manual of its tools: the skills in the folder beside this file.

    python examples/skills_server.py            on stdio, for a client
    python examples/skills_server.py --show     be that client: list the skills, read one, checked
    claude mcp add bosun -- python /path/to/examples/skills_server.py

Change a file in examples/skills/ while it runs: the next list shows it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from trimaran import Server, connect
from trimaran.ext import SKILLS_CAPABILITY, Skills, SkillsClient

server = Server("bosun", version="1.0.0", instructions="Before you make anything fast, load the skill tying-knots.")
server.enable_extension(Skills(Path(__file__).with_name("skills")))


@server.tool(annotations={"readOnlyHint": True})
def find_rope(metres: float) -> str:
    """Find a rope that is long enough."""
    return "The blue one, 12 mm." if metres <= 30 else "None is as long as that."


async def show() -> None:
    command = [sys.executable, __file__]
    async with connect(command, capabilities=SKILLS_CAPABILITY) as client:
        skills = SkillsClient(client, label="bosun")
        for skill in await skills.list():
            print(f"{skill.name}: {skill.description}")
            for file in skill.resources or ():
                print(f"  {file.uri} ({file.size} bytes)")
            # Only now is a file fetched; it is what the list says, or there is an exception.
            manual = await skills.read(skill)
            print(f"  from {manual.origin}, {manual.digest[:15]}...: {manual.text.splitlines()[-1]}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        asyncio.run(show())
    else:
        server.run()
