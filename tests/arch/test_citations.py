"""Citations lead somewhere: "protocol.md 1.3" is a section or a numbered rule of docs/protocol.md.

No other page is cited by section number: pages change, and a heading's own words find it again.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "protocol.md"
FOLDERS = ("src", "tests", "docs", "examples", "bench")
SECTION = re.compile(r"^#{2,3} (\d(?:\.\d+)?)\b")
RULE = re.compile(r"^(\d+)\. ")
NUMBER = r"\d+(?:\.\d+)*"
CITATION = re.compile(rf"\b([\w-]+\.md) ({NUMBER}(?:(?:, | and |; ){NUMBER})*)(?![\w%])")


def rules_of(page: str) -> set[str]:
    """The numbers on a page: 1, 1.3, and 4.1.7 for the seventh rule listed in 4.1."""
    numbers: set[str] = set()
    section = ""
    for line in page.splitlines():
        if heading := SECTION.match(line):
            section = heading[1]
            numbers.add(section)
        elif rule := RULE.match(line):
            numbers.add(f"{section}.{rule[1]}")
    return numbers


RULES = rules_of(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_section_that_is_cited_exists(folder: str) -> None:
    missing = [
        f"{file.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for file in sorted((ROOT / folder).rglob("*"))
        if file.suffix in {".py", ".md"} and file != Path(__file__)
        for text in [file.read_text(encoding="utf-8")]
        for match in CITATION.finditer(text)
        if match[1] != PAGE.name or not set(re.findall(NUMBER, match[2])) <= RULES
    ]
    assert not missing, "\n".join(missing)


def test_sections_and_their_rules_have_numbers() -> None:
    assert rules_of("## 4. A\n\n### 4.1 B\n\n1. x\n2. y\n") == {"4", "4.1", "4.1.1", "4.1.2"}
    assert [match[2] for match in CITATION.finditer("protocol.md 1.3, 2.8 and 4.1.7: so")] == ["1.3, 2.8 and 4.1.7"]
