"""The options of `Host`, `Host.load`, `start_server` and `answer`, as type checkers see them. `Host` says what each of them does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypedDict

from trimaran.client.option_types import Roots
from trimaran.client.server_requests import Sampling
from trimaran.connect_options import ConnectOptions
from trimaran.oauth.grant import UserAgent
from trimaran.state.token_storage import TokenStore

from .config.model import FlowMode, PinMode, ScanMode
from .consent import ConsentBridge, Question
from .output_limits import OutputLimits
from .permissions import DecisionLog
from .trust.pins import Pins
from .trust.trusted_files import Trust

__all__ = ["AnswerOptions", "HostOptions", "Login", "ServerOptions"]

Login: TypeAlias = UserAgent | Callable[..., object] | bool | None


class ServerOptions(ConnectOptions, total=False):
    """The options of `Host.start_server`: those of `connect`, and how long to wait for the start."""

    startup_timeout: float
    startup_limit: float


class AnswerOptions(TypedDict, total=False):
    """The options of `Host.answer`."""

    timeout: float | None
    media: bool
    conversation: str


class HostOptions(TypedDict, total=False):
    """The options of `Host` and `Host.load`."""

    allow: Iterable[str]
    ask: Iterable[str]
    deny: Iterable[str]
    bridge: ConsentBridge | None
    on_question: Callable[[Question], object] | None
    on_sample: Callable[[str, Sampling], object] | None
    auto_allow: bool
    separator: str | None
    limits: OutputLimits | None
    budget: int | None
    outputs: bool | str | os.PathLike[str] | None
    audit: DecisionLog | str | os.PathLike[str] | None
    tokens: TokenStore | str | os.PathLike[str] | None
    login: Login
    allow_private: bool | None
    roots: Roots | None
    trust: Trust | bool | None
    pins: Pins | PinMode | bool | None
    scan: ScanMode | None
    flow: FlowMode | None
    environ: Mapping[str, str] | None
    wait: bool
    on_change: Callable[[], object] | None
    options: ConnectOptions | None
