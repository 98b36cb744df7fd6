"""`_meta.ui` of tools and views: declared strictly, read with suspicion (protocol.md 5.3)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.errors import DeclarationError
from trimaran.ext.apps import Csp, for_model, may_app_call, ui_of, ui_tool
from trimaran.ext.apps.metadata import ViewMeta, check_view_uri
from trimaran.types import Tool

URI = "ui://weather/dashboard"


def tool(name: str = "t", **ui: Any) -> Tool:
    return Tool(name=name, meta={"ui": ui})


def test_a_tool_points_to_its_view() -> None:
    assert ui_tool(URI) == {"ui": {"resourceUri": URI}}


def test_the_default_visibility_is_not_spelt_out() -> None:
    assert ui_tool(URI, ["app", "model"]) == ui_tool(URI)
    assert ui_tool(URI, ["app"]) == {"ui": {"resourceUri": URI, "visibility": ["app"]}}
    assert ui_tool(URI, ["model"]) == {"ui": {"resourceUri": URI, "visibility": ["model"]}}


def test_a_tool_for_the_view_alone_needs_no_view_of_its_own() -> None:
    assert ui_tool(visibility=["app"]) == {"ui": {"visibility": ["app"]}}


def test_other_metadata_stays_beside_it() -> None:
    assert ui_tool(URI, meta={"example.com/x": 1}) == {"example.com/x": 1, "ui": {"resourceUri": URI}}


SLIPS: dict[str, tuple[dict[str, Any], str]] = {
    "another scheme": ({"resource_uri": "https://weather/dashboard"}, "ui://"),
    "no path": ({"resource_uri": "ui://"}, "ui://weather"),
    "a space": ({"resource_uri": "ui://a b"}, "no spaces"),
    "a line break": ({"resource_uri": "ui://a\n"}, "no spaces"),
    "a number": ({"resource_uri": 7}, "ui://"),
    "too long": ({"resource_uri": "ui://" + "a" * 3000}, "ui://"),
    "a template": ({"resource_uri": "ui://a/{b}"}, "template"),
    "no visibility": ({"resource_uri": URI, "visibility": []}, "visibility must be"),
    "an unknown visibility": ({"resource_uri": URI, "visibility": ["user"]}, "'user'"),
    "visibility as text": ({"resource_uri": URI, "visibility": "app"}, "visibility=['app']"),
    "nothing at all": ({}, "ui_tool needs"),
    "a second ui": ({"resource_uri": URI, "meta": {"ui": {}}}, "give it no other"),
    "the old key": ({"resource_uri": URI, "meta": {"ui/resourceUri": URI}}, "give it no other"),
}


@pytest.mark.parametrize(("options", "part"), SLIPS.values(), ids=SLIPS)
def test_a_slip_in_a_declaration_is_explained(options: dict[str, Any], part: str) -> None:
    with pytest.raises(DeclarationError, match=".") as caught:
        ui_tool(**options)
    assert part in str(caught.value)


def test_what_ui_tool_makes_is_read_back() -> None:
    ui = ui_of(Tool(name="t", meta=ui_tool(URI, ["app"])))
    assert (ui.resource_uri, ui.visibility, ui.problems) == (URI, {"app"}, ())


def test_a_tool_without_metadata_is_for_everyone() -> None:
    """Spec: visibility defaults to both."""
    for bare in (Tool(name="t"), Tool(name="t", meta={}), {"name": "t"}, tool()):
        ui = ui_of(bare)
        assert (ui.resource_uri, ui.visibility, ui.problems) == (None, {"model", "app"}, ())


def test_the_deprecated_flat_key_is_read_and_the_new_one_wins() -> None:
    flat: dict[str, Any] = {"ui/resourceUri": "ui://old"}
    assert ui_of(Tool(name="t", meta=flat)).resource_uri == "ui://old"
    assert ui_of({"name": "t", "_meta": flat}).resource_uri == "ui://old"
    assert ui_of(Tool(name="t", meta={**flat, "ui": {"resourceUri": URI}})).resource_uri == URI
    both = ui_of(Tool(name="t", meta={**flat, "ui": {"visibility": ["app"]}}))
    assert (both.resource_uri, both.visibility) == ("ui://old", {"app"})


@pytest.mark.parametrize("visibility", ["app", None, 7, {"app": True}, ["app", 7]], ids=repr)
def test_a_visibility_that_makes_no_sense_is_nobodys(visibility: Any) -> None:
    """Ours: the doubtful case is decided against the tool, and noted."""
    ui = ui_of(tool(visibility=visibility))
    assert ui.visibility == frozenset()
    assert len(ui.problems) == 1


def test_unknown_names_in_a_visibility_open_nothing() -> None:
    assert ui_of(tool(visibility=["everyone"])).visibility == frozenset()
    assert ui_of(tool(visibility=["app", "later"])).visibility == {"app"}
    assert ui_of(tool(visibility=[])).visibility == frozenset()


@pytest.mark.parametrize("uri", ["https://evil.example", "ui://", 7, ["ui://a"], "ui://a b"], ids=repr)
def test_a_view_that_is_none_is_not_followed(uri: Any) -> None:
    ui = ui_of(tool(resourceUri=uri))
    assert ui.resource_uri is None
    assert len(ui.problems) == 1


def test_a_ui_that_is_no_object_is_noted_and_ignored() -> None:
    ui = ui_of({"name": "t", "_meta": {"ui": "yes"}})
    assert (ui.visibility, ui.problems) == ({"model", "app"}, ("_meta.ui is not an object",))


def test_the_model_sees_what_is_for_the_model() -> None:
    """Spec: the host MUST NOT include others in the agent's list."""
    tools = [tool("both"), tool("app", visibility=["app"]), tool("model", visibility=["model"]), Tool(name="plain")]
    assert [t.name for t in for_model(tools)] == ["both", "model", "plain"]
    raw = [{"name": "a", "_meta": {"ui": {"visibility": ["app"]}}}, {"name": "b"}]
    assert for_model(raw) == [{"name": "b"}]


def test_a_view_calls_what_is_for_views() -> None:
    """Spec: the host MUST reject the rest."""
    assert may_app_call(tool())
    assert may_app_call(Tool(name="plain"))
    assert may_app_call(tool(visibility=["app"]))
    assert not may_app_call(tool(visibility=["model"]))
    assert not may_app_call(tool(visibility="app"))


def test_a_view_says_what_it_needs() -> None:
    whole = {
        "csp": {"connectDomains": ["https://a.example"]},
        "permissions": {"camera": {}, "clipboardWrite": {}},
        "domain": "a904.views.example",
        "prefersBorder": False,
    }
    meta, problems = ViewMeta.read(whole)
    assert problems == []
    assert meta == ViewMeta(
        csp=Csp(connect_domains=("https://a.example",)),
        permissions=("camera", "clipboardWrite"),
        domain="a904.views.example",
        prefers_border=False,
    )
    assert meta.to_json() == whole
    assert ViewMeta.read(None) == (ViewMeta(), [])
    assert ViewMeta().to_json() == {}


WRONG: dict[str, dict[str, Any]] = {
    "csp as text": {"csp": "default-src *"},
    "an origin that is none": {"csp": {"connectDomains": ["*"]}},
    "an unknown permission": {"permissions": {"usb": {}}},
    "permissions as a list": {"permissions": ["camera"]},
    "a domain with a path": {"domain": "a.example/x"},
    "a domain with a quote": {"domain": 'a.example" onload="x'},
    "a domain that is a number": {"domain": 7},
    "a border that is text": {"prefersBorder": "yes"},
}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_what_a_view_may_not_ask_for_is_left_out_and_noted(value: dict[str, Any]) -> None:
    meta, problems = ViewMeta.read({"prefersBorder": True, **value})
    assert len(problems) == 1
    assert meta.permissions == ()
    assert meta.domain is None
    assert meta.csp in (None, Csp())


def test_a_permission_is_asked_for_with_an_object() -> None:
    asked = {"camera": False, "microphone": None, "geolocation": {}, "clipboardWrite": "no"}
    assert ViewMeta.read({"permissions": asked})[0].permissions == ("geolocation",)


def test_metadata_that_is_no_object_is_noted() -> None:
    assert ViewMeta.read("x") == (ViewMeta(), ["_meta.ui is not an object"])


def test_a_template_is_a_view_too() -> None:
    assert check_view_uri("ui://weather/{city}") == "ui://weather/{city}"
