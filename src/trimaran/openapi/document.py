"""Read an OpenAPI document: 2.0, 3.0 or 3.1, JSON or YAML; its operations in one shape, whatever the version.

Nothing is dereferenced beforehand: documents of a megabyte refer to themselves thousands of times, and most of that is
never asked for. A reference is followed when somebody needs what it points at. References to other documents are not
followed at all: the operation that needs one is left out, with the reason.

Pure, but for `read_document`, which opens the file it is told to.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote, urljoin, urlsplit

from trimaran.depth import decode_json
from trimaran.errors import ConfigError
from trimaran.files import read_file

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
MAX_BYTES: Final = 128 * 1024 * 1024
"""The largest public documents (Microsoft Graph, AWS EC2) have 10 to 40 MB; GitHub's, without references, 73."""
_MAX_HOPS: Final = 20  # references in a row; honest documents have two or three
_SWAGGER_STYLES: Final = {"csv": ("form", False), "multi": ("form", True), "ssv": ("spaceDelimited", False)}


class DocumentFault(Exception):
    """A fault of one part of the document, for the log."""


class RawOperation(NamedTuple):
    """One operation as the document has it, in the shape of 3.x."""

    method: str
    path: str
    content: Mapping[str, Any]
    parameters: Sequence[Mapping[str, Any]]
    body: Mapping[str, Any] | None
    server_url: str = ""
    """Where this operation is, if it is elsewhere than the others: many APIs take uploads at another host."""

    @property
    def label(self) -> str:
        return f"{self.method.upper()} {self.path}"


def as_map(value: Any) -> dict[str, Any]:
    return value if value.__class__ is dict else {}


def as_list(value: Any) -> list[Any]:
    return value if value.__class__ is list else []


def as_text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def read_document(source: Mapping[str, Any] | str | os.PathLike[str]) -> Document:
    """Read a document from a mapping or a file.

    Raises:
        ConfigError: the file cannot be read, or is no OpenAPI document.
    """
    return Document(_plain(source) if isinstance(source, Mapping) else read_content(Path(source)))


def _plain(source: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping as dicts and lists: readers of YAML have classes of their own for both.

    One that contains itself stays as it is; then each operation that uses the cycle is left out by itself.
    """

    def copy(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: copy(member) for key, member in cast("Mapping[Any, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [copy(member) for member in cast("Sequence[Any]", value)]
        return value

    try:
        return copy(source)
    except RecursionError:
        return dict(source)


def read_content(path: Path) -> dict[str, Any]:
    """The object in a file of JSON or YAML.

    Raises:
        ConfigError: the file cannot be read, or holds anything else.
    """
    if str(path).startswith(("http:/", "https:/")):
        raise ConfigError(f"{path} is a URL: fetch the document and pass its content, or run `trimaran serve URL`")
    try:
        data = read_file(path, MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    return parse_content(data, str(path))


def parse_content(data: bytes, label: str) -> dict[str, Any]:
    """The object in a text of JSON or YAML; `label` says in messages where it is from.

    Raises:
        ConfigError: it holds anything else.
    """
    content = _parse_json(label, data) if data.lstrip()[:1] == b"{" else _parse_yaml(label, data)
    if not isinstance(content, dict):
        raise ConfigError(f"{label} holds a {type(content).__name__}; an OpenAPI document is an object")
    return cast("dict[str, Any]", content)


def _parse_json(label: str, data: bytes) -> Any:
    try:
        return decode_json(data)
    except ValueError as error:
        raise ConfigError(f"{label} is not valid JSON: {error}") from None


def _parse_yaml(label: str, data: bytes) -> Any:
    try:
        from .yamltext import parse_yaml
    except ImportError:
        raise ConfigError(
            f"{label} looks like YAML, which needs the extra: pip install 'trimaran[openapi]'. JSON works without it."
        ) from None
    try:
        return parse_yaml(data)
    except ValueError as error:
        raise ConfigError(f"{label} is not valid YAML: {error}") from None


class Document:
    """An OpenAPI document, and what its references point at.

    Raises:
        ConfigError: it is no OpenAPI document of a version from 2.0 to 3.1.
    """

    def __init__(self, content: Mapping[str, Any], *, location: str = "") -> None:
        self._content = content
        self._location = location
        self._targets: dict[str, Any] = {}
        version = str(content.get("openapi") or content.get("swagger") or "")
        if not re.match(r"2\.0|3\.[01]", version):
            raise ConfigError(
                f"this is not an OpenAPI document of version 2.0, 3.0 or 3.1: it says {version!r}. "
                'Such a document has "openapi": "3.1.0" or "swagger": "2.0" at its top.'
            )
        self.is_swagger: bool = version.startswith("2")
        info = as_map(content.get("info"))
        self.title: str = as_text(info.get("title")) or "API"
        self.version: str = str(info.get("version") or "0.0.0")
        self.description: str = as_text(info.get("description"))

    @property
    def server_url(self) -> str:
        """The first server of the document with its variables at their defaults; "" if there is none.

        A relative one is below the document's location, if that is known.
        """
        if self.is_swagger:
            host = as_text(self._content.get("host")) or urlsplit(self._location).netloc
            schemes = as_list(self._content.get("schemes")) or ["https"]
            scheme = "https" if "https" in schemes else str(schemes[0])
            return f"{scheme}://{host}{as_text(self._content.get('basePath'))}" if host else ""
        return self._first_server(self._content.get("servers"))

    def _first_server(self, servers: Any) -> str:
        first = as_map(next(iter(as_list(servers)), None))
        variables = as_map(first.get("variables"))

        def default(match: re.Match[str]) -> str:
            return str(as_map(variables.get(match[1])).get("default", ""))

        url = re.sub(r"\{([^{}]+)\}", default, as_text(first.get("url")))
        if self._location:
            url = urljoin(self._location, url or "/")
        return url if urlsplit(url).scheme in ("http", "https") else ""

    @property
    def security_schemes(self) -> Mapping[str, Any]:
        if self.is_swagger:
            return as_map(self._content.get("securityDefinitions"))
        return as_map(as_map(self._content.get("components")).get("securitySchemes"))

    @functools.cached_property
    def credential_places(self) -> frozenset[tuple[str, str]]:
        """Where API keys go: (place, name)."""
        schemes = [as_map(scheme) for scheme in self.security_schemes.values()]
        return frozenset((as_text(scheme.get("in")), as_text(scheme.get("name"))) for scheme in schemes)

    @property
    def security(self) -> list[Any]:
        return as_list(self._content.get("security"))

    def operations(self) -> Iterator[RawOperation | tuple[str, DocumentFault]]:
        """Every operation; for one that cannot be read its label and the reason."""
        for path, item in as_map(self._content.get("paths")).items():
            if not str(path).startswith("/"):
                continue
            try:
                members = as_map(self.resolve(item))
            except DocumentFault as fault:
                yield str(path), fault
                continue
            for method in METHODS:
                if method in members:
                    try:
                        yield self._operation(method, str(path), members)
                    except DocumentFault as fault:
                        yield f"{method.upper()} {path}", fault

    def _operation(self, method: str, path: str, item: Mapping[str, Any]) -> RawOperation:
        content = as_map(self.resolve(item[method]))
        shared = [as_map(self.resolve(entry)) for entry in as_list(item.get("parameters"))]
        own = [as_map(self.resolve(entry)) for entry in as_list(content.get("parameters"))]
        overridden = {(entry.get("name"), entry.get("in")) for entry in own}
        parameters = [entry for entry in shared if (entry.get("name"), entry.get("in")) not in overridden] + own
        if self.is_swagger:
            body = self._swagger_body(content, parameters)
            plain = [_swagger_parameter(entry) for entry in parameters if entry.get("in") not in ("body", "formData")]
            return RawOperation(method, path, content, plain, body)
        body = as_map(self.resolve(content.get("requestBody")))
        servers = content.get("servers") or item.get("servers")
        server_url = self._first_server(servers) if servers else ""
        return RawOperation(method, path, content, parameters, body or None, server_url)

    def _swagger_body(
        self, content: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]
    ) -> Mapping[str, Any] | None:
        """The `requestBody` that 3.0 has for a parameter in "body", or for those in "formData"."""
        for entry in parameters:
            if entry.get("in") == "body":
                media = self._media(content, "consumes")
                body = {name: {"schema": as_map(entry.get("schema"))} for name in media}
                return {
                    "required": entry.get("required") is True,
                    "content": body,
                    "description": entry.get("description"),
                }
        fields = [entry for entry in parameters if entry.get("in") == "formData"]
        if not fields:
            return None
        has_file = any(entry.get("type") == "file" for entry in fields)
        properties = {str(entry.get("name")): _swagger_schema(entry) for entry in fields}
        required = [str(entry.get("name")) for entry in fields if entry.get("required") is True]
        schema = {"type": "object", "properties": properties, "required": required}
        is_multipart = has_file or "multipart/form-data" in self._media(content, "consumes")
        media_type = "multipart/form-data" if is_multipart else "application/x-www-form-urlencoded"
        return {"required": bool(required), "content": {media_type: {"schema": schema}}}

    def responses(self, operation: RawOperation) -> Mapping[str, Mapping[str, Any]]:
        """The responses by status, each with `content` by media type."""
        responses: dict[str, Mapping[str, Any]] = {}
        for status, entry in as_map(operation.content.get("responses")).items():
            try:
                response = as_map(self.resolve(entry))
            except DocumentFault:
                continue
            if self.is_swagger and "schema" in response:
                media = self._media(operation.content, "produces")
                response = {**response, "content": {name: {"schema": response["schema"]} for name in media}}
            responses[str(status)] = response
        return responses

    def _media(self, content: Mapping[str, Any], key: str) -> list[str]:
        return [str(name) for name in as_list(content.get(key)) or as_list(self._content.get(key))] or [
            "application/json"
        ]

    def resolve(self, node: Any) -> Any:
        """The `node`, references followed."""
        for _ in range(_MAX_HOPS):
            reference = node.get("$ref") if node.__class__ is dict else None
            if not isinstance(reference, str):
                return node
            node = self.target(reference)
        raise DocumentFault(f"the reference {as_map(node).get('$ref')!r} leads to itself")

    def target(self, reference: str) -> Any:
        """The target of one reference; that may be a reference again."""
        if not reference.startswith("#"):
            raise DocumentFault(f"{reference!r} is in another document; put all of it into one (a bundler does that)")
        if reference in self._targets:
            return self._targets[reference]
        node: Any = self._content
        for step in reference[1:].split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node = cast("dict[str, Any]", node)[key]
            elif isinstance(node, list) and key.isdigit() and int(key) < len(cast("list[Any]", node)):
                node = cast("list[Any]", node)[int(key)]
            else:
                raise DocumentFault(f"{reference!r} points at nothing")
        self._targets[reference] = node
        return node


def _swagger_schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a 2.0 parameter, whose keywords stand beside its name."""
    schema = {
        key: value for key, value in parameter.items() if key not in ("name", "in", "required", "collectionFormat")
    }
    if schema.get("type") == "file":
        schema |= {"type": "string", "format": "binary"}
    return schema


def _swagger_parameter(parameter: Mapping[str, Any]) -> Mapping[str, Any]:
    style, explode = _SWAGGER_STYLES.get(str(parameter.get("collectionFormat", "csv")), ("pipeDelimited", False))
    changed: dict[str, Any] = {
        "name": parameter.get("name"),
        "in": parameter.get("in"),
        "required": parameter.get("required"),
        "description": parameter.get("description"),
        "schema": {key: value for key, value in _swagger_schema(parameter).items() if key != "description"},
    }
    if parameter.get("in") == "query":
        changed |= {"style": style, "explode": explode}
    return changed
