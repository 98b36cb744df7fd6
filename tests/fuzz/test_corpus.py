"""The corpus of the coverage-guided fuzzer through every target, without the fuzzer: what it once found stays found."""

from __future__ import annotations

import pytest

from .inputs import FOLDER, read_corpus, write_corpus
from .targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_in_the_corpus_breaks_a_promise(name: str) -> None:
    inputs = read_corpus(name)
    assert inputs, f"{FOLDER / name}.txt is missing"
    for data in inputs:
        TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_small_and_written_as_the_fuzzer_writes_it(name: str) -> None:
    path = FOLDER / f"{name}.txt"
    assert path.stat().st_size < 64 * 1024
    assert path.read_text() == write_corpus(read_corpus(name))
