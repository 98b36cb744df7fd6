"""Log lines of a gateway: as text or as JSON, one line each, without the secrets of its configuration."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, cast, final

import msgspec

from trimaran.protocol.mask import Mask, secrets_in


@final
class LogFormatter(logging.Formatter):
    """Formats records; `mask` may be set later, once the configuration is known."""

    def __init__(self, kind: Literal["text", "json"]) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._kind = kind
        self.mask: Mask = Mask()

    def notice(self, text: str) -> str:
        """A line for whoever started the program, whatever the level of the log."""
        if self._kind == "text":
            return text
        return self.format(logging.LogRecord("trimaran.gateway", logging.INFO, __file__, 0, text, None, None))

    def format(self, record: logging.LogRecord) -> str:
        if self._kind == "text":
            return self.mask(super().format(record))
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return self.mask(msgspec.json.encode(fields).decode())


def log_to_stderr(level: str, kind: Literal["text", "json"]) -> LogFormatter:
    """Write log lines to stderr."""
    formatter = LogFormatter(kind)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    return formatter


def configuration_secrets(table: Any) -> Iterable[str]:
    """The secrets in a table of the configuration, at any depth: values of secret names, and API keys."""
    if isinstance(table, list):
        for item in cast("list[Any]", table):
            yield from configuration_secrets(item)
    if not isinstance(table, Mapping):
        return
    entries = cast("Mapping[str, Any]", table)
    yield from secrets_in(entries)
    for name, value in entries.items():
        if name == "keys" and isinstance(value, Mapping):
            yield from cast("Mapping[str, Any]", value)
        if name in ("keys", "secret_keys") and isinstance(value, list):
            yield from (key for key in cast("list[Any]", value) if isinstance(key, str))
        yield from configuration_secrets(value)
