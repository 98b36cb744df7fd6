"""What is sent keeps its digits, and a large result shows what it is."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any

import msgspec
import pytest
from tests.support.inspector import open_bench

from trimaran import Server
from trimaran.apps.inspector.outline import outline_of
from trimaran.content import image
from trimaran.serve import HttpServer

MB = 1024 * 1024


def pictures() -> Server:
    server = Server("pictures")

    @server.tool
    def echo(price: Annotated[float, msgspec.Meta(le=100)]) -> str:
        """Say something."""
        return "heard"

    @server.tool(structured_output=False)
    def paint(size: int) -> list[Any]:
        """Bytes that say that they are a picture."""
        return ["here it is", image(bytes(size), mime_type="image/png")]

    return server


@pytest.mark.parametrize("typed", ["1.50", "12.123456789012345678901", "1e2", "0.1", "7"])
async def test_a_number_is_sent_with_the_digits_that_were_typed(typed: str) -> None:
    async with open_bench() as bench, HttpServer(pictures(), port=0) as http:
        server = await bench.add(http.url)
        new = {"server": server.id, "kind": "tool", "name": "echo"}
        body = json.dumps(new)[:-1] + f', "arguments": {{"price": {typed}}}}}'
        headers = {"content-type": "application/json"}
        _, _, text = await bench.raw("POST", "/api/calls", data=body.encode(), headers=headers)
        call = await bench.finish(json.loads(text))
        assert call["state"] == "ok", call
        sent = (await bench.get("/api/messages?method=tools/call&direction=out"))["messages"][-1]
        _, _, wire = await bench.raw("GET", f"/api/messages/{sent['seq']}/body")
        assert f'"price":{typed}' in wire


async def test_a_number_beyond_its_bounds_is_refused_with_its_digits() -> None:
    async with open_bench() as bench:
        server = await bench.add(pictures())
        new = {"server": server.id, "kind": "tool", "name": "echo", "arguments": {"price": 100.50}}
        refusal = await bench.post("/api/calls", new, status=422)
        assert refusal["violations"][0]["path"] == "/price"


async def test_a_large_picture_comes_as_its_beginning_and_the_rest_as_bytes() -> None:
    async with open_bench() as bench, HttpServer(pictures(), port=0) as http:
        server = await bench.add(http.url)
        call = await bench.tool(server.id, "paint", {"size": 2 * MB})
        assert call["resultTruncated"] is True
        text, picture = call["result"]["content"]
        assert (text["text"], picture["mimeType"], len(picture["data"])) == ("here it is", "image/png", 65_536)
        length = len(base64.b64encode(bytes(2 * MB)))
        assert call["cut"] == [{"path": "/content/1/data", "length": length}]
        path = f"/api/calls/{call['id']}/result?path={call['cut'][0]['path']}&raw=1"
        async with bench.http.get(bench.url + path, headers=bench.headers) as answer:
            assert (answer.content_type, len(await answer.read())) == ("image/png", 2 * MB)


def test_an_outline_is_made_where_long_texts_are_why_a_result_is_large() -> None:
    outline = outline_of({"a/b": ["x" * MB, 1], "c": {"d": "y" * 70_000}}, MB)
    assert outline is not None
    assert [(cut.path, cut.length) for cut in outline.cut] == [("/a~1b/0", MB), ("/c/d", 70_000)]
    assert outline.value["a/b"][1] == 1
    assert outline_of({"many": ["x" * 1000] * 2000}, MB) is None, "its many parts are why"
    assert outline_of({"many": ["x" * 70_000] * 200}, MB) is None, "its beginnings are as large"
    deep: Any = "x" * 70_000
    for _ in range(100_000):
        deep = [deep]
    assert outline_of(deep, MB) is None


async def test_a_path_that_no_file_can_have_is_not_there() -> None:
    async with open_bench() as bench:
        status, _, _ = await bench.raw("GET", "/assets/" + "a" * 5_000)
        assert status == 404
