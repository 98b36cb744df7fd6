"""Saved calls: what to call, and what to expect of it. On the page, and headless in CI (`trimaran inspect --run calls.toml`).

    [server.boats]
    target = "boat.py"

    [[call]]
    title = "adds"
    server = "boats"
    tool = "add"
    arguments = { a = 1, b = 2 }
    expect = [{ what = "ok" }, { what = "text", equals = "3" }, { what = "faster", ms = 2000 }]

`resource`, `prompt` and `request` stand in place of `tool`. `json` in place of `arguments` takes them as JSON text, where TOML
has no word for a value (null). Without `expect` the call must succeed.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, final
from xml.sax.saxutils import escape, quoteattr

import msgspec
from msgspec import Struct, field, structs

from trimaran.errors import ConfigError, DeclarationError, Error
from trimaran.host.config.tomltext import key_text, read_toml
from trimaran.schema.validate import Validator

from .calls import InspectedCall, NewCall
from .events import now_ms
from .pointers import value_at
from .requests import BadRequest

if TYPE_CHECKING:
    from .inspector import Inspector

_KINDS: Final = ("tool", "resource", "prompt", "request")
_MOST: Final = 5_000
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ExpectationKind: TypeAlias = Literal["ok", "error", "text", "value", "schema", "faster"]


class Expectation(Struct, kw_only=True, omit_defaults=True):
    """What must be true of an outcome."""

    kind: ExpectationKind = field(name="what")
    contains: str | None = None
    equals: Any = msgspec.UNSET
    matches: str | None = None
    path: str | None = None
    ms: float | None = None


class CallToRepeat(Struct, kw_only=True, rename="camel"):
    """A call to repeat."""

    id: str
    title: str
    server: str
    kind: str
    name: str
    arguments: Any = None
    expect: list[Expectation] = []


class RunResult(Struct, kw_only=True, rename="camel"):
    """How a saved call went."""

    id: str
    title: str
    passed: bool
    ms: float
    failures: list[str]
    call: str
    server: str


class CallsFile(Struct, kw_only=True):
    """A calls.toml: servers by name, and calls."""

    servers: dict[str, dict[str, Any]]
    calls: list[CallToRepeat]


def read_calls(text: str, file: str) -> CallsFile:
    """The servers and calls of a calls.toml.

    Raises:
        ConfigError: it is no TOML, or an entry does not fit; names the entry.
    """
    table = read_toml(text, file)
    unknown = table.keys() - {"server", "call"}
    if unknown:
        raise ConfigError(f"{file}: {sorted(unknown)[0]!r} is unknown; it has [server.NAME] and [[call]]")
    servers: Any = table.get("server", {})
    entries: Any = table.get("call", [])
    if not isinstance(entries, list) or not isinstance(servers, dict):
        raise ConfigError(f"{file}: write each call as [[call]] and each server as [server.NAME]")
    calls = [_read_call(entry, number, file) for number, entry in enumerate(cast("list[Any]", entries), 1)]
    return CallsFile(servers=cast("dict[str, dict[str, Any]]", servers), calls=calls)


def _read_call(entry: Any, number: int, file: str) -> CallToRepeat:
    where = f"{file}: call {number}"
    fields = dict(cast("dict[str, Any]", entry)) if isinstance(entry, dict) else {}
    kinds = [kind for kind in _KINDS if kind in fields]
    if len(kinds) != 1:
        raise ConfigError(f"{where}: name one of tool, resource, prompt and request")
    kind, name = kinds[0], fields.pop(kinds[0])
    if "json" in fields:
        try:
            fields["arguments"] = msgspec.json.decode(str(fields.pop("json")))
        except msgspec.DecodeError as error:
            raise ConfigError(f"{where}: json is not JSON: {error}") from None
    fields.setdefault("id", f"s{number}")
    fields.setdefault("title", f"{kind} {name}")
    fields.setdefault("server", "")
    unknown = fields.keys() - set(CallToRepeat.__struct_fields__)
    if unknown:
        raise ConfigError(f"{where}: {sorted(unknown)[0]!r} is unknown")
    try:
        return msgspec.convert({**fields, "kind": kind, "name": name}, CallToRepeat)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None


def write_calls(calls: Sequence[CallToRepeat], targets: Mapping[str, str]) -> str:
    """A calls.toml; `targets` are those of the servers, by name."""
    parts = [f"[server.{key_text(name)}]\ntarget = {_toml(target)}\n" for name, target in targets.items()]
    for call in calls:
        lines = [
            "[[call]]",
            f"title = {_toml(call.title)}",
            f"server = {_toml(call.server)}",
            f"{call.kind} = {_toml(call.name)}",
        ]
        arguments: Any = call.arguments
        if arguments is not None:
            has_toml = _is_toml(arguments) and isinstance(arguments, dict)
            json_text = msgspec.json.encode(arguments).decode()
            lines.append(f"arguments = {_toml(cast('Any', arguments))}" if has_toml else f"json = {_toml(json_text)}")
        if call.expect:
            expected: list[Any] = msgspec.to_builtins(call.expect)
            lines.append(f"expect = [{', '.join(_toml(entry) for entry in expected)}]")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _is_toml(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_toml, cast("dict[str, Any]", value).values()))
    if isinstance(value, list):
        return all(map(_is_toml, cast("list[Any]", value)))
    return value is not None


def _toml(value: Any) -> str:
    """A value as TOML writes it; text, numbers and lists are written as in JSON."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return "{ " + ", ".join(f"{key_text(key)} = {_toml(part)}" for key, part in members) + " }" if members else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(part) for part in cast('list[Any]', value))}]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


@final
class SavedCalls:
    """The saved calls of this run."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self.calls: list[CallToRepeat] = []

    def replace(self, calls: list[CallToRepeat]) -> None:
        if len(calls) > _MOST or len({call.id for call in calls}) != len(calls):
            raise BadRequest(f"give at most {_MOST} calls, each with an id of its own")
        self.calls = calls
        self._inspector.events.emit("saved", key="all")

    def merge(self, calls: Sequence[CallToRepeat]) -> int:
        """Add those that are not here yet, under ids of their own; how many were added."""
        here = [structs.replace(call, id="") for call in self.calls]
        new = [call for call in calls if structs.replace(call, id="") not in here]
        used_ids = {call.id for call in self.calls}
        free = (id for number in itertools.count(1) if (id := f"s{number}") not in used_ids)
        self.replace([*self.calls, *(structs.replace(call, id=id) for call, id in zip(new, free, strict=False))])
        return len(new)

    async def run(self, ids: Sequence[str] | None = None) -> list[RunResult]:
        """Make the calls one after the other, and compare."""
        return [await self.run_call(call) for call in self.calls if ids is None or call.id in ids]

    async def run_call(self, saved: CallToRepeat) -> RunResult:
        """Make one call, and compare. What keeps it from being made is a failure too."""
        began = time.perf_counter()
        call: InspectedCall | None = None
        try:
            new = NewCall(
                server=self._server_id(saved.server),
                kind=cast("Any", saved.kind),
                name=saved.name,
                arguments=saved.arguments,
                send_anyway=True,
                by="run",
            )
            call = await self._inspector.calls.run(new)
            failures = judge(call, saved.expect)
        except Error as error:
            failures = [str(error)]
        return RunResult(
            id=saved.id,
            title=saved.title,
            passed=not failures,
            ms=round((time.perf_counter() - began) * 1000, 1),
            failures=failures,
            call="" if call is None else call.row.id,
            server=saved.server,
        )

    def _server_id(self, name: str) -> str:
        servers = [server for server in self._inspector.servers if name in ("", server.id, server.name)]
        if not servers:
            raise BadRequest(f"there is no server {name!r}: give it in [server.{name}], or on the command line")
        return servers[0].id


def judge(call: InspectedCall, expectations: Sequence[Expectation]) -> list[str]:
    """Where an outcome differs from what was expected; a failed call must be expected to fail."""
    result: Any = None if call.result is None else msgspec.json.decode(call.result)
    failures = [text for expectation in expectations if (text := _difference(call, result, expectation))]
    if call.row.state != "ok" and not any(expectation.kind == "error" for expectation in expectations):
        message = call.row.failure.message if call.row.failure is not None else call.row.state
        blame = call.row.failure.blame if call.row.failure is not None else "nobody"
        failures.insert(0, f"the call ended as {call.row.state} ({blame}): {message}")
    return list(dict.fromkeys(failures))


def _difference(call: InspectedCall, result: Any, expected: Expectation) -> str | None:
    state = call.row.state
    if expected.kind == "ok":
        return None  # `judge` says why it is not
    if expected.kind == "error":
        return None if state != "ok" else "the call succeeded, and was expected to fail"
    if expected.kind == "faster":
        took = call.row.ms or 0.0
        return (
            None if expected.ms is None or took <= expected.ms else f"it took {took:.0f} ms, expected {expected.ms:g}"
        )
    if expected.kind == "schema":
        violations: list[Any] = (call.structured_check or {}).get("violations") or []
        return None if not violations else f"the result breaks its schema: {violations[0].message}"
    if expected.kind == "value":
        return _differs_at(result, expected)
    return _text_differs(_text_of(result), expected)


def _differs_at(result: Any, expected: Expectation) -> str | None:
    try:
        value = value_at(result, expected.path or "")
    except LookupError:
        return f"the result has nothing at {expected.path}"
    if expected.equals is msgspec.UNSET or value == expected.equals:
        return None
    return f"at {expected.path}: {_short(value)}, expected {_short(expected.equals)}"


def _text_differs(text: str, expected: Expectation) -> str | None:
    if expected.contains is not None and expected.contains not in text:
        return f"the text {_short(text)} does not contain {_short(expected.contains)}"
    if expected.equals is not msgspec.UNSET and text != expected.equals:
        return f"the text is {_short(text)}, expected {_short(expected.equals)}"
    if expected.matches is not None:
        try:
            # Not by `re`, which an expression of somebody else's file could keep busy for ever.
            if not Validator({"pattern": expected.matches}).is_valid(text):
                return f"the text {_short(text)} does not match {expected.matches!r}"
        except DeclarationError as error:
            return f"{expected.matches!r} is not a regular expression: {error}"
    return None


def _text_of(result: Any) -> str:
    members = cast("dict[str, Any]", result) if isinstance(result, dict) else {}
    blocks: list[Any] = members.get("content") or members.get("contents") or members.get("messages") or []
    texts = [_text_in(block) for block in blocks]
    return "\n".join(text for text in texts if text is not None)


def _text_in(block: Any) -> str | None:
    """The text of a content block, of a resource's content, or of a message."""
    if not isinstance(block, dict):
        return None
    members = cast("dict[str, Any]", block)
    text = members.get("text")
    return text if isinstance(text, str) else _text_in(members.get("content"))


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."


def junit_of(results: Sequence[RunResult], name: str) -> str:
    """The results as JUnit XML, which every CI reads."""
    failed = sum(not result.passed for result in results)
    seconds = sum(result.ms for result in results) / 1000
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={_attribute(name)} tests="{len(results)}" failures="{failed}" errors="0" time="{seconds:.3f}" '
        f'timestamp="{time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ms() / 1000))}">',
    ]
    for result in results:
        head = f'  <testcase name={_attribute(result.title)} classname={_attribute(result.server or name)} time="{result.ms / 1000:.3f}"'
        if result.passed:
            lines.append(f"{head}/>")
        else:
            text = escape(_NOT_XML.sub("?", "\n".join(result.failures)))
            lines.append(
                f"{head}>\n    <failure message={_attribute(result.failures[0])}>{text}</failure>\n  </testcase>"
            )
    return "\n".join([*lines, "</testsuite>\n"])


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("?", text))
