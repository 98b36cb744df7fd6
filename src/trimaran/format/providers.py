"""Every provider by the name of its format: declare tools, read the calls in a reply, carry their results back.

Each provider's own shapes are in `anthropic.py`, `openai.py` and `gemini.py`.

    Anthropic Messages       a message with `tool_use` blocks        -> one user message with `tool_result` blocks
    OpenAI Chat Completions  a message with `tool_calls`             -> one `tool` message for each call
    OpenAI Responses         an `output` with `function_call` items  -> one `function_call_output` item for each call
    Gemini                   a content with `functionCall` parts     -> one user content with `functionResponse` parts

Pure. A reply is the whole response, its message, or the list inside; as JSON values, or as the objects of the provider's
library. Calls that the provider runs itself (`server_tool_use`, `mcp_call` and the like) are not among the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict, cast

from trimaran.errors import ConfigError, LocalProtocolError
from trimaran.option_names import check_options, suggestion

from .anthropic import anthropic_blocks, from_anthropic_call, result_to_anthropic, to_anthropic
from .calls import ToolCall, get_field
from .deferred import TOOL_SEARCH
from .definitions import AnyTool
from .fit import Fit
from .gemini import from_gemini_call, gemini_blocks, result_to_gemini, to_gemini
from .openai import (
    chat_blocks,
    from_openai_call,
    responses_blocks,
    result_to_openai,
    result_to_openai_responses,
    to_openai,
    to_openai_responses,
)
from .results import Shape

Format: TypeAlias = Literal["anthropic", "openai", "openai-responses", "gemini"]
"""The provider's shape: Anthropic Messages, OpenAI Chat Completions, OpenAI Responses, Gemini generateContent."""


class FormatOptions(TypedDict, total=False):
    """The options of every format; each takes `fit` and one of the others."""

    fit: Fit
    strict: bool
    openapi: bool


class _Provider(NamedTuple):
    declare: Callable[..., list[Shape]]
    """Declares tools."""
    blocks: Callable[[Any], Iterator[Any]]
    """The parts of a reply that hold calls, unread."""
    read: Callable[[Any], ToolCall]
    results_field: str = ""
    """The field of one user message that carries all results; empty where each result is a message or item itself."""


_PROVIDERS: Final[Mapping[str, _Provider]] = {
    "anthropic": _Provider(to_anthropic, anthropic_blocks, from_anthropic_call, "content"),
    "openai": _Provider(to_openai, chat_blocks, from_openai_call),
    "openai-responses": _Provider(to_openai_responses, responses_blocks, from_openai_call),
    "gemini": _Provider(to_gemini, gemini_blocks, from_gemini_call, "parts"),
}
FORMATS: Final = tuple(_PROVIDERS)
"""The names of all formats."""


def unknown_format(format: str) -> ConfigError:
    return ConfigError(
        f"there is no format {format!r};{suggestion(str(format), FORMATS)} the formats are {', '.join(FORMATS)}"
    )


def _provider(format: Format | str) -> _Provider:
    provider = _PROVIDERS.get(format)
    if provider is None:
        raise unknown_format(format)
    return provider


# --- the tools


def profile_of(format: Format | str, **options: Any) -> str:
    """The profile whose rules hold for tools in this format, strict or not."""
    if format == "gemini" and options.get("openapi"):
        return "gemini-openapi"
    return "openai" if format == "openai-responses" else str(format)


def to_provider(tools: Iterable[AnyTool], format: Format | str, *, fit: Fit = "exact", **options: bool) -> list[Shape]:
    """Tools in the shape of this provider.

    Raises:
        ConfigError: the format is not one of `FORMATS`, or it has no such option.
    """
    provider = _provider(format)
    check_options(options, ("fit", "openapi" if format == "gemini" else "strict"), f"the format {format!r}")
    return provider.declare(list(tools), fit=fit, **options)


# --- the calls -------------------------------------------------------------------------------------------------------


def read_calls(message: object, format: Format | str) -> list[ToolCall]:
    """Every call in what a provider answered: the whole response, a message of it, or its content.

    Raises:
        ConfigError: the format is not one of `FORMATS`.
        LocalProtocolError: a call is malformed.
    """
    provider = _provider(format)
    return [provider.read(block) for block in provider.blocks(message)]


def reply_blocks(reply: Any, format: Format | str) -> list[Any]:
    """The parts of a reply that hold calls, unread. `read_call` reads each, and may refuse it.

    Raises:
        ConfigError: the format is unknown, or the reply has several choices, which are different conversations.
    """
    provider = _provider(format)
    for field, inner in (("choices", "message"), ("candidates", "content")):
        choices = get_field(reply, field)
        if isinstance(choices, list) and len(cast("list[Any]", choices)) > 1:
            raise ConfigError(f"the reply has several {field}: choose one, and pass its {inner}")
    return list(provider.blocks(reply))


def read_call(block: Any, format: Format | str) -> ToolCall:
    """The call in one part of a reply.

    Raises:
        LocalProtocolError: it is no call, or its arguments are no object.
    """
    return _provider(format).read(block)


def unread_call(block: Any) -> ToolCall:
    """The name and the id of a call that cannot be read, without arguments, so that a result can answer it."""
    inner = get_field(block, "function", "custom", "functionCall", "function_call") or block
    name = TOOL_SEARCH if get_field(block, "type") == "tool_search_call" else get_field(inner, "name")
    call_id = get_field(block, "call_id", "id") or get_field(inner, "id")
    return ToolCall(str(name or "unknown"), {}, str(call_id or ""))


_CUT: Final = frozenset(("max_tokens", "length", "incomplete", "MAX_TOKENS", "model_context_window_exceeded"))


def is_cut_off(reply: Any) -> bool:
    """True if the provider stopped the model in the middle, at its token limit. The last call may be incomplete then."""
    choices = get_field(reply, "choices", "candidates")
    ending: Any = cast("list[Any]", choices)[0] if isinstance(choices, list) and choices else reply
    reason = get_field(ending, "stop_reason", "finish_reason", "finishReason", "status")
    return str(getattr(reason, "value", reason)) in _CUT


def wrap_results(results: list[Shape], format: Format | str) -> Shape | list[Shape]:
    """The message that carries these results; a list where the provider takes one message or item for each."""
    field = _provider(format).results_field
    return {"role": "user", field: results} if field else results


def write_result(
    result: Any, format: Format | str, *, name: str = "", call_id: str, media_follows: bool = False
) -> Shape:
    """The result of a call in the shape of this provider.

    Args:
        name: The name that the model called; only Gemini wants it back.
        media_follows: See `result_to_openai`.

    Raises:
        ConfigError: the format is not one of `FORMATS`.
    """
    if format == "anthropic":
        return result_to_anthropic(result, call_id)
    if format == "openai":
        return result_to_openai(result, call_id, media_follows=media_follows)
    if format == "openai-responses":
        return result_to_openai_responses(result, call_id)
    if format == "gemini":
        return result_to_gemini(result, name, call_id)
    raise unknown_format(format)


# --- whose reply -----------------------------------------------------------------------------------------------------

# The first field that is there tells the format of a response or of its message.
_FIELDS: Final[tuple[tuple[str, Format], ...]] = (
    ("choices", "openai"),
    ("message", "openai"),
    ("tool_calls", "openai"),
    ("candidates", "gemini"),
    ("parts", "gemini"),
    ("output", "openai-responses"),
    ("stop_reason", "anthropic"),
)
_RESPONSES_ITEMS: Final = frozenset(
    ("function_call", "message", "reasoning", "web_search_call", "file_search_call", "tool_search_call")
)


def detect_format(reply: object) -> Format:
    """The format of a provider's reply, by its shape.

    Raises:
        LocalProtocolError: it is no reply of a known provider.
    """
    if isinstance(reply, list):
        return _format_of_list(cast("list[Any]", reply))
    for field, format in _FIELDS:
        if get_field(reply, field) is not None:
            return format
    content = get_field(reply, "content")
    if isinstance(content, list):
        return "anthropic"
    if content is not None and get_field(content, "parts") is not None:
        return "gemini"
    if get_field(reply, "role") is not None:
        return "openai"  # a message of plain text: no format has calls in one
    raise LocalProtocolError.invalid_request(
        f"this is not a reply of a model's provider: {type(reply).__name__}. Pass what the provider's library returned, awaited "
        f"and complete, or its JSON; formats: {', '.join(FORMATS)}"
    )


def _format_of_list(items: list[Any]) -> Format:
    for item in items:
        kind = get_field(item, "type")
        if get_field(item, "function") is not None or kind == "custom":
            return "openai"
        if kind in _RESPONSES_ITEMS:
            return "openai-responses"
        if kind is None and get_field(item, "text", "functionCall", "function_call") is not None:
            return "gemini"
    return "anthropic"
