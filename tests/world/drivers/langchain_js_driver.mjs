// LangChain.js: every tool as LangChain makes it.
import { MultiServerMCPClient } from "@langchain/mcp-adapters";
import { main } from "./contract.mjs";

await main(async (job, use) => {
  const [command, ...args] = job.command;
  const entry = job.transport === "stdio" ? { transport: "stdio", command, args } : { transport: "http", url: job.url };
  const client = new MultiServerMCPClient({ mcpServers: { harbour: entry } });
  try {
    const tools = await client.getTools();
    await use(Object.fromEntries(tools.map((tool) => [tool.name, (input) => tool.invoke(input)])));
  } finally {
    await client.close();
  }
});
