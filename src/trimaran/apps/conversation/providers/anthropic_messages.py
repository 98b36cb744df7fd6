"""Claude, through Anthropic's library and its Messages API, as a stream of events.

Blocks are put together here from their events, so that what came before a cut is known, and arguments that are no JSON can be
told to the model. Thinking is kept as it came, signature and all: the API wants it back beside the calls it led to.

A user's message follows a user's message only inside one: what the person writes after the results of tools goes into the
message that holds them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, cast, final

from trimaran.depth import decode_json
from trimaran.format import Format

from .driver import Message, ModelProvider, ModelReply, ModelRequest, sound, stream_reply

_MEDIA: Final = frozenset(("image", "document"))
_THOUGHTS: Final = frozenset(("thinking", "redacted_thinking"))
# An answer that ended otherwise may end in the middle of a call.
_WHOLE: Final = frozenset(("end_turn", "tool_use", "stop_sequence"))


@final
class AnthropicMessages:
    """See `Driver`."""

    format: Format = "anthropic"

    def __init__(self, provider: ModelProvider, model: str) -> None:
        import anthropic

        self.provider = provider
        self.model = model
        self._client = anthropic.AsyncAnthropic(api_key=provider.key, base_url=provider.base_url)

    async def close(self) -> None:
        await self._client.close()

    def stream(self, request: ModelRequest) -> AsyncGenerator[str | ModelReply, None]:
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "messages": _marked(request.messages),
            "stream": True,
        }
        if request.system:
            body["system"] = request.system
        if request.tools:
            body["tools"] = list(request.tools)
        # The parameters are plain JSON; the library's types describe each of its hundred kinds of block.
        return stream_reply(self, _Answer(), cast("Any", self._client.messages).create(**body))

    def say(self, history: list[Message], text: str) -> None:
        block = {"type": "text", "text": text}
        if history and history[-1]["role"] == "user":
            history[-1] = {"role": "user", "content": [*history[-1]["content"], block]}
        else:
            history.append({"role": "user", "content": [block]})

    def user_message(self, text: str) -> Message:
        return {"role": "assistant", "content": [{"type": "text", "text": text}]}

    def answer(self, answers: Sequence[dict[str, Any]], results: Sequence[Any]) -> list[Message]:
        return [{"role": "user", "content": list(answers)}]

    def ask(self, role: str, blocks: Sequence[Mapping[str, Any]]) -> Message:
        return {"role": role, "content": [_part(block) for block in blocks]}

    def without_media(self, history: list[Message]) -> bool:
        has_media = False
        for number, message in enumerate(history):
            content = [_plain(block) for block in message["content"]]
            if content != message["content"]:
                history[number] = {**message, "content": content}
                has_media = True
        return has_media


@final
class _Answer:
    """One message of the model's, as its events come in."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_complete = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}
        self._reason = "end_turn"
        self._model = ""
        self._input_tokens = self._output_tokens = 0

    def take(self, event: Any, /) -> str:
        """The text that this event adds; empty for all others."""
        self.has_begun = True
        match event.type:
            case "message_start":
                self._model = event.message.model
                self._count(event.message.usage)
            case "content_block_start":
                self._blocks[event.index] = event.content_block.to_dict(mode="json")
                return self._blocks[event.index].get("text", "")
            case "content_block_delta":
                return self._add(event.index, event.delta)
            case "message_delta":
                self._reason = event.delta.stop_reason or self._reason
                self._count(event.usage)
            case "message_stop":
                self.is_complete = True
            case _:  # "new event types may be added": not an error
                pass
        return ""

    def _add(self, index: int, delta: Any) -> str:
        block = self._blocks[index]
        match delta.type:
            case "text_delta":
                block["text"] = block.get("text", "") + delta.text
                return delta.text
            case "input_json_delta":
                self._inputs[index] = self._inputs.get(index, "") + delta.partial_json
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta.thinking
            case "signature_delta":
                block["signature"] = delta.signature
            case _:
                pass
        return ""

    def _count(self, usage: Any) -> None:
        """Later figures include earlier ones. Tokens read from the cache, or written to it, are input too."""
        counts = [getattr(usage, f"{kind}input_tokens", None) for kind in ("", "cache_creation_", "cache_read_")]
        if counts[0] is not None:
            self._input_tokens = sum(count or 0 for count in counts)
        self._output_tokens = usage.output_tokens or self._output_tokens

    def reply(self, model: str) -> ModelReply:
        is_whole = self._reason in _WHOLE
        content: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        for index, block in sorted(self._blocks.items()):
            kind: Any = block.get("type")
            if kind == "tool_use":
                arguments: Any = sound(self._inputs.get(index, "")) or block.get("input")
                calls.append({**block, "input": arguments})
                if is_whole:
                    content.append({**block, "input": _object(arguments)})
            elif kind == "text":
                if (text := sound(block.get("text", ""))).strip():  # an empty block is refused
                    content.append({**block, "text": text})
            elif kind in _THOUGHTS:
                content.append(block)
        is_said = any(block["type"] in ("text", "tool_use") for block in content)  # thinking alone is no message
        return ModelReply(
            message={"role": "assistant", "content": content} if is_said else None,
            calls=calls if is_whole else [],
            reason="end_turn" if self._reason == "tool_use" else self._reason,
            model=self._model or model,
            input_tokens=self._input_tokens,
            output_tokens=self._output_tokens,
        )


def _object(value: Any) -> dict[str, Any]:
    """The arguments as the history holds them: what is no object cannot stand there, and is told in the result instead."""
    if isinstance(value, str):
        try:
            value = decode_json(value)
        except ValueError:
            return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _marked(messages: Sequence[Message]) -> list[Message]:
    """The messages, with the last block marked for the cache: all before it, tools too, need not be read again next time."""
    *before, last = messages
    *blocks, block = last["content"]
    return [*before, {**last, "content": [*blocks, {**block, "cache_control": {"type": "ephemeral"}}]}]


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": block.get("text", "")}
    if kind == "image":
        source = {"type": "base64", "media_type": block.get("mimeType"), "data": block.get("data")}
        return {"type": "image", "source": source}
    raise ValueError(f"a block of type {kind!r}")


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    """The block with words where there was a picture or a document."""
    if block["type"] in _MEDIA:
        return {"type": "text", "text": f"[{block['type']} left out: the model refused it]"}
    if block["type"] == "tool_result" and "content" in block:
        return {**block, "content": [_plain(inner) for inner in block["content"]]}
    return block
