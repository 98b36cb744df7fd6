"""Our client on servers of the official Python SDK (mcp 2.3.0): both eras over HTTP and stdio, and HTTP+SSE."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.until import soon

from trimaran import SyncClient, connect, errors
from trimaran.client.options import Era

from .harness import DEADLINE
from .servers.contract import URI, AskingByUrl, Calling, Everything, Introducing, Listening, Listing, Reading
from .servers.lifecycle import OverHttp, OverPipes
from .servers.places import LIMIT, PLAIN_SDK, SDK, Visit, Visiting, names, until_told

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]


@pytest.mark.asyncio(loop_scope="class")
class TestAServerOfTheOfficialPythonSdk(Visiting, Everything, AskingByUrl, Listening):
    program = SDK
    places = [*Visiting.places, ("sse", "auto"), ("sse", "legacy")]
    failure = "Error executing tool fail: it failed: tired"

    async def test_a_prompt_may_ask_on_the_modern_era(self, visit: Visit) -> None:
        """protocol.md 1.3: prompts/get and resources/read may, too. Towards the legacy era the SDK has no way to."""
        if visit.modern:
            assert (await visit.client.get_prompt("introduce")).text == "I am Zoë."
            assert [ask.message for ask in visit.questions] == ["Who is there?"]
        else:
            with pytest.raises(errors.CallError) as refused:
                await visit.client.get_prompt("introduce")
            assert refused.value.code == -32603

    async def test_a_call_that_needs_a_page_visited_says_which(self, visit: Visit) -> None:
        """protocol.md 1.3: -32042, of the legacy era. The person goes there, and the call is made once more."""
        with pytest.raises(errors.UrlElicitationRequired) as required:
            await visit.client.call_tool("locked")
        [page] = required.value.elicitations
        assert page["url"] == "https://example.com/key"
        assert [ask.url for ask in visit.questions] == ["https://example.com/key"]

    async def test_an_answer_comes_though_its_stream_was_closed_before_it(self, visit: Visit) -> None:
        """protocol.md 3.4: legacy HTTP; the server hangs up, we ask for the stream again and are given the rest."""
        assert (await soon(visit.client.call_tool("nap"))).data == "slept"

    async def test_a_subscription_is_cancelled_on_the_server_too(self, visit: Visit, log: Path) -> None:
        if not visit.modern:
            uri = f"config://{next(names)}"
            subscription = await visit.client.subscribe(uri, lambda uri: None)
            await subscription.cancel()
            assert f"unsubscribed {uri}" in log.read_text(encoding="utf-8").splitlines()


@pytest.mark.asyncio(loop_scope="class")
class TestAServerOfTheOfficialPythonSdkWithoutSessionsAndStreams(Visiting, Introducing, Listing, Calling, Reading):
    """As many put it behind a load balancer: nothing but single requests, answered with single bodies."""

    program = PLAIN_SDK
    places = [("http", "auto"), ("http", "modern"), ("http", "legacy")]
    failure = "Error executing tool fail: it failed: tired"
    has_sessions = False


class TestAServerOfTheOfficialPythonSdkOverPipes(OverPipes):
    program = SDK

    async def test_a_configuration_names_the_server(self, command: list[str]) -> None:
        """R288, with all tests of this file: our client on the official server."""
        entry = {"command": command[0], "args": command[1:], "env": {"IN_A_CONFIG": "yes"}}
        async with connect({"mcpServers": {"theirs": entry}}) as client:
            assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5

    def test_a_script_needs_no_loop(self, command: list[str]) -> None:
        """P33."""
        with SyncClient(command) as client:
            assert client.call_tool("add", {"a": 2, "b": 3}).data == 5
            assert [tool.name for tool in client.list_tools()][0] == "add"
            assert client.read_resource("greeting://Ada").text == "Hello, Ada!"
            seen: list[float] = []
            client.call_tool("count", {"to": 5}, on_progress=lambda progress, *_: seen.append(progress))
            assert seen == [1, 2, 3, 4, 5]


class TestAServerOfTheOfficialPythonSdkOverHttp(OverHttp):
    program = SDK
    versions = ["2025-06-18", "2025-03-26", "2024-11-05"]

    @pytest.mark.parametrize("era", ["modern", "legacy"])
    async def test_who_listens_is_told_of_a_restart_and_goes_on_listening(self, tmp_path: Path, era: Era) -> None:
        with SDK.over_http(tmp_path / "log").running() as running:
            async with connect(running.url(), era=era) as client:
                changes: Any = client.listen(resources=[URI])

                async def touch() -> None:
                    await client.call_tool("touch", {"uri": URI})

                first = await until_told(touch, anext(changes))
                assert first.kind == "resource"
                running.kill()
                await asyncio.to_thread(running.start)
                kinds: set[str] = set()
                async with asyncio.timeout(2 * LIMIT):
                    while "reconnected" not in kinds:
                        kinds.add((await anext(changes)).kind)
                again = await until_told(touch, anext(changes))
                assert again.kind == "resource"
                await changes.aclose()
