"""What a view may reach: origins that are origins, and a policy that gains nothing else (protocol.md 5.3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.ext.apps import Csp, allow_attribute
from trimaran.ext.apps.policy import MAX_DOMAINS, PERMISSIONS, origin_problem

NOTHING = {
    "default-src": "'none'",
    "script-src": "'self' 'unsafe-inline'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "media-src": "'self' data:",
    "connect-src": "'none'",
    "frame-src": "'none'",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'none'",
}
A, B = "https://a.example", "https://*.b.example"

# What each list adds, directive by directive.
ADDED: dict[str, dict[str, str]] = {
    "connect_domains": {"connect-src": f"'self' {A} {B}"},
    "resource_domains": {
        "script-src": f"'self' 'unsafe-inline' {A} {B}",
        "style-src": f"'self' 'unsafe-inline' {A} {B}",
        "img-src": f"'self' data: {A} {B}",
        "font-src": f"'self' {A} {B}",
        "media-src": f"'self' data: {A} {B}",
    },
    "frame_domains": {"frame-src": f"{A} {B}"},
    "base_uri_domains": {"base-uri": f"{A} {B}"},
}

GOOD = [
    "https://api.example.com",
    "http://localhost:3000",
    "http://127.0.0.1:8080",
    "https://[::1]:8443",
    "https://*.example.com",
    "https://xn--bcher-kva.example",
    "wss://live.example.com",
    "HTTPS://API.Example.com",
]

BAD: dict[str, Any] = {
    "a keyword": "'unsafe-eval'",
    "another keyword": "'self'",
    "everything": "*",
    "every host": "https://*",
    "half the world": "https://*.com",
    "a wildcard inside": "https://a.*.example.com",
    "a wildcard within a label": "https://a*.example.com",
    "a scheme": "https:",
    "a scheme and nothing": "https://",
    "data": "data:",
    "blob": "blob:",
    "a bare host": "api.example.com",
    "another scheme": "ftp://example.com",
    "script": "javascript://example.com",
    "a path": "https://example.com/api",
    "a query": "https://example.com?x",
    "a user": "https://user@example.com",
    "a second directive": "https://a.example; script-src *",
    "a second policy": "https://a.example, default-src *",
    "a second origin": "https://a.example https://b.example",
    "a line break": "https://a.example\nSet-Cookie: x",
    "a line break at the end": "https://a.example\n",
    "a tab": "https://a.example\t*",
    "a quote": "https://a.example'",
    "a double quote": 'https://a.example"',
    "an international name": "https://bücher.example",
    "a dot too many": "https://a..example",
    "a hyphen too early": "https://-a.example",
    "port 0": "https://a.example:0",
    "a port too high": "https://a.example:65536",
    "any port": "https://a.example:*",
    "too long": "https://" + "a." * 200 + "example",
    "empty": "",
    "a number": 7,
    "nothing": None,
    "a list": ["https://a.example"],
}


def test_nothing_declared_is_the_strictest_policy() -> None:
    """Spec: the default when `ui.csp` is omitted; ours is stricter for forms, frames and objects."""
    assert Csp().directives() == NOTHING
    assert Csp().policy == "; ".join(f"{k} {v}" for k, v in NOTHING.items())


@pytest.mark.parametrize("field", ADDED)
def test_each_list_opens_its_own_directives_and_no_other(field: str) -> None:
    made = Csp(**{field: (A, B)})
    assert made.directives() == {**NOTHING, **ADDED[field]}


@pytest.mark.parametrize("origin", GOOD)
def test_an_origin_is_taken_as_it_is(origin: str) -> None:
    assert origin_problem(origin) is None
    csp, problems = Csp.read({"connectDomains": [origin]})
    assert (csp.connect_domains, problems) == ((origin,), [])


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_what_is_no_origin_never_reaches_a_policy(value: Any) -> None:
    assert origin_problem(value)
    for key in ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"):
        csp, problems = Csp.read({key: [value]})
        assert csp == Csp()
        assert len(problems) == 1
        assert key in problems[0]


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_not_even_from_a_csp_that_was_made_by_hand(value: Any) -> None:
    made = Csp(**dict.fromkeys(ADDED, (value,)))
    assert made.directives() == NOTHING


@given(st.text())
def test_no_text_can_break_out_of_a_directive(text: str) -> None:
    policy = Csp(connect_domains=(text, "https://ok.example" + text)).policy
    parts = policy.split("; ")
    assert [part.split(" ")[0] for part in parts] == list(NOTHING)
    assert not set(policy) & set(',\r\n"*') or "*." in policy
    assert "connect-src" in policy


def test_sockets_are_for_connections_only() -> None:
    for key in ("resourceDomains", "frameDomains", "baseUriDomains"):
        csp, problems = Csp.read({key: ["wss://live.example.com"]})
        assert csp == Csp()
        assert "http, https" in problems[0]


def test_a_slash_at_the_end_and_repetitions_are_dropped() -> None:
    csp, problems = Csp.read({"connectDomains": ["https://a.example/", "https://a.example"]})
    assert (csp.connect_domains, problems) == (("https://a.example",), [])


@pytest.mark.parametrize("value", ["https://a.example", {"a": 1}, 7], ids=["text", "object", "number"])
def test_a_list_that_is_none_is_said_to_be_none(value: Any) -> None:
    csp, problems = Csp.read({"connectDomains": value})
    assert csp == Csp()
    assert problems == [f"csp.connectDomains is a list of origins, not {type(value).__name__}"]


def test_what_csp_does_not_have_is_named() -> None:
    csp, problems = Csp.read({"scriptDomains": [A], "connectDomains": [A]})
    assert csp == Csp(connect_domains=(A,))
    assert "'scriptDomains'" in problems[0]
    assert Csp.read([A])[1] == ["csp is a mapping of lists of origins, not list"]


def test_a_list_has_an_end() -> None:
    csp, problems = Csp.read({"connectDomains": [f"https://a{n}.example" for n in range(MAX_DOMAINS + 5)]})
    assert len(csp.connect_domains) == MAX_DOMAINS
    assert len(problems) == 1


def test_it_goes_on_the_wire_under_the_specs_names() -> None:
    whole = Csp(connect_domains=(A,), resource_domains=(B,), frame_domains=(A,), base_uri_domains=(B,))
    assert whole.to_json() == {
        "connectDomains": [A],
        "resourceDomains": [B],
        "frameDomains": [A],
        "baseUriDomains": [B],
    }
    assert Csp.read(whole.to_json()) == (whole, [])
    assert Csp().to_json() == {}


def test_a_host_can_take_origins_away_but_not_add_any() -> None:
    declared = Csp(
        connect_domains=("https://api.good.example", "https://evil.example", "wss://api.good.example"),
        resource_domains=("https://CDN.exact.example", "https://exact.example"),
        frame_domains=("https://notgood.example",),
    )
    kept = declared.within(["https://*.good.example", "https://cdn.exact.example/", "https://unasked.example"])
    assert kept == Csp(connect_domains=("https://api.good.example",), resource_domains=("https://CDN.exact.example",))
    assert declared.within([]) == Csp()


def test_a_wildcard_is_allowed_by_the_same_wildcard_only() -> None:
    wide = Csp(connect_domains=("https://*.good.example", "https://*.example"))
    assert wide.within(["https://*.good.example"]).connect_domains == ("https://*.good.example",)
    assert wide.within(["https://a.good.example"]) == Csp()


def test_permissions_become_an_allow_attribute() -> None:
    assert allow_attribute(PERMISSIONS) == "camera; microphone; geolocation; clipboard-write"
    assert allow_attribute(["clipboardWrite", "camera *; usb", "usb"]) == "clipboard-write"
    assert allow_attribute([]) == ""
