"""The metadata of a package that depend on its repository: its addresses, and a README whose links work on PyPI.

PyPI shows the README without the files beside it, so links to them become absolute. TRIMARAN_REPOSITORY is the address of the
repository, such as https://github.com/NAME/trimaran: set it for a release. Without it the README stays as it is, and the
package names no addresses.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"\]\((?!https?://|#)([^)\s]+)\)")
PICTURES = (".png", ".svg")


def absolute_links(text: str, repository: str, version: str) -> str:
    """Markdown whose links lead to the files of this version."""

    def replace(link: re.Match[str]) -> str:
        kind = "raw" if link[1].endswith(PICTURES) else "blob"
        return f"]({repository}/{kind}/v{version}/{link[1]})"

    return RELATIVE_LINK.sub(replace, text)


class RepositoryHook(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called with the metadata of pyproject.toml."""
        text = Path(self.root, "README.md").read_text("utf-8")
        repository, version = os.environ.get("TRIMARAN_REPOSITORY", "").rstrip("/"), metadata["version"]
        if repository:
            text = absolute_links(text, repository, version)
            metadata["urls"] = {
                "Source": repository,
                "Documentation": f"{repository}/blob/v{version}/docs/index.md",
                "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
