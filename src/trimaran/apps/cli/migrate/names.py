"""The names of FastMCP and of the official SDK, and their counterparts in Trimaran. Tables only.

A name stands here under its full path, as an import resolves it. `rewrite.py` applies the tables; the page "Coming from
FastMCP or the official SDK" is the same for people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_FAST: Final = ("fastmcp", "fastmcp.server", "fastmcp.server.server")
_OLD: Final = ("mcp.server.fastmcp", "mcp.server.fastmcp.server")
_NEW: Final = ("mcp.server", "mcp.server.mcpserver", "mcp.server.mcpserver.server")

SERVERS: Final = frozenset(
    [f"{home}.FastMCP" for home in (*_FAST, *_OLD, "mcp.server")] + [f"{home}.MCPServer" for home in (*_NEW, "mcp")]
)
"""The classes that `Server` takes the place of."""

_CONTEXTS: Final = [
    f"{home}.Context"
    for home in (
        *_FAST,
        *_OLD,
        *_NEW,
        "fastmcp.server.context",
        "mcp.server.mcpserver.context",
        "mcp.server.fastmcp.context",
    )
]
_HELPERS: Final = (
    "fastmcp.utilities.types",
    "fastmcp",
    "mcp.server.fastmcp",
    "mcp.server.fastmcp.utilities.types",
    "mcp.server.mcpserver",
    "mcp.server.mcpserver.utilities.types",
)
_ERRORS: Final = ("fastmcp.exceptions", "mcp.server.fastmcp.exceptions", "mcp.server.mcpserver.exceptions")
_PROMPTS: Final = (
    "mcp.server.fastmcp.prompts.base",
    "mcp.server.mcpserver.prompts.base",
    "mcp.server.fastmcp.prompts",
    "mcp.server.mcpserver.prompts",
)
_LOGGING: Final = (
    "fastmcp.utilities.logging",
    "mcp.server.fastmcp.utilities.logging",
    "mcp.server.mcpserver.utilities.logging",
)

_TOOL_RESULTS: Final = ("fastmcp.tools", "fastmcp.tools.tool", "fastmcp.tools.base")

CLIENTS: Final = frozenset(["fastmcp.Client", "fastmcp.client.Client", "fastmcp.client.client.Client"])
"""The classes that `connect` takes the place of."""

RENAMED: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(SERVERS, ("trimaran", "Server")),
    **dict.fromkeys(_CONTEXTS, ("trimaran", "Context")),
    **{f"{home}.ToolError": ("trimaran", "ToolError") for home in _ERRORS},
    **{f"{home}.Depends": ("trimaran", "Depends") for home in ("fastmcp.dependencies", "fastmcp.server.dependencies")},
    **{f"{home}.Image": ("trimaran.content", "image") for home in _HELPERS},
    **{f"{home}.Audio": ("trimaran.content", "audio") for home in _HELPERS},
    **{f"{home}.UserMessage": ("trimaran.content", "user_message") for home in _PROMPTS},
    **{f"{home}.AssistantMessage": ("trimaran.content", "assistant_message") for home in _PROMPTS},
    **{f"{home}.Message": ("trimaran.types", "PromptMessage") for home in _PROMPTS},
    **{f"{home}.get_logger": ("logging", "getLogger") for home in _LOGGING},
    **{
        f"{home}.{name}": ("trimaran.errors", f"CODE_{code}")
        for home in ("mcp.types", "mcp_types")
        for name, code in (
            ("PARSE_ERROR", "PARSE"),
            ("INVALID_REQUEST", "INVALID_REQUEST"),
            ("METHOD_NOT_FOUND", "METHOD_NOT_FOUND"),
            ("INVALID_PARAMS", "INVALID_PARAMS"),
            ("INTERNAL_ERROR", "INTERNAL"),
        )
    },
    **{
        f"{home}.ResourceTemplateReference": ("trimaran.types", "ResourceReference")
        for home in ("mcp.types", "mcp_types")
    },
    **{f"{home}.ToolResult": ("trimaran.types", "CallToolResult") for home in _TOOL_RESULTS},
    **dict.fromkeys(CLIENTS, ("trimaran", "connect")),
    "fastmcp.prompts.PromptMessage": ("trimaran.types", "PromptMessage"),
    "fastmcp.prompts.prompt.PromptMessage": ("trimaran.types", "PromptMessage"),
    "fastmcp.prompts.Message": ("trimaran.content", "user_message"),
    "fastmcp.prompts.prompt.Message": ("trimaran.content", "user_message"),
}
"""Full name to (module, name) of ours."""

# The types that both have; mcp 2 has them in a package of its own, too.
_TYPES: Final = frozenset(
    [
        "Annotations",
        "AudioContent",
        "BlobResourceContents",
        "CallToolResult",
        "Completion",
        "CompletionArgument",
        "ContentBlock",
        "CreateMessageResult",
        "ElicitResult",
        "EmbeddedResource",
        "GetPromptResult",
        "Icon",
        "ImageContent",
        "Implementation",
        "ListPromptsResult",
        "ListResourcesResult",
        "ListResourceTemplatesResult",
        "ListToolsResult",
        "Prompt",
        "PromptArgument",
        "PromptMessage",
        "PromptReference",
        "ReadResourceResult",
        "Resource",
        "ResourceLink",
        "ResourceTemplate",
        "Role",
        "Root",
        "SamplingMessage",
        "TextContent",
        "TextResourceContents",
        "Tool",
        "ToolAnnotations",
        "ToolResultContent",
        "ToolUseContent",
    ]
)
_TYPE_HOMES: Final = ("mcp.types", "mcp_types", "mcp")
# Their modules import these for themselves, and programs take them from there.
_BORROWED: Final = frozenset(name for name in _TYPES if name.endswith("Content")) | {
    "Annotations",
    "ContentBlock",
    "Icon",
    "ToolAnnotations",
}

# Where a call, a return annotation or a value stands for another thing, `rewrite.py` looks closer.
_BOTH_WAYS: Final = {
    "image": "ImageContent",
    "audio": "AudioContent",
    "user_message": "PromptMessage",
    "assistant_message": "PromptMessage",
}


def replacement(name: str, *, is_annotation: bool = False) -> tuple[str, str] | None:
    """Our module and name for a full name of theirs; None if there is none."""
    if is_type(name):
        return "trimaran.types", name.rpartition(".")[2]
    ours = RENAMED.get(name)
    if ours is not None and is_annotation and ours[1] in _BOTH_WAYS:
        return "trimaran.types", _BOTH_WAYS[ours[1]]
    return ours


def is_foreign(name: str) -> bool:
    """Whether a full name belongs to one of the replaced libraries."""
    return name.partition(".")[0] in ("fastmcp", "mcp", "mcp_types")


def is_type(name: str) -> bool:
    home, _, last = name.rpartition(".")
    return (home in _TYPE_HOMES and last in _TYPES) or (is_foreign(name) and last in _BORROWED)


# Notes for the person, by the beginning of the full name: the first match counts.
_LEFT: Final = (
    ("fastmcp.server.auth", "authentication: pass a provider of trimaran.auth as run(auth=...)"),
    ("mcp.server.auth", "authentication: pass a provider of trimaran.auth as run(auth=...)"),
    ("fastmcp.server.middleware", "middleware: write a function and declare it with @server.middleware"),
    ("fastmcp.server.openapi", "write Server.from_openapi(spec, base_url=...)"),
    ("fastmcp.server.proxy", "a proxy: write Server.proxy(target)"),
    ("fastmcp.client", "the client: use trimaran.connect(target)"),
    ("mcp.client", "the client: use trimaran.connect(target)"),
    ("mcp.ClientSession", "the client: use trimaran.connect(target)"),
    ("mcp.StdioServerParameters", "the client: use trimaran.connect([command, *args])"),
    ("mcp.server.lowlevel", "the low-level server: use @server.tool, or Server(callbacks=...)"),
    ("mcp.server.Server", "the low-level server: use @server.tool, or Server(callbacks=...)"),
    ("mcp.server.stdio", "the low-level server: server.run() serves stdio"),
    ("mcp.server.models", "the low-level server: server.run() needs no InitializationOptions"),
    ("mcp.server.InitializationOptions", "the low-level server: server.run() needs no InitializationOptions"),
    ("mcp.server.NotificationOptions", "the low-level server: server.notify works without options"),
    ("mcp.server.ServerRequestContext", "the low-level server: take `ctx: Context` as a parameter"),
    ("mcp.server.transport_security", "use allowed_hosts= and allowed_origins= of server.run or server.asgi"),
    ("mcp.server.context", "middleware: write a function and declare it with @server.middleware"),
    ("mcp.server.streamable_http", 'the transport: server.run("http") or server.asgi()'),
    ("mcp.server.streamable_http_manager", 'the transport: server.run("http") or server.asgi()'),
    ("fastmcp.server.http", 'the transport: server.run("http") or server.asgi()'),
    ("mcp.server.sse", 'the transport: server.run("http", sse_path="/sse")'),
    ("mcp.shared.memory", "tests: use trimaran.connect(server)"),
    ("mcp.shared.exceptions", "raise trimaran.ProtocolError or ToolError; a client catches trimaran.errors.CallError"),
    ("mcp.McpError", "raise trimaran.ProtocolError or ToolError; a client catches trimaran.errors.CallError"),
    ("mcp.types.ErrorData", "raise trimaran.ProtocolError(code, message, data)"),
    ("mcp_types.ErrorData", "raise trimaran.ProtocolError(code, message, data)"),
    ("fastmcp.settings", "pass host=, port= and path= to run"),
    ("fastmcp.exceptions", "raise trimaran.ProtocolError.invalid_params(...), or ToolError in a tool"),
    ("mcp.types.CompletionContext", "the function of @server.completion takes what it needs by name"),
    ("mcp.server.elicitation", "look at answer.action instead of the class"),
    ("fastmcp.server.elicitation", "look at answer.action instead of the class"),
    ("fastmcp.tools", "build tools from functions: server.add_tool(fn, ...)"),
    ("fastmcp.prompts", "build prompts from functions: server.add_prompt(fn, ...)"),
    ("fastmcp.resources", "build resources from functions: server.add_resource(uri, fn, ...)"),
    ("fastmcp.server.dependencies.get_http_headers", "take `ctx: Context` as a parameter; ctx.header(name)"),
    ("fastmcp.server.dependencies.get_http_request", "take `ctx: Context` as a parameter; ctx.header(name)"),
    ("fastmcp.server.dependencies.get_access_token", "take `ctx: Context` as a parameter; ctx.auth"),
    ("fastmcp.server.dependencies.get_context", "take `ctx: Context` as a parameter"),
    ("fastmcp.server.dependencies", "take `ctx: Context` as a parameter; ctx.auth, ctx.meta"),
    ("fastmcp.dependencies", "take `ctx: Context` as a parameter; ctx.auth, ctx.meta"),
)


def left_reason(name: str) -> str:
    """Why a name of theirs stays, in words for the person."""
    for start, reason in _LEFT:
        if name == start or name.startswith(start + "."):
            return reason
    return "Trimaran has no name for it"


# Keywords by call: the new keyword, "" for "drop it", or a sentence that begins with "!" for "left to the person".
Option = str

_DROP: Final = ""
_GROUP: Final = dict.fromkeys(("name", "title", "description", "icons", "meta", "annotations", "tags"), "=")

OPTIONS: Final[Mapping[str, Mapping[str, Option]]] = {
    "Server": {
        **dict.fromkeys(
            ("name", "version", "instructions", "lifespan", "website_url", "icons", "title", "description"), "="
        ),
        **dict.fromkeys(("host", "port"), "run"),
        "streamable_http_path": "run:path",
        "sse_path": _DROP,
        "message_path": _DROP,
        "mount_path": _DROP,
        **dict.fromkeys(
            [
                "debug",
                "log_level",
                "json_response",
                "stateless_http",
                "dependencies",
                "warn_on_duplicate_tools",
                "cache_expiration_seconds",
                "warn_on_duplicate_resources",
                "warn_on_duplicate_prompts",
                "on_duplicate",
                "on_duplicate_tools",
                "strict_input_validation",
                "on_duplicate_resources",
                "on_duplicate_prompts",
                "include_fastmcp_meta",
                "mask_error_details",
                "request_state_security",
            ],
            _DROP,
        ),
        **dict.fromkeys(
            ("auth", "token_verifier", "auth_server_provider"), "!pass a provider of trimaran.auth to run(auth=...)"
        ),
        "transport_security": "!pass allowed_hosts= and allowed_origins= to run",
        "event_store": "!pass store= to run",
        "middleware": "!declare each with @server.middleware",
        "tools": "!declare each with server.add_tool(fn)",
        "include_tags": "!declare only what you serve",
        "exclude_tags": "!declare only what you serve",
    },
    "tool": {
        **_GROUP,
        **dict.fromkeys(("structured_output", "output_schema", "timeout"), "="),
        "task": "long_running",
        "enabled": "!leave out @server.tool, or hide it with visible_to=",
        "exclude_args": "!take the value with Depends(...)",
        "serializer": "!return the text that you want",
        "version": "!a tool has no version; put it into meta=",
        "auth": "!use scopes= or visible_to=",
        "app": "!use trimaran.ext.apps",
    },
    "resource": {
        **_GROUP,
        "mime_type": "=",
        "uri": "=",
        "enabled": "!leave out the decorator, or hide it with visible_to=",
        "version": "!a resource has no version; put it into meta=",
        "auth": "!use scopes= or visible_to=",
        "task": "!only tools can be tasks",
        "app": "!use trimaran.ext.apps",
    },
    "prompt": {
        **_GROUP,
        "enabled": "!leave out the decorator, or hide it with visible_to=",
        "version": "!a prompt has no version; put it into meta=",
        "auth": "!use scopes= or visible_to=",
        "task": "!only tools can be tasks",
    },
    "run": {
        **dict.fromkeys(("host", "port", "path", "sse_path", "allowed_hosts", "allowed_origins"), "="),
        "message_path": "sse_message_path",
        **dict.fromkeys(
            ["show_banner", "log_level", "mount_path", "stateless_http", "json_response", "stateless", "reload"], _DROP
        ),
        "transport": "transport",
        "middleware": "!wrap server.asgi() in the ASGI middleware",
        "uvicorn_config": "!use the options of run, or serve server.asgi() with uvicorn",
    },
    "asgi": {
        **dict.fromkeys(("path", "sse_path", "host", "allowed_hosts", "allowed_origins"), "="),
        "message_path": "sse_message_path",
        **dict.fromkeys(["transport", "stateless_http", "json_response", "mount_path", "stateless"], _DROP),
        "streamable_http_path": "path",
        "middleware": "!wrap server.asgi() in the ASGI middleware",
        "transport_security": "!use allowed_hosts= and allowed_origins=",
        "event_store": "!use store=",
    },
}

LEFT_CALLS: Final[Mapping[str, str]] = {
    "add_resource": "write server.add_resource(uri, fn)",
    "add_prompt": "write server.add_prompt(fn)",
    "add_template": "write server.add_resource(uri_template, fn)",
    "add_middleware": "write a function and declare it with @server.middleware",
    "add_transform": 'write server.transform("tool", name=..., arguments={...})',
    "add_provider": "there are no providers; declare tools with server.add_tool",
    "as_proxy": "write Server.proxy(target)",
    "from_openapi": "write Server.from_openapi(spec, base_url=...)",
    "from_fastapi": "write Server.from_fastapi(app)",
    "completion": "write @server.completion(prompt=..., argument=...) for each argument",
    "import_server": "write server.mount(other, prefix): a mount follows later changes",
    "get_tools": "write server.list_tools()",
    "get_context": "take `ctx: Context` as a parameter",
    "enable": "hide what some callers may not see with visible_to=",
    "settings": "pass host=, port= and path= to run",
    "session_manager": "server.asgi() needs no session manager; FastAPI(lifespan=...) needs none either",
    "disable": "hide what some callers may not see with visible_to=",
}
"""Methods and attributes of a server that mean another thing here, or nothing."""

PRIVATE_ATTRIBUTES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("_tool_manager", "_prompt_manager", "_resource_manager"),
        "private; use the server's methods: list_tools, add_tool, remove_tool, and so on",
    ),
    **dict.fromkeys(
        ("_mcp_server", "_lowlevel_server"),
        "private; there is no server beneath: pass version= to Server, and server.middleware sees every call",
    ),
}
"""Attributes of their servers that programs reach into all the same."""

SESSION_NOTICES: Final[Mapping[str, str]] = {
    "send_tool_list_changed": "tools_changed",
    "send_prompt_list_changed": "prompts_changed",
    "send_resource_list_changed": "resources_changed",
    "send_resource_updated": "resource_updated",
}
"""Coroutine methods of a session of theirs that are plain methods of `server.notify` here."""

CONTEXT_ATTRIBUTES: Final[Mapping[str, str]] = {
    "fastmcp": "server",
    "mcp_server": "server",
    "lifespan_context": "server.lifespan_state",
    "request_context.lifespan_context": "server.lifespan_state",
    "request_context.request_id": "request_id",
    "request_context.meta": "meta",
    "request_context.session": "session",
    "session.send_log_message": "log",
    "request_context.session.send_log_message": "log",
}
"""Attributes of the Context that have another name here."""

LEFT_CONTEXT: Final[Mapping[str, str]] = {
    "request_context": "use ctx.meta, ctx.request_id, ctx.server.lifespan_state",
    "session": "use ctx.sample, ctx.elicit, ctx.roots, ctx.notify, ctx.server.notify",
    "session.create_message": "write ctx.sample(messages, max_tokens=..., system=...); the answer has .text",
    "session.elicit": "write ctx.elicit(message, schema)",
    "session.list_roots": "write ctx.roots(), which is the list itself",
    "session.send_progress_notification": "write ctx.report_progress(progress, total, message)",
    "read_resource": "write `await ctx.server.read_resource(uri)`; it has .contents",
    "get_state": "write ctx.assigns[key]; it lasts for one call",
    "set_state": "write ctx.assign(key, value); it lasts for one call",
    "client_id": "use ctx.auth",
    "elicit_url": "write ctx.elicit(message, url=...)",
    "sample_step": "write ctx.sample(...)",
    "get_http_request": "use middleware: call.headers",
    "headers": "use middleware: call.headers",
}

_WILDCARD: Final = re.compile(r"\{(\w+)\*\}")


def our_template(uri: str) -> str:
    """A URI template of FastMCP: `{path*}` crosses slashes, as `{+path}` does in RFC 6570."""
    return _WILDCARD.sub(r"{+\1}", uri)
