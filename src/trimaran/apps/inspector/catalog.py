"""What one server offers: tools, resources, templates, prompts, skills and tasks, as they came over the wire.

Definitions are kept as JSON, unread, because an inspector must show what a client would hide. The client reads the lists
too, so that it knows each tool's headers and schemas when it is called. A list is read again when the server says that it
changed; several announcements in a row are one reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, final, get_args

import msgspec
from msgspec import Struct

from trimaran.errors import DeclarationError, Error, Unsupported
from trimaran.ext.apps.metadata import ui_of
from trimaran.host.context.tokens import count_tokens
from trimaran.protocol.headers import compile_param_headers
from trimaran.schema.validate import Validator, Violation

from .events import PageEvents, now_ms
from .failures import PageFailure, failure_of
from .findings import ToolFinding, findings_of
from .pointers import pointer_of, step_of
from .wire import REPLIES

if TYPE_CHECKING:
    from .servers import InspectedServer

CatalogKind: TypeAlias = Literal["tools", "resources", "templates", "prompts", "skills", "tasks"]
KINDS: Final[tuple[CatalogKind, ...]] = get_args(CatalogKind)
_METHODS: Final[dict[CatalogKind, str]] = {
    "tools": "tools/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
    "prompts": "prompts/list",
    "skills": "skills/list",
    "tasks": "tasks/list",
}
_MEMBERS: Final[dict[CatalogKind, str]] = {"templates": "resourceTemplates"}
_CHANGES: Final[dict[str, tuple[CatalogKind, ...]]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}
_PAUSE: Final = 0.1  # seconds between an announcement and the reading: more announcements may follow
_MOST_PAGES: Final = 1_000
_MOST_TASKS: Final = 1_000
_AT_ONCE: Final = 20  # tools that are linted in one turn of the loop: some milliseconds
_MOST_LINTED: Final = 2_000  # tools; beyond, findings are made on the lint page only

_decode = msgspec.json.Decoder().decode
Entry: TypeAlias = dict[str, Any]


class SchemaViolation(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One place where a value breaks its schema; `path` is a JSON pointer."""

    path: str
    message: str
    keyword: str | None = None


class ToolCard(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One tool."""

    definition: Any
    tokens: int
    hidden: bool
    problems: list[ToolFinding]
    app: dict[str, str] | None = None
    long_running: bool | None = None


class TaskCard(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One task of a server."""

    id: str
    status: str
    raw: Any
    status_message: str | None = None
    created_at: Any = None
    ttl: Any = None
    call: str | None = None


@final
class Catalog:
    """The lists of one server."""

    def __init__(self, server: InspectedServer, events: PageEvents) -> None:
        self._server = server
        self._events = events
        self._lists: dict[CatalogKind, list[Any]] = {}
        self._tools: list[ToolCard] = []
        self._errors: dict[CatalogKind, PageFailure] = {}
        self._read_at: dict[CatalogKind, float] = {}
        self._hints: dict[CatalogKind, dict[str, Any]] = {}
        self._due: set[CatalogKind] = set()
        self._tasks: dict[str, TaskCard] = {}
        self._validators: dict[tuple[str, str], Validator | None] = {}
        self._reading = asyncio.Lock()
        self.tokens: int | None = None
        """What all tool definitions cost a model."""
        self.generation: int = 0
        self.is_complete: bool = False
        """All lists were read since the last connection."""

    def clear(self) -> None:
        """Forget all: another server may answer now."""
        self._lists.clear()
        self._tools.clear()
        self._errors.clear()
        self._read_at.clear()
        self._hints.clear()
        self._validators.clear()
        self._tasks.clear()
        self.tokens = None
        self.is_complete = False

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = {kind: len(entries) for kind, entries in self._lists.items()}
        return {**counts, "tasks": len(self._tasks)} if self._tasks else counts

    def to_json(self, kind: CatalogKind | None = None) -> dict[str, Any]:
        kinds = KINDS if kind is None else (kind,)
        lists = {name: self._entries(name) for name in kinds}
        return {**lists, "errors": self._errors, "readAt": self._read_at, "cacheHints": self._hints}

    def _entries(self, kind: CatalogKind) -> Sequence[Any]:
        if kind == "tools":
            return self._tools
        return list(self._tasks.values()) if kind == "tasks" else self._lists.get(kind, [])

    @property
    def definitions(self) -> list[Entry]:
        """The definitions of the tools."""
        return self._lists.get("tools", [])

    def entries(self, kind: CatalogKind) -> list[Entry]:
        """The definitions of one list."""
        return list(self._lists.get(kind, []))

    def tool(self, name: str) -> Entry | None:
        """The definition of one tool; the first of that name."""
        return next((tool for tool in self.definitions if tool.get("name") == name), None)

    # Reading

    def announce(self, method: str) -> None:
        """A notification of the server: if it says that a list changed, read the list again soon."""
        kinds = _CHANGES.get(method)
        if kinds is None:
            return
        if not self._due:
            asyncio.get_running_loop().call_later(_PAUSE, self._read_due)
        self._due.update(kinds)

    def _read_due(self) -> None:
        kinds, self._due = tuple(self._due), set()
        if self._server.state == "ready":
            self._server.spawn(self.read(kinds))

    async def read(self, kinds: Sequence[CatalogKind] = KINDS) -> None:
        """Read lists from the server, each with its own failure."""
        async with self._reading:
            for kind in kinds:
                if not self._is_offered(kind):
                    self._lists.pop(kind, None)
                    continue
                try:
                    entries, hints = await self._fetch(kind)
                except Unsupported:
                    continue
                except Error as error:
                    self._errors[kind] = failure_of(error)
                    self._tell(kind)
                    if self._server.state != "ready":
                        return
                    continue
                await self._take(kind, entries)
                self._hints[kind] = hints
                self._tell(kind)
            self.is_complete = True
        self._server.tell()

    def _is_offered(self, kind: CatalogKind) -> bool:
        client = self._server.client
        if client is None:
            return False
        try:
            offered = client.server_capabilities
        except Error:
            return False
        if kind == "skills":
            extensions: Any = offered.get("extensions") or {}
            return (
                any("skills" in name for name in cast("Entry", extensions)) if isinstance(extensions, dict) else False
            )
        if kind == "tasks":
            tasks: Any = offered.get("tasks")
            return isinstance(tasks, dict) and "list" in tasks
        return ("resources" if kind == "templates" else kind) in offered

    async def _fetch(self, kind: CatalogKind) -> tuple[list[Entry], dict[str, Any]]:
        client = self._server.ready_client()
        replies: list[bytes] = []
        token = REPLIES.set(replies)
        try:
            if kind == "tools":
                await client.list_tools_all(fresh=True)
            elif kind == "resources":
                await client.list_resources_all(fresh=True)
            elif kind == "templates":
                await client.list_resource_templates_all(fresh=True)
            elif kind == "prompts":
                await client.list_prompts_all(fresh=True)
            else:
                await self._fetch_pages(client.request, _METHODS[kind])
        finally:
            REPLIES.reset(token)
        return _merged(replies, _MEMBERS.get(kind, kind))

    async def _fetch_pages(self, request: Callable[..., Any], method: str) -> None:
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await request(method, {} if cursor is None else {"cursor": cursor})
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                return

    async def _take(self, kind: CatalogKind, entries: list[Entry]) -> None:
        self._errors.pop(kind, None)
        self._lists[kind] = entries
        self._read_at[kind] = now_ms()
        self.generation += 1
        if kind == "tools":
            self._validators.clear()
            is_few = len(entries) <= _MOST_LINTED
            over_http = self._server.reach.transport == "http"
            cards: list[ToolCard] = []
            for number, tool in enumerate(entries):
                cards.append(_tool_entry(tool, lints=is_few, over_http=over_http))
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)  # a thousand tools take a while to lint, and the page must not wait
            self._tools = cards
            self.tokens = sum(tool.tokens for tool in self._tools)
        if kind == "tasks":
            for task in entries:
                self.see_task(task, None)

    def _tell(self, kind: CatalogKind) -> None:
        count = len(self._lists.get(kind, ()))
        fields: dict[str, Any] = {"error": self._errors[kind]} if kind in self._errors else {}
        key = f"{self._server.id} {kind}"
        self._events.emit("catalog", key=key, server=self._server.id, kind=kind, count=count, **fields)

    # Tasks

    def see_task(self, value: Any, call: str | None) -> TaskCard | None:
        """Take note of a task that the server told of."""
        task: Entry = cast("Entry", value) if isinstance(value, dict) else {}
        id, status = task.get("taskId"), task.get("status")
        if not isinstance(id, str) or not isinstance(status, str):
            return None
        known = self._tasks.pop(id, None)
        message: Any = task.get("statusMessage")
        card = TaskCard(
            id=id,
            status=status,
            raw=task,
            status_message=message if isinstance(message, str) else None,
            created_at=task.get("createdAt"),
            ttl=task.get("ttl", task.get("ttlMs")),
            call=call or (known.call if known is not None else None),
        )
        self._tasks[id] = card
        while len(self._tasks) > _MOST_TASKS:
            del self._tasks[next(iter(self._tasks))]
        self._events.emit("task", key=f"{self._server.id} {id}", size=1_000, server=self._server.id, task=card)
        return card

    # Checks

    def violations(
        self, tool: str, member: Literal["inputSchema", "outputSchema"], value: Any
    ) -> list[SchemaViolation]:
        """Where a value breaks a schema of a tool; empty without a schema, or if the schema itself is broken."""
        key = (tool, member)
        if key not in self._validators:
            self._validators[key] = _validator_of(self.tool(tool), member)
        validator = self._validators[key]
        if validator is None:
            return []
        return [_schema_violation(violation) for violation in validator.errors(value) if not violation.is_unchecked]

    def prompt_violations(self, name: str, arguments: Any) -> list[SchemaViolation]:
        """What is wrong with the arguments of a prompt: texts, and all that it requires."""
        if not isinstance(arguments, dict | None):
            return [
                SchemaViolation(path="", message="the arguments of a prompt are an object of texts", keyword="type")
            ]
        prompt = next((entry for entry in self.entries("prompts") if entry.get("name") == name), None)
        declared = None if prompt is None else prompt.get("arguments")
        return list(_texts_missing(declared, cast("Entry", arguments or {})))


def _texts_missing(declared: Any, arguments: Mapping[str, Any]) -> Iterator[SchemaViolation]:
    for name, value in arguments.items():
        if not isinstance(value, str):
            yield SchemaViolation(path=step_of(name), message="the arguments of a prompt are texts", keyword="type")
    for argument in cast("list[Any]", declared) if isinstance(declared, list) else []:
        if isinstance(argument, dict) and cast("Entry", argument).get("required") is True:
            name = str(cast("Entry", argument).get("name"))
            if name not in arguments:
                yield SchemaViolation(path=step_of(name), message=f'"{name}" is required', keyword="required")


def _validator_of(tool: Entry | None, member: str) -> Validator | None:
    schema: Any = None if tool is None else tool.get(member)
    if not isinstance(schema, dict):
        return None
    try:
        return Validator(cast("Entry", schema))
    except DeclarationError:
        return None


def _schema_violation(violation: Violation) -> SchemaViolation:
    path = pointer_of(violation.path, violation.subject if violation.keyword == "required" else "")
    return SchemaViolation(path=path, message=violation.reason, keyword=violation.keyword or None)


def _merged(replies: Sequence[bytes], member: str) -> tuple[list[Entry], dict[str, Any]]:
    """The entries of all pages as they came, and the cache hints of the first."""
    entries: list[Entry] = []
    hints: dict[str, Any] = {}
    for number, reply in enumerate(replies):
        try:
            message: Any = _decode(reply)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        result: Any = message.get("result") if isinstance(message, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if not isinstance(result, dict):
            continue
        page = cast("Entry", result)
        listed: Any = page.get(member)
        if isinstance(listed, list):
            entries += [cast("Entry", item) for item in cast("list[Any]", listed) if isinstance(item, dict)]
        if number == 0:
            hints = {
                name: page[key]
                for key, name in (("ttlMs", "ttlMs"), ("cacheScope", "scope"))
                if page.get(key) is not None
            }
    return entries, hints


def _tool_entry(tool: Entry, *, lints: bool, over_http: bool) -> ToolCard:
    execution: Any = tool.get("execution")
    support: Any = cast("Entry", execution).get("taskSupport") if isinstance(execution, dict) else None
    view = ui_of(tool)
    return ToolCard(
        definition=tool,
        tokens=count_tokens(msgspec.json.encode(tool).decode()),
        hidden=over_http and not _has_usable_headers(tool),
        problems=findings_of(tool) if lints else [],
        app=None if view.resource_uri is None else {"uri": view.resource_uri},
        long_running=True if support in ("optional", "required") else None,
    )


def _has_usable_headers(tool: Entry) -> bool:
    schema: Any = tool.get("inputSchema")
    try:
        if isinstance(schema, dict):
            compile_param_headers(cast("Entry", schema))
    except DeclarationError:
        return False
    return True
