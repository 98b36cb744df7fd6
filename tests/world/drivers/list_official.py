# pyright: basic, reportMissingImports=false
"""The same with the official SDK's client, run by `.tools/peers/sdk`: list_official.py JOB, with its `mode` in the job."""

import os
import warnings

from listing import Job, main
from mcp import Client, StdioServerParameters

warnings.simplefilter("ignore")  # the SDK deprecates the legacy methods as they are used


async def drive(job: Job) -> None:
    server = StdioServerParameters(command=job.command[0], args=job.command[1:], env=dict(os.environ))
    async with Client(server, mode=job.mode, read_timeout_seconds=job.limit) as client:
        job.connected(client.protocol_version)
        await job.list("tools", walk(client.list_tools, "tools"))
        await job.list("resources", walk(client.list_resources, "resources"))
        await job.list("templates", walk(client.list_resource_templates, "resource_templates"))
        await job.list("prompts", walk(client.list_prompts, "prompts"))
        job.report()


async def walk(page, field):
    entries, cursor = [], None
    while True:
        answer = await page(cursor=cursor)
        entries += getattr(answer, field)
        cursor = answer.next_cursor
        if not cursor:
            return entries


main(drive)
