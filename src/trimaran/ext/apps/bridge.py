"""The conversation between a view and its host, without the window it happens in: messages in, events and messages out.

    bridge = Bridge(tools, view=view, context={"theme": "dark"})
    for event in bridge.receive(message):       # a message that the frame posted
        ...act on it, then bridge.answer(event, result) or bridge.refuse(event, why)
    for message in bridge.outgoing(): post(message)

The states and their transitions:

    new      --ui/initialize-->  greeted  --ui/notifications/initialized-->  ready
    ready    --teardown()-->     leaving  --its answer, or close()-->        closed
    new, greeted  --teardown()-->  closed

The host's notifications and requests wait until the view is ready; answers do not. The view is not trusted: whatever is
not a message of this dialect, sent in the right state, within the limits, is refused, answered with an error if it was a
request, and reported as `MessageRefused`. A view may call the tools it was given here, which are those of its own server, and of
them only those open to apps. Everything it asks for is logged by name, never with its values.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias, cast, final
from urllib.parse import urlsplit

from msgspec import Struct

from trimaran.depth import decode_json
from trimaran.errors import (
    CODE_INTERNAL,
    CODE_INVALID_PARAMS,
    CODE_INVALID_REQUEST,
    CODE_METHOD_NOT_FOUND,
    CODE_PARSE,
    LocalProtocolError,
    ProtocolError,
    TransportError,
)
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.meta import LOG_LEVELS
from trimaran.types import Json, Tool, as_object

from .metadata import ui_of
from .views import View

log: logging.Logger = logging.getLogger("trimaran.ext.apps")

VERSION: Final = "2026-01-26"
"""The revision of the dialect."""
MODES: Final = ("inline", "fullscreen", "pip")
DENIED: Final = -32000
"""The code under which a host says no (the specification's examples)."""
CAPABILITIES: Final[dict[str, Json]] = {"openLinks": {}, "serverTools": {}, "serverResources": {}, "logging": {}}
"""The default capabilities of a host."""

# A view posts small messages. The longest is text for the model, and that is not megabytes either.
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
# A person clicks, a page refreshes: a view with more questions open than this is a loop.
MAX_IN_FLIGHT: Final = 64
MAX_URL: Final = 8192
MAX_WAITING: Final = 256  # messages of the host, before the view is ready

_SANDBOX: Final = "ui/notifications/sandbox-"
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f\\]")


class ViewEvent(Struct, frozen=True, kw_only=True):
    """Something the view did, for the host to act on."""


class ViewRequest(ViewEvent, frozen=True, kw_only=True):
    """Something the view asked for: `Bridge.answer` or `Bridge.refuse` it."""

    id: RequestId


@final
class Initialized(ViewEvent, frozen=True, kw_only=True):
    """The view is ready. Messages that waited for that are now outgoing."""

    app_info: Mapping[str, Json]
    capabilities: Mapping[str, Json]


@final
class ViewToolCall(ViewRequest, frozen=True, kw_only=True):
    """Call this tool of the view's own server. Answer with its result."""

    server: str | None
    name: str
    arguments: Mapping[str, Json]


@final
class ResourceRead(ViewRequest, frozen=True, kw_only=True):
    """Read this resource of the view's own server. Answer with its result."""

    server: str | None
    uri: str


@final
class OpenLink(ViewRequest, frozen=True, kw_only=True):
    """Open this page (http or https) in the person's browser, if they agree. Answer with nothing."""

    url: str


@final
class MessageRequest(ViewRequest, frozen=True, kw_only=True):
    """Add this message to the conversation, if the person agrees. Answer with nothing."""

    role: str
    content: tuple[Mapping[str, Json], ...]


@final
class DisplayMode(ViewRequest, frozen=True, kw_only=True):
    """Show the view in this mode, which both sides have. Answer with `{"mode": ...}`: the one it is in now."""

    mode: str


@final
class ModelContext(ViewRequest, frozen=True, kw_only=True):
    """Give this to the model in the next turn, instead of the previous context. Answer with nothing."""

    content: tuple[Mapping[str, Json], ...]
    structured: Mapping[str, Json] | None


@final
class Cancelled(ViewEvent, frozen=True, kw_only=True):
    """The view no longer waits for the answer to this request."""

    id: RequestId


@final
class SizeChanged(ViewEvent, frozen=True, kw_only=True):
    """The view's content has this size now, in pixels."""

    width: float | None
    height: float | None


@final
class Logged(ViewEvent, frozen=True, kw_only=True):
    """A log message of the view."""

    level: str
    data: Json
    logger: str | None


@final
class TornDown(ViewEvent, frozen=True, kw_only=True):
    """The view has put away its things and may be removed. `error`: it could not."""

    error: str | None = None


@final
class MessageRefused(ViewEvent, frozen=True, kw_only=True):
    """A message that was not let through. For the record: an answer, if one was due, is on its way."""

    method: str | None
    reason: str


class _Refusal(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


Routed: TypeAlias = "Callable[[Bridge, RequestId, Mapping[str, Any]], ViewEvent | None]"
Heard: TypeAlias = "Callable[[Bridge, Mapping[str, Any]], list[ViewEvent]]"


@final
class Bridge:
    """One view's conversation with its host. Not for several threads at once."""

    def __init__(
        self,
        tools: Iterable[Tool | Mapping[str, Json]] = (),
        *,
        server: str | None = None,
        view: View | None = None,
        host_info: Mapping[str, Json] | None = None,
        capabilities: Mapping[str, Json] | None = None,
        granted: Iterable[str] = (),
        context: Mapping[str, Json] | None = None,
    ) -> None:
        """Create one for each open view.

        Args:
            tools: The tools of the view's own server, as listed. The view can call no other.
            server: A name for that server, for the host: it comes back with each call.
            view: The view. Needed if a sandbox proxy loads it: the proxy gets the HTML when it is ready.
            host_info: The name and version the host gives itself.
            capabilities: The requests of views that the host serves; others are refused.
            granted: The permissions that the host grants, of those the view asks for; by default none.
            context: The host's theme, locale, displayMode, availableDisplayModes and so on.
        """
        self.server = server
        self.state: str = "new"
        self.app_info: Mapping[str, Json] = {}
        self.app_capabilities: Mapping[str, Json] = {}
        self.context: dict[str, Json] = dict(context or {})
        self._tools: dict[str, frozenset[str]] = {}
        self.update_tools(tools)
        self._view = view
        self._is_loaded = False
        self._host_info = dict(host_info or {"name": "trimaran", "version": "1"})
        self._capabilities = dict(CAPABILITIES if capabilities is None else capabilities)
        if view is not None:
            self._capabilities.setdefault("sandbox", _sandbox(view, frozenset(granted)))
        self._granted = frozenset(granted)
        self._open: dict[RequestId, ViewRequest] = {}
        self._out: list[dict[str, Json]] = []
        self._waiting: list[dict[str, Json]] = []
        self._teardown: str | None = None
        self._input: str = "none"

    def update_tools(self, tools: Iterable[Tool | Mapping[str, Json]]) -> None:
        """Follow a change of the server's tools."""
        self._tools = {cast("str", t["name"]) if isinstance(t, Mapping) else t.name: ui_of(t).visibility for t in tools}

    def __repr__(self) -> str:
        return f"<Bridge {self.state}, {len(self._open)} requests open>"

    # From the view

    def receive(self, message: bytes | str | Mapping[str, Any]) -> list[ViewEvent]:
        """Read one message of the view. Never raises: an invalid message is a `MessageRefused` event."""
        method: str | None = None
        id: RequestId | None = None
        try:
            frame = _read(message)
            method, id = _method(frame), _id(frame)
            if self.state == "closed":
                # Nobody is there to be answered.
                return [self._refuse(None, method, CODE_INVALID_REQUEST, "the view is gone")]
            if method is None:
                return self._take_answer(frame, id)
            params = _params(frame)
            if "id" not in frame:
                return self._take_notice(method, params)
            if id is None:
                raise _Refusal(CODE_INVALID_REQUEST, "the id of a request must be text or a whole number")
            return self._take_request(method, id, params)
        except _Refusal as refusal:
            return [self._refuse(id, method, refusal.code, refusal.reason)]

    def _take_request(self, method: str, id: RequestId, params: Mapping[str, Any]) -> list[ViewEvent]:
        if id in self._open:
            # Answering would end the other one in the view's eyes.
            return [self._refuse(None, method, CODE_INVALID_REQUEST, "a request with this id is open")]
        if method == "ping":
            self._reply(id, {})
            return []
        if method == "ui/initialize":
            self._greet(id, params)
            return []
        if self.state not in ("ready", "leaving"):
            raise _Refusal(CODE_INVALID_REQUEST, "the view has not said ui/notifications/initialized yet")
        route = _REQUESTS.get(method)
        if route is None:
            raise _Refusal(CODE_METHOD_NOT_FOUND, "views have no such method")
        capability, make = route
        if capability is not None and self._capabilities.get(capability) is None:
            raise _Refusal(CODE_METHOD_NOT_FOUND, f"this host has not declared {capability}")
        if len(self._open) >= MAX_IN_FLIGHT:
            raise _Refusal(DENIED, f"{MAX_IN_FLIGHT} requests are open; wait for an answer")
        event = make(self, id, params)
        log.info("the view asks for %s", _named(method, event))
        if event is None:
            return []
        self._open[id] = cast("ViewRequest", event)
        return [event]

    def _take_notice(self, method: str, params: Mapping[str, Any]) -> list[ViewEvent]:
        if method == "ui/notifications/initialized":
            if self.state != "greeted":
                raise _Refusal(
                    CODE_INVALID_REQUEST,
                    f"ui/notifications/initialized follows the answer to ui/initialize, once; the state is {self.state}",
                )
            self.state = "ready"
            self._out += self._waiting
            self._waiting.clear()
            return [Initialized(app_info=self.app_info, capabilities=self.app_capabilities)]
        if method == _SANDBOX + "proxy-ready":
            return self._load()
        if method.startswith(_SANDBOX):
            raise _Refusal(CODE_INVALID_REQUEST, "only the host sends this, to the sandbox; a view must not")
        hear = _NOTICES.get(method)
        if hear is None:
            raise _Refusal(CODE_METHOD_NOT_FOUND, "views have no such notification")
        if self.state not in ("ready", "leaving"):
            raise _Refusal(CODE_INVALID_REQUEST, "the view has not said ui/notifications/initialized yet")
        return hear(self, params)

    def _take_answer(self, frame: Mapping[str, Any], id: RequestId | None) -> list[ViewEvent]:
        if ("result" in frame) == ("error" in frame):
            raise _Refusal(CODE_INVALID_REQUEST, "a message must have a method, a result or an error")
        if id is None or id != self._teardown:
            return [self._refuse(None, None, CODE_INVALID_REQUEST, "an answer to nothing that was asked")]
        self._end()
        error = as_object(frame.get("error"))
        if "error" not in frame:
            return [TornDown()]
        return [TornDown(error=str((error or {}).get("message"))[:500])]

    def _greet(self, id: RequestId, params: Mapping[str, Any]) -> None:
        if self.state != "new":
            raise _Refusal(CODE_INVALID_REQUEST, "the view is initialized already: send ui/initialize once")
        info = as_object(params.get("appInfo", {}))
        offered = as_object(params.get("appCapabilities"))
        if info is None or offered is None or not isinstance(params.get("protocolVersion"), str):
            raise _Refusal(
                CODE_INVALID_PARAMS, "ui/initialize needs appInfo and appCapabilities (objects) and protocolVersion"
            )
        modes: Any = offered.get("availableDisplayModes", [])
        if not isinstance(modes, list):
            raise _Refusal(CODE_INVALID_PARAMS, "appCapabilities.availableDisplayModes must be a list")
        self.app_info, self.app_capabilities = info, offered
        self.state = "greeted"
        self._reply(
            id,
            {
                "protocolVersion": VERSION,
                "hostCapabilities": self._capabilities,
                "hostInfo": self._host_info,
                "hostContext": dict(self.context),
            },
        )

    def _load(self) -> list[ViewEvent]:
        view = self._view
        if view is None or self._is_loaded or self.state != "new":
            raise _Refusal(
                CODE_INVALID_REQUEST, "the host does not wait for a sandbox: this message came twice, or too early"
            )
        self._is_loaded = True
        permissions: dict[str, Json] = {name: {} for name in view.permissions if name in self._granted}
        params: dict[str, Json] = {"html": view.html}
        if view.csp is not None:
            params["csp"] = view.csp.to_json()
        if permissions:
            params["permissions"] = permissions
        # To the sandbox, not to the view: it need not wait.
        self._out.append({"jsonrpc": "2.0", "method": _SANDBOX + "resource-ready", "params": params})
        return []

    def _refuse(self, id: RequestId | None, method: str | None, code: int, reason: str) -> MessageRefused:
        log.warning("refused %s from a view: %s", "an answer" if method is None else repr(method[:80]), reason)
        if id is not None:
            error = {"code": code, "message": reason}
            self._out.append({"jsonrpc": "2.0", "id": id, "error": error})
        return MessageRefused(method=method, reason=reason)

    # Answering it

    def answer(self, request: ViewRequest, result: Mapping[str, Json] | None = None) -> None:
        """Answer a request of the view. Does nothing if the view no longer waits.

        Raises:
            LocalProtocolError: a display mode the view does not have.
        """
        reply = dict(result or {})
        if isinstance(request, DisplayMode):
            mode = reply.setdefault("mode", request.mode)
            self._check_mode(mode)
            self.context["displayMode"] = mode
        if self._close_request(request):
            self._reply(request.id, reply)

    def refuse(self, request: ViewRequest, why: str = "denied", *, code: int = DENIED, data: Json = None) -> None:
        """Refuse a request of the view."""
        if self._close_request(request):
            error: dict[str, Json] = {"code": code, "message": why, **({} if data is None else {"data": data})}
            self._out.append({"jsonrpc": "2.0", "id": request.id, "error": error})

    def _close_request(self, request: ViewRequest) -> bool:
        # The same object: an id may be used again once its request was answered.
        if self._open.get(request.id) is not request:
            return False
        del self._open[request.id]
        return True

    def _reply(self, id: RequestId, result: dict[str, Json]) -> None:
        self._out.append({"jsonrpc": "2.0", "id": id, "result": result})

    # To the view

    def outgoing(self) -> list[dict[str, Json]]:
        """The messages to post to the frame, in order; each is returned once."""
        out, self._out = self._out, []
        return out

    def tool_input_partial(self, arguments: Mapping[str, Json]) -> None:
        """Send the incomplete arguments, while the model is still writing them."""
        if self._input != "none":
            raise LocalProtocolError.invalid_request(
                "tool_input was sent already; send no part of the arguments after it"
            )
        method = "ui/notifications/tool-input-partial"
        self._waiting = [m for m in self._waiting if m["method"] != method]  # the newest says it all
        self._notify(method, {"arguments": dict(arguments)})

    def tool_input(self, arguments: Mapping[str, Json]) -> None:
        """Tell the arguments of the call that is shown: once, and before its result."""
        if self._input != "none":
            raise LocalProtocolError.invalid_request("tool_input was sent already; a call has its arguments once")
        self._notify("ui/notifications/tool-input", {"arguments": dict(arguments)})
        self._input = "told"

    def tool_result(self, result: Mapping[str, Json]) -> None:
        """Tell the result of the call that is shown."""
        if self._input != "told":
            raise LocalProtocolError.invalid_request("send tool_input first, and tool_result once")
        self._notify("ui/notifications/tool-result", dict(result))
        self._input = "over"

    def tool_cancelled(self, reason: str | None = None) -> None:
        """Tell that the call that is shown will have no result."""
        if self._input == "over":
            raise LocalProtocolError.invalid_request("the call is over; it cannot be cancelled any more")
        self._notify("ui/notifications/tool-cancelled", {} if reason is None else {"reason": reason})
        self._input = "over"

    def context_changed(self, **changes: Json) -> None:
        """Send changes of the host's context: theme, displayMode, locale and so on, under the wire's names."""
        if "displayMode" in changes:
            self._check_mode(changes["displayMode"])
        self.context.update(changes)
        # A view that has not been greeted yet is greeted with it.
        if self.state != "new":
            self._notify("ui/notifications/host-context-changed", dict(changes))

    def teardown(self, reason: str | None = None) -> bool:
        """Ask the view to put away its things. True: wait, but not for long, for `TornDown`; False: it is gone."""
        if self.state == "ready":
            self.state = "leaving"
            self._teardown = "host-teardown"
            params: dict[str, Json] = {} if reason is None else {"reason": reason}
            message: dict[str, Json] = {"jsonrpc": "2.0", "id": self._teardown, "method": "ui/resource-teardown"}
            self._out.append({**message, "params": params})
        elif self.state != "leaving":
            self._end()
        return self.state == "leaving"

    def close(self) -> None:
        """End it here and now, for a view that does not answer or is gone."""
        self._end()

    def _end(self) -> None:
        self.state = "closed"
        self._teardown = None
        self._open.clear()
        self._waiting.clear()

    def _notify(self, method: str, params: dict[str, Json]) -> None:
        if self.state == "closed":
            raise LocalProtocolError.invalid_request("the view is gone; send it nothing more")
        message: dict[str, Json] = {"jsonrpc": "2.0", "method": method, "params": params}
        if self.state in ("ready", "leaving"):
            self._out.append(message)
            return
        # "MUST NOT send any request or notification to the View before it receives an initialized notification"
        if len(self._waiting) >= MAX_WAITING:
            raise LocalProtocolError.invalid_request(f"{MAX_WAITING} messages wait for a view that is not ready")
        self._waiting.append(message)

    def _check_mode(self, mode: object) -> None:
        if mode != self.context.get("displayMode") and mode not in self._modes():
            raise LocalProtocolError.invalid_params(
                f"the view cannot be shown as {mode!r}; it has {', '.join(self._modes()) or 'no other mode'}"
            )

    def _modes(self) -> list[str]:
        """The display modes that both sides have. A view that names none is taken to have them all."""
        available: Any = self.context.get("availableDisplayModes", MODES)
        its: Any = self.app_capabilities.get("availableDisplayModes", MODES)
        return [mode for mode in MODES if mode in available and mode in its]

    # One method for each request of a view

    def _call_tool(self, id: RequestId, params: Mapping[str, Any]) -> ViewEvent:
        name, arguments = params.get("name"), as_object(params.get("arguments", {}))
        if not isinstance(name, str) or arguments is None:
            raise _Refusal(CODE_INVALID_PARAMS, "tools/call needs a name (text) and arguments (an object)")
        visibility = self._tools.get(name)
        if visibility is None:
            # Also the tools of other servers: a view knows only its own.
            raise _Refusal(CODE_INVALID_PARAMS, f"the view's server has no tool {name[:80]!r}")
        if "app" not in visibility:
            raise _Refusal(DENIED, f"the tool {name[:80]!r} is not for views to call")
        return ViewToolCall(id=id, server=self.server, name=name, arguments=arguments)

    def _read_resource(self, id: RequestId, params: Mapping[str, Any]) -> ViewEvent:
        uri = params.get("uri")
        if not isinstance(uri, str) or ":" not in uri or len(uri) > MAX_URL:
            raise _Refusal(CODE_INVALID_PARAMS, "resources/read needs a uri, as text")
        return ResourceRead(id=id, server=self.server, uri=uri)

    def _open_link(self, id: RequestId, params: Mapping[str, Any]) -> ViewEvent:
        url = params.get("url")
        if not isinstance(url, str) or not _is_page(url):
            raise _Refusal(CODE_INVALID_PARAMS, "ui/open-link opens only http and https URLs without a user name")
        return OpenLink(id=id, url=url)

    def _say(self, id: RequestId, params: Mapping[str, Any]) -> ViewEvent:
        if params.get("role") != "user":
            raise _Refusal(CODE_INVALID_PARAMS, 'the role of a view\'s message must be "user"')
        content = _blocks(params.get("content"))
        if not content:
            raise _Refusal(CODE_INVALID_PARAMS, "ui/message needs content blocks")
        return MessageRequest(id=id, role="user", content=content)

    def _request_mode(self, id: RequestId, params: Mapping[str, Any]) -> ViewEvent | None:
        mode = params.get("mode")
        if mode not in MODES:
            raise _Refusal(CODE_INVALID_PARAMS, f"the display mode must be one of {', '.join(MODES)}")
        if mode in self._modes():
            return DisplayMode(id=id, mode=mode)
        # Spec, Display Modes: a mode that is not available is answered with the current one.
        self._reply(id, {"mode": self.context.get("displayMode", "inline")})
        return None

    def _tell_model(self, id: RequestId, params: Mapping[str, Any]) -> ViewEvent:
        structured: Any = params.get("structuredContent")
        if structured is not None and as_object(structured) is None:
            raise _Refusal(CODE_INVALID_PARAMS, "structuredContent must be an object")
        return ModelContext(id=id, content=_blocks(params.get("content", [])), structured=structured)

    def _hear_size(self, params: Mapping[str, Any]) -> list[ViewEvent]:
        width, height = params.get("width"), params.get("height")
        if (width is None and height is None) or not (_is_pixels(width) and _is_pixels(height)):
            raise _Refusal(CODE_INVALID_PARAMS, "a size must have a width and a height, in pixels")
        return [SizeChanged(width=width, height=height)]

    def _hear_log(self, params: Mapping[str, Any]) -> list[ViewEvent]:
        if self._capabilities.get("logging") is None:
            raise _Refusal(CODE_METHOD_NOT_FOUND, "this host has not declared logging")
        level, logger = params.get("level"), params.get("logger")
        if level not in LOG_LEVELS or "data" not in params or not (logger is None or isinstance(logger, str)):
            raise _Refusal(
                CODE_INVALID_PARAMS, f"a log message must have data and one of these levels: {', '.join(LOG_LEVELS)}"
            )
        return [Logged(level=level, data=params["data"], logger=logger)]

    def _hear_cancel(self, params: Mapping[str, Any]) -> list[ViewEvent]:
        id = params.get("requestId")
        if isinstance(id, (str, int)) and self._open.pop(id, None) is not None:
            return [Cancelled(id=id)]
        return []  # answered already


_REQUESTS: Final[dict[str, tuple[str | None, Routed]]] = {
    "tools/call": ("serverTools", Bridge._call_tool),  # pyright: ignore[reportPrivateUsage]
    "resources/read": ("serverResources", Bridge._read_resource),  # pyright: ignore[reportPrivateUsage]
    "ui/open-link": ("openLinks", Bridge._open_link),  # pyright: ignore[reportPrivateUsage]
    "ui/message": (None, Bridge._say),  # pyright: ignore[reportPrivateUsage]
    "ui/request-display-mode": (None, Bridge._request_mode),  # pyright: ignore[reportPrivateUsage]
    "ui/update-model-context": (None, Bridge._tell_model),  # pyright: ignore[reportPrivateUsage]
}
"""The requests of a view: the host capability each needs, and its reader."""

_NOTICES: Final[dict[str, Heard]] = {
    "ui/notifications/size-changed": Bridge._hear_size,  # pyright: ignore[reportPrivateUsage]
    "notifications/message": Bridge._hear_log,  # pyright: ignore[reportPrivateUsage]
    "notifications/cancelled": Bridge._hear_cancel,  # pyright: ignore[reportPrivateUsage]
}


class BridgeClient(Protocol):
    """The methods of a client that are used here."""

    async def call_tool(self, name: str, arguments: Mapping[str, Any], /) -> Any: ...
    async def read_resource(self, uri: str, /) -> Any: ...


async def forward(bridge: Bridge, request: ViewToolCall | ResourceRead, client: BridgeClient) -> None:
    """Run a view's tool call or read with the client of its own server. Always answers, with an error if it fails."""
    try:
        if isinstance(request, ViewToolCall):
            result = await client.call_tool(request.name, request.arguments)
        else:
            result = await client.read_resource(request.uri)
    except ProtocolError as error:
        bridge.refuse(request, error.message, code=error.code, data=error.data)
    except TransportError as error:
        log.warning("a view's request failed: %s", error)
        bridge.refuse(request, "the server cannot be reached", code=CODE_INTERNAL)
    else:
        # Views get results without the fields that 2026-07-28 adds.
        bridge.answer(request, {k: v for k, v in result.raw.items() if k not in ("resultType", "ttlMs", "cacheScope")})


def _read(message: bytes | str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(message, (bytes, str)):
        if len(message) > MAX_MESSAGE_BYTES:
            raise _Refusal(CODE_INVALID_REQUEST, f"a message may have at most {MAX_MESSAGE_BYTES} bytes")
        try:
            message = decode_json(message)
        except ValueError:
            raise _Refusal(CODE_PARSE, "the message is not JSON") from None
    frame = as_object(message)
    if frame is None or frame.get("jsonrpc") != "2.0":
        raise _Refusal(CODE_INVALID_REQUEST, 'a message must be an object with "jsonrpc": "2.0"')
    return frame


def _method(frame: Mapping[str, Any]) -> str | None:
    if "method" not in frame:
        return None
    if not isinstance(frame["method"], str):
        raise _Refusal(CODE_INVALID_REQUEST, "the method must be text")
    return frame["method"]


def _id(frame: Mapping[str, Any]) -> RequestId | None:
    id = frame.get("id")
    return id if isinstance(id, (str, int)) and not isinstance(id, bool) else None


def _params(frame: Mapping[str, Any]) -> Mapping[str, Any]:
    params = as_object(frame.get("params", {}))
    if params is None:
        raise _Refusal(CODE_INVALID_PARAMS, "params must be an object")
    return params


def _named(method: str, event: ViewEvent | None) -> str:
    subject = getattr(event, "name", None) or getattr(event, "uri", None)
    return method if subject is None else f"{method} {str(subject)[:200]!r}"


def _blocks(content: object) -> tuple[Mapping[str, Json], ...]:
    """A list of content blocks, or a single one."""
    listed = cast("list[object]", content) if isinstance(content, list) else [content]
    blocks: list[Mapping[str, Json]] = []
    for block in listed:
        block = as_object(block)
        kind = None if block is None else block.get("type")
        if block is None or not isinstance(kind, str) or (kind == "text" and not isinstance(block.get("text"), str)):
            raise _Refusal(CODE_INVALID_PARAMS, 'content must be blocks like {"type": "text", "text": "..."}')
        blocks.append(block)
    return tuple(blocks)


def _is_page(url: str) -> bool:
    if len(url) > MAX_URL or _CONTROL.search(url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def _is_pixels(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _sandbox(view: View, granted: frozenset[str]) -> dict[str, Json]:
    fields: dict[str, Json] = {"permissions": {name: {} for name in view.permissions if name in granted}}
    if view.csp is not None:
        fields["csp"] = view.csp.to_json()
    return fields
