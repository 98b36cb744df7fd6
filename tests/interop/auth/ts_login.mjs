// The official TypeScript SDK's client, run by .tools/node, logs in and asks who it is: ts_login.mjs ERA URL
//
// It speaks as sdk_login.py does.

import { createInterface } from "node:readline";

const modules = new URL("../../../.tools/node/node_modules/", import.meta.url);
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = await import(
  new URL("@modelcontextprotocol/client/dist/index.mjs", modules).href
);

const [era, url] = process.argv.slice(2);
const say = (what) => console.log(JSON.stringify(what));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const kept = {};
const login = {
  redirectUrl: "http://127.0.0.1:7777/callback",
  clientMetadata: {
    client_name: "visitor",
    redirect_uris: ["http://127.0.0.1:7777/callback"],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
    application_type: "native",
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => (kept.tokens = tokens),
  saveCodeVerifier: (verifier) => (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (state) => (kept.discovery = state),
  discoveryState: () => kept.discovery,
  redirectToAuthorization: (page) => say({ open: page.href }),
};

async function connect() {
  const options = era === "legacy" ? {} : { versionNegotiation: { mode: era } };
  const client = new Client({ name: "visitor", version: "1" }, options);
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: login });
  try {
    await client.connect(transport);
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    const { value: back } = await lines.next();
    const query = new URL(back).searchParams;
    await transport.finishAuth(query);
    return null;
  }
  return client;
}

const client = (await connect()) ?? (await connect());
const { tools } = await client.listTools();
const first = await client.callTool({ name: "whoami", arguments: {} });
const second = await client.callTool({ name: "write", arguments: { text: "hello" } });
say({
  result: {
    tools: tools.map((tool) => tool.name),
    whoami: first.structuredContent,
    write: second.structuredContent,
  },
});
await client.close();
process.exit(0);
