"""A server that follows a script, heard through the channel alone; with a client in test_with_client.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran.errors import ConnectFailed, ConnectionLost, ProtocolError
from trimaran.testing import ScriptedPeer

from .ears import Ears, notice, request


class Opened:
    def __init__(self, peer: ScriptedPeer) -> None:
        self.peer = peer
        self.ears = Ears()

    async def __aenter__(self) -> Ears:
        await self.peer.open(self.ears)
        return self.ears

    async def __aexit__(self, *exc: object) -> None:
        await self.peer.close()


async def test_requests_are_answered_as_the_script_says() -> None:
    peer = ScriptedPeer().expect("tools/list", result={"tools": []}).expect("ping", error=(-32601, "no", {"x": 1}))
    async with Opened(peer) as ears:
        await peer.send(request(7, "tools/list"))
        await peer.send(request("b", "ping"))
        assert await ears.until(2) == [
            {"jsonrpc": "2.0", "id": 7, "result": {"tools": []}},
            {"jsonrpc": "2.0", "id": "b", "error": {"code": -32601, "message": "no", "data": {"x": 1}}},
        ]
    peer.verify()


async def test_notifications_are_expected_and_not_answered() -> None:
    peer = ScriptedPeer().expect("notifications/initialized", result={"ignored": True})
    async with Opened(peer) as ears:
        await peer.send(notice("notifications/initialized"))
    peer.verify()
    assert ears.raw == []


async def test_a_result_may_be_a_function_of_the_params() -> None:
    async def slowly(params: Any) -> Any:
        await asyncio.sleep(0)
        return {"slow": params["x"]}

    def fails(params: Any) -> Any:
        raise ProtocolError(-32050, "not today", {"day": "Sunday"})

    peer = (
        ScriptedPeer()
        .expect("a", result=lambda params: {"doubled": params["x"] * 2})
        .expect("b", result=slowly)
        .expect("c", result=fails)
    )
    async with Opened(peer) as ears:
        for id, method in enumerate("abc"):
            await peer.send(request(id, method, {"x": 4}))
        first, second, third = await ears.until(3)
    assert first["result"] == {"doubled": 8}
    assert second["result"] == {"slow": 4}
    assert third["error"] == {"code": -32050, "message": "not today", "data": {"day": "Sunday"}}
    peer.verify()


async def test_the_server_may_speak_unasked() -> None:
    peer = (
        ScriptedPeer()
        .say("notifications/tools/list_changed")
        .say("notifications/message", {"level": "info", "data": "hello"})
        .say({"id": 99, "result": {}})
        .say(b"not json")
    )
    async with Opened(peer) as ears:
        await until(lambda: len(ears.raw) == 4)
        assert ears.raw[3] == b"not json"
        ears.raw.pop()
        assert [message.get("method") for message in ears.messages] == [
            "notifications/tools/list_changed",
            "notifications/message",
            None,
        ]
        assert ears.messages[2] == {"jsonrpc": "2.0", "id": 99, "result": {}}
    peer.verify()


async def test_then_follows_the_answer_and_may_look_at_the_request() -> None:
    peer = ScriptedPeer().expect(
        "tools/call",
        result={},
        then=["notifications/tools/list_changed", lambda message: {"id": message["id"], "result": {"again": True}}],
    )
    async with Opened(peer) as ears:
        await peer.send(request(3, "tools/call"))
        first, second, third = await ears.until(3)
    assert first["result"] == {}
    assert second["method"] == "notifications/tools/list_changed"
    assert third == {"jsonrpc": "2.0", "id": 3, "result": {"again": True}}


async def test_an_answer_may_come_later_after_a_question() -> None:
    peer = (
        ScriptedPeer()
        .expect("tools/call")
        .say(lambda call: {"method": "notifications/progress", "params": {"progressToken": call["id"], "progress": 1}})
        .ask("elicitation/create", {"message": "Sure?"}, answer={"result": {"action": "accept"}})
        .reply({"content": []})
    )
    async with Opened(peer) as ears:
        await peer.send(request(5, "tools/call"))
        progress, question = await ears.until(2)
        assert progress["params"]["progressToken"] == 5
        await peer.send(
            request(question["id"], "x").replace(b'"method": "x"', b'"result": {"action": "accept", "content": {}}')
        )
        assert (await ears.until(3))[2] == {"jsonrpc": "2.0", "id": 5, "result": {"content": []}}
    peer.verify()


async def test_replies_choose_their_request_by_method() -> None:
    peer = ScriptedPeer().expect("a").expect("b").reply({"for": "a"}, to="a").reply(error=(-1, "for b"))
    async with Opened(peer) as ears:
        await peer.send(request(1, "a"))
        await peer.send(request(2, "b"))
        replies = await ears.until(2)
    assert [reply["id"] for reply in replies] == [1, 2]
    peer.verify()


async def test_what_is_allowed_may_come_at_any_time() -> None:
    peer = ScriptedPeer().allow("ping", {}).allow("notifications/*").expect("tools/list", result={"tools": []})
    async with Opened(peer) as ears:
        for id in (1, 2):
            await peer.send(request(id, "ping"))
        await peer.send(notice("notifications/roots/list_changed"))
        await peer.send(request(3, "tools/list"))
        await peer.send(request(4, "ping"))
        assert [reply["id"] for reply in await ears.until(4)] == [1, 2, 3, 4]
    peer.verify()


async def test_hanging_up_is_the_loss_and_a_new_connection_goes_on_from_there() -> None:
    peer = (
        ScriptedPeer()
        .expect("a", result={})
        .hang_up()
        .expect("b", result={})
        .hang_up(ConnectionLost("the cable was pulled"))
    )
    async with Opened(peer) as ears:
        await peer.send(request(1, "a"))
        assert await ears.until_lost() is None
        with pytest.raises(ConnectionLost, match="the script hung up"):
            await peer.send(request(2, "a"))
    async with Opened(peer) as ears:
        await peer.send(request(3, "b"))
        error = await ears.until_lost()
        assert "the cable was pulled" in str(error)
    peer.verify()
    with pytest.raises(ConnectFailed, match="played to its end"):
        await peer.open(Ears())


# Leaving the script


async def test_an_unexpected_message_is_told_to_both_sides_with_a_difference() -> None:
    peer = ScriptedPeer().expect("initialize", result={}).expect("tools/list", result={"tools": []})
    async with Opened(peer) as ears:
        await peer.send(request(1, "initialize"))
        await peer.send(request(2, "tools/call", {"name": "add"}))
        error = await ears.until_lost()
        assert isinstance(error, ConnectionLost)
        with pytest.raises(ConnectionLost, match="expected tools/list"):
            await peer.send(request(3, "tools/list"))
    with pytest.raises(AssertionError) as raised:
        peer.verify()
    text = str(raised.value)
    assert text in str(error)
    assert "the script expected tools/list, and the client sent tools/call" in text
    assert '-  "method": "tools/list"' in text
    assert '+  "method": "tools/call"' in text
    assert "(a script, at step 2 of 2)" in text
    assert '-- client --\n{"jsonrpc": "2.0", "id": 1, "method": "initialize"}' in text
    with pytest.raises(ConnectFailed, match="expected tools/list"):
        await peer.open(Ears())


async def test_params_are_compared_at_every_depth_where_the_script_speaks() -> None:
    expected = {"name": "add", "arguments": {"a": 1}}
    peer = ScriptedPeer().expect("tools/call", expected, result={}).expect("tools/call", expected, result={})
    async with Opened(peer) as ears:
        given = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {"progressToken": 1}}
        await peer.send(request(1, "tools/call", given))
        await ears.until(1)
        await peer.send(request(2, "tools/call", {**given, "arguments": {"a": 2}}))
        await ears.until_lost()
    with pytest.raises(AssertionError) as raised:
        peer.verify()
    difference = str(raised.value).partition("\n\nThe messages so far")[0]
    assert '-    "a": 1' in difference
    assert '+    "a": 2' in difference
    assert "progressToken" not in difference


async def test_params_may_be_judged_by_a_function() -> None:
    def judge(params: Any) -> None:
        assert params["n"] > 3, "too small"

    peer = ScriptedPeer().expect("a", judge, result={}).expect("b", lambda params: params["n"] == 0, result={})
    async with Opened(peer) as ears:
        await peer.send(request(1, "a", {"n": 4}))
        await peer.send(request(2, "b", {"n": 1}))
        await ears.until_lost()
    with pytest.raises(AssertionError, match="the script refuses the content of b"):
        peer.verify()
    peer = ScriptedPeer().expect("a", judge, result={})
    async with Opened(peer) as ears:
        await peer.send(request(1, "a", {"n": 1}))
        await ears.until_lost()
    with pytest.raises(AssertionError, match="too small"):
        peer.verify()


async def test_a_message_after_the_end_of_the_script_is_unexpected() -> None:
    peer = ScriptedPeer().expect("a", result={})
    async with Opened(peer) as ears:
        await peer.send(request(1, "a"))
        await peer.send(request(2, "b"))
        await ears.until_lost()
    with pytest.raises(
        AssertionError, match=r"the script has ended, and the client sent b[^(]*\(a script, after all 1 steps\)"
    ):
        peer.verify()


@pytest.mark.parametrize("sent", [b"{nonsense", b"[1]"], ids=["garbage", "array"])
async def test_what_is_no_message_is_unexpected(sent: bytes) -> None:
    peer = ScriptedPeer().expect("a", result={})
    async with Opened(peer) as ears:
        await peer.send(sent)
        await ears.until_lost()
    with pytest.raises(AssertionError, match="an invalid JSON-RPC message"):
        peer.verify()


async def test_a_script_not_played_to_its_end_names_what_is_left() -> None:
    peer = ScriptedPeer().expect("a", result={}).expect("b", result={}).hang_up()
    async with Opened(peer) as ears:
        await peer.send(request(1, "a"))
        await ears.until(1)
    with pytest.raises(AssertionError, match="left are: expect b, hang up"):
        peer.verify()


async def test_a_function_of_the_script_that_fails_is_told_as_such() -> None:
    peer = ScriptedPeer().expect("a", result=lambda params: params["missing"])
    async with Opened(peer) as ears:
        await peer.send(request(1, "a", {}))
        await ears.until_lost()
    with pytest.raises(AssertionError, match="the script's own function failed: KeyError"):
        peer.verify()


async def test_a_reply_without_a_request_is_a_fault_of_the_script() -> None:
    peer = ScriptedPeer().reply({})
    async with Opened(peer) as ears:
        await ears.until_lost()
    with pytest.raises(AssertionError, match="none has come"):
        peer.verify()


async def test_a_wrong_answer_to_a_question_is_shown() -> None:
    peer = ScriptedPeer().ask("roots/list", answer={"result": {"roots": []}})
    async with Opened(peer) as ears:
        (question,) = await ears.until(1)
        await peer.send(request(question["id"], "x").replace(b'"method": "x"', b'"error": {"code": 1, "message": "n"}'))
        await ears.until_lost()
    with pytest.raises(AssertionError, match="the answer to roots/list"):
        peer.verify()


# Closing


async def test_what_was_sent_before_closing_still_counts() -> None:
    peer = ScriptedPeer().expect("a", result={}).expect("notifications/bye")
    async with Opened(peer):
        await peer.send(request(1, "a"))
        await peer.send(notice("notifications/bye"))
    peer.verify()


async def test_closing_does_not_wait_for_a_function_that_waits() -> None:
    async def never(params: Any) -> Any:
        await asyncio.Event().wait()

    peer = ScriptedPeer().expect("a", result=never)
    async with Opened(peer) as ears:
        await peer.send(request(1, "a"))
        for _ in range(3):
            await asyncio.sleep(0)
        await soon(asyncio.gather(peer.close(), peer.close()))
    assert ears.losses == []
    with pytest.raises(AssertionError, match="left are: expect a"):
        peer.verify()


async def test_one_script_serves_one_client() -> None:
    peer = ScriptedPeer()
    async with Opened(peer):
        with pytest.raises(ConnectFailed, match="open already"):
            await peer.open(Ears())


def test_an_answer_is_one_thing() -> None:
    with pytest.raises(TypeError, match="not both"):
        ScriptedPeer().expect("a", result={}, error=(1, "x"))
    with pytest.raises(TypeError, match="give one"):
        ScriptedPeer().reply()


async def test_the_transcript_reads_like_a_conversation() -> None:
    tools = {"tools": [{"name": f"tool-{n}", "inputSchema": {"type": "object"}} for n in range(2)]}
    peer = ScriptedPeer().expect("ping", result={}).expect("tools/list", result=tools).say(b"oops")
    async with Opened(peer) as ears:
        await peer.send(request(1, "ping"))
        await peer.send(request(2, "tools/list"))
        await until(lambda: len(ears.raw) == 3)
    assert str(peer.transcript) == (
        """\
-- client --
{"jsonrpc": "2.0", "id": 1, "method": "ping"}
{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
-- server --
{"jsonrpc": "2.0", "id": 1, "result": {}}
{
  "jsonrpc": "2.0",
  "id": 2,
  "result": {
    "tools": [
      {
        "name": "tool-0",
        "inputSchema": {
          "type": "object"
        }
      },
      {
        "name": "tool-1",
        "inputSchema": {
          "type": "object"
        }
      }
    ]
  }
}
b'oops'"""
    )
    assert peer.transcript.methods("client") == ["ping", "tools/list"]
    assert peer.transcript.messages("server")[0]["result"] == {}
    assert len(peer.transcript) == 5
    assert next(iter(peer.transcript))[0] == "client"
