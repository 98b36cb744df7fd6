"""`WWW-Authenticate` is read as RFC 9110 writes it, and what is written otherwise is skipped, not raised."""

from __future__ import annotations

import pytest

from trimaran.oauth.challenges import Challenge, challenge_for, parse_www_authenticate


def read(header: str) -> list[tuple[str, dict[str, str], str | None]]:
    return [(found.scheme, found.parameters, found.token) for found in parse_www_authenticate(header)]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param(" \t,, ,", [], id="only separators"),
        pytest.param("Bearer", [("bearer", {}, None)], id="scheme alone"),
        pytest.param("Bearer , Basic", [("bearer", {}, None), ("basic", {}, None)], id="two schemes alone"),
        pytest.param(
            'Bearer resource_metadata="https://h/.well-known/x", scope="a b"',
            [("bearer", {"resource_metadata": "https://h/.well-known/x", "scope": "a b"}, None)],
            id="what MCP sends",
        ),
        pytest.param(
            'Newauth realm="apps", type=1, title="Login to \\"apps\\"", Basic realm="simple"',
            [
                ("newauth", {"realm": "apps", "type": "1", "title": 'Login to "apps"'}, None),
                ("basic", {"realm": "simple"}, None),
            ],
            id="the example of RFC 9110",
        ),
        pytest.param("Negotiate YWJj/+d==", [("negotiate", {}, "YWJj/+d==")], id="token68"),
        pytest.param(
            'Negotiate YWJj=, Bearer realm="x"',
            [("negotiate", {}, "YWJj="), ("bearer", {"realm": "x"}, None)],
            id="token68 before another",
        ),
        pytest.param("Basic realm", [("basic", {}, "realm")], id="one bare word is a token68"),
        pytest.param('Bearer REALM="x", rEaLm="y"', [("bearer", {"realm": "x"}, None)], id="first of two wins"),
        pytest.param(
            'Bearer realm = "x" ,\tscope\t=\ty', [("bearer", {"realm": "x", "scope": "y"}, None)], id="blanks"
        ),
        pytest.param('Bearer realm=""', [("bearer", {"realm": ""}, None)], id="empty quoted value"),
        pytest.param('Bearer realm="a, Basic realm=b"', [("bearer", {"realm": "a, Basic realm=b"}, None)], id="commas"),
        pytest.param(r'Bearer realm="a\\b\,\""', [("bearer", {"realm": r'a\b,"'}, None)], id="escapes"),
        pytest.param(
            'Bearer, , Bearer realm="second"', [("bearer", {}, None), ("bearer", {"realm": "second"}, None)], id="twice"
        ),
        pytest.param(
            'DPoP algs="ES256 PS256", error="use_dpop_nonce", Bearer',
            [("dpop", {"algs": "ES256 PS256", "error": "use_dpop_nonce"}, None), ("bearer", {}, None)],
            id="DPoP and Bearer",
        ),
    ],
)
def test_what_the_grammar_allows_is_read(header: str, expected: list[object]) -> None:
    """Whose rule: RFC 9110, 11.6.1."""
    assert read(header) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param('realm="x", Bearer scope=a', [("bearer", {"scope": "a"}, None)], id="parameter before any scheme"),
        pytest.param(
            'Bearer realm="x" scope="a b" error=c',
            [("bearer", {"realm": "x", "scope": "a b", "error": "c"}, None)],
            id="no commas",
        ),
        pytest.param(
            "Bearer resource_metadata=https://h:1/p?q=1;r, scope=a",
            [("bearer", {"resource_metadata": "https://h:1/p?q=1;r", "scope": "a"}, None)],
            id="value that needs quotes",
        ),
        pytest.param(
            'Bearer error_description=No token, please log in, scope="a"',
            [("bearer", {"error_description": "No", "scope": "a"}, None)],
            id="prose with a comma",
        ),
        pytest.param('Bearer realm=x y z, scope="a"', [("bearer", {"realm": "x", "scope": "a"}, None)], id="prose"),
        pytest.param('Bearer realm="x"Basic, scope=a', [("bearer", {"realm": "x", "scope": "a"}, None)], id="no gap"),
        pytest.param('Bearer @{}, "a, b=c", scope=a', [("bearer", {"scope": "a"}, None)], id="garbage"),
        pytest.param("Bearer x=1, realm=, scope=a", [("bearer", {"x": "1", "scope": "a"}, None)], id="no value"),
        pytest.param('Bearer x=1, =, ="y", scope=a', [("bearer", {"x": "1", "scope": "a"}, None)], id="no name"),
        pytest.param('Bearer realm="x, scope=a', [("bearer", {}, None)], id="quote that never ends"),
        pytest.param('Bearer scope=a, realm="x\\"', [("bearer", {"scope": "a"}, None)], id="quote that is escaped"),
        pytest.param('Bearer "x, scope=a', [("bearer", {}, None)], id="stray quote"),
        pytest.param("Bearer r\u00e9alm=x, scope=a", [("bearer", {"scope": "a"}, None)], id="not ASCII"),
        pytest.param("\x00\x7f;", [], id="control characters"),
    ],
)
def test_what_cannot_be_read_is_skipped_and_the_rest_is_kept(header: str, expected: list[object]) -> None:
    """Whose rule: ours."""
    assert read(header) == expected


@pytest.mark.parametrize(
    "piece",
    [
        "a,",
        'a="',
        '"',
        "\\",
        'a="\\"',
        "a ",
        "a=,",
        "=",
        ' a="b"',
        "a b ",
        ", a bbbbbbbb ",
        "\t",
        "A a=1,",
        "a==,",
        "@",
    ],
)
def test_hostile_text_of_64_kib_is_read_in_passing(piece: str) -> None:
    """Whose rule: ours. A pattern that goes back to try again would outlast the deadline."""
    parse_www_authenticate("Bearer " + piece * (65536 // len(piece)))


def test_the_preferred_scheme_is_chosen_whatever_the_order() -> None:
    found = parse_www_authenticate('Basic realm="b", Bearer realm="1", Bearer realm="2", DPoP realm="d"')
    assert challenge_for(found, "dpop", "bearer") == Challenge("dpop", {"realm": "d"})
    assert challenge_for(found, "Bearer") == Challenge("bearer", {"realm": "1"})
    assert challenge_for(found, "negotiate", "BASIC") == Challenge("basic", {"realm": "b"})


def test_no_scheme_that_is_known_gives_none() -> None:
    assert challenge_for(parse_www_authenticate("Basic"), "bearer") is None
    assert challenge_for([], "bearer") is None
    assert challenge_for([Challenge("bearer")]) is None
