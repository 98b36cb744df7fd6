"""Which URLs may be fetched or opened, and when two of them name the same server.

Pure: it judges the spelling of a URL. `transports/fetch.py` judges the addresses that a name resolves to, with
`is_public_address`. A server chooses the URLs of a login, so each may be an attempt to make this
machine connect to a neighbour in the private network, to a cloud's metadata address, or to itself.

A URL that two parsers could read differently is refused first (backslashes, userinfo, escapes in a host, 0x7f.1 for
127.0.0.1).
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from trimaran.errors import ConfigError, UnsafeUrl

MAX_URL: Final = 8192  # servers accept request lines of this length; authorization URLs are the longest
_SHOWN: Final = 200
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_AUTHORITY: Final = re.compile(rf"(\[[0-9A-Fa-f:.]+\]|{_LABEL}(?:\.{_LABEL})*)(?::([0-9]{{1,5}}))?")
# Every resolver takes a host whose last label is a number for an address.
_NUMBER: Final = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)")
# The characters of a URL (RFC 3986).
_URL_TEXT: Final = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*")
_DOTS: Final = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)

# Networks that are not public, from the IANA special-purpose registries, with their names in messages.
_SPECIAL_4: Final = [
    (IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "an unspecified address"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a carrier's private address"),
        ("127.0.0.0/8", "a loopback address"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "an address for documentation"),
        ("192.88.99.0/24", "a reserved address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "an address for benchmarks"),
        ("198.51.100.0/24", "an address for documentation"),
        ("203.0.113.0/24", "an address for documentation"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
    )
]
_SPECIAL_6: Final = [
    (IPv6Network(network), kind)
    for network, kind in (
        ("::/128", "an unspecified address"),
        ("::1/128", "a loopback address"),
        ("::ffff:0:0/96", "an IPv4 address inside an IPv6 one"),
        ("::/96", "an IPv4 address inside an IPv6 one"),
        ("64:ff9b:1::/48", "an address for translation inside a network"),
        ("2001::/23", "a reserved address"),  # Teredo, which carries an IPv4 address, among others
        ("2001:db8::/32", "an address for documentation"),
        ("2002::/16", "an IPv4 address inside an IPv6 one"),  # 6to4
        ("3fff::/20", "an address for documentation"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a private address"),
        ("ff00::/8", "a multicast address"),
    )
]
_LOOPBACK_4: Final = IPv4Network("127.0.0.0/8")
_GLOBAL_6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")


def _kind(address: IPv4Address | IPv6Address) -> str:
    """The kind of a special address; "" for a public one."""
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _SPECIAL_4 if address in network), "")
    if address in _NAT64:
        return _kind(IPv4Address(int(address) & 0xFFFFFFFF))
    special = next((kind for network, kind in _SPECIAL_6 if address in network), "")
    return special or ("" if address in _GLOBAL_6 else "a reserved address")


def is_public_address(ip_text: str) -> bool:
    """Whether an address is public: not of this machine, not of its network, not reserved.

    An address of the NAT64 prefix counts as the IPv4 address in it: in a network with only IPv6,
    every name of the IPv4 internet resolves to such an address.
    """
    try:
        return "%" not in ip_text and not _kind(ip_address(ip_text))
    except ValueError:
        return False


def is_loopback_host(host: str) -> bool:
    """Whether this is `localhost`, an address in 127.0.0.0/8 or ::1. Other names that resolve there do not count."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if bare.lower() == "localhost":
        return True
    try:
        address = ip_address(bare)
    except ValueError:
        return False
    return address in _LOOPBACK_4 if isinstance(address, IPv4Address) else address == IPv6Address(1)


def bare_url(url: str) -> str:
    """A URL for a message: without query, fragment and userinfo, on one line, not too long."""
    bare = re.split(r"[?#]", url, maxsplit=1)[0]
    scheme, separator, rest = bare.partition("://")
    if separator:
        authority, slash, path = rest.partition("/")
        bare = scheme + separator + authority.rpartition("@")[2] + slash + path
    else:
        bare = bare.rpartition("@")[2]
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in bare[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def check_url(
    url: str,
    *,
    step: str,
    allow_http_loopback: bool = True,
    allow_loopback: bool = True,
    allow_private: bool = False,
) -> None:
    """Refuse a URL that must not be fetched, by its spelling alone.

    Args:
        step: the purpose of the request, in the words of an error message.
        allow_http_loopback: accept http for a loopback host.
        allow_loopback: accept loopback hosts.
        allow_private: accept addresses that are not public, loopback included.

    Raises:
        UnsafeUrl: it is not https, not absolute, ambiguous, or has an address that is not public.
    """
    parts = _split(url, step)
    host = parts.hostname or ""
    is_loopback = is_loopback_host(host)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback and allow_http_loopback):
        raise _unsafe(step, url, "it is not https, which only a loopback host may leave out")
    if is_loopback:
        if not (allow_loopback or allow_private):
            raise _unsafe(step, url, "it points to this machine, but the server is on another", allowable=True)
        return
    if allow_private:
        return
    try:
        address = ip_address(host)
    except ValueError:
        return
    kind = _kind(address)
    if not kind and address in _NAT64:
        kind = "an IPv4 address inside an IPv6 one"
    if kind:
        raise _unsafe(step, url, f"{address} is {kind}", allowable=True)


def check_browser_url(url: str) -> None:
    """Refuse a URL that must not be opened in a browser: it must be https, or http on this machine.

    A browser may reach its user's own network, so private addresses are fine; another scheme could run a program or read a file.

    Raises:
        UnsafeUrl: it is neither, or ambiguous.
    """
    check_url(url, step="login", allow_private=True)
    if not _URL_TEXT.fullmatch(url):
        raise _unsafe("login", url, "it has characters that a URL must not have")


def _split(url: str, step: str) -> SplitResult:
    """The parts of a URL. An ambiguous URL is refused."""
    if len(url) > MAX_URL:
        raise _unsafe(step, url, f"it is longer than {MAX_URL} characters")
    if "\\" in url or not url.isprintable() or " " in url:
        raise _unsafe(step, url, "it has a blank, a backslash or a control character")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unsafe(step, url, "it is not a URL") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise _unsafe(step, url, "it is not an absolute https URL")
    if not parts.netloc:
        raise _unsafe(step, url, "it names no host")
    if "@" in parts.netloc:
        raise _unsafe(step, url, "it has a user name or password")
    if "#" in url:
        raise _unsafe(step, url, "it has a fragment")
    if not _is_sane(parts.netloc):
        raise _unsafe(step, url, "its host must be a name in ASCII, or an address in its usual form")
    return parts


def _is_sane(authority: str) -> bool:
    match = _AUTHORITY.fullmatch(authority)
    if match is None or len(match[1]) > 253 or (match[2] is not None and not 0 < int(match[2]) < 65536):
        return False
    host = match[1]
    if host[0] != "[" and not _NUMBER.fullmatch(host.rpartition(".")[2]):
        return True
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _unsafe(step: str, url: str, why: str, *, allowable: bool = False) -> UnsafeUrl:
    where = bare_url(url)
    advice = (
        "if that is right, allow it with allow_private=True"
        if allowable
        else "tell the operator of the server that named it"
    )
    return UnsafeUrl(f"the {step} failed: {where!r} is not a safe URL: {why}; {advice}", step=step, url=where)


# --- Which server ----------------------------------------------------------------------------------------------------


def _origin(parts: SplitResult) -> tuple[str, str, int | None]:
    return parts.scheme, _host(parts), parts.port or _DEFAULT_PORTS.get(parts.scheme)


def _host(parts: SplitResult) -> str:
    """The host in lower case, an address in its shortest form; IPv6 in brackets."""
    host = parts.hostname or ""
    if ":" not in host:
        return host
    return f"[{ip_address(host)}]"


def is_same_host(url: str, other: str) -> bool:
    """Whether both name the same host, or both name this machine. False if one is not a URL."""
    try:
        host, other_host = urlsplit(url).hostname, urlsplit(other).hostname
    except ValueError:
        return False
    if not host or not other_host:
        return False
    return host == other_host or (is_loopback_host(host) and is_loopback_host(other_host))


def canonical_resource(url: str) -> str:
    """The name of an MCP server in a `resource` parameter (RFC 8707), made from its URL.

    Scheme and host in lower case, no default port, no fragment, no userinfo; the whole path, since that is the most
    specific name. The slash of an empty path goes; one behind a path stays, for only the server knows whether it counts.

    Raises:
        ConfigError: this is not an absolute http or https URL.
    """
    try:
        parts = urlsplit(url)
        scheme, host, port = _origin(parts)
    except ValueError:
        scheme = host = ""
        port, parts = None, urlsplit("")
    if scheme not in _DEFAULT_PORTS or not host:
        raise ConfigError(
            f"{bare_url(url)!r} cannot name a server: write an absolute URL, like https://example.com/mcp"
        )
    origin = f"{scheme}://{host}" if port == _DEFAULT_PORTS[scheme] else f"{scheme}://{host}:{port}"
    path = "" if parts.path == "/" else parts.path
    return f"{origin}{path}?{parts.query}" if parts.query else origin + path


def resource_matches(prm_resource: str, server_url: str) -> bool:
    """Whether metadata of this `resource` is valid for the server at this URL.

    RFC 9728 (3.3) demands that the resource equals the requested URL. MCP servers also publish one document for a whole
    host, so a parent of the server's path is valid too. Nothing else is, or a server could make its clients get
    tokens for another server. So:

    - the origin is the same: scheme, host and port, where a default port may be left out and case does not count;
    - paths are compared segment by segment, so that /mcp does not cover /mcp-admin, and as they are spelled: case counts,
      escapes are not decoded, and a path with dot segments matches nothing;
    - a slash at the end does not count, since frameworks add and drop it;
    - a query, where the resource has one, must equal the server's, and so must the path; a resource has no fragment.
    """
    try:
        resource, server = _split(prm_resource, "resource"), urlsplit(server_url)
        if _origin(resource) != _origin(server):
            return False
    except (UnsafeUrl, ValueError):
        return False
    inner, outer = _segments(server.path), _segments(resource.path)
    if any(_DOTS.fullmatch(segment) for segment in (*inner, *outer)):
        return False
    if resource.query:
        return outer == inner and resource.query == server.query
    return inner[: len(outer)] == outer


def _segments(path: str) -> list[str]:
    return path.removesuffix("/").split("/")
