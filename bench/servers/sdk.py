"""The official Python SDK (`mcp`) at its best: uvicorn with uvloop and httptools, JSON answers, no access log."""

import sys
from typing import Any

import uvicorn
from common import auth_facts, certificate, fillers, parse, report_registration
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp_types import SubscriptionsListenRequestParams


def protection() -> dict[str, Any]:
    """Options of `MCPServer`, which wants them when it is made, before the command line is read.

    The SDK has no verifier of its own: this is what its users write, with the JWT library it depends on.
    """
    if "rs256" not in sys.argv:
        return {}
    import jwt
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings

    facts = auth_facts()
    key: Any = load_pem_public_key(facts["public_key"].encode())
    expected = {"issuer": facts["issuer"], "audience": facts["audience"]}

    class Verifier:
        async def verify_token(self, token: str) -> AccessToken | None:
            try:
                claims = jwt.decode(token, key, algorithms=["RS256"], **expected)
            except jwt.InvalidTokenError:
                return None
            return AccessToken(
                token=token,
                client_id=claims["client_id"],
                scopes=claims["scope"].split(),
                expires_at=claims["exp"],
                subject=claims["sub"],
                resource=facts["audience"],
            )

    settings = AuthSettings(
        issuer_url=facts["issuer"],
        resource_server_url=facts["audience"],
        required_scopes=[facts["scope"]],
        validate_token_resource=False,
    )
    return {"auth": settings, "token_verifier": Verifier()}


bus = InMemorySubscriptionBus()
server = MCPServer("bench", version="1", log_level="ERROR", subscriptions=bus, **protection())
# `MCPServer` stops at 1024 listen streams and has no option for more; its own handler does.
server._lowlevel_server.add_request_handler(
    "subscriptions/listen", SubscriptionsListenRequestParams, ListenHandler(bus, max_subscriptions=100_000)
)


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def add_sync(a: int, b: int) -> int:
    """Add two numbers, from a plain function."""
    return a + b


@server.tool()
async def poke(ctx: Context) -> str:
    """Tell every listen stream that the tools changed."""
    await ctx.notify_tools_changed()
    return "poked"


def main() -> None:
    options = parse(__doc__ or "")
    if options.time_registration:
        report_registration(options.tools, server.add_tool)
        return
    for function in fillers(options.tools):
        server.add_tool(function)
    if options.stdio:
        server.run("stdio")
        return
    app = server.streamable_http_app(json_response=True, stateless_http=options.stateless)
    cert, key = certificate(options.tls) or (None, None)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=options.port,
        loop="uvloop",
        http="httptools",
        log_level="error",
        access_log=False,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )


if __name__ == "__main__":
    main()
