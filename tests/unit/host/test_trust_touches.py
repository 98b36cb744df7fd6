"""What a tool touches: configuration first, then common servers, then its name and annotations."""

from __future__ import annotations

import pytest

from trimaran.host.config.model import Touch
from trimaran.host.trust.touches import touches_of
from trimaran.types import Tool, ToolAnnotations

SETS = {"u": "untrusted", "p": "private", "o": "outside", "a": "acts"}


def _touches(name: str, hints: tuple[str, ...] = (), **more: object) -> str:
    tool = Tool(name=name, input_schema={}, **more)  # pyright: ignore[reportArgumentType]
    touches = touches_of(tool, hints=hints)
    return "".join(letter for letter, touch in SETS.items() if touch in touches)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", ""),
        ("get_weather", ""),
        ("send_email", "o"),
        ("mock_chat.send_message", "o"),
        ("post_pr_comment", "o"),
        ("fetch_url", "uo"),
        ("readPublicIssue", "u"),
        ("read_private_repo_file", "p"),
        ("read_private_channel", "up"),
        ("read_file", "p"),
        ("read_email", "up"),
        ("run_command", "poa"),
        ("execute_python_code", "poa"),
        ("run_tests", "a"),
        ("create_issue", "o"),
        ("createCalendarEvent", "po"),
        ("create_note", ""),
        ("apply_diff_to_filesystem", "a"),
        ("get_git_diff", "u"),
    ],
)
def test_names_say_what_a_tool_touches(name: str, expected: str) -> None:
    assert _touches(name) == expected


def test_common_servers_are_known() -> None:
    files = ("npx", "-y", "@modelcontextprotocol/server-filesystem", "/data")
    assert _touches("read_file", files) == "p"
    assert _touches("write_file", files) == "a"
    github = ("https://api.githubcopilot.com/mcp/",)
    assert _touches("get_file_contents", github) == "up"
    assert _touches("list-events", ("npx", "@cocal/google-calendar-mcp")) == "up"
    assert _touches("create-event", ("npx", "@cocal/google-calendar-mcp")) == "oa"
    assert _touches("list_issues", github) == "up"
    assert _touches("add_issue_comment", github) == "oa"
    assert _touches("fetch", ("uvx", "mcp-server-fetch")) == "uo"
    assert _touches("send_time", ("mcp-server-time",)) == ""


def test_an_argument_that_is_an_address_leads_outside() -> None:
    def touches(name: str, argument: str) -> frozenset[str]:
        return touches_of(Tool(name=name, input_schema={"type": "object", "properties": {argument: {}}}))

    assert touches("get_transcript", "url") == {"untrusted", "outside"}
    assert touches("plan", "webhookUrl") == {"outside"}
    assert touches("plan", "path") == set()


def test_annotations_add_and_never_take_away() -> None:
    assert _touches("lookup", annotations=ToolAnnotations(open_world_hint=True)) == "uo"
    assert _touches("wipe", annotations=ToolAnnotations(destructive_hint=True)) == "a"
    assert _touches("send_email", annotations=ToolAnnotations(open_world_hint=False, read_only_hint=True)) == "o"


def test_the_configuration_is_believed() -> None:
    tool = Tool(name="send_email", input_schema={})
    configured: tuple[Touch, ...] = ("private",)
    assert touches_of(tool, configured=configured) == {"private"}
    assert touches_of(tool, configured=()) == frozenset()
