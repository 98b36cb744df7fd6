"""Choose a model: its provider by its name, its key and address by variables, and its driver if the library is installed.

The order of questions is that of their cost: the name, the key, and only then the library, which takes a second to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from .driver import Driver, ModelProvider, ModelUnavailable


class _Known(NamedTuple):
    """A provider, before its variables were read."""

    title: str
    package: str
    key_variable: str
    url_variable: str
    base_url: str
    beginnings: tuple[str, ...]


_PROVIDERS: Final[Mapping[str, _Known]] = {
    "anthropic": _Known(
        "Anthropic",
        "anthropic",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "https://api.anthropic.com",
        ("claude",),
    ),
    "openai": _Known(
        "OpenAI",
        "openai",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "https://api.openai.com/v1",
        ("gpt", "chatgpt", "o1", "o3", "o4"),
    ),
}


def open_driver(name: str, variables: Mapping[str, str]) -> tuple[str, Driver]:
    """The provider's name and a driver for the model.

    Raises:
        ModelUnavailable: the name tells no provider, or its library or key is missing.
    """
    provider, model = _read_name(name)
    known = _PROVIDERS[provider]
    chosen = ModelProvider(
        title=known.title,
        key_variable=known.key_variable,
        url_variable=known.url_variable,
        base_url=_read_url(known, variables),
        key=_read_key(known, model, variables),
    )
    try:
        return provider, _drive(provider, chosen, model)
    except ImportError as error:
        raise ModelUnavailable(
            f"the model {model!r} needs the library of {known.title}, and it cannot be imported ({error}): "
            f"pip install {known.package}"
        ) from None


def _drive(provider: str, chosen: ModelProvider, model: str) -> Driver:
    if provider == "anthropic":
        from .anthropic_messages import AnthropicMessages

        return AnthropicMessages(chosen, model)
    from .openai_chat import OpenAIChat

    return OpenAIChat(chosen, model)


def _read_name(name: str) -> tuple[str, str]:
    prefix, colon, rest = name.strip().partition(":")
    if colon and prefix in _PROVIDERS and rest.strip():
        return prefix, rest.strip()
    if prefix.startswith(("gemini", "google")):
        raise ModelUnavailable(
            f"{name!r}: Gemini's own API is not driven. These are: anthropic:MODEL, openai:MODEL, and with "
            f"OPENAI_BASE_URL any server that speaks OpenAI's Chat Completions."
        )
    if not colon:
        for provider, known in _PROVIDERS.items():
            if prefix.startswith(known.beginnings):
                return provider, prefix
    raise ModelUnavailable(
        f"whose model is {name!r}? Write anthropic:MODEL or openai:MODEL, for example anthropic:claude-sonnet-5; for a model "
        f"on a compatible server, openai:MODEL and OPENAI_BASE_URL."
    )


def _read_key(known: _Known, model: str, variables: Mapping[str, str]) -> str:
    key = variables.get(known.key_variable, "").strip()
    if not key:
        hint = " (any word will do, if the server of OPENAI_BASE_URL wants none)" if known.package == "openai" else ""
        raise ModelUnavailable(
            f"the model {model!r} needs a key: set {known.key_variable} to your key from {known.title}{hint}"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        # Sent as it is, it would fail in the depths of HTTP, in an error that quotes it.
        raise ModelUnavailable(f"{known.key_variable} holds characters that no key has: set it again, the key alone")
    return key


def _read_url(known: _Known, variables: Mapping[str, str]) -> str:
    url = variables.get(known.url_variable, "").strip() or known.base_url
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        raise ModelUnavailable(f"{known.url_variable} is no address: write it as {known.base_url}, or leave it unset")
    return url
