"""The options of `connect`, `open_client` and `SyncClient`, as type checkers and editors see them.

`client/options.py` holds their defaults and meanings, and checks the values; a test compares the names there with the names
here. No module imports this one at run time, so it costs a program nothing.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from ssl import SSLContext
from typing import Protocol, TypedDict

from trimaran.auth.principal import Principal
from trimaran.client.option_types import Roots
from trimaran.client.options import Era, SchemaCheck, Tap
from trimaran.client.sandbox_policy import SandboxOption
from trimaran.client.server_requests import Elicitation, LogEntry, Sampling, StateEvent
from trimaran.oauth.grant import Grant
from trimaran.types import Json

__all__ = ["ConnectOptions", "TokenSource"]


class TokenSource(Protocol):
    """An object that makes the Authorization header by itself."""

    def header(self) -> str | Awaitable[str | None] | None:
        """The header's value for the next request."""
        ...

    def refresh(self, www_authenticate: str, /) -> bool | Awaitable[bool | None] | None:
        """Called when the server answers 401. True: the request is sent again."""
        ...


class ConnectOptions(TypedDict, total=False):
    """The options of `connect`, `open_client` and `SyncClient`. `Options` says what each of them does."""

    era: Era
    version: str | None
    timeout: float | None
    max_timeout: float | None
    connect_timeout: float
    client_info: Mapping[str, Json] | None
    capabilities: Mapping[str, Json] | None
    on_elicit: Callable[[Elicitation], object] | None
    on_sample: Callable[[Sampling], object] | None
    roots: Roots | None
    on_log: Callable[[LogEntry], object] | None
    on_notification: Callable[[str, dict[str, Json]], object] | None
    on_request: Callable[[str, dict[str, Json]], object] | None
    on_state: Callable[[StateEvent], object] | None
    handler: object
    schema_check: SchemaCheck
    raise_on_error: bool
    retries: int
    ping_interval: float | None
    ping_failures: int
    max_rounds: int
    max_message_bytes: int
    cache: bool
    tasks: bool
    tap: Tap | None
    auth: str | Grant | TokenSource | Principal | None
    headers: Mapping[str, str] | None
    ssl: SSLContext | bool | None
    env: Mapping[str, str] | None
    inherit_env: bool
    cwd: str | os.PathLike[str] | None
    sandbox: SandboxOption | None
    on_stderr: Callable[[str], None] | None
    grace: float
