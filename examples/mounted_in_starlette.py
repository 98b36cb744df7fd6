"""An MCP endpoint inside a web application: Starlette here, FastAPI the same way.

    uvicorn examples.mounted_in_starlette:app       or: python examples/mounted_in_starlette.py
    claude mcp add --transport http todo http://127.0.0.1:8000/mcp

The endpoint needs no lifespan and no start-up code. It is mounted at the root, after the application's own routes, so that
it answers at exactly /mcp: a mount at "/mcp" would make Starlette redirect /mcp to /mcp/ before the endpoint sees it.

It answers to loopback names. Served under another, name it: `server.asgi("/mcp", allowed_hosts=["api.example.com"])`.

With FastAPI: `app = FastAPI()`, your routes, then `app.mount("/", server.asgi("/mcp"))`.
"""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from trimaran import Server

server = Server("todo", version="1.0.0")
todo: list[str] = []


@server.tool
def add_task(task: str) -> str:
    """Put a task on the list."""
    todo.append(task)
    return f"{len(todo)} tasks on the list."


async def home(request: Request) -> JSONResponse:
    return JSONResponse({"tasks": todo})


app = Starlette(routes=[Route("/", home), Mount("/", server.asgi("/mcp"))])


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), log_level="warning")
