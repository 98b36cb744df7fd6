"""Recording and playing back, through channels alone; with a client in test_with_client.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.until import until

from trimaran import Server
from trimaran.errors import ConfigError, ConnectFailed, ConnectionLost
from trimaran.testing import Replayer, channel_pair, record, replay

from .ears import Ears, notice, request

P = "io.modelcontextprotocol/"


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, *messages: tuple[str, Any]) -> Path:
    """A cassette by hand: ("out", message), ("in", message)."""
    whole = [{"cassette": 1, "target": "by hand"}]
    whole += [{"way": way, "message": {"jsonrpc": "2.0", **message}} for way, message in messages]
    path.write_text("".join(json.dumps(line) + "\n" for line in whole))
    return path


async def opened(player: Replayer) -> Ears:
    ears = Ears()
    await player.open(ears)
    return ears


# Recording


def test_a_tap_writes_each_message_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "session.jsonl"
    with record(path, target="python server.py", date="2026-11-15") as tap:
        tap("out", request(1, "tools/list"))
        tap("in", b'{"jsonrpc":"2.0","id":1,"result":{"name":"Gr\xc3\xb6\xc3\x9fe"}}')
        tap("in", b"garbage \xff")
    tap("out", b'{"after": "closing"}')
    assert lines(path) == [
        {"cassette": 1, "target": "python server.py", "date": "2026-11-15"},
        {"way": "out", "message": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}},
        {"way": "in", "message": {"jsonrpc": "2.0", "id": 1, "result": {"name": "Größe"}}},
        {"way": "in", "raw": "garbage \\xff"},
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_a_cassette_on_a_full_disk_is_said_so() -> None:
    with pytest.raises(ConfigError, match=r"the cassette /dev/full cannot be written \(No space left on device\)"):
        record("/dev/full")


def test_a_header_without_a_date_has_none(tmp_path: Path) -> None:
    with record(tmp_path / "a.jsonl"):
        pass
    assert lines(tmp_path / "a.jsonl") == [{"cassette": 1, "target": ""}]


async def test_a_channel_is_recorded_both_ways(tmp_path: Path) -> None:
    near, far = channel_pair()
    here, there = Ears(), Ears()
    with record(tmp_path / "a.jsonl") as tape:
        channel = tape.around(near)
        await channel.open(here)
        await far.open(there)
        await channel.send(request(1, "ping"))
        await far.send(b'{"jsonrpc":"2.0","id":1,"result":{}}')
        await here.until(1)
        assert channel.describe() == near.describe()
        await channel.close()
        await there.until_lost()
    assert [line["way"] for line in lines(tmp_path / "a.jsonl")[1:]] == ["out", "in"]


SECRETS: list[tuple[Any, Any]] = [
    ({"authorization": "Bearer abc"}, {"authorization": "[redacted]"}),
    ({"headers": {"X-Api-Key": "abc"}}, {"headers": {"X-Api-Key": "[redacted]"}}),
    ({"access_token": "a", "refreshToken": "b"}, {"access_token": "[redacted]", "refreshToken": "[redacted]"}),
    ({"db_password": "x", "clientSecret": "y"}, {"db_password": "[redacted]", "clientSecret": "[redacted]"}),
    ({"Set-Cookie": ["a=1", "b=2"]}, {"Set-Cookie": ["[redacted]", "[redacted]"]}),
    ({"token": "abc", "text": "Bearer abc"}, {"token": "[redacted]", "text": "[redacted]"}),
    ({"employee": "E-17"}, {"employee": "[redacted]"}),
    # What only looks alike: a schema that speaks of a password, counts of tokens, the protocol's own words.
    ({"properties": {"password": {"type": "string"}}}, {"properties": {"password": {"type": "string"}}}),
    (
        {"progressToken": "t", "maxTokens": 5, "nextCursor": "c"},
        {"progressToken": "t", "maxTokens": 5, "nextCursor": "c"},
    ),
    ({"requestState": "sealed", "text": "basically"}, {"requestState": "sealed", "text": "basically"}),
]


@pytest.mark.parametrize(("params", "kept"), SECRETS, ids=[next(iter(params)) for params, _ in SECRETS])
def test_secrets_never_reach_the_file(params: Any, kept: Any, tmp_path: Path) -> None:
    with record(tmp_path / "a.jsonl", redact=["employee"]) as tap:
        tap("out", request(1, "tools/call", params))
        tap("in", json.dumps({"jsonrpc": "2.0", "id": 1, "result": params}).encode())
    _, sent, came = lines(tmp_path / "a.jsonl")
    assert sent["message"]["params"] == kept
    assert came["message"]["result"] == kept


TARGETS: list[tuple[Any, str]] = [
    ("https://me:pw@example.com/mcp?api_key=abc&page=2", "https://example.com/mcp?api_key=[redacted]&page=2"),
    ("server.py", "server.py"),
    (["/usr/bin/python3", "-m", "server"], "python3 -m server"),
    (["serve", "--api-key", "abc", "--port", "1"], "serve --api-key '[redacted]' --port 1"),
    (("serve", "--password=abc", "https://a:b@example.com/"), "serve '--password=[redacted]' https://example.com/"),
    ({"command": "npx", "args": ["-y", "some-server"], "env": {"TOKEN": "abc"}}, "npx -y some-server"),
    ({"url": "https://example.com/mcp", "headers": {"Authorization": "abc"}}, "https://example.com/mcp"),
    (Server("library", version="1.0.0"), "library"),
    (channel_pair()[0], "the left end of a pair in memory"),
]


@pytest.mark.parametrize(("target", "shown"), TARGETS, ids=[shown for _, shown in TARGETS])
def test_the_target_is_named_without_secrets_and_folders(target: Any, shown: str, tmp_path: Path) -> None:
    with record(tmp_path / "a.jsonl", target=target):
        pass
    assert lines(tmp_path / "a.jsonl")[0]["target"] == shown


# Playing back, strictly


def session(path: Path) -> Path:
    return write(
        path,
        ("out", {"id": 1, "method": "initialize", "params": {"protocolVersion": "x", "clientInfo": {"name": "old"}}}),
        ("in", {"id": 1, "result": {"protocolVersion": "x"}}),
        ("out", {"method": "notifications/initialized"}),
        ("out", {"id": 2, "method": "tools/call", "params": {"name": "a", "_meta": {"progressToken": 2}}}),
        ("in", {"method": "notifications/progress", "params": {"progressToken": 2, "progress": 1}}),
        ("in", {"id": 2, "result": {"content": []}}),
    )


async def test_a_session_plays_with_ids_tokens_and_names_of_today(tmp_path: Path) -> None:
    player = replay(session(tmp_path / "a.jsonl"))
    ears = await opened(player)
    await player.send(
        request("first", "initialize", {"protocolVersion": "x", "clientInfo": {"name": "new", "version": "9"}})
    )
    await player.send(notice("notifications/initialized", {}))
    await player.send(request(70, "tools/call", {"name": "a", "_meta": {"progressToken": "p-70"}}))
    assert await ears.until(3) == [
        {"jsonrpc": "2.0", "id": "first", "result": {"protocolVersion": "x"}},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "p-70", "progress": 1}},
        {"jsonrpc": "2.0", "id": 70, "result": {"content": []}},
    ]
    player.verify()
    assert player.header["target"] == "by hand"
    assert player.transcript.methods("client") == ["initialize", "notifications/initialized", "tools/call"]
    await player.close()


async def test_nothing_is_delivered_inside_send(tmp_path: Path) -> None:
    player = replay(write(tmp_path / "a.jsonl", ("out", {"id": 1, "method": "a"}), ("in", {"id": 1, "result": {}})))
    ears = await opened(player)
    await player.send(request(1, "a"))
    assert ears.raw == []
    await ears.until(1)


async def test_what_names_the_client_or_the_moment_does_not_count(tmp_path: Path) -> None:
    def meta(name: str, trace: str) -> Any:
        return {
            f"{P}protocolVersion": "2026-07-28",
            f"{P}clientInfo": {"name": name},
            f"{P}clientCapabilities": {},
            "traceparent": trace,
        }

    recorded = {"id": 1, "method": "tools/list", "params": {"_meta": meta("old", "00-1")}}
    player = replay(write(tmp_path / "a.jsonl", ("out", recorded), ("in", {"id": 1, "result": {"tools": []}})))
    ears = await opened(player)
    await player.send(request(1, "tools/list", {"_meta": meta("new", "00-2")}))
    await ears.until(1)
    player.verify()


async def test_a_secret_of_today_stands_for_the_redacted_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with record(path, redact=["badge"]) as tap:
        tap("out", request(1, "login", {"password": "old", "badge": "1"}))
        tap("in", b'{"jsonrpc":"2.0","id":1,"result":{"access_token":"abc"}}')
    player = replay(path, redact=["badge"])
    ears = await opened(player)
    await player.send(request(1, "login", {"password": "new", "badge": "2"}))
    assert (await ears.until(1))[0]["result"] == {"access_token": "[redacted]"}


async def test_the_first_message_that_differs_is_named(tmp_path: Path) -> None:
    player = replay(session(tmp_path / "weather.jsonl"))
    ears = await opened(player)
    await player.send(request(1, "initialize", {"protocolVersion": "x"}))
    await player.send(notice("notifications/initialized"))
    await player.send(request(2, "tools/call", {"name": "b"}))
    error = await ears.until_lost()
    assert isinstance(error, ConnectionLost)
    for raised in (str(error), assertion_of(player)):
        assert "weather.jsonl line 5: recorded was tools/call (a), the client sent tools/call (b)" in raised
        assert '-    "name": "a"' in raised
        assert '+    "name": "b"' in raised
        assert "record the session again" in raised
    with pytest.raises(ConnectionLost, match="weather"):
        await player.send(request(3, "ping"))
    with pytest.raises(ConnectFailed, match="weather"):
        await player.open(Ears())


def assertion_of(player: Replayer) -> str:
    with pytest.raises(AssertionError) as raised:
        player.verify()
    return str(raised.value)


async def test_a_message_after_the_end_of_the_cassette_differs(tmp_path: Path) -> None:
    player = replay(write(tmp_path / "a.jsonl"))
    ears = await opened(player)
    await player.send(request(1, "ping"))
    assert "the cassette is at its end, and the client sent ping" in str(await ears.until_lost())


async def test_a_recorded_request_that_was_never_sent_is_named(tmp_path: Path) -> None:
    player = replay(session(tmp_path / "a.jsonl"))
    await opened(player)
    await player.send(request(1, "initialize", {"protocolVersion": "x"}))
    assert "line 5: tools/call (a) was recorded, and the client never sent it" in assertion_of(player)
    await player.close()


async def test_questions_of_the_server_and_their_answers_play_too(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        ("out", {"id": 1, "method": "tools/call", "params": {"name": "ask"}}),
        ("in", {"id": "srv-1", "method": "roots/list"}),
        ("out", {"id": "srv-1", "result": {"roots": []}}),
        ("in", {"id": 1, "result": {"content": []}}),
    )
    player = replay(path)
    ears = await opened(player)
    await player.send(request(8, "tools/call", {"name": "ask"}))
    (question,) = await ears.until(1)
    assert question["id"] == "srv-1"
    await player.send(b'{"jsonrpc":"2.0","id":"srv-1","result":{"roots":[]}}')
    assert (await ears.until(2))[1]["id"] == 8
    player.verify()


async def test_changes_carry_the_id_of_todays_listen_call(tmp_path: Path) -> None:
    """protocol.md: a change names the listen request it belongs to."""
    change = {"_meta": {f"{P}subscriptionId": 4}, "uri": "a://b"}
    path = write(
        tmp_path / "a.jsonl",
        ("out", {"id": 4, "method": "subscriptions/listen"}),
        ("in", {"method": "notifications/resources/updated", "params": change}),
    )
    player = replay(path)
    ears = await opened(player)
    await player.send(request(11, "subscriptions/listen"))
    assert (await ears.until(1))[0]["params"]["_meta"] == {f"{P}subscriptionId": 11}


async def test_what_the_server_said_first_comes_first(tmp_path: Path) -> None:
    player = replay(write(tmp_path / "a.jsonl", ("in", {"method": "notifications/message", "params": {}})))
    ears = await opened(player)
    await ears.until(1)


# Finding out the era is not part of the story


async def test_a_probe_that_was_not_recorded_is_answered_as_an_old_server_would(tmp_path: Path) -> None:
    player = replay(session(tmp_path / "a.jsonl"))
    ears = await opened(player)
    await player.send(request(1, "server/discover"))
    assert (await ears.until(1))[0]["error"]["code"] == -32601
    await player.send(request(2, "initialize", {"protocolVersion": "x"}))
    await ears.until(2)


async def test_a_probe_is_answered_from_a_later_one_or_made_up(tmp_path: Path) -> None:
    call = {"id": 1, "method": "tools/list", "params": {"_meta": {f"{P}protocolVersion": "2026-07-28"}}}
    tools = ("in", {"id": 1, "result": {"tools": []}})
    player = replay(write(tmp_path / "a.jsonl", ("out", call), tools))
    ears = await opened(player)
    await player.send(request(1, "server/discover"))
    assert (await ears.until(1))[0]["result"]["supportedVersions"] == ["2026-07-28"]
    found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    probe = [("out", {"id": 2, "method": "server/discover"}), ("in", {"id": 2, "result": found})]
    player = replay(write(tmp_path / "b.jsonl", ("out", call), tools, *probe))
    ears = await opened(player)
    await player.send(request(1, "server/discover"))
    assert (await ears.until(1))[0]["result"] == found


async def test_a_recorded_probe_may_be_left_out(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        ("out", {"id": 1, "method": "server/discover"}),
        ("in", {"id": 1, "error": {"code": -32601, "message": "no"}}),
        ("out", {"id": 2, "method": "initialize"}),
        ("in", {"id": 2, "result": {}}),
    )
    player = replay(path)
    ears = await opened(player)
    await player.send(request(1, "initialize"))
    assert await ears.until(1) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    player.verify()


# Leniently


def two_calls(path: Path) -> Path:
    return write(
        path,
        ("out", {"id": 1, "method": "tools/call", "params": {"name": "a", "_meta": {"progressToken": "x"}}}),
        ("out", {"id": 2, "method": "tools/call", "params": {"name": "b"}}),
        ("in", {"method": "notifications/progress", "params": {"progressToken": "x", "progress": 1}}),
        ("in", {"id": 2, "result": {"from": "b"}}),
        ("in", {"id": 1, "result": {"from": "a"}}),
        ("in", {"method": "notifications/tools/list_changed"}),
    )


async def test_lenient_order_takes_requests_as_they_come(tmp_path: Path) -> None:
    player = replay(two_calls(tmp_path / "a.jsonl"), order="lenient")
    ears = await opened(player)
    await player.send(notice("notifications/whatever"))
    await player.send(request(10, "tools/call", {"name": "b"}))
    await ears.until(2)
    await player.send(request(11, "tools/call", {"name": "a", "_meta": {"progressToken": "y"}}))
    await ears.until(4)
    assert [(m.get("method"), m.get("id")) for m in ears.messages] == [
        (None, 10),
        ("notifications/tools/list_changed", None),
        ("notifications/progress", None),
        (None, 11),
    ]
    assert ears.messages[2]["params"]["progressToken"] == "y"
    player.verify()


async def test_strict_order_does_not(tmp_path: Path) -> None:
    player = replay(two_calls(tmp_path / "a.jsonl"))
    ears = await opened(player)
    await player.send(request(10, "tools/call", {"name": "b"}))
    assert "line 2: recorded was tools/call (a)" in str(await ears.until_lost())


async def test_lenient_order_still_names_what_is_not_there(tmp_path: Path) -> None:
    player = replay(two_calls(tmp_path / "a.jsonl"), order="lenient")
    ears = await opened(player)
    await player.send(request(1, "tools/call", {"name": "c"}))
    assert "line 2: recorded was tools/call (a), the client sent tools/call (c)" in str(await ears.until_lost())
    player = replay(two_calls(tmp_path / "a.jsonl"), order="lenient")
    ears = await opened(player)
    await player.send(request(1, "prompts/list"))
    error = await ears.until_lost()
    assert "the client sent prompts/list; left on the cassette are: tools/call (a), tools/call (b)" in str(error)


async def test_the_same_request_twice_has_two_answers(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        ("out", {"id": 1, "method": "now"}),
        ("in", {"id": 1, "result": {"n": 1}}),
        ("out", {"id": 2, "method": "now"}),
        ("in", {"id": 2, "result": {"n": 2}}),
    )
    player = replay(path, order="lenient")
    ears = await opened(player)
    await player.send(request(5, "now"))
    await player.send(request(6, "now"))
    assert [(m["id"], m["result"]["n"]) for m in await ears.until(2)] == [(5, 1), (6, 2)]


# Files that are none


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a cassette"),
        ("{}\n", "is not a cassette"),
        ("hello\n", "is not a cassette"),
        ('{"cassette": 2}\n', "of format 2; this version reads 1"),
        ('{"cassette": 1}\n{"way": "up", "message": {}}\n', "line 2: expected"),
        ('{"cassette": 1}\n\n{"way": "in"}\n', "line 3: expected"),
    ],
    ids=["empty", "no-header", "text", "newer", "direction", "no-message"],
)
def test_a_file_that_is_no_cassette_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        replay(path)


def test_a_cassette_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no cassette at .*gone.jsonl; record one first"):
        replay(tmp_path / "gone.jsonl")
    with pytest.raises(ConfigError, match="cannot be read"):
        replay(tmp_path)


def test_an_order_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    wrong: Any = "loose"
    with pytest.raises(ConfigError, match='"strict" or "lenient"'):
        replay(tmp_path / "a.jsonl", order=wrong)


async def test_one_cassette_plays_to_one_client(tmp_path: Path) -> None:
    player = replay(write(tmp_path / "a.jsonl", ("in", {"method": "x"})))
    ears = await opened(player)
    with pytest.raises(ConnectFailed, match="open already"):
        await player.open(Ears())
    await player.close()
    await player.close()
    with pytest.raises(ConnectionLost, match="this end was closed"):
        await player.send(request(1, "a"))
    await until(lambda: True)
    assert ears.raw == []


async def test_what_was_not_json_comes_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with record(path) as tap:
        tap("in", b"hello there")
    player = replay(path)
    ears = await opened(player)
    await until(lambda: ears.raw)
    assert ears.raw == [b"hello there"]
