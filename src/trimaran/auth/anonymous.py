"""Calls without credentials: the default, and one of the choices in `AnyOf` (R153, R165)."""

from __future__ import annotations

from typing import final

from .principal import Principal
from .provider import AuthRequest, Provider
from .refusal import Refused


@final
class Anonymous(Provider):
    """Anonymous callers: `ctx.auth` is None, and they cannot use what needs scopes."""

    allows_anonymous = True

    def __init__(self) -> None:
        super().__init__()

    def presents(self, request: AuthRequest) -> bool:
        return False

    def challenge(self, refusal: Refused) -> str:
        return ""

    async def identify(self, request: AuthRequest) -> Principal | None:
        return None
