"""The proxy that the environment wants requests to go through (HTTP_PROXY, HTTPS_PROXY, NO_PROXY; P44)."""

from __future__ import annotations

import urllib.request
from urllib.parse import urlsplit

from trimaran.oauth.urls import is_loopback_host


def proxy_for(url: str) -> str | None:
    """The proxy for a URL; never one for this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback_host(host) or host.endswith(".localhost"):
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(host) or urllib.request.proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"  # many write only host and port


def bare_proxy(proxy: str | None) -> str:
    """A proxy's address without its credentials."""
    scheme, _, rest = (proxy or "").partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"
