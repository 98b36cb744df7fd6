from __future__ import annotations

import json
import logging

from trimaran.apps.gateway.logs import LogFormatter, configuration_secrets
from trimaran.protocol.mask import Mask


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("trimaran.gateway", logging.WARNING, __file__, 1, message, arguments, None)


def test_a_line_of_json_has_time_level_logger_and_message() -> None:
    line = json.loads(LogFormatter("json").format(record("the server %r is\ndown", "boats")))
    assert (line["level"], line["logger"], line["message"]) == (
        "warning",
        "trimaran.gateway",
        "the server 'boats' is\ndown",
    )
    assert line["time"].endswith("Z")


def test_secrets_of_the_configuration_are_in_no_line() -> None:
    table = {"auth": [{"provider_opts": {"secret": "sesame-sesame", "keys": {"key-of-ann-1": {"subject": "ann"}}}}]}
    for kind in ("text", "json"):
        formatter = LogFormatter(kind)  # pyright: ignore[reportArgumentType]
        formatter.mask = Mask(secrets=configuration_secrets(table))
        line = formatter.format(record("sesame-sesame for ann with key-of-ann-1"))
        assert "*** for ann with ***" in line
