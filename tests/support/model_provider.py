"""A provider of models on 127.0.0.1, with teeth: it speaks a wire format as the real one does, and refuses what that refuses.

Two of them, `AnthropicWire` and `OpenAIWire`, follow one kind of script, so that a test can be run on both: each request takes
the next step. Every request is checked by rules written here, not by the library's; what breaks one is answered with 400, kept in
`faults`, and fails the test in the end.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import jsonschema_rs
from aiohttp import web
from tests.support.ports import find_port

KEY = "sk-test-4f1e09aa7c"
MODEL = "model-of-a-test"
SCHEMA_OF_SCHEMAS = jsonschema_rs.Draft202012Validator({"$ref": "https://json-schema.org/draft/2020-12/schema"})


@dataclass
class Answer:
    """A whole answer: texts as they come, then calls as (id, name, JSON text), each argument text in the pieces given."""

    texts: list[str] = field(default_factory=list)
    calls: list[tuple[str, str, str | list[str]]] = field(default_factory=list)
    reason: str = "end_turn"
    tokens: tuple[int, int] = (10, 5)
    thinking: str = ""
    before_end: asyncio.Event | None = None
    """Held before the end until this is set."""


@dataclass
class Break:
    """Text, then no more: the connection is cut, or closed in good order without the answer's end, or an error is told."""

    texts: list[str]
    how: str = "cut"


@dataclass
class Status:
    """An answer that is none."""

    status: int
    message: str = "no"
    kind: str = "some_error"
    headers: dict[str, str] = field(default_factory=lambda: {"x-should-retry": "false"})


Step = Answer | Break | Status


class Wire:
    """What both have in common: the script, the server, the rules for tools."""

    provider = ""
    title = ""
    path = ""

    def __init__(self) -> None:
        self.script: list[Step] = []
        self.requests: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.texts_sent = asyncio.Event()
        self.port = find_port()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/{anything:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()
        assert not self.faults, "\n".join(self.faults)
        assert not self.script, f"never asked for: {self.script}"

    @property
    def environ(self) -> dict[str, str]:
        name = self.provider.upper()
        return {f"{name}_API_KEY": KEY, f"{name}_BASE_URL": f"http://127.0.0.1:{self.port}{self.base}"}

    base = ""

    @property
    def name(self) -> str:
        return f"{self.provider}:{MODEL}"

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        wrong = list(self._wrong(request, body))
        if wrong:
            self.faults += [f"request {len(self.requests)}: {one}" for one in wrong]
            return self._error(Status(400, "; ".join(wrong)))
        step = self.script.pop(0) if self.script else Status(400, "the script has no more steps")
        if isinstance(step, Status):
            return self._error(step)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await self._tell(request, response, step)
        return response

    async def _tell(self, request: web.Request, response: web.StreamResponse, step: Answer | Break) -> None:
        for piece in self._opening(step):
            await response.write(piece)
        self.texts_sent.set()
        if isinstance(step, Break):
            if step.how == "cut":
                assert request.transport is not None
                request.transport.abort()
            elif step.how == "error":
                await response.write(self._told_error())
            return
        if step.before_end is not None:
            await step.before_end.wait()
        for piece in self._ending(step):
            await response.write(piece)
        await response.write_eof()

    def _error(self, step: Status) -> web.Response:
        return web.json_response(self._error_body(step), status=step.status, headers=step.headers)

    def _wrong(self, request: web.Request, body: dict[str, Any]) -> Iterator[str]:
        if request.path != self.path:
            yield f"posted to {request.path}"
        if KEY not in request.headers.get("authorization", "") + request.headers.get("x-api-key", ""):
            yield "no key in the headers"
        if body.get("model") != MODEL:
            yield f"asked for the model {body.get('model')!r}"
        if body.get("stream") is not True:
            yield "not asked to stream"
        yield from self._wrong_messages(body)
        names = [name for name, _, _ in self._tools(body)]
        if len(set(names)) != len(names):
            yield "two tools of one name"
        if "tools" in body and not names:
            yield "an empty list of tools"
        for name, description, schema in self._tools(body):
            for one in self._wrong_tool(name, description, schema):
                yield f"the tool {name}: {one}"

    def _wrong_tool(self, name: str, description: str, schema: Any) -> Iterator[str]:
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
            yield "a name that is refused"
        if not isinstance(schema, dict) or schema.get("type") != "object":
            yield "a schema that is no object"
            return
        if not SCHEMA_OF_SCHEMAS.is_valid(schema):
            yield "a schema that is none"
        if {"anyOf", "oneOf", "allOf"} & schema.keys():
            yield "branches at the top"

    # --- what differs ---

    def _opening(self, step: Answer | Break) -> Iterator[bytes]:
        raise NotImplementedError

    def _ending(self, step: Answer) -> Iterator[bytes]:
        raise NotImplementedError

    def _told_error(self) -> bytes:
        raise NotImplementedError

    def _error_body(self, step: Status) -> dict[str, Any]:
        raise NotImplementedError

    def _wrong_messages(self, body: dict[str, Any]) -> Iterator[str]:
        raise NotImplementedError

    def _tools(self, body: dict[str, Any]) -> list[tuple[str, str, Any]]:
        raise NotImplementedError

    def answers(self, body: dict[str, Any]) -> list[tuple[str, str, bool]]:
        """The answers to calls at the end of a request: id, text, is it an error."""
        raise NotImplementedError

    def said(self, body: dict[str, Any]) -> list[tuple[str, str]]:
        """Role and text of each message that has text."""
        raise NotImplementedError


def _pieces(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


class AnthropicWire(Wire):
    provider, title, path = "anthropic", "Anthropic", "/v1/messages"

    def _event(self, kind: str, **more: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()

    def _opening(self, step: Answer | Break) -> Iterator[bytes]:
        tokens = step.tokens if isinstance(step, Answer) else (10, 1)
        usage = {"input_tokens": tokens[0] - 4, "cache_read_input_tokens": 4, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": usage}
        yield self._event("message_start", message={**message, "stop_reason": None, "stop_sequence": None})
        yield self._event("ping")
        self._index = 0
        if isinstance(step, Answer) and step.thinking:
            yield from self._block(
                {"type": "thinking", "thinking": "", "signature": ""},
                [
                    {"type": "thinking_delta", "thinking": step.thinking},
                    {"type": "signature_delta", "signature": "sig=="},
                ],
            )
        if step.texts:
            deltas = [{"type": "text_delta", "text": text} for text in step.texts]
            pieces = list(self._block({"type": "text", "text": ""}, deltas))
            yield from pieces if isinstance(step, Answer) else pieces[:-1]

    def _block(self, block: dict[str, Any], deltas: list[dict[str, Any]]) -> Iterator[bytes]:
        yield self._event("content_block_start", index=self._index, content_block=block)
        for delta in deltas:
            yield self._event("content_block_delta", index=self._index, delta=delta)
        yield self._event("content_block_stop", index=self._index)
        self._index += 1

    def _ending(self, step: Answer) -> Iterator[bytes]:
        for id, name, arguments in step.calls:
            deltas = [{"type": "input_json_delta", "partial_json": one} for one in ["", *_pieces(arguments)]]
            yield from self._block({"type": "tool_use", "id": id, "name": name, "input": {}}, deltas)
        reason = "tool_use" if step.calls and step.reason == "end_turn" else step.reason
        delta = {"stop_reason": reason, "stop_sequence": None}
        yield self._event("message_delta", delta=delta, usage={"output_tokens": step.tokens[1]})
        yield self._event("message_stop")

    def _told_error(self) -> bytes:
        return self._event("error", error={"type": "overloaded_error", "message": "Overloaded"})

    def _error_body(self, step: Status) -> dict[str, Any]:
        return {"type": "error", "error": {"type": step.kind, "message": step.message}}

    def _tools(self, body: dict[str, Any]) -> list[tuple[str, str, Any]]:
        return [(tool["name"], tool["description"], tool["input_schema"]) for tool in body.get("tools", [])]

    def _wrong_tool(self, name: str, description: str, schema: Any) -> Iterator[str]:
        yield from super()._wrong_tool(name, description, schema)
        for key in schema.get("properties", {}):
            if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key):
                yield f"a property called {key!r}"

    def _wrong_messages(self, body: dict[str, Any]) -> Iterator[str]:
        if unknown := body.keys() - {"model", "max_tokens", "messages", "stream", "system", "tools"}:
            yield f"unknown parameters {sorted(unknown)}"
        if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
            yield "no max_tokens"
        messages = body.get("messages") or []
        if not messages or messages[0]["role"] != "user" or messages[-1]["role"] != "user":
            yield "the messages do not begin and end with the user's"
        open_calls: list[str] = []
        seen: set[str] = set()
        for number, message in enumerate(messages):
            if number and message["role"] == messages[number - 1]["role"]:
                yield f"two messages of {message['role']} in a row"
            if not message["content"]:
                yield f"the message {number} is empty"
            for block in message["content"]:
                yield from self._wrong_block(block)
            answered = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
            if answered != open_calls:
                yield f"calls {open_calls} are answered by {answered}"
            if any(block["type"] != "tool_result" for block in message["content"][: len(answered)]):
                yield "results do not come first"
            open_calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
            if seen & set(open_calls) or len(set(open_calls)) < len(open_calls):
                yield "an id of a call came twice"
            seen.update(open_calls)
        if open_calls:
            yield f"calls {open_calls} are not answered"

    def _wrong_block(self, block: dict[str, Any]) -> Iterator[str]:
        kind = block["type"]
        if kind == "text" and not block["text"].strip():
            yield "an empty text"
        if kind == "tool_use" and not isinstance(block["input"], dict):
            yield "the input of a call is no object"
        if kind == "thinking" and not block.get("signature"):
            yield "thinking without its signature"
        if kind == "tool_result":
            for inner in block.get("content", []):
                if inner["type"] not in ("text", "image", "document"):
                    yield f"a result with a block {inner['type']}"
        elif kind not in ("text", "tool_use", "thinking", "image"):
            yield f"a block {kind}"

    def answers(self, body: dict[str, Any]) -> list[tuple[str, str, bool]]:
        blocks = [block for block in body["messages"][-1]["content"] if block["type"] == "tool_result"]
        return [
            (
                block["tool_use_id"],
                "".join(inner.get("text", f"<{inner['type']}>") for inner in block.get("content", [])),
                block.get("is_error", False),
            )
            for block in blocks
        ]

    def said(self, body: dict[str, Any]) -> list[tuple[str, str]]:
        return [
            (message["role"], block["text"])
            for message in body["messages"]
            for block in message["content"]
            if block["type"] == "text"
        ]


class OpenAIWire(Wire):
    provider, title, path, base = "openai", "OpenAI", "/v1/chat/completions", "/v1"

    def _chunk(self, delta: dict[str, Any] | None, reason: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": choices, **more}
        return f"data: {json.dumps(chunk)}\n\n".encode()

    def _opening(self, step: Answer | Break) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})
        for text in step.texts:
            yield self._chunk({"content": text})

    def _ending(self, step: Answer) -> Iterator[bytes]:
        for index, (id, name, arguments) in enumerate(step.calls):
            head = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
            yield self._chunk({"tool_calls": [head]})
            for piece in _pieces(arguments):
                yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        reasons = {
            "max_tokens": "length",
            "refusal": "content_filter",
            "end_turn": "tool_calls" if step.calls else "stop",
        }
        yield self._chunk({}, reasons[step.reason])
        tokens = step.tokens
        yield self._chunk(
            None,
            usage={"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)},
        )
        yield b"data: [DONE]\n\n"

    def _told_error(self) -> bytes:
        error = {"message": "The server had an error", "type": "server_error", "code": None, "param": None}
        return f"data: {json.dumps({'error': error})}\n\n".encode()

    def _error_body(self, step: Status) -> dict[str, Any]:
        return {"error": {"message": step.message, "type": step.kind, "code": None, "param": None}}

    def _tools(self, body: dict[str, Any]) -> list[tuple[str, str, Any]]:
        functions = [tool["function"] for tool in body.get("tools", [])]
        return [(one["name"], one["description"], one["parameters"]) for one in functions]

    def _wrong_tool(self, name: str, description: str, schema: Any) -> Iterator[str]:
        yield from super()._wrong_tool(name, description, schema)
        if len(description) > 1024:
            yield "a description that is too long"
        if "properties" not in schema:
            yield "an object without properties"

    def _wrong_messages(self, body: dict[str, Any]) -> Iterator[str]:
        known = {"model", "messages", "stream", "stream_options", "tools", "max_tokens"}
        if unknown := body.keys() - known:
            yield f"unknown parameters {sorted(unknown)}"
        if len(body.get("tools", [])) > 128:
            yield f"{len(body['tools'])} tools"
        waiting: list[str] = []
        for number, message in enumerate(body["messages"]):
            role = message["role"]
            if role == "system" and number:
                yield "a system message in the middle"
            if waiting and (role != "tool" or message["tool_call_id"] != waiting[0]):
                yield f"{waiting} wait for an answer, and {message} came"
            elif not waiting and role == "tool":
                yield f"an answer to no call: {message}"
            elif waiting:
                waiting.pop(0)
            if role == "tool" and not _is_text(message["content"]):
                yield "a tool that answers something else than text"
            if role == "assistant":
                if message["content"] is None and not message.get("tool_calls"):
                    yield "an empty message of the model's"
                waiting = [call["id"] for call in message.get("tool_calls", [])]
                if "" in waiting or len(set(waiting)) < len(waiting):
                    yield f"ids of calls: {waiting}"
                for call in message.get("tool_calls", []):
                    if not isinstance(json.loads(call["function"]["arguments"]), dict):
                        yield "arguments that are no object"
        if waiting:
            yield f"{waiting} are not answered"
        if body["messages"][-1]["role"] not in ("user", "tool"):
            yield "the last message is the model's"

    def answers(self, body: dict[str, Any]) -> list[tuple[str, str, bool]]:
        found: list[tuple[str, str, bool]] = []
        last = max(n for n, message in enumerate(body["messages"]) if message["role"] == "assistant")
        for message in body["messages"][last + 1 :]:
            if message["role"] == "tool":
                content = message["content"]
                text = content if isinstance(content, str) else "".join(part["text"] for part in content)
                is_error = text.startswith("[tool error] ")
                found.append((message["tool_call_id"], text.removeprefix("[tool error] "), is_error))
        return found

    def said(self, body: dict[str, Any]) -> list[tuple[str, str]]:
        return [
            (message["role"], message["content"])
            for message in body["messages"]
            if isinstance(message["content"], str) and message["role"] in ("user", "assistant")
        ]


def _is_text(content: Any) -> bool:
    return isinstance(content, str) or all(part["type"] == "text" for part in content)


class SilentWire(OpenAIWire):
    """A compatible server with its own ideas: no ids, one index for all, "stop" beside calls, no figures, words of its own."""

    def _ending(self, step: Answer) -> Iterator[bytes]:
        for number, (id, name, arguments) in enumerate(step.calls):
            call: dict[str, Any] = {"index": 0 if id else number, "id": id, "extra_content": {"thought": name}}
            text = "".join(_pieces(arguments))
            yield self._chunk({"tool_calls": [{**call, "function": {"name": name, "arguments": text}}]})
        yield self._chunk({}, "stop")
        yield b"data: [DONE]\n\n"
