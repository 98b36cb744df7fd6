"""A host with real servers: two from npm over stdio, one of the official SDK and one of FastMCP over HTTP, one of ours with
two hundred tools; and one that wants a login. What a person does with a host in a day, end to end, in one run; then each
thing by itself. Everything is configured by an `mcp.toml`, as a person would.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.until import soon

from trimaran import Host
from trimaran.errors import TransportError
from trimaran.host import ConsentBridge, PermissionDenied, Question, ServerUnavailable
from trimaran.oauth import Credentials
from trimaran.state import FileTokens

from .auth.authority import Authority, Person
from .auth.notes import guarded_notes
from .auth.peers import guarded
from .harness import DEADLINE
from .servers.places import (
    EVERYTHING,
    EVERYTHING_OVER_SSE,
    FASTMCP,
    FILESYSTEM_SCRIPT,
    LIMIT,
    NODE,
    SDK,
    Listening,
    Program,
    is_alive,
    need,
)

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
HEALING = 60.0  # seconds: where a server was slow to come back, the pauses between attempts have grown
ANSWERS = {"street": "Elm 1", "pay": "cash", "name": "Zoë"}


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    with SDK.over_http(tmp_path_factory.mktemp("sdk") / "log").running() as server:
        yield server


@pytest.fixture(scope="module")
def fastmcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    with FASTMCP.over_http(tmp_path_factory.mktemp("fastmcp") / "log").running() as server:
        yield server


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    authority = Authority()
    with authority.running():
        yield authority


def many(folder: Path) -> list[str]:
    script = folder / "many.py"
    script.write_text(MANY)
    return [sys.executable, str(script)]


def entry(name: str, command: list[str], more: str = "") -> str:
    program, *arguments = command
    quoted = ", ".join(f"'{argument}'" for argument in arguments)
    return f"[server.{name}]\ncommand = '{program}'\nargs = [{quoted}]\nstartup_timeout = '60s'\n{more}\n"


def place(name: str, url: str, more: str = "", *, transport: str = "http") -> str:
    return f"[server.{name}]\ntransport = '{transport}'\nurl = '{url}'\nstartup_timeout = '20s'\n{more}\n"


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

    async def until(self, is_so: Callable[[], bool], limit: float = LIMIT) -> None:
        async with asyncio.timeout(limit):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


class Desk:
    """Where questions come to: a person looks at each, and answers at once, unless told to wait."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.waits = False

    def __call__(self, question: Question) -> None:
        self.asked.append(question)
        if not self.waits:
            fill_in(question)

    async def next(self) -> Question:
        async with asyncio.timeout(LIMIT):
            while not self.asked:
                await asyncio.sleep(0)
        return self.asked.pop()


async def test_a_day_with_six_servers(tmp_path: Path, sdk: Listening, fastmcp: Listening, authority: Authority) -> None:
    """R216, R218-R221, R236, R239, R249, R257, R264, R271-R273, R275: all of it in one life of one host.

    The catalog, routed calls, the tiers of the rules, forms on both eras, a mention, output that is too large, a login and
    its refresh, a server that is killed and heals.
    """
    need(NODE, FILESYSTEM_SCRIPT)
    files = tmp_path / "files"
    files.mkdir()
    (files / "note.txt").write_text("žluťoučký kůň")
    desk, person, watching = Desk(), Person("grace"), Watching()
    store = FileTokens(tmp_path / "tokens")
    with guarded("python-sdk", authority, path="/opaque").running() as notes:
        config = write(
            tmp_path,
            entry("everything", EVERYTHING.over_pipes(tmp_path / "log")),
            entry("files", [str(NODE), str(FILESYSTEM_SCRIPT), str(files)]),
            "[server.files.permissions]\nallow = ['read_*', 'list_*']\nask = ['write_file']\n",
            entry("many", many(tmp_path), "output_limit = 1000"),
            place("sdk", sdk.url()),
            place("fastmcp", fastmcp.url()),
            place("notes", notes.url("/opaque"), "oauth = 'auto'"),
            "[server.notes.permissions]\nallow = ['whoami']\n",
            "[server.missing]\ncommand = './nowhere'\n",
            "[permissions]\nallow = ['mcp__everything__*', 'mcp__many__*', 'mcp__sdk__*', 'mcp__fastmcp__*']\n",
            "deny = ['mcp__*__move_file', 'mcp__files__write_file(*/secret*)']\n",
        )
        options: dict[str, Any] = {"on_question": desk, "on_change": watching.wake, "tokens": store, "login": person}
        async with Host.load(config, environ={}, **options) as host:
            found = {status.name: status for status in host.status()}
            there = ["everything", "fastmcp", "files", "many", "sdk"]
            assert host.connected() == there, [str(status) for status in found.values()]
            assert (found["missing"].state, found["missing"].retries) == ("failed", True)
            assert (found["notes"].state, found["notes"].tools) == ("needs_auth", 0)

            await catalog_and_calls(host, files)
            assert desk.asked == []
            await tiers(host, files, desk)
            await forms(host, desk)
            await mention_and_output(host)
            assert person.asked == []
            await login(host, store, authority)
            assert len(person.asked) == 1
            await heal(host, watching)
            assert len(person.asked) == 1
            assert host.connected() == sorted([*there, "notes"])

            assert "ahoy from many" in host.stderr("many")
            clients = [host.whereis(name) for name in ("everything", "files", "many")]
            pids = [client.pid for client in clients if client is not None and client.pid is not None]
            assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)


async def catalog_and_calls(host: Host, files: Path) -> None:
    """One catalog of all the servers (R219, R220, R271), and a call to each (R221)."""
    tools = {tool.name for tool in host.tools()}
    assert len(tools) > 250
    assert {
        "mcp__many__tool_199",
        "mcp__everything__get-sum",
        "mcp__sdk__add",
        "mcp__fastmcp__add",
        "mcp__files__read_text_file",
    } <= tools
    assert len(host.tools(format="openai")) == len(host.tools(format="gemini")) == len(tools)
    calls: dict[str, tuple[dict[str, Any], str]] = {
        "mcp__everything__get-sum": ({"a": 2, "b": 3}, "The sum of 2 and 3 is 5."),
        "mcp__files__read_text_file": ({"path": str(files / "note.txt")}, "žluťoučký kůň"),
        "mcp__many__tool_123": ({"text": "hi"}, "123: hi"),
        "mcp__sdk__add": ({"a": 2, "b": 3}, "5"),
        "mcp__fastmcp__add": ({"a": 2, "b": 3}, "5"),
    }
    results = await soon(asyncio.gather(*(host.call(name, given) for name, (given, _) in calls.items())))
    assert [result.text for result in results] == [expected for _, expected in calls.values()]


async def tiers(host: Host, files: Path, desk: Desk) -> None:
    """A call for every tier that these rules have (R239, R240); the person looks, and answers when told to."""
    target, secret = files / "new.txt", files / "secret.txt"
    for name, arguments, rule in (
        ("mcp__files__write_file", {"path": str(secret), "content": "x"}, "global deny mcp__files__write_file"),
        ("mcp__files__move_file", {"source": str(files), "destination": "/tmp/x"}, "global deny mcp__*__move_file"),
    ):
        with pytest.raises(PermissionDenied, match=rule.replace("*", r"\*")):
            await soon(host.call(name, arguments))
    assert desk.asked == []
    desk.waits = True
    for answer, exists in (("deny", False), ("allow", True)):
        call = asyncio.ensure_future(host.call("mcp__files__write_file", {"path": str(target), "content": "new"}))
        question = await desk.next()
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
    desk.waits = False
    assert not secret.exists()
    assert host.explain("mcp__files__create_directory").decision.tier.label == "default"
    assert host.explain("mcp__files__list_directory").decision.because.startswith("server allow list_*")
    assert host.explain("mcp__sdk__add").decision.because.startswith("global allow mcp__sdk__*")


async def forms(host: Host, desk: Desk) -> None:
    """Questions in the middle of a call, each answered through the bridge, by servers of either era (R257)."""
    for name, era, arguments, expected, asked in (
        ("mcp__sdk__order", "modern", {"item": "tea"}, "tea to Elm 1, floor 2, express False, cash", 2),
        ("mcp__everything__trigger-elicitation-request", "legacy", {}, '"name": "Zoë"', 1),
    ):
        client = host.whereis(host.find(name).server)
        assert client is not None
        assert client.era == era
        assert expected in (await soon(host.call(name, arguments))).text
        assert [question.kind for question in desk.asked] == ["elicit"] * asked
        desk.asked.clear()


async def mention_and_output(host: Host) -> None:
    """A resource and a template inlined (R264-R266), and a text that is too long to be passed on whole (R270)."""
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


async def login(host: Host, store: FileTokens, authority: Authority) -> None:
    """The tools of a guarded server come with the login (R254), which outlives its tokens (R249)."""
    before = {tool.name for tool in host.tools()}
    assert (await soon(host.authorize("notes"))).state == "connected"
    assert {tool.name for tool in host.tools()} - before == {"mcp__notes__whoami", "mcp__notes__write"}
    assert (await soon(host.call("mcp__notes__whoami"))).data["subject"] == "grace"
    [key] = await store.keys()
    token = Credentials.from_bytes(await store.load(key) or b"")
    assert token is not None
    await authority.expire(token.access_token)
    assert (await soon(host.call("mcp__notes__whoami"))).data["subject"] == "grace"
    renewed = Credentials.from_bytes(await store.load(key) or b"")
    assert renewed is not None
    assert renewed.access_token != token.access_token


async def heal(host: Host, watching: Watching) -> None:
    """One is killed and comes back by itself (R218); the others work meanwhile, and all names stay."""
    names = [tool.name for tool in host.tools()]
    pid = (await soon(host.call("mcp__many__pid"))).data
    os.kill(pid, signal.SIGKILL)
    await watching.until(lambda: "many" not in host.connected())
    assert not any(tool.name.startswith("mcp__many__") for tool in host.tools())
    assert (await soon(host.call("mcp__notes__whoami"))).data["subject"] == "grace"
    assert (await soon(host.call("mcp__sdk__add", {"a": 1, "b": 1}))).text == "2"
    await watching.until(lambda: "many" in host.connected())
    assert [tool.name for tool in host.tools()] == names
    assert (await soon(host.call("mcp__many__pid"))).data != pid


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
    async with Host({who: server.url()}, bridge=ConsentBridge(), **options) as host:
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
    config = write(tmp_path, entry("many", many(tmp_path)), place("sdk", sdk.url()))
    async with Host.load(config, allow=["*"], environ={}, on_change=watching.wake) as host:
        names = [tool.name for tool in host.tools()]
        pid = (await soon(host.call("mcp__many__pid"))).data
        os.kill(pid, signal.SIGKILL)
        await watching.until(lambda: host.connected() == ["sdk"])
        status = host.status()[0]
        assert (status.state, status.retries) == ("failed", True)
        assert (await soon(host.call("mcp__sdk__add", {"a": 1, "b": 1}))).text == "2"
        await watching.until(lambda: host.connected() == ["many", "sdk"])
        assert [tool.name for tool in host.tools()] == names
        again = (await soon(host.call("mcp__many__pid"))).data
        assert again != pid
        os.kill(again, signal.SIGKILL)
        await watching.until(lambda: host.connected() == ["sdk"])
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
            assert host.connected() == ["sdk"]
            server.kill()
            with pytest.raises(TransportError):
                await host.call("mcp__sdk__add", {"a": 1, "b": 1}, timeout=0.5)
            await watching.until(lambda: host.status()[0].state == "failed")
            await asyncio.to_thread(server.start)
            await watching.until(lambda: host.status()[0].state == "connected", HEALING)
            assert (await soon(host.call("mcp__sdk__add", {"a": 1, "b": 1}))).text == "2"


# --- HTTP+SSE --------------------------------------------------------------------------------------------------------


class OverSse(NamedTuple):
    """A server, and what to ask of it: tool, arguments, and something that is in the answer."""

    program: Program
    add: tuple[str, dict[str, Any], str]
    climb: tuple[str, dict[str, Any], str]
    ask: tuple[str, dict[str, Any], str]
    mention: tuple[str, str]


OVER_SSE = {
    "everything": OverSse(
        EVERYTHING_OVER_SSE,
        add=("get-sum", {"a": 2, "b": 3}, "The sum of 2 and 3 is 5."),
        climb=("trigger-long-running-operation", {"duration": 0.1, "steps": 3}, "completed"),
        ask=("trigger-elicitation-request", {}, '"name": "Zoë"'),
        mention=("features.md", "# Everything Server"),
    ),
    "sdk": OverSse(
        SDK,
        add=("add", {"a": 2, "b": 3}, "5"),
        climb=("count", {"to": 3}, "3"),
        ask=("order", {"item": "tea"}, "tea to Elm 1, floor 2, express False, cash"),
        mention=("greeting Zoë", "Hello, Zoë!"),
    ),
}


@pytest.mark.parametrize("who", OVER_SSE)
async def test_a_server_of_the_oldest_kind_is_one_like_the_others(tmp_path: Path, who: str) -> None:
    """R227, R236, R273, C38: configured as `transport = "sse"`, and nothing else is different; killed, told of, healed."""
    they, watching, desk = OVER_SSE[who], Watching(), Desk()
    with they.program.over_http(tmp_path / "log").running() as server:
        config = write(
            tmp_path,
            place(who, server.url("/sse"), "oauth = 'off'", transport="sse"),
            f"[server.{who}.permissions]\nallow = ['*']\ndeny = ['echo']\n",
        )

        async def get(host: Host, tool: str, given: dict[str, Any], expected: str, **options: Any) -> None:
            assert expected in (await soon(host.call(f"mcp__{who}__{tool}", given, **options))).text

        async with Host.load(config, environ={}, on_question=desk, on_change=watching.wake) as host:
            (status,) = host.status()
            assert (status.state, status.transport) == ("connected", "sse"), status.reason
            assert str(status) == f"● {who}: connected ({len(host.tools())} tools), sse"
            client = host.whereis(who)
            assert client is not None
            assert client.era == "legacy"
            names = [tool.name for tool in host.tools()]
            assert {f"mcp__{who}__{tool}" for tool in ("echo", they.add[0], they.ask[0])} <= set(names)

            await get(host, *they.add)
            seen: list[tuple[float, float | None]] = []
            await get(host, *they.climb, on_progress=lambda *said: seen.append(said[:2]))
            assert seen == [(1, 3), (2, 3), (3, 3)]
            await get(host, *they.ask)
            assert {question.kind for question in desk.asked} == {"elicit"}
            with pytest.raises(PermissionDenied, match="server deny echo"):
                await host.call(f"mcp__{who}__echo", {"message": "no"})
            resource, content = they.mention
            assert content in (await soon(host.expand(f"@{who}:{resource}"))).text

            server.kill()
            await watching.until(lambda: host.connected() == [])
            (status,) = host.status()
            assert (status.state, status.retries, host.tools()) == ("failed", True, [])
            await asyncio.to_thread(server.start)
            await watching.until(lambda: host.connected() == [who], HEALING)
            assert [tool.name for tool in host.tools()] == names
            await get(host, *they.add)
            await get(host, *they.ask)


async def test_whatever_the_transport_a_server_looks_the_same(tmp_path: Path, sdk: Listening) -> None:
    """R236: tools, rules, progress, results, failures and cancellation of one program that is reached in three ways."""
    config = write(
        tmp_path,
        entry("pipes", SDK.over_pipes(tmp_path / "log")),
        place("http", sdk.url()),
        place("sse", sdk.url("/sse"), transport="sse"),
        "[permissions]\nallow = ['*']\ndeny = ['mcp__*__echo']\n",
    )
    async with Host.load(config, environ={}) as host:
        assert {status.name: status.transport for status in host.status() if status.state == "connected"} == {
            "http": "http",
            "pipes": "stdio",
            "sse": "sse",
        }, [str(status) for status in host.status()]
        seen = [await seen_of(host, name) for name in host.connected()]
    assert seen[0] == seen[1] == seen[2]


async def seen_of(host: Host, name: str) -> dict[str, Any]:
    """What there is to see of a server."""
    own = f"mcp__{name}__"
    seen: dict[str, Any] = {}
    tools = [tool for tool in host.tools() if tool.name.startswith(own)]
    seen["tools"] = {tool.name.removeprefix(own): (tool.description, tool.input_schema) for tool in tools}
    for tool, given in (
        ("add", {"a": 2, "b": 3}),
        ("mixed", {}),
        ("weather", {"city": "Žilina"}),
        ("fail", {"reason": "x"}),
    ):
        result = await soon(host.call(own + tool, given))
        seen[tool] = ([type(block).__name__ for block in result.content], result.text, result.data, result.is_error)
    assert seen["fail"][-1] is True
    said: list[Any] = []
    await soon(host.call(f"{own}count", {"to": 3}, on_progress=lambda *one: said.append(one)))
    assert len(said) == 3
    seen["progress"] = said
    with pytest.raises(PermissionDenied, match=r"global deny mcp__\*__echo"):
        await host.call(f"{own}echo", {"text": "x"})

    began = asyncio.Event()
    call = asyncio.ensure_future(host.call(f"{own}wait", {"name": f"of-{name}"}, on_progress=lambda *_: began.set()))
    await soon(began.wait())
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert call.cancelled()
    assert (await soon(host.call(f"{own}has_stopped", {"name": f"of-{name}"}))).text == "true"
    return seen


# --- a login ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def guarded_host(url: str, folder: Path, authority: Authority, person: Person) -> AsyncIterator[Host]:
    secret = authority.app
    config = write(
        folder,
        place("notes", url),
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
