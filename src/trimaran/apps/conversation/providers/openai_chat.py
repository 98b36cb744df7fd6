"""Models that speak OpenAI's Chat Completions, through OpenAI's library: its own, and those of every compatible server.

Compatible servers differ in small things, and so this reads generously: calls without an id, several calls under one index, a
finish reason of "stop" beside calls, no figures for tokens. It writes what all of them take.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, cast, final
from uuid import uuid4

from trimaran.depth import decode_json
from trimaran.format import Format, media_to_openai, result_to_openai

from .driver import Message, ModelProvider, ModelReply, ModelRequest, sound, stream_reply

# An answer that ended otherwise may end in the middle of a call.
_WHOLE: Final = frozenset(("stop", "tool_calls", "function_call"))
_REASONS: Final[Mapping[str, str]] = {
    "stop": "end_turn",
    "tool_calls": "end_turn",
    "function_call": "end_turn",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_OWN: Final = ("openai.com", "openai.azure.com")


@final
class OpenAIChat:
    """See `Driver`."""

    format: Format = "openai"

    def __init__(self, provider: ModelProvider, model: str) -> None:
        import openai

        self.provider = provider
        self.model = model
        self._client = openai.AsyncOpenAI(api_key=provider.key, base_url=provider.base_url)
        # OpenAI's newer models refuse the old name, and most compatible servers know only that.
        own = any(provider.host == name or provider.host.endswith(f".{name}") for name in _OWN)
        self._limit = "max_completion_tokens" if own else "max_tokens"

    async def close(self) -> None:
        await self._client.close()

    def stream(self, request: ModelRequest) -> AsyncGenerator[str | ModelReply, None]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*system, *request.messages],
            self._limit: request.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = list(request.tools)
        # The parameters are plain JSON; the library's types describe each kind of message apart.
        return stream_reply(self, _Answer(), cast("Any", self._client.chat.completions).create(**body))

    def say(self, history: list[Message], text: str) -> None:
        history.append({"role": "user", "content": text})

    def user_message(self, text: str) -> Message:
        return {"role": "assistant", "content": text}

    def answer(self, answers: Sequence[dict[str, Any]], results: Sequence[Any]) -> list[Message]:
        messages = list(answers)
        seen = [
            (number, result) for number, result in enumerate(results) if result is not None and media_to_openai(result)
        ]
        for number, result in seen:
            messages[number] = result_to_openai(result, messages[number]["tool_call_id"], media_follows=True)
        pictures = media_to_openai(*(result for _, result in seen))
        return messages if pictures is None else [*messages, pictures]

    def ask(self, role: str, blocks: Sequence[Mapping[str, Any]]) -> Message:
        parts = [_part(block) for block in blocks]
        if all(part["type"] == "text" for part in parts):  # every server and every role accepts it
            return {"role": role, "content": "\n".join(part["text"] for part in parts)}
        return {"role": role, "content": parts}

    def without_media(self, history: list[Message]) -> bool:
        has_media = False
        for number, message in enumerate(history):
            content = message.get("content")
            if not isinstance(content, list):
                continue
            plain = [_plain(part) for part in cast("list[dict[str, Any]]", content)]
            if plain != content:
                history[number] = {**message, "content": plain}
                has_media = True
        return has_media


@final
class _Answer:
    """One message of the model's, as its chunks come in."""

    def __init__(self) -> None:
        self.has_begun = False
        self._text = ""
        self._refusal = ""
        self._calls: list[dict[str, Any]] = []
        self._at: dict[int, dict[str, Any]] = {}
        self._reason = ""
        self._model = ""
        self._input_tokens = self._output_tokens = 0

    @property
    def is_complete(self) -> bool:
        return bool(self._reason)

    def take(self, chunk: Any, /) -> str:
        """The text that this chunk adds; empty for all others."""
        self.has_begun = True
        self._model = chunk.model or self._model
        if chunk.usage is not None:
            self._input_tokens = chunk.usage.prompt_tokens or 0
            self._output_tokens = chunk.usage.completion_tokens or 0
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self._reason = choice.finish_reason or self._reason
        delta = choice.delta
        if delta is None:
            return ""
        for call in delta.tool_calls or ():
            self._add(call)
        self._text += delta.content or ""
        refusal: str = getattr(delta, "refusal", None) or ""
        self._refusal += refusal
        return (delta.content or "") + refusal

    def _add(self, bit: Any) -> None:
        known: dict[str, Any] | None = self._at.get(bit.index)
        if known is None or (bit.id and known["id"] and bit.id != known["id"]):
            known = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            self._at[bit.index] = known
            self._calls.append(known)
        known["id"] = bit.id or known["id"]
        known.update(bit.model_extra or {})  # some servers want back what they put here
        if bit.function is not None:
            function: dict[str, str] = known["function"]
            function["name"] += bit.function.name or ""
            function["arguments"] += bit.function.arguments or ""

    def reply(self, model: str) -> ModelReply:
        calls = self._named() if self._reason in _WHOLE else []
        text = sound(self._text or self._refusal)
        message: Message | None = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [_with_valid_arguments(call) for call in calls]
        elif not text.strip():
            message = None
        reason = "refusal" if self._refusal else _REASONS.get(self._reason, self._reason)
        return ModelReply(
            message=message,
            calls=calls,
            reason=reason,
            model=self._model or model,
            input_tokens=self._input_tokens,
            output_tokens=self._output_tokens,
        )

    def _named(self) -> list[dict[str, Any]]:
        """The calls, each with an id of its own: answers are matched by it."""
        names: set[str] = set()
        for call in self._calls:
            if not call["id"] or call["id"] in names:
                call["id"] = f"call_{uuid4().hex}"
            names.add(call["id"])
            call["function"]["arguments"] = sound(call["function"]["arguments"])
        return self._calls


def _with_valid_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """The call as the history holds it: servers read the arguments again, and fail on what is no JSON object."""
    function = call["function"]
    try:
        is_object = isinstance(decode_json(function["arguments"]), dict)
    except ValueError:
        is_object = False
    return {**call, "function": function if is_object else {**function, "arguments": "{}"}}


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": block.get("text", "")}
    if kind == "image":
        url = f"data:{block.get('mimeType')};base64,{block.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    raise ValueError(f"a block of type {kind!r}")


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    """The part with words where there was a picture, a sound or a file."""
    if part["type"] == "text":
        return part
    return {"type": "text", "text": f"[{part['type']} left out: the model refused it]"}
