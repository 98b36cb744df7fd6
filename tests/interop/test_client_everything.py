"""Our client on `@modelcontextprotocol/server-everything`: a server of the first TypeScript generation, which knows the legacy
eras only, over stdio, Streamable HTTP and HTTP+SSE.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.until import soon

from trimaran import Client, connect, errors, types

from .harness import DEADLINE
from .servers.places import EVERYTHING, EVERYTHING_OVER_SSE, EVERYTHING_SCRIPT, NODE, Visit, Visiting, is_alive, need

DEFAULTS = {
    "firstLine": "It was a dark and stormy night.",
    "integer": 42,
    "number": 3.14,
    "untitledSingleSelectEnum": "Monica",
    "untitledMultipleSelectEnum": ["Guitar"],
    "titledSingleSelectEnum": "hero-1",
    "titledMultipleSelectEnum": ["fish-1"],
    "legacyTitledEnum": "pet-1",
}
DOCUMENT = "demo://resource/static/document/features.md"

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]


class Checks:
    async def test_it_introduces_itself(self, visit: Visit) -> None:
        client = visit.client
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("mcp-servers/everything", "2.0.0")
        assert client.instructions is not None
        assert client.instructions.startswith("# Everything Server")
        assert (client.era, client.version) == ("legacy", "2025-11-25")

    async def test_it_offers_what_our_handlers_make_possible(self, visit: Visit) -> None:
        """It adds these four only for a client that declared elicitation, its url mode, sampling and roots."""
        tools = {tool.name: tool for tool in await visit.client.list_tools_all()}
        assert {
            "trigger-elicitation-request",
            "trigger-url-elicitation",
            "trigger-sampling-request",
            "get-roots-list",
        } <= set(tools)
        annotations = tools["echo"].annotations
        assert isinstance(annotations, types.ToolAnnotations)
        assert annotations.idempotent_hint is True

    async def test_calls_are_answered(self, visit: Visit) -> None:
        assert (await visit.client.call_tool("echo", {"message": "ahoj"})).data == "Echo: ahoj"
        assert (await visit.client.call_tool("get-sum", {"a": 2, "b": 3})).data == "The sum of 2 and 3 is 5."

    async def test_a_structured_result_is_a_mapping(self, visit: Visit) -> None:
        result = await visit.client.call_tool("get-structured-content", {"location": "Chicago"})
        assert result.data == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}

    async def test_wrong_arguments_are_a_result(self, visit: Visit) -> None:
        assert (await visit.client.call_tool("get-sum", {"a": "two"})).is_error

    async def test_an_image_is_a_typed_block(self, visit: Visit) -> None:
        before, image, after = (await visit.client.call_tool("get-tiny-image")).content
        assert isinstance(before, types.TextContent)
        assert isinstance(image, types.ImageContent)
        assert isinstance(after, types.TextContent)
        assert image.mime_type == "image/png"

    async def test_annotations_of_a_block_are_kept(self, visit: Visit) -> None:
        [block] = (await visit.client.call_tool("get-annotated-message", {"messageType": "error"})).content
        assert block.annotations == {"priority": 1, "audience": ["user", "assistant"]}

    async def test_an_embedded_resource_is_typed(self, visit: Visit) -> None:
        result = await visit.client.call_tool("get-resource-reference", {"resourceType": "Blob", "resourceId": 7})
        block = result.content[1]
        assert isinstance(block, types.EmbeddedResource)
        assert isinstance(block.resource, types.BlobResourceContents)
        assert block.resource.uri == "demo://resource/dynamic/blob/7"

    async def test_a_link_leads_to_what_it_names(self, visit: Visit) -> None:
        text = "data:text/plain,to%20be%20compressed"
        result = await visit.client.call_tool("gzip-file-as-resource", {"name": "short.gz", "data": text})
        [link] = result.content
        assert isinstance(link, types.ResourceLink)
        assert gzip.decompress((await visit.client.read_resource(link.uri)).blob) == b"to be compressed"

    async def test_progress_is_heard(self, visit: Visit) -> None:
        seen: list[tuple[float, float | None]] = []
        result = await visit.client.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.1, "steps": 4},
            on_progress=lambda progress, total, _: seen.append((progress, total)),
        )
        assert "completed" in result.text
        assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]

    async def test_progress_keeps_a_call_alive_beyond_its_timeout(self, visit: Visit) -> None:
        """R195, P29."""
        slow = {"duration": 1.2, "steps": 6}
        result = await visit.client.call_tool(
            "trigger-long-running-operation", slow, timeout=0.6, on_progress=lambda *_: None
        )
        assert "completed" in result.text

    async def test_a_call_that_takes_too_long_is_given_up(self, visit: Visit) -> None:
        with pytest.raises(errors.TimedOut):
            await visit.client.call_tool("trigger-long-running-operation", {"duration": 1, "steps": 1}, timeout=0.2)
        assert (await visit.client.call_tool("echo", {"message": "on"})).data == "Echo: on"

    async def test_a_form_is_answered_with_its_defaults(self, visit: Visit) -> None:
        """Every kind of field that the protocol knows."""
        result = await visit.client.call_tool("trigger-elicitation-request")
        raw = json.loads(result.content[-1].text.removeprefix("\nRaw result: "))
        assert raw == {"action": "accept", "content": {"name": "Zoë", **DEFAULTS}}
        [ask] = visit.questions
        assert ask.defaults == DEFAULTS

    @pytest.mark.parametrize("mood", ["decline", "cancel"])
    async def test_a_form_may_be_refused(self, visit: Visit, mood: str) -> None:
        visit.mood = mood
        result = await visit.client.call_tool("trigger-elicitation-request")
        assert f'"action": "{mood}"' in result.text

    async def test_a_person_is_sent_to_a_page(self, visit: Visit) -> None:
        arguments = {"url": "https://example.com/form", "elicitationId": "form-1"}
        result = await visit.client.call_tool("trigger-url-elicitation", arguments)
        assert "User completed the URL elicitation flow" in result.text
        [ask] = visit.questions
        assert (ask.mode, ask.url, ask.elicitation_id) == ("url", "https://example.com/form", "form-1")

    async def test_a_page_that_must_be_visited_first_is_and_the_call_made_again(self, visit: Visit) -> None:
        """protocol.md 1.3: -32042."""
        arguments = {"url": "https://example.com/after", "errorPath": True}
        result = await visit.client.call_tool("trigger-url-elicitation", arguments)
        assert "User completed the URL elicitation flow" in result.text
        first, second = (ask.url for ask in visit.questions)
        assert first != second == "https://example.com/after"

    async def test_a_page_nobody_wants_to_visit_ends_the_call(self, visit: Visit) -> None:
        visit.mood = "decline"
        arguments = {"url": "https://example.com/never", "errorPath": True}
        with pytest.raises(errors.UrlElicitationRequired):
            await visit.client.call_tool("trigger-url-elicitation", arguments)
        assert len(visit.questions) == 1

    async def test_our_model_is_asked(self, visit: Visit) -> None:
        result = await visit.client.call_tool("trigger-sampling-request", {"prompt": "well?", "maxTokens": 7})
        assert '"model": "fake-1"' in result.text
        [prompt] = visit.prompts
        assert (prompt.max_tokens, prompt.system_prompt) == (7, "You are a helpful test server.")
        assert prompt.raw["temperature"] == 0.7

    async def test_our_roots_are_asked_for_and_asked_for_again_when_they_change(self, visit: Visit) -> None:
        assert "file:///home/ada" in (await visit.client.call_tool("get-roots-list")).text
        await visit.client.set_log_level("info")
        visit.forget()
        try:
            await visit.client.set_roots(["file:///home/ada", "file:///home/grace"])
            while "2 root(s)" not in str((await soon(visit.logs.get()))[2]):
                pass
            assert "file:///home/grace" in (await visit.client.call_tool("get-roots-list")).text
        finally:
            await visit.client.set_roots(visit.roots)

    async def test_log_messages_arrive(self, visit: Visit) -> None:
        await visit.client.set_log_level("debug")
        await visit.client.call_tool("toggle-simulated-logging")
        try:
            while "message" not in str((await soon(visit.logs.get()))[2]):
                pass
        finally:
            await visit.client.call_tool("toggle-simulated-logging")

    async def test_resources_are_listed_and_read(self, visit: Visit) -> None:
        client = visit.client
        assert DOCUMENT in {resource.uri for resource in await client.list_resources_all()}
        assert (await client.read_resource(DOCUMENT)).text.startswith("# Everything Server")
        templates = [template.uri_template for template in await client.list_resource_templates()]
        assert templates == [f"demo://resource/dynamic/{kind}/{{resourceId}}" for kind in ("text", "blob")]
        text = await client.read_resource("demo://resource/dynamic/text/3")
        assert text.text.startswith("Resource 3: This is a plaintext resource")
        blob = await client.read_resource("demo://resource/dynamic/blob/3")
        assert blob.blob.startswith(b"Resource 3: This is a base64 blob")

    async def test_a_missing_resource_is_an_error(self, visit: Visit) -> None:
        with pytest.raises(errors.CallError):
            await visit.client.read_resource("demo://resource/nowhere")

    async def test_a_changed_resource_is_told(self, visit: Visit) -> None:
        told: asyncio.Queue[str] = asyncio.Queue()
        subscription = await visit.client.subscribe(DOCUMENT, told.put_nowait)
        await visit.client.call_tool("toggle-subscriber-updates")
        try:
            assert await soon(told.get()) == DOCUMENT
        finally:
            await visit.client.call_tool("toggle-subscriber-updates")
            await subscription.cancel()

    async def test_prompts_are_filled_in(self, visit: Visit) -> None:
        client = visit.client
        assert (await client.get_prompt("simple-prompt")).messages[0].role == "user"
        filled = await client.get_prompt("args-prompt", {"city": "Brno"})
        assert filled.text == "What's weather in Brno?"
        arguments = {"resourceType": "Text", "resourceId": "2"}
        block = (await client.get_prompt("resource-prompt", arguments)).messages[1].content
        assert isinstance(block, types.EmbeddedResource)

    async def test_a_completion_depends_on_what_was_chosen_before(self, visit: Visit) -> None:
        complete = visit.client.complete
        assert (await complete("completable-prompt", "department", "S")).values == ["Sales", "Support"]
        chosen = {"department": "Sales"}
        assert (await complete("completable-prompt", "name", "E", context=chosen)).values == ["Eve"]
        template = "demo://resource/dynamic/text/{resourceId}"
        assert (await complete(template, "resourceId", "12")).values == ["12"]

    async def test_a_call_becomes_a_task_that_can_be_watched_and_ended(self, visit: Visit) -> None:
        """protocol.md 5.2: the tasks of 2025-11-25."""
        call = {"name": "simulate-research-query", "arguments": {"topic": "boats"}, "task": {"ttl": 60_000}}
        made = await visit.client.request("tools/call", call)
        task_id = made["task"]["taskId"]
        assert (await visit.client.get_task(task_id))["status"] == "working"
        assert task_id in [task["taskId"] for task in (await visit.client.list_tasks())["tasks"]]
        await visit.client.cancel_task(task_id)
        assert (await visit.client.get_task(task_id))["status"] == "cancelled"

    async def test_ping_is_answered(self, visit: Visit) -> None:
        await visit.client.ping()

    async def test_a_method_it_does_not_know_is_refused(self, visit: Visit) -> None:
        with pytest.raises(errors.CallError) as refused:
            await visit.client.request("nobody/knows")
        assert refused.value.code == -32601


@pytest.mark.asyncio(loop_scope="class")
class TestTheEverythingServer(Visiting, Checks):
    program = EVERYTHING
    places = [("stdio", "auto"), ("stdio", "legacy"), ("http", "auto"), ("http", "legacy")]


@pytest.mark.asyncio(loop_scope="class")
class TestTheEverythingServerOverSse(Visiting, Checks):
    program = EVERYTHING_OVER_SSE
    places = [("sse", "auto"), ("sse", "legacy")]


async def test_a_task_can_be_waited_for(tmp_path: Path) -> None:
    """protocol.md 5.2. The server takes its time: four seconds."""
    async with connect(EVERYTHING.over_pipes(tmp_path)) as client:
        call = {"name": "simulate-research-query", "arguments": {"topic": "boats"}, "task": {"ttl": 60_000}}
        made = await client.request("tools/call", call)
        result = await client.task_result(made["task"]["taskId"], timeout=20)
        assert result["content"][0]["text"].startswith("# Research Report: boats")


async def test_a_script_is_run_by_node() -> None:
    need(NODE, EVERYTHING_SCRIPT)
    async with connect(str(EVERYTHING_SCRIPT), env={"SAID_BY_US": "yes"}) as client:
        environment = json.loads((await client.call_tool("get-env")).data)
        assert environment["SAID_BY_US"] == "yes"


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
async def test_where_only_the_legacy_era_is_known_the_modern_one_cannot_be_had(transport: str, tmp_path: Path) -> None:
    """protocol.md 2.7: it fails clearly."""
    program = EVERYTHING_OVER_SSE if transport == "sse" else EVERYTHING
    if transport == "stdio":
        with pytest.raises(errors.Error, match="modern|2026-07-28|server/discover"):
            async with connect(program.over_pipes(tmp_path), era="modern", connect_timeout=10):
                pass
        return
    with program.over_http(tmp_path).running() as server:
        with pytest.raises(errors.Error, match="modern|2026-07-28|server/discover"):
            async with connect(server.url("/sse" if transport == "sse" else "/mcp"), era="modern", connect_timeout=10):
                pass


async def long_call(client: Client) -> asyncio.Task[Any]:
    """A call of half a minute, once it has begun."""
    began = asyncio.Event()
    call = client.call_tool(
        "trigger-long-running-operation",
        {"duration": 30, "steps": 600},
        on_progress=lambda *_: began.set(),
        idempotent=False,
    )
    task = asyncio.ensure_future(call)
    await soon(began.wait())
    return task


async def test_a_killed_child_is_replaced_for_the_next_call(tmp_path: Path) -> None:
    async with connect(EVERYTHING.over_pipes(tmp_path)) as client:
        pid = client.pid
        assert pid is not None
        call = await long_call(client)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(errors.ConnectionLost) as lost:
            await asyncio.wait_for(call, 1)
        assert lost.value.exit_code == -signal.SIGKILL
        assert any("Starting default (STDIO) server" in line for line in lost.value.stderr)
        assert (await client.call_tool("echo", {"message": "on"})).data == "Echo: on"
        after = client.pid
        assert after not in (pid, None)
    assert after is not None
    assert not is_alive(after)


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_killed_server_fails_its_calls_at_once_and_after_its_return_all_is_well(
    transport: str, tmp_path: Path
) -> None:
    """P1, P2. Over Streamable HTTP it says 400 to a session it does not know, where the protocol has 404."""
    program = EVERYTHING_OVER_SSE if transport == "sse" else EVERYTHING
    with program.over_http(tmp_path).running() as server:
        async with connect(server.url("/sse" if transport == "sse" else "/mcp")) as client:
            call = await long_call(client)
            server.kill()
            with pytest.raises(errors.ConnectionLost):
                await asyncio.wait_for(call, 1)
            await asyncio.to_thread(server.start)
            assert (await soon(client.call_tool("echo", {"message": "on"}))).data == "Echo: on"
