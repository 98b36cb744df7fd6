"""What outlives a process: the logins of a client, kept where only its user can read them."""

from __future__ import annotations

from .tokens import (
    FileTokens,
    KeyringTokens,
    MemoryTokens,
    StoreUnusable,
    TokenStore,
    default_tokens,
    keys_of_url,
    token_key,
)

__all__ = [
    "FileTokens",
    "KeyringTokens",
    "MemoryTokens",
    "StoreUnusable",
    "TokenStore",
    "default_tokens",
    "keys_of_url",
    "token_key",
]
