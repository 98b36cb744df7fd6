// An OpenID provider (oidc-provider, certified), run by .tools/node, for our client and our server to trust.
//
//     oidc.mjs --http PORT --clients JSON      issuer http://127.0.0.1:PORT, no path; says "ready PORT"
//
// PKCE S256 and DPoP nonces are demanded, registration is open, refresh tokens are good for one use. People log in by its
// own pages, with any name, and consent there. A resource is any URL of this machine: access tokens for one whose path begins
// with /opaque mean something here only, all others are JWTs for that audience. Revoking an access token (RFC 7009) ends the
// refresh token as well; POST /expire with an opaque access token as its body ends just that, as time would.

import { createServer } from "node:http";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { parseArgs } from "node:util";

const modules = new URL("../../../.tools/node/node_modules/", import.meta.url);
const { Provider, errors } = await import(new URL("oidc-provider/lib/index.js", modules).href);

const { values: options } = parseArgs({ options: { http: { type: "string" }, clients: { type: "string" } } });

function signingKey(kind, parameters, use) {
  const { privateKey } = generateKeyPairSync(kind, parameters);
  return { ...privateKey.export({ format: "jwk" }), ...use };
}

function describeResource(ctx, indicator) {
  const { protocol, hostname, pathname } = new URL(indicator);
  if (protocol !== "http:" || hostname !== "127.0.0.1") throw new errors.InvalidTarget();
  const common = { scope: "notes:read notes:write", audience: indicator, accessTokenTTL: 600 };
  if (pathname.startsWith("/opaque")) return { ...common, accessTokenFormat: "opaque" };
  return { ...common, accessTokenFormat: "jwt", jwt: { sign: { alg: "ES256" } } };
}

const provider = new Provider(`http://127.0.0.1:${options.http}`, {
  clients: JSON.parse(options.clients ?? "[]"),
  cookies: { keys: [randomBytes(32).toString("base64url")] },
  jwks: {
    keys: [
      signingKey("rsa", { modulusLength: 2048 }, { kid: "ids", alg: "RS256", use: "sig" }),
      signingKey("ec", { namedCurve: "P-256" }, { kid: "access", alg: "ES256", use: "sig" }),
    ],
  },
  scopes: ["openid", "offline_access", "notes:read", "notes:write"],
  pkce: { required: () => true },
  rotateRefreshToken: () => true,
  issueRefreshToken: (ctx, client, code) => client.grantTypeAllowed("refresh_token") && code.scopes.has("offline_access"),
  features: {
    clientCredentials: { enabled: true },
    dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => true },
    introspection: { enabled: true },
    registration: { enabled: true },
    resourceIndicators: { enabled: true, getResourceServerInfo: describeResource, useGrantedResource: () => true },
    revocation: { enabled: true },
  },
});
for (const event of ["server_error", "registration_create.error", "authorization.error", "grant.error", "introspection.error"]) {
  provider.on(event, (ctx, error) => console.error(event, error.message, error.error_detail ?? ""));
}

const answer = provider.callback();

async function expire(request, response) {
  const token = await provider.AccessToken.find((await request.toArray()).join(""));
  await token?.destroy();
  response.writeHead(token ? 204 : 404).end();
}

createServer((request, response) => (request.url === "/expire" ? expire : answer)(request, response)).listen(
  Number(options.http),
  "127.0.0.1",
  () => console.log(`ready ${options.http}`),
);
