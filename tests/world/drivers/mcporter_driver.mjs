// mcporter: its runtime, which lists with the official TypeScript SDK and so compiles every output schema.
import { createRuntime } from "mcporter";
import { main } from "./contract.mjs";

await main(async (job, use) => {
  const [command, ...args] = job.command;
  const place =
    job.transport === "stdio" ? { kind: "stdio", command, args, cwd: process.cwd() } : { kind: "http", url: new URL(job.url) };
  const runtime = await createRuntime({ servers: [{ name: "harbour", command: place }] });
  try {
    const tools = await runtime.listTools("harbour", { includeSchema: true });
    const call = (name) => (input) => runtime.callTool("harbour", name, { args: input });
    await use(Object.fromEntries(tools.map((tool) => [tool.name, call(tool.name)])));
  } finally {
    await runtime.close();
  }
});
