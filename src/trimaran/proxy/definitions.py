"""Remote definitions as entries of our registries: each forwards what is asked of it.

A definition that our server could not serve (a URI template that cannot be read, say) is left out, and the log says so:
one bad entry of a target must not cost the others. Arguments are validated by the target, where the schema lives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from math import inf
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from trimaran.bounded_log import BoundedLog
from trimaran.errors import DeclarationError
from trimaran.protocol.envelope import decide_envelope
from trimaran.protocol.headers import compile_param_headers
from trimaran.protocol.uritemplate import UriTemplate
from trimaran.schema.references import MAX_LEVELS, check_references, is_too_deep, lost_reference
from trimaran.server.completions import CompletionEntry, compile_completion
from trimaran.server.context import Context
from trimaran.server.handlers import Handler
from trimaran.server.prompts import PromptEntry
from trimaran.server.resources import ResourceEntry, TemplateEntry, compile_resource, compile_template
from trimaran.server.shortcuts import Shortcut
from trimaran.server.tools import ToolEntry
from trimaran.types import Prompt, Resource, ResourceTemplate, Tool, as_object

_log: Final = BoundedLog("trimaran.server")

Forward: TypeAlias = Callable[[Context, str, dict[str, Any], str], Awaitable[Any]]
"""Have the target serve a call: the Context, the method, the params, and the name that travels in a header."""

_D = TypeVar("_D")
_E = TypeVar("_E")
_TASKS: Final = ("optional", "required")
TaskSupport: TypeAlias = Literal["declared", "any"] | None
"""Which tools of a target may become tasks: those that say so (2025-11-25), or any, as the target decides (2026-07-28)."""


def _entries(definitions: Iterable[_D], make: Callable[[_D], _E], target: str) -> list[_E]:
    entries: list[_E] = []
    for definition in definitions:
        try:
            entries.append(make(definition))
        except DeclarationError as error:
            _log.warning("%s: %s is left out: %s", target, _label(definition), error, kind=target)
        except RecursionError:
            _log.warning("%s: %s is left out: it is nested too deeply", target, _label(definition), kind=target)
    return entries


def _label(definition: Any) -> str:
    name = getattr(definition, "name", "") or getattr(definition, "uri", "") or getattr(definition, "uri_template", "")
    return f"{type(definition).__name__} {name[:100]!r}"


def _keep_raw(raw: Any, /, *, notes: list[str] | None = None) -> dict[str, Any]:
    return {"arguments": raw}


def tool_entries(
    tools: Iterable[Tool],
    forward: Forward,
    target: str,
    tasks: TaskSupport = None,
    shortcut: Callable[[str], Shortcut] | None = None,
) -> list[ToolEntry]:
    """`shortcut` makes the shortcut of a tool, by its name."""
    return _entries(tools, lambda tool: _tool(tool, forward, tasks, shortcut), target)


def is_task_only(tool: Tool) -> bool:
    """True if the target runs this tool as a task, and no other way (2025-11-25)."""
    return (tool.execution or {}).get("taskSupport") == "required"


def _tool(tool: Tool, forward: Forward, tasks: TaskSupport, shortcut: Callable[[str], Shortcut] | None) -> ToolEntry:
    name = tool.name

    def call(ctx: Context, arguments: Raw) -> Awaitable[Any]:
        return forward(ctx, "tools/call", {"name": name, "arguments": arguments}, name)

    schema = as_object(tool.input_schema)
    if schema is None:
        raise DeclarationError("its input schema is not an object")
    check_references(schema, "its input schema")
    output = as_object(tool.output_schema)
    if output is not None and (lost := lost_reference(output)) is not None:
        # Clients compile every output schema when they list the tools: a broken one would cost them all tools.
        _log.warning("the output schema of %.100s is left out: %r leads nowhere (at %s)", name, lost[1], lost[0])
        output = None
    elif output is not None and is_too_deep(output):
        _log.warning("the output schema of %.100s is left out: it nests more than %d levels", name, MAX_LEVELS)
        output = None
    support = (tool.execution or {}).get("taskSupport")
    entry = ToolEntry()
    entry.key, entry.place = name, 0
    entry.handler, entry.context = Handler(call), "ctx"
    entry.handler.mode = "async"
    entry.arguments = _keep_raw
    entry.output, entry.exact = None, None
    entry.envelope = decide_envelope(output)
    entry.param_headers = compile_param_headers(schema)
    entry.is_gated = entry.param_headers is not None
    entry.timeout = entry.task_timeout = entry.cache_ttl = None
    entry.scopes, entry.visible_to = (), None
    if tasks == "any":
        entry.long_running = "on_detach"
    else:
        entry.long_running = tasks == "declared" and support in _TASKS
        entry.timeout = inf if entry.long_running else None
    # The body follows a task of the target's (task_forwarding.py), and any process can do that.
    entry.resumable = bool(entry.long_running)
    is_plain = not entry.long_running and entry.param_headers is None and not is_task_only(tool)
    entry.shortcut = shortcut(name) if shortcut is not None and is_plain else None
    execution = {"taskSupport": "optional"} if entry.long_running else None
    entry.definition = msgspec.structs.replace(tool, output_schema=output, execution=execution)
    return entry


def resource_entries(resources: Iterable[Resource], forward: Forward, target: str) -> list[ResourceEntry]:
    def make(resource: Resource) -> ResourceEntry:
        entry = compile_resource(resource.uri, _reader(forward))
        entry.definition = resource
        return entry

    return _entries(resources, make, target)


def template_entries(templates: Iterable[ResourceTemplate], forward: Forward, target: str) -> list[TemplateEntry]:
    def make(template: ResourceTemplate) -> TemplateEntry:
        entry = compile_template(template.uri_template, _reader(forward))
        entry.definition = template
        return entry

    return _entries(templates, make, target)


def _reader(forward: Forward) -> Callable[..., Any]:
    async def read(ctx: Context) -> Any:
        uri = ctx.uri or ""
        return await forward(ctx, "resources/read", {"uri": uri}, uri)

    return read


def prompt_entries(prompts: Iterable[Prompt], forward: Forward, target: str) -> list[PromptEntry]:
    return _entries(prompts, lambda prompt: _prompt(prompt, forward), target)


def _prompt(prompt: Prompt, forward: Forward) -> PromptEntry:
    name = prompt.name

    async def get(ctx: Context, arguments: dict[str, Any]) -> Any:
        return await forward(ctx, "prompts/get", {"name": name, "arguments": arguments}, name)

    entry = PromptEntry()
    entry.key, entry.place = name, 0
    entry.handler, entry.context = Handler(get), "ctx"
    entry.read = lambda arguments: {"arguments": arguments}
    entry.required = ()
    entry.scopes, entry.visible_to = (), None
    entry.definition = prompt
    return entry


def completion_entries(
    prompts: Iterable[Prompt], templates: Iterable[ResourceTemplate], forward: Forward, target: str
) -> list[CompletionEntry]:
    """One for every argument that the target might complete."""
    entries = [
        compile_completion(
            _completer(forward, {"type": "ref/prompt", "name": prompt.name}, argument.name),
            prompt=prompt.name,
            template=None,
            argument=argument.name,
        )
        for prompt in prompts
        for argument in prompt.arguments or ()
    ]
    for template in templates:
        text = template.uri_template
        try:
            variables = UriTemplate(text).variables
        except DeclarationError:
            continue  # its template was left out, and the log has it
        entries += [
            compile_completion(
                _completer(forward, {"type": "ref/resource", "uri": text}, variable),
                prompt=None,
                template=text,
                argument=variable,
            )
            for variable in variables
        ]
    return entries


def _completer(forward: Forward, ref: dict[str, Any], argument: str) -> Callable[..., Any]:
    async def complete(value: str, filled: dict[str, str], ctx: Context) -> Any:
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if filled:
            params["context"] = {"arguments": filled}
        return await forward(ctx, "completion/complete", params, "")

    return complete
