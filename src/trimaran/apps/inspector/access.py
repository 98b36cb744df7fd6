"""Who may use the inspector: whoever has the link that the command printed, once; then whoever has its session.

The inspector starts programs and holds credentials, so other pages, other users of the machine and other machines must not
reach it. The token of the link works once and becomes two things: a cookie, which opens the page and its frames, and a
session, which opens the interface. The page keeps the session in the storage of its origin and sends it as a header. The
cookie alone would not do: cookies know no port, so a browser sends ours to every other server on 127.0.0.1 that it visits.
A browser that we start gets its link as an argument, which every user of the machine can read. That link has a token of its
own, which is void while another user is connected to our port; the printed link works all the same.
Host and Origin must be exactly ours: a page elsewhere that resolves its own name to 127.0.0.1 is refused (DNS rebinding).
"""

from __future__ import annotations

import errno
import hmac
import os
import secrets
import sys
from collections.abc import Iterable
from typing import Final, final

from trimaran.files import read_file
from trimaran.protocol.headers import HeaderLookup

_BYTES: Final = 32
_SOCKETS: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_MOST_SOCKETS: Final = 64 * 1024 * 1024  # bytes; some 400,000 connections
_LOOPBACK: Final = f"{int.from_bytes(bytes((127, 0, 0, 1)), sys.byteorder):08X}"  # as those tables write 127.0.0.1
_ROOT: Final = 0


@final
class PageAccess:
    """The token, the cookie and the session of one run."""

    def __init__(self) -> None:
        self._token: str | None = secrets.token_urlsafe(_BYTES)
        self._opening_token: str | None = secrets.token_urlsafe(_BYTES)
        self._session = secrets.token_urlsafe(_BYTES)
        self._cookie = secrets.token_urlsafe(_BYTES)
        self.port: int = 0

    @property
    def token(self) -> str:
        """The token of the link; empty when it was used."""
        return self._token or ""

    @property
    def opening_token(self) -> str:
        """The token of the link for a browser that we start; empty when it was used."""
        return self._opening_token or ""

    def renew(self) -> str:
        """A token for another link."""
        self._token = secrets.token_urlsafe(_BYTES)
        return self._token

    def redeem(self, token: str) -> str | None:
        """The session for a token that was not used before, by either link."""
        is_printed = self._token is not None and _are_equal(token, self._token)
        is_opened = self._opening_token is not None and _are_equal(token, self._opening_token)
        if not is_printed and not (is_opened and not has_strangers(self.port)):
            return None
        self._token = self._opening_token = None
        return self._session

    @property
    def cookie_name(self) -> str:
        # Two inspectors on one machine share one jar, and need two names.
        return f"trimaran_inspect_{self.port}"

    def cookie(self) -> str:
        return f"{self.cookie_name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"

    def has_session(self, headers: HeaderLookup) -> bool:
        """True if a request brings the session as a bearer token: it may use the interface."""
        scheme, _, credential = (headers.get("authorization") or "").partition(" ")
        return scheme.lower() == "bearer" and _are_equal(credential.strip(), self._session)

    def has_cookie(self, headers: HeaderLookup) -> bool:
        """True if a request brings the cookie: it may load the page, which holds nothing, and frames whose names it knows."""
        for part in (headers.get("cookie") or "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie_name and _are_equal(value, self._cookie):
                return True
        return False

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


def has_strangers(port: int, tables: Iterable[str] = _SOCKETS) -> bool:
    """True if another user of this machine is connected to a port of 127.0.0.1. Only Linux tells; root is no stranger."""
    for table in tables:
        try:
            rows = read_file(table, _MOST_SOCKETS).decode().splitlines()[1:]
        except OSError as error:
            if error.errno == errno.EFBIG:  # whoever fills the table hides nothing
                return True
            continue
        known = (_ROOT, os.getuid())
        for row in rows:
            _, _, peer, _, _, _, _, owner, *_ = row.split()
            address, _, number = peer.rpartition(":")
            if address.endswith(_LOOPBACK) and int(number, 16) == port and int(owner) not in known:
                return True
    return False


def _are_equal(value: str, secret: str) -> bool:
    return hmac.compare_digest(value.encode(), secret.encode())
