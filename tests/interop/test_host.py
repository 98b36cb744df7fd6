"""A host with real servers: two from npm over stdio, one of the official SDK and one of FastMCP over HTTP, one of ours with
two hundred tools; and one that wants a login. What a person does with a host in a day, end to end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from trimaran import Host
from trimaran.errors import TransportError
from trimaran.host import Bridge, PermissionDenied, Question, ServerUnavailable
from trimaran.oauth import Credentials
from trimaran.state import FileTokens

from .auth.authority import Authority, Person
from .auth.notes import guarded_notes
from .harness import DEADLINE
from .servers.places import EVERYTHING, FASTMCP, FILESYSTEM_SCRIPT, LIMIT, NODE, SDK, Listening, is_alive, need, soon

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]

MANY = """
import os, sys
from trimaran import Server
server = Server("many", version="1", page_size=64)
def make(number):
    def tool(text: str = "") -> str:
        return f"{number}: {text}"
    return tool
for number in range(200):
    server.add_tool(make(number), name=f"tool_{number}")
@server.tool
def pid() -> int:
    return os.getpid()
print("ahoy from many", file=sys.stderr)
server.run()
"""
ANSWERS = {"street": "Elm 1", "pay": "cash"}


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    with SDK.over_http(tmp_path_factory.mktemp("sdk") / "log").running() as server:
        yield server


@pytest.fixture(scope="module")
def fastmcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    with FASTMCP.over_http(tmp_path_factory.mktemp("fastmcp") / "log").running() as server:
        yield server


def many(folder: Path) -> list[str]:
    script = folder / "many.py"
    script.write_text(MANY)
    return [sys.executable, str(script)]


def entry(name: str, command: list[str], more: str = "") -> str:
    program, *arguments = command
    quoted = ", ".join(f"'{argument}'" for argument in arguments)
    return f"[server.{name}]\ncommand = '{program}'\nargs = [{quoted}]\nstartup_timeout = '60s'\n{more}\n"


def write(folder: Path, *entries: str) -> Path:
    file = folder / "mcp.toml"
    file.write_text("\n".join(entries))
    return file


def fill_in(question: Question) -> None:
    """A person in a good mood and of few words."""
    if question.kind == "permission":
        question.allow()
    else:
        known: Any = question.schema.get("properties", {})
        question.accept({field: ANSWERS[field] for field in known if field in ANSWERS})


class Watching:
    """Waits until something is so, woken by the host."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self.wake = self._changed.set

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


async def test_a_day_with_five_servers(tmp_path: Path, sdk: Listening, fastmcp: Listening) -> None:
    """R216-R221, R236, R239, R262-R266, R271-R275: catalog, routing, rules, mention, output, children."""
    need(NODE, FILESYSTEM_SCRIPT)
    files = tmp_path / "files"
    files.mkdir()
    (files / "note.txt").write_text("žluťoučký kůň")
    config = write(
        tmp_path,
        entry("everything", EVERYTHING.over_pipes(tmp_path / "log")),
        entry("files", [str(NODE), str(FILESYSTEM_SCRIPT), str(files)]),
        "[server.files.permissions]\nallow = ['read_*', 'list_*']\nask = ['write_file']\n",
        entry("many", many(tmp_path), "output_limit = 1000"),
        f"[server.sdk]\ntransport = 'http'\nurl = '{sdk.url()}'\nstartup_timeout = '60s'\n",
        f"[server.fastmcp]\ntransport = 'http'\nurl = '{fastmcp.url()}'\nstartup_timeout = '60s'\n",
        "[server.missing]\ncommand = './nowhere'\n",
        "[permissions]\nallow = ['mcp__everything__*', 'mcp__many__*', 'mcp__sdk__*', 'mcp__fastmcp__*']\n",
        "deny = ['mcp__*__move_file', 'mcp__files__write_file(*/secret*)']\n",
    )
    asked: list[Question] = []
    async with Host.load(config, on_question=asked.append, environ={}) as host:
        found = {status.name: status for status in host.status()}
        assert [name for name, status in found.items() if status.state == "connected"] == [
            "everything",
            "fastmcp",
            "files",
            "many",
            "sdk",
        ], [str(status) for status in found.values()]
        assert (found["missing"].state, found["missing"].retries) == ("failed", True)

        tools = {tool.name for tool in host.tools()}
        assert len(tools) > 250
        assert {
            "mcp__many__tool_199",
            "mcp__everything__get-sum",
            "mcp__sdk__add",
            "mcp__files__read_text_file",
        } <= tools
        assert len(host.tools(format="openai")) == len(host.tools(format="gemini")) == len(tools)

        path = str(files / "note.txt")
        calls: dict[str, tuple[dict[str, Any], str]] = {
            "mcp__everything__get-sum": ({"a": 2, "b": 3}, "The sum of 2 and 3 is 5."),
            "mcp__files__read_text_file": ({"path": path}, "žluťoučký kůň"),
            "mcp__many__tool_123": ({"text": "hi"}, "123: hi"),
            "mcp__sdk__add": ({"a": 2, "b": 3}, "5"),
            "mcp__fastmcp__add": ({"a": 2, "b": 3}, "5"),
        }
        results = await soon(asyncio.gather(*(host.call(name, given) for name, (given, _) in calls.items())))
        assert [result.text for result in results] == [expected for _, expected in calls.values()]
        assert asked == []

        await tiers(host, files, asked)

        expanded = await soon(host.expand("Read @everything:features.md and @sdk:greeting Zoë, and @files:x"))
        assert "# Everything Server" in expanded.text
        assert "Hello, Zoë!" in expanded.text
        assert [mention.server for mention in expanded.mentions] == ["everything", "sdk"]
        (problem,) = expanded.problems
        assert problem.startswith("@files:x: ")

        cut = await soon(host.call("mcp__many__tool_1", {"text": "word " * 1000}))
        assert "[truncated: 5003>1000]" in cut.text
        output_id = cut.text.partition("kept as output ")[2].partition(":")[0]
        assert host.output(output_id, limit=10_000).text == "1: " + "word " * 1000

        assert "ahoy from many" in host.stderr("many")
        pids = [client.pid for name in ("everything", "files", "many") if (client := host.whereis(name)) is not None]
        assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids if pid is not None)


async def tiers(host: Host, files: Path, asked: list[Question]) -> None:
    """One call for each tier of the rules (R239, R240); `asked` is a person who looks, and answers when told to."""
    target, secret = files / "new.txt", files / "secret.txt"
    for name, arguments, rule in (
        ("mcp__files__write_file", {"path": str(secret), "content": "x"}, "global deny mcp__files__write_file"),
        ("mcp__files__move_file", {"source": str(files), "destination": "/tmp/x"}, "global deny mcp__*__move_file"),
    ):
        with pytest.raises(PermissionDenied, match=rule.replace("*", r"\*")):
            await soon(host.call(name, arguments))
    assert asked == []
    for answer, exists in (("deny", False), ("allow", True)):
        call = asyncio.ensure_future(host.call("mcp__files__write_file", {"path": str(target), "content": "new"}))
        async with asyncio.timeout(LIMIT):
            while not asked:
                await asyncio.sleep(0)
        question = asked.pop()
        assert question.decision is not None
        assert "server ask write_file" in question.decision.because
        assert not target.exists()
        getattr(question, answer)()
        if exists:
            await soon(call)
        else:
            with pytest.raises(PermissionDenied, match="refused by the person"):
                await soon(call)
        assert target.exists() is exists
    assert host.explain("mcp__files__create_directory").decision.tier.label == "default"
    assert host.explain("mcp__files__list_directory").decision.because.startswith("server allow list_*")


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("who", ["sdk", "fastmcp"])
async def test_a_form_is_answered_through_the_bridge(request: pytest.FixtureRequest, who: str, era: str) -> None:
    """R257, R260: two questions in one call; the answers arrive, and so do noes."""
    server: Listening = request.getfixturevalue(who)
    asked: list[str] = []

    def person(question: Question) -> None:
        asked.append(f"{question.kind} {question.server}: {question.message}")
        fill_in(question)

    options = {"environ": {"TRIMARAN_MCP_TIMEOUT": "20s"}, "options": {"era": era}, "allow": ["*"]}
    async with Host({who: server.url()}, on_question=person, **options) as host:
        result = await soon(host.call(f"mcp__{who}__order", {"item": "tea"}))
        assert result.text == "tea to Elm 1, floor 2, express False, cash"
        assert asked == [f"elicit {who}: Where shall tea go?", f"elicit {who}: How will you pay?"]
    async with Host({who: server.url()}, on_question=person, deny=[f"Elicit({who})"], **options) as host:
        assert (await soon(host.call(f"mcp__{who}__order", {"item": "tea"}))).text == "tea: decline"
        assert len(asked) == 2
    async with Host({who: server.url()}, bridge=Bridge(), **options) as host:
        assert (await soon(host.call(f"mcp__{who}__order", {"item": "tea"}))).text == "tea: decline"


async def test_a_page_is_shown_before_it_is_visited(tmp_path: Path) -> None:
    """By a server of the first generation, over stdio, which asks those who can be asked."""
    asked: list[Question] = []

    def person(question: Question) -> None:
        asked.append(question)
        question.accept()

    config = write(tmp_path, entry("everything", EVERYTHING.over_pipes(tmp_path / "log")))
    async with Host.load(config, on_question=person, allow=["*"], environ={}) as host:
        arguments = {"url": "https://example.com/form", "elicitationId": "form-1"}
        result = await soon(host.call("mcp__everything__trigger-url-elicitation", arguments))
        assert "User completed the URL elicitation flow" in result.text
    (question,) = asked
    assert (question.kind, question.url, question.host) == ("url", "https://example.com/form", "example.com")
    async with Host.load(config, allow=["*"], environ={}) as host:
        assert "mcp__everything__trigger-url-elicitation" not in {tool.name for tool in host.tools()}


async def test_a_killed_child_heals_and_the_others_notice_nothing(tmp_path: Path, sdk: Listening) -> None:
    """R218, R272, R275."""
    watching = Watching()
    there = f"[server.sdk]\ntransport = 'http'\nurl = '{sdk.url()}'\nstartup_timeout = '20s'\n"
    config = write(tmp_path, entry("many", many(tmp_path)), there)
    async with Host.load(config, allow=["*"], environ={}, on_change=watching.wake) as host:
        names = [tool.name for tool in host.tools()]
        pid = (await soon(host.call("mcp__many__pid"))).data
        os.kill(pid, signal.SIGKILL)
        await watching.until(lambda: host.list_clients() == ["sdk"])
        status = host.status()[0]
        assert (status.state, status.retries) == ("failed", True)
        assert (await soon(host.call("mcp__sdk__add", {"a": 1, "b": 1}))).text == "2"
        await watching.until(lambda: host.list_clients() == ["many", "sdk"])
        assert [tool.name for tool in host.tools()] == names
        again = (await soon(host.call("mcp__many__pid"))).data
        assert again != pid
        os.kill(again, signal.SIGKILL)
        await watching.until(lambda: host.list_clients() == ["sdk"])
        third = (await soon(host.call("mcp__many__pid"))).data  # a call that comes too early waits
        assert third not in (pid, again)
    assert not is_alive(third)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_killed_http_server_is_told_of_and_heals(tmp_path: Path, era: str) -> None:
    """R218, R272: the first call that fails makes the host look."""
    watching = Watching()
    with SDK.over_http(tmp_path / "log").running() as server:
        options = {"environ": {"TRIMARAN_MCP_TIMEOUT": "20s"}, "options": {"era": era}, "allow": ["*"]}
        async with Host({"sdk": server.url()}, on_change=watching.wake, **options) as host:
            assert host.list_clients() == ["sdk"]
            server.kill()
            with pytest.raises(TransportError):
                await host.call("mcp__sdk__add", {"a": 1, "b": 1}, timeout=0.5)
            await watching.until(lambda: host.status()[0].state == "failed")
            await asyncio.to_thread(server.start)
            await watching.until(lambda: host.status()[0].state == "connected")
            assert (await soon(host.call("mcp__sdk__add", {"a": 1, "b": 1}))).text == "2"


# --- a login ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    authority = Authority()
    with authority.running():
        yield authority


@asynccontextmanager
async def guarded_host(url: str, folder: Path, authority: Authority, person: Person) -> AsyncIterator[Host]:
    secret = authority.app
    config = write(
        folder,
        f"[server.notes]\ntransport = 'http'\nurl = '{url}'\nstartup_timeout = '20s'\n",
        f"[server.notes.oauth_config]\nclient_id = '{secret['client_id']}'\nclient_secret = '{secret['client_secret']}'\n",
    )
    async with Host.load(config, tokens=FileTokens(folder / "tokens"), login=person, allow=["*"], environ={}) as host:
        yield host


async def test_a_login_is_asked_for_made_kept_and_refreshed(tmp_path: Path, authority: Authority) -> None:
    """R249, R254-R256, R273, C31, C33: silent until a 401, never interactive by itself."""
    person = Person("grace")
    store = FileTokens(tmp_path / "tokens")
    async with guarded_notes(authority, opaque=True) as url:
        async with guarded_host(url, tmp_path, authority, person) as host:
            (status,) = host.status()
            assert (status.state, status.text, status.glyph) == ("needs_auth", "needs re-auth", "◐")
            assert person.asked == []
            with pytest.raises(ServerUnavailable, match=r"host.authorize\('notes'\)"):
                await host.complete_mention("@notes:")
            assert (await soon(host.authorize("notes"))).state == "connected"
            assert len(person.asked) == 1
            assert (await soon(host.call("mcp__notes__whoami"))).data["subject"] == "grace"
            (key,) = await store.keys()
            assert key.startswith("notes:")
            held = Credentials.from_bytes(await store.load(key) or b"")
            assert held is not None
            await authority.expire(held.access_token)
            assert (await soon(host.call("mcp__notes__whoami"))).data["subject"] == "grace"
        async with guarded_host(url, tmp_path, authority, person) as host:
            assert host.status()[0].state == "connected"
            assert (await soon(host.call("mcp__notes__whoami"))).data["subject"] == "grace"
    assert len(person.asked) == 1
