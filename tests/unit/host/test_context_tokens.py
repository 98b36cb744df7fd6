"""Counting tokens: the estimate errs high and not far, the count is the vocabulary's, and neither costs much."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.host.context import count_tokens, estimate_tokens, tokens
from trimaran.host.context.tokens import has_tokenizer

from .context_corpus import TEXTS


@pytest.mark.parametrize("name", TEXTS)
def test_the_estimate_is_never_below_the_true_number_and_at_most_half_above_it(name: str) -> None:
    """Our promise. The true number is that of the vocabulary o200k."""
    assert has_tokenizer(), "the development environment has the extra `tokens`"
    text = TEXTS[name]
    assert 1.0 <= estimate_tokens(text) / count_tokens(text) <= 1.5


@pytest.mark.parametrize(
    "text",
    [
        "新 帳 號 的 設 定 值 and 使 用 系 統 上 的 預 設 值 . 新 使 用 者 帳 號 將 產 生 一 些 系 統 檔 案 ， 使 用 者 目 錄 建 立",
        "line-shadow-text, aurora-text, json-text, next-text, http-text, html-text, text-reveal, hyper-text, flip-text",
    ],
    ids=["characters with blanks between them", "short words that look random"],
)
def test_the_estimate_holds_on_odd_texts_of_manuals_and_components(text: str) -> None:
    assert 1.0 <= estimate_tokens(text) / count_tokens(text) <= 1.5


def test_without_the_extra_the_count_is_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens._vocabulary.cache_clear()
    monkeypatch.setitem(sys.modules, "splintr", None)
    try:
        assert not has_tokenizer()
        assert count_tokens(TEXTS["hexadecimal"]) == estimate_tokens(TEXTS["hexadecimal"])
    finally:
        tokens._vocabulary.cache_clear()


def test_a_special_token_spelled_out_in_a_text_is_only_text() -> None:
    assert count_tokens("<|endoftext|>") > 1


@given(st.text(max_size=200))
def test_every_text_has_a_count(text: str) -> None:
    assert 0 <= estimate_tokens(text) <= 5 * len(text) + 1
    assert (count_tokens(text) == 0) == (text == "")


@pytest.mark.parametrize("text", ["a" * 30_000_000, "\ud800" * 1000, " " * 5_000_000, "日" * 5_000_000])
def test_a_text_of_any_size_is_counted_at_a_bounded_cost(text: str) -> None:
    """Samples stand for a long text: without them 30 million letters take minutes."""
    assert count_tokens(text) > 0
    assert estimate_tokens(text) > 0


def test_the_samples_of_a_long_text_count_about_as_much_as_the_whole() -> None:
    text = "\n".join(TEXTS.values()) * 40
    assert len(text) > tokens._LONGEST
    whole = sum(map(count_tokens, TEXTS.values())) * 40
    assert 0.95 < count_tokens(text) / whole < 1.3


def test_what_was_seen_once_does_not_fill_the_memory() -> None:
    for start in range(0, 60_000, 10_000):
        estimate_tokens(" ".join(f"w{number:x}" for number in range(start, start + 10_000)))
    assert len(tokens._KNOWN) <= tokens._MOST_KNOWN
