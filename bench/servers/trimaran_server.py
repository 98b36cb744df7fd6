"""Ours, through the public face only: what a user would write."""

from typing import Any

from common import auth_facts, certificate, fillers, parse, report_registration

from trimaran import Server

server = Server("bench", version="1")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def add_sync(a: int, b: int) -> int:
    """Add two numbers, from a plain function."""
    return a + b


@server.tool(inline=True)
def add_inline(a: int, b: int) -> int:
    """Add two numbers, from a plain function that runs on the event loop."""
    return a + b


@server.tool
async def poke() -> str:
    """Tell every listen stream that the tools changed."""
    server.notify.tools_changed()
    return "poked"


def provider(kind: str) -> Any:
    """Who may call."""
    if kind == "none":
        return None
    from trimaran.auth import ApiKey, Bearer, DPoP, JwtAuthorizer, ProtectedResource

    facts = auth_facts()
    if kind == "apikey":
        return ApiKey([facts["api_key"]])
    checks: dict[str, Any] = {
        "issuer": facts["issuer"],
        "audience": facts["audience"],
        "required_scopes": [facts["scope"]],
    }
    if kind == "hs256":
        return Bearer(secret=facts["secret"], **checks)
    if kind == "rs256":
        return Bearer(key=facts["public_key"], **checks)
    return ProtectedResource(
        resource=facts["audience"],
        authorization_servers=[facts["issuer"]],
        authorizer=JwtAuthorizer(jwks=facts["public_key"], **checks),
        # One proof is sent over and over, for nobody can sign as fast as it is asked; each is verified all the same.
        dpop=DPoP(required=True, replay=None) if kind == "dpop" else None,
    )


def main() -> None:
    options = parse(__doc__ or "")
    if options.time_registration:
        report_registration(options.tools, server.add_tool)
        return
    for function in fillers(options.tools):
        server.add_tool(function)
    if options.stdio:
        server.run()
    else:
        tls = certificate(options.tls)
        server.run("http", host="127.0.0.1", port=options.port, auth=provider(options.auth), tls=tls)


if __name__ == "__main__":
    main()
