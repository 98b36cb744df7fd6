"""An MCP server, its authorization server and a second one, on loopback: honest by default, mean by order.

    async with Mean("iss foreign") as mean:
        async with connect(mean.url, auth=OAuth(login=mean.browse)) as client: ...

`SINS` is the table of what can be ordered; each sin changes one thing. Three houses listen: `rs` is the MCP server with
its metadata, `as` the authorization server it names, `other` a stranger that is an honest authorization server too.

Every request is in `mean.seen`, so that a test can tell what was not sent. Everything secret that is given out holds
`HUSH` and the name of its house, so that `mean.indiscretions()` can find it where it must not be: in a URL, at another
house, or, with `mean.spilled(text)`, in a message or a log.

Nothing of the library is used here: messages, forms, proofs and hashes are read and written by other code.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import aiohttp
from aiohttp import web
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

P = "io.modelcontextprotocol/"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
NOISE = "\x1b[31m\r\nSet-Cookie: a=b\x00\x07\u202e" + "x" * 10_000

SINS: Final[Mapping[str, str]] = {
    # the MCP server
    "no challenge": "401 without WWW-Authenticate",
    "challenge inward": "the challenge names metadata at a link-local address",
    "401 forever": "no token is ever good enough",
    "403 forever": "no scope is ever enough",
    "loud server": "the 401 holds control characters and 10 KB of text",
    # its metadata
    "no metadata": "nothing at the well-known places of the server (as in 2025-03-26), and none named",
    "foreign resource": "the metadata is about another host",
    "wider resource": "the metadata is about another path of the same host",
    "no authorization servers": "the metadata names none",
    "metadata in HTML": "the metadata named in the challenge is a page",
    "issuer link-local": "the authorization server is http://169.254.169.254",
    "issuer private": "the authorization server is https://10.0.0.1",
    # the issuer's metadata
    "issuer swapped": "the metadata is of another issuer",
    "issuer normalised": "the metadata is of the issuer with a slash behind it",
    "issuer in HTML": "pages instead of metadata",
    "redirect inward": "the issuer's metadata is said to be at a link-local address",
    "redirect to a file": "the issuer's metadata is said to be a file",
    "script to browse": "the authorization endpoint is a javascript: URL",
    "file to browse": "the authorization endpoint is a file: URL",
    "plain http to browse": "the authorization endpoint is http on another host",
    "token endpoint link-local": "the token endpoint is http://169.254.169.254",
    "token endpoint private": "the token endpoint is https://10.0.0.1",
    "registration private": "the registration endpoint is https://192.168.0.1",
    "no S256": "only plain PKCE",
    "no PKCE": "PKCE is not mentioned",
    "no registration": "there is no registration endpoint",
    # registration
    "registration refused": "403, with noise",
    "registration elsewhere": "registered for other redirect URIs",
    "registration without id": "201 without a client_id",
    # the way back from the browser
    "iss missing": "announced, and not there",
    "iss foreign": "the other house's",
    "iss normalised": "with a slash behind it",
    "iss unannounced": "not announced, and the other house's",
    "no iss": "neither announced nor there: honest, if old",
    "state changed": "one character more",
    "state missing": "not there",
    "no code": "neither code nor error",
    "login refused": "access_denied, with noise",
    "foreign refusal": "access_denied with the other house's iss",
    "mix-up": "the authorization endpoint leads to the other house, which gives the code",
    "code of another": "the code was given to another client",
    # the token endpoint
    "no access_token": "200 without one",
    "error with 200": "invalid_grant with status 200",
    "error beside a token": "the same, and a token with it",
    "echo": "refuses, and repeats in its description all that it was told, with noise",
    "mac tokens": "token_type mac",
    "downgrade": "bearer tokens, whatever was asked for",
    "token with a line break": "an access token that is two headers",
    "token not text": "an access token that is a number",
    "huge token reply": "10 MB",
    "endless token reply": "a body that does not end",
    "token reply in HTML": "a page",
    "token reply cut": "the connection breaks in the body",
    "slow token reply": "no answer until the client leaves",
    "token endpoint moves": "307 to the other house",
    "server error": "500 with noise",
    "expires_in negative": "-1",
    "expires_in huge": "10 ** 30",
    "expires_in text": "a number in quotes",
    "expires_in nonsense": "a list",
    "expires_in true": "true",
    "refresh refused": "invalid_grant for every refresh token",
    "refresh broken": "503 for every refresh",
    "rotation": "each refresh token is good once; twice is theft, and ends the login",
    "no refresh token": "none is given out",
    # DPoP
    "nonce at issuer": "the token endpoint wants a nonce",
    "nonce at server": "the MCP server wants a nonce",
    "nonces that change": "both want the one given last, and give another each time",
    "nonce never right at issuer": "the token endpoint wants another, always",
    "nonce never right at server": "the MCP server wants another, always",
}


class Seen:
    """One request, as it came to a house."""

    def __init__(self, house: str, request: web.BaseRequest, body: bytes) -> None:
        self.house = house
        self.method = request.method
        self.path = request.path
        self.target = request.path_qs
        self.query = dict(request.query)
        self.headers = {name.lower(): value for name, value in request.headers.items()}
        self.body = body
        self.request = request

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"{self.house} {self.method} {self.path}"


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=json.dumps(value), content_type="application/json", headers=headers)


def page(status: int = 200) -> web.Response:
    return web.Response(status=status, text="<!doctype html><title>Sign in</title>", content_type="text/html")


def redirect(to: str, status: int = 302) -> web.Response:
    return web.Response(status=status, headers={"Location": to})


def digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


class NotProven(Exception):
    """A DPoP proof that does not prove it."""


class House:
    """One address."""

    def __init__(self, mean: Mean, name: str) -> None:
        self.mean = mean
        self.name = name
        self.origin = ""
        self.nonce = 0
        self._jtis: set[str] = set()
        self._runner = web.ServerRunner(
            web.Server(self._serve, access_log=None), handler_cancellation=True, shutdown_timeout=0.1
        )

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.origin = f"http://{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        seen = Seen(self.name, request, await request.read())
        self.mean.seen.append(seen)
        return await self.answer(seen)

    async def answer(self, seen: Seen) -> web.StreamResponse:
        raise NotImplementedError

    # --- proofs

    def current_nonce(self) -> str:
        return f"nonce-{self.name}-{self.nonce}"

    def check_proof(self, seen: Seen, token: str | None = None) -> str:
        """The thumbprint of the key that a request proves to have (RFC 9449, 4.3)."""
        proof = seen.headers.get("dpop", "")
        try:
            head, body, signature = (base64.urlsafe_b64decode(part + "==") for part in proof.split("."))
            header, claims = json.loads(head), json.loads(body)
            jwk = header["jwk"]
            key = {"EC": ECKey, "RSA": RSAKey, "OKP": OKPKey}[jwk["kty"]].import_key(jwk)
            signed = proof.rpartition(".")[0].encode()
            is_signed = JWSRegistry.algorithms[header["alg"]].verify(signed, signature, key)
        except Exception:
            raise NotProven("it cannot be read") from None
        wanted = {"htm": seen.method, "htu": self.origin + seen.path, "ath": digest(token) if token else None}
        wrong = [name for name, value in wanted.items() if claims.get(name) != value]
        if header["typ"] != "dpop+jwt" or not is_signed or "d" in jwk or wrong or claims["jti"] in self._jtis:
            raise NotProven(f"it is of another request, or not signed: {wrong}")
        self._jtis.add(claims["jti"])
        self.mean.nonces_used.append((self.name, claims.get("nonce")))
        return key.thumbprint()

    def wants_nonce(self, seen: Seen, always: str, at: str) -> bool:
        """Is a nonce wanted, and this is not it? Then the reply must name the next one."""
        if self.mean.sins(always):
            self.nonce += 1
            return True
        if not self.mean.sins(at, "nonces that change"):
            return False
        body = seen.headers["dpop"].split(".")[1]
        given = json.loads(base64.urlsafe_b64decode(body + "==")).get("nonce")
        is_right = given == self.current_nonce()
        if self.mean.sins("nonces that change"):
            self.nonce += 1
        return not is_right

    def nonce_headers(self) -> dict[str, str]:
        names = ("nonces that change", "nonce never right at issuer", "nonce never right at server")
        at = "nonce at server" if self.name == "rs" else "nonce at issuer"
        return {"DPoP-Nonce": self.current_nonce()} if self.mean.sins(*names, at) else {}


class Issuer(House):
    """An authorization server: `as` sins, `other` never does."""

    def __init__(self, mean: Mean, name: str) -> None:
        super().__init__(mean, name)
        self.clients: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.access: dict[str, dict[str, Any]] = {}
        self.refresh: dict[str, dict[str, Any]] = {}
        self.thefts = 0
        """How often a used refresh token came back."""
        self._number = 0

    @property
    def issuer(self) -> str:
        return self.origin

    def sins(self, *names: str) -> bool:
        return self.name == "as" and self.mean.sins(*names)

    def make(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-HUSH-{self.name}-{self._number}"

    async def answer(self, seen: Seen) -> web.StreamResponse:
        places: dict[str, Callable[[Seen], Any]] = {
            "GET /.well-known/oauth-authorization-server": self._metadata,
            "GET /.well-known/openid-configuration": self._metadata,
            "POST /register": self._register,
            "GET /authorize": self._authorize,
            "POST /token": self._token,
            "POST /introspect": self._introspect,
            "POST /revoke": self._revoke,
        }
        place = places.get(f"{seen.method} {seen.path}")
        if place is None:
            return web.Response(status=404, text="nothing here")
        found = place(seen)
        return await found if asyncio.iscoroutine(found) else found

    def _metadata(self, seen: Seen) -> web.Response:
        if self.sins("redirect inward"):
            return redirect("http://169.254.169.254/latest/meta-data/")
        if self.sins("redirect to a file"):
            return redirect("file:///etc/passwd")
        if self.sins("issuer in HTML"):
            return page()
        found: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "introspection_endpoint": f"{self.origin}/introspect",
            "revocation_endpoint": f"{self.origin}/revoke",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
            "dpop_signing_alg_values_supported": ["ES256"],
        }
        inside = "http://169.254.169.254"
        changes: dict[str, dict[str, Any]] = {
            "issuer swapped": {"issuer": self.mean.other.issuer},
            "issuer normalised": {"issuer": f"{self.issuer}/"},
            "script to browse": {"authorization_endpoint": "javascript:alert(document.domain)//"},
            "file to browse": {"authorization_endpoint": "file:///usr/bin/xcalc"},
            "plain http to browse": {"authorization_endpoint": "http://login.example/authorize"},
            "token endpoint link-local": {"token_endpoint": f"{inside}/latest/api/token"},
            "token endpoint private": {"token_endpoint": "https://10.0.0.1/token"},
            "registration private": {"registration_endpoint": "https://192.168.0.1/register"},
            "no S256": {"code_challenge_methods_supported": ["plain"]},
            "no PKCE": {"code_challenge_methods_supported": None},
            "no registration": {"registration_endpoint": None},
            "iss unannounced": {"authorization_response_iss_parameter_supported": None},
            "no iss": {"authorization_response_iss_parameter_supported": None},
        }
        for sin, change in changes.items():
            if self.sins(sin):
                found |= change
        return reply({name: value for name, value in found.items() if value is not None})

    def _register(self, seen: Seen) -> web.Response:
        if self.sins("registration refused"):
            return reply({"error": "invalid_client_metadata", "error_description": f"not you {NOISE}"}, 403)
        if self.sins("registration without id"):
            return reply({"client_name": "who?"}, 201)
        asked = seen.json
        client_id = f"client-{self.name}-{len(self.clients) + 1}"
        made = {**asked, "client_id": client_id}
        if asked.get("token_endpoint_auth_method", "client_secret_basic") != "none":
            made |= {"client_secret": self.make("secret"), "client_secret_expires_at": 0}
        self.clients[client_id] = made
        if self.sins("registration elsewhere"):
            made = {**made, "redirect_uris": ["https://elsewhere.example/callback"]}
        return reply(made, 201)

    # --- the browser

    def _authorize(self, seen: Seen) -> web.Response:
        asked = seen.query
        if self.sins("mix-up"):
            return redirect(f"{self.mean.other.origin}/authorize?{urlencode(asked)}")
        client = self.clients.get(asked.get("client_id", ""))
        if self.mean.sins("mix-up"):  # the other house has a client of that name, who may be sent back there
            client = {"redirect_uris": [asked.get("redirect_uri")]}
        if client is None or asked.get("redirect_uri") not in client["redirect_uris"]:
            return page(400)
        wanted = {"response_type": "code", "code_challenge_method": "S256"}
        if any(asked.get(name) != value for name, value in wanted.items()) or not asked.get("code_challenge"):
            return self._back(asked, {"error": "invalid_request"})
        if asked.get("resource") not in self.mean.resources:
            return self._back(asked, {"error": "invalid_target"})
        if self.sins("login refused", "foreign refusal"):
            return self._back(asked, {"error": "access_denied", "error_description": f"they said no {NOISE}"})
        if self.sins("no code"):
            return self._back(asked, {})
        code = self.make("code")
        self.codes[code] = {**asked, **({"client_id": "somebody-else"} if self.sins("code of another") else {})}
        return self._back(asked, {"code": code})

    def _back(self, asked: Mapping[str, str], outcome: dict[str, str]) -> web.Response:
        back: dict[str, str | None] = {**outcome, "state": asked.get("state"), "iss": self.issuer}
        if self.sins("state changed"):
            back["state"] = f"{asked.get('state')}x"
        if self.sins("state missing"):
            back["state"] = None
        if self.sins("iss missing", "no iss"):
            back["iss"] = None
        if self.sins("iss foreign", "iss unannounced", "foreign refusal"):
            back["iss"] = self.mean.other.issuer
        if self.sins("iss normalised"):
            back["iss"] = f"{self.issuer}/"
        query = urlencode({name: value for name, value in back.items() if value is not None})
        return redirect(f"{asked['redirect_uri']}?{query}")

    # --- tokens

    async def _token(self, seen: Seen) -> web.StreamResponse:
        asked = seen.form
        if self.mean.gate is not None:
            await self.mean.gate.wait()
        early = await self._outrage(seen, asked)
        if early is not None:
            return early
        jkt = None
        if "dpop" in seen.headers:
            try:
                jkt = self.check_proof(seen)
            except NotProven as error:
                return reply({"error": "invalid_dpop_proof", "error_description": str(error)}, 400)
            if self.name == "as" and self.wants_nonce(seen, "nonce never right at issuer", "nonce at issuer"):
                return reply({"error": "use_dpop_nonce"}, 400, self.nonce_headers())
        client = self._authenticated(seen, asked)
        if client is None:
            return reply({"error": "invalid_client"}, 401)
        kinds = {
            "authorization_code": self._for_code,
            "refresh_token": self._for_refresh,
            "client_credentials": self._for_client,
        }
        kind = kinds.get(asked.get("grant_type", ""))
        if kind is None:
            return reply({"error": "unsupported_grant_type"}, 400)
        grant = kind(asked, client, jkt)
        if grant is None:
            return reply({"error": "invalid_grant", "error_description": "used, expired or not yours"}, 400)
        headers = self.nonce_headers() if jkt else {}
        return reply(self._tokens(grant), headers={"Cache-Control": "no-store", **headers})

    async def _outrage(self, seen: Seen, asked: Mapping[str, str]) -> web.StreamResponse | None:
        """What a token endpoint says that does not even look at the request."""
        is_refresh = asked.get("grant_type") == "refresh_token"
        if self.sins("slow token reply"):
            await asyncio.Event().wait()
        if self.sins("token endpoint moves"):
            return redirect(f"{self.mean.other.origin}/token", 307)
        if self.sins("huge token reply"):
            return reply({"access_token": self.make("access"), "token_type": "Bearer", "x": "y" * 10_000_000})
        if self.sins("endless token reply", "token reply cut"):
            return await self._endless(seen)
        if self.sins("token reply in HTML"):
            return page()
        if self.sins("server error") or (is_refresh and self.sins("refresh broken")):
            return web.Response(status=503, text=NOISE.replace("\r\n", " "), content_type="text/plain")
        if is_refresh and self.sins("refresh refused"):
            return reply({"error": "invalid_grant", "error_description": "withdrawn"}, 400)
        if self.sins("error with 200"):
            return reply({"error": "invalid_grant", "error_description": "but politely"})
        if self.sins("error beside a token"):
            token = {"access_token": self.make("access"), "token_type": "Bearer"}
            return reply({"error": "invalid_grant", **token})
        if self.sins("no access_token"):
            return reply({"token_type": "Bearer", "expires_in": 3600})
        if self.sins("echo"):
            told = " ".join([*asked.values(), *seen.headers.values()])
            return reply({"error": "invalid_grant", "error_description": f"{told} {NOISE}"}, 400)
        return None

    async def _endless(self, seen: Seen) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(seen.request)
        await response.write(b'{"access_token": "')
        if self.sins("token reply cut"):
            assert seen.request.transport is not None
            seen.request.transport.abort()
            return response
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"x" * 65536)
        return response

    def _authenticated(self, seen: Seen, asked: Mapping[str, str]) -> str | None:
        client_id, secret = asked.get("client_id"), asked.get("client_secret")
        basic = re.fullmatch(r"Basic ([A-Za-z0-9+/=]+)", seen.headers.get("authorization", ""))
        if basic:
            client_id, _, secret = base64.b64decode(basic[1]).decode().partition(":")
        client = self.clients.get(client_id or "")
        if client is None or client.get("client_secret") != secret:
            return None
        return client_id

    def _for_code(self, asked: Mapping[str, str], client: str, jkt: str | None) -> dict[str, Any] | None:
        begun = self.codes.pop(asked.get("code", ""), None)
        if begun is None or begun["client_id"] != client or begun["redirect_uri"] != asked.get("redirect_uri"):
            return None
        if digest(asked.get("code_verifier", "")) != begun["code_challenge"]:
            return None
        if asked.get("resource") != begun["resource"]:
            return None
        return {"client": client, "scope": begun.get("scope", ""), "aud": begun["resource"], "jkt": jkt}

    def _for_refresh(self, asked: Mapping[str, str], client: str, jkt: str | None) -> dict[str, Any] | None:
        token = asked.get("refresh_token", "")
        held = self.refresh.get(token)
        if held is None or held["client"] != client or held["jkt"] != jkt:
            return None
        if held.get("used"):
            self.thefts += 1
            self.end_login()
            return None
        if self.sins("rotation"):
            held["used"] = True
        return {name: held[name] for name in ("client", "scope", "aud", "jkt")}

    def _for_client(self, asked: Mapping[str, str], client: str, jkt: str | None) -> dict[str, Any] | None:
        return {"client": client, "scope": asked.get("scope", ""), "aud": asked.get("resource"), "jkt": jkt}

    def _tokens(self, grant: dict[str, Any]) -> dict[str, Any]:
        access = self.make("access")
        self.access[access] = grant
        kind = "DPoP" if grant["jkt"] else "Bearer"
        found: dict[str, Any] = {"access_token": access, "token_type": kind, "scope": grant["scope"]}
        if self.mean.expires_in is not None:
            found["expires_in"] = self.mean.expires_in
        if not self.sins("no refresh token"):
            found["refresh_token"] = self.make("refresh")
            self.refresh[found["refresh_token"]] = dict(grant)
        changes: dict[str, dict[str, Any]] = {
            "mac tokens": {"token_type": "mac"},
            "downgrade": {"token_type": "Bearer"},
            "token with a line break": {"access_token": f"{access}\r\nX-Evil: 1"},
            "token not text": {"access_token": 5},
            "expires_in negative": {"expires_in": -1},
            "expires_in huge": {"expires_in": 10**30},
            "expires_in text": {"expires_in": "3600"},
            "expires_in nonsense": {"expires_in": [3600]},
            "expires_in true": {"expires_in": True},
        }
        for sin, change in changes.items():
            if self.sins(sin):
                found |= change
        return found

    def _introspect(self, seen: Seen) -> web.Response:
        grant = self.access.get(seen.form.get("token", ""))
        if grant is None:
            return reply({"active": False})
        bound = {"cnf": {"jkt": grant["jkt"]}} if grant["jkt"] else {}
        return reply(
            {"active": True, "client_id": grant["client"], "scope": grant["scope"], "aud": grant["aud"], **bound}
        )

    def _revoke(self, seen: Seen) -> web.Response:
        token = seen.form.get("token", "")
        self.access.pop(token, None)
        self.refresh.pop(token, None)
        return web.Response(status=200)

    # --- what a test may do

    def revoke_access(self) -> None:
        """Every access token there is, and no refresh token."""
        self.access.clear()

    def end_login(self) -> None:
        """All tokens there are."""
        self.access.clear()
        self.refresh.clear()


class ResourceServer(House):
    """An MCP server with one tool, `whoami`, behind a guard."""

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    async def answer(self, seen: Seen) -> web.StreamResponse:
        if seen.path.startswith("/.well-known/"):
            return self._metadata(seen)
        if seen.path != "/mcp":
            return web.Response(status=404, text="nothing here")
        refusal = self._refusal(seen)
        if refusal is not None:
            return refusal
        if seen.method == "GET":
            return web.Response(status=405, headers={"Allow": "POST"})
        if seen.method == "DELETE":
            return web.Response(status=204)
        return self._speak(seen)

    def _metadata(self, seen: Seen) -> web.Response:
        is_ours = seen.path == "/.well-known/oauth-protected-resource/mcp"
        if not is_ours or self.mean.sins("no metadata"):
            return web.Response(status=404, text="nothing here")
        if self.mean.sins("metadata in HTML"):
            return page()
        found: dict[str, Any] = {
            "resource": self.url,
            "authorization_servers": [self.mean.guard.issuer],
            "scopes_supported": ["notes"],
        }
        changes: dict[str, dict[str, Any]] = {
            "foreign resource": {"resource": "https://bank.example/mcp"},
            "wider resource": {"resource": f"{self.origin}/admin"},
            "no authorization servers": {"authorization_servers": []},
            "issuer link-local": {"authorization_servers": ["http://169.254.169.254"]},
            "issuer private": {"authorization_servers": ["https://10.0.0.1"]},
        }
        for sin, change in changes.items():
            if self.mean.sins(sin):
                found |= change
        return reply(found)

    def _challenge(self, scheme: str = "Bearer", **more: str) -> str:
        where = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
        if self.mean.sins("challenge inward"):
            where = "http://169.254.169.254/latest/meta-data/"
        named = more if self.mean.sins("no metadata") else {"resource_metadata": where, **more}
        return f"{scheme} " + ", ".join(f'{name}="{value}"' for name, value in named.items())

    def _refusal(self, seen: Seen) -> web.Response | None:
        scheme, _, token = seen.headers.get("authorization", "").partition(" ")
        grant = self.mean.guard.access.get(token) if scheme in ("Bearer", "DPoP") else None
        if grant is not None and (grant["aud"] != self.url or bool(grant["jkt"]) != (scheme == "DPoP")):
            grant = None
        if grant is not None and grant["jkt"]:
            try:
                is_proven = self.check_proof(seen, token) == grant["jkt"]
            except NotProven:
                is_proven = False
            if not is_proven:
                return self._refuse(401, self._challenge("DPoP", error="invalid_dpop_proof"))
            if self.wants_nonce(seen, "nonce never right at server", "nonce at server"):
                return self._refuse(401, self._challenge("DPoP", error="use_dpop_nonce"))
        if grant is None or self.mean.sins("401 forever"):
            more = {"error": "invalid_token"} if token else {}
            return self._refuse(401, self._challenge(scope=self.mean.scope, **more))
        missing = set(self.mean.scope.split()) - set(grant["scope"].split())
        if self.mean.sins("403 forever"):
            self.mean.rounds += 1
            missing = {f"more-{self.mean.rounds}"}
        if missing:
            wanted = " ".join(sorted(missing))
            return self._refuse(403, self._challenge(error="insufficient_scope", scope=wanted))
        self.mean.served += 1
        return None

    def _refuse(self, status: int, challenge: str) -> web.Response:
        headers = {"WWW-Authenticate": challenge, **self.nonce_headers()}
        if self.mean.sins("no challenge"):
            del headers["WWW-Authenticate"]
        text = NOISE if self.mean.sins("loud server") else "who are you?"
        return web.Response(status=status, text=text, headers=headers)

    def _speak(self, seen: Seen) -> web.Response:
        message = seen.json
        id, method = message.get("id"), message.get("method", "")
        info = {"name": "mean", "version": "1"}
        capabilities = {"tools": {}}
        fresh = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self.mean.era == "modern" else {}
        if id is None:
            return web.Response(status=202)
        if method == "server/discover" and self.mean.era == "modern":
            result: Any = {**fresh, "supportedVersions": [MODERN], "capabilities": capabilities}
            result["_meta"] = {P + "serverInfo": info}
        elif method == "initialize" and self.mean.era == "legacy":
            result = {"protocolVersion": LEGACY, "capabilities": capabilities, "serverInfo": info}
        elif method == "tools/list":
            result = {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}], **fresh}
        elif method == "tools/call":
            token = seen.headers["authorization"].partition(" ")[2]
            who = self.mean.guard.access[token]["client"]
            complete = {"resultType": "complete"} if fresh else {}
            result = {"content": [{"type": "text", "text": who}], **complete}
        elif self.mean.era == "legacy":
            return web.Response(status=400, text="Bad Request: no valid session ID")
        else:
            refusal = {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "method not found"}}
            return reply(refusal, 404)
        return reply({"jsonrpc": "2.0", "id": id, "result": result})


class Mean:
    """All three houses. `sins` are names in `SINS`."""

    def __init__(self, *sins: str, era: str = "modern") -> None:
        assert not set(sins) - SINS.keys(), f"no such sin: {set(sins) - SINS.keys()}"
        self.ordered = set(sins)
        self.era = era
        self.seen: list[Seen] = []
        self.expires_in: Any = 3600
        self.scope = "notes"
        """What every request to the MCP server needs."""
        self.gate: asyncio.Event | None = None
        """Token requests wait for it, if there is one."""
        self.served = 0
        """Requests that passed the guard."""
        self.rounds = 0
        self.opened: list[str] = []
        """What a person was shown."""
        self.nonces_used: list[tuple[str, str | None]] = []
        self.rs = ResourceServer(self, "rs")
        self.issuer = Issuer(self, "as")
        self.other = Issuer(self, "other")
        self.guard = self.issuer
        """The authorization server whose tokens are good now."""

    def sins(self, *names: str) -> bool:
        return not self.ordered.isdisjoint(names)

    def repent(self) -> None:
        self.ordered.clear()

    def migrate(self) -> None:
        """From now on the other house guards the MCP server."""
        self.guard = self.other

    @property
    def url(self) -> str:
        return self.rs.url

    @property
    def resources(self) -> set[str]:
        return {self.rs.url}

    async def __aenter__(self) -> Mean:
        for house in (self.rs, self.issuer, self.other):
            await house.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for house in (self.rs, self.issuer, self.other):
            await house.stop()

    async def browse(self, url: str) -> str:
        """A person who agrees to everything: follow redirects through the houses, to where they lead out."""
        self.opened.append(url)
        homes = {house.origin for house in (self.rs, self.issuer, self.other)}
        async with aiohttp.ClientSession(max_line_size=65536, max_field_size=65536) as session:
            for _ in range(5):
                async with session.get(url, allow_redirects=False) as response:
                    assert response.status == 302, await response.text()
                    url = response.headers["Location"]
                parts = urlsplit(url)
                if f"{parts.scheme}://{parts.netloc}" not in homes:
                    return url
        raise AssertionError("the browser goes round in circles")

    # --- what was seen

    def lines(self, house: str | None = None) -> list[str]:
        return [repr(seen) for seen in self.seen if house in (None, seen.house)]

    def token_requests(self, kind: str | None = None) -> list[Seen]:
        """To any house, of any grant or of one."""
        found = [seen for seen in self.seen if seen.path == "/token"]
        return [seen for seen in found if kind in (None, seen.form.get("grant_type"))]

    def spilled(self, text: str) -> list[str]:
        """What must not be in a message or a log, and is in this text."""
        own = [
            seen.form.get(name, "") for seen in self.token_requests() for name in ("code_verifier", "client_assertion")
        ]
        proofs = [seen.headers.get("dpop", "") for seen in self.seen]
        found = re.findall(r"\w+-HUSH-[\w-]+", text)
        return found + [secret for secret in (*own, *proofs) if secret and secret in text]

    def indiscretions(self) -> list[str]:
        """Secrets that were told to someone who had no business to know, or where everybody can read them."""
        found: list[str] = []
        for seen in self.seen:
            if re.search("HUSH", seen.target + seen.headers.get("referer", "")):
                found.append(f"{seen!r}: a secret in the URL")
            head = " ".join(seen.headers.values())
            told = re.findall(r"(\w+)-HUSH-(\w+)-\d+", f"{head} {parse_values(seen.body)} {plain_basic(seen)}")
            for kind, house in told:
                is_due = kind == "access" if seen.house == "rs" else (house == seen.house and kind != "access")
                if not is_due:
                    found.append(f"{seen!r}: was told {kind} of {house}")
            if seen.house == "rs" and re.search("HUSH", seen.body.decode("utf-8", "replace")):
                found.append(f"{seen!r}: a secret in the body")
        return found


def parse_values(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    return (
        " ".join(value for values in parse_qs(text, keep_blank_values=True).values() for value in values) + " " + text
    )


def plain_basic(seen: Seen) -> str:
    basic = re.fullmatch(r"Basic ([A-Za-z0-9+/=]+)", seen.headers.get("authorization", ""))
    return base64.b64decode(basic[1]).decode() if basic else ""
