"""Resources and templates: exact URIs first, variables by name, failures redacted (R11, R29-R32, R50, R51)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.support.memory_peer import Peer
from tests.support.until import soon

from trimaran import Context, ProtocolError, Server, ToolError
from trimaran.errors import DeclarationError
from trimaran.protocol.definition_digests import definition_digest
from trimaran.types import Annotations


@pytest.fixture
def server() -> Server:
    return Server("resources", version="1")


async def read(server: Server, uri: str) -> list[Any]:
    return (await soon(server.read_resource(uri))).to_json()["contents"]


def test_a_resource_is_described(server: Server) -> None:
    """R11, R14, R25, R26."""

    @server.resource(
        "a:b",
        name="n",
        title="T",
        mime_type="x/y",
        size=3,
        annotations={"audience": ["user"], "priority": 0.5},
        icons=[{"src": "s"}],
        meta={"m": 1},
    )
    def one() -> str:
        """What it is."""
        return ""

    server.add_resource("a:c", lambda: "", annotations=Annotations(priority=1))
    server.add_resource("a:{d}", lambda d: "", description="mine")
    first, second = (r.to_json() for r in server.list_resources())
    assert first == {
        "uri": "a:b",
        "name": "n",
        "title": "T",
        "description": "What it is.",
        "mimeType": "x/y",
        "size": 3,
        "annotations": {"audience": ["user"], "priority": 0.5},
        "icons": [{"src": "s"}],
        "_meta": {"m": 1},
    }
    assert second == {"uri": "a:c", "name": "a:c", "annotations": {"priority": 1}}
    assert server.list_resource_templates()[0].to_json() == {
        "uriTemplate": "a:{d}",
        "name": "a:{d}",
        "description": "mine",
    }


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.add_resource("no-scheme", lambda: 1),
        lambda s: s.add_resource("a:b", lambda x: 1),
        lambda s: s.add_resource("a:{b}", lambda c: 1),
        lambda s: s.add_resource("a:{b", lambda b: 1),
        lambda s: s.add_resource("a:b", 5),
        lambda s: s.add_resource("a:b", lambda *a: 1),
        lambda s: s.add_resource("a:b", lambda: (yield)),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(server: Server, declare: Any) -> None:
    with pytest.raises(DeclarationError):
        declare(server)
    assert not server.resources
    assert not server.templates


@pytest.mark.parametrize("declare", ["resource", "template", "prompt"])
def test_scopes_that_are_no_list_are_refused(server: Server, declare: str) -> None:
    """As for tools: scopes="admin" would ask for the scopes a, d, m, i and n."""
    with pytest.raises(DeclarationError, match="scopes"):
        if declare == "prompt":
            server.add_prompt(lambda: "", name="p", scopes="admin")
        else:
            server.add_resource("a:b" if declare == "resource" else "a:{b}", lambda b="": "", scopes="admin")


async def test_a_template_is_listed_among_the_templates_and_serves_all_its_uris(server: Server) -> None:
    """R30: one handler per RFC 6570 template."""
    server.add_resource("a:{x}/b{?y}", lambda x, y="": f"{x}-{y}", name="pairs", mime_type="text/x")
    async with Peer(server) as peer:
        listed = (await peer.modern("resources/templates/list"))["result"]["resourceTemplates"]
        digest = listed[0].pop("_meta")["io.modelcontextprotocol/digest"]
        assert listed == [{"uriTemplate": "a:{x}/b{?y}", "name": "pairs", "mimeType": "text/x"}]
        assert digest == definition_digest(listed[0])
        assert (await peer.modern("resources/list"))["result"]["resources"] == []
    assert (await read(server, "a:1/b?y=2"))[0]["text"] == "1-2"
    assert (await read(server, "a:3/b"))[0]["text"] == "3-"


async def test_exact_uris_come_first_then_templates_in_order(server: Server) -> None:
    """R31."""
    server.add_resource("a:{x}", lambda x: f"first {x}")
    server.add_resource("a:{y}", lambda y: f"second {y}")
    server.add_resource("a:b", lambda: "exact")
    assert (await read(server, "a:b"))[0]["text"] == "exact"
    assert (await read(server, "a:c"))[0]["text"] == "first c"
    assert (await read(server, "a:c"))[0]["uri"] == "a:c"


async def test_variables_reach_the_handler_by_name_and_type(server: Server) -> None:
    """R31."""

    @server.resource("user:{id}/posts{?page,tag}")
    def posts(id: int, ctx: Context, page: int = 1, tag: str | None = None) -> dict[str, Any]:
        return {"id": id, "page": page, "tag": tag, "uri": ctx.uri, "params": dict(ctx.params)}

    (contents,) = await read(server, "user:7/posts?page=2")
    assert contents["text"] == '{"id":7,"page":2,"tag":null,"uri":"user:7/posts?page=2","params":{"id":"7","page":"2"}}'
    with pytest.raises(ProtocolError) as caught:
        await read(server, "user:seven/posts")
    assert caught.value.code == -32602


async def test_a_plain_variable_stops_at_a_slash_and_a_reserved_one_does_not(server: Server) -> None:
    """R32, C25: values are percent-decoded."""
    server.add_resource("one:{name}", lambda name: name)
    server.add_resource("all:{+path}", lambda path: path)
    assert (await read(server, "one:a%20b"))[0]["text"] == "a b"
    assert (await read(server, "all:etc/hosts"))[0]["text"] == "etc/hosts"
    with pytest.raises(ProtocolError):
        await read(server, "one:a/b")


async def test_a_missing_resource_is_told_in_each_eras_code(server: Server) -> None:
    """C6; protocol.md 1.7."""
    server.add_resource("a:b", lambda: "")
    async with Peer(server) as peer:
        modern = (await peer.modern("resources/read", {"uri": "a:c"}))["error"]
        await peer.initialize()
        legacy = (await peer.legacy("resources/read", {"uri": "a:c"}))["error"]
    assert (modern["code"], modern["data"]) == (-32602, {"uri": "a:c"})
    assert (legacy["code"], legacy["data"]) == (-32002, {"uri": "a:c"})


async def test_every_kind_of_handler_can_serve_a_resource(server: Server) -> None:
    async def later(ctx: Context) -> bytes:
        return b"x"

    server.add_resource("a:async", later)
    server.add_resource("a:thread", lambda: "t")
    server.add_resource("a:inline", lambda: "i", inline=True)
    assert (await read(server, "a:async"))[0]["blob"] == "eA=="
    assert (await read(server, "a:thread"))[0]["text"] == "t"
    assert (await read(server, "a:inline"))[0]["text"] == "i"


async def test_a_failure_is_internal_and_redacted(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """R50."""

    @server.resource("a:b")
    def bad() -> str:
        raise ValueError("secret")

    @server.resource("a:c")
    def said() -> str:
        raise ToolError("the disk is full")

    @server.resource("a:d")
    def mine() -> str:
        raise ProtocolError(77, "mine", {"x": 1})

    server.add_resource("a:e", lambda: ToolError("the disk is full"))
    uris = ("a:b", "a:c", "a:d", "a:e")
    async with Peer(server) as peer:
        with caplog.at_level(logging.ERROR, "trimaran"):
            errors = [(await peer.modern("resources/read", {"uri": uri}))["error"] for uri in uris]
    assert [e["code"] for e in errors] == [-32603, -32603, 77, -32603]
    assert "secret" not in errors[0]["message"]
    assert "secret" in caplog.text
    number = errors[0]["message"].rpartition("error ")[2].rstrip(")")
    assert number in caplog.text
    assert errors[1]["message"] == errors[3]["message"] == "the disk is full"
    assert errors[2]["data"] == {"x": 1}


async def test_a_failure_is_shown_where_that_was_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """C5."""
    server = Server("x", expose_internal_errors=True)
    server.add_resource("a:b", lambda: 1 / 0)
    with caplog.at_level(logging.ERROR, "trimaran"), pytest.raises(ProtocolError, match="ZeroDivisionError"):
        await server.read_resource("a:b")


async def test_a_resource_may_need_scopes(server: Server) -> None:
    """R183, C20."""
    server.add_resource("a:b", lambda: "", scopes=["x"])
    server.add_resource("t:{b}", lambda b: "", scopes=["x"])
    for uri in ("a:b", "t:1"):
        with pytest.raises(ProtocolError) as caught:
            await server.read_resource(uri)
        assert caught.value.code == -32600


async def test_an_async_generator_is_for_tools_only(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async def stream() -> Any:
        yield "x"

    try:
        server.add_resource("a:b", stream)
    except DeclarationError:
        return
    with caplog.at_level(logging.ERROR, "trimaran"), pytest.raises(ProtocolError):
        await server.read_resource("a:b")
