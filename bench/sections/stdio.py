"""stdio: from spawning the server to its first tool result, over raw pipes, legacy handshake included."""

import json
import select
import subprocess
import time

import contenders as who
import messages
from plan import Plan, rounds, unavailable
from procs import UnavailableError
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
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=contender.environment()
    )
    try:
        process.stdin.write(messages.line(messages.initialize(1)))
        process.stdin.flush()
        _read_answer(process, 1)
        process.stdin.write(messages.line(messages.initialized()) + messages.line(messages.legacy_call(2, "add")))
        process.stdin.flush()
        answer = _read_answer(process, 2)
        took = time.perf_counter() - started
        if messages.ANSWER.decode() not in json.dumps(answer):
            raise UnavailableError(f"unexpected result {answer}")
        return took
    finally:
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        process.stdout.close()
        process.stderr.close()


def _read_answer(process: subprocess.Popen[bytes], request_id: int) -> dict:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        # One answer per request and nothing else pending: readline cannot leave a second line in its buffer unseen
        # for long, and select guards the first byte.
        if not select.select([process.stdout], [], [], 0.5)[0]:
            continue
        text = process.stdout.readline()
        if not text:
            last = process.stderr.read().decode(errors="replace").strip().splitlines()
            raise UnavailableError(f"the server closed stdout: {last[-1][:200] if last else 'no message'}")
        message = json.loads(text)
        if message.get("id") == request_id:
            return message
    raise UnavailableError(f"no answer to request {request_id} within {PATIENCE} s")
