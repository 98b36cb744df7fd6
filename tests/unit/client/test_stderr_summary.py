"""Which lines of a stderr are shown."""

from __future__ import annotations

import pytest

from trimaran.client.stderr_summary import explain_stderr, lines_of_failure, telling_lines

NODE = """\
/srv/dist/index.js:12
    throw new Error("API_KEY is not set");
    ^
Error: API_KEY is not set
    at Object.<anonymous> (/srv/dist/index.js:12:11)
    at Module._compile (node:internal/modules/cjs/loader:1730:14)
    at Function._load (node:internal/modules/cjs/loader:1282:12)

Node.js v24.1.0"""

GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/srv/server.py", line 10, in <module>
  |     sys.exit(main())
    +-+---------------- 1 ----------------
      | Traceback (most recent call last):
      |   File "/srv/session.py", line 217, in _receive_loop
      | pydantic_core._pydantic_core.ValidationError: 24 validation errors for ClientRequest
PingRequest.method
  Input should be 'ping' [type=literal_error, input_value='server/discover', input_type=str]
    For further information visit https://errors.pydantic.dev/2.14/v/literal_error
      +------------------------------------"""

CAUSES = {
    "a stack trace of Node": (NODE, "Error: API_KEY is not set"),
    "an exception group": (
        GROUP,
        "      | pydantic_core._pydantic_core.ValidationError: 24 validation errors for ClientRequest",
    ),
    "a traceback": ("Traceback (most recent call last):\n  File \"x\", line 1\nKeyError: 'HOME'", "KeyError: 'HOME'"),
    "a word in capitals": ("FATAL: API_KEY is not set", "FATAL: API_KEY is not set"),
    "a level in brackets": ("2026-11-16T12:00:00Z [ERROR] no key", "2026-11-16T12:00:00Z [ERROR] no key"),
    "a level between dashes": ("2026-11-16 12:00 - srv - CRITICAL - no", "2026-11-16 12:00 - srv - CRITICAL - no"),
    "a command line's word": (
        "error: the following arguments are required",
        "error: the following arguments are required",
    ),
    "a panic": ("panic: runtime error: index out of range", "panic: runtime error: index out of range"),
    "an address to visit": ("To sign in, visit https://login.example", "To sign in, visit https://login.example"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_line_with_the_cause_is_shown_whatever_follows(name: str) -> None:
    text, cause = CAUSES[name]
    assert cause in telling_lines([*text.split("\n"), *(f"  --option-{n}" for n in range(20))])


def test_the_place_of_a_python_error_is_shown() -> None:
    lines = ['  File "boat.py", line 7', "    x = (", "        ^", "SyntaxError: '(' was never closed"]
    assert telling_lines(lines) == [lines[0], lines[1], lines[3]]
    outer, inner = '  File "run.py", line 1, in <module>', '  File "boat.py", line 2, in sail'
    traceback = [
        "Traceback (most recent call last):",
        outer,
        "    sail()",
        inner,
        "    1 / 0",
        "ZeroDivisionError: division",
    ]
    assert inner in telling_lines(traceback)
    assert outer not in telling_lines(traceback)


def test_the_first_and_the_last_causes_are_shown_where_there_are_many() -> None:
    lines = [f"ERROR {n}" for n in range(10)]
    assert telling_lines(lines) == ["ERROR 0", "ERROR 6", "ERROR 7", "ERROR 8", "ERROR 9"]


def test_without_a_cause_the_end_is_shown() -> None:
    assert telling_lines([f"line {n}" for n in range(9)]) == [f"line {n}" for n in range(4, 9)]


def test_frames_do_not_fill_the_room_beside_a_cause() -> None:
    assert telling_lines(NODE.split("\n"))[-1] == "Error: API_KEY is not set"


def test_colours_and_blank_lines_are_left_out() -> None:
    assert telling_lines(["", "\x1b[31mError: no key\x1b[0m", "   "]) == ["Error: no key"]


def test_a_line_is_whole_unless_it_is_a_dump() -> None:
    assert telling_lines(["Error: " + "x" * 1500]) == ["Error: " + "x" * 1500]
    (shown,) = telling_lines(["x" * 5000])
    assert shown.endswith("x (and 3000 characters more)")


def test_silence_is_said() -> None:
    assert explain_stderr([]) == "; it wrote nothing on stderr"
    assert explain_stderr(["a", "b"]) == "; its stderr says:\n    a\n    b"


LOG = """\
tool 'a' failed [11111111]
Traceback (most recent call last):
  File "/srv/a.py", line 1, in a
    raise ValueError("other")
ValueError: other
ERROR trimaran.server: tool 'b' failed [22222222]
Traceback (most recent call last):
  File "/srv/b.py", line 2, in b
    fetch()
    ~~~~~^^
  File "/usr/lib/python3.11/site-packages/net.py", line 9, in fetch
    raise OSError
OSError: no network
started again
""".splitlines()


@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        (
            "it failed; details under error 22222222",
            ['  File "/srv/b.py", line 2, in b', "    fetch()", "OSError: no network"],
        ),
        (
            "it failed; details under error 11111111",
            ['  File "/srv/a.py", line 1, in a', '    raise ValueError("other")', "ValueError: other"],
        ),
        ("it failed; details under error 33333333", []),
        ("there is no such boat", []),
    ],
    ids=["its own place", "not the last", "another number", "a tool's own words"],
)
def test_where_a_tool_failed_is_found_in_its_servers_log(failure: str, shown: list[str]) -> None:
    assert lines_of_failure([failure], LOG) == shown


def test_a_log_that_breaks_off_is_shown_as_far_as_it_goes() -> None:
    assert lines_of_failure(["under error 22222222"], LOG[:8]) == ['  File "/srv/b.py", line 2, in b']
