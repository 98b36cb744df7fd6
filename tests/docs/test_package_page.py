"""The page of the package on PyPI: the README, with links that lead to the repository."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook of `scripts/hatch_metadata.py`, without hatchling, which only builds have."""
    interface: Any = types.ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = object
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("hatch_metadata", PROJECT / "scripts" / "hatch_metadata.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hook = module.RepositoryHook()
    hook.root = str(PROJECT)
    return hook


def test_links_on_pypi_lead_to_the_files_of_the_version(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_REPOSITORY", "https://code.example/trimaran/")
    metadata: dict[str, Any] = {"version": "1.2.3"}
    hook.update(metadata)
    links = LINK.findall(metadata["readme"]["text"])
    assert links == [link for link in links if link.startswith("https://")]
    assert "https://code.example/trimaran/blob/v1.2.3/docs/start/server.md" in links
    assert "https://code.example/trimaran/raw/v1.2.3/docs/console.svg" in links
    assert metadata["urls"]["Source"] == "https://code.example/trimaran"
    files = [link.partition("/v1.2.3/")[2].partition("#")[0] for link in links if "/v1.2.3/" in link]
    assert [file for file in files if not (PROJECT / file).exists()] == []


def test_a_checkout_has_the_readme_as_it_is(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIMARAN_REPOSITORY", raising=False)
    metadata: dict[str, Any] = {"version": "1.2.3"}
    hook.update(metadata)
    assert metadata["readme"]["text"] == (PROJECT / "README.md").read_text("utf-8")
    assert "urls" not in metadata
