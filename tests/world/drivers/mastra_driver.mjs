// Mastra: tools as its agents get them.
import { MCPClient } from "@mastra/mcp";
import { main } from "./contract.mjs";

await main(async (job, use) => {
  const [command, ...args] = job.command;
  const entry = job.transport === "stdio" ? { command, args } : { url: new URL(job.url) };
  const client = new MCPClient({ servers: { harbour: entry } });
  try {
    const tools = Object.entries(await client.listTools());
    await use(Object.fromEntries(tools.map(([name, tool]) => [name, (input) => tool.execute(input, {})])));
  } finally {
    await client.disconnect();
  }
});
