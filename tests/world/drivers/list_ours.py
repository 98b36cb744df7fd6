"""Connect to a real server with our client and list what it has: list_ours.py JOB, as listing.py says."""

from listing import Job, main

from trimaran import connect


async def drive(job: Job) -> None:
    async with connect(job.command, env=job.env, connect_timeout=job.limit, timeout=job.limit) as client:
        job.connected(client.version)
        await job.list("tools", client.list_tools_all())
        await job.list("resources", client.list_resources_all())
        await job.list("templates", client.list_resource_templates_all())
        await job.list("prompts", client.list_prompts_all())
        job.report()


main(drive)
