"""From one operation of an OpenAPI document to a tool: its name, its schemas, and where each argument goes.

Parameters and the members of a JSON object or a form become arguments side by side, since models fill in flat objects
best. Two that share a name get the place added (`id`, `id_query`). Any other body is the argument `body`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Set
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from .definitions import ArgumentSource, SchemaWriter
from .descriptions import describe, shorten
from .document import METHODS, Document, RawOperation, as_list, as_map, as_text
from .merging import merge_parts
from .schemas import is_binary

Place: TypeAlias = Literal["path", "query", "header", "cookie", "field", "body"]
_STYLES: Final = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json\b|\*/\*")
_PLAIN_JSON: Final = re.compile(r"application/(?:merge-patch\+)?json(?![\w.+-])")
_URLENCODED: Final = re.compile(r"application/x-www-form-urlencoded\b")
_MULTIPART: Final = re.compile(r"multipart/")
_PAGING: Final = re.compile(
    r"page|per_?page|page_?(?:size|token|cursor|limit|num(?:ber)?|no|count)|page\[\w+\]|offset|limit|skip|take|marker"
    r"|(?:start_?|next_?|end_?)?cursor|starting_after|ending_before|\$(?:skip|top|skip_?token)"
    r"|next_?(?:page_?)?token|pagination_?token|\$?continuation_?token|start(?:ing)?_?token|max_?(?:results|items)",
    re.I,
)
# These go on from somewhere where there are pages; by themselves they are mostly about dates.
_CURSORS: Final = re.compile(r"after|before|continue|since_id|max_id|start|start_?at|count", re.I)
# The transport's own, credentials and signatures: a model has no business with them.
_RESERVED: Final = frozenset(
    ("header", name)
    for name in (
        "accept", "authorization", "content-length", "content-type", "host",
        "x-amz-algorithm", "x-amz-content-sha256", "x-amz-credential", "x-amz-date", "x-amz-security-token",
        "x-amz-signature", "x-amz-signedheaders",
    )
)  # fmt: skip
# Google's documents repeat these at every operation (cloud.google.com/apis/docs/system-parameters); the first is the mark.
_GOOGLE_MARK: Final = ("query", "prettyPrint")
_GOOGLE: Final = frozenset(
    ("query", name)
    for name in (
        "prettyPrint", "$.xgafv", "access_token", "callback", "key", "oauth_token", "quotaUser", "userIp",
        "upload_protocol", "uploadType",
    )
)  # fmt: skip
# Documents of calls by query (all of the older ones of AWS) let GET do anything. Words that are mostly nouns are left out.
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WRITING: Final = frozenset(
    (
        "add", "assign", "attach", "authorize", "cancel", "clear", "confirm", "create", "deactivate", "delete",
        "deregister", "destroy", "detach", "disable", "disassociate", "drop", "enable", "execute", "modify", "move",
        "promote", "publish", "purchase", "purge", "put", "reboot", "register", "reject", "remove", "replace", "reset",
        "restart", "restore", "resume", "revoke", "run", "save", "send", "set", "start", "stop", "submit", "suspend",
        "terminate", "unassign", "unlock", "unsubscribe", "update", "upload",
    )
)  # fmt: skip
_COMPOUND: Final = frozenset(("properties", "additionalProperties", "allOf", "anyOf", "oneOf"))
_TOKEN_TEXT: Final = re.compile(r"(?:\w+ )?(?:authentication|authorization|access|api|oauth) token\b", re.I)
_FASTAPI_END: Final = re.compile(rf"_(?:{'|'.join(METHODS)})$")
_PATH_NAMES: Final = re.compile(r"\{([^{}/?]+)\}")
_MAX_NAME: Final = 64
_ARGUMENT: Final = re.compile(r"(?!_)[A-Za-z0-9_.-]{1,64}(?<!_)")
_MAX_TEXT: Final = 700


class Placement(Struct, frozen=True):
    """Where an argument goes, and how it is written there."""

    name: str
    place: Place
    style: str = "form"
    explode: bool = True
    is_reserved: bool = False
    """Characters with a meaning in URLs are sent as they are."""
    is_json: bool = False
    """The value is one JSON text (`content: application/json`)."""
    is_binary: bool = False
    media_type: str | None = None
    """Of one field of a multipart body, if the document says."""


class Operation(Struct, frozen=True):
    name: str
    short_name: str
    """The same without the path and the method that FastAPI puts behind the name of a function."""
    method: str
    path: str
    title: str | None
    description: str
    tags: tuple[str, ...]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    placements: dict[str, Placement]
    pages: tuple[str, ...]
    """The arguments that say which page of the answer."""
    constants: list[tuple[Placement, Any]]
    """Required values of which the document allows a single one: no arguments, they are always sent."""
    media_type: str | None
    """The media type of the body, if the operation takes one."""
    needs_body: bool
    """A request without a single field has a body, too."""
    security: list[list[str]]
    """The schemes that a request needs: one of these lists, all of it."""
    credentials: list[tuple[str, str]]
    """Required parameters that are credentials, by place and name: some documents have them beside `security`."""
    statuses: dict[str, str]
    """The document's entry for each status."""
    server_url: str
    """Where the operation is, if the document names a server for it alone."""

    @property
    def label(self) -> str:
        return f"{self.method.upper()} {self.path}"

    @property
    def annotations(self) -> dict[str, Any]:
        hints: dict[str, Any] = {"openWorldHint": True}
        if self.method in ("get", "head", "options"):
            if not _says_it_writes(self.name):
                hints["readOnlyHint"] = True
        elif self.method in ("put", "delete"):
            hints["idempotentHint"] = True
            hints["destructiveHint"] = True
        return hints


def compile_operation(
    document: Document, raw: RawOperation, writer: SchemaWriter, headers: Set[str] = frozenset()
) -> Operation:
    """Compile one operation; `headers` are sent anyway, so that they are no arguments.

    Raises:
        DocumentFault: a reference of it leads nowhere.
    """
    compiler = _Compiler(document, raw, writer)
    names = {(parameter.get("in"), parameter.get("name")) for parameter in raw.parameters}
    system = _GOOGLE if _GOOGLE_MARK in names else frozenset[tuple[str, str]]()
    for parameter in raw.parameters:
        place, name = parameter.get("in"), parameter.get("name")
        if (place, name) not in system and not (place == "header" and as_text(name).lower() in headers):
            compiler.add_parameter(parameter)
    for name in dict.fromkeys(_PATH_NAMES.findall(raw.path.partition("#")[0])):
        if ("path", name) not in names:  # written by hand and forgotten
            compiler.add_parameter({"name": name, "in": "path", "schema": {"type": "string"}})
    media_type = compiler.add_body() if raw.body else None
    security = raw.content.get("security", document.security)
    responses = document.responses(raw)
    stated = short = as_text(raw.content.get("operationId")) or raw.method + raw.path
    if (match := _FASTAPI_END.search(stated)) and stated[: match.start()].endswith(re.sub(r"\W", "_", raw.path)):
        # A function of several methods has one id for all, with whichever method came first out of a set.
        stated = stated[: match.start()] + f"_{raw.method}"
        short = stated.removesuffix(re.sub(r"\W", "_", raw.path) + f"_{raw.method}") or stated
    if stated.isascii() or re.search(r"[A-Za-z0-9]", stated):
        name = _name_of(stated)
    else:  # not a letter of it may be in the name of a tool
        name = _name_of(raw.method + raw.path)
    return Operation(
        name=name,
        short_name=name if short is stated else _name_of(short),
        method=raw.method,
        path=raw.path,
        title=shorten(as_text(raw.content.get("summary")), 120) or None,
        description=compiler.description(),
        tags=tuple(str(tag) for tag in as_list(raw.content.get("tags"))),
        input_schema=compiler.input_schema(),
        output_schema=_output_schema(responses, writer),
        placements=compiler.placements,
        pages=compiler.pages,
        constants=compiler.constants,
        media_type=media_type,
        needs_body=as_map(raw.body).get("required") is True,
        security=[[str(name) for name in as_map(entry)] for entry in as_list(security)],
        credentials=compiler.credentials,
        statuses={status: shorten(as_text(entry.get("description")), 200) for status, entry in responses.items()},
        server_url=raw.server_url,
    )


class _Compiler:
    def __init__(self, document: Document, raw: RawOperation, writer: SchemaWriter) -> None:
        self._document = document
        self._raw = raw
        self._writer = writer
        self.placements: dict[str, Placement] = {}
        self.constants: list[tuple[Placement, Any]] = []
        self.credentials: list[tuple[str, str]] = []
        self._arguments: dict[str, ArgumentSource] = {}
        self._required: list[str] = []
        self._numbers: dict[str, itertools.count[int]] = {}

    def add_parameter(self, parameter: Mapping[str, Any]) -> None:
        name, place = as_text(parameter.get("name")), parameter.get("in")
        if not name or place not in _STYLES or (place, name.lower()) in _RESERVED:
            return
        if (place, name) in self._document.credential_places or self._is_credential(parameter):
            if parameter.get("required") is True:
                self.credentials.append((place, name))
            return
        media_type, media = next(iter(as_map(parameter.get("content")).items()), ("", None))
        schema = self._not_null(as_map(media).get("schema") if media is not None else parameter.get("schema", {}))
        style = str(parameter.get("style") or _STYLES[place])
        placement = Placement(
            name=name,
            place=place,
            style=style,
            explode=parameter["explode"] if isinstance(parameter.get("explode"), bool) else style == "form",
            is_reserved=parameter.get("allowReserved") is True,
            is_json=_JSON.match(str(media_type)) is not None,
        )
        is_required = parameter.get("required") is True or place == "path"
        self._add(placement, schema, is_required=is_required, text=as_text(parameter.get("description")))

    def _is_credential(self, parameter: Mapping[str, Any]) -> bool:
        """Whether it repeats the token that a security scheme brings, as Slack's document does."""
        name = as_text(parameter.get("name")).lower()
        is_token = name in ("access_token", "oauth_token", "auth_token") or (
            name == "token" and _TOKEN_TEXT.match(as_text(parameter.get("description"))) is not None
        )
        return is_token and bool(as_list(self._raw.content.get("security", self._document.security)))

    def _not_null(self, schema: Any) -> Any:
        """Null cannot be written into a URL or a header; a parameter without a value is left out."""
        source = as_map(schema)
        if source.get("nullable") is True:
            return {key: value for key, value in source.items() if key != "nullable"}
        if isinstance(source.get("type"), list):
            return {**source, "type": [kind for kind in source["type"] if kind != "null"]}
        for keyword in ("anyOf", "oneOf"):
            variants = [variant for variant in as_list(source.get(keyword)) if as_map(variant).get("type") != "null"]
            if variants and len(variants) < len(source[keyword]):
                return {**source, keyword: variants}
        return schema

    def add_body(self) -> str | None:
        """Add the arguments of the body; returns its media type."""
        body = as_map(self._raw.body)
        content = {str(name): as_map(media) for name, media in as_map(body.get("content")).items()}
        media_type = _choose_media(list(content))
        if media_type is None:
            return None
        schema, encoding = content[media_type].get("schema"), as_map(content[media_type].get("encoding"))
        media_type = "application/json" if media_type == "*/*" else media_type
        is_required = body.get("required") is True
        resolved = as_map(self._document.resolve(schema))
        if "form" in media_type and not any(resolved.get(key) for key in _COMPOUND):
            return None  # a form without fields
        shape = self._flat_object(schema)
        if shape is None or not (_JSON.match(media_type) or "form" in media_type):
            text = as_text(body.get("description"))
            is_text = media_type.startswith("text/") or "xml" in media_type
            is_bytes = not (is_text or _JSON.match(media_type))
            if is_bytes:
                schema = {"type": "string", "format": "binary"}
            elif is_text and (resolved.get("type") != "string" or is_binary(resolved)):
                schema, text = (
                    {"type": "string"},
                    f"{text} ({media_type})".strip(),
                )  # only JSON is written for the model
            self._add(Placement("body", "body", is_binary=is_bytes), schema or {}, is_required=is_required, text=text)
            return media_type
        # Most documents do not say whether the body itself is required, and mean that it is (all of Twilio's).
        required = as_list(shape.get("required")) if body.get("required") is not False else []
        for name, member in as_map(shape.get("properties")).items():
            target = as_map(self._document.resolve(member))
            if target.get("readOnly") is not True:
                is_bytes = "form" in media_type and is_binary(as_map(target.get("items")) or target)
                placement = _field(str(name), as_map(encoding.get(name)), is_bytes=is_bytes)
                self._add(placement, member, is_required=name in required, text="")
        return media_type

    def _flat_object(self, schema: Any) -> Mapping[str, Any] | None:
        """The object whose members can be arguments of their own; None if the body is anything else."""
        shape: Mapping[str, Any] = as_map(self._document.resolve(schema))
        if "allOf" in shape:
            shape = merge_parts(self._document, shape)
            parts = as_list(shape.get("allOf"))
            if len(parts) == 1 and "properties" not in shape:
                shape = as_map(self._document.resolve(parts[0]))
        is_plain = not any(key in shape for key in ("allOf", "anyOf", "oneOf", "not"))
        is_open = isinstance(shape.get("additionalProperties"), dict)
        return shape if is_plain and not is_open and as_map(shape.get("properties")) else None

    def _add(self, placement: Placement, schema: Any, *, is_required: bool, text: str) -> None:
        if is_required and (options := _options(self._document.resolve(schema))) and len(options) == 1:
            self.constants.append((placement, options[0]))
            return
        argument = self._free_name(placement)
        self.placements[argument] = placement
        self._arguments[argument] = ArgumentSource(schema, describe(text, placement.name), placement.name)
        if is_required:
            self._required.append(argument)

    def _free_name(self, placement: Placement) -> str:
        plain = placement.name
        if _ARGUMENT.fullmatch(plain) is None:
            words = plain.replace("<", "_lt").replace(">", "_gt")
            plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", words).strip("_")[:_MAX_NAME] or placement.place
        if plain not in self.placements:
            return plain
        short = plain[:50]
        numbered = (f"{short}_{number}" for number in self._numbers.setdefault(short, itertools.count(2)))
        candidates = itertools.chain((f"{short}_{placement.place}",), numbered)
        return next(name for name in candidates if name not in self.placements)

    def input_schema(self) -> dict[str, Any]:
        return self._writer.write_arguments(self._arguments, self._required)

    def description(self) -> str:
        content = self._raw.content
        summary, details = as_text(content.get("summary")), as_text(content.get("description"))
        if details.startswith(summary.rstrip(".")):
            summary = ""
        elif summary and details and summary[-1] not in ".!?:":
            summary += "."
        text = shorten(f"{summary} {details}", _MAX_TEXT)
        if " " not in text:  # nothing, or a name once more
            text = f"{text}: {self._raw.label}" if text else self._raw.label
        if content.get("deprecated") is True:
            text = f"Deprecated. {text}"
        if not self.pages:
            return text
        return f"{text}{'' if text[-1] in '.!?' else '.'} The answer comes in pages: see {', '.join(self.pages)}."

    @functools.cached_property
    def pages(self) -> tuple[str, ...]:
        """The arguments that say which page."""
        names = {
            argument: placement.name.replace("-", "_")
            for argument, placement in self.placements.items()
            if placement.place == "query"
        }
        if not any(_PAGING.fullmatch(name) for name in names.values()):
            return ()
        return tuple(
            argument for argument, name in names.items() if _PAGING.fullmatch(name) or _CURSORS.fullmatch(name)
        )


def _field(name: str, encoding: Mapping[str, Any], *, is_bytes: bool) -> Placement:
    """A member of the body. In a form, an object is one JSON text unless the document states a style."""
    has_style = any(key in encoding for key in ("style", "explode", "allowReserved"))
    style = str(encoding.get("style") or "form")
    explode = encoding.get("explode")
    return Placement(
        name,
        "field",
        style=style,
        explode=explode if isinstance(explode, bool) else style in ("form", "deepObject"),
        is_reserved=encoding.get("allowReserved") is True,
        is_json=not has_style,
        is_binary=is_bytes,
        media_type=as_text(encoding.get("contentType")).split(",")[0] or None,
    )


def _says_it_writes(name: str) -> bool:
    """Whether the name of an operation begins with a verb that changes something: "GET_TerminateInstances"."""
    words = _WORDS.findall(re.sub(r"(?i)^(?:get|head|options)[_.-]+", "", name))
    return bool(words) and words[0].lower() in _WRITING and {"Get", "List", "get", "list"}.isdisjoint(words)


def _options(schema: Any) -> list[Any]:
    source = as_map(schema)
    return [source["const"]] if "const" in source else as_list(source.get("enum"))


def _name_of(stated: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", stated).strip("_-") or "operation"
    if not name[0].isalpha():  # some providers refuse it
        name = f"call_{name}"
    return name[:_MAX_NAME]


def _choose_media(names: list[str]) -> str | None:
    """The media type to send: JSON if there is one, then forms, then whatever comes first.

    Of the kinds of JSON the plain one, or the patch that looks like what it changes: models write those.
    """
    for pattern in (_PLAIN_JSON, _JSON, _URLENCODED, _MULTIPART):
        for name in names:
            if pattern.match(name):
                return name
    return names[0] if names else None


def _output_schema(responses: Mapping[str, Mapping[str, Any]], writer: SchemaWriter) -> dict[str, Any] | None:
    """The schema of every success. "default" is mostly an error, so it counts only if nothing else is stated."""
    successes = sorted(status for status in responses if re.fullmatch(r"2\d\d|2XX", status, re.I))
    schemas: list[Any] = []
    for status in successes or ["default"]:
        content = as_map(responses.get(status, {}).get("content"))
        stated = [as_map(media).get("schema") for name, media in content.items() if _JSON.match(str(name))]
        if stated and stated[0] and stated[0] not in schemas:
            schemas.append(stated[0])
    if not schemas:
        return None
    return writer.write(schemas[0] if len(schemas) == 1 else {"anyOf": schemas}, is_output=True) or None
