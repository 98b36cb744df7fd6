// The official TypeScript clients at work, run by .tools/node: ts_client.mjs LIBRARY ERA (URL | COMMAND ARG...).
//
// LIBRARY is `v2` (@modelcontextprotocol/client) or `v1` (@modelcontextprotocol/sdk, which knows the legacy era only).
// ERA is what v2 calls `mode`: `legacy`, `auto`, or a version to pin. A URL that ends in /sse means HTTP+SSE. Prints one JSON object, an item per check, {"ok": value} or {"error": {...}}.

const modules = new URL("../../.tools/node/node_modules/@modelcontextprotocol/", import.meta.url);
const load = (path) => import(new URL(path, modules).href);

const URI = "config://app";
const LIMIT = 10_000; // milliseconds for what is waited for
const LOG_LEVEL = "io.modelcontextprotocol/logLevel";
const INFO = { name: "typescript-driver", version: "1" };
const CAPABILITIES = { elicitation: { form: {} }, sampling: {}, roots: {} };

const [library, era, target, ...args] = process.argv.slice(2);

// --- the two libraries, made alike ----------------------------------------------------------------------------------

async function v2() {
  const { Client, SSEClientTransport, StreamableHTTPClientTransport } = await load("client/dist/index.mjs");
  const { StdioClientTransport } = await load("client/dist/stdio.mjs");
  const Http = target.endsWith("/sse") ? SSEClientTransport : StreamableHTTPClientTransport;
  const mode = ["legacy", "auto"].includes(era) ? era : { pin: era };
  const client = new Client(INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
  const transport = args.length
    ? new StdioClientTransport({ command: target, args, stderr: "inherit" })
    : new Http(new URL(target));
  return {
    client,
    transport,
    version: () => client.getNegotiatedProtocolVersion(),
    onRequest: (method, handler) => client.setRequestHandler(method, (request) => handler(request.params)),
    onNotification: (method, handler) => client.setNotificationHandler(method, (note) => handler(note.params)),
    callTool: (params, options) => client.callTool(params, options),
  };
}

async function v1() {
  const { Client } = await load("sdk/dist/esm/client/index.js");
  const { StdioClientTransport } = await load("sdk/dist/esm/client/stdio.js");
  const { StreamableHTTPClientTransport } = await load("sdk/dist/esm/client/streamableHttp.js");
  const { SSEClientTransport } = await load("sdk/dist/esm/client/sse.js");
  const types = await load("sdk/dist/esm/types.js");
  const schemas = {
    "elicitation/create": types.ElicitRequestSchema,
    "sampling/createMessage": types.CreateMessageRequestSchema,
    "roots/list": types.ListRootsRequestSchema,
    "notifications/message": types.LoggingMessageNotificationSchema,
    "notifications/tools/list_changed": types.ToolListChangedNotificationSchema,
    "notifications/resources/updated": types.ResourceUpdatedNotificationSchema,
  };
  const client = new Client(INFO, { capabilities: CAPABILITIES });
  const Http = target.endsWith("/sse") ? SSEClientTransport : StreamableHTTPClientTransport;
  const transport = args.length
    ? new StdioClientTransport({ command: target, args, stderr: "inherit" })
    : new Http(new URL(target));
  let version;
  const setProtocolVersion = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (agreed) => {
    version = agreed;
    setProtocolVersion?.(agreed);
  };
  return {
    client,
    transport,
    version: () => version,
    onRequest: (method, handler) => client.setRequestHandler(schemas[method], (request) => handler(request.params)),
    onNotification: (method, handler) => client.setNotificationHandler(schemas[method], (note) => handler(note.params)),
    callTool: (params, options) => client.callTool(params, undefined, options),
  };
}

// --- the person, the model and the folders at this client ------------------------------------------------------------

const questions = [];
const prompts = [];
const logs = [];
const notices = [];
let wake = () => {};

function elicit({ message, requestedSchema }) {
  questions.push({ message, schema: requestedSchema });
  if (message.includes("nothing")) return { action: "decline" };
  const content = "street" in requestedSchema.properties ? { street: "Elm 1", floor: 3 } : { pay: "cash" };
  return { action: "accept", content };
}

function sample(params) {
  prompts.push(params);
  return { role: "assistant", content: { type: "text", text: "short" }, model: "fake-1", stopReason: "endTurn" };
}

function notice(text) {
  notices.push(text);
  wake();
}

async function nextNotice() {
  if (!notices.length) await within(new Promise((resolve) => (wake = resolve)));
  return notices.shift();
}

async function within(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came within ${LIMIT} ms`)), LIMIT);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// --- the checks -------------------------------------------------------------------------------------------------------

const items = {};

async function item(name, check) {
  try {
    items[name] = { ok: (await check()) ?? null };
  } catch (error) {
    const { message, code, data } = error;
    items[name] = { error: { type: error.constructor.name, message: String(message).slice(0, 2000), code, data } };
  }
}

function told({ content, structuredContent, isError }) {
  return { content, structured: structuredContent ?? null, isError: isError ?? false };
}

function listing(tools) {
  const byName = Object.fromEntries(tools.map((tool) => [tool.name, tool]));
  const isFiller = (tool) => tool.name.startsWith("filler_");
  return {
    count: tools.length,
    names: tools.filter((tool) => !isFiller(tool)).map((tool) => tool.name),
    fillers: tools.filter(isFiller).length,
    add: byName.add,
    weather: byName.weather,
    fifty: Object.keys(byName.fifty.inputSchema.properties).length,
  };
}

async function main() {
  const peer = await { v1, v2 }[library]();
  const { client, transport } = peer;
  peer.onRequest("elicitation/create", elicit);
  peer.onRequest("sampling/createMessage", sample);
  peer.onRequest("roots/list", () => ({ roots: [{ uri: "file:///home/ada", name: "home" }] }));
  peer.onNotification("notifications/message", ({ level, logger, data }) => logs.push({ level, logger, data }));
  peer.onNotification("notifications/tools/list_changed", () => notice("notifications/tools/list_changed"));
  peer.onNotification("notifications/resources/updated", ({ uri }) => notice(`notifications/resources/updated ${uri}`));
  await client.connect(transport);
  const modern = peer.version() >= "2026";
  const call = async (name, input = {}, options = undefined) =>
    told(await peer.callTool({ name, arguments: input }, options));

  await item("connect", () => ({
    version: peer.version(),
    server: client.getServerVersion(),
    instructions: client.getInstructions(),
    capabilities: client.getServerCapabilities(),
  }));
  await item("tools", async () => {
    const { tools, nextCursor } = await client.listTools();
    return { ...listing(tools), next: nextCursor ?? null };
  });
  await item("add", () => call("add", { a: 2, b: 3 }));
  await item("weather", () => call("weather", { city: "Zürich" }));
  await item("primes", () => call("primes", { count: 4 }));
  await item("picture", () => call("picture"));
  await item("echo", () => call("echo", { text: "žluťoučký 你好 🛶 \u2028 \x00" }));
  const numbers = Array.from({ length: 50 }, (_, i) => [`n${String(i + 1).padStart(2, "0")}`, i + 1]);
  await item("fifty", () => call("fifty", Object.fromEntries(numbers)));
  await item("filler", () => call("filler_199"));
  await item("big", async () => {
    const { text } = (await call("big", { size: 5_000_000 })).content[0];
    return { length: text.length, start: text.slice(0, 16), end: text.slice(-16) };
  });
  await item("fail", () => call("fail", { reason: "tired" }));
  await item("crash", () => call("crash"));
  await item("bad arguments", () => call("add", { a: "two", b: 3 }));
  await item("unknown tool", () => call("nonexistent"));
  await item("count", async () => {
    const seen = [];
    let heard;
    const last = new Promise((resolve) => (heard = resolve));
    const onprogress = ({ progress, total, message }) => {
      seen.push([progress, total, message]);
      if (progress === total) heard();
    };
    if (!modern) await client.setLoggingLevel("info");
    const _meta = modern ? { [LOG_LEVEL]: "info" } : undefined;
    const running = peer.callTool({ name: "count", arguments: { to: 5, hold: true }, _meta }, { onprogress });
    await Promise.race([within(last), running]);
    await call("release");
    return { result: told(await running), progress: seen, logs };
  });
  const order = async (thing) => {
    questions.length = 0;
    return { result: await call("order", { item: thing }), questions: [...questions] };
  };
  await item("order", () => order("a lamp"));
  await item("declined order", () => order("nothing"));
  await item("summarise", async () => ({ result: await call("summarise", { text: "a long story" }), prompts }));
  await item("folders", () => call("folders"));
  await item("resources", async () => (await client.listResources()).resources);
  await item("templates", async () => (await client.listResourceTemplates()).resourceTemplates);
  const read = async (uri) => (await client.readResource({ uri })).contents;
  await item("read text", () => read(URI));
  await item("read blob", () => read("image://pixel"));
  await item("read template", () => read("greeting://Ada%20L"));
  await item("read missing", () => read("config://nowhere"));
  await item("prompts", async () => (await client.listPrompts()).prompts);
  const filled = { name: "greet", arguments: { name: "Zoë", style: "terse" } };
  await item("prompt", async () => (await client.getPrompt(filled)).messages);
  const complete = async (ref, argument) => (await client.complete({ ref, argument })).completion.values;
  const template = { type: "ref/resource", uri: "greeting://{name}" };
  await item("complete prompt", () => complete({ type: "ref/prompt", name: "greet" }, { name: "style", value: "p" }));
  await item("complete template", () => complete(template, { name: "name", value: "A" }));
  await item("changes", async () => {
    let subscription;
    if (modern) subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [URI] });
    else await client.subscribeResource({ uri: URI });
    notices.length = 0;
    await call("grow");
    const seen = [await nextNotice()];
    await call("touch", { uri: URI });
    seen.push(await nextNotice());
    if (modern) await subscription.close();
    else await client.unsubscribeResource({ uri: URI });
    return seen;
  });
  await item("ping", () => client.ping());
  await item("cancel", async () => {
    const abort = new AbortController();
    const began = new Promise((resolve) => {
      const options = { signal: abort.signal, onprogress: resolve };
      call("wait", { name: "w" }, options).catch(() => {});
    });
    await within(began);
    abort.abort("enough");
    return call("has_stopped", { name: "w" });
  });
  await item("after all that", () => call("add", { a: 40, b: 2 }));

  await client.close();
  process.stdout.write(JSON.stringify(items) + "\n");
}

await main();
