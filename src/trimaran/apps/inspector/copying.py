"""A message or a call as something to paste: a curl command, a Python program, a pytest test. Secrets are masked."""

from __future__ import annotations

import pprint
import shlex
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from .requests import BadRequest, NotThere
from .wire import MessageRow, TracedExchange

if TYPE_CHECKING:
    from .calls import InspectedCall
    from .inspector import Inspector
    from .questions import PersonQuestion
    from .servers import InspectedServer, Reach


def copy_message(inspector: Inspector, row: MessageRow, form: str) -> str:
    """A message in one of the forms `curl`, `python`, `pytest` and `json`."""
    body = inspector.log.body(row.seq)
    if body is None:
        raise NotThere("the body was dropped to make room for newer ones")
    mask = inspector.mask_for(row.server)
    text = mask(body.decode("utf-8", "replace"))
    if form == "json":
        return text
    if form == "curl":
        exchange = inspector.log.exchanges.get(row.exchange or "")
        if row.direction != "out" or exchange is None:
            raise BadRequest("only a message that was sent over HTTP can be a curl command", status=422)
        if row.kind == "request" and exchange.row.status == _ACCEPTED:
            raise BadRequest(_ANSWERED_ELSEWHERE, status=422)
        return _curl_of(exchange, text)
    if row.direction != "out" or row.kind != "request":
        raise BadRequest("only a request of the client can be a program", status=422)
    message: Any = msgspec.json.decode(text)
    params = cast("dict[str, Any]", message.get("params") or {})
    params.pop("_meta", None)
    server = inspector.servers.get(row.server)
    kind, name, arguments = _of_request(str(row.method), params)
    call = inspector.calls.find(row.call)
    return _program(server.reach, kind, name, arguments, form, _answers_to_questions(inspector, server, call))


_SESSION: Final = "mcp-session-id"
_ACCEPTED: Final = 202
_ANSWERED_ELSEWHERE: Final = (
    "on HTTP+SSE the answer comes over a stream that belongs to the session, so one curl command cannot show it: copy it "
    "as Python"
)


def _curl_of(exchange: TracedExchange, body: str) -> str:
    """The request as commands of a shell. A session is masked, and ends: they open one of their own."""
    sent = exchange.request_headers
    start = f"curl -sS -N -X {exchange.row.verb} {shlex.quote(exchange.row.url)}"
    headers = [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in sent if name.lower() != _SESSION]
    if len(headers) == len(sent):
        return " \\\n  ".join([start, *headers, f"--data {shlex.quote(body)}"]) + "\n"
    version = next((value for name, value in sent if name.lower() == "mcp-protocol-version"), "2025-03-26")
    client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "curl", "version": "1"}}
    hello: dict[str, Any] = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}

    def send(message: Any, *options: str) -> str:
        text = message if isinstance(message, str) else msgspec.json.encode(message).decode()
        return " \\\n  ".join([start, *options, *headers, f"--data {shlex.quote(text)}"])

    session = '-H "Mcp-Session-Id: $session"'
    take = """tr -d '\\r' | awk 'tolower($1) == "mcp-session-id:" {print $2}'"""
    return f"session=$({send(hello, '-o /dev/null', '-D -')} | {take})\n{send(ready, session)}\n{send(body, session)}\n"


def _of_request(method: str, params: dict[str, Any]) -> tuple[str, str, Any]:
    kinds = {"tools/call": ("tool", "name"), "prompts/get": ("prompt", "name"), "resources/read": ("resource", "uri")}
    if method in kinds:
        kind, member = kinds[method]
        return kind, str(params.get(member)), params.get("arguments")
    return "request", method, params


def copy_call(inspector: Inspector, call: InspectedCall, form: str) -> str:
    """A call in one of the same forms; a test asserts the result that came."""
    row = call.row
    if form == "curl":
        for seq in row.messages:
            message = inspector.log.row(seq)
            if message is not None and message.direction == "out" and message.method == call.method:
                return copy_message(inspector, message, form)
        raise BadRequest("only a call over HTTP can be a curl command", status=422)
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(call.arguments or {})).decode() + "\n"
    server = inspector.servers.get(row.server)
    result: Any = None if call.result is None else msgspec.json.decode(call.result)
    answers = _answers_to_questions(inspector, server, call)
    return _program(server.reach, row.kind, row.name, call.arguments, form, answers, result)


def _answers_to_questions(
    inspector: Inspector, server: InspectedServer, call: InspectedCall | None
) -> tuple[list[str], str]:
    answers, samples = answers_of([] if call is None else inspector.questions.of_call(call.row.id))
    roots = server.roots if server.roots or server.are_roots_asked else None
    return answering(answers, samples, roots, as_task=call is not None and call.row.task is not None)


def answers_of(questions: list[PersonQuestion]) -> tuple[list[dict[str, Any]], list[Any]]:
    """What a person answered to the questions of a call: forms and pages, and a model's turns."""
    answered = [
        (card.kind, card.answer) for card in questions if card.answer is not None and card.answer.action != "withdrawn"
    ]
    forms = [
        {"action": answer.action, **({"content": answer.content} if answer.content else {})}
        for kind, answer in answered
        if kind in ("elicit", "url")
    ]
    return forms, [answer.content for kind, answer in answered if kind == "sampling"]


def answering(
    answers: list[dict[str, Any]], samples: list[Any], roots: list[dict[str, str]] | None, *, as_task: bool
) -> tuple[list[str], str]:
    """Functions that give the same answers, as lines of Python, and the options of `connect` that the call needs."""
    lines: list[str] = []
    options = ""
    for name, values in (("elicit", answers), ("sample", samples)):
        if values:
            lines += [f"{name}_answers = iter({python_of(values)})", "", "", f"def {name}(question):"]
            lines += [f"    return next({name}_answers)", "", ""]
            options += f", on_{name}={name}"
    options += "" if roots is None else f", roots={python_of(roots)}"
    return lines, options + (", tasks=True" if as_task else "")


def _program(
    reach: Reach,
    kind: str,
    name: str,
    arguments: Any,
    form: str,
    answering_code: tuple[list[str], str],
    result: Any = None,
) -> str:
    lines, options = answering_code
    head = "\n".join(["import asyncio", "", "from trimaran import connect", "", "", *lines])
    opened = f"connect({target_literal(reach)}{options})"
    call = call_expression(kind, name, arguments)
    if form == "python":
        return (
            f"{head}\nasync def main() -> None:\n"
            f"    async with {opened} as client:\n        result = await {call}\n        print(result)\n\n\n"
            "asyncio.run(main())\n"
        )
    if form == "pytest":
        body = "\n".join(f"            {line}" for line in assertions(kind, result))
        return (
            f"{head}\ndef test_{identifier(name)}() -> None:\n    async def main() -> None:\n"
            f"        async with {opened} as client:\n            result = await {call}\n{body}\n\n"
            "    asyncio.run(main())\n"
        )
    raise BadRequest('as must be "curl", "python", "pytest" or "json"')


def identifier(name: str) -> str:
    """A name that can stand in a Python program."""
    return (
        "".join(char if char.isascii() and char.isalnum() else "_" for char in name).strip("_").lower()[:60] or "call"
    )


def target_literal(reach: Reach) -> str:
    """The target as a literal of Python; what is masked is to be filled in."""
    target: Any = reach.target
    if isinstance(target, str):
        return repr(reach.mask(target))
    if isinstance(target, list):
        return repr([reach.mask(str(word)) for word in cast("list[Any]", target)])
    if isinstance(target, dict):
        return repr({"url": reach.mask(str(cast("dict[str, Any]", target).get("url", "")))})
    return repr(reach.text)


def python_of(value: Any) -> str:
    """A JSON value as a literal of Python."""
    return pprint.pformat(value, width=100, sort_dicts=False, compact=True)


def call_expression(kind: str, name: str, arguments: Any) -> str:
    """The call as an expression of Python, on a client named `client`."""
    rest = "" if arguments is None else f", {python_of(arguments)}"
    if kind == "tool" and (arguments is None or isinstance(arguments, dict)):
        return f"client.call_tool({name!r}{rest})"
    if kind == "tool":
        return f"client.request('tools/call', {python_of({'name': name, 'arguments': arguments})})"
    if kind == "prompt":
        return f"client.get_prompt({name!r}{rest})"
    if kind == "resource":
        return f"client.read_resource({name!r})"
    return f"client.request({name!r}{rest})"


def assertions(kind: str, result: Any) -> list[str]:
    """What a test says about a result: what came, or at least that something came."""
    members: dict[str, Any] = cast("dict[str, Any]", result) if isinstance(result, dict) else {}
    if kind == "tool" and members:
        lines = [f"assert result.is_error is {members.get('isError') is True}"]
        if "structuredContent" in members:
            lines.append(f"assert result.structured == {python_of(members['structuredContent'])}")
        else:
            texts = _texts(members.get("content"))
            lines.append(f"assert [getattr(block, 'text', None) for block in result.content] == {python_of(texts)}")
        return lines
    if kind == "resource" and members:
        texts = _texts(members.get("contents"))
        return [f"assert [getattr(part, 'text', None) for part in result.contents] == {python_of(texts)}"]
    if kind == "prompt" and members:
        return [f"assert len(result.messages) == {len(members.get('messages') or [])}"]
    if kind == "request" and members:
        return [f"assert sorted(result) == {python_of(sorted(members))}"]
    return ["assert result is not None"]


def _texts(blocks: Any) -> list[Any]:
    """The text of each block, None where it has none."""
    listed = cast("list[Any]", blocks) if isinstance(blocks, list) else []
    return [cast("dict[str, Any]", block).get("text") for block in listed if isinstance(block, dict)]
