// Every tool of the server of shapes, listed and called by an official TypeScript client, run by .tools/node:
// shapes_client.mjs LIBRARY COUNTS ERA COMMAND ARG...
//
// LIBRARY is `v1` (@modelcontextprotocol/sdk) or `v2` (@modelcontextprotocol/client); both compile every output schema and
// hold every result against it. COUNTS says how many values each tool returns, ERA is what v2 calls
// `mode`. Prints one JSON object: how many tools and calls there were, what failed.

const modules = new URL("../../.tools/node/node_modules/@modelcontextprotocol/", import.meta.url);
const load = (path) => import(new URL(path, modules).href);
const INFO = { name: "shapes", version: "1" };
const [library, counts, era, command, ...args] = process.argv.slice(2);

async function open() {
  const isNew = library === "v2";
  const { Client } = await load(isNew ? "client/dist/index.mjs" : "sdk/dist/esm/client/index.js");
  const { StdioClientTransport } = await load(isNew ? "client/dist/stdio.mjs" : "sdk/dist/esm/client/stdio.js");
  const mode = ["legacy", "auto"].includes(era) ? era : { pin: era };
  const client = new Client(INFO, isNew ? { versionNegotiation: { mode } } : {});
  await client.connect(new StdioClientTransport({ command, args, stderr: "inherit" }));
  return client;
}

const client = await open();
const failures = {};
const { tools } = await client.listTools();
let calls = 0;
for (const [name, count] of Object.entries(JSON.parse(counts))) {
  for (let number = 0; number < count; number++) {
    calls++;
    try {
      const result = await client.callTool({ name, arguments: { number } });
      if (result.isError || result.structuredContent === undefined) failures[`${name} ${number}`] = result;
    } catch (error) {
      failures[`${name} ${number}`] = String(error.message ?? error).slice(0, 400);
    }
  }
}
await client.close();
console.log(JSON.stringify({ tools: tools.length, calls, failures }));
