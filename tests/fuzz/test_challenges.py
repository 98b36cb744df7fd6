"""Any header is read without a word of complaint, and what was written by the rules comes back as it was."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.oauth.challenges import parse_www_authenticate

CALM = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TCHAR = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
WORDS = st.text(TCHAR, min_size=1, max_size=8)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NOISE = st.lists(
    st.sampled_from(["Bearer", "a", "=", '"', "\\", ",", " ", "\t", "\r\n", "é", "\x00", "@", "a=b", 'a="b"', "x=="]),
    max_size=40,
).map("".join)
BLANKS = st.sampled_from(["", " ", "\t ", "  "])


@CALM
@given(st.one_of(TEXT, NOISE, NOISE.map(lambda rest: f"Bearer {rest}")))
def test_any_text_is_read_or_skipped(header: str) -> None:
    for found in parse_www_authenticate(header):
        assert re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9a-z]+", found.scheme)
        assert all(name and name == name.lower() for name in found.parameters)


@CALM
@given(NOISE)
def test_noise_behind_a_good_challenge_does_not_spoil_it(noise: str) -> None:
    found = parse_www_authenticate(f'Bearer resource_metadata="https://h/", scope="a", {noise}')
    assert found[0].scheme == "bearer"
    assert found[0].parameters.items() >= {"resource_metadata": "https://h/", "scope": "a"}.items()


@CALM
@given(
    st.lists(st.tuples(WORDS, st.lists(st.tuples(WORDS, TEXT), min_size=1, unique_by=lambda p: p[0])), max_size=4),
    BLANKS,
    BLANKS,
)
def test_written_challenges_come_back(challenges: list[tuple[str, list[tuple[str, str]]]], gap: str, pad: str) -> None:
    def quoted(text: str) -> str:
        return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'

    written = f"{pad},{gap}".join(
        f"{scheme} " + f"{gap},{pad}".join(f"{name}{gap}={pad}{quoted(value)}" for name, value in parameters)
        for scheme, parameters in challenges
    )
    read = parse_www_authenticate(written)
    assert [(found.scheme, found.parameters) for found in read] == [(scheme, dict(ps)) for scheme, ps in challenges]
