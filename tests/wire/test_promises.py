"""Promises about serving that no other wire test makes good on: each test cites its requirement."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import encode, initialize, request
from tests.support.until import PATIENCE, soon

from trimaran import Context, Host, Server, connect
from trimaran.serve import HttpServer

ROOT = Path(__file__).resolve().parents[2]


def demo() -> Server:
    server = Server("demo", version="1")

    @server.tool
    async def whoami(ctx: Context) -> str:
        return "nobody" if ctx.auth is None else ctx.auth.subject or ""

    return server


class Responder:
    """An HTTP server's side of one request, whose client can be made to leave."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.has_begun = asyncio.Event()
        self.is_watched = False
        self.leave: Any = None

    async def reply(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, dict(headers), body

    async def stream_start(self, status: int, headers: Any) -> None:
        self.status, self.headers = status, dict(headers)
        self.has_begun.set()

    async def stream_chunk(self, data: bytes) -> bool:
        self.body += data
        return True

    async def stream_end(self) -> None: ...

    def watch(self, callback: Any) -> Any:
        self.leave, self.is_watched = callback, True

        def unwatch() -> None:
            self.is_watched = False

        return unwatch


async def ask(engine: Any, verb: str, headers: dict[str, str], body: bytes = b"", path: str = "/mcp") -> Responder:
    responder = Responder()
    whole = {"Host": "localhost", "Accept": "application/json, text/event-stream", **headers}
    if verb == "POST":
        whole["Content-Type"] = "application/json"
    await soon(engine.handle(verb, path, whole, body, responder))
    return responder


async def open_session(engine: Any) -> dict[str, str]:
    hello = await ask(engine, "POST", {}, encode(initialize()))
    headers = {"Mcp-Session-Id": hello.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await ask(engine, "POST", headers, encode(done))).status == 202
    return headers


@pytest.mark.parametrize("ended_by", ["its client", "its session"])
async def test_an_embedded_get_holds_until_it_is_over_and_leaves_nothing(ended_by: str) -> None:
    """R145: until the session ends, or the host signals that the client has gone."""
    engine = demo().engine(host="127.0.0.1")
    headers = await open_session(engine)
    responder = Responder()
    stream = asyncio.ensure_future(
        engine.handle("GET", "/mcp", {"Host": "localhost", "Accept": "text/event-stream", **headers}, b"", responder)
    )
    async with asyncio.timeout(PATIENCE):
        await responder.has_begun.wait()
        assert engine.count_streams() == 1
        assert not stream.done()
        if ended_by == "its client":
            responder.leave()
        else:
            assert (await ask(engine, "DELETE", headers)).status == 204
        await stream
    assert engine.count_streams() == 0
    assert not responder.is_watched
    await engine.drain(0.0)


async def test_the_engine_has_the_options_and_routes_of_the_server() -> None:
    """R146: sessions or none, plain JSON-RPC, origins, the buffer of a stream, metadata; each by an option of the engine."""
    from trimaran.auth import ProtectedResource

    async def nobody(token: str, auth: Any, request: Any) -> Any:
        return None

    listing = encode(request("tools/list"))
    assert (await ask(demo().engine(), "POST", {}, listing)).status == 400
    loose = demo().engine(require_session=False)
    assert (await ask(loose, "POST", {}, listing)).status == 200
    assert (await ask(demo().engine(plain=True), "POST", {}, listing)).status == 200
    assert (await ask(demo().engine("/"), "POST", {}, encode(initialize()), path="/")).status == 200
    strict = demo().engine(host="0.0.0.0", allowed_origins=["https://a.example"])
    assert (await ask(strict, "POST", {}, encode(initialize()))).status == 403
    let = demo().engine(host="0.0.0.0", allowed_origins=["https://a.example"], allow_missing_origin=True)
    assert (await ask(let, "POST", {}, encode(initialize()))).status == 200
    known = ProtectedResource(
        resource="http://localhost/mcp", authorization_servers=["https://login.example.com"], authorizer=nobody
    )
    guarded = demo().engine(auth=known)
    path = "/.well-known/oauth-protected-resource"
    assert json.loads((await ask(guarded, "GET", {}, path=path)).body)["resource"] == "http://localhost/mcp"
    assert "resource_metadata=" in (await ask(guarded, "POST", {}, listing)).headers["www-authenticate"]


async def test_a_host_connects_to_a_server_that_is_configured_as_sse() -> None:
    """R135: and its answers come on the stream."""
    async with HttpServer(demo(), port=0, sse_path="/sse") as http:
        url = http.url.removesuffix("/mcp") + "/sse"
        async with Host({"old": {"transport": "sse", "url": url}}, environ={}, allow=["*"]) as host:
            [status] = host.status()
            assert status.state == "connected", status
            result = await host.call("mcp__old__whoami", {})
            assert "nobody" in str(result)


@pytest.mark.slow
async def test_a_server_works_from_the_configuration_of_claude_desktop(tmp_path: Path) -> None:
    """R141: command, args and env, as the page shows them; and the page says where the file is, on each system."""
    page = (ROOT / "docs" / "guides" / "stdio.md").read_text(encoding="utf-8")
    for folder in ("~/Library/Application Support/Claude/", "%APPDATA%\\Claude\\", "~/.config/Claude/"):
        assert f"{folder}claude_desktop_config.json" in page
    [block] = [b for b in re.findall(r"```json\n(.+?)```", page, re.DOTALL) if "mcpServers" in b][:1]
    config = json.loads(block)
    entry = config["mcpServers"]["local"]
    assert set(entry) == {"command", "args", "env"}
    file = tmp_path / "local.py"
    file.write_text(
        "import os\nfrom trimaran import Server\nserver = Server('local', version='1')\n"
        "@server.tool\ndef level() -> str:\n    return os.environ['LOG_LEVEL']\n"
    )
    entry["command"] = str(Path(sys.executable).with_name("trimaran"))
    entry["args"] = [arg.replace("/path/to/local.py", str(file)) for arg in entry["args"]]
    async with connect(config) as client:
        assert (await client.call_tool("level")).data == "info"


@pytest.mark.slow
async def test_closing_a_client_ends_its_child() -> None:
    """R205: and deletes the session, of a server that has one."""
    code = (
        "import os; from trimaran import Server; s = Server('s', version='1'); "
        "s.add_tool(lambda: os.getpid(), name='pid'); s.run()"
    )
    async with connect([sys.executable, "-c", code]) as client:
        pid = (await client.call_tool("pid")).data
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


async def test_nobody_opens_a_browser_or_keeps_a_login_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R215: `OAuth()` asks nobody and writes nothing; `login=` and `store=` are for whoever builds a host."""
    import webbrowser

    from trimaran.auth import ProtectedResource
    from trimaran.errors import Unauthorized
    from trimaran.oauth import OAuth

    def fail(*args: Any) -> Any:
        raise AssertionError("a browser was opened")

    monkeypatch.setattr(webbrowser, "get", fail)
    monkeypatch.setattr(webbrowser, "open", fail)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))

    async def nobody(token: str, auth: Any, request: Any) -> Any:
        return {"sub": "ada", "aud": auth.resource} if token == "good" else None

    auth = ProtectedResource(
        resource="http://127.0.0.1/mcp", authorization_servers=["https://login.example.com"], authorizer=nobody
    )
    async with HttpServer(demo(), port=0, auth=auth) as http:
        with pytest.raises(Unauthorized):
            async with connect(http.url, auth=OAuth(client_id="c")):
                pass
        async with connect(http.url, auth=OAuth(client_id="c", access_token="good")) as client:
            assert (await client.call_tool("whoami")).data == "ada"
    assert list(tmp_path.iterdir()) == []
