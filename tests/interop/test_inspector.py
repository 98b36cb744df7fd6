"""The official Inspector's command line (2.12.0) on our server, one process per question.

Left out: elicitation and sampling, which the command line switches off (`sample: false, elicit: false` in its client
options), so here our server must refuse; and progress, completion, ping and subscriptions, for which it has no method.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .contract import OWN_TOOLS, PIXEL
from .harness import DEADLINE, MODULES, NODE, need, run, target

INSPECTOR = MODULES / ".bin" / "mcp-inspector"

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]


@dataclass
class Inspector:
    """The Inspector, pointed at a server in one era."""

    given: list[str]
    era: str
    log: Path

    def ask(self, method: str, *options: str, code: int = 0) -> Any:
        """The result, or with another exit code than 0 the error, of one run."""
        command = [NODE, INSPECTOR, "--cli", *self.given, "--protocol-era", self.era, "--format", "json"]
        done = run([*command, "--quiet", "--method", method, *options])
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return json.loads(done.stdout if code == 0 else done.stderr.splitlines()[-1])[
            "result" if code == 0 else "error"
        ]

    def wrapped(self, value: Any) -> Any:
        return value if self.era == "modern" else {"result": value}


@pytest.fixture(scope="module", params=["http", "sse", "stdio"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[str], Path]]:
    need(NODE, INSPECTOR)
    home = tmp_path_factory.mktemp("home")
    log = home / "log"
    log.touch()
    before = os.environ.get("HOME")
    os.environ["HOME"] = str(home)  # it keeps a catalog of servers there
    try:
        with target(request.param, log) as given:
            yield given, log
    finally:
        if before is None:
            del os.environ["HOME"]
        else:
            os.environ["HOME"] = before


class Checks:
    def test_it_connects_and_is_introduced(self, inspector: Inspector) -> None:
        found = inspector.ask("initialize")
        assert found["serverInfo"]["name"] == "interop"
        assert found["instructions"] == "Call add first."

    def test_it_lists_every_tool_and_finds_the_schemas_portable(self, inspector: Inspector) -> None:
        """`--strict` ends with 6 if a schema has what some client cannot read."""
        tools = inspector.ask("tools/list", "--strict")["tools"]
        assert [t["name"] for t in tools if not t["name"].startswith("filler_")] == OWN_TOOLS
        assert len(tools) == 200 + len(OWN_TOOLS)

    def test_it_calls_a_tool(self, inspector: Inspector) -> None:
        result = inspector.ask("tools/call", "--tool-name", "add", "--tool-arg", "a=2", "b=3")
        assert result["content"] == [{"type": "text", "text": "5"}]
        assert result["structuredContent"] == inspector.wrapped(5)

    def test_it_calls_a_tool_with_a_structured_result(self, inspector: Inspector) -> None:
        result = inspector.ask("tools/call", "--tool-name", "weather", "--tool-arg", "city=Zürich")
        assert result["structuredContent"]["city"] == "Zürich"
        assert result["structuredContent"]["wind"] == {"speed": 3.25, "direction": "west"}

    def test_it_calls_a_tool_with_fifty_arguments(self, inspector: Inspector) -> None:
        numbers = json.dumps({f"n{i:02}": i for i in range(1, 51)})
        result = inspector.ask("tools/call", "--tool-name", "fifty", "--tool-args-json", numbers)
        assert result["structuredContent"] == inspector.wrapped(1275)

    def test_it_gets_an_image(self, inspector: Inspector) -> None:
        result = inspector.ask("tools/call", "--tool-name", "picture")
        assert result["content"] == [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]

    def test_it_gets_five_megabytes(self, inspector: Inspector) -> None:
        result = inspector.ask("tools/call", "--tool-name", "big", "--tool-arg", "size=5000000")
        assert len(result["content"][0]["text"]) == 5_000_000

    def test_it_sees_that_a_tool_failed(self, inspector: Inspector) -> None:
        error = inspector.ask("tools/call", "--tool-name", "fail", "--tool-arg", "reason=tired", code=5)
        assert error["code"] == "tool_is_error"

    def test_it_is_refused_what_it_cannot_be_asked(self, inspector: Inspector) -> None:
        """Spec: a server must not ask what the client did not declare."""
        for tool, argument, capability in (("order", "item=x", "elicitation"), ("summarise", "text=x", "sampling")):
            error = inspector.ask("tools/call", "--tool-name", tool, "--tool-arg", argument, code=1)
            assert f"'{capability}" in error["message"]

    def test_it_offers_its_roots(self, inspector: Inspector) -> None:
        """None are configured, and so none come."""
        result = inspector.ask("tools/call", "--tool-name", "folders")
        assert result["structuredContent"] == inspector.wrapped([])

    def test_it_lists_resources_and_templates(self, inspector: Inspector) -> None:
        resources = inspector.ask("resources/list")["resources"]
        assert [r["uri"] for r in resources] == ["config://app", "image://pixel"]
        templates = inspector.ask("resources/templates/list")["resourceTemplates"]
        assert [t["uriTemplate"] for t in templates] == ["greeting://{name}"]

    def test_it_reads_resources(self, inspector: Inspector) -> None:
        [config] = inspector.ask("resources/read", "--uri", "config://app")["contents"]
        assert (config["mimeType"], config["text"]) == ("application/json", '{"theme":"dark","größe":3}')
        [pixel] = inspector.ask("resources/read", "--uri", "image://pixel")["contents"]
        assert (pixel["mimeType"], pixel["blob"]) == ("image/png", PIXEL)
        [greeting] = inspector.ask("resources/read", "--uri", "greeting://Ada")["contents"]
        assert greeting["text"] == "Hello, Ada!"

    def test_it_is_told_that_a_resource_is_missing(self, inspector: Inspector) -> None:
        error = inspector.ask("resources/read", "--uri", "config://nowhere", code=1)
        assert error["message"].endswith("resource not found: config://nowhere")

    def test_it_lists_and_gets_prompts(self, inspector: Inspector) -> None:
        [prompt] = inspector.ask("prompts/list")["prompts"]
        assert [a["name"] for a in prompt["arguments"]] == ["name", "style"]
        arguments = ("--prompt-name", "greet", "--prompt-args", "name=Zoë", "style=terse")
        messages = inspector.ask("prompts/get", *arguments)["messages"]
        assert messages[0]["content"] == {"type": "text", "text": "Greet Zoë in a terse way."}


class TestTheInspectorOnTheLegacyEra(Checks):
    @pytest.fixture
    def inspector(self, place: tuple[list[str], Path]) -> Inspector:
        return Inspector(place[0], "legacy", place[1])

    def test_it_sets_the_log_level(self, inspector: Inspector) -> None:
        assert inspector.ask("logging/setLevel", "--log-level", "warning") == {}


@pytest.mark.parametrize("place", ["http", "stdio"], indirect=True)
class TestTheInspectorOnTheModernEra(Checks):
    @pytest.fixture
    def inspector(self, place: tuple[list[str], Path]) -> Inspector:
        return Inspector(place[0], "modern", place[1])
