"""What went wrong inside stays inside: no exception that was not meant for the peer reaches it (R49, R50, R278)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.memory_peer import Peer

from trimaran import Context, Server, ToolError, connect, errors
from trimaran.fleet import unavailable
from trimaran.state import StoreFull, StoreUnavailable

SECRET = "/srv/secret.db"
ACCIDENTS: dict[str, Callable[[], Exception]] = {
    "python's": lambda: ValueError(SECRET),
    "a message that is empty": lambda: KeyError(SECRET),
    "an option": lambda: errors.ConfigError(SECRET),
    "a connection to elsewhere": lambda: errors.ConnectFailed(SECRET),
    "credentials for elsewhere": lambda: errors.Unauthorized(SECRET),
    "a server elsewhere that erred": lambda: errors.RemoteProtocolError(-32600, SECRET),
    "a call elsewhere that was wrong": lambda: errors.LocalProtocolError(-32602, SECRET),
    "a store": lambda: StoreUnavailable(SECRET),
}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("tools/call", {"name": "t"}),
    "thread": ("tools/call", {"name": "plain"}),
    "undeclared tool": ("tools/call", {"name": "unknown"}),
    "resource": ("resources/read", {"uri": "a:b"}),
    "template": ("resources/read", {"uri": "a:c/d"}),
    "undeclared resource": ("resources/read", {"uri": "a:unknown"}),
    "prompt": ("prompts/get", {"name": "p"}),
    "undeclared prompt": ("prompts/get", {"name": "unknown"}),
    "completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "x", "value": ""}},
    ),
    "list": ("tools/list", {}),
}


def failing(make: Callable[[], Exception]) -> Server:
    class Callbacks:
        def call_tool(self, name: str, arguments: Any, ctx: Any) -> Any:
            raise make()

        def read_resource(self, uri: str, ctx: Any) -> Any:
            raise make()

        def get_prompt(self, name: str, arguments: Any, ctx: Any) -> Any:
            raise make()

        def list_tools(self, cursor: Any, ctx: Any) -> Any:
            raise make()

    server = Server("x", version="1", callbacks=Callbacks())

    @server.tool
    async def t() -> str:
        raise make()

    @server.tool
    def plain() -> str:
        raise make()

    @server.resource("a:b")
    async def b() -> str:
        raise make()

    @server.resource("a:c/{name}")
    async def c(name: str) -> str:
        raise make()

    @server.prompt
    async def p(x: str = "") -> str:
        raise make()

    @server.completion(prompt="p", argument="x")
    async def xs(value: str) -> list[str]:
        raise make()

    return server


@pytest.mark.parametrize("request_kind", REQUESTS)
@pytest.mark.parametrize("accident", ACCIDENTS)
async def test_an_accident_is_logged_and_not_sent(
    accident: str, request_kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R49, R50, R278, C5."""
    async with Peer(failing(ACCIDENTS[accident])) as peer:
        with caplog.at_level("ERROR", "trimaran"):
            message = await peer.modern(*REQUESTS[request_kind])
    assert SECRET not in str(message)
    assert SECRET in caplog.text


@pytest.mark.parametrize("request_kind", REQUESTS)
@pytest.mark.parametrize(
    "make", [lambda: ToolError("come back at noon"), lambda: errors.ProtocolError(77, "come back at noon")]
)
async def test_words_that_were_meant_are_sent(
    make: Callable[[], Exception], request_kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R48, R128: deliberate errors are never redacted."""
    async with Peer(failing(make)) as peer:
        with caplog.at_level("ERROR", "trimaran"):
            message = await peer.modern(*REQUESTS[request_kind])
    assert "come back at noon" in str(message)
    assert not caplog.records


class Closed(errors.Error):
    """An author's own."""


@pytest.mark.parametrize("make", [lambda: errors.Error("come back at noon"), lambda: Closed("come back at noon")])
async def test_an_error_of_the_authors_own_kind_is_sent(make: Callable[[], Exception]) -> None:
    """R50: what is raised as an `Error` is meant."""
    async with Peer(failing(make)) as peer:
        message = await peer.modern("resources/read", {"uri": "a:b"})
    assert message["error"] == {"code": -32603, "message": "come back at noon"}


@pytest.mark.parametrize("error", [StoreUnavailable(SECRET), StoreFull(SECRET)])
def test_a_store_that_fails_is_not_described_to_the_peer(error: Any) -> None:
    """R278: its text names a file or a host."""
    assert SECRET not in str(unavailable(error))


async def test_a_server_hears_nothing_of_a_clients_handler_but_that_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    """R278: the other way round."""
    server = Server("x", version="1")

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            await ctx.sample("Hello?", max_tokens=5)
        except errors.ProtocolError as error:
            return error.message
        return "answered"

    async def on_sample(params: Any) -> Any:
        raise PermissionError(SECRET)

    async with connect(server, era="legacy", on_sample=on_sample) as client:
        assert (await client.call_tool("ask")).data.endswith("refused: the handler of sampling/createMessage failed")
    assert SECRET in caplog.text
