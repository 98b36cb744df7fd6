"""The big agents, headless, with the scripted model in place of their provider's.

One function per agent writes its files and says how it is started. What is checked is the same for all: the model was
shown every tool of our server, the schemas it got are whole, and every call of the scenario ended in the right result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .install import Packages
from .model import ScriptedModel
from .sandbox import Sandbox, Target
from .scenario import Call, as_prompt, check, is_name_of, tools_of

LIMIT = 240.0  # seconds for a whole run: a start takes 3 to 15, twenty-five calls about as long


@dataclass(frozen=True)
class Start:
    """How an agent is started: words, variables. The install's own `bin` is on PATH."""

    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)


def claude_code(sandbox: Sandbox, target: Target, model: str, prompt: str) -> Start:
    entry = {"type": target.transport, "url": target.url} if target.url else _command_entry(target)
    config = sandbox.write("mcp.json", json.dumps({"mcpServers": {"harbour": entry}}))
    words = ["claude", "-p", prompt, "--mcp-config", str(config), "--strict-mcp-config"]
    words += ["--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose"]
    variables = {
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
        "ENABLE_TOOL_SEARCH": "false",
    }
    return Start(words, variables)


def codex(sandbox: Sandbox, target: Target, model: str, prompt: str) -> Start:
    if target.url:
        server = f'url = "{target.url}"'
    else:
        server = f'command = "{target.command[0]}"\nargs = {json.dumps(target.command[1:])}'
    sandbox.write(
        ".codex/config.toml",
        f"""
model = "scripted-1"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.scripted]
name = "scripted"
base_url = "{model}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"

[mcp_servers.harbour]
{server}
required = true
startup_timeout_sec = 40
""",
    )
    return Start(["codex", "exec", "--skip-git-repo-check", prompt], {"SCRIPTED_KEY": "dummy"})


def gemini_cli(sandbox: Sandbox, target: Target, model: str, prompt: str) -> Start:
    entry = {"url": target.url, "type": target.transport} if target.url else _command_entry(target)
    _gemini_family(sandbox, ".gemini", entry | {"trust": True}, "gemini-api-key")
    variables = {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": model, "GEMINI_SANDBOX": "false"}
    return Start(["gemini", "-m", "gemini-2.5-pro", "--yolo", "-p", prompt], variables)


def qwen_code(sandbox: Sandbox, target: Target, model: str, prompt: str) -> Start:
    entry = {"url" if target.transport == "sse" else "httpUrl": target.url} if target.url else _command_entry(target)
    _gemini_family(sandbox, ".qwen", entry | {"trust": True}, "openai")
    variables = {"OPENAI_API_KEY": "dummy", "OPENAI_BASE_URL": f"{model}/v1", "OPENAI_MODEL": "scripted-1"}
    return Start(["qwen", "--yolo", "-p", prompt], variables)


def copilot_cli(sandbox: Sandbox, target: Target, model: str, prompt: str) -> Start:
    entry: dict[str, object] = {"tools": ["*"]}
    entry |= (
        {"type": target.transport, "url": target.url} if target.url else {"type": "local", **_command_entry(target)}
    )
    words = ["copilot", "--allow-all-tools", "--additional-mcp-config", json.dumps({"mcpServers": {"harbour": entry}})]
    variables = {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": f"{model}/v1",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": "dummy",
        "COPILOT_MODEL": "gpt-4o",
    }
    return Start([*words, "-p", prompt], variables)


def opencode(sandbox: Sandbox, target: Target, model: str, prompt: str) -> Start:
    entry: dict[str, object] = {"type": "local", "command": list(target.command), "enabled": True}
    if target.url:
        entry = {"type": "remote", "url": target.url, "enabled": True}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{model}/v1", "apiKey": "dummy"},
        "models": {"scripted-1": {"name": "scripted-1", "tool_call": True}},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"scripted": provider},
        "model": "scripted/scripted-1",
        "small_model": "scripted/scripted-1",
        "mcp": {"harbour": entry},
        "autoupdate": False,
        "share": "disabled",
    }
    sandbox.write(".config/opencode/opencode.json", json.dumps(config))
    return Start(
        ["opencode", "run", prompt], {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    )


AGENTS: dict[str, Callable[[Sandbox, Target, str, str], Start]] = {
    "claude-code": claude_code,
    "codex": codex,
    "gemini-cli": gemini_cli,
    "copilot-cli": copilot_cli,
    "opencode": opencode,
    "qwen-code": qwen_code,
}


# The tool by which an agent's model reads resources, and its arguments beside the URI.
RESOURCE_TOOLS: dict[str, tuple[str, dict[str, str]]] = {
    "claude-code": ("ReadMcpResourceTool", {"server": "harbour"}),
    "codex": ("read_mcp_resource", {"server": "harbour"}),
    "gemini-cli": ("read_mcp_resource", {}),
    "opencode": ("read_mcp_resource", {"server": "harbour"}),
    "qwen-code": ("read_mcp_resource", {"server_name": "harbour"}),
}


async def run_agent(packages: Packages, sandbox: Sandbox, target: Target, calls: Sequence[Call]) -> list[str]:
    """The faults of one run; none if everything is right."""
    if packages.name in RESOURCE_TOOLS:
        tool, arguments = RESOURCE_TOOLS[packages.name]
        calls = [*calls, Call(tool, {**arguments, "uri": "harbour://berths"}, ("klein",))]
    async with ScriptedModel() as model:
        start = AGENTS[packages.name](sandbox, target, model.url, as_prompt(calls))
        environment = sandbox.environment(start.variables, [packages.bin])
        finished = await sandbox.run(start.command, environment, LIMIT)
    tools = tools_of(calls)
    unseen = [tool for tool in tools if not any(is_name_of(tool, name) for name in model.tools)]
    if len(unseen) == len(tools):
        return [f"the model is shown none of our tools ({len(model.requests)} requests); {finished.complaint()}"]
    faults = [f"{tool}: not shown to the model" for tool in unseen]
    ours = {name: schema for name, schema in model.tools.items() if any(is_name_of(tool, name) for tool in tools)}
    faults += [f"{name}: {fault}" for name, schema in ours.items() for fault in broken_references(schema)]
    faults += check(model.results, [call for call in calls if call.tool not in unseen])
    return faults


def broken_references(schema: object) -> list[str]:
    """The `$ref`s of a schema that lead nowhere inside it."""

    def walk(node: object) -> list[str]:
        if isinstance(node, list):
            return [fault for item in node for fault in walk(item)]  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(node, dict):
            return []
        faults = [fault for item in node.values() for fault in walk(item)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        reference = node.get("$ref")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if isinstance(reference, str) and not _resolves(schema, reference):
            faults.append(f"the reference {reference} leads nowhere in the schema that the model gets")
        return faults

    return walk(schema)


def _resolves(schema: object, reference: str) -> bool:
    node = schema
    for part in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]  # pyright: ignore[reportUnknownVariableType]
    return reference.startswith("#")


def _command_entry(target: Target) -> dict[str, object]:
    return {"command": target.command[0], "args": list(target.command[1:])}


def _gemini_family(sandbox: Sandbox, folder: str, entry: Mapping[str, object], auth: str) -> None:
    settings = {
        "tools": {"toolSearch": {"enabled": False}},  # Qwen Code shows the model a search in place of the tools
        "security": {"auth": {"selectedType": auth}, "folderTrust": {"enabled": False}},
        "mcpServers": {"harbour": entry},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    sandbox.write(f"{folder}/settings.json", json.dumps(settings))
    sandbox.write(f"{folder}/trustedFolders.json", json.dumps({str(sandbox.work): "TRUST_FOLDER"}))
