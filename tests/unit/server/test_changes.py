"""Changes: from anywhere, in any thread, to everyone who asked to hear of them (R27, R39; P23; protocol.md 1.4)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.support.memory_peer import P, Peer
from tests.support.until import until

from trimaran import ProtocolError, Server
from trimaran.server.changes import Changes, Notify

EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["a:b", "a:c"],
}


class Ear:
    watched = ()

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.heard: list[Any] = []

    def deliver(self, kind: str, uri: str | None, extra: dict[str, Any]) -> None:
        self.heard.append((kind, uri, extra, threading.get_ident()))

    def close(self) -> None: ...


def full(**options: Any) -> Server:
    server = Server("changes", version="1", **options)
    server.add_tool(lambda: "x", name="t")
    server.add_prompt(lambda: "x", name="p")
    server.add_resource("a:b", lambda: "x")
    return server


async def listen(peer: Peer, notifications: Any) -> tuple[int, Any]:
    id = await peer.start("subscriptions/listen", {"notifications": notifications})
    return id, await peer.receive()


async def test_everyone_on_this_loop_hears_at_once() -> None:
    changes, one, two = Changes(), Ear(), Ear()
    changes.publish("tools")
    changes.add(one)
    changes.add(two)
    assert len(changes) == 2
    changes.publish("tools")
    changes.publish("resource", "a:b", {"x": 1})
    changes.discard(two)
    changes.discard(two)
    changes.publish("prompts")
    assert [h[:3] for h in one.heard] == [("tools", None, {}), ("resource", "a:b", {"x": 1}), ("prompts", None, {})]
    assert len(two.heard) == 2
    changes.discard(one)
    assert len(changes) == 0


async def test_a_change_told_in_a_thread_is_heard_on_the_listeners_loop() -> None:
    """P23."""
    changes, ear = Changes(), Ear()
    changes.add(ear)
    await asyncio.to_thread(Notify(changes).tools_changed)
    await until(lambda: ear.heard)
    assert ear.heard == [("tools", None, {}, threading.get_ident())]


async def test_a_listener_whose_loop_has_closed_hurts_nobody() -> None:
    changes, ear, gone = Changes(), Ear(), Ear()
    gone.loop = asyncio.new_event_loop()
    gone.loop.close()
    changes.add(gone)
    changes.add(ear)
    changes.publish("tools")
    assert len(ear.heard) == 1


async def test_each_way_to_tell_says_its_kind() -> None:
    """R27, R40."""
    changes, ear = Changes(), Ear()
    changes.add(ear)
    notify = Notify(changes)
    notify.tools_changed()
    notify.prompts_changed()
    notify.resources_changed()
    for kind in ("tools", "prompts", "resources"):
        notify.list_changed(kind)
    notify.resource_updated("a:b", title="T")
    kinds = ["tools", "prompts", "resources"]
    assert [h[0] for h in ear.heard] == [*kinds, *kinds, "resource"]
    assert ear.heard[-1][1:3] == ("a:b", {"title": "T"})
    with pytest.raises(ProtocolError):
        notify.list_changed("roots")


async def test_a_listen_stream_acknowledges_first_and_signs_everything() -> None:
    """protocol.md 1.4."""
    server = full()
    async with Peer(server) as peer:
        id, first = await listen(peer, EVERYTHING)
        signed = {P + "subscriptionId": id}
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"] == {"notifications": EVERYTHING, "_meta": signed}
        server.add_tool(lambda: 1, name="new")
        assert await peer.receive() == {
            "jsonrpc": "2.0",
            "method": "notifications/tools/list_changed",
            "params": {"_meta": signed},
        }
        server.notify.resource_updated("a:c", title="T")
        assert (await peer.receive())["params"] == {"uri": "a:c", "title": "T", "_meta": signed}


@pytest.mark.parametrize(
    ("change", "method"),
    [
        (lambda s: s.remove_tool("t"), "notifications/tools/list_changed"),
        (lambda s: s.add_prompt(lambda: "x", name="q"), "notifications/prompts/list_changed"),
        (lambda s: s.add_resource("x:y", lambda: "x"), "notifications/resources/list_changed"),
        (lambda s: s.add_resource("x:{y}", lambda y: "x"), "notifications/resources/list_changed"),
        (lambda s: s.notify.tools_changed(), "notifications/tools/list_changed"),
        (lambda s: s.notify.resource_updated("a:b"), "notifications/resources/updated"),
    ],
)
async def test_registering_tells_both_eras(change: Any, method: str) -> None:
    """R27, P23."""
    server = full()
    async with Peer(server) as modern, Peer(server) as legacy:
        await listen(modern, EVERYTHING)
        await legacy.initialize()
        await legacy.legacy("resources/subscribe", {"uri": "a:b"})
        change(server)
        assert (await modern.receive())["method"] == method
        assert (await legacy.receive())["method"] == method


async def test_a_listener_hears_only_what_it_asked_for() -> None:
    """R39; protocol.md 1.4."""
    server = full()
    async with Peer(server) as peer:
        await listen(peer, {"promptsListChanged": True, "toolsListChanged": False, "resourceSubscriptions": ["a:b"]})
        server.notify.tools_changed()
        server.notify.resources_changed()
        server.notify.resource_updated("a:z")
        server.notify.prompts_changed()
        assert (await peer.receive())["method"] == "notifications/prompts/list_changed"


async def test_only_what_the_server_has_is_honoured() -> None:
    """protocol.md 1.4: the honoured subset."""
    server = Server("x")
    server.add_tool(lambda: 1, name="t")
    async with Peer(server) as peer:
        _, first = await listen(peer, EVERYTHING)
    assert first["params"]["notifications"] == {"toolsListChanged": True}


async def test_many_changes_are_heard_as_one_by_a_slow_listener() -> None:
    """P8: a reader that is slow costs no memory."""
    server = full()
    async with Peer(server) as peer:
        await listen(peer, EVERYTHING)
        for _ in range(100):
            server.notify.tools_changed()
            server.notify.resource_updated("a:b")
        server.notify.prompts_changed()
        methods = [(await peer.receive())["method"] for _ in range(3)]
    assert sorted(methods) == [
        "notifications/prompts/list_changed",
        "notifications/resources/updated",
        "notifications/tools/list_changed",
    ]


async def test_cancelling_a_listen_ends_it_without_a_word() -> None:
    """protocol.md 1.4."""
    server = full()
    async with Peer(server) as peer:
        id, _ = await listen(peer, EVERYTHING)
        assert len(server.runtime.changes) == 1
        await peer.notice("notifications/cancelled", {"requestId": id})
        await until(lambda: len(server.runtime.changes) == 0)
        server.notify.tools_changed()
        assert (await peer.modern("server/discover"))["result"]
    assert peer.heard == []


async def test_a_listen_stream_has_no_time_limit() -> None:
    server = full(request_timeout=0.01)
    server.add_tool(_nap)
    async with Peer(server) as peer:
        await listen(peer, EVERYTHING)
        assert "error" in await peer.modern("tools/call", {"name": "_nap"}), "the limit has passed"
        server.notify.tools_changed()
        assert (await peer.receive())["method"] == "notifications/tools/list_changed"


async def _nap() -> None:
    await asyncio.Event().wait()


async def test_a_stream_that_has_carried_enough_ends_properly() -> None:
    """Limits.max_listen_bytes: the client listens again."""
    server = full(max_listen_bytes=100)
    async with Peer(server) as peer:
        id, _ = await listen(peer, EVERYTHING)
        server.notify.tools_changed()
        assert (await peer.receive())["method"] == "notifications/tools/list_changed"
        message = await peer.receive()
    assert message["id"] == id
    assert message["result"]["resultType"] == "complete"
    assert message["result"]["_meta"][P + "subscriptionId"] == id


async def test_streams_and_watched_resources_are_limited() -> None:
    server = full(max_listen_streams=1, max_subscriptions=2)
    async with Peer(server) as peer:
        id = await peer.start(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a:1", "a:2", "a:3"]}}
        )
        assert (await peer.reply(id))["error"]["code"] == -32602
        await listen(peer, EVERYTHING)
        second = await peer.start("subscriptions/listen", {"notifications": {}})
        assert (await peer.reply(second))["error"]["code"] == -32603


async def test_a_legacy_session_hears_of_lists_after_its_handshake_and_of_resources_it_watches() -> None:
    """R27, R39."""
    server = full()
    async with Peer(server) as peer:
        await peer.initialize(ready=False)
        server.notify.tools_changed()
        await peer.notice("notifications/initialized")
        await peer.legacy("resources/subscribe", {"uri": "a:b"})
        server.notify.resource_updated("a:z")
        server.notify.resource_updated("a:b", title="T")
        assert await peer.receive() == {
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": {"uri": "a:b", "title": "T"},
        }
        await peer.legacy("resources/unsubscribe", {"uri": "a:b"})
        server.notify.resource_updated("a:b")
        server.notify.prompts_changed()
        assert (await peer.receive())["method"] == "notifications/prompts/list_changed"
    assert peer.heard == []


async def test_a_session_that_starts_over_keeps_no_subscriptions() -> None:
    """R39."""
    server = full()
    async with Peer(server) as peer:
        await peer.initialize()
        await peer.legacy("resources/subscribe", {"uri": "a:b"})
        await peer.initialize()
        await peer.legacy("ping")
        server.notify.resource_updated("a:b")
        server.notify.tools_changed()
        assert (await peer.receive())["method"] == "notifications/tools/list_changed"
