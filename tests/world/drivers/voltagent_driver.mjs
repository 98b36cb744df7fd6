// VoltAgent: every tool as VoltAgent makes it.
import { MCPConfiguration } from "@voltagent/core";
import { main } from "./contract.mjs";

await main(async (job, use) => {
  const [command, ...args] = job.command;
  const entry = job.transport === "stdio" ? { type: "stdio", command, args } : { type: "streamable-http", url: job.url };
  const configuration = new MCPConfiguration({ servers: { harbour: entry } });
  try {
    const tools = await configuration.getTools();
    await use(Object.fromEntries(tools.map((tool) => [tool.name, (input) => tool.execute(input)])));
  } finally {
    await configuration.disconnect();
  }
});
