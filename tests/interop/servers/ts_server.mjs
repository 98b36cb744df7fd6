// A server written with the official TypeScript SDK, run by .tools/node, for our client to call.
//
//     ts_server.mjs --log FILE                 stdio
//     ts_server.mjs --log FILE --http PORT     http://127.0.0.1:PORT/mcp, both eras, sessions on the legacy one
//
// contract.py says what it offers. The library makes one server per request (modern) or per session (legacy), so what must
// outlive a request is kept here, beside them. What must have begun or stopped is written to FILE, one line each.

import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";
import { parseArgs } from "node:util";

const modules = new URL("../../../.tools/node/node_modules/", import.meta.url);
const load = (path) => import(new URL(path, modules).href);
const { McpServer, ResourceTemplate, completable, createMcpHandler, inputRequired, inputResponse, isLegacyRequest } =
  await load("@modelcontextprotocol/server/dist/index.mjs");
const { serveStdio } = await load("@modelcontextprotocol/server/dist/stdio.mjs");
const { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } =
  await load("@modelcontextprotocol/node/dist/index.mjs");
const { z } = await load("zod/index.js");

const { values: options } = parseArgs({ options: { log: { type: "string" }, http: { type: "string" } } });
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";
const waits = new Map(); // name -> promise that the wait has ended
const gates = new Map(); // name -> {opened: promise, open}
const grownTools = new Set();
const watched = new Set();
const announce = {}; // set once it is known how this process is served

const note = (line) => appendFileSync(options.log, line + "\n");
const text = (value) => ({ content: [{ type: "text", text: value }] });
const structured = (value) => ({ content: [{ type: "text", text: JSON.stringify(value) }], structuredContent: value });

function gate(name) {
  if (!gates.has(name)) gates.set(name, Promise.withResolvers());
  return gates.get(name);
}

function within(milliseconds, promise) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, milliseconds, "late")));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function progress(ctx, params) {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  await ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, ...params } });
}

function addResults(server) {
  server.registerTool(
    "add",
    {
      title: "Add two numbers",
      description: "Add two numbers.",
      inputSchema: z.object({ a: z.int().describe("the first"), b: z.int().describe("the second") }),
      outputSchema: z.int(),
      annotations: { readOnlyHint: true },
    },
    ({ a, b }) => structured(a + b),
  );
  const direction = z.enum(["north", "east", "south", "west"]);
  server.registerTool(
    "weather",
    {
      description: "The weather in a city.",
      inputSchema: z.object({ city: z.string() }),
      outputSchema: z.object({
        city: z.string(),
        celsius: z.number(),
        wind: z.object({ speed: z.number(), direction }),
        warnings: z.array(z.string()),
      }),
    },
    ({ city }) =>
      structured({ city, celsius: 21.5, wind: { speed: 3.25, direction: "west" }, warnings: ["pollen"] }),
  );
  server.registerTool(
    "primes",
    {
      description: "The first primes: a result that is no object.",
      inputSchema: z.object({ count: z.int() }),
      outputSchema: z.array(z.int()),
    },
    ({ count }) => structured([2, 3, 5, 7, 11, 13].slice(0, count)),
  );
  server.registerTool("picture", { description: "A picture of one pixel." }, () => ({
    content: [{ type: "image", data: PIXEL, mimeType: "image/png" }],
  }));
  server.registerTool("mixed", { description: "One block of each kind." }, () => ({
    content: [
      { type: "text", text: "before" },
      { type: "audio", data: "UklGRg==", mimeType: "audio/wav" },
      { type: "resource", resource: { uri: "config://app", mimeType: "text/plain", text: "inside" } },
      { type: "resource_link", uri: "config://app", name: "config" },
    ],
  }));
  server.registerTool(
    "echo",
    { description: "The text, unchanged.", inputSchema: z.object({ text: z.string() }) },
    (given) => text(given.text),
  );
  server.registerTool(
    "big",
    { description: "A text of this many bytes.", inputSchema: z.object({ size: z.int() }) },
    ({ size }) => text("0123456789abcdef".repeat(size / 16)),
  );
  server.registerTool(
    "fail",
    { description: "Fail for the given reason.", inputSchema: z.object({ reason: z.string() }) },
    ({ reason }) => {
      throw new Error(`it failed: ${reason}`);
    },
  );
  server.registerTool(
    "route",
    {
      description: "Say what came in an argument that also travels as a header.",
      inputSchema: z.object({ region: z.string().meta({ "x-mcp-header": "Region" }) }),
    },
    ({ region }) => text(`to ${region}`),
  );
  server.registerTool(
    "pid",
    { description: "Which process this is.", outputSchema: z.int() },
    () => structured(process.pid),
  );
  server.registerTool(
    "complain",
    { description: "Say it on standard error.", inputSchema: z.object({ text: z.string() }) },
    (given) => {
      process.stderr.write(given.text + "\n");
      return text("said");
    },
  );
}

function addWork(server) {
  server.registerTool(
    "count",
    {
      description: "Count, saying so; given a gate, end only when that is released.",
      inputSchema: z.object({ to: z.int(), gate: z.string().optional() }),
      outputSchema: z.int(),
    },
    async ({ to, gate: name }, ctx) => {
      await ctx.mcpReq.log("warning", { "counting to": to }, "counter");
      for (let number = 1; number <= to; number++) {
        await progress(ctx, { progress: number, total: to, message: `${number} of ${to}` });
      }
      if (name) await within(5000, gate(name).promise);
      return structured(to);
    },
  );
  server.registerTool(
    "release",
    { description: "Let `count` end.", inputSchema: z.object({ gate: z.string() }) },
    (given) => {
      gate(given.gate).resolve();
      return text("released");
    },
  );
  server.registerTool(
    "wait",
    { description: "Wait until cancelled.", inputSchema: z.object({ name: z.string() }) },
    async ({ name }, ctx) => {
      const { promise, resolve } = Promise.withResolvers();
      waits.set(name, promise);
      note(`wait ${name} began`);
      ctx.mcpReq.signal.addEventListener("abort", () => {
        note(`wait ${name} stopped`);
        resolve("stopped");
      });
      await progress(ctx, { progress: 1, message: "waiting" });
      await promise;
      return text("never");
    },
  );
  server.registerTool(
    "has_stopped",
    {
      description: "Whether the `wait` of that name has ended, or ends within five seconds.",
      inputSchema: z.object({ name: z.string() }),
      outputSchema: z.boolean(),
    },
    async ({ name }) => structured((await within(5000, waits.get(name))) === "stopped"),
  );
}

// Returned on both eras; towards a legacy client the library asks in the old way by itself.
function addQuestions(server) {
  const where = {
    type: "object",
    properties: {
      street: { type: "string" },
      floor: { type: "integer", default: 2 },
      express: { type: "boolean", default: false },
    },
    required: ["street"],
  };
  const how = {
    type: "object",
    properties: { pay: { type: "string", enum: ["card", "cash"], title: "How to pay" } },
    required: ["pay"],
  };
  server.registerTool(
    "order",
    { description: "Ask two questions, the second only after the first.", inputSchema: z.object({ item: z.string() }) },
    ({ item }, ctx) => {
      const paid = inputResponse(ctx.mcpReq.inputResponses, "how");
      if (paid.kind === "elicit") {
        if (paid.action !== "accept") return text(`${item}: ${paid.action}`);
        const { street, floor, express } = JSON.parse(ctx.mcpReq.requestState());
        note(`ship ${item}`);
        const spelled = express ? "True" : "False";
        return text(`${item} to ${street}, floor ${floor}, express ${spelled}, ${paid.content.pay}`);
      }
      const sent = inputResponse(ctx.mcpReq.inputResponses, "where");
      if (sent.kind === "elicit" && sent.action !== "accept") return text(`${item}: ${sent.action}`);
      if (sent.kind === "elicit") {
        return inputRequired({
          inputRequests: { how: inputRequired.elicit({ message: "How will you pay?", requestedSchema: how }) },
          requestState: JSON.stringify(sent.content),
        });
      }
      const message = `Where shall ${item} go?`;
      return inputRequired({ inputRequests: { where: inputRequired.elicit({ message, requestedSchema: where }) } });
    },
  );
  server.registerTool(
    "summarise",
    { description: "Have the client's model make it shorter.", inputSchema: z.object({ text: z.string() }) },
    (given, ctx) => {
      const said = inputResponse(ctx.mcpReq.inputResponses, "said");
      if (said.kind === "sampling") {
        const { model, role, content } = said.result;
        return text(`${model} (${role}): ${content.text}`);
      }
      const messages = [{ role: "user", content: { type: "text", text: `Summarise: ${given.text}` } }];
      const params = { messages, maxTokens: 50, systemPrompt: "Be brief." };
      return inputRequired({ inputRequests: { said: inputRequired.createMessage(params) } });
    },
  );
  server.registerTool("folders", { description: "The client's roots." }, (ctx) => {
    const found = inputResponse(ctx.mcpReq.inputResponses, "roots");
    if (found.kind === "roots") return text(JSON.stringify(found.roots.map(({ name, uri }) => `${name}=${uri}`)));
    return inputRequired({ inputRequests: { roots: inputRequired.listRoots() } });
  });
  server.registerTool("sign_in", { description: "Send the person to a page." }, (ctx) => {
    const page = inputResponse(ctx.mcpReq.inputResponses, "page");
    if (page.kind === "elicit") return text(`signed in: ${page.action}`);
    const params = { message: "Sign in, please.", url: "https://example.com/sign-in" };
    return inputRequired({ inputRequests: { page: inputRequired.elicitUrl(params) } });
  });
}

function addChanges(server, era) {
  const grow = (name) =>
    server.registerTool(name, { description: "A tool that was not here before." }, () => text("I was not here before."));
  for (const name of grownTools) grow(name);
  server.registerTool(
    "grow",
    { description: "Add a tool, and say so.", inputSchema: z.object({ name: z.string() }) },
    ({ name }) => {
      grownTools.add(name);
      grow(name); // which tells a connected client by itself
      announce.toolsChanged?.();
      return text("grown");
    },
  );
  server.registerTool(
    "touch",
    { description: "Say that a resource changed.", inputSchema: z.object({ uri: z.string() }) },
    async ({ uri }) => {
      announce.resourceUpdated?.(uri);
      if (!announce.resourceUpdated || (era === "legacy" && watched.has(uri))) {
        await server.server.sendResourceUpdated({ uri });
      }
      return text("touched");
    },
  );
  if (era === "legacy") {
    server.server.setRequestHandler("resources/subscribe", ({ params }) => {
      watched.add(params.uri);
      return {};
    });
    server.server.setRequestHandler("resources/unsubscribe", ({ params }) => {
      watched.delete(params.uri);
      note(`unsubscribed ${params.uri}`);
      return {};
    });
  }
}

function addReading(server) {
  server.registerResource(
    "config",
    "config://app",
    { title: "Settings", description: "The settings.", mimeType: "application/json" },
    (uri) => ({
      contents: [{ uri: uri.href, mimeType: "application/json", text: '{"theme": "dark", "größe": 3}' }],
    }),
  );
  server.registerResource("pixel", "image://pixel", { description: "One pixel.", mimeType: "image/png" }, (uri) => ({
    contents: [{ uri: uri.href, mimeType: "image/png", blob: PIXEL }],
  }));
  const startingWith = (known) => (value) => known.filter((word) => word.startsWith(value));
  const names = startingWith(["Ada", "Alan", "Grace"]);
  server.registerResource(
    "greeting",
    new ResourceTemplate("greeting://{name}", { list: undefined, complete: { name: names } }),
    { description: "A greeting for one person.", mimeType: "text/plain" },
    (uri, { name }) => ({
      contents: [{ uri: uri.href, mimeType: "text/plain", text: `Hello, ${decodeURIComponent(name)}!` }],
    }),
  );
  const styles = startingWith(["plain", "pompous", "poetic", "terse"]);
  server.registerPrompt(
    "greet",
    {
      title: "Greet someone",
      description: "Greet someone.",
      argsSchema: z.object({ name: z.string(), style: completable(z.string(), styles).optional() }),
    },
    ({ name, style }) => ({
      description: "Greet someone.",
      messages: [
        { role: "user", content: { type: "text", text: `Greet ${name} in a ${style ?? "plain"} way.` } },
        { role: "assistant", content: { type: "text", text: "Gladly." } },
      ],
    }),
  );
}

function build({ era }) {
  const server = new McpServer(
    { name: "theirs", title: "Their server", version: "3.2.1" },
    {
      instructions: "Call add first.",
      capabilities: { logging: {}, tools: { listChanged: true }, resources: { subscribe: true, listChanged: true } },
    },
  );
  addResults(server);
  addWork(server);
  addQuestions(server);
  addChanges(server, era);
  addReading(server);
  return server;
}

function serveHttp(port) {
  const handler = createMcpHandler(build, { legacy: "reject" });
  Object.assign(announce, {
    toolsChanged: () => handler.notify.toolsChanged(),
    resourceUpdated: (uri) => handler.notify.resourceUpdated(uri),
  });
  const modern = toNodeHandler(handler);
  const sessions = new Map();

  async function legacy(request, response, body) {
    const known = sessions.get(request.headers["mcp-session-id"]);
    if (known) return known.handleRequest(request, response, body);
    if (request.headers["mcp-session-id"]) {
      const error = { code: -32001, message: "Session not found" };
      response.writeHead(404, { "content-type": "application/json" });
      return response.end(JSON.stringify({ jsonrpc: "2.0", id: null, error }));
    }
    const transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await build({ era: "legacy" }).connect(transport);
    return transport.handleRequest(request, response, body);
  }

  createServer(async (request, response) => {
    if (new URL(request.url, "http://localhost").pathname !== "/mcp") return response.writeHead(404).end();
    let body;
    if (request.method === "POST") {
      const chunks = await Array.fromAsync(request);
      body = JSON.parse(Buffer.concat(chunks).toString());
    }
    const isLegacy = await isLegacyRequest(await toWebRequest(request, body ?? {}), body);
    return isLegacy ? legacy(request, response, body) : modern(request, response, body);
  }).listen(port, "127.0.0.1");
}

if (options.http) serveHttp(Number(options.http));
else serveStdio(build);
