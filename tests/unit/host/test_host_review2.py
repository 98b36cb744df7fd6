"""What a hostile repository, a hostile server and a clumsy program tried with trust, lazy servers, forms and masks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimaran import Context, Host, Server, connect
from trimaran.errors import ConfigError, ConnectFailed, Error
from trimaran.host import (
    ConfigUnusable,
    Field,
    Form,
    HostConfig,
    Machine,
    PermissionDenied,
    Question,
    RuleEntry,
    ServerEntry,
    Source,
    Trust,
    load_config,
    plans,
    read_config,
)
from trimaran.host.environment import read_environment
from trimaran.host.plain import safe, visible
from trimaran.host.plans import plan_for
from trimaran.host.supervise import Supervised
from trimaran.protocol.mask import Mask, mask_arguments
from trimaran.schema.words import WordError, fit, parse_json, read_words

LIMIT = 5.0
PROJECT = """
[server.theirs]
command = "./theirs"

[server.theirs.permissions]
allow = ["look"]
deny = ["push"]

[server.off]
command = "off"
disabled = true
"""


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that a host starts: each is a server in this process, but for one that is missing."""
    found: list[str] = []

    def dial(target: Any, **options: Any) -> Any:
        found.append(target["command"])
        if target["command"] == "missing":
            raise ConnectFailed("there is no such program")
        server = Server("any", version="1")
        for name in ("look", "push"):
            server.add_tool(lambda: "ok", name=name)
        return connect(server, **options)

    monkeypatch.setattr(plans, "connect", dial)
    return found


async def soon(coming: Any) -> Any:
    async with asyncio.timeout(LIMIT):
        return await coming


def project(root: Path, text: str = PROJECT) -> Callable[[], HostConfig]:
    """A project with this file; returns what reads it."""
    file = root / ".trimaran" / "mcp.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return lambda: load_config(machine=Machine(home=str(root / "home"), workspace=str(root), environ={}))


def read(text: str, level: Any = "file", **environ: str) -> HostConfig:
    machine = Machine(home="/home/ada", workspace="/work", environ=environ)
    return read_config([(Source("mcp.toml", level), text)], machine)


def states(host: Host) -> dict[str, str]:
    return {status.name: status.state for status in host.status()}


# --- trust: where a file is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("linked", [".trimaran", ".trimaran/mcp.toml"], ids=["the folder", "the file"])
async def test_a_link_to_a_file_that_is_trusted_elsewhere_is_not_trusted(
    tmp_path: Path, started: list[str], linked: str
) -> None:
    """`./theirs` is another program here: a clone could bring the link along, and the program."""
    trust = Trust(tmp_path / "trusted.json")
    async with Host(project(tmp_path / "good")(), trust=trust, environ={}) as host:
        await soon(host.trust_project())
    assert started == ["./theirs"]
    link = tmp_path / "clone" / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "good" / linked)
    machine = Machine(home=str(tmp_path / "home"), workspace=str(tmp_path / "clone"), environ={})
    async with Host(load_config(machine=machine), trust=trust, environ={}) as host:
        assert host.untrusted_files == (str(tmp_path / "clone" / ".trimaran" / "mcp.toml"),)
    assert started == ["./theirs"]


def test_a_project_that_is_come_by_through_a_link_is_the_same(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trusted.json")
    (tmp_path / "good" / ".trimaran").mkdir(parents=True)
    (tmp_path / "short").symlink_to(tmp_path / "good")
    trust.add(str(tmp_path / "good" / ".trimaran" / "mcp.toml"), "1" * 64)
    assert trust.is_trusted(str(tmp_path / "short" / ".trimaran" / "mcp.toml"), "1" * 64)
    assert trust.remove(str(tmp_path / "short" / ".trimaran" / "mcp.toml"))


# --- trust: entries without their file -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [lambda config: config.servers, lambda config: HostConfig(servers=config.servers)], ids=["mapping", "bare"]
)
async def test_entries_of_a_project_are_not_trusted_without_their_file(
    tmp_path: Path, started: list[str], given: Callable[[HostConfig], Any]
) -> None:
    """Whoever passes on `config.servers` alone has lost the digest, and has not lost the question."""
    trust = Trust(tmp_path / "trusted.json")
    async with Host(given(project(tmp_path)()), trust=trust, environ={}) as host:
        assert states(host) == {"theirs": "disabled", "off": "disabled"}
        assert [one.what for one in host.untrusted] == ["./theirs", "off", "look"]
        with pytest.raises(ConfigError, match="not trusted yet"):
            await host.enable("theirs")
        assert started == []
        await soon(host.trust_project())
        assert states(host) == {"theirs": "connected", "off": "disabled"}
    assert trust.files() == {}  # what was trusted is not known, so it is asked about again


async def test_entries_that_are_given_by_name_keep_their_rules(tmp_path: Path) -> None:
    servers: Any = project(tmp_path)().servers
    async with Host(servers, allow=["*"], environ={}) as host:
        assert states(host) == {"theirs": "connected", "off": "disabled"}
        with pytest.raises(PermissionDenied, match="server deny push"):
            await soon(host.call("mcp__theirs__push"))


async def test_an_entry_of_a_file_that_was_read_again_is_not_what_was_trusted(
    tmp_path: Path, started: list[str]
) -> None:
    reading = project(tmp_path)
    async with Host(reading(), trust=Trust(tmp_path / "trusted.json"), environ={}) as host:
        await soon(host.trust_project())
        await soon(host.stop_server("theirs"))
        await soon(host.start_server("theirs", reading().servers["theirs"]))  # the same words
        await soon(host.stop_server("theirs"))
        project(tmp_path, PROJECT.replace("./theirs", "./evil"))
        with pytest.raises(ConfigError, match=r"mcp.toml:2 is not what this host was made with.*make a new Host"):
            await soon(host.start_server("theirs", reading().servers["theirs"]))
        assert "theirs" not in states(host)
    assert started == ["./theirs", "./theirs"]


async def test_an_entry_that_is_started_later_brings_its_rules_and_takes_them_along() -> None:
    entry = read(PROJECT).servers["theirs"]
    async with Host(allow=["mcp__theirs__push"], environ={}) as host:
        await soon(host.start_server("theirs", entry))
        assert (await soon(host.call("mcp__theirs__look"))).data == "ok"
        with pytest.raises(PermissionDenied, match="server deny push"):
            await soon(host.call("mcp__theirs__push"))
        await soon(host.stop_server("theirs"))
        await soon(host.start_server("theirs", {"command": "mine"}))
        assert (await soon(host.call("mcp__theirs__push"))).data == "ok"
        with pytest.raises(PermissionDenied):
            await soon(host.call("mcp__theirs__look"))


async def test_an_entry_with_a_rule_that_cannot_be_read_is_not_started(started: list[str]) -> None:
    source = Source("mcp.toml", "file")
    rule = RuleEntry(action="deny", pattern="", source=source)
    entry = ServerEntry(name="a", source=source, command="a", permissions=(rule,))
    async with Host(environ={}) as host:
        with pytest.raises(ConfigError, match=r"server.a.permissions.deny"):
            await soon(host.start_server("a", entry))
        assert (states(host), started) == ({}, [])


# --- trust: what a person is shown -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://eyJhbGciOiJIUzI1.evil.example/mcp", "https://eyJhbGciOiJIUzI1.evil.example/mcp"),
        ("https://sk-aaaaaaaaaaaaaaaaaaaa/mcp?k=hunter2", "https://sk-aaaaaaaaaaaaaaaaaaaa/mcp?k=***"),
        ("https://good.example@evil.example/mcp", "https://***@evil.example/mcp"),
        ("https://${HOST:-evil.example}/mcp", "https://${HOST:-evil.example}/mcp"),
    ],
)
def test_a_host_cannot_be_made_to_look_like_a_secret(url: str, shown: str) -> None:
    host = Host(read(f'[server.a]\ntransport = "http"\nurl = "{url}"', "project"), trust=False, environ={})
    assert [one.what for one in host.untrusted] == [shown]


@pytest.mark.parametrize("key", ["oauth", "oauth_config"])
def test_where_a_login_would_lead_and_what_it_would_tell_is_shown(key: str) -> None:
    mode = 'mode = "manual"' if key == "oauth" else ""
    text = f"""
    [server.a]
    transport = "http"
    url = "https://a.example/mcp"
    {'oauth = "manual"' if key != "oauth" else ""}
    [server.a.{key}]
    {mode}
    client_id = "a"
    client_secret = "x${{AWS_SECRET_ACCESS_KEY}}"
    auth_url = "https://login.example/a"
    token_url = "https://evil.example/t?k=hunter2"
    """
    (one,) = Host(read(text, "project", AWS_SECRET_ACCESS_KEY="hunter2"), trust=False, environ={}).untrusted
    assert {
        "oauth client_secret: ***${AWS_SECRET_ACCESS_KEY}",
        "oauth token_url: https://evil.example/t?k=***",
    } <= set(one.headers)
    assert "hunter2" not in str(one)


def test_what_a_server_that_cannot_be_used_yet_allows_is_shown_too() -> None:
    """Once the variable is set it is allowed, and the file is the one that was trusted."""
    text = '[server.a]\ncommand = "${NOT_SET}"\n[server.a.permissions]\nallow = ["erase", 7]\ndeny = ["x"]'
    host = Host(read(text, "project"), trust=False, environ={})
    assert [str(one) for one in host.untrusted if one.kind == "rule"] == ["allow erase of a (mcp.toml:1)"]


ESCAPES = """
"\\u001b[2Jtop" = 1
[server.a]
transport = "\\u001b[31mX"
"\\u001b]0;x\\u0007" = 1
[server.a.env]
"A\\nb" = "${NOT_SET}"
[server.b]
command = "b"
[server.b.permissions]
allow = ["a(\\u001b[2J"]
"""


async def test_what_is_said_about_a_file_cannot_touch_the_terminal() -> None:
    """It is said before anybody trusts it."""
    async with Host(read(ESCAPES, "project"), trust=False, environ={}) as host:
        told = [*host.problems(), *map(str, host.status()), *(status.reason for status in host.status())]
    assert "\\x1b[2Jtop" in told[0]
    assert all(line.isprintable() for text in told for line in text.split("\n"))
    assert "A\\nb" in "".join(told)
    with pytest.raises(ConfigUnusable) as caught:
        read('[server."\\u001b[2J"]\ncommand = "x"')
    assert str(caught.value).isprintable()


# --- what servers say ------------------------------------------------------------------------------------------------


async def test_why_a_server_failed_cannot_touch_the_terminal_nor_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def dial(**options: Any) -> Any:
        raise Error("\x1b[2Jno\r" + "x" * 1_000_000)

    server = Supervised("a", "stdio", dial, startup_timeout=LIMIT, call_timeout=LIMIT)
    caplog.set_level(logging.WARNING, "trimaran.host")
    server.start()
    await soon(server.settled())
    await soon(server.stop("failed", server.reason, for_good=True))
    assert server.reason.startswith("\\x1b[2Jno\\rx")
    assert len(server.reason) < 30_000
    assert "\x1b" not in caplog.text and len(caplog.text) < 50_000


def test_what_nobody_sees_is_spelled_out_and_what_scripts_need_is_not() -> None:
    assert safe("pay\u200bpal\u3164\ufeff\u00ad") == "pay\\u200bpal\\u3164\\ufeff\\xad"
    assert visible("a\u3164b\nc\u200d") == "a\\u3164b\\nc\\u200d"
    assert safe("می\u200cخواهم 👩\u200d🚀") == "می\u200cخواهم 👩\u200d🚀"


@pytest.mark.parametrize(
    "url", ["https://[::1/x", "https://good.example\uff0f@evil.example/", "https://@/x", "https://:80/x"]
)
async def test_a_page_whose_host_nobody_could_be_shown_is_declined(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.undo()
    desk = Server("desk", version="1")
    asked: list[Question] = []

    @desk.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit("Sign in", url=url)).action

    async with Host({"desk": desk}, allow=["*"], on_question=asked.append, environ={}) as host:
        assert (await soon(host.call("mcp__desk__visit"))).data == "decline"
    assert asked == []


async def test_what_a_completion_offers_can_be_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with a blank ends before it, and one with a mention in it would read what nobody mentioned."""
    monkeypatch.undo()
    docs = Server("docs", version="1")
    docs.add_resource("docs://plan", lambda: "Plan.", name="The plan")
    docs.add_resource("docs://a", lambda: "A.", name="twin")
    docs.add_resource("docs://b", lambda: "B.", name="twin")
    docs.add_resource("docs://trap", lambda: "Trap.", name="x\n@files:/secret")
    docs.add_resource("docs://pages/{id}", lambda id: f"Page {id}.", name="a page")
    async with Host({"docs": docs}, environ={}) as host:
        offered = await soon(host.complete_mention("@docs:"))
        assert offered == [
            "@docs:docs://a",
            "@docs:docs://b",
            "@docs:docs://pages/{id}",
            "@docs:docs://plan",
            "@docs:docs://trap",
        ]
        assert await soon(host.complete_mention("@docs:The")) == ["@docs:docs://plan"]
        found = await soon(host.expand(" 7 and ".join(offered)))
        assert ([one.uri for one in found.mentions], found.problems) == (
            ["docs://a", "docs://b", "docs://pages/7", "docs://plan", "docs://trap"],
            (),
        )


# --- servers that wait to be needed ----------------------------------------------------------------------------------

LAZY = '[server.late]\ncommand = "{}"\nlazy = true\n'


async def test_what_a_model_calls_starts_a_server_that_waits(started: list[str]) -> None:
    block = {"type": "tool_use", "id": "c1", "name": "mcp__late__look", "input": {}}
    async with Host(read(LAZY.format("late")), allow=["*"], environ={}) as host:
        call = host.from_call(block, "anthropic")
        assert started == []
        result = host.to_result(await soon(host.call(*call)), call, "anthropic")
        assert (result["tool_use_id"], started) == ("c1", ["late"])


async def test_a_model_is_told_that_a_server_that_waited_could_not_be_started() -> None:
    async with Host(read(LAZY.format("missing")), allow=["*"], environ={}) as host:
        call = host.from_call({"name": "mcp__late__look", "args": {}}, "gemini")
        with pytest.raises(Error, match="no such program") as caught:
            await soon(host.call(*call))
        told = host.to_result(caught.value, call, "gemini")
        assert "no such program" in str(told) and "mcp__late__look" in str(told)


class Mute:
    """A client of a server that never answers."""

    state = "connecting"

    async def open(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None: ...


async def test_a_call_that_waits_for_a_start_waits_for_the_one_that_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Any] = [Mute()]
    dial = plans.connect
    monkeypatch.setattr(plans, "connect", lambda target, **more: found.pop() if found else dial(target, **more))
    async with Host(read(LAZY.format("late")), allow=["*"], environ={}) as host:
        call = asyncio.create_task(host.call("mcp__late__look"))
        while states(host)["late"] != "starting" or found:
            await asyncio.sleep(0)
        await soon(host.reload("late"))
        assert (await soon(call)).data == "ok"


@pytest.mark.parametrize("way", ["close", "stop_server", "disable"])
async def test_whoever_waits_for_a_start_is_told_when_it_is_given_up(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(plans, "connect", lambda target, **more: Mute())
    async with Host(read(LAZY.format("late")), allow=["*"], environ={}) as host:
        call = asyncio.create_task(host.call("mcp__late__look"))
        while states(host)["late"] != "starting":
            await asyncio.sleep(0)
        reloading = asyncio.create_task(host.reload("late"))
        await asyncio.sleep(0)
        await soon(host.close() if way == "close" else getattr(host, way)("late"))
        with pytest.raises(Error):
            await soon(call)
        await soon(asyncio.wait((reloading,)))


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("TOKEN=hunter2", "TOKEN=***"),
        ("PASSWORD=hunter2", "PASSWORD=***"),
        ("key=hunter2", "key=***"),
        ("--env=API_KEY=hunter2", "--env=API_KEY=***"),
        ("-eAPI_KEY=hunter2", "-eAPI_KEY=***"),
        ("Authorization: Bearer hunter2", "Authorization: ***"),
        ("x-api-key:hunter2", "x-api-key:***"),
        ("--monkey-business", "--monkey-business"),
        ("token://hunter2", "token://hunter2"),
        ("notes: hunter2", "notes: hunter2"),
    ],
)
def test_an_argument_that_sets_a_secret_is_masked_however_it_sets_it(given: str, seen: str) -> None:
    assert mask_arguments(["run", given, "next"]) == ["run", seen, "next"]


@pytest.mark.parametrize(
    "text",
    ["-" + "auth" * 15_000 + "!", "KEY" * 20_000, "token" * 12_000, "https://a.example/?" + "a" * 60_000],
    ids=["flag", "setting", "header", "query"],
)
async def test_a_word_without_end_is_masked_soon(text: str) -> None:
    """A project's file is shown, masked, before anybody trusts it; what is slow here takes minutes."""
    made = asyncio.create_task(asyncio.to_thread(lambda: Mask(text, [text])))
    assert not (await soon(made))(text).endswith("***")


@pytest.mark.parametrize("kind", ["env", "headers"])
def test_a_secret_that_a_server_was_given_is_not_told_when_it_repeats_it(kind: str) -> None:
    target = {"command": "a"} if kind == "env" else {"transport": "http", "url": "https://a.example/mcp"}
    given = {"X-Auth-Token": "Bearer hunter2hunter2", "MODE": "production", "KEY": "short"}
    plan = plan_for("a", {**target, kind: given}, read_environment({}))
    text = "Bearer hunter2hunter2 / hunter2hunter2 is not known in production; shorts"
    assert plan.mask(text) == "*** / *** is not known in production; shorts"


def test_an_entry_is_masked_the_same() -> None:
    entry = read('[server.a]\ncommand = "a"\nenv = { API_KEY = "${K}" }', K="hunter2hunter2").servers["a"]
    assert isinstance(entry, ServerEntry)
    assert plan_for("a", entry, read_environment({})).mask("bad key hunter2hunter2") == "bad key ***"


# --- forms and words -------------------------------------------------------------------------------------------------

DEFINED = {
    "type": "object",
    "properties": {
        "port": {"$ref": "#/$defs/Port", "title": "Which port?"},
        "color": {"$ref": "#/$defs/Color"},
        "colors": {"type": "array", "items": {"$ref": "#/$defs/Color"}},
    },
    "$defs": {
        "Port": {"type": "integer", "maximum": 9, "default": 3},
        "Color": {"type": "string", "enum": ["red", "blue"]},
    },
}


def test_a_field_that_is_defined_elsewhere_in_the_form_can_be_filled_in() -> None:
    form = Form(DEFINED)
    assert [field.kind for field in form.fields] == ["integer", "choice", "choices"]
    assert form.fields[0].title == "Which port?"
    answer = {"port": 7, "color": "red", "colors": ["blue"]}
    assert form.read({"port": "7", "color": "RED", "colors": ["blue"]}) == (answer, {})
    assert not form.fields[0].has_default  # nobody would fill it in


@pytest.mark.parametrize(
    "schema",
    [{"allOf": [{"$ref": "#/$defs/Port"}]}, {"anyOf": [{"$ref": "#/$defs/Port"}, {"type": "null"}]}],
    ids=["all of one", "or null"],
)
def test_a_field_that_is_put_together_of_what_is_defined_elsewhere_can_be_filled_in(schema: dict[str, Any]) -> None:
    form = Form({**DEFINED, "properties": {"port": schema}})
    assert form.read({"port": "7"}) == ({"port": 7}, {})
    assert form.read({"port": "70"})[1].keys() == {"port"}


def test_a_reference_that_leads_nowhere_or_round_and_round_is_a_field_for_text() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/B"}},
        "$defs": {"A": {"$ref": "#/$defs/A"}},
    }
    assert [field.kind for field in Form(schema).fields] == ["text", "text"]


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [True, False], "default": True},
        {"enum": [{"x": 1}, "y"], "default": {"x": 1}},
        {"type": "array", "items": {"enum": ["a, b", "c"]}, "default": ["a, b"]},
    ],
    ids=["truth", "object", "comma"],
)
def test_a_default_among_choices_is_read_back_as_it_is_shown(schema: dict[str, Any]) -> None:
    field = Field("a", schema)
    assert field.read(field.default_text) == schema["default"]


def test_a_default_that_is_no_answer_does_not_stand_in_for_one() -> None:
    assert Field("a", {"type": "boolean", "default": "yes"}).read("yes") is True


def test_a_choice_is_by_value_before_it_is_by_title() -> None:
    field = Field("a", {"oneOf": [{"const": 1, "title": "2"}, {"const": 2, "title": "1"}]})
    assert (field.read("2"), field.read("1")) == (2, 1)
    assert Field("a", {"enum": [True, "yes"], "default": True}).read("yes") == "yes"


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "integer"}, "3.0", 3),
        ({"type": "integer"}, "1e3", 1000),
        ({"type": "number"}, "9007199254740993", 9007199254740993),
        ({"type": "string", "format": "date-time"}, "2026-07-28t10:00:00z", "2026-07-28t10:00:00z"),
    ],
)
def test_a_number_or_a_time_is_what_json_takes_for_one(schema: dict[str, Any], typed: str, value: Any) -> None:
    found = Field("a", schema).read(typed)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "typed"),
    [
        ({"type": "integer"}, "3.5"),
        ({"type": "integer"}, "1e300"),
        ({"type": ["string", "null"], "format": "date"}, "soon"),
    ],
)
def test_what_the_hint_rules_out_is_not_taken(schema: dict[str, Any], typed: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        Field("a", schema).read(typed)


def test_a_number_that_json_cannot_hold_is_not_sent_as_nothing() -> None:
    """1e999 would be infinite, and an infinite number is written as null."""
    with pytest.raises(WordError, match="1e999 is larger than any number"):
        parse_json("[1e999]", "a:")
    with pytest.raises(WordError, match="the tool wants a number"):
        fit(read_words(["a=-1e999"]), {"properties": {"a": {"type": "number"}}})
