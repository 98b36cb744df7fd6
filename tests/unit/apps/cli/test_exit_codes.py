"""One table of exit codes: every error has one, and every one is in the help."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from trimaran import errors
from trimaran.apps.cli import main
from trimaran.apps.cli.exit_codes import EPILOG, MEANINGS, Exit, advice, code_of
from trimaran.apps.cli.load import BrokenFile
from trimaran.errors import Error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 2),
        (errors.ConnectFailed("x", exit_code=9), 3),
        (errors.CallError(-32000, "x"), 4),
        (errors.CallError(-32600, "x", {"required_scopes": ["log:write"]}), 7),
        (errors.UnsupportedVersion(-32022, "x"), 4),
        (errors.RemoteProtocolError(-32600, "x"), 4),
        (errors.Unsupported("x", method="tools/list"), 4),
        (errors.RoundsExceeded("x"), 4),
        (errors.TooManyPages("x"), 4),
        (errors.UnexpectedStatus("x", status=500), 4),
        (errors.TimedOut("x"), 5),
        (errors.ConnectionLost("x", exit_code=9), 6),
        (errors.Closed("x"), 6),
        (errors.Unauthorized("x", status=401), 7),
        (errors.Unauthorized("x", status=403), 7),
        (errors.CallCancelled("x"), 130),
        (BrokenFile("x"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Error) else None,
)
def test_every_error_has_its_code(error: Error, code: int) -> None:
    """R277: distinct, so that a script can tell them apart. How a child ended is never our own exit code."""
    assert code_of(error) == code


def test_a_strange_answer_before_anything_worked_is_no_connection() -> None:
    assert code_of(errors.UnexpectedStatus("x", status=404), connected=False) == 3
    assert code_of(errors.RemoteProtocolError(-32700, "x"), connected=False) == 3
    assert code_of(errors.CallError(-32000, "x"), connected=False) == 4


def test_no_error_of_the_library_ends_as_success() -> None:
    kinds = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, Error)]
    for kind in kinds:
        assert code_of(kind.__new__(kind)) != 0


def test_the_help_lists_every_code() -> None:
    assert set(MEANINGS) == set(Exit)
    for code in Exit:
        assert f"{int(code):>3}  {MEANINGS[code]}" in EPILOG


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.Unauthorized("x"), "--bearer TOKEN"),
        (errors.Unauthorized("x", www_authenticate='ApiKey header="X-Boat"'), "Pass --header X-Boat=KEY"),
        (errors.Unauthorized("x", www_authenticate="APIKey"), "Pass --header X-API-Key=KEY"),
        (errors.Unauthorized("x", www_authenticate='ApiKey header="a; rm -r"'), "Pass --header X-API-Key=KEY"),
        (errors.Unauthorized("x", www_authenticate="Basic"), 'Pass --header "Authorization=Basic '),
        (errors.Unauthorized("x", www_authenticate="Bearer"), "Pass a token with --bearer TOKEN"),
        (
            errors.Unauthorized("x", www_authenticate='Bearer resource_metadata="https://a.example"'),
            "Run trimaran auth login boat.py. Or pass a token",
        ),
        (errors.AuthorizationFailed("x", step="login"), "trimaran doctor boat.py"),
        (
            errors.AuthorizationFailed("x", step="login", www_authenticate='ApiKey header="X-Boat"'),
            "Pass --header X-Boat=KEY",
        ),
        (errors.Unauthorized("x", www_authenticate="ApiKey, Bearer"), "KEY. Or pass a token with --bearer"),
        (errors.Unauthorized("x", status=403), "more scope"),
        (errors.TimedOut("x"), "--timeout SECONDS"),
        (errors.ConnectFailed("x"), "trimaran doctor boat.py"),
        (errors.ConnectionLost("x"), "not known"),
        (errors.UnexpectedStatus("x", status=404), "/mcp"),
        (errors.RemoteProtocolError(-32700, "x"), "trimaran doctor boat.py"),
        (errors.Unsupported("x", method="m"), "trimaran list boat.py"),
        (errors.CallError(-32602, "x"), "Check names and arguments"),
        (errors.CallError(-32601, "x"), "shows what the server offers"),
        (
            errors.UrlElicitationRequired(-32042, "x", {"elicitations": [{"url": "https://a.example/login"}]}),
            "Visit https://a.example/login first",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Error) else None,
)
def test_an_error_says_what_to_do(error: Error, said: str) -> None:
    assert said in advice(error, "boat.py", is_http=False)


def test_an_error_that_says_all_itself_gets_no_advice() -> None:
    assert advice(errors.CallError(-32000, "x"), "t", is_http=True) == ""
    assert advice(errors.RoundsExceeded("x"), "t", is_http=True) == ""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["list", "call", "read", "prompt", "doctor"])
def test_every_command_has_help_with_its_exit_codes(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Usage: trimaran {command}")
    assert "Exit codes:" in said
    assert "130  interrupted" in said


def test_a_command_loads_no_http_library_and_no_other_command() -> None:
    """Whose rule: ours: commands are loaded when they are run, and aiohttp when HTTP is spoken."""
    probe = (
        "import sys, trimaran.apps.cli.call; print(*(m for m in ('aiohttp', 'h2', 'trimaran.apps.demo', 'trimaran.server.server', "
        "'trimaran.apps.cli.doctor', 'trimaran.apps.cli.listing', 'trimaran.apps.cli.serve') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, text=True, timeout=25)
    assert (done.stdout.strip(), done.stderr) == ("", "")
