"""Targets that are not what they should be: two sentences on stderr, the right exit code, no traceback, nothing left."""

from __future__ import annotations

import asyncio
import http.server
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trimaran.apps.cli.output import Screen
from trimaran.apps.cli.run import run
from trimaran.apps.cli.target import Settings, Target
from trimaran.errors import Error

from .harness import HARBOUR, run_cli

Capsys = pytest.CaptureFixture[str]
pytestmark = pytest.mark.slow


@contextmanager
def web(respond: Any) -> Iterator[str]:
    """A web server in a thread that answers everything with `respond(handler)`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            respond(self)

        def do_GET(self) -> None:
            respond(self)

        do_DELETE = do_OPTIONS = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(status: int, body: bytes = b"", **headers: str) -> Any:
    """A way to respond: always the same."""

    def respond(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return respond


def script(directory: Path, text: str) -> str:
    path = directory / "broken.py"
    path.write_text(text)
    return str(path)


def test_a_script_that_dies_shows_its_last_words(capsys: Capsys, tmp_path: Path) -> None:
    """P34, P35."""
    path = script(tmp_path, "import sys\nprint('no config file', file=sys.stderr)\nsys.exit(3)\n")
    done = run_cli(capsys, "list", path)
    assert (done.code, done.out) == (3, "")
    assert "no config file" in done.err
    assert "3" in done.err
    assert f"trimaran doctor {path}" in done.err


def test_a_file_that_never_runs_its_server_is_served(capsys: Capsys, boat: Path) -> None:
    assert run_cli(capsys, "list", str(boat)).out.startswith("boat 1.0.0")
    assert run_cli(capsys, "call", f"{boat}:server", "add", "a=1", "b=2").out == "3\n"


@pytest.mark.parametrize(
    "ending",
    [
        'server.run("http", port=1)',
        "asyncio.run(server.serve('http'))",
        'server.run("http") if X else server.run("http")',
        "import uvicorn\n    uvicorn.run(server.asgi())",
    ],
)
def test_a_file_whose_server_runs_on_http_is_served_on_stdio(capsys: Capsys, boat: Path, ending: str) -> None:
    """As a script it would never read its stdin."""
    boat.write_text(f"{boat.read_text()}\n\nif __name__ == '__main__':\n    import asyncio\n\n    {ending}\n")
    assert run_cli(capsys, "list", str(boat)).out.startswith("boat 1.0.0")


def test_a_file_that_chooses_its_transport_as_it_runs_is_run(capsys: Capsys, boat: Path) -> None:
    ending = "chosen = server.__class__('chosen')\n    chosen.run('http') if sys.argv[1:] else chosen.run()"
    boat.write_text(f"{boat.read_text()}\n\nif __name__ == '__main__':\n    import sys\n\n    {ending}\n")
    assert run_cli(capsys, "list", str(boat)).out.startswith("chosen ")


def test_another_librarys_script_that_never_runs_its_server_is_told_how(capsys: Capsys, tmp_path: Path) -> None:
    done = run_cli(capsys, "list", script(tmp_path, "server = object()\n"))
    assert done.code == 3
    assert "with server.run() at its end" in done.err


def test_a_module_of_a_package_is_told_how_to_run_it(capsys: Capsys, tmp_path: Path) -> None:
    done = run_cli(
        capsys,
        "list",
        script(
            tmp_path, "import sys\nsys.exit('ImportError: attempted relative import with no known parent package')\n"
        ),
    )
    assert done.code == 3
    assert "`-- python -m PACKAGE.MODULE`" in done.err


def test_one_that_ends_in_order_and_says_why_is_not(capsys: Capsys, tmp_path: Path) -> None:
    """mcp-server-git, for one, ends with status 0 where there is no repository."""
    done = run_cli(capsys, "list", script(tmp_path, "import sys\nprint('ERROR: no repository', file=sys.stderr)\n"))
    assert done.code == 3
    assert "ERROR: no repository" in done.err
    assert "server.run()" not in done.err


def test_a_script_that_prints_garbage_is_quoted(capsys: Capsys, tmp_path: Path) -> None:
    """P11; the contract: TimedOut names the oddities seen."""
    path = script(tmp_path, "import sys\nfor line in sys.stdin:\n    print('I am a shell', flush=True)\n")
    done = run_cli(capsys, "list", path, "--timeout", "1.5")
    assert done.code == 5
    assert "I am a shell" in done.err
    assert "--timeout" in done.err


def test_a_script_that_never_answers_is_given_up(capsys: Capsys, tmp_path: Path) -> None:
    done = run_cli(capsys, "list", script(tmp_path, "import sys\nsys.stdin.read()\n"), "--timeout", "1")
    assert (done.code, done.out) == (5, "")
    assert "--timeout SECONDS" in done.err


def test_a_command_that_is_not_there_is_named(capsys: Capsys) -> None:
    done = run_cli(capsys, "list", "--", "no-such-command-at-all")
    assert done.code == 3
    assert "no-such-command-at-all" in done.err


def test_a_closed_port_is_no_connection(capsys: Capsys, free_port: int) -> None:
    done = run_cli(capsys, "list", f"http://127.0.0.1:{free_port}/mcp")
    assert (done.code, done.out) == (3, "")
    assert f"127.0.0.1:{free_port}" in done.err
    assert "trimaran doctor" in done.err


def test_a_name_that_does_not_resolve_is_no_connection(capsys: Capsys) -> None:
    done = run_cli(capsys, "list", "http://no-such-host.invalid/mcp")
    assert done.code == 3
    assert "no-such-host.invalid" in done.err


@pytest.mark.parametrize("status", [200, 404, 405, 500])
def test_a_plain_web_server_is_no_connection(capsys: Capsys, status: int) -> None:
    with web(answer(status, b"<html>hello</html>", Content_Type="text/html")) as url:
        done = run_cli(capsys, "list", url, "--timeout", "5")
    assert (done.code, done.out) == (3, "")
    assert "trimaran doctor" in done.err


def test_a_redirect_is_not_followed(capsys: Capsys) -> None:
    """P16."""
    with web(answer(307, Location="https://elsewhere.example/mcp")) as url:
        done = run_cli(capsys, "list", url, "--timeout", "5")
    assert done.code == 3
    assert "elsewhere.example" in done.err


@pytest.mark.parametrize(("status", "said"), [(401, "--bearer TOKEN"), (403, "more scope")])
def test_a_server_that_wants_credentials_ends_with_seven(capsys: Capsys, status: int, said: str) -> None:
    with web(answer(status, WWW_Authenticate='Bearer error="invalid_token"')) as url:
        done = run_cli(capsys, "list", url, "--timeout", "5")
    assert (done.code, done.out) == (7, "")
    assert said in done.err


def test_the_token_and_the_headers_are_sent(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def respond(handler: http.server.BaseHTTPRequestHandler) -> None:
        seen.append(dict(handler.headers.items()))
        answer(401)(handler)

    monkeypatch.setenv("TRIMARAN_TOKEN", "from-env")
    with web(respond) as url:
        run_cli(capsys, "list", url, "--header", "X-Api-Key=k", "--timeout", "5")
        run_cli(capsys, "list", url, "--bearer", "typed", "--timeout", "5")
    assert (seen[0]["Authorization"], seen[0]["X-Api-Key"]) == ("Bearer from-env", "k")
    assert seen[-1]["Authorization"] == "Bearer typed"


def test_a_server_that_accepts_and_says_nothing_times_out(capsys: Capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = run_cli(capsys, "list", f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", "--timeout", "1")
    assert done.code == 5


# Our own mistakes


def fails(error: BaseException) -> Any:
    async def work(client: object) -> int:
        await asyncio.sleep(0)
        raise error

    return work


TARGET = Target("harbour", command=(sys.executable, HARBOUR))


def test_a_mistake_of_our_own_is_owned_up_to_without_a_traceback(capsys: Capsys) -> None:
    code = run(TARGET, Settings(), Screen(), fails(ZeroDivisionError("oops")))
    said = capsys.readouterr().err
    assert code == 70
    assert "this is a mistake in trimaran: ZeroDivisionError: oops" in said
    assert "Traceback" not in said


def test_with_debug_the_traceback_is_shown(capsys: Capsys) -> None:
    with pytest.raises(ZeroDivisionError):
        run(TARGET, Settings(debug=True), Screen(), fails(ZeroDivisionError("oops")))
    assert run(TARGET, Settings(debug=True), Screen(), fails(Error("known"))) == 4
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_passed_on(capsys: Capsys) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(TARGET, Settings(), Screen(), fails(KeyboardInterrupt()))


def test_the_logger_is_left_as_it_was(capsys: Capsys) -> None:
    """P12: nothing of the root logger is touched, and nothing of ours stays."""
    import logging

    logger = logging.getLogger("trimaran")
    before = (list(logging.root.handlers), list(logger.handlers), logger.level, logger.propagate)
    run_cli(capsys, "list", HARBOUR, "--prompts")
    assert (list(logging.root.handlers), list(logger.handlers), logger.level, logger.propagate) == before


KEYED = """
import os, sys
from trimaran import Server, ToolError
server = Server("keyed")

@server.tool
def look() -> str:
    if "BOAT_TOKEN" not in os.environ:
        raise ToolError("BOAT_TOKEN is not set")
    return "found"

@server.tool
def where() -> str:
    print("hint: set BOAT_TOKEN", file=sys.stderr, flush=True)
    return "here"

server.run()
"""


def test_the_variable_that_a_server_seems_to_miss_is_told_once(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Children get no secret that nobody named; whoever relied on that is told what to write."""
    monkeypatch.setenv("BOAT_TOKEN", "hunter2")
    file = tmp_path / "keyed.py"
    file.write_text(KEYED)
    for tool, code in (("look", 1), ("where", 0)):
        done = run_cli(capsys, "call", str(file), tool)
        assert done.code == code
        assert done.err.count("BOAT_TOKEN is set here but is not passed on") == 1
        assert "--env BOAT_TOKEN" in done.err
        assert "hunter2" not in done.err
    for option in ("--env=BOAT_TOKEN", "--env=BOAT_TOKEN=x", "--inherit-env"):
        done = run_cli(capsys, "call", str(file), "look", option)
        assert (done.code, done.out) == (0, "found\n")
        assert "not passed on" not in done.err


def test_a_death_for_want_of_a_variable_is_told_once(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BOAT_TOKEN", "hunter2")
    file = tmp_path / "dies.py"
    file.write_text("raise SystemExit('BOAT_TOKEN is required')")
    for command in ("list", "doctor"):
        done = run_cli(capsys, command, str(file))
        assert done.code != 0
        assert " ".join((done.out + done.err).split()).count("BOAT_TOKEN is set here but is not passed on") == 1


def test_a_variable_that_is_not_set_cannot_be_passed_on(capsys: Capsys) -> None:
    done = run_cli(capsys, "list", HARBOUR, "--env", "NOBODY_SETS_THIS")
    assert done.code == 2
    assert "this variable is not set here" in done.err
