"""Authentication in your own words: an object with two methods, or one function (R162)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, cast, final

from trimaran.errors import ConfigError

from .bearer import named
from .extract import api_key, bearer_token, presents
from .principal import Principal
from .provider import AuthRequest, Fetch, Provider, ask, check_callable, check_realm, consult, read_info
from .refusal import Refused, challenge


@final
class Custom(Provider):
    """Callers with a token that your function judges: from `Authorization: Bearer`, or else from `X-API-Key`.

    `source` has `authenticate(token, state)`, and may have `init(opts)`, which runs once when the server starts and returns
    the first state; either may be async. A plain function counts as `authenticate`. It returns
    `(info, next_state)`, or just `info` to leave the state unchanged. `info` is a mapping with `subject`, `scopes` and
    anything else (see `Principal.claims`), or a `Principal`. A reason, an exception or None refuses the caller.

    Calls overlap, and the last one to finish sets the state: use it as a cache, not as a counter.
    """

    header_names: tuple[str, ...] = ("x-api-key",)
    expects: str = "a token in the header Authorization, as Bearer, or in the header X-API-Key"

    def __init__(
        self,
        source: object = None,
        opts: object = None,
        *,
        authenticate: Callable[..., object] | None = None,
        init: Callable[..., object] | None = None,
        required_scopes: Iterable[str] = (),
        realm: str | None = "mcp",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(required_scopes)
        if (source is None) == (authenticate is None):
            raise ConfigError("Custom takes an object with authenticate(token, state), or authenticate=, and not both")
        if source is not None:
            authenticate = cast("Any", getattr(source, "authenticate", source))
            init = init or getattr(source, "init", None)
        if authenticate is None or not callable(authenticate):
            raise ConfigError(f"Custom: {type(source).__name__} has no authenticate(token, state)")
        check_callable("init", init)
        self._authenticate = authenticate
        self._init = init
        self._opts: Any = opts if opts is not None else dict[str, Any]()
        self._state: Any = None if init is not None else self._opts
        self._realm = check_realm(realm)
        self._clock = clock

    async def start(self, fetch: Fetch | None = None) -> None:
        if self._init is not None:
            self._state = await ask(self._init, self._opts)

    def presents(self, request: AuthRequest) -> bool:
        return presents(request.headers, "bearer") or request.headers.get("x-api-key") is not None

    def challenge(self, refusal: Refused) -> str:
        if refusal.kind == "insufficient_scope":
            return refusal.bearer_challenge(self._realm)
        return challenge("Bearer", {"realm": self._realm})

    async def identify(self, request: AuthRequest) -> Principal | None:
        token = bearer_token(request.headers) or api_key(request.headers)
        if token is None:
            raise Refused("missing")
        info: Any = await consult("custom authentication", self._authenticate, token, self._state)
        if isinstance(info, tuple) and len(cast("tuple[Any, ...]", info)) == 2:
            info, self._state = cast("tuple[Any, Any]", info)
        principal = read_info("custom authentication", info, None, kind="invalid_token")
        if principal is None:
            raise Refused("invalid_token", reason="refused by the custom authentication")
        if principal.expires_at is not None and self._clock() >= principal.expires_at:
            raise Refused("expired_token")
        return named(principal, token)
