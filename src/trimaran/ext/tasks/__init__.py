"""Tasks: long-running tools whose result is fetched later (see `extension`)."""

from __future__ import annotations

from .extension import Tasks
from .model import EXTENSION
from .scheduler import Runner

__all__ = ["EXTENSION", "Runner", "Tasks"]
