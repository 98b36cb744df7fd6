"""ApiCredentials for an API, put where its security schemes say.

    auth="secret"                              the one secret, for whatever scheme an operation needs
    auth={"api_key": "...", "oauth": get}      by the scheme's name; a function is called for each request, with the Context

A basic scheme takes "user:password". OAuth and OpenID schemes take an access token. A document without security
schemes gets the secret as a bearer token. `forward_token` uses the caller's token where a bearer token is taken and no
secret is given.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from trimaran.errors import ConfigError, ToolError
from trimaran.server.context import Context

from .document import as_map, as_text
from .operations import Operation
from .requests import ApiRequest

Credential: TypeAlias = str | Callable[[Context], str | Awaitable[str]]
Auth: TypeAlias = Credential | Mapping[str, Credential]


_BEARER: Final = ""  # stands for the scheme of a document that has none


def _takes_bearer(scheme: Mapping[str, Any]) -> bool:
    return scheme.get("type") in ("oauth2", "openIdConnect") or as_text(scheme.get("scheme")).lower() == "bearer"


def _caller_token(ctx: Context) -> str:
    kind, _, token = (ctx.header("authorization") or "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise ToolError("the API needs the caller's token, and this call brought none: connect with a bearer token")
    return token.strip()


class ApiCredentials:
    """The secrets of one API.

    Raises:
        ConfigError: `auth` names a scheme that the document does not have.
    """

    def __init__(self, schemes: Mapping[str, Any], auth: Auth | None, *, forward_token: bool = False) -> None:
        self._schemes = schemes
        self._secrets: dict[str, Credential] = {}
        if auth is not None and not isinstance(auth, str) and not callable(auth):
            unknown = sorted(set(auth) - set(schemes))
            if unknown:
                raise ConfigError(
                    f"auth names {', '.join(map(repr, unknown))}; the document's security schemes are: "
                    f"{', '.join(map(repr, schemes)) or 'none'}"
                )
            self._secrets = dict(auth)
        elif auth is not None:
            self._secrets = dict.fromkeys(schemes or (_BEARER,), auth)
        if forward_token:
            bearers = [name for name in schemes if _takes_bearer(as_map(schemes[name]))]
            for name in bearers if schemes else [_BEARER]:
                self._secrets.setdefault(name, _caller_token)
        self._needed_everywhere = [[_BEARER]] if _BEARER in self._secrets and not schemes else []

    async def apply(self, operation: Operation, request: ApiRequest, ctx: Context) -> None:
        """Add the credentials that the operation needs.

        Raises:
            ToolError: it needs some that nobody gave.
        """
        names = self._choose(operation)
        for name in names:
            await self._add(name, request, ctx)
        for place, key in operation.credentials:
            owner = next((name for name in self._secrets if self._place_of(name) == (place, key)), None)
            if owner is None and names:
                owner = names[0]  # the same token once more
            elif owner in names:
                continue
            if owner is not None:
                _write(request, place, key, await self._secret(owner, ctx))

    def _choose(self, operation: Operation) -> list[str]:
        """The schemes to use: the first alternative whose secrets are all here."""
        alternatives = operation.security or self._needed_everywhere
        for names in alternatives:
            if names and all(name in self._secrets for name in names):
                return names
        if not alternatives or [] in alternatives:
            return []
        schemes = " or ".join(" and ".join(names) for names in alternatives)
        raise ToolError(
            f"{operation.label} needs credentials ({schemes}), and the server has none. Its operator sets auth=."
        )

    def _place_of(self, name: str) -> tuple[str, str]:
        scheme = as_map(self._schemes.get(name))
        return as_text(scheme.get("in")), as_text(scheme.get("name"))

    async def _secret(self, name: str, ctx: Context) -> str:
        secret = self._secrets[name]
        if isinstance(secret, str):
            return secret
        answer = secret(ctx)
        return await answer if inspect.isawaitable(answer) else answer

    async def _add(self, name: str, request: ApiRequest, ctx: Context) -> None:
        secret = await self._secret(name, ctx)
        scheme = as_map(self._schemes.get(name))
        if scheme.get("type") == "apiKey":
            _write(request, *self._place_of(name), secret)
        elif scheme.get("type") == "basic" or as_text(scheme.get("scheme")).lower() == "basic":
            request.headers["authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
        else:
            request.headers["authorization"] = f"Bearer {secret}"


def _write(request: ApiRequest, place: str, key: str, secret: str) -> None:
    if place == "query":
        request.query.append(f"{quote(key, safe='')}={quote(secret, safe='')}")
    elif place == "cookie":
        request.cookies[key] = secret
    else:
        request.headers[key.lower()] = secret
