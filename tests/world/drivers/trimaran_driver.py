"""Our own client with the contract of the other drivers: used behind the bridges, and for the calls in the table."""

from typing import Any

from contract import Job, main

from trimaran import connect


async def drive(job: Job) -> None:
    target = [job.command, *job.args] if job.is_stdio else job.url
    options: dict[str, Any] = {"era": job.era}  # any word of the command line
    async with connect(target, **options) as client:
        tools = await client.list_tools_all()

        def caller(name: str):
            async def call(arguments: dict[str, object]) -> str:
                result = await client.call_tool(name, arguments)
                return f"{result.data!r} {result.text}"

            return call

        await job.use((tool.name, caller(tool.name)) for tool in tools)
        resources = await client.list_resources_all()
        prompts = await client.list_prompts_all()
        assert resources and prompts, "resources and prompts must pass through"


main(drive)
