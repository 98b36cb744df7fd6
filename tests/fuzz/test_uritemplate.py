"""Expanding then matching gives values back; matching agrees with a regular expression where one is affordable."""

from __future__ import annotations

import contextlib
import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.errors import DeclarationError
from trimaran.protocol.uritemplate import UriTemplate

VALUE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUE, VALUE)
def test_plain_variables_come_back(a: str, b: str) -> None:
    template = UriTemplate("scheme://{a}/x/{b}")
    assert template.match(template.expand({"a": a, "b": b})) == {"a": a, "b": b}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(VALUE, min_size=1, max_size=4), VALUE, VALUE)
def test_exploded_segments_and_queries_come_back(path: list[str], q: str, f: str) -> None:
    template = UriTemplate("s:{/path*}{?q,tags*}")
    assert template.match(template.expand({"path": path, "q": q, "tags": [f, q]})) == {
        "path": path,
        "q": q,
        "tags": [f, q],
    }


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="%"), min_size=1, max_size=20))
def test_a_reserved_variable_comes_back(path: str) -> None:
    template = UriTemplate("file:///{+path}")
    assert template.match(template.expand({"path": path})) == {"path": path}


# Expressions with the language each must accept, over an alphabet small enough to try everything interesting.
GRAMMAR = {
    "{a}": r"[^/?#]+",
    "{+b}": r".+",
    "{c*}": r".+",
    "{d,e}": r"[^/?#,]+,[^/?#]+",
    "{/f}": r"(?:/[^/?#]*)?",
    "{/g*}": r"(?:/[^?#]*)?",
    "{.h}": r"(?:\.[^/?#]*)?",
    "{;i}": r"(?:;[^/?#]*)?",
    "{?j}": r"(?:\?[^#]*)?",
    "{#k}": r"(?:\#.*)?",
    "{l:2}": r"[^/?#]{1,2}",
    "x": "x",
    "/": "/",
    ",x": ",x",
}


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(sorted(GRAMMAR)), unique=True, max_size=5), st.text("x/?#.,;", max_size=10))
def test_matching_agrees_with_a_backtracking_reference(parts: list[str], uri: str) -> None:
    expected = re.fullmatch("".join(GRAMMAR[part] for part in parts), uri)
    assert (UriTemplate("".join(parts)).match(uri) is None) == (expected is None)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text("{}+#./;?&*:,a1%é ", max_size=16), st.text(max_size=16))
def test_any_text_is_a_template_or_is_refused_and_any_uri_matches_or_misses(text: str, uri: str) -> None:
    with contextlib.suppress(DeclarationError):
        template = UriTemplate(text)
        template.match(uri)
        template.match(template.expand(dict.fromkeys(template.variables, "v")))
