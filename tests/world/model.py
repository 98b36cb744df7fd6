"""A model that follows a script, for programs that believe they talk to a provider.

It listens on loopback and speaks four dialects, streaming and not: Anthropic Messages, OpenAI Responses, OpenAI Chat
Completions and Gemini. It understands nothing: the user's prompt carries the calls to make (`scenario.as_prompt`), each
turn makes the next ones, and the turn after the last ends with a text. It never refuses a request, so that a schema which
a provider would refuse is judged by the checks and not by accident.

`ScriptedModel.requests` has every request as it came; `tools` and `results` are what the program showed it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from .scenario import is_name_of, read_prompt

Body = dict[str, Any]
MODEL = "scripted-1"
SERVER = "harbour"


@dataclass
class Conversation:
    """What a request says, whatever the dialect."""

    texts: list[str] = field(default_factory=list)
    tools: dict[str, Any] = field(default_factory=dict)
    """The input schema of each tool, under the name that the program gives it."""
    calls: dict[str, str] = field(default_factory=dict)
    """The tool calls made so far: the name of each by its id."""
    results: list[tuple[str, str]] = field(default_factory=list)

    def script(self) -> list[list[Body]]:
        return next(filter(None, map(read_prompt, reversed(self.texts))), [])

    def next_calls(self) -> list[tuple[str, Body]]:
        """The calls of the first step that has not been made yet. Tools that the program does not show are left out."""
        made = len(self.calls)
        for step in self.script():
            calls = [(name, call["args"]) for call in step if (name := self.resolve(call["tool"]))]
            if made <= 0 and calls:
                return calls
            made -= len(calls)
        return []

    def resolve(self, tool: str) -> str | None:
        """The program's name for a tool of ours; where it has one of its own by that name, the one that names our server."""
        names = [name for name in self.tools if is_name_of(tool, name)]
        return min(names, key=lambda name: (SERVER not in name, len(name)), default=None)

    def answered(self, call_id: str, result: str) -> None:
        self.results.append((self.calls.get(call_id, call_id), result))


@dataclass
class ScriptedModel:
    """One server, for one run of one program."""

    requests: list[tuple[str, Body]] = field(default_factory=list)
    tools: dict[str, Any] = field(default_factory=dict)
    results: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> ScriptedModel:
        app = web.Application(client_max_size=256 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"]
        body = await request.json() if request.can_read_body else {}
        self.requests.append((path, body))
        for ending, answer in ENDPOINTS.items():
            if path.endswith(ending):
                return await answer(self, request, body)
        return web.json_response({"error": {"message": f"the scripted model has no {path}"}}, status=404)

    def observe(self, conversation: Conversation) -> None:
        """Keep what the conversation with the script shows; programs hold others beside it, for titles and the like."""
        if conversation.script():
            self.tools.update(conversation.tools)
            if len(conversation.results) >= len(self.results):
                self.results = conversation.results


def _text_of(content: Any) -> str:
    """The text in a message's content, as each dialect nests it; what is not text is shown as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text_of(block) for block in content)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(content, dict) and isinstance(content.get("text"), str):  # pyright: ignore[reportUnknownMemberType]
        return content["text"]  # pyright: ignore[reportUnknownVariableType]
    return json.dumps(content, ensure_ascii=False)


async def _stream(request: web.Request, events: Iterable[tuple[str | None, Any]]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    for name, data in events:
        head = f"event: {name}\n" if name else ""
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        await response.write(f"{head}data: {text}\n\n".encode())
    await response.write_eof()
    return response


def _final_text(conversation: Conversation) -> str:
    return f"The script is over after {len(conversation.results)} results." if conversation.script() else "A harbour."


# --- Anthropic Messages -----------------------------------------------------------------------------------------------


def read_messages(body: Body) -> Conversation:
    conversation = Conversation(tools={t["name"]: t.get("input_schema", {}) for t in body.get("tools") or []})
    for message in body.get("messages", []):
        blocks = message["content"]
        for block in [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks:
            if block["type"] == "text" and message["role"] == "user":
                conversation.texts.append(block["text"])
            elif block["type"] == "tool_use":
                conversation.calls[block["id"]] = block["name"]
            elif block["type"] == "tool_result":
                conversation.answered(block["tool_use_id"], _text_of(block.get("content", "")))
    return conversation


async def answer_messages(model: ScriptedModel, request: web.Request, body: Body) -> web.StreamResponse:
    conversation = read_messages(body)
    model.observe(conversation)
    calls, made = conversation.next_calls(), len(conversation.calls)
    blocks: list[Body] = [
        {"type": "tool_use", "id": f"toolu_{made + i}", "name": name, "input": arguments}
        for i, (name, arguments) in enumerate(calls)
    ] or [{"type": "text", "text": _final_text(conversation)}]
    usage = {"input_tokens": 10, "output_tokens": 10}
    reason = "tool_use" if calls else "end_turn"
    message: Body = {"id": f"msg_{made}", "type": "message", "role": "assistant", "model": body.get("model", MODEL)}
    if not body.get("stream"):
        ended = {"content": blocks, "stop_reason": reason, "stop_sequence": None, "usage": usage}
        return web.json_response(message | ended)

    def events() -> Iterable[tuple[str, Body]]:
        start = message | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield "message_start", {"type": "message_start", "message": start}
        for index, block in enumerate(blocks):
            if block["type"] == "text":
                empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                empty = block | {"input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"], ensure_ascii=False)}
            yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": empty}
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
            yield "content_block_stop", {"type": "content_block_stop", "index": index}
        end = {"stop_reason": reason, "stop_sequence": None}
        yield "message_delta", {"type": "message_delta", "delta": end, "usage": usage}
        yield "message_stop", {"type": "message_stop"}

    return await _stream(request, events())


async def count_tokens(model: ScriptedModel, request: web.Request, body: Body) -> web.StreamResponse:
    return web.json_response({"input_tokens": 10, "totalTokens": 10})


# --- OpenAI Chat Completions ------------------------------------------------------------------------------------------


def read_chat(body: Body) -> Conversation:
    functions = [tool["function"] for tool in body.get("tools") or [] if tool.get("type") == "function"]
    conversation = Conversation(tools={f["name"]: f.get("parameters", {}) for f in functions})
    for message in body.get("messages", []):
        if message["role"] == "user":
            conversation.texts.append(_text_of(message.get("content") or ""))
        for call in message.get("tool_calls") or []:
            conversation.calls[call["id"]] = call["function"]["name"]
        if message["role"] == "tool":
            conversation.answered(message["tool_call_id"], _text_of(message.get("content") or ""))
    return conversation


async def answer_chat(model: ScriptedModel, request: web.Request, body: Body) -> web.StreamResponse:
    conversation = read_chat(body)
    model.observe(conversation)
    made = len(conversation.calls)
    calls: list[Body] = [
        {
            "index": i,
            "id": f"call_{made + i}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
        }
        for i, (name, arguments) in enumerate(conversation.next_calls())
    ]
    message: Body = {"role": "assistant", "content": None if calls else _final_text(conversation)}
    if calls:
        message["tool_calls"] = calls
    reason = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    whole: Body = {"id": f"chatcmpl-{made}", "created": 1_700_000_000, "model": body.get("model", MODEL)}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return web.json_response(whole | {"object": "chat.completion", "choices": [choice], "usage": usage})

    def events() -> Iterable[tuple[None, Any]]:
        chunk = whole | {"object": "chat.completion.chunk"}
        yield None, chunk | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]}
        yield None, chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        yield None, chunk | {"choices": [], "usage": usage}
        yield None, "[DONE]"

    return await _stream(request, events())


# --- OpenAI Responses -------------------------------------------------------------------------------------------------


def _functions(tools: Iterable[Body], namespace: str = "") -> Iterable[tuple[str, Body]]:
    """The functions of a tool list; those inside a namespace are named `namespace|name`, which no program uses itself."""
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from _functions(tool.get("tools", []), tool["name"])
        elif tool.get("type") == "function":
            name = f"{namespace}|{tool['name']}" if namespace else tool["name"]
            yield name, tool.get("parameters") or {}


def read_responses(body: Body) -> Conversation:
    conversation = Conversation(tools=dict(_functions(body.get("tools") or [])))
    items = body.get("input", [])
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind = item.get("type", "message")
        if kind == "message" and item["role"] == "user":
            conversation.texts.append(_text_of(item["content"]))
        elif kind == "function_call":
            conversation.calls[item["call_id"]] = item["name"]
        elif kind == "function_call_output":
            conversation.answered(item["call_id"], _text_of(item["output"]))
    return conversation


async def answer_responses(model: ScriptedModel, request: web.Request, body: Body) -> web.StreamResponse:
    conversation = read_responses(body)
    model.observe(conversation)
    made = len(conversation.calls)
    items: list[Body] = []
    for i, (name, arguments) in enumerate(conversation.next_calls()):
        namespace, _, function = name.rpartition("|")
        item = {"type": "function_call", "id": f"fc_{made + i}", "call_id": f"call_{made + i}", "name": function}
        item |= {"namespace": namespace} if namespace else {}
        items.append(item | {"arguments": json.dumps(arguments, ensure_ascii=False), "status": "completed"})
    if not items:
        text = {"type": "output_text", "text": _final_text(conversation), "annotations": []}
        items.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]})
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 20,
    }
    response: Body = {
        "id": f"resp_{made}",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": body.get("model", MODEL),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    completed = response | {"status": "completed", "output": items, "usage": usage}
    if not body.get("stream"):
        return web.json_response(completed)

    def events() -> Iterable[tuple[str, Body]]:
        number = 0

        def event(kind: str, **data: Any) -> tuple[str, Body]:
            nonlocal number
            number += 1
            return kind, {"type": kind, "sequence_number": number, **data}

        yield event("response.created", response=response | {"status": "in_progress", "output": []})
        for index, item in enumerate(items):
            yield event("response.output_item.added", output_index=index, item=item)
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=completed)

    return await _stream(request, events())


async def list_models(model: ScriptedModel, request: web.Request, body: Body) -> web.StreamResponse:
    entry = {"id": MODEL, "object": "model", "created": 1_700_000_000, "owned_by": "nobody"}
    return web.json_response({"object": "list", "data": [entry]})


# --- Gemini -----------------------------------------------------------------------------------------------------------


def read_gemini(body: Body) -> Conversation:
    declared = [f for tool in body.get("tools") or [] for f in tool.get("functionDeclarations", [])]
    tools = {f["name"]: f.get("parametersJsonSchema") or f.get("parameters") or {} for f in declared}
    conversation = Conversation(tools=tools)
    for content in body.get("contents", []):
        for part in content.get("parts", []):
            if "text" in part and content.get("role", "user") == "user":
                conversation.texts.append(part["text"])
            elif call := part.get("functionCall"):
                conversation.calls[f"gemini_{len(conversation.calls)}"] = call["name"]
            elif answer := part.get("functionResponse"):
                conversation.results.append((answer["name"], json.dumps(answer["response"], ensure_ascii=False)))
    return conversation


def _gemini_turn(model: ScriptedModel, body: Body) -> Body:
    conversation = read_gemini(body)
    model.observe(conversation)
    calls = conversation.next_calls()
    parts: list[Body] = [{"functionCall": {"name": name, "args": arguments}} for name, arguments in calls]
    return {
        "candidates": [
            {
                "index": 0,
                "content": {"role": "model", "parts": parts or [{"text": _final_text(conversation)}]},
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20},
        "modelVersion": MODEL,
    }


async def generate_content(model: ScriptedModel, request: web.Request, body: Body) -> web.StreamResponse:
    return web.json_response(_gemini_turn(model, body))


async def stream_generate_content(model: ScriptedModel, request: web.Request, body: Body) -> web.StreamResponse:
    return await _stream(request, [(None, _gemini_turn(model, body))])


ENDPOINTS: dict[str, Callable[[ScriptedModel, web.Request, Body], Any]] = {
    "/messages": answer_messages,
    "/messages/count_tokens": count_tokens,
    "/chat/completions": answer_chat,
    "/responses": answer_responses,
    "/models": list_models,
    ":generateContent": generate_content,
    ":streamGenerateContent": stream_generate_content,
    ":countTokens": count_tokens,
}
