"""The conversation of a view and its host: every state, every message, every way to misbehave (protocol.md 5.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran import Server, connect
from trimaran.errors import CallError, LocalProtocolError, ToolError, TransportError
from trimaran.ext.apps import (
    Bridge,
    Cancelled,
    Csp,
    DisplayMode,
    Initialized,
    Logged,
    MessageRefused,
    MessageRequest,
    ModelContext,
    OpenLink,
    ResourceRead,
    SizeChanged,
    TornDown,
    View,
    ViewEvent,
    ViewToolCall,
    forward,
    ui_tool,
)
from trimaran.ext.apps import bridge as module
from trimaran.types import Tool

TOOLS = [
    Tool(name="forecast"),
    Tool(name="refresh", meta=ui_tool(visibility=["app"])),
    Tool(name="secret", meta=ui_tool(visibility=["model"])),
]
INITIALIZE = {
    "protocolVersion": "2026-01-26",
    "appInfo": {"name": "dashboard", "version": "1"},
    "appCapabilities": {"availableDisplayModes": ["inline", "fullscreen"]},
}
TEXT = {"type": "text", "text": "hello"}


def ask(method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}


def tell(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}


def ready(**options: Any) -> Bridge:
    bridge = Bridge(TOOLS, **options)
    bridge.receive(ask("ui/initialize", INITIALIZE, id=0))
    bridge.receive(tell("ui/notifications/initialized"))
    bridge.outgoing()
    return bridge


def only(events: list[ViewEvent], kind: type[Any]) -> Any:
    (event,) = events
    assert type(event) is kind, event
    return event


def refusal(bridge: Bridge, message: Any) -> tuple[str, int | None]:
    """The reason a message was refused for, and the code of the answer if there was one."""
    event = only(bridge.receive(message), MessageRefused)
    out = bridge.outgoing()
    if not out:
        return event.reason, None
    (answer,) = out
    assert answer["error"]["message"] == event.reason
    return event.reason, answer["error"]["code"]


# --- opening ---------------------------------------------------------------------------------------------------------


def test_the_opening_word_for_word() -> None:
    bridge = Bridge(
        TOOLS,
        host_info={"name": "host", "version": "2"},
        capabilities={"openLinks": {}},
        context={"theme": "dark", "displayMode": "inline"},
    )
    assert bridge.receive(ask("ui/initialize", INITIALIZE, id="a")) == []
    assert bridge.outgoing() == [
        {
            "jsonrpc": "2.0",
            "id": "a",
            "result": {
                "protocolVersion": "2026-01-26",
                "hostCapabilities": {"openLinks": {}},
                "hostInfo": {"name": "host", "version": "2"},
                "hostContext": {"theme": "dark", "displayMode": "inline"},
            },
        }
    ]
    assert bridge.state == "greeted"
    event = only(bridge.receive(tell("ui/notifications/initialized")), Initialized)
    assert event == Initialized(app_info=INITIALIZE["appInfo"], capabilities=INITIALIZE["appCapabilities"])
    assert bridge.state == "ready"
    assert bridge.outgoing() == []


def test_nothing_is_said_to_a_view_before_it_is_ready() -> None:
    """Spec: the host MUST NOT send any request or notification before `initialized`."""
    bridge = Bridge(TOOLS)
    bridge.context_changed(theme="light")
    bridge.tool_input_partial({"city": "Os"})
    bridge.tool_input_partial({"city": "Osl"})
    assert bridge.outgoing() == []
    bridge.receive(ask("ui/initialize", INITIALIZE))
    (greeting,) = bridge.outgoing()
    assert greeting["result"]["hostContext"] == {"theme": "light"}, "what changed before is in the greeting"
    bridge.context_changed(theme="dark")
    bridge.tool_input({"city": "Oslo"})
    bridge.tool_result({"content": [TEXT]})
    assert bridge.outgoing() == []
    bridge.receive(tell("ui/notifications/initialized"))
    assert bridge.outgoing() == [
        tell("ui/notifications/tool-input-partial", {"arguments": {"city": "Osl"}}),
        tell("ui/notifications/host-context-changed", {"theme": "dark"}),
        tell("ui/notifications/tool-input", {"arguments": {"city": "Oslo"}}),
        tell("ui/notifications/tool-result", {"content": [TEXT]}),
    ]
    assert bridge.outgoing() == [], "each message is given out once"


def test_what_waits_for_a_view_has_an_end() -> None:
    bridge = Bridge()
    bridge.receive(ask("ui/initialize", INITIALIZE))
    for n in range(module.MAX_WAITING):
        bridge.context_changed(locale=str(n))
    with pytest.raises(LocalProtocolError, match="not ready"):
        bridge.context_changed(locale="x")


@pytest.mark.parametrize("state", ["new", "greeted"])
@pytest.mark.parametrize(
    "message",
    [
        ask("tools/call", {"name": "refresh"}),
        ask("ui/open-link", {"url": "https://a.example"}),
        tell("ui/notifications/size-changed", {"width": 1, "height": 1}),
        tell("notifications/message", {"level": "info", "data": 1}),
    ],
    ids=["call", "link", "size", "log"],
)
def test_a_view_that_is_not_ready_gets_nothing_done(state: str, message: Any) -> None:
    bridge = Bridge(TOOLS)
    if state == "greeted":
        bridge.receive(ask("ui/initialize", INITIALIZE, id=0))
        bridge.outgoing()
    reason, code = refusal(bridge, message)
    assert "initialized" in reason
    assert code == (-32600 if "id" in message else None)


def test_a_ping_is_answered_at_any_time() -> None:
    bridge = Bridge()
    for _ in range(2):
        assert bridge.receive(ask("ping")) == []
        assert bridge.outgoing() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
        bridge = ready()


@pytest.mark.parametrize("state", ["greeted", "ready", "leaving"])
def test_a_view_is_greeted_once(state: str) -> None:
    bridge = Bridge()
    bridge.receive(ask("ui/initialize", INITIALIZE, id=0))
    if state != "greeted":
        bridge = ready()
    if state == "leaving":
        bridge.teardown()
    bridge.outgoing()
    assert refusal(bridge, ask("ui/initialize", INITIALIZE)) == (
        "the view is initialized already: send ui/initialize once",
        -32600,
    )
    assert bridge.state == state


def test_initialized_counts_once_and_in_its_place() -> None:
    bridge = Bridge()
    assert "state is new" in refusal(bridge, tell("ui/notifications/initialized"))[0]
    bridge = ready()
    assert "state is ready" in refusal(bridge, tell("ui/notifications/initialized"))[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"protocolVersion": None},
        {"protocolVersion": 7},
        {"appInfo": "me"},
        {"appCapabilities": None},
        {"appCapabilities": []},
        {"appCapabilities": {"availableDisplayModes": "inline"}},
    ],
    ids=repr,
)
def test_a_malformed_greeting_is_refused_and_may_be_mended(changes: dict[str, Any]) -> None:
    bridge = Bridge()
    assert refusal(bridge, ask("ui/initialize", {**INITIALIZE, **changes}))[1] == -32602
    assert bridge.state == "new"
    assert bridge.receive(ask("ui/initialize", INITIALIZE)) == []


# --- frames ----------------------------------------------------------------------------------------------------------

FRAMES: dict[str, tuple[Any, int | None]] = {
    "no JSON": (b"{", None),
    "not UTF-8": (b'{"jsonrpc": "\xff"}', None),
    "too deep": ("[" * 100_000, None),
    "no object": ("[]", None),
    "a number": (b"7", None),
    "no version": ({"id": 1, "method": "ping"}, None),
    "another version": ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, None),
    "a method that is a number": ({"jsonrpc": "2.0", "id": 1, "method": 7}, None),
    "an id that is null": (ask("ping", id=None), None),
    "an id that is true": (ask("ping", id=True), None),
    "an id that is a fraction": (ask("ping", id=1.5), None),
    "params that are a list": (ask("ping", [1]), -32602),
    "params that are null": ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": None}, -32602),
    "neither method nor answer": ({"jsonrpc": "2.0", "id": 1}, -32600),
    "both answers": ({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}, -32600),
    "an answer to nothing": ({"jsonrpc": "2.0", "id": 1, "result": {}}, None),
    "an error to nothing": ({"jsonrpc": "2.0", "id": "host-teardown", "error": {}}, None),
    "an unknown method": (ask("tools/list"), -32601),
    "sampling": (ask("sampling/createMessage", {}), -32601),
    "an unknown notification": (tell("notifications/roots/list_changed"), None),
    "the sandbox's own": (tell("ui/notifications/sandbox-resource-ready", {"html": "<p>"}), None),
    "a sandbox nobody waits for": (tell("ui/notifications/sandbox-proxy-ready"), None),
}


@pytest.mark.parametrize(("message", "code"), FRAMES.values(), ids=FRAMES)
def test_what_is_no_message_of_the_dialect_is_refused(message: Any, code: int | None) -> None:
    bridge = ready()
    assert refusal(bridge, message)[1] == code
    assert bridge.state == "ready"


def test_a_message_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    message = json.dumps(ask("ping"))
    monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", len(message))
    bridge = Bridge()
    assert bridge.receive(message) == []
    assert len(bridge.outgoing()) == 1
    assert "at most" in refusal(bridge, message.encode() + b" ")[0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
METHODS = ["ping", "ui/initialize", "ui/notifications/initialized", *module._REQUESTS, *module._NOTICES]  # pyright: ignore[reportPrivateUsage]


@pytest.mark.slow
@given(
    st.lists(
        st.fixed_dictionaries(
            {"jsonrpc": st.just("2.0")},
            optional={
                "id": JSON,
                "method": st.sampled_from(METHODS) | st.text(),
                "params": st.dictionaries(
                    st.sampled_from(["name", "uri", "url", "mode", "content", "role", "requestId", "width", "level"]),
                    JSON,
                )
                | JSON,
                "result": JSON,
                "error": JSON,
            },
        )
        | JSON,
        max_size=6,
    )
)
def test_no_message_breaks_the_bridge(messages: list[Any]) -> None:
    bridge = ready()
    for message in messages:
        for event in bridge.receive(message):
            assert isinstance(event, ViewEvent)
    json.dumps(bridge.outgoing())


# --- what a view asks for --------------------------------------------------------------------------------------------

ROUTED: dict[str, tuple[str, Any, ViewEvent]] = {
    "call": (
        "tools/call",
        {"name": "refresh", "arguments": {"city": "Oslo"}},
        ViewToolCall(id=5, server="weather", name="refresh", arguments={"city": "Oslo"}),
    ),
    "call without arguments": (
        "tools/call",
        {"name": "forecast"},
        ViewToolCall(id=5, server="weather", name="forecast", arguments={}),
    ),
    "read": ("resources/read", {"uri": "data://x"}, ResourceRead(id=5, server="weather", uri="data://x")),
    "link": ("ui/open-link", {"url": "https://a.example/b?c#d"}, OpenLink(id=5, url="https://a.example/b?c#d")),
    "message": ("ui/message", {"role": "user", "content": TEXT}, MessageRequest(id=5, role="user", content=(TEXT,))),
    "message of blocks": (
        "ui/message",
        {"role": "user", "content": [TEXT, {"type": "image", "data": "", "mimeType": "image/png"}]},
        MessageRequest(id=5, role="user", content=(TEXT, {"type": "image", "data": "", "mimeType": "image/png"})),
    ),
    "mode": ("ui/request-display-mode", {"mode": "fullscreen"}, DisplayMode(id=5, mode="fullscreen")),
    "context": (
        "ui/update-model-context",
        {"content": [TEXT], "structuredContent": {"city": "Oslo"}},
        ModelContext(id=5, content=(TEXT,), structured={"city": "Oslo"}),
    ),
    "no context": ("ui/update-model-context", {}, ModelContext(id=5, content=(), structured=None)),
}


@pytest.mark.parametrize(("method", "params", "expected"), ROUTED.values(), ids=ROUTED)
def test_a_request_reaches_the_host_and_its_answer_the_view(method: str, params: Any, expected: Any) -> None:
    bridge = ready(server="weather")
    assert bridge.receive(json.dumps(ask(method, params, id=5))) == [expected]
    assert bridge.outgoing() == []
    event = only(bridge.receive(ask(method, params, id=6)), type(expected))
    bridge.answer(event)
    (answer,) = bridge.outgoing()
    assert answer == {"jsonrpc": "2.0", "id": 6, "result": answer["result"]}
    bridge.answer(event, {"again": True})
    bridge.refuse(event)
    assert bridge.outgoing() == [], "a request has one answer"


def test_a_host_may_say_no() -> None:
    bridge = ready()
    event = only(bridge.receive(ask("ui/open-link", {"url": "https://a.example"})), OpenLink)
    bridge.refuse(event, "not now", data={"why": "policy"})
    assert bridge.outgoing() == [
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "not now", "data": {"why": "policy"}}}
    ]


BAD: dict[str, tuple[str, Any, int]] = {
    "a tool for the model": ("tools/call", {"name": "secret"}, -32000),
    "a tool of another server": ("tools/call", {"name": "mcp__github__delete"}, -32602),
    "a tool without a name": ("tools/call", {}, -32602),
    "a name that is a list": ("tools/call", {"name": ["refresh"]}, -32602),
    "arguments that are a list": ("tools/call", {"name": "refresh", "arguments": []}, -32602),
    "arguments that are null": ("tools/call", {"name": "refresh", "arguments": None}, -32602),
    "no URI": ("resources/read", {}, -32602),
    "a URI without a scheme": ("resources/read", {"uri": "x"}, -32602),
    "a script": ("ui/open-link", {"url": "javascript:alert(1)"}, -32602),
    "a script in capitals": ("ui/open-link", {"url": "JaVaScRiPt://a.example/%0aalert(1)"}, -32602),
    "a file": ("ui/open-link", {"url": "file:///etc/passwd"}, -32602),
    "data": ("ui/open-link", {"url": "data:text/html,x"}, -32602),
    "a program": ("ui/open-link", {"url": "ms-msdt:/id"}, -32602),
    "a relative link": ("ui/open-link", {"url": "//a.example"}, -32602),
    "no host": ("ui/open-link", {"url": "https:///x"}, -32602),
    "a name in the link": ("ui/open-link", {"url": "https://bank.example@evil.example"}, -32602),
    "a backslash": ("ui/open-link", {"url": "https://bank.example\\.evil.example"}, -32602),
    "a line break": ("ui/open-link", {"url": "https://a.example\n"}, -32602),
    "a space": ("ui/open-link", {"url": " https://a.example"}, -32602),
    "half an address": ("ui/open-link", {"url": "https://[::1"}, -32602),
    "a long link": ("ui/open-link", {"url": "https://a.example/" + "a" * 9000}, -32602),
    "no link": ("ui/open-link", {}, -32602),
    "another role": ("ui/message", {"role": "assistant", "content": TEXT}, -32602),
    "no content": ("ui/message", {"role": "user"}, -32602),
    "empty content": ("ui/message", {"role": "user", "content": []}, -32602),
    "content that is text": ("ui/message", {"role": "user", "content": "hello"}, -32602),
    "a block without a type": ("ui/message", {"role": "user", "content": {"text": "x"}}, -32602),
    "a text without text": ("ui/message", {"role": "user", "content": {"type": "text"}}, -32602),
    "an unknown mode": ("ui/request-display-mode", {"mode": "hologram"}, -32602),
    "a mode that is a list": ("ui/request-display-mode", {"mode": ["pip"]}, -32602),
    "structured text": ("ui/update-model-context", {"structuredContent": "x"}, -32602),
    "context that is text": ("ui/update-model-context", {"content": "x"}, -32602),
}


@pytest.mark.parametrize(("method", "params", "code"), BAD.values(), ids=BAD)
def test_what_a_view_may_not_ask_for_never_reaches_the_host(method: str, params: Any, code: int) -> None:
    bridge = ready()
    assert refusal(bridge, ask(method, params))[1] == code


CAPABLE = {
    "serverTools": ask("tools/call", {"name": "refresh"}),
    "serverResources": ask("resources/read", {"uri": "data://x"}),
    "openLinks": ask("ui/open-link", {"url": "https://a.example"}),
    "logging": tell("notifications/message", {"level": "info", "data": 1}),
}


@pytest.mark.parametrize("capability", CAPABLE)
def test_what_the_host_does_not_offer_cannot_be_asked_for(capability: str) -> None:
    others = {name: {} for name in CAPABLE if name != capability}
    bridge = ready(capabilities=others)
    reason, code = refusal(bridge, CAPABLE[capability])
    assert capability in reason
    assert code in (-32601, None)
    assert len(ready(capabilities={capability: {}}).receive(CAPABLE[capability])) == 1


def test_the_tools_of_a_view_follow_those_of_its_server() -> None:
    bridge = ready()
    bridge.update_tools([{"name": "later"}, Tool(name="refresh", meta={"ui": {"visibility": ["model"]}})])
    assert len(bridge.receive(ask("tools/call", {"name": "later"}))) == 1
    assert refusal(bridge, ask("tools/call", {"name": "refresh"}, id=2))[1] == -32000
    assert refusal(bridge, ask("tools/call", {"name": "forecast"}, id=3))[1] == -32602


def test_an_id_in_use_is_not_used_again() -> None:
    bridge = ready()
    first = only(bridge.receive(ask("tools/call", {"name": "refresh"})), ViewToolCall)
    assert refusal(bridge, ask("tools/call", {"name": "forecast"})) == ("a request with this id is open", None)
    bridge.answer(first, {"content": []})
    second = only(bridge.receive(ask("tools/call", {"name": "forecast"})), ViewToolCall)
    bridge.outgoing()
    bridge.answer(first)
    assert bridge.outgoing() == [], "the old request is over, though the id is in use"
    bridge.answer(second)
    assert len(bridge.outgoing()) == 1


def test_a_view_in_a_loop_is_told_to_wait() -> None:
    bridge = ready()
    for n in range(module.MAX_IN_FLIGHT):
        assert len(bridge.receive(ask("tools/call", {"name": "refresh"}, id=n))) == 1
    reason, code = refusal(bridge, ask("tools/call", {"name": "refresh"}, id="more"))
    assert (code, "requests are open" in reason) == (-32000, True)
    assert bridge.receive(ask("ping", id="p")) == []


def test_a_cancelled_request_gets_no_answer() -> None:
    bridge = ready()
    event = only(bridge.receive(ask("tools/call", {"name": "refresh"})), ViewToolCall)
    assert bridge.receive(tell("notifications/cancelled", {"requestId": 1})) == [Cancelled(id=1)]
    bridge.answer(event, {"content": []})
    assert bridge.outgoing() == []
    assert bridge.receive(tell("notifications/cancelled", {"requestId": 1})) == []
    assert bridge.receive(tell("notifications/cancelled", {"requestId": {}})) == []


# --- display modes ---------------------------------------------------------------------------------------------------


def test_a_mode_that_either_side_lacks_leaves_everything_as_it_is() -> None:
    """Spec: return the current mode; never switch to one the view has not declared."""
    bridge = ready(context={"displayMode": "inline", "availableDisplayModes": ["inline", "pip"]})
    for mode in ("pip", "fullscreen"):
        assert bridge.receive(ask("ui/request-display-mode", {"mode": mode})) == []
        assert bridge.outgoing() == [{"jsonrpc": "2.0", "id": 1, "result": {"mode": "inline"}}]
    with pytest.raises(LocalProtocolError, match="cannot be shown as 'pip'"):
        bridge.context_changed(displayMode="pip")


def test_the_mode_that_results_is_remembered() -> None:
    bridge = ready(context={"displayMode": "inline"})
    event = only(bridge.receive(ask("ui/request-display-mode", {"mode": "fullscreen"})), DisplayMode)
    with pytest.raises(LocalProtocolError, match="'pip'"):
        bridge.answer(event, {"mode": "pip"})
    bridge.answer(event)
    assert bridge.outgoing()[0]["result"] == {"mode": "fullscreen"}
    assert bridge.context["displayMode"] == "fullscreen"
    event = only(bridge.receive(ask("ui/request-display-mode", {"mode": "inline"})), DisplayMode)
    bridge.answer(event, {"mode": "fullscreen"})
    assert bridge.outgoing()[0]["result"] == {"mode": "fullscreen"}, "a host may stay as it is"


def test_a_view_that_names_no_modes_has_them_all() -> None:
    bridge = Bridge()
    bridge.receive(ask("ui/initialize", {**INITIALIZE, "appCapabilities": {}}))
    bridge.receive(tell("ui/notifications/initialized"))
    bridge.context_changed(displayMode="pip")
    assert bridge.context["displayMode"] == "pip"


# --- what a view tells -----------------------------------------------------------------------------------------------


def test_sizes_and_logs_reach_the_host() -> None:
    bridge = ready()
    size = tell("ui/notifications/size-changed", {"width": 400, "height": 12.5})
    assert bridge.receive(size) == [SizeChanged(width=400, height=12.5)]
    assert bridge.receive(tell("ui/notifications/size-changed", {"height": 3})) == [SizeChanged(width=None, height=3)]
    logged = {"level": "warning", "data": {"a": 1}, "logger": "view"}
    assert bridge.receive(tell("notifications/message", logged)) == [
        Logged(level="warning", data={"a": 1}, logger="view")
    ]
    assert bridge.outgoing() == []


@pytest.mark.parametrize(
    "message",
    [
        tell("ui/notifications/size-changed", {}),
        tell("ui/notifications/size-changed", {"width": -1, "height": 1}),
        tell("ui/notifications/size-changed", {"width": float("inf"), "height": 1}),
        tell("ui/notifications/size-changed", {"width": float("nan"), "height": 1}),
        tell("ui/notifications/size-changed", {"width": True, "height": 1}),
        tell("ui/notifications/size-changed", {"width": "100%", "height": 1}),
        tell("notifications/message", {"level": "loud", "data": 1}),
        tell("notifications/message", {"level": "info"}),
        tell("notifications/message", {"level": "info", "data": 1, "logger": 7}),
    ],
    ids=["no size", "negative", "infinite", "nan", "true", "text", "level", "no data", "logger"],
)
def test_a_malformed_notification_is_dropped_without_a_word_to_the_view(message: Any) -> None:
    assert refusal(ready(), message)[1] is None


# --- what the host tells ---------------------------------------------------------------------------------------------


def test_the_arguments_come_before_the_result_and_both_once() -> None:
    bridge = ready()
    with pytest.raises(LocalProtocolError, match="send tool_input first"):
        bridge.tool_result({"content": []})
    bridge.tool_input_partial({})
    bridge.tool_input({"city": "Oslo"})
    with pytest.raises(LocalProtocolError, match="sent already"):
        bridge.tool_input_partial({})
    with pytest.raises(LocalProtocolError, match="once"):
        bridge.tool_input({})
    bridge.tool_result({"content": []})
    with pytest.raises(LocalProtocolError, match="tool_result once"):
        bridge.tool_result({"content": []})
    with pytest.raises(LocalProtocolError, match="over"):
        bridge.tool_cancelled("late")
    assert [m["method"].rpartition("/")[2] for m in bridge.outgoing()] == [
        "tool-input-partial",
        "tool-input",
        "tool-result",
    ]


def test_a_call_may_be_cancelled_before_or_after_its_arguments() -> None:
    for early in (True, False):
        bridge = ready()
        if not early:
            bridge.tool_input({})
        bridge.tool_cancelled("the person said stop")
        assert bridge.outgoing()[-1] == tell("ui/notifications/tool-cancelled", {"reason": "the person said stop"})
        with pytest.raises(LocalProtocolError):
            bridge.tool_result({"content": []})


# --- the sandbox -----------------------------------------------------------------------------------------------------

VIEW = View(
    uri="ui://a",
    html="<p>",
    csp=Csp(connect_domains=("https://api.example",)),
    permissions=("camera", "geolocation"),
)


def test_a_sandbox_gets_the_page_once_with_what_is_granted() -> None:
    bridge = Bridge(TOOLS, view=VIEW, granted=["camera", "microphone"])
    assert bridge.receive(tell("ui/notifications/sandbox-proxy-ready", {})) == []
    csp = {"connectDomains": ["https://api.example"]}
    assert bridge.outgoing() == [
        tell("ui/notifications/sandbox-resource-ready", {"html": "<p>", "csp": csp, "permissions": {"camera": {}}})
    ]
    assert "not wait for a sandbox" in refusal(bridge, tell("ui/notifications/sandbox-proxy-ready", {}))[0]
    bridge.receive(ask("ui/initialize", INITIALIZE))
    (greeting,) = bridge.outgoing()
    assert greeting["result"]["hostCapabilities"]["sandbox"] == {"permissions": {"camera": {}}, "csp": csp}


def test_nothing_is_granted_unless_the_host_says_so() -> None:
    bridge = Bridge(view=View(uri="ui://a", html="<p>", permissions=("camera",)))
    bridge.receive(tell("ui/notifications/sandbox-proxy-ready"))
    assert bridge.outgoing()[0]["params"] == {"html": "<p>"}


def test_a_view_that_is_up_cannot_play_the_sandbox() -> None:
    bridge = ready(view=VIEW)
    assert "not wait for a sandbox" in refusal(bridge, tell("ui/notifications/sandbox-proxy-ready"))[0]


# --- the end ---------------------------------------------------------------------------------------------------------


def test_a_view_is_asked_to_leave_and_may_finish_first() -> None:
    bridge = ready()
    assert bridge.teardown("the tab is closed") is True
    assert bridge.teardown() is True, "it is asked once"
    (message,) = bridge.outgoing()
    assert message == ask("ui/resource-teardown", {"reason": "the tab is closed"}, id="host-teardown")
    saving = only(bridge.receive(ask("tools/call", {"name": "refresh"})), ViewToolCall)
    bridge.answer(saving, {"content": []})
    assert len(bridge.outgoing()) == 1
    assert bridge.receive({"jsonrpc": "2.0", "id": "host-teardown", "result": {}}) == [TornDown()]
    assert bridge.state == "closed"


def test_a_view_that_fails_to_leave_leaves_all_the_same() -> None:
    bridge = ready()
    bridge.teardown()
    answer = {"jsonrpc": "2.0", "id": "host-teardown", "error": {"code": -32000, "message": "disk full"}}
    assert bridge.receive(answer) == [TornDown(error="disk full")]
    assert bridge.state == "closed"


@pytest.mark.parametrize("state", ["new", "greeted"])
def test_a_view_that_was_never_ready_is_not_asked(state: str) -> None:
    bridge = Bridge()
    if state == "greeted":
        bridge.receive(ask("ui/initialize", INITIALIZE))
    bridge.tool_input({})
    bridge.outgoing()
    assert bridge.teardown() is False
    assert bridge.outgoing() == []
    assert bridge.state == "closed"


def test_nothing_goes_in_or_out_once_it_is_over() -> None:
    bridge = ready()
    event = only(bridge.receive(ask("tools/call", {"name": "refresh"})), ViewToolCall)
    bridge.close()
    bridge.answer(event, {"content": []})
    assert refusal(bridge, ask("ping")) == ("the view is gone", None)
    assert refusal(bridge, tell("ui/notifications/initialized")) == ("the view is gone", None)
    assert bridge.teardown() is False
    for speak in (bridge.tool_input, bridge.tool_input_partial):
        with pytest.raises(LocalProtocolError, match="gone"):
            speak({})


# --- with a real server ----------------------------------------------------------------------------------------------


async def test_calls_and_reads_are_carried_out_on_the_views_server() -> None:
    server = Server("weather", version="1.0.0")

    @server.tool
    async def refresh(city: str) -> dict[str, str]:
        if city == "Atlantis":
            raise ToolError("under water")
        return {"city": city}

    server.add_resource("data://x", lambda: "x", mime_type="text/plain")
    for version in ("2026-07-28", "2025-11-25"):
        bridge = ready()
        async with connect(server, version=version) as client:

            async def through(message: Any) -> Any:
                (event,) = bridge.receive(message)
                assert isinstance(event, (ViewToolCall, ResourceRead))
                await forward(bridge, event, client)
                (answer,) = bridge.outgoing()
                return answer

            done = await through(ask("tools/call", {"name": "refresh", "arguments": {"city": "Oslo"}}))
            assert done["result"]["structuredContent"] == {"city": "Oslo"}
            assert "resultType" not in done["result"]
            failed = await through(ask("tools/call", {"name": "refresh", "arguments": {"city": "Atlantis"}}))
            assert failed["result"]["isError"] is True
            unknown = await through(ask("tools/call", {"name": "forecast"}))
            assert unknown["error"]["code"] == -32602
            read = await through(ask("resources/read", {"uri": "data://x"}))
            assert read["result"]["contents"][0]["text"] == "x"
            assert set(read["result"]) <= {"contents", "_meta"}
            missing = await through(ask("resources/read", {"uri": "data://y"}))
            assert missing["error"]["code"] in (-32602, -32002)
            assert missing["error"]["data"] == {"uri": "data://y"}


@pytest.mark.parametrize(
    "error", [CallError(-32603, "broken"), TransportError("10.0.0.7 refused")], ids=["call", "link"]
)
async def test_a_view_does_not_hear_what_is_wrong_with_the_line(error: Exception) -> None:
    class Broken:
        async def call_tool(self, name: str, arguments: Any, /) -> Any:
            raise error

        async def read_resource(self, uri: str, /) -> Any:
            raise error

    bridge = ready()
    event = only(bridge.receive(ask("tools/call", {"name": "refresh"})), ViewToolCall)
    await forward(bridge, event, Broken())
    (answer,) = bridge.outgoing()
    assert answer["error"]["code"] == -32603
    assert "10.0.0.7" not in answer["error"]["message"]


def test_what_a_view_does_is_on_record_without_its_values(caplog: pytest.LogCaptureFixture) -> None:
    """Spec: log view-initiated calls. Ours: names only."""
    caplog.set_level("INFO", "trimaran.ext.apps")
    bridge = ready()
    bridge.receive(ask("tools/call", {"name": "refresh", "arguments": {"password": "hunter2"}}))
    bridge.receive(ask("tools/call", {"name": "secret\nforged line", "arguments": {}}, id=2))
    bridge.receive(tell("bad\nmethod"))
    assert "tools/call 'refresh'" in caplog.text
    assert "hunter2" not in caplog.text
    assert all("\n" not in record.getMessage() for record in caplog.records)
