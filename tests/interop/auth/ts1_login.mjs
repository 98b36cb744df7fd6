// The official TypeScript SDK's client of version 1, run by .tools/node, tries to log in: ts1_login.mjs ERA URL
//
// It speaks as sdk_login.py does, and knows one era.

const modules = new URL("../../../.tools/node/node_modules/@modelcontextprotocol/sdk/dist/esm/client/", import.meta.url);
const { Client } = await import(new URL("index.js", modules).href);
const { StreamableHTTPClientTransport } = await import(new URL("streamableHttp.js", modules).href);

const [, url] = process.argv.slice(2);
const kept = {};
const login = {
  redirectUrl: "http://127.0.0.1:7777/callback",
  clientMetadata: { client_name: "visitor", redirect_uris: ["http://127.0.0.1:7777/callback"] },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => (kept.tokens = tokens),
  saveCodeVerifier: (verifier) => (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
  redirectToAuthorization: (page) => console.log(JSON.stringify({ open: page.href })),
};
const client = new Client({ name: "visitor", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { authProvider: login }));
