"""Log lines of a server on stderr. They may quote what callers sent, which is not trusted with a terminal.

Apart from `output.py`, which loads more than a server on stdio should wait for.
"""

from __future__ import annotations

import logging
import sys


class _SafeFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        from trimaran.host.terminal_text import safe

        return safe(super().format(record))


def log_to_stderr(level: str) -> None:
    """Write log lines to stderr; at a terminal, control characters in them are shown and not obeyed."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _SafeFormatter if sys.stderr.isatty() else logging.Formatter
    handler.setFormatter(formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
