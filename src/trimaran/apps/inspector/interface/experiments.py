"""Routes about trials under other circumstances, and logins step by step."""

from __future__ import annotations

from typing import Any, Final, cast

from ..requests import BadRequest
from ..trials import run_trial
from .routing import PageRequest, Reply, Route


async def try_it(request: PageRequest) -> Any:
    call: Any = request.body.get("call")
    if call is not None and not isinstance(call, dict):
        raise BadRequest('call must be like {"kind": "tool", "name": "add", "arguments": {}}')
    value = request.body.get("value")
    return await run_trial(
        request.inspector, request.server, request.text("what"), value, cast("dict[str, Any] | None", call)
    )


async def start_login(request: PageRequest) -> Any:
    return Reply(status=201, value=await request.inspector.logins.start(request.server, request.body))


async def get_login(request: PageRequest) -> Any:
    return request.inspector.logins.get(request.variables["id"]).view


async def next_step(request: PageRequest) -> Any:
    flow = request.inspector.logins.get(request.variables["id"])
    flow.go_on(to_the_end=bool(request.body.get("all")))
    return flow.view


async def give_up_login(request: PageRequest) -> Any:
    await request.inspector.logins.give_up(request.variables["id"])
    return Reply(status=204, body=b"")


ROUTES: Final = (
    Route("POST", "/api/servers/{id}/try", try_it),
    Route("POST", "/api/servers/{id}/oauth", start_login),
    Route("GET", "/api/oauth/{id}", get_login),
    Route("POST", "/api/oauth/{id}/next", next_step),
    Route("DELETE", "/api/oauth/{id}", give_up_login),
)
