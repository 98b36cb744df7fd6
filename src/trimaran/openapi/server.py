"""A server whose tools are the operations of an HTTP API: `Server.from_openapi` and `Server.from_fastapi`.

The document is read once, when the server is made. An operation that cannot be used costs itself, with a warning that
names it, and no other. A call is: arguments checked, request built (`requests.py`), credentials added (`security.py`),
sent, and the answer read (`responses.py`).

Nothing of the caller is passed on to the API unless the operator says so: by `forward_headers`, by `forward_token`, or
by a credential that is a function.
"""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol, TypeAlias, TypedDict, Unpack
from urllib.parse import urlsplit

from trimaran.errors import ConfigError
from trimaran.schema import Validator
from trimaran.server.context import Context
from trimaran.server.server import Server
from trimaran.server.threads import LARGE_MESSAGE
from trimaran.server.tools import compile_generated, meta_of
from trimaran.types import CallToolResult, Tool

from .asgi import AsgiSend
from .definitions import SchemaWriter
from .descriptions import shorten
from .document import Document, DocumentFault, RawOperation, read_document
from .forwarding import RequestHeaders
from .operations import Operation, compile_operation
from .requests import ApiRequest, build_request
from .responses import ApiResponse, read_response
from .security import ApiCredentials, Auth

Chooser: TypeAlias = Iterable[str] | Callable[[Operation], bool]
"""Which operations: patterns such as "GET /pets/*", "/pets/*", "listPets", "tag:billing"; or a function."""
Names: TypeAlias = Mapping[str, str] | Callable[[Operation], str]
"""Other names for tools, by operationId; or a function."""

SCHEMA_BYTES: Final = 12_288
"""Of one schema: 3,000 tokens. Larger ones are cut at a lower level of references."""
RESPONSE_BYTES: Final = 8 * 1024 * 1024
TIMEOUT: Final = 30.0
MAX_INSTRUCTIONS: Final = 1000
"""Characters of the document's description: some are whole manuals."""
_log = logging.getLogger("trimaran.openapi")


class OpenApiOptions(TypedDict, total=False):
    """The options of `Server.from_openapi` and `Server.from_fastapi`."""

    base_url: str | None
    """Where the API is; the first server of the document, if you do not say."""
    auth: Auth | None
    """Secrets for the API: one for all security schemes, or by the scheme's name. A function is called with the Context."""
    headers: Mapping[str, str] | None
    """Sent with every request."""
    forward_headers: Iterable[str]
    """Headers of the caller that are passed on to the API; none, if you do not say."""
    forward_token: bool
    """Pass the caller's bearer token on, where the API takes one."""
    include: Chooser | None
    """Which operations become tools; all, if you do not say."""
    exclude: Chooser
    names: Names | None
    timeout: float
    """Seconds for one request."""
    schema_bytes: int
    """Of one schema; a larger one is cut at a lower level of references, or of nesting."""
    response_bytes: int
    """Of one answer; a larger one is refused."""
    name: str | None
    version: str | None
    instructions: str | None
    send: Send | None
    """Sends the requests, in place of HTTP: for tests, or an HTTP library of your own."""


class Send(Protocol):
    """Sends a request to the API and brings its whole answer. It is entered before the first call and left at the end."""

    async def __call__(self, request: ApiRequest) -> ApiResponse: ...
    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *error: Any) -> Any: ...


def build_server(
    source: Mapping[str, Any] | str | os.PathLike[str],
    *,
    base_url: str | None = None,
    auth: Auth | None = None,
    headers: Mapping[str, str] | None = None,
    forward_headers: Iterable[str] = (),
    forward_token: bool = False,
    include: Chooser | None = None,
    exclude: Chooser = (),
    names: Names | None = None,
    timeout: float = TIMEOUT,
    schema_bytes: int = SCHEMA_BYTES,
    response_bytes: int = RESPONSE_BYTES,
    name: str | None = None,
    version: str | None = None,
    instructions: str | None = None,
    send: Send | None = None,
) -> Server:
    """Make a server of a document; `OpenApiOptions` says what the options mean."""
    document = read_document(source)
    if send is None:
        from .http import HttpSend

        send = HttpSend(
            _base_of(document, base_url),
            timeout=timeout,
            most_bytes=response_bytes,
            has_other_servers=base_url is None,  # who says where the API is means all of it, and its credentials
        )
    request_headers = RequestHeaders(headers or {}, forward_headers)
    credentials = ApiCredentials(document.security_schemes, auth, forward_token=forward_token)
    server = Server(
        name or document.title,
        version=version or document.version,
        instructions=instructions or shorten(document.description, MAX_INSTRUCTIONS) or None,
        lifespan=_lifespan(send),
    )
    writer = SchemaWriter(document, most_bytes=schema_bytes)
    operations = list(_chosen(document, writer, request_headers.names, include, exclude))
    for tool, operation in _named(operations, names):
        definition = _definition(tool, operation)
        function = _OperationTool(operation, request_headers, credentials, send)
        server.tools.add(compile_generated(definition, function))
    if not operations and (include is not None or exclude):
        raise ConfigError(
            f"{document.title}: no operation is left that could become a tool; see include, exclude and the log"
        )
    if not operations:
        _log.warning("%s has no operation that could become a tool", document.title)
    return server


def build_from_app(app: Any, **options: Unpack[OpenApiOptions]) -> Server:
    """Make a server of an application that describes itself with `app.openapi()`."""
    if not callable(getattr(app, "openapi", None)):
        raise ConfigError(f"from_fastapi takes a FastAPI application, which has openapi(); not {type(app).__name__}")
    if options.get("send") is None:
        most_bytes = options.get("response_bytes", RESPONSE_BYTES)
        options["send"] = AsgiSend(app, timeout=options.get("timeout", TIMEOUT), most_bytes=most_bytes)
    return build_server(app.openapi(), **options)


def _lifespan(send: Send) -> Callable[[Server], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[None]:
        async with send:
            yield

    return lifespan


def _base_of(document: Document, base_url: str | None) -> str:
    url = base_url or document.server_url
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(
            f"{document.title}: base_url={base_url!r} is not an http or https URL"
            if base_url
            else f'{document.title} does not say where the API is: give base_url="https://api.example.com"'
        )
    return url


def _chosen(
    document: Document, writer: SchemaWriter, headers: Set[str], include: Chooser | None, exclude: Chooser
) -> Iterable[Operation]:
    is_included = _matcher(include) if include is not None else None
    is_excluded = _matcher(exclude)
    for raw in document.operations():
        if not isinstance(raw, RawOperation):
            _log.warning("%s is left out: %s", *raw)
            continue
        try:
            operation = compile_operation(document, raw, writer, headers)
        except DocumentFault as fault:
            _log.warning("%s is left out: %s", raw.label, fault)
            continue
        except RecursionError:
            _log.warning("%s is left out: its schemas are nested too deeply", raw.label)
            continue
        if (is_included is None or is_included(operation)) and not is_excluded(operation):
            yield operation


def _matcher(chooser: Chooser) -> Callable[[Operation], bool]:
    if callable(chooser):
        return chooser
    if isinstance(chooser, str):
        raise ConfigError(f"include and exclude take a list of patterns or a function: [{chooser!r}]")
    patterns = [re.compile(fnmatch.translate(pattern)) for pattern in chooser]

    def matches(operation: Operation) -> bool:
        texts = [operation.name, operation.path, operation.label, *(f"tag:{tag}" for tag in operation.tags)]
        return any(pattern.match(text) for pattern in patterns for text in texts)

    return matches


def _named(operations: list[Operation], names: Names | None) -> Iterable[tuple[str, Operation]]:
    """Each operation with the name of its tool. Two operations with one name are told apart by a number."""
    used: set[str] = set()
    numbers: dict[str, int] = {}
    for operation in operations:
        stated = operation.name if operation.short_name in used else operation.short_name
        if callable(names):
            stated = names(operation)
        elif names is not None:
            stated = names.get(operation.name, names.get(stated, stated))
        tool = stated
        while tool in used:
            start = stated[:60]
            numbers[start] = number = numbers.get(start, 1) + 1
            tool = f"{start}_{number}"
        used.add(tool)
        yield tool, operation


class _OperationTool:
    __slots__ = ("_credentials", "_headers", "_operation", "_output", "_send")

    def __init__(self, operation: Operation, headers: RequestHeaders, credentials: ApiCredentials, send: Send) -> None:
        self._operation = operation
        self._headers = headers
        self._credentials = credentials
        self._send = send
        self._output: Validator | None = None

    async def __call__(self, arguments: dict[str, Any], ctx: Context) -> CallToolResult:
        operation = self._operation
        request = build_request(operation, arguments)
        self._headers.apply(request, ctx)
        await self._credentials.apply(operation, request, ctx)
        response = await self._send(request)
        if self._output is None and operation.output_schema is not None:
            self._output = Validator(operation.output_schema)
        if len(response.body) <= LARGE_MESSAGE:
            return read_response(operation, response, self._output)
        return await asyncio.to_thread(read_response, operation, response, self._output)


def _definition(tool: str, operation: Operation) -> Tool:
    return Tool(
        name=tool,
        title=operation.title,
        description=operation.description,
        input_schema=operation.input_schema,
        output_schema=operation.output_schema,
        annotations=operation.annotations,
        meta=meta_of(None, operation.tags, f"tool {tool!r}"),
    )
