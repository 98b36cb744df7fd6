// The AI SDK: its own client, not the official one.
import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as StdioTransport } from "@ai-sdk/mcp/mcp-stdio";
import { main } from "./contract.mjs";

await main(async (job, use) => {
  const [command, ...args] = job.command;
  const transport = job.transport === "stdio" ? new StdioTransport({ command, args }) : { type: job.transport, url: job.url };
  const client = await createMCPClient({ transport });
  try {
    const tools = Object.entries(await client.tools());
    const call = (tool) => (input) => tool.execute(input, { toolCallId: "1", messages: [] });
    await use(Object.fromEntries(tools.map(([name, tool]) => [name, call(tool)])));
  } finally {
    await client.close();
  }
});
