"""Which URLs are safe by their spelling, which addresses are public, and which resource speaks for which server."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.errors import ConfigError, UnsafeUrl
from trimaran.oauth.urls import (
    bare_url,
    canonical_resource,
    check_browser_url,
    check_url,
    is_loopback_host,
    is_public_address,
    is_same_host,
    resource_matches,
)

# One address of each range that is not somebody's on the internet, and what a refusal calls it.
INSIDE = [
    ("0.0.0.0", "unspecified"),
    ("0.1.2.3", "unspecified"),
    ("10.0.0.1", "private"),
    ("10.255.255.255", "private"),
    ("100.64.0.1", "carrier"),
    ("100.127.255.255", "carrier"),
    ("169.254.169.254", "link-local"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.0.0.1", "reserved"),
    ("192.0.2.1", "documentation"),
    ("192.88.99.1", "reserved"),
    ("192.168.0.1", "private"),
    ("198.18.0.1", "benchmark"),
    ("198.19.255.255", "benchmark"),
    ("198.51.100.1", "documentation"),
    ("203.0.113.1", "documentation"),
    ("224.0.0.1", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "reserved"),
    ("::", "unspecified"),
    ("::ffff:127.0.0.1", "inside an IPv6"),
    ("::ffff:7f00:1", "inside an IPv6"),
    ("::ffff:8.8.8.8", "inside an IPv6"),
    ("::127.0.0.1", "inside an IPv6"),
    ("64:ff9b::10.0.0.1", "private"),
    ("64:ff9b::a9fe:a9fe", "link-local"),
    ("64:ff9b::127.0.0.1", "loopback"),
    ("64:ff9b:1::1", "translation"),
    ("100::1", "reserved"),
    ("2001::1", "reserved"),
    ("2001:20::1", "reserved"),
    ("2001:db8::1", "documentation"),
    ("2002:7f00:1::", "inside an IPv6"),
    ("2002:808:808::1", "inside an IPv6"),
    ("3fff::1", "documentation"),
    ("4000::1", "reserved"),
    ("5f00::1", "reserved"),
    ("fc00::1", "private"),
    ("fd12:3456::1", "private"),
    ("fe80::1", "link-local"),
    ("fec0::1", "private"),
    ("ff02::1", "multicast"),
]
OUTSIDE = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:4860:4860::8888",
    "2606:4700::1111",
    "2a00:1450::1",
]


def url_of(address: str) -> str:
    return f"https://[{address}]/x" if ":" in address else f"https://{address}/x"


def refusal_of(url: str, **options: bool) -> UnsafeUrl:
    with pytest.raises(UnsafeUrl) as caught:
        check_url(url, step="token request", **options)
    return caught.value


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [*(one for one, _ in INSIDE), "127.0.0.1", "127.255.0.1", "::1"])
def test_an_address_inside_is_not_public(address: str) -> None:
    assert not is_public_address(address)


@pytest.mark.parametrize("address", [*OUTSIDE, "64:ff9b::8.8.8.8"])
def test_an_address_of_the_internet_is_public(address: str) -> None:
    """The last one is what the IPv4 internet looks like where only IPv6 is spoken."""
    assert is_public_address(address)


@pytest.mark.parametrize(
    "text", ["", "example.com", "8.8.8", "8.8.8.8.8", "08.8.8.8", "2606:4700::1111%eth0", "1", "[::1]"]
)
def test_what_is_no_plain_address_is_not_public(text: str) -> None:
    assert not is_public_address(text)


@given(st.ip_addresses())
def test_what_python_knows_as_inside_is_never_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """Two readings of the same registries: ours may be stricter, never laxer."""
    if is_public_address(str(address)) and address not in ipaddress.ip_network("64:ff9b::/96"):
        assert not (address.is_private or address.is_multicast or address.is_reserved or address.is_link_local)


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost", "127.0.0.1", "127.8.9.10", "::1", "[::1]", "0:0:0:0:0:0:0:1"]
)
def test_a_loopback_host_is_known_by_its_spelling(host: str) -> None:
    assert is_loopback_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost.",
        "app.localhost",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.1",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "2130706433",
        "128.0.0.1",
        "0.0.0.0",
        "::",
        "::ffff:127.0.0.1",
        "example.com",
    ],
)
def test_what_only_looks_like_loopback_or_resolves_there_is_not(host: str) -> None:
    assert not is_loopback_host(host)


# --- what may be fetched ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://EXAMPLE.com/",
        "HTTPS://example.com/x",
        "https://as.example.com:8443/tenant/a?x=1&y=%20",
        "https://a-b.c_d.example/.well-known/oauth-authorization-server",
        "https://xn--bcher-kva.example/",
        "https://8.8.8.8/",
        "https://[2606:4700::1111]:8443/",
        "https://intranet/x",
        "https://0x7f.example/",
        "https://example.com/@user/caf\u00e9",
        "http://localhost/",
        "http://localhost:3000/x",
        "http://127.0.0.1:3000/",
        "http://127.9.9.9/",
        "http://[::1]:3000/x",
        "https://localhost/",
    ],
)
def test_an_absolute_https_or_loopback_url_passes(url: str) -> None:
    check_url(url, step="token request")


@pytest.mark.parametrize(("address", "kind"), INSIDE)
def test_an_address_inside_is_refused_and_named(address: str, kind: str) -> None:
    error = refusal_of(url_of(address))
    assert kind in str(error)
    assert "allow_private=True" in str(error)
    assert error.step == "token request"
    assert error.url == url_of(address)


@pytest.mark.parametrize("address", [one for one, _ in INSIDE])
def test_an_address_inside_passes_where_that_is_allowed(address: str) -> None:
    check_url(url_of(address), step="token request", allow_private=True)


def test_no_url_spells_an_ipv4_address_as_an_ipv6_one() -> None:
    """Though a name may resolve to this one (see `is_public_address`)."""
    assert "inside an IPv6 one" in str(refusal_of("https://[64:ff9b::8.8.8.8]/"))


@pytest.mark.parametrize("address", OUTSIDE)
def test_an_address_of_the_internet_passes(address: str) -> None:
    check_url(url_of(address), step="token request")


@pytest.mark.parametrize("allow_private", [False, True], ids=["guarded", "allow_private"])
@pytest.mark.parametrize(
    "url",
    [
        # 127.0.0.1, as some resolvers read it
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0x7F.0.0.0x1/",
        "https://0177.0.0.1/",
        "https://017700000001/",
        "https://127.1/",
        "https://127.0.1/",
        "https://127.0.0.01/",
        "https://127.0.0.1./",
        "https://evil.0x/",
        "https://evil.1/",
        "https://1.2.3.4.5/",
        "https://256.0.0.1/",
        "http://127.1:8080/",
        "http://localhost./",
        "https://[::1%25lo]/",
        "https://[fe80::1%eth0]/",
        "https://[::1/",
        "https://[]/",
        "https://[1.2.3.4]/",
        "https://[::1]evil/",
        # in other digits and dots, which a resolver may fold to plain ones
        "https://\u2460\u2461\u2466.0.0.1/",
        "https://127\u30020\u30020\u30021/",
        "https://\uff11\uff12\uff17.0.0.1/",
        "https://ex\u00e4mple.com/",
        "https://%31%32%37.0.0.1/",
        "https://example%2ecom/",
        # which host?
        "https://user@example.com/",
        "https://user:pass@example.com/",
        "https://example.com@127.0.0.1/",
        "https://@example.com/",
        "https://example.com:80@127.0.0.1/",
        "https://example.com\\@127.0.0.1/",
        "https:\\\\example.com\\",
        "https://example.com/a\\b",
        "https://exa mple.com/",
        "https://example.com/a b",
        " https://example.com/",
        "https://example.com/\n",
        "https://exam\tple.com/",
        "https://example.com\r\nHost: evil/",
        "https://example.com/\x00",
        "https://example.com/\x7f",
        "https://example.com/\u2028",
        "https://example.com/\u200b",
        "https://example.com/\ud800",
        "https://example.com/#",
        "https://example.com/#top",
        "https://example.com#@127.0.0.1/",
        # no host, or none that can be
        "",
        "/relative",
        "//example.com/x",
        "example.com/x",
        "https:example.com",
        "https:/example.com",
        "https://",
        "https:///x",
        "https://:443/",
        "https://example..com/",
        "https://.example.com/",
        "https://example.com./",
        "https://-example.com/",
        "https://example-.com/",
        "https://exam!ple.com/",
        "https://exam;ple.com/",
        "https://" + "a" * 64 + ".com/",
        "https://" + "a." * 127 + "com/",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://example.com:99999999/",
        "https://example.com:/",
        "https://example.com:8a/",
        "https://example.com:-1/",
        "https://example.com/" + "x" * 9000,
        # other schemes
        "http://example.com/",
        "http://10.0.0.1/",
        "http://localhost.evil.example/",
        "http://127.0.0.1.evil.example/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_x",
        "javascript:alert(1)",
        "javascript://example.com/%0aalert(1)",
        "data:text/html,x",
        "unix:/var/run/docker.sock",
        "blob:https://example.com/1",
    ],
)
def test_what_can_be_read_in_two_ways_or_is_not_https_is_refused_always(url: str, allow_private: bool) -> None:
    refusal_of(url, allow_private=allow_private)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://me:pass@example.com/", "a user name or password"),
        ("https://example.com/#x", "a fragment"),
        ("https:///x", "names no host"),
        ("mcp.example.com", "not an absolute https URL"),
        ("https://0x7f.1/", "must be a name in ASCII"),
        ("http://example.com/", "not https"),
    ],
)
def test_a_refusal_says_what_is_wrong(url: str, words: str) -> None:
    assert words in str(refusal_of(url))


@pytest.mark.parametrize("url", ["http://localhost/", "http://127.0.0.1/", "http://[::1]/"])
def test_http_on_loopback_can_be_switched_off(url: str) -> None:
    assert "not https" in str(refusal_of(url, allow_http_loopback=False))
    check_url(url.replace("http:", "https:"), step="token request", allow_http_loopback=False)


@pytest.mark.parametrize("url", ["http://localhost/", "https://127.0.0.1/", "https://[::1]/"])
def test_loopback_can_be_switched_off_unless_all_is_allowed(url: str) -> None:
    error = refusal_of(url, allow_loopback=False)
    assert "this machine" in str(error)
    assert "allow_private=True" in str(error)
    check_url(url, step="token request", allow_loopback=False, allow_private=True)


@given(st.text(max_size=60))
def test_nothing_else_is_raised_for_any_text(text: str) -> None:
    for url in (text, f"https://{text}", f"https://example.com/{text}", f"http://127.0.0.1{text}"):
        try:
            check_url(url, step="token request")
            check_browser_url(url)
        except UnsafeUrl as error:
            assert str(error).isprintable()


@given(st.integers(0, 2**32 - 1), st.sampled_from(["{}", "0x{:x}", "0{:o}"]))
def test_no_number_is_taken_for_a_host(number: int, spelling: str) -> None:
    refusal_of(f"https://{spelling.format(number)}/")


# --- what may be opened ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://as.example.com/authorize?client_id=a&scope=x%20y&state=~z",
        "https://login.corp/authorize",
        "https://10.0.0.5/authorize",
        "http://localhost:9000/authorize?a=(b)*!",
        "http://127.0.0.1/authorize",
        "http://[::1]:9000/authorize",
    ],
)
def test_a_browser_may_open_https_anywhere_and_http_here(url: str) -> None:
    check_browser_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        "java\nscript:alert(1)",
        " javascript:alert(1)",
        "data:text/html,<script>alert(1)</script>",
        "file:///etc/passwd",
        "vbscript:x",
        "about:blank",
        "view-source:https://example.com/",
        "ms-msdt:/id",
        "http://example.com/authorize",
        "http://10.0.0.5/authorize",
        "https://user@example.com/",
        "https://example.com/#x",
        "--help",
        "https://example.com/$(id)`id`",
        'https://example.com/"&calc"',
        "https://example.com/|calc",
        "https://example.com/^&calc",
        "https://example.com/<script>",
        "https://example.com/caf\u00e9",
        "https://example.com/\x1b[2J",
    ],
)
def test_a_browser_opens_nothing_else(url: str) -> None:
    with pytest.raises(UnsafeUrl) as caught:
        check_browser_url(url)
    assert caught.value.step == "login"


# --- what is shown ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://example.com/a?token=s3cret", "https://example.com/a"),
        ("https://example.com/a#s3cret", "https://example.com/a"),
        ("https://user:s3cret@example.com/a", "https://example.com/a"),
        ("https://user:s3cret@example.com", "https://example.com"),
        ("https://user:s3@cret@example.com/@b", "https://example.com/@b"),
        ("user:s3cret@example.com/a", "example.com/a"),
        ("https:user:s3cret@example.com", "example.com"),
        ("https://example.com/\x1b[2J\n", "https://example.com/\ufffd[2J\ufffd"),
        ("https://example.com/" + "x" * 500, "https://example.com/" + "x" * 180 + "..."),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url: str, text: str) -> None:
    assert bare_url(url) == text


@pytest.mark.parametrize(
    "url", ["http://me:s3cret@example.com/?s3cret", "https://10.0.0.1/?s3cret#s3cret", "x:s3cret@y"]
)
def test_a_refusal_shows_nothing_secret(url: str) -> None:
    error = refusal_of(url)
    assert "s3cret" not in str(error)
    assert "s3cret" not in error.url


# --- which server ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "resource"),
    [
        ("https://EXAMPLE.com:443/MCP/", "https://example.com/MCP/"),
        ("HTTPS://Example.COM/mcp", "https://example.com/mcp"),
        ("https://example.com", "https://example.com"),
        ("https://example.com/", "https://example.com"),
        ("https://example.com:443", "https://example.com"),
        ("http://localhost:80/mcp", "http://localhost/mcp"),
        ("http://localhost:443/mcp", "http://localhost:443/mcp"),
        ("https://example.com:8443/a/b", "https://example.com:8443/a/b"),
        ("https://example.com/mcp#part", "https://example.com/mcp"),
        ("https://example.com/mcp?tenant=A", "https://example.com/mcp?tenant=A"),
        ("https://example.com/?tenant=A", "https://example.com?tenant=A"),
        ("https://user:pass@example.com/mcp", "https://example.com/mcp"),
        ("https://[2606:4700:0::1111]:443/mcp", "https://[2606:4700::1111]/mcp"),
        ("https://example.com/%7Ea", "https://example.com/%7Ea"),
    ],
)
def test_a_server_has_one_name(url: str, resource: str) -> None:
    assert canonical_resource(url) == resource
    assert canonical_resource(resource) == resource


@pytest.mark.parametrize(
    "url", ["", "example.com", "/mcp", "ftp://example.com", "https://", "https://[::1", "https://a:99999/"]
)
def test_what_is_no_url_names_no_server(url: str) -> None:
    with pytest.raises(ConfigError, match="absolute URL"):
        canonical_resource(url)


@pytest.mark.parametrize(
    ("resource", "server"),
    [
        ("https://example.com/mcp", "https://example.com/mcp"),
        ("https://example.com/mcp/", "https://example.com/mcp"),
        ("https://example.com/mcp", "https://example.com/mcp/"),
        ("https://example.com", "https://example.com/mcp"),
        ("https://example.com/", "https://example.com/mcp"),
        ("https://example.com", "https://example.com"),
        ("https://example.com", "https://example.com/"),
        ("https://example.com/a", "https://example.com/a/b/mcp"),
        ("https://EXAMPLE.com/mcp", "https://example.COM:443/mcp"),
        ("https://example.com:443/mcp", "https://example.com/mcp"),
        ("http://localhost:3000", "http://localhost:3000/mcp"),
        ("http://localhost:80/mcp", "http://localhost/mcp"),
        ("https://[2606:4700::1111]/mcp", "https://[2606:4700:0::1111]/mcp"),
        ("https://example.com/mcp", "https://example.com/mcp?tenant=a"),
        ("https://example.com/mcp?tenant=a", "https://example.com/mcp?tenant=a"),
        ("https://example.com/mcp", "https://me:pass@example.com/mcp"),
    ],
)
def test_a_resource_speaks_for_its_server_and_what_is_below_it(resource: str, server: str) -> None:
    assert resource_matches(resource, server)


@pytest.mark.parametrize(
    ("resource", "server"),
    [
        ("https://evil.example.com/mcp", "https://example.com/mcp"),
        ("https://evil.example.com/mcp", "http://localhost:3000/mcp"),
        ("https://example.com/mcp", "https://evil.example.com/mcp"),
        ("https://example.com.evil.example/mcp", "https://example.com/mcp"),
        ("https://example.com@evil.example/mcp", "https://evil.example/mcp"),
        ("http://example.com/mcp", "https://example.com/mcp"),
        ("https://example.com:8443/mcp", "https://example.com/mcp"),
        ("http://localhost:3000/mcp", "http://localhost:3001/mcp"),
        ("http://localhost:3000/mcp", "http://127.0.0.1:3000/mcp"),
        ("https://example.com/mcp-admin", "https://example.com/mcp"),
        ("https://example.com/mcp", "https://example.com/mcp-admin"),
        ("https://example.com/mc", "https://example.com/mcp"),
        ("https://example.com/mcp/a", "https://example.com/mcp"),
        ("https://example.com/MCP", "https://example.com/mcp"),
        ("https://example.com/%6dcp", "https://example.com/mcp"),
        ("https://example.com//", "https://example.com/mcp"),
        ("https://example.com/a/..", "https://example.com/a/../mcp"),
        ("https://example.com/a", "https://example.com/a/../mcp"),
        ("https://example.com/a", "https://example.com/a/%2E%2e/mcp"),
        ("https://example.com/mcp/.", "https://example.com/mcp"),
        ("https://example.com/mcp?tenant=b", "https://example.com/mcp?tenant=a"),
        ("https://example.com/mcp?tenant=a", "https://example.com/mcp"),
        ("https://example.com?tenant=a", "https://example.com/mcp?tenant=a"),
        ("https://example.com/mcp#x", "https://example.com/mcp"),
        ("https://example.com\\mcp", "https://example.com/mcp"),
        ("https://example.com:99999/mcp", "https://example.com/mcp"),
        ("urn:mcp:server", "https://example.com/mcp"),
        ("", "https://example.com/mcp"),
        ("https://example.com/mcp", ""),
        ("https://example.com/mcp", "https://[::1"),
    ],
)
def test_a_resource_speaks_for_nothing_else(resource: str, server: str) -> None:
    assert not resource_matches(resource, server)


@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        ("https://a.example/x", "https://A.example:8443/y", True),
        ("http://localhost:1/", "http://localhost:2/", True),
        ("http://localhost:1/", "http://127.0.0.1:2/", True),
        ("https://10.0.0.5/", "https://10.0.0.5:9443/", True),
        ("https://10.0.0.5/", "https://10.0.0.6/", False),
        ("https://a.example/", "https://b.a.example/", False),
        ("https://localhost.evil.example/", "http://localhost/", False),
        ("https://a.example/", "", False),
        ("", "", False),
        ("https://[::1", "https://a.example/", False),
    ],
)
def test_a_host_is_the_same_by_the_same_name_alone(one: str, two: str, is_same: bool) -> None:
    assert is_same_host(one, two) is is_same
