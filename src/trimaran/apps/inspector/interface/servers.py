"""Routes about servers: add, connect, look, complete, subscribe, and the frames of their apps."""

from __future__ import annotations

import secrets
import time
from typing import Any, Final, cast

import msgspec

from trimaran.ext.apps.metadata import ViewMeta
from trimaran.ext.apps.policy import Csp, allow_attribute
from trimaran.protocol.mask import Mask, secrets_in
from trimaran.types import PromptReference, ResourceReference

from ..catalog import KINDS
from ..frames import ViewFrame
from ..requests import BadRequest, NotThere, texts
from ..servers import InspectedServer, Reach, ServerSource
from .routing import PageRequest, Reply, Route

_LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


async def list_servers(request: PageRequest) -> Any:
    return {"servers": [server.view() for server in request.inspector.servers]}


async def add_server(request: PageRequest) -> Any:
    body = request.body
    inspector = request.inspector
    key = body.get("source")
    if key is not None:
        reach, source = inspector.sources.take(str(key))
    else:
        reach = inspector.parse_target(request.text("target"))
        source = ServerSource(kind="page", label="typed in")
    reach = _with_credentials(reach, body)
    server = inspector.add(reach, source, body.get("options") or {})
    if key is not None:
        inspector.sources.used[str(key)] = server.id
    if isinstance(body.get("name"), str) and body["name"].strip():
        server.name = str(body["name"])[:100]
    if body.get("connect", True):
        server.begin_connecting()
    return Reply(status=201, value=server.view())


def _with_credentials(reach: Reach, body: dict[str, Any]) -> Reach:
    """The way to a server with the headers, token, variables and folder of a request."""
    options = dict(reach.options)
    headers: dict[str, str] = {**(options.get("headers") or {}), **texts(body.get("headers"), "headers")}
    bearer = body.get("bearer")
    if headers or bearer:
        if reach.transport not in ("http", "sse"):
            raise BadRequest("headers and bearer go with a URL, and this target is a command")
        if headers:
            options["headers"] = headers
        if isinstance(bearer, str) and bearer:
            options["auth"] = bearer
    env: dict[str, str] = {**(options.get("env") or {}), **texts(body.get("env"), "env")}
    if env:
        options["env"] = env
    if isinstance(body.get("cwd"), str) and body["cwd"]:
        options["cwd"] = body["cwd"]
    if options == reach.options:
        return reach
    auth: Any = options.get("auth")
    hidden = [*secrets_in(headers), *secrets_in(env), *([auth] if isinstance(auth, str) else [])]
    target: Any = reach.target
    url = target if isinstance(target, str) else ""
    command = cast("list[str]", target) if isinstance(target, list) else []
    return msgspec.structs.replace(reach, options=options, mask=Mask(url, command, hidden))


async def get_server(request: PageRequest) -> Any:
    server = request.server
    return {**msgspec.to_builtins(server.view()), "activities": list(server.activities)}


async def change_server(request: PageRequest) -> Any:
    server, body = request.server, request.body
    if isinstance(body.get("name"), str) and body["name"].strip():
        server.name = str(body["name"])[:100]
    if "options" in body:
        await _change_options(server, body["options"])
    if "headers" in body or "bearer" in body or "env" in body:
        server.reach = _with_credentials(server.reach, body)
        server.options.headers = sorted(server.reach.options.get("headers") or {})
    if "roots" in body:
        await server.set_roots(_roots(body["roots"]))
    server.tell()
    return server.view()


async def _change_options(server: InspectedServer, changes: Any) -> None:
    if not isinstance(changes, dict):
        raise BadRequest("options must be an object")
    level: Any = cast("dict[str, Any]", changes).get("logLevel")
    if level is not None and level not in _LOG_LEVELS:
        raise BadRequest(f"logLevel must be one of {', '.join(_LOG_LEVELS)}")
    server.options = server.options.changed(cast("dict[str, Any]", changes))
    if level is not None and server.client is not None and server.state == "ready":
        await server.client.set_log_level(level)


def _roots(value: Any) -> list[dict[str, str]]:
    roots = cast("list[Any]", value) if isinstance(value, list) else [None]
    for root in roots:
        uri: Any = cast("dict[str, Any]", root).get("uri") if isinstance(root, dict) else None
        if not isinstance(uri, str) or not uri.startswith("file://"):
            raise BadRequest('roots must be a list like [{"uri": "file:///home/ada/boats", "name": "boats"}]')
    return [texts(root, "a root") for root in roots]


async def connect_server(request: PageRequest) -> Any:
    server = request.server
    if "options" in request.body:
        await _change_options(server, request.body["options"])
    server.begin_connecting()
    return Reply(status=202, value=server.view())


async def disconnect_server(request: PageRequest) -> Any:
    await request.server.disconnect()
    return request.server.view()


async def restart_server(request: PageRequest) -> Any:
    server = request.server
    await server.disconnect()
    server.note("restarted", "restarted by hand")
    server.begin_connecting()
    return Reply(status=202, value=server.view())


async def remove_server(request: PageRequest) -> Any:
    await request.inspector.servers.remove(request.server.id)
    return Reply(status=204, body=b"")


async def get_stderr(request: PageRequest) -> Any:
    server = request.server
    server.flush_stderr()  # each line is here, or in an event after `seq`
    lines = [{"at": at, "text": text} for at, text in server.stderr]
    return {"lines": lines, "dropped": server.stderr_count - len(lines), "seq": request.inspector.events.seq}


async def ping(request: PageRequest) -> Any:
    client = request.server.ready_client()
    began = time.perf_counter()
    await client.ping()
    return {"ms": round((time.perf_counter() - began) * 1000, 3)}


async def list_sources(request: PageRequest) -> Any:
    return {"sources": request.inspector.sources.list()}


async def get_catalog(request: PageRequest) -> Any:
    kind: Any = request.query.get("kind")
    if kind is not None and kind not in KINDS:
        raise BadRequest(f"kind must be one of {', '.join(KINDS)}")
    return request.server.catalog.to_json(kind)


async def read_catalog(request: PageRequest) -> Any:
    kinds: Any = request.body.get("kinds") or KINDS
    if not isinstance(kinds, (list, tuple)) or not all(kind in KINDS for kind in cast("list[Any]", kinds)):
        raise BadRequest(f"kinds must be a list of {', '.join(KINDS)}")
    server = request.server
    server.ready_client()
    await server.catalog.read(cast("Any", kinds))
    return server.catalog.to_json()


async def complete(request: PageRequest) -> Any:
    body = request.body
    ref: Any = body.get("ref")
    members = cast("dict[str, Any]", ref) if isinstance(ref, dict) else {}
    if isinstance(members.get("name"), str):
        reference: Any = PromptReference(name=members["name"])
    elif isinstance(members.get("uri"), str):
        reference = ResourceReference(uri=members["uri"])
    else:
        raise BadRequest('ref must be {"type": "ref/prompt", "name": ...} or {"type": "ref/resource", "uri": ...}')
    value = body.get("value", "")
    context = texts(body.get("context"), "context")
    completion = await request.server.ready_client().complete(reference, request.text("argument"), str(value), context)
    values = completion.values
    return {"values": values, "total": completion.total, "hasMore": bool(completion.has_more)}


async def subscribe(request: PageRequest) -> Any:
    uris: Any = request.body.get("uris")
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in cast("list[Any]", uris)):
        raise BadRequest("uris must be a list of texts")
    request.server.watch_resources(cast("list[str]", uris))
    return request.server.view()


async def read_skill(request: PageRequest) -> Any:
    from trimaran.ext.skills.client import SkillsClient

    server = request.server
    skills = SkillsClient(server.ready_client(), label=server.name)
    uri = request.query.get("uri", "")
    skill = next((skill for skill in await skills.list() if skill.uri == uri), None)
    if skill is None:
        raise NotThere(f"{server.name} lists no skill at {uri!r}")
    content = await skills.read(skill)
    return {
        "name": skill.name,
        "description": skill.description,
        "body": content.text,
        "files": [file.uri for file in skill.resources or ()],
    }


async def open_app(request: PageRequest) -> Any:
    """Read a view, and keep it for a frame of its own origin and policy."""
    server, uri = request.server, request.text("uri")
    result = await server.ready_client().read_resource(uri, fresh=True)
    contents: Any = result.contents
    for content in contents:
        text = getattr(content, "text", None)
        if isinstance(text, str):
            break
    else:
        raise BadRequest(f"{uri} has no text, so it cannot be shown as a view")
    raw_meta: Any = getattr(content, "meta", None) or {}
    meta, problems = ViewMeta.read(raw_meta.get("ui"))
    policy = meta.csp or Csp()
    frame = ViewFrame(html=text, csp=f"sandbox allow-scripts allow-forms; {policy.policy}; frame-ancestors 'self'")
    key = secrets.token_urlsafe(24)
    request.inspector.frames.add(key, frame)
    return {
        "frame": f"/frame/{key}",
        "csp": frame.csp,
        "permissions": allow_attribute(meta.permissions),
        "meta": raw_meta,
        "problems": problems,
        "mimeType": getattr(content, "mime_type", None),
        "bytes": len(text.encode()),
    }


async def get_task(request: PageRequest) -> Any:
    return await request.server.ready_client().get_task(request.variables["task"])


async def cancel_task(request: PageRequest) -> Any:
    return await request.server.ready_client().cancel_task(request.variables["task"])


async def get_task_result(request: PageRequest) -> Any:
    return await request.server.ready_client().task_result(request.variables["task"])


_ONE: Final = "/api/servers/{id}"
ROUTES: Final = (
    Route("GET", "/api/servers", list_servers),
    Route("POST", "/api/servers", add_server),
    Route("GET", _ONE, get_server),
    Route("PATCH", _ONE, change_server),
    Route("DELETE", _ONE, remove_server),
    Route("POST", f"{_ONE}/connect", connect_server),
    Route("POST", f"{_ONE}/disconnect", disconnect_server),
    Route("POST", f"{_ONE}/restart", restart_server),
    Route("GET", f"{_ONE}/stderr", get_stderr),
    Route("POST", f"{_ONE}/ping", ping),
    Route("GET", "/api/sources", list_sources),
    Route("GET", f"{_ONE}/catalog", get_catalog),
    Route("POST", f"{_ONE}/catalog", read_catalog),
    Route("POST", f"{_ONE}/complete", complete),
    Route("PUT", f"{_ONE}/subscriptions", subscribe),
    Route("GET", f"{_ONE}/skills", read_skill),
    Route("POST", f"{_ONE}/apps", open_app),
    Route("GET", f"{_ONE}/tasks/{{task}}", get_task),
    Route("POST", f"{_ONE}/tasks/{{task}}/cancel", cancel_task),
    Route("GET", f"{_ONE}/tasks/{{task}}/result", get_task_result),
)
