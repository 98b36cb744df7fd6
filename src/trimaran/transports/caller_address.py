"""Where an anonymous caller comes from, as a word to tell callers apart by. It is no proof of anything."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def place_of(address: str | None) -> str:
    """An address as a key for limits: of IPv6 the first 64 bits, the network of one customer. Empty if unknown."""
    if address is None:
        return ""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)
