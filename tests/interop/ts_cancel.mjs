// The official TypeScript clients that cancel calls and end their session in the middle of one: ts_cancel.mjs LIBRARY URL.
//
// LIBRARY is `v2` (@modelcontextprotocol/client) or `v1` (@modelcontextprotocol/sdk). Prints one JSON object: how each call
// ended, and everything that the SDK complained about (`onerror`).

const modules = new URL("../../.tools/node/node_modules/@modelcontextprotocol/", import.meta.url);
const load = (path) => import(new URL(path, modules).href);

const [library, url] = process.argv.slice(2);
const INFO = { name: "typescript-driver", version: "1" };
const complaints = [];
const report = {};

async function open() {
  if (library === "v2") {
    const { Client, StreamableHTTPClientTransport } = await load("client/dist/index.mjs");
    const client = new Client(INFO, { versionNegotiation: { mode: "legacy" } });
    const transport = new StreamableHTTPClientTransport(new URL(url));
    return { client, transport, call: (name, input, options) => client.callTool({ name, arguments: input }, options) };
  }
  const { Client } = await load("sdk/dist/esm/client/index.js");
  const { StreamableHTTPClientTransport } = await load("sdk/dist/esm/client/streamableHttp.js");
  const client = new Client(INFO);
  const transport = new StreamableHTTPClientTransport(new URL(url));
  const call = (name, input, options) => client.callTool({ name, arguments: input }, undefined, options);
  return { client, transport, call };
}

const { client, transport, call } = await open();
client.onerror = (error) => complaints.push(`${error.name}: ${error.message}`.slice(0, 300));
await client.connect(transport);

async function cancel(name, streams) {
  const abort = new AbortController();
  let onprogress;
  const heard = new Promise((resolve) => (onprogress = resolve));
  const options = streams ? { onprogress, signal: abort.signal } : { signal: abort.signal };
  const running = call("hold", { name }, options).catch(() => {});
  await call("wait_until_begun", { name });
  if (streams) await heard;
  abort.abort("enough");
  await running;
  report[name] = (await call("wait_until_ended", { name })).content[0].text;
}

await cancel("whole", false);
await cancel("stream", true);
await new Promise((resolve) => setTimeout(resolve, 500)); // an SDK that comes back for the stream does so by then
report.after = (await call("add", { a: 2, b: 3 })).content[0].text;
const left = call("hold", { name: "left" }, { timeout: 1000 }).catch(() => {});
await call("wait_until_begun", { name: "left" });
await transport.terminateSession();
await client.close();
await left;
// Closing aborts what is under way, and the SDK reports that of itself, whatever the server does.
const own = (text) => text.includes("AbortError");
console.log(JSON.stringify({ ...report, complaints: complaints.filter((text) => !own(text)) }));
process.exit(0);
