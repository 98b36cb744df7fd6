"""URI templates: expansion by RFC 6570, matching by our rules (R32)."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from trimaran.errors import DeclarationError, LocalProtocolError
from trimaran.protocol.uritemplate import UriTemplate


def shown(value: object) -> str:
    """A name for a test: the value without its address, which is another one in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


# RFC 6570, section 3.2.
VALUES: dict[str, Any] = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": {},
    "undef": None,
}

RFC_TABLE = [
    # 3.2.1 variable expansion
    ("{count}", "one,two,three"),
    ("{count*}", "one,two,three"),
    ("{/count}", "/one,two,three"),
    ("{/count*}", "/one/two/three"),
    ("{;count}", ";count=one,two,three"),
    ("{;count*}", ";count=one;count=two;count=three"),
    ("{?count}", "?count=one,two,three"),
    ("{?count*}", "?count=one&count=two&count=three"),
    ("{&count*}", "&count=one&count=two&count=three"),
    # 3.2.2 simple
    ("{var}", "value"),
    ("{hello}", "Hello%20World%21"),
    ("{half}", "50%25"),
    ("O{empty}X", "OX"),
    ("O{undef}X", "OX"),
    ("{x,y}", "1024,768"),
    ("{x,hello,y}", "1024,Hello%20World%21,768"),
    ("?{x,empty}", "?1024,"),
    ("?{x,undef}", "?1024"),
    ("?{undef,y}", "?768"),
    ("{var:3}", "val"),
    ("{var:30}", "value"),
    ("{list}", "red,green,blue"),
    ("{list*}", "red,green,blue"),
    ("{keys}", "semi,%3B,dot,.,comma,%2C"),
    ("{keys*}", "semi=%3B,dot=.,comma=%2C"),
    # 3.2.3 reserved
    ("{+var}", "value"),
    ("{+hello}", "Hello%20World!"),
    ("{+half}", "50%25"),
    ("{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex"),
    ("{+base}index", "http://example.com/home/index"),
    ("O{+empty}X", "OX"),
    ("O{+undef}X", "OX"),
    ("{+path}/here", "/foo/bar/here"),
    ("here?ref={+path}", "here?ref=/foo/bar"),
    ("up{+path}{var}/here", "up/foo/barvalue/here"),
    ("{+x,hello,y}", "1024,Hello%20World!,768"),
    ("{+path,x}/here", "/foo/bar,1024/here"),
    ("{+path:6}/here", "/foo/b/here"),
    ("{+list}", "red,green,blue"),
    ("{+list*}", "red,green,blue"),
    ("{+keys}", "semi,;,dot,.,comma,,"),
    ("{+keys*}", "semi=;,dot=.,comma=,"),
    # 3.2.4 fragment
    ("{#var}", "#value"),
    ("{#hello}", "#Hello%20World!"),
    ("{#half}", "#50%25"),
    ("foo{#empty}", "foo#"),
    ("foo{#undef}", "foo"),
    ("{#x,hello,y}", "#1024,Hello%20World!,768"),
    ("{#path,x}/here", "#/foo/bar,1024/here"),
    ("{#path:6}/here", "#/foo/b/here"),
    ("{#list}", "#red,green,blue"),
    ("{#list*}", "#red,green,blue"),
    ("{#keys}", "#semi,;,dot,.,comma,,"),
    ("{#keys*}", "#semi=;,dot=.,comma=,"),
    # 3.2.5 label
    ("{.who}", ".fred"),
    ("{.who,who}", ".fred.fred"),
    ("{.half,who}", ".50%25.fred"),
    ("www{.dom*}", "www.example.com"),
    ("X{.var}", "X.value"),
    ("X{.empty}", "X."),
    ("X{.undef}", "X"),
    ("X{.var:3}", "X.val"),
    ("X{.list}", "X.red,green,blue"),
    ("X{.list*}", "X.red.green.blue"),
    ("X{.keys}", "X.semi,%3B,dot,.,comma,%2C"),
    ("X{.keys*}", "X.semi=%3B.dot=..comma=%2C"),
    ("X{.empty_keys}", "X"),
    ("X{.empty_keys*}", "X"),
    # 3.2.6 path segment
    ("{/who}", "/fred"),
    ("{/who,who}", "/fred/fred"),
    ("{/half,who}", "/50%25/fred"),
    ("{/who,dub}", "/fred/me%2Ftoo"),
    ("{/var}", "/value"),
    ("{/var,empty}", "/value/"),
    ("{/var,undef}", "/value"),
    ("{/var,x}/here", "/value/1024/here"),
    ("{/var:1,var}", "/v/value"),
    ("{/list}", "/red,green,blue"),
    ("{/list*}", "/red/green/blue"),
    ("{/list*,path:4}", "/red/green/blue/%2Ffoo"),
    ("{/keys}", "/semi,%3B,dot,.,comma,%2C"),
    ("{/keys*}", "/semi=%3B/dot=./comma=%2C"),
    # 3.2.7 path-style parameters
    ("{;who}", ";who=fred"),
    ("{;half}", ";half=50%25"),
    ("{;empty}", ";empty"),
    ("{;v,empty,who}", ";v=6;empty;who=fred"),
    ("{;v,bar,who}", ";v=6;who=fred"),
    ("{;x,y}", ";x=1024;y=768"),
    ("{;x,y,empty}", ";x=1024;y=768;empty"),
    ("{;x,y,undef}", ";x=1024;y=768"),
    ("{;hello:5}", ";hello=Hello"),
    ("{;list}", ";list=red,green,blue"),
    ("{;list*}", ";list=red;list=green;list=blue"),
    ("{;keys}", ";keys=semi,%3B,dot,.,comma,%2C"),
    ("{;keys*}", ";semi=%3B;dot=.;comma=%2C"),
    # 3.2.8 form-style query
    ("{?who}", "?who=fred"),
    ("{?half}", "?half=50%25"),
    ("{?x,y}", "?x=1024&y=768"),
    ("{?x,y,empty}", "?x=1024&y=768&empty="),
    ("{?x,y,undef}", "?x=1024&y=768"),
    ("{?var:3}", "?var=val"),
    ("{?list}", "?list=red,green,blue"),
    ("{?list*}", "?list=red&list=green&list=blue"),
    ("{?keys}", "?keys=semi,%3B,dot,.,comma,%2C"),
    ("{?keys*}", "?semi=%3B&dot=.&comma=%2C"),
    # 3.2.9 form-style query continuation
    ("{&who}", "&who=fred"),
    ("{&half}", "&half=50%25"),
    ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
    ("{&x,y,empty}", "&x=1024&y=768&empty="),
    ("{&var:3}", "&var=val"),
    ("{&list}", "&list=red,green,blue"),
    ("{&list*}", "&list=red&list=green&list=blue"),
    ("{&keys}", "&keys=semi,%3B,dot,.,comma,%2C"),
    ("{&keys*}", "&semi=%3B&dot=.&comma=%2C"),
]


@pytest.mark.parametrize(("template", "expansion"), RFC_TABLE)
def test_the_examples_of_the_rfc_expand_as_it_says(template: str, expansion: str) -> None:
    assert UriTemplate(template).expand(VALUES) == expansion


@pytest.mark.parametrize(
    ("template", "values", "expansion"),
    [
        ("{x}", {"x": 42}, "42"),
        ("{x}", {"x": 1.5}, "1.5"),
        ("{?x,y}", {"x": True, "y": False}, "?x=true&y=false"),
        ("{x}", {}, ""),
        ("{x}", {"x": []}, ""),
        ("{?x*}", {"x": [None]}, ""),
        ("{x}", {"x": [1, None, 2]}, "1,2"),
        ("{x}", {"x": ("a", "b")}, "a,b"),
        ("{x*}", {"x": {"a": None, "b": 1}}, "b=1"),
        ("{?x*}", {"x": {"a": ""}}, "?a="),
        ("{;x*}", {"x": {"a": ""}}, ";a"),
        ("{x*}", {"x": {"a": ""}}, "a="),
        ("{x:2}", {"x": "éèà"}, "%C3%A9%C3%A8"),
        ("{x}", {"x": "~-._"}, "~-._"),
        ("{+x}", {"x": "a%20b%2"}, "a%20b%252"),
        ("{x}", {"x": "a%20b"}, "a%2520b"),
        ("datei://straße/{x}", {"x": "ü"}, "datei://stra%C3%9Fe/%C3%BC"),
        ("a%20b{x}", {"x": 1}, "a%20b1"),
        ("plain", {}, "plain"),
        ("", {}, ""),
        ("{a.b}{%41}", {"a.b": 1, "%41": 2}, "12"),
    ],
)
def test_values_of_every_kind_expand(template: str, values: dict[str, Any], expansion: str) -> None:
    assert UriTemplate(template).expand(values) == expansion


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{x}", object()),
        ("{x}", b"octets"),
        ("{x}", [["nested"]]),
        ("{x}", {"a": {}}),
        ("{x:3}", ["a"]),
        ("{x}", {1, 2}),
    ],
    ids=shown,
)
def test_a_value_with_no_place_in_a_uri_is_refused_by_name(template: str, value: object) -> None:
    with pytest.raises(LocalProtocolError, match="variable 'x'"):
        UriTemplate(template).expand({"x": value})


@pytest.mark.parametrize("template", ["{x}", "{+x}"])
def test_a_lone_surrogate_is_refused(template: str) -> None:
    with pytest.raises(LocalProtocolError, match="surrogate"):
        UriTemplate(template).expand({"x": "\ud800"})


@pytest.mark.parametrize(
    ("template", "position"),
    [
        ("{", 0),
        ("a{b", 1),
        ("a}", 1),
        ("{}", 1),
        ("{+}", 2),
        ("{a}}", 3),
        ("{{a}}", 1),
        ("{a b}", 2),
        ("{a,}", 3),
        ("{,a}", 1),
        ("{a,,b}", 3),
        ("{=a}", 1),
        ("{!a}", 1),
        ("{@a}", 1),
        ("{|a}", 1),
        ("{a:}", 2),
        ("{a:0}", 2),
        ("{a:01}", 2),
        ("{a:12345}", 7),
        ("{a:3*}", 4),
        ("{a*:3}", 3),
        ("{a-b}", 2),
        ("{.a.}", 3),
        ("{a..b}", 2),
        ("{é}", 1),
        ("{%4}", 1),
        ("a b", 1),
        ("a%zz", 1),
        ("a%4{b}1", 1),
        ('a"b', 1),
        ("a<b", 1),
        ("a\\b", 1),
        ("a\nb", 1),
        ("a^b|c`", 1),
        ("a\ud800", 1),
    ],
    ids=ascii,
)
def test_a_malformed_template_is_refused_with_the_position(template: str, position: int) -> None:
    with pytest.raises(DeclarationError, match=rf"at position {position}: "):
        UriTemplate(template)


def test_a_template_knows_its_variables_and_whether_it_has_any() -> None:
    template = UriTemplate("a://{x,y:3}/{+z*}{?x,q}")
    assert template.variables == ("x", "y", "z", "q")
    assert template.literal is False
    assert UriTemplate("a://b").variables == ()
    assert UriTemplate("a://b").literal is True


def test_templates_of_one_text_are_one_value() -> None:
    assert UriTemplate("a{b}") == UriTemplate("a{b}")
    assert len({UriTemplate("a{b}"), UriTemplate("a{b}"), UriTemplate("a{c}")}) == 2
    assert UriTemplate("a") != "a"
    assert repr(UriTemplate("a{b}")) == "UriTemplate('a{b}')"


MATCHES: list[tuple[str, str, dict[str, Any] | None]] = [
    # Literals.
    ("config://app", "config://app", {}),
    ("config://app", "config://app/", None),
    ("config://app", "config://", None),
    ("", "", {}),
    ("", "x", None),
    ("a/%7Eb/%2f", "a/~b/%2F", {}),
    ("a/~b", "a/%7eb", {}),
    ("a/b", "a%2Fb", None),
    ("straße://{x}", "stra%C3%9Fe://1", {"x": "1"}),
    ("stra%c3%9Fe://{x}", "straße://1", {"x": "1"}),
    # Plain variables.
    ("users://{id}", "users://42", {"id": "42"}),
    ("users://{id}", "users://", None),
    ("users://{id}", "users://4/2", None),
    ("users://{id}", "Users://42", None),
    ("users://{id}", "users://4?2", None),
    ("users://{id}", "users://4#2", None),
    ("users://{id}/posts/{post}", "users://1/posts/2", {"id": "1", "post": "2"}),
    ("users://{id}/posts/{post}", "users://1/posts/2/", None),
    ("users://{id}/posts/{post}", "users://1/2/posts/2", None),
    ("{a}-{b}", "1-2-3", {"a": "1-2", "b": "3"}),
    ("{a}{b}", "xyz", {"a": "xy", "b": "z"}),
    ("{a}{b}", "x", None),
    ("{x,y}", "1,2", {"x": "1", "y": "2"}),
    ("{x,y}", "1,2,3", {"x": "1", "y": "2,3"}),
    ("{x,y}", "1", None),
    ("{x}", "a,b", {"x": "a,b"}),
    ("v={x}&w={y}", "v=1&w=2", {"x": "1", "y": "2"}),
    # Percent-decoding.
    ("a/{x}", "a/b%20c", {"x": "b c"}),
    ("a/{x}", "a/b%2Fc", {"x": "b/c"}),
    ("a/{x}", "a/%C3%A9%e2%82%ac", {"x": "é€"}),
    ("a/{x}", "a/é", {"x": "é"}),
    ("a/{x}", "a/100%", {"x": "100%"}),
    ("a/{x}", "a/%zz", {"x": "%zz"}),
    ("a/{x}", "a/%2541", {"x": "%41"}),
    ("a/{x}", "a/%FF", None),
    ("a/{x}", "a/%ED%A0%80", None),
    ("a/{x}", "a/\ud800", None),
    ("{a}{b}", "%41%42", {"a": "A", "b": "B"}),
    ("{a}{b}", "%2F%C3%A9", {"a": "/", "b": "é"}),
    ("a/{x}", "a/..%2Fetc", {"x": "../etc"}),
    # Forms that cross slashes.
    ("file:///{+path}", "file:///etc/hosts", {"path": "etc/hosts"}),
    ("file:///{path}", "file:///etc/hosts", None),
    ("file:///{path*}", "file:///etc/hosts", {"path": "etc/hosts"}),
    ("file:///{+path*}", "file:///etc/hosts", {"path": "etc/hosts"}),
    ("file:///{+path}", "file:///", None),
    ("get:{+url}", "get:http://a/b?c=d#e", {"url": "http://a/b?c=d#e"}),
    ("a/{+x}/b/{y}", "a/1/b/2/b/3", {"x": "1/b/2", "y": "3"}),
    ("{+x,y}", "a/b,c/d", {"x": "a/b", "y": "c/d"}),
    ("{+a}{+b}", "xyz", {"a": "xy", "b": "z"}),
    ("a/{+x}", "a/b\nc", {"x": "b\nc"}),
    # Optional: path segments and labels.
    ("a{/x}", "a/1", {"x": "1"}),
    ("a{/x}", "a", {}),
    ("a{/x}", "a/", {"x": ""}),
    ("a{/x}", "a/1/2", None),
    ("a{/x,y}", "a/1", {"x": "1"}),
    ("a{/x,y}", "a/1/2", {"x": "1", "y": "2"}),
    ("a{/x*}", "a/1/2%2F3/4", {"x": ["1", "2/3", "4"]}),
    ("a{/x*}", "a/1", {"x": ["1"]}),
    ("a{/x*}", "a", {}),
    ("a{/x*}/end", "a/1/2/end", {"x": ["1", "2"]}),
    ("a{/x,y*}", "a/1/2/3", {"x": "1", "y": ["2", "3"]}),
    ("a{/x,y}{/z*}", "a/1/2/3/4", {"x": "1", "y": "2", "z": ["3", "4"]}),
    ("a{/x*}", "a/%FF", None),
    ("{name}{.ext}", "a.tar.gz", {"name": "a.tar", "ext": "gz"}),
    ("{name}{.ext}", "plain", {"name": "plain"}),
    ("f/{+path}{.ext}", "f/a.b/c.txt", {"path": "a.b/c", "ext": "txt"}),
    ("www{.dom*}", "www.example.com", {"dom": ["example", "com"]}),
    ("www{.dom*}", "www.example/com", None),
    ("X{.a,b}", "X.1.2.3", {"a": "1", "b": "2.3"}),
    # Fragments.
    ("a{#f}", "a#x/y?z", {"f": "x/y?z"}),
    ("a{#f}", "a", {}),
    ("a{#f,g}", "a#1,2,3", {"f": "1", "g": "2,3"}),
    ("a{#f,g}", "a#1", {"f": "1"}),
    ("{+p}{#f}", "a/b#c#d", {"p": "a/b", "f": "c#d"}),
    # Parameters.
    ("s{?q,lang}", "s?q=1&lang=en", {"q": "1", "lang": "en"}),
    ("s{?q,lang}", "s?lang=en&q=1", {"q": "1", "lang": "en"}),
    ("s{?q,lang}", "s?lang=en", {"lang": "en"}),
    ("s{?q,lang}", "s", {}),
    ("s{?q}", "s?", {}),
    ("s{?q}", "s?q", {"q": ""}),
    ("s{?q}", "s?q=", {"q": ""}),
    ("s{?q}", "s?other=1&q=a%26b=c", {"q": "a&b=c"}),
    ("s{?q}", "s?q=1&q=2", {"q": "1"}),
    ("s{?q*}", "s?q=1&x=0&q=2", {"q": ["1", "2"]}),
    ("s{?q}", "s?q=a/b?c", {"q": "a/b?c"}),
    ("s{?q}", "s?q=1#f", None),
    ("s{?q}", "s&q=1", None),
    ("s?fixed=1{&q}", "s?fixed=1&q=2", {"q": "2"}),
    ("s?fixed=1{&q}", "s?fixed=1", {}),
    ("s{?a}{&b}", "s?b=2&a=1", {"a": "1", "b": "2"}),
    ("s/{id}{?q}{#f}", "s/7?q=1#top", {"id": "7", "q": "1", "f": "top"}),
    ("s/{id}{?q}{#f}", "s/7#top", {"id": "7", "f": "top"}),
    ("f:{+p}{?v}", "f:a/b?v=1", {"p": "a/b", "v": "1"}),
    ("f:{+p}{?v}{#f}", "f:a/b#c", {"p": "a/b", "f": "c"}),
    ("f:{p*}{?v}", "f:a/b?v=1", {"p": "a/b", "v": "1"}),
    ("m{;x,y}/end", "m;y=2;x=1/end", {"x": "1", "y": "2"}),
    ("m{;x}/end", "m/end", {}),
    ("{n}{;a,b}", "n;a=1;b", {"n": "n", "a": "1", "b": ""}),
    # Repeats and prefixes.
    ("{x}/{x}", "a/a", {"x": "a"}),
    ("{x}/{x}", "a/b", None),
    ("{x:1}/{x}", "f/fred", {"x": "fred"}),
    ("{x:1}/{x}", "g/fred", None),
    ("{x:1}/{x}", "fr/fred", None),
    ("{x:1}/{x:3}", "f/fre", {"x": "fre"}),
    ("{x:2}{y}", "abcd", {"x": "ab", "y": "cd"}),
    ("{x:2}{y}", "%C3%A9%C3%A8%C3%A0", {"x": "éè", "y": "à"}),
    ("{x:2}", "abc", None),
    ("a{/x:2}", "a/abc", None),
    ("a{?x:2}", "a?x=abc", None),
    ("a{/x:1,x}", "a/v/value", {"x": "value"}),
]


@pytest.mark.parametrize(("template", "uri", "found"), MATCHES, ids=ascii)
def test_a_uri_gives_up_its_variables_or_misses(template: str, uri: str, found: dict[str, Any] | None) -> None:
    """R32."""
    assert UriTemplate(template).match(uri) == found


@pytest.mark.parametrize(("template", "expansion"), [row for row in RFC_TABLE if row[1]])
def test_most_expansions_of_the_rfc_match_their_template(template: str, expansion: str) -> None:
    needs_a_character = {"O{empty}X", "O{undef}X", "O{+empty}X", "O{+undef}X", "?{x,empty}", "?{x,undef}", "?{undef,y}"}
    matched = UriTemplate(template).match(expansion)
    assert (matched is None) == (template in needs_a_character)


def test_a_uri_cut_anywhere_still_matches_or_misses_quietly() -> None:
    template = UriTemplate("s://{a}/{+b}{/c*}{.d}{;e}{?f,g*}{#h}")
    uri = "s://x%20y/p/q%C3%A9/r.s;e=1?f=2&g=3&g=4#end%2"
    for cut in range(len(uri) + 1):
        matched = template.match(uri[:cut])
        assert matched is None or set(matched) <= set(template.variables)


LONG = 100_000


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{+a}{+b}{+c}", "x" * LONG),
        ("{+a}{+b}{+c}!", "x" * LONG),
        ("{a}{b}{c}{d}!", "x" * LONG),
        ("{a}x{b}x{c}x{d}!", "x" * LONG),
        ("{a*}/{b*}/{c*}/{d*}!", "a/" * (LONG // 2)),
        ("{a}{b}", "a/" * (LONG // 2)),
        ("{/a*}{/b*}{/c*}!", "/" * LONG),
        ("{.a*}{.b*}{.c*}!", "." * LONG),
        ("{a:9999}{b:9999}{c:9999}!", "x" * LONG),
        ("{;a}{;b}{;c}!", ";" * LONG),
        ("{?a}{&b}{#c}!", "?" + "a=1&" * (LONG // 4)),
        ("{?a*}", "?" + "a&" * (LONG // 2)),
        ("{+a}aaaaaaaaaa{+b}b", "a" * LONG),
        ("{+a}", "%" * LONG),
        ("{+a}", "%FF" * (LONG // 3)),
        ("{+a}{+b}", "%41" * (LONG // 3)),
    ],
)
def test_hostile_uris_cost_no_more_than_their_length(template: str, uri: str) -> None:
    """The bound is loose on purpose: a backtracking matcher needs hours for most of these."""
    compiled = UriTemplate(template)
    started = time.process_time()
    compiled.match(uri)
    assert time.process_time() - started < 2
