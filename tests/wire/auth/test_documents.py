"""Documents that anyone may read: outside the endpoint's path, without credentials, from any page (R170)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.support.badges import ALICE, Badges, demo
from tests.support.harness import AsgiCarrier, Wire, request, serve

from trimaran.auth import ProtectedResource

WELL_KNOWN = "/.well-known/oauth-protected-resource"


class Documented(Badges):
    """Badges with a document at one path."""

    def document(self, request: Any) -> tuple[int, list[tuple[str, str]], bytes] | None:
        if request.path != f"{WELL_KNOWN}/mcp":
            return None
        found = {"method": request.method, "url": request.url}
        headers = [("content-type", "application/json"), ("access-control-allow-origin", "*")]
        return 200, headers, json.dumps(found).encode()


def resource(url: str = "http://127.0.0.1/mcp", **options: Any) -> ProtectedResource:
    async def nobody(token: str, auth: Any, request: Any) -> Any:
        return None

    servers = ["https://login.example.com"]
    return ProtectedResource(resource=url, authorization_servers=servers, authorizer=nobody, **options)


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "https://evil.example"}, {"Authorization": "Bearer bad"}],
    ids=["bare", "origin", "token"],
)
async def test_a_document_is_read_by_anyone_from_anywhere(binding: str, headers: dict[str, str]) -> None:
    """R170: no token, no Origin check; CORS is the document's own affair."""
    auth = Documented()
    async with serve(binding, demo(), auth=auth) as wire:
        reply = await wire.send("GET", headers, path=f"{WELL_KNOWN}/mcp?a=1")
        assert reply.status == 200
        assert reply.json["method"] == "GET"
        assert reply.headers["access-control-allow-origin"] == "*"
        assert auth.seen == []


async def test_what_is_no_document_is_nothing(binding: str) -> None:
    """R120: any other path is what it was; without an authenticator, so are these."""
    async with serve(binding, demo(), auth=Documented()) as wire:
        assert (await wire.send("GET", path=WELL_KNOWN)).status == 404
        assert (await wire.send("GET", path="/elsewhere")).status == 404
        assert (await wire.send("GET", ALICE, path="/elsewhere")).status == 404
    async with serve(binding, demo()) as wire:
        assert (await wire.send("GET", path=f"{WELL_KNOWN}/mcp")).status == 404


async def test_a_document_that_fails_is_a_plain_500(binding: str) -> None:
    class Broken(Badges):
        def document(self, request: Any) -> Any:
            raise RuntimeError("inner secret")

    async with serve(binding, demo(), auth=Broken()) as wire:
        reply = await wire.send("GET", path=WELL_KNOWN)
        assert reply.status == 500
        assert b"secret" not in reply.body


async def test_a_document_knows_the_url_that_clients_use(binding: str) -> None:
    async with serve(binding, demo(), auth=Documented(), public_url="https://api.example.com/mcp") as wire:
        reply = await wire.send("GET", path=f"{WELL_KNOWN}/mcp")
        assert reply.json["url"] == f"https://api.example.com{WELL_KNOWN}/mcp"


@pytest.mark.parametrize("path", [WELL_KNOWN, f"{WELL_KNOWN}/mcp"])
async def test_the_metadata_of_a_protected_resource(binding: str, path: str) -> None:
    """R170: at both paths; GET, HEAD and OPTIONS, others 405 with Allow; no-store."""
    async with serve(binding, demo(), auth=resource()) as wire:
        reply = await wire.send("GET", {"Origin": "https://anywhere.example"}, path=path)
        assert reply.status == 200
        assert reply.json["resource"] == "http://127.0.0.1/mcp"
        assert reply.headers["access-control-allow-origin"] == "*"
        assert reply.headers["cache-control"] == "no-store"
        head = await wire.open("HEAD", path=path)
        assert head.status == 200
        await head.close()
        assert (await wire.send("OPTIONS", {"Origin": "https://anywhere.example"}, path=path)).status == 204
        refused = await wire.send("POST", path=path)
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_plain_json_rpc_has_metadata_and_challenges_too(binding: str) -> None:
    """R134, R180."""
    async with serve(binding, demo(), auth=resource(), plain=True) as wire:
        refused = await wire.post(request("tools/list"))
        assert refused.status == 401
        assert f'resource_metadata="http://127.0.0.1{WELL_KNOWN}/mcp"' in refused.headers["www-authenticate"]
        for path in (WELL_KNOWN, f"{WELL_KNOWN}/mcp"):
            assert (await wire.send("GET", path=path)).json["resource"] == "http://127.0.0.1/mcp"


async def test_a_refusal_points_to_the_metadata(binding: str) -> None:
    """R174, protocol.md 4.1.1: what a client follows, it finds."""
    async with serve(binding, demo(), auth=resource("http://127.0.0.1/mcp")) as wire:
        refused = await wire.modern("tools/list")
        assert refused.status == 401
        assert f'resource_metadata="http://127.0.0.1{WELL_KNOWN}/mcp"' in refused.headers["www-authenticate"]
        assert (await wire.send("GET", path=f"{WELL_KNOWN}/mcp")).status == 200


async def test_http2_serves_the_metadata() -> None:
    """R147."""
    async with serve("http2", demo(), auth=resource()) as wire:
        assert (await wire.send("GET", path=f"{WELL_KNOWN}/mcp")).json["resource"] == "http://127.0.0.1/mcp"


@pytest.mark.parametrize("mounted", [WELL_KNOWN, "/.well-known"])
async def test_an_app_under_a_prefix_is_mounted_twice(mounted: str) -> None:
    """R148: the endpoint below its prefix, the document where RFC 9728 puts it: at the root of the host."""
    app = demo().asgi("/mcp", auth=resource("http://127.0.0.1/api/mcp"), host="127.0.0.1")
    outer = Starlette(routes=[Mount(mounted, app), Mount("/api", app)])
    wire = Wire(AsgiCarrier(outer), "/api/mcp", app.engine)
    # Starlette itself redirects the bare mount point to the one with a slash.
    for path in (f"{WELL_KNOWN}/", f"{WELL_KNOWN}/api/mcp"):
        reply = await wire.send("GET", path=path)
        assert reply.status == 200, path
        assert reply.json["resource"] == "http://127.0.0.1/api/mcp"
    assert (await wire.send("GET", path=f"{WELL_KNOWN}/other")).status == 404
    refused = await wire.modern("tools/list")
    assert refused.status == 401
    assert f"{WELL_KNOWN}/api/mcp" in refused.headers["www-authenticate"]
    await app.aclose()


async def test_a_mounted_app_knows_the_whole_url() -> None:
    """RFC 9449: a proof is for the URL the client used, mount point and all."""
    auth = Badges()
    app = demo().asgi("/mcp", auth=auth, host="127.0.0.1")
    wire = Wire(AsgiCarrier(Starlette(routes=[Mount("/api", app)])), "/api/mcp", app.engine)
    await wire.modern("tools/list", headers=ALICE)
    wire.path = "/api/"
    await wire.modern("tools/list", headers=ALICE)
    assert [(path, url) for _, path, _, url in auth.seen] == [
        ("/mcp", "http://127.0.0.1:80/api/mcp"),
        ("/mcp", "http://127.0.0.1:80/api/"),
    ]
    await app.aclose()
