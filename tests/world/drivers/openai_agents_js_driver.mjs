// The OpenAI Agents SDK for JavaScript: a server object, and its tools as agents get them.
import { MCPServerStdio, MCPServerStreamableHttp, mcpToFunctionTool } from "@openai/agents";
import { main } from "./contract.mjs";

await main(async (job, use) => {
  const [command, ...args] = job.command;
  const server =
    job.transport === "stdio"
      ? new MCPServerStdio({ name: "harbour", command, args })
      : new MCPServerStreamableHttp({ name: "harbour", url: job.url });
  await server.connect();
  try {
    const tools = await server.listTools();
    tools.forEach((tool) => mcpToFunctionTool(tool, server, false));
    await use(Object.fromEntries(tools.map((tool) => [tool.name, (input) => server.callTool(tool.name, input)])));
  } finally {
    await server.close();
  }
});
