"""A server that misbehaves exactly as asked, by the name of the tool that is called.

`ACTS` is the table of misbehaviour, free of any transport: an act yields what to do next. The HTTP peer in `peers.py`
plays it over sockets; run as a program (`python evil.py era=legacy journal=FILE ...`), this file plays it over stdio.
It uses nothing but the standard library, so that it starts at once and shares no bug with what it tests.

Options of the program, all `name=value`:
    era         modern | legacy | both
    journal     a file to which every message and every start is appended, as JSON lines
    lists       plain | endless | loop | malformed | nested: how tools/list misbehaves
    probe       answer | silent | die: what server/discover meets on a legacy server
    start       ok | die | silent: what happens at the start
    life        how many messages it reads before it dies
    deaf        1: ignores SIGTERM and the end of its input
    family      1: starts a grandchild, whose pid is journalled
    ping        0: never answers ping
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
P = "io.modelcontextprotocol/"
MB = 1024 * 1024


# --- what an act may yield, besides whole messages (bytes) -----------------------------------------------------------


class Part:
    """Some bytes of a message that may never be finished."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class End:
    """The message that was sent in parts is complete."""


class Wait:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Ask:
    """A request to the client; its reply is sent into the act."""

    def __init__(self, method: str, params: dict[str, Any]) -> None:
        self.method = method
        self.params = params


class Hold:
    """Go on when somebody calls `release`."""


class Release:
    """Let all go on who hold."""


class Silence:
    """Say nothing more about this call, ever."""


class Close:
    """End the connection, or the process, in order (as far as that goes)."""

    def __init__(self, code: int = 3, words: str = "") -> None:
        self.code = code
        self.words = words


class Kill:
    """The same with a reset, or SIGKILL."""


class Noise:
    """Bytes to stderr, where there is one."""

    def __init__(self, data: bytes) -> None:
        self.data = data


Play = Generator[Any, Any, None]


class Call:
    """One tools/call, and what its server remembers."""

    def __init__(self, era: str, message: dict[str, Any], memory: dict[str, Any], times: Callable[[str], int]) -> None:
        params = message.get("params") or {}
        self.era = era
        self.id = message["id"]
        self.params = params
        self.name = params.get("name", "")
        self.args: dict[str, Any] = params.get("arguments") or {}
        self.token = (params.get("_meta") or {}).get("progressToken")
        self.memory = memory
        self.times = times

    def result(self, result: Any, **changes: Any) -> bytes:
        return encode({"jsonrpc": "2.0", "id": self.id, "result": result, **changes})

    def text(self, text: str, **more: Any) -> bytes:
        return self.result(self.complete({"content": [{"type": "text", "text": text}], **more}))

    def complete(self, result: dict[str, Any]) -> dict[str, Any]:
        return complete(self.era, result)

    def progress(self, value: float, total: float | None = None) -> bytes:
        return notice(
            "notifications/progress",
            {"progressToken": self.token, "progress": value, **({} if total is None else {"total": total})},
        )


def encode(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def notice(method: str, params: dict[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def complete(era: str, result: dict[str, Any]) -> dict[str, Any]:
    return {"resultType": "complete", **result} if era == "modern" else result


def failure(id: Any, code: int, message: str, data: Any = None) -> bytes:
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return encode({"jsonrpc": "2.0", "id": id, "error": error})


# --- the table -------------------------------------------------------------------------------------------------------

ACTS: dict[str, Callable[[Call], Play]] = {}
SCHEMAS: dict[str, dict[str, Any]] = {
    "liar": {"outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    "fickle_safe": {"annotations": {"idempotentHint": True}},
}


def doubling(levels: int) -> dict[str, Any]:
    """Definitions that each refer to the previous one twice: a trillion leaves in 40 levels."""
    parts: dict[str, Any] = {"a0": {"type": "object"}}
    for level in range(1, levels + 1):
        parts[f"a{level}"] = {"allOf": [{"$ref": f"#/$defs/a{level - 1}"}, {"$ref": f"#/$defs/a{level - 1}"}]}
    return {"type": "object", "$defs": parts, "$ref": f"#/$defs/a{levels}"}


SCHEMAS["doubles"] = {"outputSchema": doubling(40)}


def act(play: Callable[[Call], Play]) -> Callable[[Call], Play]:
    ACTS[play.__name__] = play
    return play


def says(name: str, *payloads: Callable[[Call], bytes]) -> None:
    """An act that sends these messages and ends."""

    def play(call: Call) -> Play:
        for payload in payloads:
            yield payload(call)

    ACTS[name] = play


def replaced(call: Call, old: bytes, new: bytes) -> bytes:
    return call.text("MARK").replace(old, new)


says("garbage", lambda c: b"%PDF-1.7 this is no answer")
says("cut_json", lambda c: c.text("cut")[:-9])
says("no_rpc", lambda c: b'{"hello":"world"}')
says("bare_list", lambda c: b"[1,2,3]")
says("wrong_id", lambda c: c.result(c.complete({"content": []}), id=987654))
says("string_id", lambda c: c.result(c.complete({"content": []}), id=str(c.id)))
says("twice", lambda c: c.text("once"), lambda c: c.text("twice"))
says("bad_utf8", lambda c: replaced(c, b"MARK", b"caf\xff\xfe"))
says("deep", lambda c: b'{"jsonrpc":"2.0","id":%b,"result":' % encode(c.id) + b"[" * 100_000 + b"]" * 100_000 + b"}")
says("list_result", lambda c: c.result([1, 2]))
says("text_result", lambda c: c.result("done"))
says("null_result", lambda c: c.result(None))
says("odd_type", lambda c: c.result({"resultType": "quantum", "content": []}))
says("both", lambda c: c.result(c.complete({"content": []}), error={"code": -32603, "message": "both"}))
says("neither", lambda c: encode({"jsonrpc": "2.0", "id": c.id}))
says("codeless", lambda c: encode({"jsonrpc": "2.0", "id": c.id, "error": {"message": "codeless"}}))
says("refuses", lambda c: failure(c.id, -32050, "not today", {"until": "monday"}))
says("liar", lambda c: c.text("a lie", structuredContent={"n": "many"}))
says("doubles", lambda c: c.text("checked", structuredContent={"n": 1}))
says("odd_content", lambda c: c.result(c.complete({"content": [{"type": "hologram", "beam": 1}, {"type": "text"}, 7]})))
says("no_content", lambda c: c.result(c.complete({})))


@act
def add(call: Call) -> Play:
    yield call.text(str(call.args["a"] + call.args["b"]))


@act
def echo(call: Call) -> Play:
    yield call.text(str(call.args.get("text", "")))


@act
def later(call: Call) -> Play:
    yield Hold()
    yield call.text("late")


@act
def release(call: Call) -> Play:
    yield Release()
    yield call.text("released")


@act
def never(call: Call) -> Play:
    yield Silence()


@act
def half_close(call: Call) -> Play:
    yield Part(call.text("half an answer")[:40])
    yield Close(3, "fell over in the middle of an answer")


@act
def half_stall(call: Call) -> Play:
    yield Part(call.text("half an answer")[:40])
    yield Silence()


@act
def half_reset(call: Call) -> Play:
    yield Part(call.text("half an answer")[:40])
    yield Kill()


@act
def hang_up(call: Call) -> Play:
    yield Close(3, "going down")


@act
def kill(call: Call) -> Play:
    yield Kill()


@act
def huge(call: Call) -> Play:
    "An answer of half a gigabyte, made as it goes."
    yield Part(call.text("MARK").partition(b"MARK")[0])
    piece = Part(b"x" * MB)
    for _ in range(512):
        yield piece
    yield Part(b'"}]}}')
    yield End()


@act
def drip(call: Call) -> Play:
    "One byte at a time."
    for byte in call.text("drop"):
        yield Part(bytes([byte]))
        yield Wait(call.args.get("every", 0.05))
    yield End()


@act
def chatter(call: Call) -> Play:
    "Many notifications, then the answer."
    line = notice("notifications/chatter", {"pad": "p" * call.args.get("size", 1000)})
    for _ in range(call.args.get("n", 10_000)):
        yield line
    yield call.text("done")


@act
def babble(call: Call) -> Play:
    "Notifications without end."
    line = notice("notifications/chatter", {"pad": "p" * 100})
    while True:
        yield line
        yield Wait(0.01)


@act
def logs(call: Call) -> Play:
    line = notice("notifications/message", {"level": "info", "data": {"pad": "p" * call.args["pad"]}})
    for _ in range(call.args["n"]):
        yield line
    yield call.text("done")


@act
def samples(call: Call) -> Play:
    "Requests of the server's own, more than anybody can want, and the answer behind them."
    for i in range(call.args.get("n", 1000)):
        yield encode(
            {
                "jsonrpc": "2.0",
                "id": f"s{call.id}-{i}",
                "method": "sampling/createMessage",
                "params": {"messages": [], "maxTokens": 1},
            }
        )
    yield call.text("done")


@act
def samples_endlessly(call: Call) -> Play:
    "One question after the other."
    while True:
        yield Ask("sampling/createMessage", {"messages": [], "maxTokens": 1})


@act
def long_id(call: Call) -> Play:
    "A request whose id alone is larger than most messages."
    yield encode(
        {"jsonrpc": "2.0", "id": "x" * 100_000, "method": "sampling/createMessage", "params": {"messages": []}}
    )
    yield call.text("done")


@act
def empties(call: Call) -> Play:
    "Lines that look like messages, without end."
    while True:
        yield b"\n".join([b"{x"] * 20_000)


@act
def asks_much(call: Call) -> Play:
    "A thousand questions in one result."
    asked = {f"q{n}": {"method": "roots/list"} for n in range(1000)}
    yield call.result({"resultType": "input_required", "inputRequests": asked, "requestState": "s"})


@act
def pester(call: Call) -> Play:
    "Asks for this and that, again and again, and never answers."
    n = 0
    while True:
        n += 1
        yield encode({"jsonrpc": "2.0", "id": f"p{call.id}-{n}", "method": call.args["method"], "params": {}})
        yield Wait(0.1)


@act
def ticks(call: Call) -> Play:
    n = call.args.get("n", 3)
    for i in range(n):
        yield call.progress(i + 1, n)
        yield Wait(call.args.get("every", 0.0))
    yield call.text("ticked")


@act
def rude_ticks(call: Call) -> Play:
    "Progress that is none."
    for params in (
        {"progressToken": call.token, "progress": "much"},
        {"progressToken": call.token},
        {"progress": 1},
        {"progressToken": "somebody else's", "progress": 1},
        [1],
        None,
        {"progressToken": call.token, "progress": 5},
        {"progressToken": call.token, "progress": 1},
    ):
        yield encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    yield call.text("done")


FORM: dict[str, Any] = {
    "message": "Your name?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}


@act
def ask_doubling(call: Call) -> Play:
    "A form whose schema doubles per level."
    form = {**FORM, "requestedSchema": {**FORM["requestedSchema"], **doubling(40)}}
    if call.era == "modern" and call.params.get("inputResponses") is None:
        asked = {"who": {"method": "elicitation/create", "params": form}}
        yield call.result({"resultType": "input_required", "inputRequests": asked, "requestState": "s1"})
        return
    if call.era == "legacy":
        yield Ask("elicitation/create", form)
    yield call.text("asked")


@act
def ask(call: Call) -> Play:
    "Some progress and a question, in either era."
    if call.era == "modern":
        answers = call.params.get("inputResponses")
        if answers is None:
            if call.token is not None:
                yield call.progress(1)
            asked = {"who": {"method": "elicitation/create", "params": FORM}}
            yield call.result({"resultType": "input_required", "inputRequests": asked, "requestState": "s1"})
            return
        answer = answers["who"]
    else:
        if call.token is not None:
            yield call.progress(1)
        reply = yield Ask("elicitation/create", FORM)
        answer = reply.get("result") or {}
    if call.token is not None:
        yield call.progress(2)
    yield call.text(f"hello {answer.get('content', {}).get('name')}" if answer.get("action") == "accept" else "nobody")


@act
def ask_forever(call: Call) -> Play:
    call.memory["rounds"] = call.memory.get("rounds", 0) + 1
    asked = {"who": {"method": "elicitation/create", "params": FORM}}
    state = f"round {call.memory['rounds']}"
    yield call.result({"resultType": "input_required", "inputRequests": asked, "requestState": state})


@act
def shed_forever(call: Call) -> Play:
    "State alone: come again, and again."
    call.memory["rounds"] = call.memory.get("rounds", 0) + 1
    yield call.result({"resultType": "input_required", "requestState": f"round {call.memory['rounds']}"})


@act
def ask_nothing(call: Call) -> Play:
    yield call.result({"resultType": "input_required"})


@act
def ask_oddly(call: Call) -> Play:
    "A kind of question nobody knows."
    asked = {"who": {"method": "mind/read", "params": {}}}
    yield call.result({"resultType": "input_required", "inputRequests": asked})


@act
def ask_wrongly(call: Call) -> Play:
    yield call.result({"resultType": "input_required", "inputRequests": ["who"], "requestState": 7})


STATE = 'é "quoted" \\ / \u2028 \x00 \x7f \U0001f6a2 =+&%20\t ' * 20_000


@act
def big_state(call: Call) -> Play:
    state = call.params.get("requestState")
    if state is None:
        yield call.result({"resultType": "input_required", "requestState": STATE})
    else:
        yield call.text("the same" if state == STATE else f"another one, of {len(state)} characters")


def fickle(call: Call) -> Play:
    "Gone without an answer the first times; says how often it was called then."
    times = call.times(call.name)
    if times <= call.args.get("lose", 1):
        yield Close(4, "lost it")
    else:
        yield call.text(str(times))


ACTS["fickle"] = ACTS["fickle_safe"] = fickle


@act
def noisy(call: Call) -> Play:
    "Floods stderr before it answers."
    line = b"e" * 1023 + b"\n"
    for _ in range(call.args.get("mb", 20)):
        yield Noise(line * 1024)
    yield Noise(b"the last words\n")
    yield call.text("phew")


# --- everything but tools/call ---------------------------------------------------------------------------------------


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **SCHEMAS.get(name, {})}


def tools_page(era: str, lists: str, cursor: str | None, memory: dict[str, Any]) -> dict[str, Any]:
    page: dict[str, Any] = {"tools": [tool(name) for name in ACTS]}
    if lists == "endless":
        memory["pages"] = memory.get("pages", 0) + 1
        page = {"tools": [tool(f"t{memory['pages']}")], "nextCursor": f"c{memory['pages']}"}
    elif lists == "loop":
        page["nextCursor"] = "again"
    elif lists == "ring":
        page["nextCursor"] = {None: "a", "a": "b", "b": "c", "c": "a"}.get(cursor, "a")
    elif lists == "malformed":
        page["tools"][1:1] = [{"title": "no name"}, "not even a tool", {"name": 7, "inputSchema": {"type": "object"}}]
    elif lists == "nested":
        page["tools"] = {"not": "a list"}
    elif lists == "null":
        page["nextCursor"] = None
    elif lists == "empty_cursor" and cursor is None:
        page["nextCursor"] = ""
    elif lists == "odd_cursor":
        page["nextCursor"] = 7
    if era == "modern":
        page = {"resultType": "complete", "ttlMs": 60_000 if lists == "plain" else 0, "cacheScope": "private", **page}
    return page


INFO = {"name": "evil", "version": "6.6.6"}
CAPABILITIES = {"tools": {"listChanged": True}, "logging": {}}


def answer(era: str, message: dict[str, Any], lists: str, memory: dict[str, Any]) -> bytes | None:
    """The reply to anything but tools/call; None for a notification."""
    method, id = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if id is None:
        return None
    if method == "server/discover" and era == "modern":
        result: dict[str, Any] = {
            "resultType": "complete",
            "supportedVersions": [MODERN],
            "capabilities": CAPABILITIES,
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {P + "serverInfo": INFO},
        }
    elif method == "initialize" and era == "legacy":
        result = {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": INFO}
    elif method in ("ping", "logging/setLevel") and era == "legacy":
        result = {}
    elif method == "tools/list":
        result = tools_page(era, lists, params.get("cursor"), memory)
    else:
        return failure(id, -32601, f"method not found: {method}")
    return encode({"jsonrpc": "2.0", "id": id, "result": result})


# --- over stdio ------------------------------------------------------------------------------------------------------


class Program:
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.era = options.get("era", "modern")
        self.lists = options.get("lists", "plain")
        self.memory: dict[str, Any] = {}
        self.held: list[Play] = []
        self.waiting: dict[str, Play] = {}
        self.asked = 0
        self.mute = False

    def journal(self, **entry: Any) -> None:
        if "journal" in self.options:
            with Path(self.options["journal"]).open("ab") as file:
                file.write(encode({"pid": os.getpid(), "at": time.monotonic(), **entry}) + b"\n")

    def times(self, name: str) -> int:
        """How often this tool was called, in this life or an earlier one."""
        entries = [json.loads(line) for line in Path(self.options["journal"]).read_bytes().splitlines()]
        called = [e["got"] for e in entries if e.get("got", {}).get("method") == "tools/call"]
        return sum(message["params"]["name"] == name for message in called)

    def write(self, data: bytes) -> None:
        if not self.mute:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]

    def run(self) -> None:
        self.journal(start=True)
        if self.options.get("start") == "die":
            os.write(2, b"cannot find my configuration\n")
            sys.exit(7)
        if self.options.get("start") == "silent":
            time.sleep(600)
        if self.options.get("deaf"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.options.get("family"):
            kin = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            self.journal(kin=kin.pid)
        life = int(self.options.get("life", "-1"))
        while life and (line := sys.stdin.buffer.readline()):
            message = json.loads(line)
            self.journal(got=message)
            self.take(message)
            life -= 1
        self.journal(eof=True)
        while self.options.get("deaf"):
            time.sleep(60)

    def take(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            if (play := self.waiting.pop(str(message.get("id")), None)) is not None:
                self.play(play, message)
            return
        era = self.era
        if era == "both":
            era = "modern" if P + "protocolVersion" in ((message.get("params") or {}).get("_meta") or {}) else "legacy"
        if method == "server/discover" and self.era == "legacy":
            probe = self.options.get("probe", "answer")
            if probe == "die":
                os.write(2, b"panic: unknown method server/discover\n")
                os._exit(2)
            if probe == "silent":
                return
        if method == "ping" and self.options.get("ping") == "0":
            return
        if method == "tools/call":
            name = message["params"]["name"]
            if name not in ACTS:
                self.write(failure(message["id"], -32602, f"unknown tool: {name}") + b"\n")
                return
            self.play(ACTS[name](Call(era, message, self.memory, self.times)))
            return
        reply = answer(era, message, self.lists, self.memory)
        if reply is not None:
            self.write(reply + b"\n")

    def play(self, play: Play, sent: Any = None) -> None:
        while True:
            try:
                step = play.send(sent)
            except StopIteration:
                return
            sent = None
            if isinstance(step, bytes):
                self.write(step + b"\n")
            elif isinstance(step, Part):
                self.write(step.data)
                self.memory["partial"] = True
            elif isinstance(step, End):
                self.write(b"\n")
                self.memory["partial"] = False
            elif isinstance(step, Wait):
                time.sleep(step.seconds)
            elif isinstance(step, Noise):
                view = memoryview(step.data)
                while view:
                    view = view[os.write(2, view) :]
            elif isinstance(step, Hold):
                self.held.append(play)
                return
            elif isinstance(step, Release):
                held, self.held = self.held, []
                for one in held:
                    self.play(one)
            elif isinstance(step, Ask):
                self.asked += 1
                id = f"q{self.asked}"
                self.waiting[id] = play
                self.write(encode({"jsonrpc": "2.0", "id": id, "method": step.method, "params": step.params}) + b"\n")
                return
            elif isinstance(step, Silence):
                self.mute = bool(self.memory.get("partial"))
                return
            elif isinstance(step, Close):
                os.write(2, step.words.encode() + b"\n")
                os._exit(step.code)
            elif isinstance(step, Kill):
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    try:
        Program(dict(option.split("=", 1) for option in sys.argv[1:])).run()
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)
