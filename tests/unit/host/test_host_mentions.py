"""`@server:resource args` in a message (R262-R266)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.until import PATIENCE

from trimaran import Host, Server
from trimaran.errors import Unauthorized
from trimaran.host import OutputLimits, ResourceUnknown, ServerUnavailable, TemplateArity

ERAS = ["modern", "legacy"]


class Library:
    """A server with things to read, and a book of what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.meanwhile: Callable[[str], object] = lambda method: None
        """Done before a call is answered."""
        self.server = Server("docs", version="1")

        @self.server.middleware
        async def note(call: Any, proceed: Any) -> Any:
            self.asked.append(call.method)
            self.meanwhile(call.method)
            return await proceed(call)

        add = self.server.add_resource
        add("docs://readme", lambda: "Read me.", name="readme", mime_type="text/markdown")
        add("docs://code.md", lambda: "```python\npass\n```", name="code.md")
        add("docs://logo", lambda: b"\x89PNG", name="logo", mime_type="image/png")
        add("docs://issues/{id}", lambda id: f"Issue {id}.", name="issue")
        add("docs://žluť/{a}/{b}/{+a}", lambda a, b: f"{a} and {b}", name="pair")

    def count(self, method: str) -> int:
        return self.asked.count(method)


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture(params=ERAS)
async def host(library: Library, request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    bare = Server("bare", version="1")
    bare.add_tool(lambda: "x", name="x")
    async with Host({"docs": library.server, "bare": bare}, environ={}, options={"era": request.param}) as host:
        yield host


async def test_a_mention_is_replaced_by_what_it_names(host: Host) -> None:
    """R264."""
    found = await host.expand("Sum up @docs:readme, please.")
    assert found.text == ("Sum up \n[docs://readme of the server docs, text/markdown]\n```\nRead me.\n```\n, please.")
    (mention,) = found.mentions
    assert (mention.server, mention.name, mention.uri, mention.text) == (
        "docs",
        "readme",
        "docs://readme",
        "@docs:readme",
    )
    assert found.problems == ()


async def test_nothing_is_listed_before_the_first_mention_and_then_once(host: Host, library: Library) -> None:
    """R262."""
    assert library.count("resources/list") == 0
    await host.expand("nothing here, ada@docs.example")
    assert library.count("resources/list") == 0
    await asyncio.gather(*(host.expand("@docs:readme") for _ in range(5)), host.complete_mention("@docs:"))
    await host.expand("@docs:issue 1")
    assert (library.count("resources/list"), library.count("resources/templates/list")) == (1, 1)


async def test_a_change_of_the_list_drops_what_is_known(host: Host, library: Library) -> None:
    """R263."""
    assert "@docs:news" not in await host.complete_mention("@docs:")
    library.server.add_resource("docs://news", lambda: "New.", name="news")
    async with asyncio.timeout(PATIENCE):
        while "@docs:news" not in await host.complete_mention("@docs:"):
            await asyncio.sleep(0.001)
    assert "New." in (await host.expand("@docs:news")).text
    assert library.count("resources/list") == 2


async def test_a_list_that_changed_while_it_was_read_is_read_again(host: Host, library: Library) -> None:
    """R263."""
    library.meanwhile = lambda method: host._mentions.forget("docs")  # pyright: ignore[reportPrivateUsage]
    await host.complete_mention("@docs:")
    library.meanwhile = lambda method: None
    for _ in range(2):
        await host.complete_mention("@docs:")
    assert library.count("resources/list") == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See @docs:issue 42.", "Issue 42."),
        ("See @docs:issue 42 and go on", "Issue 42."),
        ('See @docs:issue "4 2" now', "Issue 4 2."),
        ("@docs:pair x y", "x and y"),
        ("@docs:issue 42 @docs:readme", "Read me."),
        ('@docs:issue "@docs:readme"', "Issue @docs:readme."),
        ("(@docs:readme)", "Read me."),
        ("@docs:docs://readme", "Read me."),
        ("@docs:docs://issues/7!", "Issue 7."),
    ],
    ids=["end", "middle", "quoted", "two", "two-mentions", "quoted-mention", "brackets", "uri", "uri-of-template"],
)
async def test_words_after_a_template_fill_it_in(host: Host, text: str, expected: str) -> None:
    """R265, R266: the template has text that is not ASCII, and one placeholder twice."""
    found = await host.expand(text)
    assert expected in found.text
    assert found.problems == ()


async def test_text_of_a_template_that_is_not_ascii_stays(host: Host) -> None:
    """R266. A value is encoded as its expression says."""
    (mention,) = (await host.expand("@docs:pair ň y")).mentions
    assert mention.uri == "docs://žluť/%C5%88/y/%C5%88"


async def test_what_stands_behind_a_mention_stays(host: Host) -> None:
    assert (await host.expand("See @docs:issue 42, then rest")).text.endswith("\n, then rest")
    assert (await host.expand("A @docs:readme B")).text.endswith("\n B")


async def test_too_few_words_is_an_error_and_nothing_is_read(host: Host, library: Library) -> None:
    """R265."""
    with pytest.raises(TemplateArity, match=r"@docs:pair takes 2 words after it \(a, b\), and got 1") as wrong:
        await host.expand("@docs:readme and @docs:pair one\nnext line")
    assert (wrong.value.wanted, wrong.value.given) == (2, 1)
    with pytest.raises(TemplateArity, match=r"and got 1"):
        await host.expand("@docs:pair one @docs:issue 42")  # a mention is no word of another
    with pytest.raises(TemplateArity, match="takes 1 word after it, and got 2"):
        await host.read_resource("docs", "issue", "1", "2")
    assert library.count("resources/read") == 0
    assert (await host.read_resource("docs", "issue", "1")).text == "Issue 1."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("@nobody:readme", "there is no server 'nobody'"),
        ("@docs:nothing", "has no resource 'nothing'"),
        ("@bare:readme", "has no resource 'readme'"),
    ],
    ids=["server", "resource", "no-resources"],
)
async def test_what_is_not_known_is_told_and_left_alone(host: Host, text: str, told: str) -> None:
    """R266."""
    found = await host.expand(f"Look at {text} please")
    assert found.text == f"Look at {text} please"
    (problem,) = found.problems
    assert problem.startswith(f"{text}: ")
    assert told in problem
    with pytest.raises(ResourceUnknown):
        await host.read_resource(*text[1:].split(":"))


@pytest.mark.parametrize("text", ["mail ada@docs:readme", "@docs", "@@docs:readme", "@ docs:readme", "@Docs.x:readme"])
async def test_what_is_no_mention_is_left_alone(host: Host, text: str) -> None:
    found = await host.expand(text)
    assert (found.text, found.problems) == (text, ())


async def test_a_fence_holds_whatever_is_in_it(host: Host) -> None:
    assert "\n````\n```python" in (await host.expand("@docs:code.md")).text


async def test_what_is_not_text_is_named(host: Host) -> None:
    assert "[image/png, 4 bytes: not shown]" in (await host.expand("@docs:logo")).text


async def test_names_are_completed(host: Host) -> None:
    """R264."""
    assert await host.complete_mention("@") == ["@bare:", "@docs:"]
    assert await host.complete_mention("@d") == ["@docs:"]
    assert await host.complete_mention("@docs:") == [
        "@docs:code.md",
        "@docs:issue",
        "@docs:logo",
        "@docs:pair",
        "@docs:readme",
    ]
    assert await host.complete_mention("@docs:re") == ["@docs:readme"]
    assert await host.complete_mention("@nobody:") == []


async def test_a_server_that_is_off_is_told_of(host: Host) -> None:
    await host.disable("docs")
    (problem,) = (await host.expand("@docs:readme")).problems
    assert "disabled" in problem
    with pytest.raises(ServerUnavailable):
        await host.complete_mention("@docs:")


async def test_a_large_resource_is_cut(library: Library) -> None:
    """R270."""
    library.server.add_resource("docs://long", lambda: "word " * 1000, name="long")
    limits = OutputLimits(bytes=100)
    async with Host({"docs": library.server}, environ={}, limits=limits) as host:
        text = (await host.expand("@docs:long")).text
        assert "[truncated: 5000>100]" in text
        assert len(text) < 600


# --- words of a template ---------------------------------------------------------------------------------------------


def add_completions(library: Library) -> list[tuple[str, str, dict[str, str]]]:
    """Completion for the template `pair`; returns where it is noted what was asked."""
    asked: list[tuple[str, str, dict[str, str]]] = []
    template = "docs://žluť/{a}/{b}/{+a}"

    @library.server.completion(template=template, argument="a")
    def first(typed: str, filled: dict[str, str]) -> list[str]:
        asked.append(("a", typed, filled))
        return [one for one in ("north", "nadir", "south") if one.startswith(typed)]

    @library.server.completion(template=template, argument="b")
    def second(typed: str, filled: dict[str, str]) -> list[str]:
        asked.append(("b", typed, filled))
        return [f"{filled['a']}-{typed}"]

    return asked


@pytest.mark.parametrize("era", ERAS)
async def test_words_of_a_template_are_completed_by_the_server(library: Library, era: Any) -> None:
    asked = add_completions(library)
    async with Host({"docs": library.server}, environ={}, options={"era": era}) as host:
        assert await host.complete_argument("docs", "pair", [], "n") == ["north", "nadir"]
        assert await host.complete_argument("docs", "pair", ["north"], "x") == ["north-x"]
        assert asked == [("a", "n", {}), ("b", "x", {"a": "north"})]
        for server, name, words in (
            ("docs", "pair", ["a", "b"]),
            ("docs", "issue", []),
            ("docs", "readme", []),
            ("docs", "nothing", []),
            ("nobody", "pair", []),
        ):
            assert await host.complete_argument(server, name, words, "") == []
        assert len(asked) == 2


async def test_words_complete_to_nothing_where_the_server_cannot(host: Host) -> None:
    assert await host.complete_argument("docs", "issue", [], "") == []
    assert await host.complete_argument("bare", "issue", [], "") == []
    await host.disable("docs")
    assert await host.complete_argument("docs", "issue", [], "") == []


async def test_a_server_that_takes_its_time_completes_to_nothing(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimaran.host.mentions._SOON", 0.01)

    @library.server.completion(template="docs://issues/{id}", argument="id")
    async def never(typed: str) -> list[str]:
        await asyncio.Event().wait()
        return ["late"]

    async with asyncio.timeout(PATIENCE), Host({"docs": library.server}, environ={}) as host:
        assert await host.complete_argument("docs", "issue", [], "") == []


async def test_a_server_that_sends_what_is_no_completion_completes_to_nothing(library: Library) -> None:
    library.server.add_completion(lambda typed: ["x"], template="docs://issues/{id}", argument="id")

    @library.server.middleware("completion/complete")
    async def lie(call: Any, proceed: Any) -> Any:
        return {"completion": {"values": [7, None]}}

    async with Host({"docs": library.server}, environ={}) as host:
        assert await host.complete_argument("docs", "issue", [], "") == []


# --- what is found out on the way ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["list", "read", "complete"])
async def test_what_fails_on_the_way_is_told_to_whoever_watches_the_server(library: Library, how: str) -> None:
    """R218, R273: a login that ended, or a connection that broke, shows at once and not at the next look."""
    add_completions(library)
    changed = asyncio.Event()
    async with Host({"docs": library.server}, environ={}, on_change=changed.set) as host:
        client: Any = host.whereis("docs")
        server = host._servers["docs"]  # pyright: ignore[reportPrivateUsage]
        server._can_log_in = True  # pyright: ignore[reportPrivateUsage]

        async def refused(*_: Any, **__: Any) -> Any:
            raise Unauthorized("the token ended", status=401)

        if how != "list":
            await host.complete_mention("@docs:")
        method = {"list": "list_resources_all", "read": "read_resource", "complete": "complete"}[how]
        object.__setattr__(client, method, refused)
        if how == "complete":
            assert await host.complete_argument("docs", "pair", [], "n") == []
        else:
            assert "the token ended" in (await host.expand("@docs:readme")).problems[0]
        async with asyncio.timeout(PATIENCE):
            while host.status()[0].state != "needs_auth":
                changed.clear()
                await changed.wait()
