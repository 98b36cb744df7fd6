"""`Apps`: views on a server, and what clients without views are spared (protocol.md 5.3)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from trimaran import Context, Server, connect
from trimaran.errors import CallError, DeclarationError
from trimaran.ext import Apps as PublicApps
from trimaran.ext.apps import CAPABILITY, IDENTIFIER, MIME_TYPE, Apps, Csp, supports_ui, ui_tool
from trimaran.protocol.meta import Peer

URI = "ui://weather/dashboard"
PAGE = "<!doctype html><p>sun"


@pytest.fixture
def server() -> Server:
    return Server("weather", version="1.0.0")


@pytest.fixture
def apps(server: Server) -> Apps:
    found = Apps()
    found.attach(server)
    return found


def items(result: Any) -> list[Any]:
    return [one if isinstance(one, dict) else one.to_json() for one in result.contents]


async def test_a_view_is_read_with_its_type_and_metadata(server: Server, apps: Apps) -> None:
    @apps.view(
        URI,
        csp=Csp(connect_domains=("https://api.example",)),
        permissions=["geolocation"],
        domain="a904.views.example",
        prefers_border=True,
        title="Dashboard",
    )
    def dashboard() -> str:
        "The weather."
        return PAGE

    ui = {
        "csp": {"connectDomains": ["https://api.example"]},
        "permissions": {"geolocation": {}},
        "domain": "a904.views.example",
        "prefersBorder": True,
    }
    (read,) = items(await server.read_resource(URI))
    assert read == {"uri": URI, "mimeType": MIME_TYPE, "text": PAGE, "_meta": {"ui": ui}}
    (listed,) = server.list_resources()
    assert listed.to_json() == {
        "uri": URI,
        "name": URI,
        "title": "Dashboard",
        "description": "The weather.",
        "mimeType": MIME_TYPE,
        "_meta": {"ui": ui},
    }
    assert dashboard() == PAGE, "the function stays as it is"


async def test_a_view_that_asks_for_nothing_has_no_metadata(server: Server, apps: Apps) -> None:
    apps.add_view(URI, PAGE)
    assert items(await server.read_resource(URI)) == [{"uri": URI, "mimeType": MIME_TYPE, "text": PAGE}]
    assert server.list_resources()[0].meta is None


async def test_other_metadata_goes_with_it(server: Server, apps: Apps) -> None:
    apps.add_view(URI, PAGE, prefers_border=False, meta={"example.com/x": 1})
    (read,) = items(await server.read_resource(URI))
    assert read["_meta"] == {"example.com/x": 1, "ui": {"prefersBorder": False}}


async def test_html_comes_from_text_bytes_files_and_functions(server: Server, apps: Apps, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>1", encoding="utf-8")

    async def waited(ctx: Context) -> bytes:
        return f"<p>{ctx.uri}".encode()

    class Called:
        async def __call__(self) -> str:
            return "<p>called"

    apps.add_view("ui://a/text", PAGE)
    apps.add_view("ui://a/bytes", PAGE.encode())
    apps.add_view("ui://a/file", page)
    apps.add_view("ui://a/async", waited)
    apps.add_view("ui://a/object", Called())

    async def read(uri: str) -> str:
        (item,) = items(await server.read_resource(uri))
        assert item["mimeType"] == MIME_TYPE
        return item.get("text") or base64.b64decode(item["blob"]).decode()

    assert await read("ui://a/text") == PAGE
    assert await read("ui://a/bytes") == PAGE
    assert await read("ui://a/file") == "<p>1"
    page.write_text("<p>2", encoding="utf-8")
    assert await read("ui://a/file") == "<p>2", "a file is read at each request"
    assert await read("ui://a/async") == "<p>ui://a/async"
    assert await read("ui://a/object") == "<p>called"


async def test_a_view_may_be_a_template(server: Server, apps: Apps) -> None:
    @apps.view("ui://weather/{city}", prefers_border=True)
    def city(city: str) -> str:
        return f"<p>{city}"

    (read,) = items(await server.read_resource("ui://weather/Oslo"))
    assert read == {
        "uri": "ui://weather/Oslo",
        "mimeType": MIME_TYPE,
        "text": "<p>Oslo",
        "_meta": {"ui": {"prefersBorder": True}},
    }


async def test_what_is_no_html_is_a_failure_and_no_page(server: Server, apps: Apps) -> None:
    @apps.view(URI)
    def wrong() -> Any:
        return {"html": PAGE}

    async with connect(server) as client:
        with pytest.raises(CallError, match="returns HTML as text or bytes, not dict"):
            await client.read_resource(URI)


async def test_views_may_be_declared_before_there_is_a_server(server: Server) -> None:
    apps = Apps()
    assert apps.add_view(URI, PAGE) is None
    assert server.list_resources() == []
    assert IDENTIFIER not in str(server.capabilities())
    apps.attach(server)
    assert items(await server.read_resource(URI))[0]["text"] == PAGE
    assert server.capabilities()["extensions"] == {IDENTIFIER: {}}


def test_it_is_enabled_as_any_extension(server: Server) -> None:
    apps = Apps()
    server.enable_extension(apps)
    apps.check()
    assert server.capabilities()["extensions"] == {IDENTIFIER: {}}


def test_apps_belong_to_one_server(server: Server, apps: Apps) -> None:
    with pytest.raises(DeclarationError, match="attached already"):
        apps.attach(server)
    with pytest.raises(DeclarationError, match="belong to no server"):
        Apps().check()


SLIPS: dict[str, tuple[dict[str, Any], str]] = {
    "another scheme": ({"uri": "https://weather.example"}, "ui://"),
    "no URI": ({"uri": print}, "ui://"),
    "a type of its own": ({"mime_type": "text/html"}, "leave mime_type out"),
    "ui by hand": ({"meta": {"ui": {}}}, "csp="),
    "an origin that is none": ({"csp": {"connectDomains": ["*"]}}, "no origin"),
    "an unknown list": ({"csp": {"connect_domains": []}}, "connectDomains"),
    "an injected directive": ({"csp": Csp(connect_domains=("https://a.example; script-src *",))}, "no origin"),
    "an unknown permission": ({"permissions": ["usb"]}, "'usb'"),
    "permissions as text": ({"permissions": "camera"}, "permissions=['camera']"),
    "a domain that is none": ({"domain": "https://a.example"}, "host name"),
    "a border that is text": ({"prefers_border": "yes"}, "prefersBorder"),
    "a path as text": ({"html": "dashboard.html"}, "pathlib.Path"),
    "an object": ({"html": 7}, "not int"),
    "an unknown option": ({"colour": "red"}, "colour"),
}


@pytest.mark.parametrize(("options", "part"), SLIPS.values(), ids=SLIPS)
def test_a_slip_in_a_declaration_is_explained(apps: Apps, options: dict[str, Any], part: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        add: Any = apps.add_view  # the options are wrong on purpose
        add(**{"uri": URI, "html": PAGE, **options})
    assert part in str(caught.value)


def test_a_view_needs_its_uri(apps: Apps) -> None:
    with pytest.raises(DeclarationError, match="needs its URI"):
        apps.view(lambda: PAGE)  # pyright: ignore[reportArgumentType]


def test_a_tool_whose_view_is_missing_is_found(server: Server, apps: Apps) -> None:
    """Spec: the resource MUST exist on the server."""
    server.add_tool(lambda: "sun", name="forecast", meta=ui_tool(URI))
    with pytest.raises(
        DeclarationError, match="'forecast' has the view 'ui://weather/dashboard', which is not declared"
    ):
        apps.check()
    server.add_resource(URI, lambda: PAGE, mime_type="text/html")
    with pytest.raises(DeclarationError, match="not declared"):
        apps.check()
    server.remove_resource(URI)
    apps.add_view(URI, PAGE)
    apps.check()


def test_a_template_may_be_a_tools_view(server: Server, apps: Apps) -> None:
    server.add_tool(lambda: "sun", name="forecast", meta=ui_tool("ui://weather/Oslo"))
    apps.add_view("ui://weather/{city}", lambda city: f"<p>{city}")
    apps.check()


def test_metadata_by_hand_is_checked_too(server: Server, apps: Apps) -> None:
    server.add_tool(lambda: "sun", name="forecast", meta={"ui": {"visibility": "app"}})
    with pytest.raises(DeclarationError, match="visibility is not a list"):
        apps.check()


# --- clients with and without views ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (CAPABILITY, True),
        ({}, False),
        ({"extensions": {}}, False),
        ({"extensions": {IDENTIFIER: {}}}, False),
        ({"extensions": {IDENTIFIER: {"mimeTypes": ["text/html"]}}}, False),
        ({"extensions": {IDENTIFIER: {"mimeTypes": MIME_TYPE}}}, False),
        ({"extensions": {IDENTIFIER: {"mimeTypes": ["text/x", MIME_TYPE]}}}, True),
        ({"extensions": {IDENTIFIER: True}}, False),
        ({"extensions": [IDENTIFIER]}, False),
    ],
    ids=["ours", "none", "no extension", "no types", "another type", "text", "several", "true", "a list"],
)
def test_a_client_shows_views_if_it_says_so_exactly(capabilities: dict[str, Any], expected: bool) -> None:
    assert supports_ui(Peer("2026-07-28", capabilities)) is expected


def fill(server: Server) -> None:
    @server.tool(meta=ui_tool(URI))
    async def forecast(ctx: Context) -> str:
        return "a view" if supports_ui(ctx) else "text only"

    @server.tool(meta=ui_tool(URI, ["app"]))
    async def refresh() -> str:
        return "fresh"


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_a_client_without_views_is_not_shown_what_only_views_call(
    server: Server, apps: Apps, version: str
) -> None:
    apps.add_view(URI, PAGE)
    fill(server)
    async with connect(server, version=version) as plain:
        assert [t.name for t in await plain.list_tools()] == ["forecast"]
        assert (await plain.call_tool("forecast")).data == "text only"
    async with connect(server, version=version, capabilities=CAPABILITY) as host:
        assert [t.name for t in await host.list_tools()] == ["forecast", "refresh"]
        assert (await host.call_tool("forecast")).data == "a view"
        assert (await host.call_tool("refresh")).data == "fresh"


async def test_such_a_list_is_kept_for_its_asker_alone(server: Server, apps: Apps) -> None:
    """Ours: a shared cache must not hand one client's list to another that can do less."""
    apps.add_view(URI, PAGE)
    async with connect(server, capabilities=CAPABILITY, cache=False) as host:
        fill(server)
        assert (await host.request("tools/list"))["cacheScope"] == "private"
        server.remove_tool("refresh")
        assert (await host.request("tools/list"))["cacheScope"] == "public"


async def test_lists_stay_encoded_while_there_is_nothing_to_hide(server: Server, apps: Apps) -> None:
    server.add_tool(lambda: "sun", name="forecast", meta=ui_tool(URI))
    bare = server.runtime.dispatcher.handlers["tools/list"]
    server.add_tool(lambda: "rain", name="other")
    assert server.runtime.dispatcher.handlers["tools/list"] == bare
    server.add_tool(lambda: "x", name="refresh", meta=ui_tool(visibility=["app"]))
    assert server.runtime.dispatcher.handlers["tools/list"] != bare


async def test_a_tool_of_a_mounted_server_is_hidden_under_its_new_name(server: Server, apps: Apps) -> None:
    other = Server("other", version="1.0.0")
    server.mount(other, "sub")
    fill(other)
    async with connect(server) as plain:
        assert [t.name for t in await plain.list_tools()] == ["sub_forecast"]


def test_the_names_to_begin_with_are_in_the_package_of_extensions() -> None:
    assert PublicApps is Apps
