"""The contract of a driver, and the messages about a provider's failures.

A conversation is a list of messages in the provider's own shape, plain JSON values that are never changed in place: what is to
be different is replaced, so a copy of the list is a snapshot. The driver writes the messages; the loop owns the list.

A failure of any kind becomes one `ModelFailed`: provider, status, what happened, what to do. The provider's own text goes along,
in one line, except where it is about the key. The key itself is in no message: it is cut out of whatever is told.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast, final
from urllib.parse import urlsplit

from msgspec import Struct

from trimaran.errors import Error
from trimaran.format import Format

log: Final = logging.getLogger("trimaran.apps.console")

Message: TypeAlias = dict[str, Any]
"""One message of a conversation, as the provider has it."""

_SHORTEST_KEY: Final = 12  # characters; those of providers have 40 and more
_LONGEST: Final = 600  # characters of what a provider said: enough for its reasons, too few to fill a screen


class ModelUnavailable(Error):
    """There is no model to talk to: a name that cannot be read, a library or a key that is missing. Says what to do."""


class ModelFailed(Error):
    """The provider did not answer, or not to the end. The conversation can go on."""

    def __init__(self, message: str, *, provider: str, status: int | None = None) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        """The HTTP status, where there was one, or the one that the provider's own word stands for."""


@final
class ModelProvider(Struct, frozen=True, kw_only=True):
    """A provider of models: its address and its key."""

    title: str
    """The name for people."""
    key_variable: str
    url_variable: str
    base_url: str
    key: str = ""

    def __repr__(self) -> str:
        return f"<Provider {self.title} at {self.host}>"  # without the key

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or self.base_url

    def masked(self, text: str) -> str:
        # A shorter one is the word that somebody gave to a server that wants no key.
        return text.replace(self.key, "***") if len(self.key) >= _SHORTEST_KEY else text


@final
class ModelRequest(Struct, frozen=True, kw_only=True):
    messages: Sequence[Message]
    max_tokens: int
    system: str = ""
    tools: Sequence[dict[str, Any]] = ()


@final
class ModelReply(Struct, frozen=True, kw_only=True):
    """The end of an answer. Its text came before, in pieces."""

    message: Message | None
    """For the history; None if the model said nothing that can be kept."""
    calls: list[dict[str, Any]]
    """The tools it wants, in the provider's shape, arguments as the text that came. Only where the answer is whole."""
    reason: str
    """Why it stopped: end_turn, max_tokens, refusal, or the provider's own word."""
    model: str
    input_tokens: int = 0
    output_tokens: int = 0


class Driver(Protocol):
    """One model of one provider. Nothing is kept between requests but the connection."""

    format: Format
    provider: ModelProvider
    model: str

    def stream(self, request: ModelRequest) -> AsyncGenerator[str | ModelReply, None]:
        """Ask: bits of text as they come, then exactly one Reply.

        Raises:
            ModelFailed: no answer, or not the whole of it.
        """
        ...

    def say(self, history: list[Message], text: str) -> None:
        """Add what the person wrote."""
        ...

    def user_message(self, text: str) -> Message:
        """A message of the model's with this text and nothing else."""
        ...

    def answer(self, answers: Sequence[dict[str, Any]], results: Sequence[Any]) -> list[Message]:
        """The messages that answer all calls of a reply.

        Args:
            answers: The results of `Host.to_result`, in the order of the calls.
            results: The result behind each; None where the call failed.
        """
        ...

    def ask(self, role: str, blocks: Sequence[Mapping[str, Any]]) -> Message:
        """A message of MCP's content blocks, text and pictures.

        Raises:
            ValueError: the provider takes no such block; says which.
        """
        ...

    def without_media(self, history: list[Message]) -> bool:
        """Take out what is no text; False if there was none."""
        ...

    async def close(self) -> None: ...


def sound(text: str) -> str:
    """The text as it can be sent: halves of characters, cut apart on their way, are joined or replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class StreamCut(Exception):
    """A stream that ended before the answer did."""


# --- failures --------------------------------------------------------------------------------------------------------

# The codes of errors in the middle of a stream, which have no HTTP status.
_WORDS: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_NETWORK: Final = frozenset(("httpx", "httpx2", "httpcore", "httpcore2", "h11", "h2", "anyio"))


class StreamedAnswer(Protocol):
    """An answer that is put together from the events of a stream."""

    @property
    def has_begun(self) -> bool: ...
    @property
    def is_complete(self) -> bool: ...
    def take(self, event: Any, /) -> str: ...
    def reply(self, model: str) -> ModelReply: ...


async def stream_reply(
    driver: Driver, answer: StreamedAnswer, response: Awaitable[Any]
) -> AsyncGenerator[str | ModelReply, None]:
    """See `Driver.stream`: the stream of either library, read into an answer."""
    try:
        events = await response
        async with events:
            async for event in events:
                if text := answer.take(event):
                    yield sound(text)
        if not answer.is_complete:
            raise StreamCut("the stream ended before the message did")
    except Exception as error:
        raise explain(driver.provider, driver.model, error, has_begun=answer.has_begun) from None
    yield answer.reply(driver.model)


def explain(provider: ModelProvider, model: str, error: Exception, *, has_begun: bool) -> ModelFailed:
    """The failure of a request, for a person. Knows the errors of the providers' libraries by what they carry.

    Args:
        has_begun: True if the answer had begun.
    """
    log.debug("%s failed", provider.title, exc_info=error)
    status, reason, waits = _status(error), _reason_of(error), _retry_after(error)
    if status is not None:
        message = f"{provider.title} answered {status}: {_advice(provider, model, status, reason, waits)}"
    elif _is_timeout(error):
        message = f"{provider.title} did not answer in time ({provider.host}). Send the message again."
    elif has_begun and (isinstance(error, StreamCut) or _is_network(error)):
        message = f"the connection to {provider.title} broke in the middle of the answer. The part that came is kept; go on from there."
    elif _is_network(error):
        message = (
            f"{provider.title} cannot be reached at {provider.host}. "
            f"Look at the network, at the proxy, and at {provider.url_variable} if you set it."
        )
    elif reason:
        message = f"{provider.title} broke off: {reason}. Send the message again."
    else:
        message = (
            f"what {provider.title} sent cannot be read ({type(error).__name__}). If {provider.url_variable} names another "
            f"server, it may not speak this protocol."
        )
    return ModelFailed(provider.masked(message), provider=provider.title, status=status)


def _advice(provider: ModelProvider, model: str, status: int, reason: str, waits: str) -> str:
    because = f" ({reason})" if reason else ""
    again = f"Wait {waits}, then send the message again." if waits else "Wait a moment, then send the message again."
    if status == 401:  # some providers say part of the key here
        return f"the key in {provider.key_variable} is not accepted. Set one that is valid, and start again."
    if status in (402, 403):
        return f"the key in {provider.key_variable} may not do this{because}. Look at the account and its plan."
    if status == 404:
        return f"there is no model {model!r} for this key{because}. Look at the name, and at {provider.url_variable}."
    if status == 413:
        return f"the conversation is too long{because}. /clear begins a new one."
    if status == 429:
        return f"too much was asked of it, or the account is used up{because}. {again}"
    if status in (503, 529):
        return f"it is overloaded{because}. {again}"
    if status >= 500 or status == 408:
        return f"it failed on its side{because}. {again}"
    return f"it refused the request{because}. If the conversation grew too long, /clear begins a new one."


def _status(error: Exception) -> int | None:
    status: Any = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 400:
        return status
    body = _error_body(error)
    words = (body.get("type"), body.get("code"))
    return next((_WORDS[word] for word in words if isinstance(word, str) and word in _WORDS), None)


def _error_body(error: Exception) -> Mapping[str, Any]:
    """The provider's own message; Anthropic's library keeps the envelope, OpenAI's does not."""
    body: Any = getattr(error, "body", None)
    if isinstance(body, str) and not body.lstrip().startswith("<"):  # a page, of some gateway, says nothing
        return {"message": body}
    if not isinstance(body, Mapping):
        return {}
    inner = cast("Mapping[str, Any]", body).get("error")
    return cast("Mapping[str, Any]", inner if isinstance(inner, Mapping) else body)


def _reason_of(error: Exception) -> str:
    body = _error_body(error)
    # Providers say `message`; compatible servers also one of the others.
    text = next((body[key] for key in ("message", "error", "detail") if isinstance(body.get(key), str)), "")
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split()).rstrip(".")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _retry_after(error: Exception) -> str:
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    value: Any = headers.get("retry-after") if headers is not None else None
    return f"{value} s" if isinstance(value, str) and value.isdecimal() and len(value) < 6 else ""


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or any("Timeout" in kind.__name__ for kind in type(error).__mro__)


def _is_network(error: Exception) -> bool:
    return isinstance(error, OSError) or any(
        kind.__name__ == "APIConnectionError" or kind.__module__.partition(".")[0] in _NETWORK
        for kind in type(error).__mro__
    )
