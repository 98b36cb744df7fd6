"""Bad messages, by the thousand, from a seed: good ones with something wrong in them, and plain noise."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from tests.support.faults import (
    INITIALIZED,
    MODERN,
    P,
    cancelled,
    encode,
    initialize,
    legacy_call,
    modern,
    modern_headers,
    notice,
    rpc,
)

GOOD: list[dict[str, Any]] = [
    modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    modern("tools/call", {"name": "echo", "arguments": {"text": "hello"}}, "two"),
    modern("tools/call", {"name": "few", "arguments": {"n": 3}}, 3, progressToken="p"),
    modern(
        "tools/call",
        {"name": "echo", "arguments": {"text": "x"}, "requestState": "abc", "inputResponses": {"k": {}}},
        4,
    ),
    modern("tools/list", {}, 5),
    modern("tools/list", {"cursor": "abc"}, 6),
    modern("resources/read", {"uri": "memo://a"}, 7),
    modern("resources/templates/list", {}, 8),
    modern("prompts/get", {"name": "greet", "arguments": {"name": "you"}}, 9),
    modern(
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "y"}},
        10,
    ),
    modern("server/discover", {}, 11),
    legacy_call("add", {"a": 1, "b": 2}, 12),
    legacy_call("echo", {"text": "hello"}, "thirteen"),
    legacy_call("few", {"n": 3}, 14, "q"),
    rpc("ping", None, 15),
    rpc("logging/setLevel", {"level": "info"}, 16),
    rpc("resources/subscribe", {"uri": "memo://a"}, 17),
    rpc("resources/unsubscribe", {"uri": "memo://a"}, 18),
    rpc("resources/read", {"uri": "memo://b"}, 19),
    rpc("prompts/list", {}, 20),
    notice("notifications/initialized"),
    notice("notifications/roots/list_changed"),
    notice("notifications/progress", {"progressToken": 1, "progress": 1}),
    cancelled(99),
    {"jsonrpc": "2.0", "id": "srv-1", "result": {"action": "accept"}},
    {"jsonrpc": "2.0", "id": "srv-2", "error": {"code": -1, "message": "no"}},
    INITIALIZED,
]
INITIALIZE = initialize()

ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, -0.0, 1e308, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**30, 10**400, "", "x", "\0", "é", "\u2028",
    "😀", "a" * 300, "../../etc/passwd", "%00", "{x}", [], [1], [[]], [None], {}, {"a": 1}, {"": ""}, {"_meta": {}}, {"$ref": "#"},
    "2.0", MODERN, "2024-11-05", "1999-01-01", "tools/call", "initialize", "notifications/cancelled", "add", "few",
]  # fmt: skip
RAW: list[bytes] = [
    b"NaN", b"-Infinity", b"Infinity", b'"\\ud800"', b'"\\udc00\\ud800"', b'"\xff"', b'"\xed\xa0\x80"', b'"\xc3"', b'"\\x"', b'"\n"', b"01",
    b"1.", b".5", b"+1", b"1e999", b"-1e-999", b"'x'", b"undefined", b"{", b"}", b"[", b"]", b'{"a":1,"a":2}', b'{"a":}', b"1,2",
    b"9" * 400, b"9" * 5000, b"/**/1", b'"\\u0000"', b"\xef\xbb\xbf1", b"1" + b"0" * 30 + b".5", b"{1:2}", b'{"a"}', b"[1,]", b"tru",
]  # fmt: skip
METHODS = [
    "tools/call", "tools/list", "resources/list", "resources/read", "prompts/get", "ping", "server/discover", "logging/setLevel",
    "completion/complete", "resources/subscribe", "tasks/get", "rpc.discover", "", "x" * 1000, "notifications/cancelled",
]  # fmt: skip
PLACE = '"@@@"'


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*here, key)
            yield from paths(inner, (*here, key))


def at(message: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        message = message[key]
    return message


class Mutants:
    """The n-th message of a seed is always the same."""

    def __init__(self, seed: int, *, initialize: bool = True) -> None:
        self.random = random.Random(seed)
        self.good = [*GOOD, INITIALIZE] if initialize else GOOD
        self.places = [(m, list(paths(m))) for m in self.good]

    def body(self) -> tuple[dict[str, Any], bytes]:
        """The good message it comes from, and the bad one."""
        chance = self.random
        good, places = chance.choice(self.places)
        kind = chance.random()
        if kind < 0.35:
            return good, encode(self._changed(good, places))
        if kind < 0.60:
            return good, self._spliced(good, places)
        if kind < 0.70:
            return good, self._damaged(encode(good))
        if kind < 0.78:
            return good, self._reshaped(good)
        if kind < 0.86:
            twice = encode(good)
            path = chance.choice(places)
            return good, twice[:-1] + b"," + encode({path[0]: chance.choice(ODD)})[1:]
        if kind < 0.90:
            return good, chance.randbytes(chance.randrange(200))
        if kind < 0.998:
            return good, encode({**good, "method": chance.choice(METHODS)})
        return good, self._huge(good, places)

    def _changed(self, good: dict[str, Any], places: list[tuple[Any, ...]]) -> Any:
        message = copy.deepcopy(good)
        for _ in range(self.random.choice((1, 1, 2, 3))):
            path = self.random.choice(places)
            try:
                holder = at(message, path[:-1])
                if self.random.random() < 0.3:
                    del holder[path[-1]]
                else:
                    holder[path[-1]] = copy.deepcopy(self.random.choice(ODD))
            except (KeyError, TypeError, IndexError):
                continue
        return message

    def _spliced(self, good: dict[str, Any], places: list[tuple[Any, ...]], raw: bytes | None = None) -> bytes:
        message = copy.deepcopy(good)
        path = self.random.choice(places)
        at(message, path[:-1])[path[-1]] = "@@@"
        return encode(message).replace(PLACE.encode(), self.random.choice(RAW) if raw is None else raw)

    def _damaged(self, data: bytes) -> bytes:
        damaged = bytearray(data)
        for _ in range(self.random.choice((1, 1, 2, 5))):
            where = self.random.randrange(len(damaged))
            what = self.random.random()
            if what < 0.4:
                damaged[where] = self.random.randrange(256)
            elif what < 0.7:
                del damaged[where]
            else:
                damaged.insert(where, self.random.randrange(256))
            if not damaged:
                break
        if self.random.random() < 0.2:
            del damaged[self.random.randrange(len(damaged) + 1) :]
        return bytes(damaged)

    def _reshaped(self, good: dict[str, Any]) -> bytes:
        shape = self.random.randrange(6)
        if shape == 0:
            return encode([good])
        if shape == 1:
            return encode([good, self.random.choice(ODD), self.random.choice(self.good)])
        if shape == 2:
            return encode(self.random.choice(ODD))
        if shape == 3:
            return b" \t" + json.dumps(good, indent=1).replace("\n", " ").encode() + b" "
        if shape == 4:
            return encode({**good, "result": {}, "error": {"code": 1, "message": ""}})
        return encode(dict(reversed(good.items()))) + b" "

    def _huge(self, good: dict[str, Any], places: list[tuple[Any, ...]]) -> bytes:
        what = self.random.randrange(5)
        if what == 0:
            return self._spliced(good, places, b'"' + b"x" * 1_000_000 + b'"')
        if what == 1:
            return self._spliced(good, places, b"[" * 100_000 + b"]" * 100_000)
        if what == 2:
            return self._spliced(good, places, b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
        if what == 3:
            return b"[" * 100_000
        return self._spliced(good, places, b"{" + b",".join(b'"k%d":%d' % (i, i) for i in range(20_000)) + b"}")

    def request(self, session: str) -> tuple[bytes, bool]:
        """A whole HTTP request, and whether its framing is still good."""
        chance = self.random
        good, body = self.body()
        headers: dict[str, str] = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if P + "protocolVersion" in ((good.get("params") or {}).get("_meta") or {}):
            headers = modern_headers(good)
        elif good is not INITIALIZE:
            headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
        verb = "POST"
        kind = chance.random()
        if kind < 0.25:
            name = chance.choice([*headers, "Mcp-Param-A", "Last-Event-ID", "Origin", "X-Junk"])
            odd = [
                "",
                " ",
                "x",
                "é",
                "²",
                "=?base64?!!?=",
                "=?base64?YQ==?=",
                "x" * 2000,
                "\xff\xfe",
                "null",
                "http://evil",
                "1, 2",
                "\t",
            ]
            headers[name] = chance.choice(odd)
        elif kind < 0.35:
            headers.pop(chance.choice(list(headers)))
        elif kind < 0.40:
            verb = chance.choice(["PUT", "PATCH", "HEAD", "OPTIONS", "FOO", "TRACE"])
        lines = [f"{verb} /mcp HTTP/1.1", "Host: 127.0.0.1", *(f"{k}: {v}" for k, v in headers.items())]
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}"]).encode("latin-1") + b"\r\n\r\n"
        if kind > 0.95:
            return self._damaged(head) + body[:500], False
        return head + body, True
