"""A session on file: recorded from a real server once, played back without it.

A cassette is JSON Lines, made to be read in a diff. The first line is the header, each other line one message:

    {"cassette": 1, "target": "http://127.0.0.1:9090/mcp", "date": "2026-11-15"}
    {"way": "out", "message": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}
    {"way": "in", "message": {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}}

A message that is not JSON stands as text under "raw". Secrets never reach the file: values under names such as `authorization`,
`password` or `api_key`, and texts that begin with "Bearer " or "Basic ", are replaced.

On playing back, a message of the client's is looked for by method and params. Values that differ from run to run do not count:
ids, progress tokens, the client's name and version, trace context, and what was redacted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TextIO, cast, final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from trimaran.client.link import Channel, ExitReport, Owner
from trimaran.errors import ConfigError, ConnectFailed, ConnectionLost, Error
from trimaran.files import read_file

from .transcript import Transcript, diff, parse, pretty

_VERSION: Final = 1
_LARGEST: Final = 256 * 1024 * 1024  # bytes; a day of recorded calls
_REDACTED: Final = "[redacted]"
_SECRET_NAMES: Final = frozenset(("auth", "bearer", "jwt", "pin", "passphrase", "pwd", "token", "sessionid", "sig"))
_SECRET_ENDINGS: Final = (
    "apikey",
    "accesskey",
    "accesstoken",
    "authorization",
    "authtoken",
    "cookie",
    "credential",
    "credentials",
    "idtoken",
    "passwd",
    "password",
    "privatekey",
    "refreshtoken",
    "secret",
    "secretkey",
    "signature",
)
_SECRET_TEXT: Final = re.compile(r"\s*(bearer|basic)\s+\S", re.IGNORECASE)

_META: Final = "io.modelcontextprotocol/"
_SUBSCRIPTION: Final = f"{_META}subscriptionId"
# Keys of `_meta` that name the client or one of its calls, and do not change the meaning.
_VOLATILE: Final = ("progressToken", f"{_META}clientInfo", "traceparent", "tracestate", "baggage")


# Recording


def record(
    path: str | Path,
    *,
    target: object = "",
    date: str | None = None,
    redact: Iterable[str] = (),
) -> Recorder:
    """Write a session to a file: `with record("session.jsonl") as tap: connect(url, tap=tap)`.

    Args:
        path: The cassette; an old one is replaced. Its folder is created.
        target: The target, for the header: as given to `connect`, or a text. Folders of a command are left out.
        date: When, for the header; nothing is written if left out, so that a new recording differs in substance only.
        redact: More names whose values are secret.
    """
    return Recorder(Path(path), target=target, date=date, redact=redact)


@final
class Recorder:
    """An open cassette. Call it with each message, which is what `connect(tap=...)` does, or put it around a channel."""

    def __init__(self, path: Path, *, target: object, date: str | None, redact: Iterable[str]) -> None:
        self._mask = MessageMask(redact)
        self._path = path
        self._file: TextIO | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise self._unwritten(error) from None
        header: dict[str, Any] = {"cassette": _VERSION, "target": self._mask.target(target)}
        self._write({**header, "date": date} if date else header)

    def __call__(self, direction: str, message: bytes) -> None:
        """Note a message: "out" to the server, "in" from it. After `close`, nothing."""
        value = parse(message)
        if isinstance(value, bytes):
            self._write({"way": direction, "raw": value.decode("utf-8", "backslashreplace")})
        else:
            self._write({"way": direction, "message": self._mask(value)})

    def around(self, channel: Channel) -> Channel:
        """The channel, recorded: for what speaks over a channel without being a client."""
        return _Tapped(channel, self)

    def close(self) -> None:
        """Finish the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:
            file, self._file = self._file, None
            with contextlib.suppress(OSError):  # it still has what could not be written
                file.close()
            raise self._unwritten(error) from None

    def _unwritten(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"the cassette {self._path} cannot be written ({error.strerror or error}): make room, or choose another path"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@final
class _Tapped:
    """A channel whose every message a tap sees."""

    def __init__(self, inner: Channel, tap: Callable[[str, bytes], None]) -> None:
        self._inner = inner
        self._tap = tap
        self.describe = inner.describe
        self.postmortem = inner.postmortem
        self.close = inner.close

    async def open(self, owner: Owner) -> None:
        await self._inner.open(_Overheard(owner, self._tap))

    async def send(self, message: bytes) -> None:
        self._tap("out", message)
        await self._inner.send(message)


@final
class _Overheard:
    def __init__(self, owner: Owner, tap: Callable[[str, bytes], None]) -> None:
        self._owner = owner
        self._tap = tap
        self.lost = owner.lost
        self.odd = owner.odd

    def receive(self, message: bytes) -> None:
        self._tap("in", message)
        self._owner.receive(message)

    def too_long(self, head: bytes, tail: bytes, limit: int) -> bool:
        skip: Callable[[bytes, bytes, int], bool] | None = getattr(self._owner, "too_long", None)
        return skip is not None and skip(head, tail, limit)


@final
class MessageMask:
    """Takes secrets out of messages."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._more = frozenset(_bare(name) for name in more)

    def __call__(self, value: Any, *, is_secret: bool = False) -> Any:
        if isinstance(value, dict):
            # A schema speaks of a password by way of an object; secrets themselves are texts.
            members = cast("dict[str, Any]", value)
            return {key: self(part, is_secret=self._hides(key)) for key, part in members.items()}
        if isinstance(value, list):
            return [self(part, is_secret=is_secret) for part in cast("list[Any]", value)]
        if isinstance(value, str) and (is_secret or _SECRET_TEXT.match(value)):
            return _REDACTED
        return value

    def _hides(self, name: str) -> bool:
        bare = _bare(name)
        return bare in _SECRET_NAMES or bare in self._more or bare.endswith(_SECRET_ENDINGS)

    def target(self, target: Any) -> str:
        """A target in a line that may be shown to anybody."""
        if isinstance(target, Mapping):
            config = cast("Mapping[str, Any]", target)
            target = config["url"] if "url" in config else [config.get("command", "a server"), *config.get("args", ())]
        if isinstance(target, str):
            return self._url(target) if "://" in target else target
        if isinstance(target, (list, tuple)):
            return self._command([str(word) for word in cast("list[object]", target)])
        if isinstance(target, Channel):
            return target.describe()
        info = getattr(target, "info", None)
        return str(getattr(info, "name", "")) or type(target).__name__

    def _command(self, words: list[str]) -> str:
        masked: list[str] = []
        for before, word in zip(["", *words], words, strict=False):
            name, equals, _ = word.partition("=")
            if before.startswith("-") and "=" not in before and self._hides(before):
                word = _REDACTED
            elif equals and self._hides(name):
                word = f"{name}={_REDACTED}"
            elif "://" in word:
                word = self._url(word)
            elif os.path.isabs(word):
                word = os.path.basename(word)
            masked.append(word)
        return shlex.join(masked)

    def _url(self, text: str) -> str:
        parts = urlsplit(text)
        query = [(key, _REDACTED if self._hides(key) else value) for key, value in parse_qsl(parts.query)]
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=host, query=urlencode(query, safe="[]")))


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


# Playing back


def replay(path: str | Path, *, order: Literal["strict", "lenient"] = "strict", redact: Iterable[str] = ()) -> Replayer:
    """A channel that plays the server's part of a cassette: `connect(replay("session.jsonl"))`.

    Args:
        path: The cassette.
        order: "strict": the client sends what was recorded, in that order. "lenient": requests may come in any order,
            each once per recording; notifications of the client's are not looked at.
        redact: The names given when it was recorded.

    Raises:
        ConfigError: the file is not there, or not a cassette this version reads.
    """
    return Replayer(Path(path), order=order, redact=redact)


class _Entry(Struct):
    line: int
    way: str
    message: dict[str, Any]
    is_played: bool = False


@final
class Replayer:
    """A cassette as a channel. A message that differs ends the connection with the reason; `verify` raises it too."""

    def __init__(self, path: Path, *, order: Literal["strict", "lenient"], redact: Iterable[str]) -> None:
        if order not in ("strict", "lenient"):
            raise ConfigError(f'order= is "strict" or "lenient", not {order!r}')
        self._path = path
        self._mask = MessageMask(redact)
        self._is_strict = order == "strict"
        self.header: dict[str, Any]
        self.header, self._entries = _read(path)
        """The first line of the file."""
        self._ids: dict[Any, Any] = {}
        self._tokens: dict[Any, Any] = {}
        self._owner: Owner | None = None
        self._ended: str | None = "it was not opened"
        self._failure: str | None = None
        self.transcript: Transcript = Transcript()
        """The messages of this session, from both sides."""

    async def open(self, owner: Owner) -> None:
        if self._failure is not None or self._owner is not None:
            raise ConnectFailed(self._failure or f"{self.describe()} is open already")
        self._owner = owner
        self._ended = None
        self._play_from(None)

    async def send(self, message: bytes) -> None:
        if self._ended is not None:
            raise ConnectionLost(f"the connection has ended: {self._ended}", cause_text=self._ended)
        self.transcript.add("client", message)
        value = parse(message)
        sent: Any = self._mask(value) if isinstance(value, (dict, list)) else {"raw": repr(message)}
        for each in cast("list[Any]", sent) if isinstance(sent, list) else [sent]:
            self._take(_mapping(each) or {"raw": str(each)})

    async def close(self) -> None:
        self._owner = None
        self._ended = self._ended or "this end was closed"

    def describe(self) -> str:
        return f"the cassette {self._path.name}"

    def postmortem(self) -> ExitReport:
        return ExitReport()

    def verify(self, *, complete: bool = True) -> None:
        """Raise AssertionError if a message differed, or, where it must be complete, a request was never sent."""
        if self._failure is not None:
            raise AssertionError(self._failure)
        for entry in self._entries if complete else ():
            if entry.way == "out" and not entry.is_played and _is_request(entry.message):
                raise AssertionError(
                    f"{self._path.name} line {entry.line}: {_title(entry.message)} was recorded, "
                    "and the client never sent it"
                )

    # Matching

    def _take(self, sent: dict[str, Any]) -> None:
        if self._owner is None:
            return
        waiting = [entry for entry in self._entries if entry.way == "out" and not entry.is_played]
        essence = _essence(sent)
        if self._is_strict:
            match = waiting[0] if waiting and _essence(waiting[0].message) == essence else None
        else:
            match = next((entry for entry in waiting if _essence(entry.message) == essence), None)
        if match is not None:
            match.is_played = True
            self._learn(match.message, sent)
            self._play_from(match)
        elif not self._improvise(sent, waiting) and (self._is_strict or _is_request(sent)):
            self._fail(self._difference(sent, waiting))

    def _learn(self, recorded: dict[str, Any], sent: dict[str, Any]) -> None:
        """Remember which id and which token of today stand for those on file."""
        if _is_request(sent):
            self._ids[_key(recorded.get("id"))] = sent["id"]
            before, now = _token(recorded), _token(sent)
            if now is not None:
                self._tokens[_key(before)] = now

    def _improvise(self, sent: dict[str, Any], waiting: list[_Entry]) -> bool:
        """How a client finds the era depends on the transport and on its memory of the target.

        So a request for the era that is not recorded is answered from the recorded ones, and a recorded one may be missing.
        """
        if sent.get("method") == "server/discover":
            self._say({"jsonrpc": "2.0", "id": sent.get("id"), **self._discovery()})
            return True
        if self._is_strict and waiting and waiting[0].message.get("method") == "server/discover":
            skipped = waiting[0]
            skipped.is_played = True
            for entry in self._entries:
                if entry.way == "in" and entry.message.get("id") == skipped.message.get("id"):
                    entry.is_played = True
                    break
            self._take(sent)
            return True
        return False

    def _discovery(self) -> dict[str, Any]:
        """The answer to a `server/discover` that was not recorded, or not where it now comes."""
        messages = [entry.message for entry in self._entries]
        discoveries = {_key(m.get("id")) for m in messages if m.get("method") == "server/discover"}
        for message in messages:
            if "result" in message and _key(message.get("id")) in discoveries:
                return {"result": message["result"]}
        requests = [m for e, m in zip(self._entries, messages, strict=True) if e.way == "out" and _is_request(m)]
        if any(m["method"] == "initialize" for m in requests):
            return {"error": {"code": -32601, "message": "Method not found"}}
        versions = [v for m in requests if (v := _meta(m).get(f"{_META}protocolVersion"))]
        kinds: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
        return {
            "result": {
                "resultType": "complete",
                "supportedVersions": versions[:1],
                "capabilities": kinds,
                "ttlMs": 0,
                "cacheScope": "private",
            }
        }

    def _play_from(self, request: _Entry | None) -> None:
        """Send the server's messages that followed this one; in strict order, up to the client's next one."""
        start = self._entries.index(request) + 1 if request is not None else 0
        for number, entry in enumerate(self._entries[start:], start):
            if entry.way == "out":
                if self._is_strict and not entry.is_played:
                    return
            elif not entry.is_played and (self._is_strict or self._belongs(number) is request):
                entry.is_played = True
                self._say(self._renumbered(entry.message))

    def _belongs(self, number: int) -> _Entry | None:
        """The message of the client's that an inbound one answers, or else follows."""
        message = self._entries[number].message
        asker = message.get("id") if "method" not in message else _meta(message).get(_SUBSCRIPTION)
        token = _params(message).get("progressToken")
        last: _Entry | None = None
        for entry in self._entries[:number]:
            if entry.way != "out":
                continue
            last = entry
            if _is_request(entry.message):
                if asker is not None and _key(entry.message["id"]) == _key(asker):
                    return entry
                if token is not None and _key(_token(entry.message)) == _key(token):
                    return entry
        return last

    def _renumbered(self, message: dict[str, Any]) -> dict[str, Any]:
        today = dict(message)
        if "method" not in today and "id" in today:
            today["id"] = self._ids.get(_key(today["id"]), today["id"])
        for part in ("params", "result"):
            body = today.get(part)
            if isinstance(body, dict):
                today[part] = self._renumbered_body(cast("dict[str, Any]", body))
        return today

    def _renumbered_body(self, body: dict[str, Any]) -> dict[str, Any]:
        body = dict(body)
        if "progressToken" in body:
            body["progressToken"] = self._tokens.get(_key(body["progressToken"]), body["progressToken"])
        meta: Any = body.get("_meta")
        if isinstance(meta, dict) and _SUBSCRIPTION in meta:
            fields = cast("dict[str, Any]", meta)
            body["_meta"] = {**fields, _SUBSCRIPTION: self._ids.get(_key(fields[_SUBSCRIPTION]), fields[_SUBSCRIPTION])}
        return body

    def _say(self, message: dict[str, Any]) -> None:
        data = str(message["raw"]).encode() if message.keys() == {"raw"} else msgspec.json.encode(message)
        self.transcript.add("server", data)
        # In a later turn of the loop: a sender does not expect the answer before `send` returns.
        asyncio.get_running_loop().call_soon(self._hand_over, data)

    def _hand_over(self, data: bytes) -> None:
        if self._owner is not None:
            self._owner.receive(data)

    # Differing

    def _difference(self, sent: dict[str, Any], waiting: list[_Entry]) -> str:
        if not waiting:
            return f"{self._path.name}: the cassette is at its end, and the client sent {_title(sent)}: {pretty(sent)}"
        nearest = waiting[0]
        if not self._is_strict:
            same = [entry for entry in waiting if entry.message.get("method") == sent.get("method")]
            if not same:
                left = ", ".join(_title(entry.message) for entry in waiting if _is_request(entry.message))
                return f"{self._path.name}: the client sent {_title(sent)}; left on the cassette are: {left or 'no requests'}"
            nearest = same[0]
        message = f"{self._path.name} line {nearest.line}: recorded was {_title(nearest.message)}, the client sent {_title(sent)}"
        return f"{message}\n{diff(_essence(nearest.message), _essence(sent), names=('recorded', 'sent'))}"

    def _fail(self, why: str) -> None:
        self._failure = f"{why}\n(record the session again if the change is meant)"
        self._ended = self._failure
        owner, self._owner = self._owner, None
        if owner is not None:
            asyncio.get_running_loop().call_soon(_tell_loss, owner, ConnectionLost(self._failure))


def _tell_loss(owner: Owner, error: Error) -> None:
    owner.lost(error)


def _read(path: Path) -> tuple[dict[str, Any], list[_Entry]]:
    try:
        lines = read_file(path, _LARGEST).decode().splitlines()
    except FileNotFoundError:
        raise ConfigError(f"there is no cassette at {path}; record one first") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the cassette {path} cannot be read: {error}") from None
    header = parse(lines[0].encode()) if lines else None
    if not isinstance(header, dict) or "cassette" not in header:
        raise ConfigError(f'{path} is not a cassette: its first line should be {{"cassette": {_VERSION}, ...}}')
    known = cast("dict[str, Any]", header)
    if known["cassette"] != _VERSION:
        raise ConfigError(f"{path} is a cassette of format {known['cassette']}; this version reads {_VERSION}")
    entries: list[_Entry] = []
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            entries += _entries(path, number, line)
    return known, entries


def _entries(path: Path, number: int, line: str) -> list[_Entry]:
    value = parse(line.encode())
    if not isinstance(value, dict) or value.get("way") not in ("in", "out") or not {"message", "raw"} & value.keys():  # pyright: ignore[reportUnknownMemberType]
        raise ConfigError(f'{path} line {number}: expected {{"way": "in" or "out", "message": ...}}')
    fields = cast("dict[str, Any]", value)
    message: Any = fields.get("message", {"raw": fields.get("raw")})
    # A batch plays as its parts.
    parts = cast("list[Any]", message) if isinstance(message, list) else [message]
    return [_Entry(number, fields["way"], _mapping(part) or {"raw": str(part)}) for part in parts]


def _is_request(message: dict[str, Any]) -> bool:
    return "method" in message and message.get("id") is not None


def _title(message: dict[str, Any]) -> str:
    """The message in a few words."""
    if "method" not in message:
        return f"a reply to {message.get('id')!r}" if "id" in message else "an invalid message"
    params = _params(message)
    subject = params.get("name") or params.get("uri")
    return f"{message['method']} ({subject})" if isinstance(subject, str) else str(message["method"])


def _params(message: dict[str, Any]) -> dict[str, Any]:
    return _mapping(message.get("params"))


def _meta(message: dict[str, Any]) -> dict[str, Any]:
    return _mapping(_params(message).get("_meta"))


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _token(message: dict[str, Any]) -> Any:
    return _meta(message).get("progressToken")


def _key(id: Any) -> str:
    """An id as the key of a mapping: 1 and "1" are two."""
    return json.dumps(id, sort_keys=True)


def _essence(message: dict[str, Any]) -> dict[str, Any]:
    """The content of a message, without the parts that differ from run to run."""
    if "method" not in message:
        return {key: value for key, value in message.items() if key != "jsonrpc"}
    method = message["method"]
    params = dict(_params(message))
    meta = {key: value for key, value in _meta(message).items() if key not in _VOLATILE}
    params.pop("_meta", None)
    if meta:
        params["_meta"] = meta
    if method == "initialize":
        params.pop("clientInfo", None)
    elif method == "notifications/cancelled":
        params = {}
    return {"method": method, "params": params} if params else {"method": method}
