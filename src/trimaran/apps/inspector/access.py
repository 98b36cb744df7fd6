"""Who may use the inspector: whoever has the link that the command printed, once; then whoever has its session.

The inspector starts programs and holds credentials, so other pages, other users of the machine and other machines must not
reach it. The token of the link works once and becomes a cookie that scripts cannot read and other sites cannot send. Host
and Origin must be exactly ours: a page elsewhere that resolves its own name to 127.0.0.1 is refused (DNS rebinding).
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final, final

from trimaran.protocol.headers import HeaderLookup

__all__ = ["PageAccess"]

_BYTES: Final = 32


@final
class PageAccess:
    """The token and the session of one run."""

    def __init__(self) -> None:
        self._token: str | None = secrets.token_urlsafe(_BYTES)
        self._session = secrets.token_urlsafe(_BYTES)
        self.port: int = 0

    @property
    def token(self) -> str:
        """The token of the link; empty when it was used."""
        return self._token or ""

    def renew(self) -> str:
        """A token for another link."""
        self._token = secrets.token_urlsafe(_BYTES)
        return self._token

    def redeem(self, token: str) -> str | None:
        """The session for a token that was not used before."""
        if self._token is None or not hmac.compare_digest(token.encode(), self._token.encode()):
            return None
        self._token = None
        return self._session

    @property
    def cookie_name(self) -> str:
        # Cookies do not know ports: two inspectors on one machine need two names.
        return f"trimaran_inspect_{self.port}"

    def cookie(self) -> str:
        return f"{self.cookie_name}={self._session}; Path=/; HttpOnly; SameSite=Strict"

    def has_session(self, headers: HeaderLookup) -> bool:
        """True if a request brings the session, as a cookie or as a bearer token."""
        scheme, _, credential = (headers.get("authorization") or "").partition(" ")
        if scheme.lower() == "bearer" and self._is_session(credential.strip()):
            return True
        for part in (headers.get("cookie") or "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie_name and self._is_session(value):
                return True
        return False

    def _is_session(self, value: str) -> bool:
        return hmac.compare_digest(value.encode(), self._session.encode())

    def is_from_here(self, headers: HeaderLookup) -> bool:
        """True if the request was sent to us by name, and by our own page if by a page."""
        hosts = {f"127.0.0.1:{self.port}", f"localhost:{self.port}", f"[::1]:{self.port}"}
        host = (headers.get("host") or "").lower()
        if host not in hosts:
            return False
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host}":
            return False
        # A browser says where a request comes from. A link elsewhere may lead here; nothing else elsewhere may.
        site = headers.get("sec-fetch-site") or "none"
        return site in ("same-origin", "none") or headers.get("sec-fetch-dest") == "document"
