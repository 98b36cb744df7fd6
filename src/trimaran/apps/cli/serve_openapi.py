"""`trimaran serve api.yaml`: the server whose tools are the operations of an HTTP API, from the command line.

A target is an OpenAPI document if its name ends in .yaml or .yml, if it is a URL that ends in .json, or if it is a JSON
file with "openapi" or "swagger" at its top. Secrets come from environment variables: a command line is seen by others.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import click

from trimaran.errors import ConfigError

from .target import Settings, Target, is_behind_dashes, read_settings

if TYPE_CHECKING:
    from trimaran.server.server import Server

OPENAPI: Final = ("base_url", "credentials", "include", "exclude", "forward_headers", "forward_token")
"""The options of a document, as click names them."""

_OPTIONS: Final = (
    click.option("--base-url", metavar="URL", help="API: where it is.  [the first server of the document]"),
    click.option(
        "--credential",
        "credentials",
        multiple=True,
        metavar="SCHEME=VAR",
        help="API: the variable that holds the secret for a security scheme. Repeatable; --token-env VAR is for all.",
    ),
    click.option(
        "--include",
        multiple=True,
        metavar="PATTERN",
        help='API: operations to serve: "GET /pets/*", listPets, tag:billing. Repeatable.  [all]',
    ),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="API: operations not to serve. Repeatable."),
    click.option(
        "--forward-header",
        "forward_headers",
        multiple=True,
        metavar="NAME",
        help="API: a header of the caller to pass on. Repeatable.  [none]",
    ),
    click.option("--forward-token", is_flag=True, help="API: pass on the caller's bearer token."),
)

F = TypeVar("F", bound=Callable[..., Any])


def openapi_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def is_openapi(ctx: click.Context, words: Sequence[str]) -> bool:
    """True if the words name an OpenAPI document."""
    if is_behind_dashes(ctx) or len(words) != 1:
        return False
    word = words[0]
    if "://" in word:
        return urlsplit(word).path.endswith((".json", ".yaml", ".yml"))
    path = Path(word)
    if path.suffix in (".yaml", ".yml"):
        return True
    return path.suffix == ".json" and path.is_file() and _has_version(path)


def _has_version(path: Path) -> bool:
    from trimaran.openapi.document import read_content

    try:
        content = read_content(path)
    except ConfigError:
        return False  # whoever reads it as a configuration says what is wrong with it
    return "openapi" in content or "swagger" in content


class OpenApiSource(NamedTuple):
    """An OpenAPI document to serve, and how."""

    word: str
    settings: Settings
    options: Mapping[str, Any]

    @classmethod
    def read(
        cls, words: Sequence[str], reach: Mapping[str, Any], options: Mapping[str, Any], *, debug: bool
    ) -> OpenApiSource:
        for name in ("login", "env", "inherit_env"):
            if reach[name]:
                raise click.UsageError(f"--{name.replace('_', '-')} does not go with an OpenAPI document")
        target = Target(words[0], url=options["base_url"] or "https://api.invalid")
        settings = read_settings(target, {**reach, "timeout": 0, "debug": debug})
        if settings.bearer and options["credentials"]:
            raise click.UsageError("--credential and one secret for all contradict each other: give one")
        return cls(words[0], settings, options)

    def load(self) -> Server:
        from trimaran import Server
        from trimaran.openapi.document import Document, parse_content

        options = self.options
        source: Any = self.word
        base_url = options["base_url"]
        if "://" in self.word:
            from trimaran.openapi.http import fetch_document

            # The document and the API may be on different hosts: the API's secrets are not for the document's.
            source = parse_content(asyncio.run(fetch_document(self.word)), self.word)
            document = Document(source, location=self.word)
            if document.is_swagger:
                base_url = base_url or document.server_url
            elif base_url is None:
                source = {**source, "servers": [{"url": document.server_url}]}
        return Server.from_openapi(
            source,
            base_url=base_url,
            auth=_secrets(options["credentials"]) or self.settings.bearer,
            headers=self.settings.headers,
            include=options["include"] or None,
            exclude=options["exclude"],
            forward_headers=options["forward_headers"],
            forward_token=options["forward_token"],
        )


def _secrets(credentials: Sequence[str]) -> dict[str, str]:
    secrets: dict[str, str] = {}
    for text in credentials:
        scheme, equals, variable = text.rpartition("=")
        if not equals or not scheme or not variable:
            raise click.UsageError(f"--credential is SCHEME=VAR, as in --credential api_key=PETS_KEY, not {text!r}")
        if not os.environ.get(variable):
            raise click.UsageError(f"--credential {text}: the environment variable {variable} is not set")
        secrets[scheme] = os.environ[variable]
    return secrets
