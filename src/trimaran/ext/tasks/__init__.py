"""Tasks: long-running tools whose result is fetched later (see `extension`)."""

from __future__ import annotations

from .crew import Runner
from .extension import Tasks
from .model import EXTENSION

__all__ = ["EXTENSION", "Runner", "Tasks"]
