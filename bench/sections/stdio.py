"""stdio: from spawning the server to its first tool result, over raw pipes, legacy handshake included."""

import json
import time

import contenders as who
import messages
from plan import Plan, rounds, unavailable
from procs import Conversation, UnavailableError
from report import Section, compare

PATIENCE = 30


def run(plan: Plan) -> Section:
    section = Section("stdio", "stdio: spawn to first tool result")
    measures = {}
    for contender in (who.OURS, who.SDK, who.FASTMCP):
        try:
            spawn_to_result(contender)  # warms the page cache and the .pyc files
            measures[contender.key] = (contender.label, lambda c=contender: spawn_to_result(c) * 1e3)
        except Exception as error:
            measures[contender.key] = (contender.label, unavailable(str(error) or type(error).__name__))
    series = rounds(plan.spawns, measures)
    section.series = dict(series)
    section.rows += [
        compare("spawn to first tool result", series["sdk"], series["ours"], unit="ms", at_most=0.25),
        compare("spawn to first tool result", series["fastmcp"], series["ours"], unit="ms"),
    ]
    return section


def spawn_to_result(contender: who.Contender) -> float:
    command = contender.command("--stdio")
    started = time.perf_counter()
    with Conversation(command, env=contender.environment()) as server:
        server.send(messages.line(messages.initialize(1)))
        _receive_answer(server, 1)
        server.send(messages.line(messages.initialized()) + messages.line(messages.legacy_call(2, "add")))
        answer = _receive_answer(server, 2)
        took = time.perf_counter() - started
    if messages.ANSWER not in answer:
        raise UnavailableError(f"unexpected result {answer!r}")
    return took


def _receive_answer(server: Conversation, request_id: int) -> bytes:
    deadline = time.monotonic() + PATIENCE
    while (left := deadline - time.monotonic()) > 0:
        line = server.receive(left)
        if json.loads(line).get("id") == request_id:
            return line
    raise UnavailableError(f"no answer to request {request_id} within {PATIENCE} s")
