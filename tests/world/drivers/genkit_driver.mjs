// Genkit's MCP plugin: every tool as Genkit makes it.
import { createMcpClient } from "@genkit-ai/mcp";
import { genkit } from "genkit";
import { main } from "./contract.mjs";

await main(async (job, use) => {
  const [command, ...args] = job.command;
  const mcpServer = job.transport === "stdio" ? { command, args } : { url: job.url };
  const client = createMcpClient({ name: "harbour", mcpServer });
  try {
    await client.ready();
    const tools = await client.getActiveTools(genkit({}));
    await use(Object.fromEntries(tools.map((tool) => [tool.__action.name, (input) => tool(input)])));
  } finally {
    await client.disable();
  }
});
