"""What our client must see on a server that follows this script, whoever's library serves it, over whatever, in either era.

The script: tools add, weather, primes, picture, mixed, echo, big, fail, route, pid, complain, count, release, wait, has_stopped,
order, summarise, folders, grow (and sign_in, touch where the library can); resources config://app, image://pixel,
greeting://{name}; the prompt greet; completions for `style` and `name`.

A peer's test class is made of the parts its library can do; it has a fixture `visit`, one client for many tests. What the
libraries do differently are the attributes below.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from tests.support.until import soon

from trimaran import ToolError, errors, types

from ..contract import MODERN, PIXEL, UNICODE
from .places import Visit, call_that_waits, names, until_told

URI = "config://app"
PROGRESS = [(n, 5, f"{n} of 5") for n in range(1, 6)]


@dataclass
class Wind:
    speed: float
    direction: Literal["north", "east", "south", "west"]


@dataclass
class Weather:
    city: str
    celsius: float
    wind: Wind
    warnings: list[str]


class Introducing:
    title: str | None = "Their server"
    has_sessions = True

    async def test_the_server_introduces_itself(self, visit: Visit) -> None:
        client = visit.client
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("theirs", "3.2.1")
        assert client.server_info.title == self.title
        assert client.instructions == "Call add first."
        assert {"tools", "resources", "prompts", "completions", "logging"} <= set(client.server_capabilities)

    async def test_the_newest_revision_of_the_era_is_spoken(self, visit: Visit) -> None:
        """protocol.md 2.5, 2.6: modern first, where it was not forbidden."""
        client = visit.client
        assert client.state == "ready"
        assert client.era == ("modern" if visit.modern else "legacy")
        assert client.version == (MODERN if visit.modern else "2025-11-25")

    async def test_there_is_a_session_only_where_there_are_sessions(self, visit: Visit) -> None:
        """protocol.md 1.1: legacy Streamable HTTP."""
        expected = self.has_sessions and visit.transport == "http" and not visit.modern
        assert (visit.client.session_id is not None) is expected

    async def test_there_is_a_child_only_over_pipes(self, visit: Visit) -> None:
        pid = int((await visit.client.call_tool("pid")).text)
        assert visit.client.pid == (pid if visit.transport == "stdio" else None)


class Listing:
    page: int | None = 10
    """How many tools come at once; None for all."""

    async def test_a_list_comes_page_by_page(self, visit: Visit) -> None:
        """R194."""
        first = await visit.client.list_tools()
        assert [tool.name for tool in first][:3] == ["add", "weather", "primes"]
        if self.page is None:
            assert first.next_cursor is None
            return
        assert len(first) == self.page
        second = await visit.client.list_tools(cursor=first.next_cursor)
        assert not {tool.name for tool in first} & {tool.name for tool in second}

    async def test_a_list_comes_whole(self, visit: Visit) -> None:
        """R194."""
        tools = [tool.name for tool in await visit.client.list_tools_all()]
        assert len(tools) == len(set(tools))
        assert {"add", "echo", "wait", "order", "grow"} <= set(tools)

    async def test_a_tool_is_described(self, visit: Visit) -> None:
        add = (await visit.client.list_tools())[0]
        assert (add.name, add.title, add.description) == ("add", "Add two numbers", "Add two numbers.")
        assert isinstance(add.annotations, types.ToolAnnotations)
        assert add.annotations.read_only_hint is True
        schema: Any = add.input_schema
        assert {name: (p["type"], p["description"]) for name, p in schema["properties"].items()} == {
            "a": ("integer", "the first"),
            "b": ("integer", "the second"),
        }

    async def test_resources_templates_and_prompts_are_listed(self, visit: Visit) -> None:
        client = visit.client
        resources = {r.uri: r for r in await client.list_resources_all()}
        assert set(resources) == {URI, "image://pixel"}
        assert (resources[URI].title, resources[URI].mime_type) == ("Settings", "application/json")
        assert [t.uri_template for t in await client.list_resource_templates()] == ["greeting://{name}"]
        greet = next(p for p in await client.list_prompts() if p.name == "greet")
        assert greet.title == "Greet someone"
        assert [(a.name, bool(a.required)) for a in greet.arguments or []] == [("name", True), ("style", False)]


class Calling:
    failure = "it failed: tired"
    """How the library words a tool's failure."""
    unknown_tool_is_an_error = False
    """Or is it a result with isError?"""

    async def test_a_number_is_a_number(self, visit: Visit) -> None:
        """docs/guides/tools.md, "Return values": `5`, not `{"result": 5}`."""
        result = await visit.client.call_tool("add", {"a": 2, "b": 3})
        assert result.data == 5
        assert not result.is_error

    async def test_a_structured_result_is_a_mapping(self, visit: Visit) -> None:
        result = await visit.client.call_tool("weather", {"city": "Zürich"})
        assert result.data == {
            "city": "Zürich",
            "celsius": 21.5,
            "wind": {"speed": 3.25, "direction": "west"},
            "warnings": ["pollen"],
        }
        assert result.structured == result.data

    async def test_a_structured_result_becomes_the_type_that_is_asked_for(self, visit: Visit) -> None:
        result = await visit.client.call_tool("weather", {"city": "Oslo"}, into=Weather)
        assert result.data == Weather("Oslo", 21.5, Wind(3.25, "west"), ["pollen"])

    async def test_a_list_is_a_list(self, visit: Visit) -> None:
        assert (await visit.client.call_tool("primes", {"count": 4})).data == [2, 3, 5, 7]

    async def test_an_image_is_a_typed_block(self, visit: Visit) -> None:
        [image] = (await visit.client.call_tool("picture")).content
        assert isinstance(image, types.ImageContent)
        assert (image.data, image.mime_type) == (PIXEL, "image/png")

    async def test_every_kind_of_block_is_typed(self, visit: Visit) -> None:
        text, audio, resource, link = (await visit.client.call_tool("mixed")).content
        assert isinstance(text, types.TextContent)
        assert text.text == "before"
        assert isinstance(audio, types.AudioContent)
        assert audio.mime_type == "audio/wav"
        assert isinstance(resource, types.EmbeddedResource)
        assert isinstance(resource.resource, types.TextResourceContents)
        assert resource.resource.text == "inside"
        assert isinstance(link, types.ResourceLink)
        assert link.uri == URI

    async def test_unicode_survives_both_ways(self, visit: Visit) -> None:
        assert (await visit.client.call_tool("echo", {"text": UNICODE})).data == UNICODE

    async def test_five_megabytes_arrive_whole(self, visit: Visit) -> None:
        text = (await visit.client.call_tool("big", {"size": 5_000_000})).data
        assert text == "0123456789abcdef" * 312_500

    async def test_fifty_calls_at_once_each_get_their_own_answer(self, visit: Visit) -> None:
        calls = [visit.client.call_tool("echo", {"text": str(n)}) for n in range(50)]
        assert [result.data for result in await asyncio.gather(*calls)] == [str(n) for n in range(50)]

    async def test_a_tool_that_fails_is_a_result_with_its_reason(self, visit: Visit) -> None:
        result = await visit.client.call_tool("fail", {"reason": "tired"})
        assert result.is_error
        assert result.text == self.failure

    async def test_a_tool_that_fails_raises_if_that_is_wanted(self, visit: Visit) -> None:
        with pytest.raises(ToolError, match="it failed: tired") as raised:
            await visit.client.call_tool("fail", {"reason": "tired"}, raise_on_error=True)
        assert raised.value.result.is_error

    async def test_wrong_arguments_are_a_result_the_model_can_read(self, visit: Visit) -> None:
        """Spec, from 2025-11-25 on."""
        result = await visit.client.call_tool("add", {"a": "two", "b": 3})
        assert result.is_error
        assert "a" in result.text

    async def test_an_unknown_tool_is_refused(self, visit: Visit) -> None:
        if self.unknown_tool_is_an_error:
            with pytest.raises(errors.CallError) as refused:
                await visit.client.call_tool("nonexistent")
            assert refused.value.code == -32602
        else:
            assert (await visit.client.call_tool("nonexistent")).is_error

    @pytest.mark.parametrize("region", ["north", "Zürich", " edge ", "=?base64?bm9ydGg=?=", ""])
    async def test_an_annotated_argument_travels_as_a_header_too(self, visit: Visit, region: str) -> None:
        """protocol.md 3.3. Over modern HTTP these servers refuse a call whose header does not say the same."""
        assert (await visit.client.call_tool("route", {"region": region})).data == f"to {region}"

    async def test_any_method_can_be_called_by_its_name(self, visit: Visit) -> None:
        result = await visit.client.request("prompts/get", {"name": "greet", "arguments": {"name": "Zoë"}})
        assert [message["role"] for message in result["messages"]] == ["user", "assistant"]
        with pytest.raises(errors.CallError) as refused:
            await visit.client.request("nobody/knows", {})
        assert refused.value.code == -32601

    async def test_a_sign_of_life_is_given(self, visit: Visit) -> None:
        """Spec: `ping` is gone in 2026-07-28; our client asks for something else there."""
        await visit.client.ping()


class Watching:
    log_data: Any = {"counting to": 5}

    async def test_progress_arrives_while_the_call_runs(self, visit: Visit) -> None:
        """R197. The server lets the call end only when the last of it was heard here."""
        gate, seen, all_seen = next(names), [], asyncio.Event()

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            seen.append((progress, total, message))
            if progress == total:
                all_seen.set()

        call = asyncio.ensure_future(visit.client.call_tool("count", {"to": 5, "gate": gate}, on_progress=hear))
        await soon(all_seen.wait())
        assert not call.done()
        await visit.client.call_tool("release", {"gate": gate})
        assert (await soon(call)).text == "5"
        assert seen == PROGRESS

    async def test_progress_sent_right_before_the_result_is_heard(self, visit: Visit) -> None:
        seen: list[Any] = []
        result = await visit.client.call_tool("count", {"to": 5}, on_progress=lambda *said: seen.append(said))
        assert result.text == "5"
        assert seen == PROGRESS

    async def test_a_log_message_arrives(self, visit: Visit) -> None:
        await visit.client.set_log_level("info")
        await visit.client.call_tool("count", {"to": 5})
        assert await soon(visit.logs.get()) == ("warning", "counter", self.log_data)


class Asking:
    async def test_a_person_is_asked_and_what_they_left_alone_is_the_default(self, visit: Visit) -> None:
        """Two questions, the second only after the first: over the modern era three rounds."""
        result = await visit.client.call_tool("order", {"item": "a lamp"})
        assert result.text == "a lamp to Elm 1, floor 2, express False, cash"
        where, how = visit.questions
        assert (where.mode, where.message) == ("form", "Where shall a lamp go?")
        assert set(where.schema["properties"]) == {"street", "floor", "express"}
        assert where.defaults == {"floor": 2, "express": False}
        assert (how.message, how.defaults) == ("How will you pay?", {})

    @pytest.mark.parametrize("mood", ["decline", "cancel"])
    async def test_a_person_may_refuse(self, visit: Visit, mood: str) -> None:
        visit.mood = mood
        result = await visit.client.call_tool("order", {"item": "a lamp"})
        assert result.text == f"a lamp: {mood}"
        assert len(visit.questions) == 1

    async def test_our_model_is_asked(self, visit: Visit) -> None:
        result = await visit.client.call_tool("summarise", {"text": "a long story"})
        assert result.text == "fake-1 (assistant): short"
        [prompt] = visit.prompts
        assert (prompt.system_prompt, prompt.max_tokens) == ("Be brief.", 50)
        assert prompt.raw["messages"][0]["content"] == {"type": "text", "text": "Summarise: a long story"}

    async def test_our_roots_are_asked_for(self, visit: Visit) -> None:
        assert "home=file:///home/ada" in (await visit.client.call_tool("folders")).text


class AskingByUrl:
    async def test_a_person_is_sent_to_a_page(self, visit: Visit) -> None:
        assert (await visit.client.call_tool("sign_in")).text == "signed in: accept"
        [ask] = visit.questions
        assert (ask.mode, ask.message, ask.url) == ("url", "Sign in, please.", "https://example.com/sign-in")
        assert (ask.elicitation_id is None) is visit.modern


class Reading:
    async def test_text_is_read(self, visit: Visit) -> None:
        result = await visit.client.read_resource(URI)
        [contents] = result.contents
        assert isinstance(contents, types.TextResourceContents)
        assert (contents.uri, contents.mime_type) == (URI, "application/json")
        assert result.text.replace("\n", "").replace(" ", "") == '{"theme":"dark","größe":3}'

    async def test_bytes_are_read(self, visit: Visit) -> None:
        result = await visit.client.read_resource("image://pixel")
        [contents] = result.contents
        assert isinstance(contents, types.BlobResourceContents)
        assert contents.mime_type == "image/png"
        assert result.blob == base64.b64decode(PIXEL)

    async def test_a_template_is_read(self, visit: Visit) -> None:
        assert (await visit.client.read_resource("greeting://Ada%20L")).text == "Hello, Ada L!"

    async def test_a_missing_resource_is_an_error(self, visit: Visit) -> None:
        """Spec: -32602, or before 2026-07-28 -32002, which these libraries no longer send."""
        with pytest.raises(errors.CallError) as refused:
            await visit.client.read_resource("config://nowhere")
        assert refused.value.code == -32602

    async def test_a_prompt_is_filled_in(self, visit: Visit) -> None:
        result = await visit.client.get_prompt("greet", {"name": "Zoë", "style": "terse"})
        assert result.description == "Greet someone."
        assert result.messages == [
            types.PromptMessage(role="user", content=types.TextContent("Greet Zoë in a terse way.")),
            types.PromptMessage(role="assistant", content=types.TextContent("Gladly.")),
        ]

    async def test_arguments_of_prompts_and_templates_are_completed(self, visit: Visit) -> None:
        styles = await visit.client.complete("greet", "style", "p")
        assert (styles.values, styles.total, styles.has_more) == (["plain", "pompous", "poetic"], 3, False)
        assert (await visit.client.complete("greeting://{name}", "name", "A")).values == ["Ada", "Alan"]


class Listening:
    async def test_a_new_tool_is_told_and_listed(self, visit: Visit) -> None:
        """P23."""
        grown: list[str] = []

        async def grow() -> None:
            grown.append(f"grown_{next(names)}")
            await visit.client.call_tool("grow", {"name": grown[-1]})

        changes: Any = visit.client.listen(tools=True)
        try:
            change = await until_told(grow, anext(changes))
        finally:
            await changes.aclose()
        assert change.kind == "tools"
        assert grown[-1] in {tool.name for tool in await visit.client.list_tools_all()}

    async def test_a_changed_resource_is_told_to_who_listens(self, visit: Visit) -> None:
        changes: Any = visit.client.listen(tools=False, resources=[URI])
        try:
            change = await until_told(lambda: visit.client.call_tool("touch", {"uri": URI}), anext(changes))
        finally:
            await changes.aclose()
        assert (change.kind, change.uri) == ("resource", URI)

    async def test_a_changed_resource_is_told_to_who_subscribed_until_they_no_longer_are(self, visit: Visit) -> None:
        """R198."""
        told: asyncio.Queue[str] = asyncio.Queue()
        subscription = await visit.client.subscribe(URI, told.put_nowait)
        await visit.client.call_tool("touch", {"uri": URI})
        assert await soon(told.get()) == URI
        await subscription.cancel()
        await visit.client.call_tool("touch", {"uri": URI})
        await visit.client.call_tool("add", {"a": 1, "b": 1})
        assert told.empty()


class Cancelling:
    async def test_a_cancelled_task_stops_the_call_on_the_server(self, visit: Visit) -> None:
        name = next(names)
        call = await call_that_waits(visit.client, name)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await visit.client.call_tool("has_stopped", {"name": name})).text == "true"

    async def test_a_call_cancelled_by_its_id_says_so_to_its_caller(self, visit: Visit) -> None:
        """R196."""
        name = next(names)
        before = set(visit.client.requests)
        call = await call_that_waits(visit.client, name)
        [mine] = set(visit.client.requests) - before
        visit.client.cancel(mine, "no longer wanted")
        with pytest.raises(errors.CallCancelled):
            await soon(call)
        assert (await visit.client.call_tool("has_stopped", {"name": name})).text == "true"

    async def test_a_call_that_takes_too_long_is_ended_on_both_sides(self, visit: Visit) -> None:
        """R195."""
        name = next(names)
        call = await call_that_waits(visit.client, name, timeout=0.3)
        with pytest.raises(errors.TimedOut, match="tools/call"):
            await soon(call)
        assert (await visit.client.call_tool("has_stopped", {"name": name})).text == "true"


class Everything(Introducing, Listing, Calling, Watching, Asking, Reading, Cancelling):
    """For a library that can do all of it."""
