"""Names for the tools of many servers, and back (R219, R221, R226, R238, R271, C28, C40)."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trimaran.errors import ConfigError
from trimaran.host.names import (
    Address,
    Names,
    UnknownName,
    check_server_name,
    join_name,
    name_problem,
    rule_name,
    safe_name,
    safe_names,
    split_name,
)

SAFE = re.compile("[A-Za-z0-9_-]{1,40}")
ACCEPTED = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
LONG = "list_all_of_the_things_that_anybody_ever_put_into_any_of_the_lists_there_are"

# Few letters, so that names that would collide are found.
servers = st.text("a_1", min_size=1, max_size=5).filter(lambda name: not name_problem(name))
tools = st.text("ab_.", min_size=1, max_size=4) | st.sampled_from(["größe", "a" * 60, "a" * 59 + ".", LONG, LONG + "2"])
catalogs = st.dictionaries(servers, st.sets(tools, max_size=4), max_size=3)
separators = st.sampled_from([None, ":", "::", "__", "_", "."])


# --- names of servers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("a", "a"),
        ("0", "0"),
        ("my-server_2", "my-server_2"),
        ("GitHub", "GitHub"),
        ("x" * 40, "x" * 40),
        ("awslabs.aws-documentation-mcp-server", "awslabs_aws-documentation-mcp-server"),
        ("@scope/pkg", "scope_pkg"),
        ("My files (work)", "My_files_work"),
        ("größe", "gro_e"),
        ("Café", "Cafe"),
        ("a_.b", "a_b"),
        ("io.github.user/server", "io_github_user_server"),
        ("x" * 41, "x" * 31 + "_bf1f9ff2"),
        ("日本", "server_3b7c3e92"),
    ],
)
def test_a_server_is_called_what_people_call_it_and_has_a_safe_name(name: str, safe: str) -> None:
    """R226, C28."""
    assert check_server_name(name) == name
    made = safe_name(name)
    assert made[:-8] + "*" * 8 == safe[:-8] + "*" * 8 if re.search("_[0-9a-f]{8}$", safe) else made == safe
    assert SAFE.fullmatch(made)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is empty"),
        (" a", "neither begins nor ends with a blank: write 'a'"),
        ("a\n", "U+000A as its character 2"),
        ("a\x00b", "U+0000"),
        ("a\u200bb", "U+200B"),
        ("a\u202eb", "U+202E"),
        ("a\ud800b", "U+D800"),
        ("x" * 201, "at most 200 characters, and this one has 201"),
    ],
    ids=["empty", "blank", "line end", "nul", "zero width", "right to left", "surrogate", "long"],
)
def test_a_name_that_cannot_be_is_refused_with_the_reason(name: str, why: str) -> None:
    """R226."""
    with pytest.raises(ConfigError, match=re.escape(why)):
        check_server_name(name)


def test_servers_that_would_share_a_safe_name_are_told_apart_in_any_order() -> None:
    """C28: one of exactly that name has it; the others get a digest."""
    servers = ["a.b", "a_b", "a b", "a/b", "c.d"]
    safe = safe_names(servers)
    assert safe["a_b"] == "a_b"
    assert safe["c.d"] == "c_d"
    assert len(set(safe.values())) == len(servers)
    assert all(re.fullmatch("a_b_[0-9a-f]{8}", safe[server]) for server in ("a.b", "a b", "a/b"))
    assert safe_names(reversed(servers)) == safe
    assert safe_names(["x", safe["a.b"], "a.b", "a_b"])["a.b"] not in ("a_b", safe["a.b"])


def test_a_safe_name_stays_when_a_namesake_comes() -> None:
    first = safe_names(["a.b"])
    both = safe_names(["a_b"], first)
    assert both["a.b"] == "a_b"
    assert re.fullmatch("a_b_[0-9a-f]{8}", both["a_b"])


@given(st.sets(st.text("ab._ é@", min_size=1, max_size=5).filter(lambda name: name == name.strip()), max_size=6))
def test_every_server_has_a_safe_name_of_its_own(names: set[str]) -> None:
    safe = safe_names(names)
    assert safe.keys() == names
    assert len(set(safe.values())) == len(names)
    assert all(map(SAFE.fullmatch, safe.values()))


def test_tools_of_any_server_have_names_that_lead_back() -> None:
    """R271, R219."""
    listed = {"GitHub": ["search"], "@scope/pkg": ["search", "a.b"], "My files": ["read"], "日本": ["読む", "read"]}
    names = Names(listed)
    assert names.provider("@scope/pkg", "search") == "mcp__scope_pkg__search"
    assert names.provider("GitHub", "search") == "mcp__GitHub__search"
    for server, tools in listed.items():
        for tool in tools:
            name = names.provider(server, tool)
            assert ACCEPTED.fullmatch(name)
            assert names.find(name) == Address(server, tool)
    joined = Names(listed, separator=":")
    assert joined.catalog("@scope/pkg", "a.b") == "@scope/pkg:a.b"
    assert joined.find("My files:read") == Address("My files", "read")
    with pytest.raises(UnknownName, match="the server '@scope/pkg' has no tool 'nothing'"):
        names.find("mcp__scope_pkg__nothing")


# --- joined names ----------------------------------------------------------------------------------------------------


def test_server_and_tool_are_joined_and_split_at_the_first_separator() -> None:
    """R219, R221."""
    assert join_name("github", "search") == "github:search"
    assert join_name("github", "search", "::") == "github::search"
    assert split_name("github:repo:search") == Address("github", "repo:search")
    assert split_name("github::a::b", separator="::") == Address("github", "a::b")
    assert split_name("a:", servers=["a"]) == Address("a", "")


def test_a_split_that_leaves_a_known_server_is_preferred() -> None:
    assert split_name("a__b__c", servers=["a__b"], separator="__") == Address("a__b", "c")
    assert split_name("a__b__c", servers=["a", "a__b"], separator="__") == Address("a", "b__c")


@pytest.mark.parametrize(
    ("name", "reason", "said"),
    [
        ("search", "no_separator", "names no server: expected a server's name, ':' and a tool's name"),
        ("gitlab:search", "unknown_server", "there is no server 'gitlab'; the servers are github"),
        ("x:y:z", "unknown_server", "there is no server 'x'"),
    ],
)
def test_a_name_that_leads_nowhere_says_how_far_it_could_be_read(name: str, reason: str, said: str) -> None:
    """R221: no_separator, unknown_server."""
    with pytest.raises(UnknownName, match=re.escape(said)) as error:
        split_name(name, servers=["github"])
    assert (error.value.reason, error.value.name) == (reason, name)


def test_an_empty_separator_is_refused() -> None:
    for use in (
        lambda: join_name("a", "b", ""),
        lambda: split_name("ab", separator=""),
        lambda: Names({}, separator=""),
    ):
        with pytest.raises(ConfigError, match="separator between server and tool is empty"):
            use()


def test_many_servers_are_not_all_listed() -> None:
    with pytest.raises(UnknownName, match=r"s00, .*s09 and 5 more$"):
        split_name("x:y", servers=[f"s{n:02}" for n in range(15)])
    with pytest.raises(UnknownName, match="there are no servers"):
        split_name("x:y", servers=[])


# --- the plain form --------------------------------------------------------------------------------------------------


def test_a_tool_is_called_by_its_server_and_itself() -> None:
    """R271, C28."""
    names = Names({"github": ["search", "create-issue"], "files": ["read"]})
    assert names.provider("github", "search") == names.catalog("github", "search") == "mcp__github__search"
    assert names.provider("github", "create-issue") == "mcp__github__create-issue"
    assert names.find("mcp__files__read") == Address("files", "read")
    assert list(names) == [("files", "read"), ("github", "create-issue"), ("github", "search")]
    assert len(names) == 3
    assert "mcp__files__read" in names and "mcp__files__write" not in names


def test_other_characters_are_replaced_and_calls_use_the_tools_own_name() -> None:
    """R271."""
    names = Names({"s": ["repo.search", "größe", "a b"]})
    assert names.provider("s", "repo.search") == "mcp__s__repo_search"
    assert names.provider("s", "größe") == "mcp__s__gr__e"
    assert names.find("mcp__s__a_b") == Address("s", "a b")


def test_rules_name_tools_without_shortening_them() -> None:
    """R238: characters outside the set become "_"."""
    assert rule_name("s", "repo.search") == "mcp__s__repo_search"
    assert rule_name("s", LONG) == f"mcp__s__{LONG}"


# --- where the plain form will not do --------------------------------------------------------------------------------


def test_of_tools_that_would_be_called_the_same_the_one_of_that_very_name_has_it() -> None:
    names = Names({"s": ["a.b", "a_b", "a:b"]})
    assert names.provider("s", "a_b") == "mcp__s__a_b"
    others = {names.provider("s", "a.b"), names.provider("s", "a:b")}
    assert len(others) == 2
    assert all(re.fullmatch(r"mcp__s__a_b_[0-9a-f]{8}", name) for name in others)


def test_where_none_has_that_very_name_all_get_a_digest() -> None:
    names = Names({"s": ["a.b", "a:b"]})
    assert all(re.fullmatch(r"mcp__s__a_b_[0-9a-f]{8}", names.provider("s", tool)) for tool in ("a.b", "a:b"))


def test_a_long_name_is_cut_and_keeps_a_digest() -> None:
    names = Names({"s": [LONG, LONG + "2"]})
    first, second = names.provider("s", LONG), names.provider("s", LONG + "2")
    assert first != second
    assert len(first) == len(second) == 64
    assert first.startswith("mcp__s__list_all_of")
    assert names.find(first) == ("s", LONG) and names.find(second) == ("s", LONG + "2")


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("github__x", "'github-x'"),
        ("a_", "'a'"),
        ("__a", "'a'"),
        ("a___b__c", "'a-b-c'"),
        ("_", ""),
        ("My__files", "'My-files'"),
    ],
)
def test_a_server_whose_name_could_be_read_as_anothers_is_refused(name: str, better: str) -> None:
    """`allow mcp__github__*` is about the server github and no other; R226's `_` yields where it is doubled."""
    with pytest.raises(ConfigError, match="holds no '__' and does not end with '_'") as caught:
        Names({name: ["c"]})
    assert str(caught.value).endswith(f"write {better}" if better else "about another")


def test_a_tool_may_have_two_underscores_in_its_name() -> None:
    names = Names({"a": ["b__c", "_d"], "a_b": ["c"]})
    assert names.provider("a", "b__c") == "mcp__a__b__c"
    assert names.find("mcp__a__b__c") == ("a", "b__c")
    assert names.provider("a", "_d") == "mcp__a___d"


def test_a_tool_cannot_take_the_name_that_another_gets_with_a_digest() -> None:
    victim = Names({"a": [LONG]}).provider("a", LONG)
    evil = victim.removeprefix("mcp__a__")
    names = Names({"a": [evil, LONG]})
    assert names.provider("a", LONG) == victim
    assert names.find(victim) == ("a", LONG)
    assert names.provider("a", evil) != victim


def test_a_digest_grows_where_the_short_one_is_taken() -> None:
    names = Names({"s": [LONG]})
    (address,) = names
    short = names.provider(*address)
    longer = names._digested(address, {short: Address("s", "other")})
    assert re.fullmatch(r"mcp__s__.*_[0-9a-f]{9}", longer) and len(longer) == 64

    class Everything(dict[str, Address]):
        def __contains__(self, key: object) -> bool:
            return True

    with pytest.raises(ConfigError, match="no free name is left"):
        names._digested(address, Everything())


@given(catalogs, separators, st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
@example({"a": {"b__c"}, "a-b": {"c"}}, "__", 1)
@example({"a": {"b_c"}, "a_b": {"c"}}, "_", 1)
@example({"1": {"x"}, "_1": {"x"}}, ":", 1)
@example({"a": {"a__a"}, "a_a": {"a"}, "a_a_a": {"a"}}, "__", 2)
def test_names_are_accepted_differ_lead_back_and_do_not_depend_on_order(
    catalog: dict[str, set[str]], separator: str | None, seed: int
) -> None:
    names = Names(catalog, separator=separator)
    addresses = [Address(server, tool) for server, listed in catalog.items() for tool in listed]
    for forms in (names.provider, names.catalog):
        called = {address: forms(*address) for address in addresses}
        assert len(set(called.values())) == len(addresses)
        assert all(names.find(name) == address for address, name in called.items())
    assert all(ACCEPTED.fullmatch(names.provider(*address)) for address in addresses)

    shuffle = random.Random(seed).shuffle
    order = list(catalog)
    shuffle(order)
    again: dict[str, list[str]] = {}
    for server in order:
        again[server] = list(catalog[server])
        shuffle(again[server])
    other = Names(again, separator=separator)
    assert {a: (names.provider(*a), names.catalog(*a)) for a in addresses} == {
        a: (other.provider(*a), other.catalog(*a)) for a in addresses
    }


@given(catalogs)
@settings(max_examples=30, deadline=None)
def test_a_servers_names_are_the_same_whichever_other_servers_are_there(catalog: dict[str, set[str]]) -> None:
    together = Names(catalog)
    for server, listed in catalog.items():
        alone = Names({server: listed})
        assert {tool: together.provider(server, tool) for tool in listed} == {
            tool: alone.provider(server, tool) for tool in listed
        }


# --- the separator form ----------------------------------------------------------------------------------------------


def test_with_a_separator_the_catalog_uses_it_and_providers_get_names_they_accept() -> None:
    """R219, C28."""
    names = Names({"github": ["repo.search"], "1st": ["go"]}, separator=":")
    assert names.catalog("github", "repo.search") == "github:repo.search"
    assert names.provider("github", "repo.search") == "github__repo_search"
    assert names.find("github:repo.search") == names.find("github__repo_search") == ("github", "repo.search")
    assert re.fullmatch(r"_1st__go_[0-9a-f]{8}", names.provider("1st", "go"))


def test_a_joined_name_that_could_be_two_tools_is_the_one_that_a_split_finds() -> None:
    names = Names({"a": ["b_c"], "a_b": ["c"]}, separator="_")
    assert names.find("a_b_c") == ("a", "b_c") == split_name("a_b_c", ["a", "a_b"], "_")
    assert names.catalog("a_b", "c") == names.provider("a_b", "c")


# --- changes ---------------------------------------------------------------------------------------------------------


def test_a_tool_keeps_its_name_when_one_of_that_very_name_appears() -> None:
    """C40: names stay stable when the catalog is refreshed."""
    before = Names({"s": ["a.b"]})
    after = before.renewed({"s": ["a.b", "a_b"]})
    assert after.provider("s", "a.b") == "mcp__s__a_b"
    assert re.fullmatch(r"mcp__s__a_b_[0-9a-f]{8}", after.provider("s", "a_b"))


def test_the_name_of_a_tool_that_is_gone_is_given_to_no_other() -> None:
    before = Names({"s": ["a.b"]})
    gone = before.renewed({"s": []})
    with pytest.raises(UnknownName, match="has no tool 'a_b'") as error:
        gone.find("mcp__s__a_b")
    assert error.value.reason == "unknown_tool"
    other = gone.renewed({"s": ["a_b"]})
    assert other.provider("s", "a_b") != "mcp__s__a_b"
    assert gone.renewed({"s": ["a.b"]}).provider("s", "a.b") == "mcp__s__a_b"


@given(st.lists(catalogs, min_size=2, max_size=4))
@settings(max_examples=30, deadline=None)
def test_no_name_ever_changes_hands(catalogs: list[dict[str, set[str]]]) -> None:
    names = Names(catalogs[0])
    owners: dict[str, Address] = {}
    for catalog in catalogs:
        names = names.renewed(catalog)
        for address in names:
            assert owners.setdefault(names.provider(*address), address) == address
    assert len(set(owners.values())) == len(owners)


# --- asking for what is not there ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "separator", "reason", "said"),
    [
        ("search", None, "no_separator", "they begin with 'mcp__'"),
        ("mcp__search", None, "no_separator", "names no server"),
        ("mcp__x__y", None, "unknown_server", "there is no server 'x'"),
        ("mcp__s__y", None, "unknown_tool", "the server 's' has no tool 'y'"),
        ("search", ":", "no_separator", "':'"),
        ("x:y", ":", "unknown_server", "there is no server 'x'"),
        ("s:y", ":", "unknown_tool", "the server 's' has no tool 'y'"),
        ("s__y", ":", "unknown_tool", "the server 's' has no tool 'y'"),
    ],
)
def test_what_is_not_there_is_said_with_its_reason(name: str, separator: str | None, reason: str, said: str) -> None:
    """R221."""
    with pytest.raises(UnknownName, match=re.escape(said)) as error:
        Names({"s": ["t"]}, separator=separator).find(name)
    assert error.value.reason == reason


def test_a_tool_or_server_without_a_name_is_unknown() -> None:
    names = Names({"s": ["t"]})
    with pytest.raises(UnknownName, match="there is no server 'x'"):
        names.provider("x", "t")
    with pytest.raises(UnknownName, match="the server 's' has no tool 'u'"):
        names.catalog("s", "u")


def test_a_catalog_that_cannot_be_named_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot hold a character that is not seen"):
        Names({"A\n": []})
    with pytest.raises(ConfigError, match="leave no room for a digest"):
        Names({}, length=20)


def test_memory_of_names_is_bounded() -> None:
    names = Names({"s": [f"t{n}" for n in range(12_000)]}).renewed({"s": []})
    assert len(names._remembered) == 10_000


@pytest.mark.parametrize("separator", [None, ":"])
def test_memory_of_names_is_bounded_whatever_their_length(separator: str | None) -> None:
    names = Names({"s": []}, separator=separator)
    for number in range(30):
        names = names.renewed({"s": [f"{number}{'t' * 1_000_000}"]})
    remembered = [*names._remembered.items(), *names._spoken.items()]
    assert sum(len(name) + len(address.tool) for name, address in remembered) < 10_000_000
    assert names.provider("s", f"29{'t' * 1_000_000}").startswith("mcp__s__" if separator is None else "s__")
