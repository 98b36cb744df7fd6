"""Build the inspector's page before a wheel is packed, so that the wheel has it.

The page needs Node and npm, and its libraries. Where they are not there, a wheel is built without it, with a warning, because
everything else works and `trimaran inspect` says what is missing. TRIMARAN_REQUIRE_PAGE=1 makes that an error: for releases.

An editable install builds no page. A source distribution carries the built page.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageBuildHook(BuildHookInterface[Any]):
    """Runs `scripts/build-page`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before files are collected.

        Raises:
            RuntimeError: the page is required, and cannot be built here.
        """
        root = Path(self.root)
        built = root / "src/trimaran/apps/inspector/page/index.html"
        if version == "editable" or (not (root / "page/src").is_dir() and built.is_file()):
            return
        try:
            run = subprocess.run(  # noqa: S603  # our own script
                [str(root / "scripts/build-page")], capture_output=True, text=True, check=False
            )
            problem = f"{run.stdout}{run.stderr}".strip() if run.returncode != 0 or not built.is_file() else None
        except OSError as error:  # no bash here
            problem = str(error)
        if problem is None:
            return
        message = (
            f"the inspector's page could not be built: {problem}\n"
            "`trimaran inspect` has no page then. Install Node 20 or newer, with npm, and build again."
        )
        if os.environ.get("TRIMARAN_REQUIRE_PAGE") == "1":
            raise RuntimeError(message)
        self.app.display_warning(message)
