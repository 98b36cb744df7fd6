"""More than one way in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, final

from trimaran.errors import ConfigError

from .principal import Principal
from .provider import AuthRequest, Fetch, Provider
from .refusal import Refused

# When all refuse, the refusal that says most: that we do not know, that the caller is known but may not, and so on.
_TELLING: Final = (
    "rate_limited",
    "unavailable",
    "server_error",
    "insufficient_scope",
    "expired_token",
    "invalid_token",
)


StepUp = Callable[[Any, Sequence[str]], str]


@final
class AnyOf(Provider):
    """Tries the providers whose kind of credentials a request carries, in their order: the first that accepts the caller
    decides. A request without credentials is challenged for all kinds, or is anonymous, if `Anonymous` is among the
    providers. Wrong credentials are refused in either case.
    """

    def __init__(self, *providers: Provider, required_scopes: Iterable[str] = ()) -> None:
        super().__init__(required_scopes)
        strangers = [type(provider).__name__ for provider in providers if not isinstance(provider, Provider)]  # pyright: ignore[reportUnnecessaryIsInstance]
        if strangers or len(providers) < 2:
            raise ConfigError(
                f"AnyOf needs two providers or more: AnyOf(Bearer(...), ApiKey(...)), not {', '.join(strangers) or len(providers)}"
            )
        self._providers = providers
        self.allows_anonymous: bool = any(provider.allows_anonymous for provider in providers)
        self.header_names: tuple[str, ...] = tuple(
            dict.fromkeys(name for provider in providers for name in provider.header_names)
        )
        self.expects: str = "; or ".join(dict.fromkeys(filter(None, (provider.expects for provider in providers))))
        self.needs_scope: bool = any(provider.needs_scope for provider in providers)
        self.offers_login: bool = any(provider.offers_login for provider in providers)
        steps: list[StepUp | None] = [getattr(provider, "step_up", None) for provider in providers]
        # The step-up challenge of the first provider that has one.
        self.step_up: StepUp | None = next((step for step in steps if step is not None), None)

    async def start(self, fetch: Fetch | None = None) -> None:
        for provider in self._providers:
            await provider.start(fetch)

    async def close(self) -> None:
        for provider in self._providers:
            await provider.close()

    def presents(self, request: AuthRequest) -> bool:
        return any(provider.presents(request) for provider in self._providers)

    def challenge(self, refusal: Refused) -> str:
        return ", ".join(filter(None, (provider.challenge(refusal) for provider in self._providers)))

    def documents(self) -> Mapping[str, Callable[[AuthRequest], bytes]]:
        return {path: document for provider in self._providers for path, document in provider.documents().items()}

    def document(self, request: AuthRequest) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """The reply of the first that has something for everybody to read at this path; None if none has."""
        readers = (getattr(provider, "document", None) for provider in self._providers)
        return next((reply for read in readers if read is not None and (reply := read(request)) is not None), None)

    async def identify(self, request: AuthRequest) -> Principal | None:
        refusals: list[Refused] = []
        for provider in self._providers:
            if not provider.presents(request):
                continue
            try:
                return await provider.authenticate(request)
            except Refused as refusal:
                refusals.append(refusal)
        if refusals:
            raise _most_telling(refusals)
        if self.allows_anonymous:
            return None
        raise Refused("missing")


def _most_telling(refusals: list[Refused]) -> Refused:
    for kind in _TELLING:
        for refusal in refusals:
            if refusal.kind == kind:
                return refusal
    return refusals[0]
