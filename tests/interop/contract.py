"""What every client must see on `server.py`, whoever wrote it, on either transport and in either era.

A peer's test class is made of the parts its client can do; it has a fixture `report`, the driver's report of one run. The
expected values are the server's, worked out by hand; the eras differ only where the protocol does.
"""

from __future__ import annotations

from typing import Any

from .harness import Outcome

MODERN = "2026-07-28"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
UNICODE = "žluťoučký 你好 🛶 \u2028 \x00"
OWN_TOOLS = (
    "add weather primes picture echo big fail crash fifty count release wait has_stopped order summarise folders grow touch"
).split()
DELIVERY = {
    "type": "object",
    "properties": {
        "street": {"type": "string"},
        "floor": {"type": "integer"},
        "express": {"type": "boolean", "default": False},
    },
    "required": ["street", "floor"],
}
PAYMENT = {
    "type": "object",
    "properties": {"pay": {"type": "string", "enum": ["card", "cash"], "title": "How to pay"}},
    "required": ["pay"],
}
ORDERED = "receipt for a lamp; a lamp shipped to Elm 1, floor 3, express False, cash"


def result(text: str, structured: Any = None, *, error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "structured": structured, "isError": error}


def wrapped(report: Outcome, value: Any) -> Any:
    """A structured result that is no object: as it is on the modern era, in `result` before it, also behind a proxy."""
    return value if report.modern and "+legacy" not in report.transport else {"result": value}


class Listing:
    def test_all_two_hundred_and_more_tools_arrive_in_one_list(self, report: Outcome) -> None:
        """Ours: a page holds a thousand, so that a client which reads one page misses nothing."""
        tools = report.ok("tools")
        assert tools["names"] == OWN_TOOLS
        assert (tools["fillers"], tools["count"]) == (200, 200 + len(OWN_TOOLS))
        assert tools.get("next") is None

    def test_a_tool_is_described_by_its_signature_and_docstring(self, report: Outcome) -> None:
        add = report.ok("tools")["add"]
        assert add["title"] == "Add two numbers"
        assert add["description"] == "Add two numbers."
        assert add["annotations"]["readOnlyHint"] is True
        assert add["inputSchema"]["type"] == "object"
        assert add["inputSchema"]["properties"] == {
            "a": {"type": "integer", "description": "the first"},
            "b": {"type": "integer", "description": "the second"},
        }
        assert add["inputSchema"]["required"] == ["a", "b"]

    def test_a_dataclass_result_is_promised_in_the_output_schema(self, report: Outcome) -> None:
        schema = report.ok("tools")["weather"]["outputSchema"]
        assert schema["type"] == "object"
        assert set(schema["properties"]) == {"city", "celsius", "wind", "warnings"}

    def test_fifty_arguments_are_listed(self, report: Outcome) -> None:
        assert report.ok("tools")["fifty"] == 50

    def test_resources_and_templates_are_listed(self, report: Outcome) -> None:
        resources = {r["uri"]: r for r in report.ok("resources")}
        assert list(resources) == ["config://app", "image://pixel"]
        assert resources["config://app"]["mimeType"] == "application/json"
        assert resources["config://app"]["title"] == "Settings"
        assert [t["uriTemplate"] for t in report.ok("templates")] == ["greeting://{name}"]

    def test_prompts_are_listed_with_their_arguments(self, report: Outcome) -> None:
        [prompt] = report.ok("prompts")
        assert (prompt["name"], prompt["title"], prompt["description"]) == ("greet", "Greet someone", "Greet someone.")
        arguments = [(a["name"], a["description"], bool(a.get("required"))) for a in prompt["arguments"]]
        assert arguments == [("name", "whom", True), ("style", "how", False)]


class Calling:
    def test_a_number_comes_back_as_text_and_as_structured_content(self, report: Outcome) -> None:
        assert report.ok("add") == result("5", wrapped(report, 5))

    def test_a_dataclass_comes_back_structured(self, report: Outcome) -> None:
        assert report.ok("weather")["structured"] == {
            "city": "Zürich",
            "celsius": 21.5,
            "wind": {"speed": 3.25, "direction": "west"},
            "warnings": ["pollen"],
        }

    def test_a_list_comes_back_structured(self, report: Outcome) -> None:
        """Spec: any JSON value from 2026-07-28 on, an object before."""
        assert report.ok("primes") == result("[2,3,5,7]", wrapped(report, [2, 3, 5, 7]))

    def test_an_image_comes_back_whole(self, report: Outcome) -> None:
        assert report.ok("picture")["content"] == [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]

    def test_unicode_survives_both_ways(self, report: Outcome) -> None:
        assert report.ok("echo") == result(UNICODE)

    def test_fifty_arguments_arrive(self, report: Outcome) -> None:
        assert report.ok("fifty") == result("1275", wrapped(report, 1275))

    def test_the_last_of_two_hundred_tools_can_be_called(self, report: Outcome) -> None:
        assert report.ok("filler") == result("199", wrapped(report, 199))

    def test_a_tool_error_is_a_result_with_its_reason(self, report: Outcome) -> None:
        assert report.ok("fail") == result("it failed: tired", error=True)

    def test_a_crash_is_a_result_without_the_details(self, report: Outcome) -> None:
        """Ours: what an author did not mean to say is not said."""
        crash = report.ok("crash")
        assert crash["isError"]
        assert "crash" in crash["content"][0]["text"]
        assert "secret" not in crash["content"][0]["text"]

    def test_wrong_arguments_are_a_result_the_model_can_read(self, report: Outcome) -> None:
        """Spec, from 2025-11-25 on: not a protocol error."""
        bad = report.ok("bad arguments")
        assert bad["isError"]
        assert "'a'" in bad["content"][0]["text"]

    def test_an_unknown_tool_is_a_protocol_error(self, report: Outcome) -> None:
        assert report.error("unknown tool")["code"] == -32602


class CallingLargely:
    def test_five_megabytes_of_text_arrive_whole(self, report: Outcome) -> None:
        assert report.ok("big") == {"length": 5_000_000, "start": "0123456789abcdef", "end": "0123456789abcdef"}


class Reading:
    def test_a_text_resource_is_read(self, report: Outcome) -> None:
        text = '{"theme":"dark","größe":3}'
        assert report.ok("read text") == [{"uri": "config://app", "mimeType": "application/json", "text": text}]

    def test_a_binary_resource_is_read(self, report: Outcome) -> None:
        assert report.ok("read blob") == [{"uri": "image://pixel", "mimeType": "image/png", "blob": PIXEL}]

    def test_a_template_is_read_with_its_variable_decoded(self, report: Outcome) -> None:
        [read] = report.ok("read template")
        assert (read["uri"], read["text"]) == ("greeting://Ada%20L", "Hello, Ada L!")

    def test_a_missing_resource_is_a_protocol_error(self, report: Outcome) -> None:
        """Spec: -32602 from 2026-07-28 on, -32002 before."""
        error = report.error("read missing")
        assert error["code"] == (-32602 if report.modern else -32002)

    def test_a_prompt_is_filled_in(self, report: Outcome) -> None:
        assert report.ok("prompt") == [
            {"role": "user", "content": {"type": "text", "text": "Greet Zoë in a terse way."}},
            {"role": "assistant", "content": {"type": "text", "text": "Gladly."}},
        ]


class Completing:
    def test_arguments_of_prompts_and_templates_are_completed(self, report: Outcome) -> None:
        assert report.ok("complete prompt") == ["plain", "pompous", "poetic"]
        assert report.ok("complete template") == ["Ada", "Alan"]


class Introducing:
    def test_the_server_introduces_itself(self, report: Outcome) -> None:
        connect = report.ok("connect")
        assert connect["server"]["name"] == "interop"
        assert connect["server"]["version"] == "1.2.3"
        assert connect["instructions"] == "Call add first."
        assert {"tools", "resources", "prompts", "completions", "logging"} <= set(connect["capabilities"])


class Connecting:
    def test_the_client_speaks_the_era_it_was_told_to_speak(self, report: Outcome) -> None:
        assert (report.ok("connect")["version"] == MODERN) is report.modern

    def test_ping_is_answered_where_there_is_a_ping(self, report: Outcome) -> None:
        """Spec: removed in 2026-07-28."""
        if report.modern:
            assert report.error("ping")
        else:
            assert report.ok("ping") in ({}, True)

    def test_the_connection_works_after_all_that(self, report: Outcome) -> None:
        assert report.ok("after all that") == result("42", wrapped(report, 42))


PROGRESS = [[n, 5, f"{n} of 5"] for n in range(1, 6)]


class Watching:
    def test_progress_arrives_while_the_call_runs(self, report: Outcome) -> None:
        """The driver lets the call end only when it has seen the last of it."""
        count = report.ok("count")
        assert count["progress"] == PROGRESS
        assert count["result"] == result("5", wrapped(report, 5))

    def test_a_log_message_arrives(self, report: Outcome) -> None:
        assert report.ok("count")["logs"] == [{"level": "warning", "logger": "counter", "data": {"counting to": 5}}]


class WatchingBursts:
    def test_progress_sent_right_before_the_result_is_heard(self, report: Outcome) -> None:
        burst = report.ok("burst")
        assert burst["progress"] == PROGRESS
        assert burst["result"] == result("5", wrapped(report, 5))


class Listening:
    def test_a_new_tool_and_a_changed_resource_are_told(self, report: Outcome) -> None:
        assert report.ok("changes") == [
            "notifications/tools/list_changed",
            "notifications/resources/updated config://app",
        ]


class Cancelling:
    def test_a_cancelled_call_stops_on_the_server(self, report: Outcome) -> None:
        assert report.ok("cancel") == result("true", wrapped(report, True))
        assert report.log.count("wait w began") == 1
        assert report.log.count("wait w stopped") == 1


class Asking:
    def test_a_person_is_asked_and_the_answers_come_back(self, report: Outcome) -> None:
        order = report.ok("order")
        assert order["result"] == result(ORDERED)
        assert order["questions"] == [
            {"message": "Where shall a lamp go?", "schema": DELIVERY},
            {"message": "How will you pay?", "schema": PAYMENT},
        ]

    def test_a_step_runs_once_however_often_the_body_is_replayed(self, report: Outcome) -> None:
        report.ok("order")
        assert report.log.count("charge a lamp") == 1
        assert report.log.count("ship a lamp") == 1

    def test_a_person_may_decline(self, report: Outcome) -> None:
        assert report.ok("declined order")["result"] == result("receipt for nothing, then decline")
        assert report.log.count("charge nothing") == 1

    def test_the_clients_model_is_asked(self, report: Outcome) -> None:
        summarise = report.ok("summarise")
        assert summarise["result"] == result("fake-1 (assistant): short")
        [prompt] = summarise["prompts"]
        assert prompt["messages"][0]["content"] == {"type": "text", "text": "Summarise: a long story"}
        assert (prompt["systemPrompt"], prompt["maxTokens"]) == ("Be brief.", 50)

    def test_the_clients_roots_are_asked_for(self, report: Outcome) -> None:
        assert report.ok("folders")["structured"] == wrapped(report, ["home=file:///home/ada"])


class Everything(Connecting, Listing, Calling, Reading, Completing, Watching, Listening, Cancelling, Asking):
    """For a client that can do all of it."""


def assert_same_order(modern: Outcome, legacy: Outcome) -> None:
    """Ours: one tool body, both eras: the same questions, the same answer, each side effect once."""
    assert modern.modern
    assert not legacy.modern
    assert modern.ok("order") == legacy.ok("order")
    assert modern.ok("order")["result"] == result(ORDERED)
    for outcome in (modern, legacy):
        assert [line for line in outcome.log if line.endswith("a lamp")] == ["charge a lamp", "ship a lamp"]
