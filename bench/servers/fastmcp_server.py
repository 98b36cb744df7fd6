"""FastMCP at its best: uvicorn with uvloop and httptools, JSON answers, no banner, no access log."""

import os

os.environ.setdefault("FASTMCP_LOG_LEVEL", "ERROR")
os.environ.setdefault("FASTMCP_CHECK_FOR_UPDATES", "off")

import uvicorn
from common import auth_facts, fillers, parse, report_registration
from fastmcp import FastMCP

server = FastMCP("bench", version="1")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def add_sync(a: int, b: int) -> int:
    """Add two numbers, from a plain function."""
    return a + b


def main() -> None:
    options = parse(__doc__ or "")
    if options.time_registration:
        report_registration(options.tools, server.tool)
        return
    for function in fillers(options.tools):
        server.tool(function)
    if options.auth == "rs256":
        from fastmcp.server.auth.providers.jwt import JWTVerifier

        facts = auth_facts()
        server.auth = JWTVerifier(
            public_key=facts["public_key"],
            algorithm="RS256",
            issuer=facts["issuer"],
            audience=facts["audience"],
            required_scopes=[facts["scope"]],
        )
    if options.stdio:
        server.run("stdio", show_banner=False)
        return
    app = server.http_app(path="/mcp", json_response=True, stateless_http=options.stateless)
    uvicorn.run(
        app, host="127.0.0.1", port=options.port, loop="uvloop", http="httptools", log_level="error", access_log=False
    )


if __name__ == "__main__":
    main()
