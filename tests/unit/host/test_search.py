"""`ToolIndex`: what is found for which words, on a catalog of our own; and the bounds that hostile texts meet."""

from __future__ import annotations

import pytest

from trimaran.host.context.search import ToolIndex
from trimaran.host.context.search_terms import query_terms, split_terms, stem, steps_of
from trimaran.host.names import Address
from trimaran.types import Tool


def tool(name: str, description: str = "", **arguments: str) -> Tool:
    properties = {argument: {"type": "string", "description": text} for argument, text in arguments.items()}
    return Tool(name=name, description=description, input_schema={"type": "object", "properties": properties})


CATALOG = {
    "mail": [
        tool("send_message", "Send an email to one or more people.", to="Addresses", body="The text"),
        tool("list_messages", "List the messages of a mailbox, newest first."),
        tool("delete_message", "Remove a message for good.", id="The message"),
    ],
    "files": [
        tool("read_file", "Return the content of a file.", path="Where it is"),
        tool("write_file", "Create a file, or replace its content.", path="Where", content="What"),
        tool("list_directory", "The entries of a directory."),
    ],
    "pictures": [
        tool("resizeImage", "Change the size of an image.", width="Pixels"),
        tool("getEXIFData", "The camera's data in a JPEG file."),
    ],
    "xinwen": [tool("get-tt-rank", "获取头条新闻热榜"), tool("cook", "根据人数推荐菜谱")],
    "numbers": [tool("calculate", "Evaluate an expression.", expression="Such as 2 + 2")],
}


@pytest.fixture(scope="module")
def index() -> ToolIndex:
    index = ToolIndex()
    for server, tools in CATALOG.items():
        index.update(server, tools)
    return index


def first(index: ToolIndex, query: str) -> str:
    return index.search(query)[0].address.tool


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("send a mail", "send_message"),
        ("erase an old message", "delete_message"),
        ("save the report to /tmp/reports/today.md", "write_file"),
        ("open notes.txt", "read_file"),
        ("show the folder", "list_directory"),
        ("make the photo smaller: resize", "resizeImage"),
        ("exif", "getEXIFData"),
        ("today's headline news", "get-tt-rank"),
        ("recommend a dish", "cook"),
        ("caculate the sum", "calculate"),
        ("deletes messages", "delete_message"),
    ],
)
def test_the_right_tool_is_first(index: ToolIndex, query: str, expected: str) -> None:
    assert first(index, query) == expected


def test_a_word_that_no_tool_knows_finds_nothing(index: ToolIndex) -> None:
    assert index.search("zzxqv") == []
    assert index.search("") == []
    assert index.search("the of and") == []


def test_the_limit_and_the_filter_hold(index: ToolIndex) -> None:
    assert len(index.search("message", 2)) == 2
    assert index.search("message", 0) == []
    matches = index.search("message", among=lambda address: address.tool.startswith("list"))
    assert [match.address for match in matches] == [Address("mail", "list_messages")]


def test_each_step_of_a_query_has_its_tool_among_the_first(index: ToolIndex) -> None:
    query = "Remove the message of the mailbox, the email to Anna, for good. Then make the picture smaller."
    assert {match.address.tool for match in index.search(query, 2)} == {"delete_message", "resizeImage"}


@pytest.mark.parametrize(
    ("query", "steps"),
    [
        ("find the train and the hotel", 1),
        ("find the train, then book a hotel", 2),
        ("find the train, and book a hotel there", 2),
        ("Find the train. Thanks!", 1),
        ("查询火车票。预订附近的酒店。", 0),  # no blanks between words: the whole query is the step
        ("do this thing. " * 1000, 8),
        ("many words " * 100 + ". one more step", 0),
    ],
)
def test_a_query_is_cut_into_a_few_steps(query: str, steps: int) -> None:
    assert len(steps_of(query)) == steps


def test_a_short_word_is_no_typing_error() -> None:
    index = ToolIndex()
    index.update("pdf", [tool("join_files", "Join several files.")])
    index.update("people", [tool("find_person", "Find a person by the name.")])
    assert [match.address.tool for match in index.search("a person called John")] == ["find_person"]


def test_scores_fall(index: ToolIndex) -> None:
    scores = [match.score for match in index.search("list messages of a file", 20)]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) > 3


def test_a_server_can_change_and_go() -> None:
    index = ToolIndex()
    index.update("a", [tool("send_mail")])
    index.update("b", [tool("read_file")])
    index.update("a", [tool("play_chess")])
    assert index.search("mail") == []
    assert first(index, "chess") == "play_chess"
    index.remove("a")
    index.remove("never there")
    assert index.search("chess") == []
    assert len(index) == 1


def test_words_of_the_server_count() -> None:
    index = ToolIndex()
    index.update("one", [tool("search", "Search.")], about="Train tickets in Europe.")
    index.update("two", [tool("search", "Search.")], about="Clinical trials.")
    assert index.search("search for a train")[0].address == Address("one", "search")


def test_a_word_that_is_used_alike_is_a_weak_sign() -> None:
    index = ToolIndex()
    index.update("a", [tool("list_contracts", "The contracts of a firm."), tool("cook", "Cook a dish.")])
    assert first(index, "closed deals") == "list_contracts"
    index.update("b", [tool("list_deals", "The deals of a firm.")])
    assert first(index, "closed deals") == "list_deals"


def test_a_tool_does_what_both_of_its_verbs_say() -> None:
    index = ToolIndex()
    index.update("a", [tool("search_and_replace", "Of a document."), tool("replace_all_styles", "Of a document.")])
    assert first(index, "replace in the document") == "search_and_replace"


def test_the_second_tool_of_one_name_gives_way() -> None:
    index = ToolIndex()
    for server in ("a", "b", "c"):
        index.update(server, [tool("write_file", "Write a file.")])
    index.update("d", [tool("append_file", "Write more to a file.")])
    names = [match.address.tool for match in index.search("write a file", 2)]
    assert names == ["write_file", "append_file"]


def test_only_the_beginning_of_a_huge_text_is_read() -> None:
    """A megabyte of words costs what a page does, and its end is not found."""
    index = ToolIndex()
    filler = "lorem ipsum " * 90_000
    index.update("big", [tool("x" * 100_000, filler + "needle"), tool("short", filler, **{"a" * 10_000: filler})])
    assert index.search("needle") == []
    assert first(index, "short lorem") == "short"
    assert index.search("lorem " * 200_000)


def test_common_words_of_many_tools_do_not_hide_a_rare_one() -> None:
    index = ToolIndex()
    index.update("many", [tool(f"get_item_{number}", "Get an item.") for number in range(1500)])
    index.update("rare", [tool("get_telescope", "Get an item for stars.")])
    assert first(index, "get the item telescope") == "get_telescope"


@pytest.mark.parametrize(
    "schema", [{"properties": 5}, {"properties": {"a": 7, "b": {"enum": "x", "description": 4}}}, {}]
)
def test_an_odd_schema_is_indexed(schema: dict[str, object]) -> None:
    index = ToolIndex()
    index.update("odd", [Tool(name="odd_tool", input_schema=schema)])  # pyright: ignore[reportArgumentType]
    assert first(index, "odd") == "odd_tool"


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("getUserNames", ["get", "user", "nam"]),
        ("HTTPServer_v2", ["http", "serv", "v", "2"]),
        ("", []),
        ("获取新闻", ["get", "new"]),
    ],
)
def test_texts_become_terms(text: str, terms: list[str]) -> None:
    assert split_terms(text) == terms


@pytest.mark.parametrize(
    "forms", [("search", "searches", "searching", "searcher"), ("query", "queries"), ("run", "running")]
)
def test_the_forms_of_a_word_share_a_stem(forms: tuple[str, ...]) -> None:
    assert len({stem(form) for form in forms}) == 1


def test_a_path_stands_for_the_kind_of_its_file() -> None:
    terms, actions = query_terms("write it to /home/me/bill.docx")
    assert terms == ["writ", "path", "word", "docu"]
    assert actions == {"write"}


def test_a_long_run_of_slashes_is_read_in_time() -> None:
    assert query_terms("a/" * 1000 + "!")[0]
