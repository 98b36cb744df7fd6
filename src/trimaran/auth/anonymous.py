"""Everyone is let in, as nobody: the default, and in `Several` the choice to come without credentials (R153, R165)."""

from __future__ import annotations

from typing import final

from .principal import Principal
from .provider import AuthRequest, Provider
from .refusal import Refused

__all__ = ["Anonymous"]


@final
class Anonymous(Provider):
    """Nobody in particular: `ctx.auth` is None, and what needs scopes stays closed."""

    allows_anonymous = True

    def __init__(self) -> None:
        super().__init__()

    def presents(self, request: AuthRequest) -> bool:
        return False

    def challenge(self, refusal: Refused) -> str:
        return ""

    async def identify(self, request: AuthRequest) -> Principal | None:
        return None
