"""The documents that users were promised are there, each with the parts that make it what it is.

What the pages say is proven elsewhere: Python blocks are run and links followed by `test_pages.py`, tables that are made
from the source are compared by `test_reference.py`.
"""

from __future__ import annotations

import re
from typing import get_args

import pytest

from trimaran.host.supervise import State

from .pages import DOCS, ROOT, blocks

# The document, and headings or words that must be on it.
GUIDES = {
    "README.md": ("## A server", "## A client", "## A host", "## Who may call", "docs/reference/"),
    "CHANGELOG.md": ("## 0.1.0",),
    "docs/start/server.md": ("## 1. Write it", "## 3. Run it"),
    "docs/start/client.md": ("## 1. Ten lines",),
    "docs/start/host.md": ("## 3. Call the tools",),
    "docs/guides/tools.md": ("## Return values", "## Errors"),
    "docs/guides/resources-and-prompts.md": ("## Resources", "## Prompts", "## Completion"),
    "docs/guides/http.md": ("## Options", "## Origins and hosts"),
    "docs/guides/stdio.md": ("Claude Desktop", "stdout"),
    "docs/guides/authentication.md": ("## Choose a provider",),
    "docs/guides/oauth-client.md": ("## Choose a grant", "authorization server\n   │"),
    "docs/guides/custom-authentication.md": ("authenticate",),
    "docs/guides/client.md": ("## Before production",),
    "docs/concepts/internals.md": ("## The map", "## The states", "## The contracts", "## The wire"),
    "docs/reference/client.md": ("## Options",),
    "docs/spec-coverage.md": ("## Not included",),
    "docs/rough-edges.md": ("# Rough edges",),
}
PROJECT = {
    "README.md": ("# Trimaran",),
    "CHANGELOG.md": ("keepachangelog.com",),
    "SECURITY.md": ("## Reporting", "## Who can reach what", "## Deployment checklist"),
    "LICENSE": ("Apache License",),
    "docs/reference/server.md": ("## Options", "## Serving"),
    "docs/reference/errors.md": ("## Codes", "## Exceptions"),
    "docs/spec-coverage.md": ("| area | revisions | server | client | notes |", "## Not included"),
}
HOST = {
    "README.md": ('oauth = "auto"', "**Permissions.**", "`@notes:style`", "does not get your token"),
    "docs/adr/0001-sans-io-core-and-layers.md": ("## Decision", "## Rejected"),
    "docs/reference/configuration.md": ("oauth_config",),
    "docs/guides/permissions.md": ("1 global deny", "7 default"),
    "docs/guides/host.md": ("@docs:",),
}


def assert_each_has_its_parts(documents: dict[str, tuple[str, ...]]) -> None:
    for name, parts in documents.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        missing = [part for part in parts if part not in text]
        assert not missing, f"{name} lacks {missing}"


def test_the_guides_are_there() -> None:
    """R281."""
    assert_each_has_its_parts(GUIDES)


def test_the_documents_of_the_project_are_there() -> None:
    """R282."""
    assert_each_has_its_parts(PROJECT)


def test_the_documents_of_the_host_are_there() -> None:
    """R283: decisions, the configuration, and a section of the README on logins, permissions and mentions."""
    assert_each_has_its_parts(HOST)
    records = sorted((DOCS / "adr").glob("*.md"))
    for record in records:
        assert_each_has_its_parts({str(record.relative_to(ROOT)): ("## Situation", "## Decision", "## Rejected")})


def test_every_guide_has_snippets_and_they_are_run() -> None:
    """R284: a guide without a Python block explains shells or programs; one that is not run says why."""
    for guide in sorted((DOCS / "guides").glob("*.md")):
        snippets = [block for block in blocks(guide) if block.language == "python"]
        assert snippets or "```sh" in guide.read_text(encoding="utf-8"), guide.name
        idle = [block for block in snippets if block.not_run is not None]
        assert len(idle) * 2 <= len(snippets), f"{guide.name}: {len(idle)} of {len(snippets)} blocks are not run"


@pytest.mark.parametrize(
    "recipe",
    [
        r"claude mcp add --transport http \w+ http://\S+$",
        r"claude mcp add --transport http .* --header \"X-API-Key: ",
        r"claude mcp add --transport http .* --header \"Authorization: Bearer ",
        r"claude mcp add \w+ -- trimaran serve ",
    ],
    ids=["open", "API key", "bearer token", "stdio"],
)
def test_there_is_a_recipe_for_claude_code(recipe: str) -> None:
    """R284."""
    pages = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    assert any(re.search(recipe, text, re.MULTILINE) for text in pages)


def test_the_map_has_every_part_of_the_library_and_every_state_of_a_server() -> None:
    """R281: internals."""
    text = (DOCS / "concepts" / "internals.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "trimaran"
    units = {path.stem for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    mapped = set(re.findall(r"`(\w+)`", text.partition("## The path")[0]))
    assert units - {"__init__", "__main__"} <= mapped
    assert set(re.findall(r"^\| `(\w+)` \| (?!\w*/)", text.partition("## The states")[2], re.MULTILINE)) >= set(
        get_args(State)
    )


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
