"""`trimaran migrate`: programs of FastMCP and of the official SDK become ours, and what cannot is listed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from trimaran import Server, connect
from trimaran.apps.cli import main
from trimaran.apps.cli.migrate.rewrite import migrate_program, migrate_source

SDK = """
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.prompts import base
from mcp.server.session import ServerSession
from mcp.types import TextContent, ToolAnnotations

mcp = FastMCP("Demo", "Be kind.", port=9000, log_level="DEBUG")


@mcp.tool("sum", annotations=ToolAnnotations(readOnlyHint=True))  # adds
def add(a: int, b: int) -> int:
    return a + b


@mcp.tool()
async def speak(ctx: Context[ServerSession, None]) -> list[TextContent]:
    await ctx.info("hello", logger_name="app")
    await ctx.report_progress(1, 2)
    return [TextContent(type="text", text="done")]


@mcp.resource("greeting://{name}")
def greeting(name: str) -> str:
    return f"Hello, {name}!"


@mcp.prompt()
def review(code: str) -> list[base.Message]:
    return [base.UserMessage(code), base.AssistantMessage("I look.")]


if __name__ == "__main__":
    mcp.run(transport="streamable-http")
"""

SDK_AFTER = """
from trimaran import Context, Server
from trimaran.content import assistant_message, user_message
from trimaran.types import PromptMessage, TextContent, ToolAnnotations

mcp = Server("Demo", instructions="Be kind.", expose_internal_errors=True)


@mcp.tool(name="sum", annotations=ToolAnnotations(read_only_hint=True))  # adds
def add(a: int, b: int) -> int:
    return a + b


@mcp.tool()
async def speak(ctx: Context) -> list[TextContent]:
    await ctx.info("hello", logger="app")
    await ctx.report_progress(1, 2)
    return [TextContent(text="done")]


@mcp.resource("greeting://{name}")
def greeting(name: str) -> str:
    return f"Hello, {name}!"


@mcp.prompt()
def review(code: str) -> list[PromptMessage]:
    return [user_message(code), assistant_message("I look.")]


if __name__ == "__main__":
    mcp.run("http", port=9000)
"""


def test_a_server_of_the_official_sdk_becomes_ours() -> None:
    migration = migrate_source(SDK)
    assert migration.left == []
    assert migration.code == SDK_AFTER


async def test_a_migrated_server_works() -> None:
    """P31."""
    module: dict[str, Any] = {"__name__": "migrated"}
    exec(compile(SDK_AFTER, "migrated.py", "exec"), module)
    server = module["mcp"]
    assert isinstance(server, Server)
    async with connect(server) as client:
        assert (await client.call_tool("sum", {"a": 1, "b": 2})).data == 3
        assert (await client.call_tool("speak")).text == "done"
        assert [message.role for message in (await client.get_prompt("review", {"code": "x"})).messages] == [
            "user",
            "assistant",
        ]


BODIES = [
    # FastMCP: what is imported, what is written, what becomes of it
    ("from fastmcp import FastMCP", "m = FastMCP()", 'm = Server("server", expose_internal_errors=True)'),
    ("from fastmcp import FastMCP", 'm = FastMCP("x", mask_error_details=True)', 'm = Server("x")'),
    ("import fastmcp", 'm = fastmcp.FastMCP(name="x")', 'm = Server(name="x", expose_internal_errors=True)'),
    ("from mcp.server import MCPServer", "m: MCPServer", "m: Server"),
    ("from mcp.server.fastmcp import FastMCP as F", "m: F", "m: F"),
    ("from fastmcp import FastMCP", "def f(m: FastMCP): m.run()", "def f(m: Server): m.run()"),
    (
        "from fastmcp import FastMCP",
        'def f(m: FastMCP): m.run(transport="sse", host="::1", show_banner=False)',
        'def f(m: Server): m.run("http", host="::1", port=8000, sse_path="/sse")',
    ),
    (
        "from fastmcp import FastMCP",
        'def f(m: FastMCP): m.run(transport="sse", path="/events")',
        'def f(m: Server): m.run("http", sse_path="/events", port=8000)',
    ),
    (
        "from fastmcp import FastMCP",
        'def f(m: FastMCP): m.http_app(transport="sse", path="/events")',
        'def f(m: Server): m.asgi(sse_path="/events")',
    ),
    (
        "from fastmcp import FastMCP",
        "m = FastMCP(\n    'x',\n    version='1',\n)",
        "m = Server(\n    'x',\n    version='1',\n    expose_internal_errors=True,\n)",
    ),
    (
        "from fastmcp import FastMCP",
        "def f(m: FastMCP):\n    m.run(\n        transport='http',\n        host='::1'\n    )",
        "def f(m: Server):\n    m.run(\n        \"http\",\n        host='::1',\n        port=8000\n    )",
    ),
    (
        "from fastmcp import FastMCP",
        'async def f(m: FastMCP): await m.run_async(transport="http", port=1)',
        'async def f(m: Server): await m.serve("http", port=1)',
    ),
    ("from fastmcp import FastMCP", "def f(m: FastMCP): m.http_app()", "def f(m: Server): m.asgi()"),
    (
        "from mcp.server import MCPServer",
        "def f(m: MCPServer):\n    m.streamable_http_app(\n        stateless_http=True,\n    )",
        "def f(m: Server):\n    m.asgi()",
    ),
    (
        "from mcp.server import MCPServer",
        'def f(m: MCPServer): m.sse_app(sse_path="/x")',
        'def f(m: Server): m.asgi(sse_path="/x")',
    ),
    ("from fastmcp import FastMCP", 'def f(m: FastMCP): m.mount("a", g)', 'def f(m: Server): m.mount(g, "a")'),
    (
        "from fastmcp import FastMCP",
        'def f(m: FastMCP): m.mount(g, namespace="a")',
        'def f(m: Server): m.mount(g, "a")',
    ),
    (
        "from fastmcp import FastMCP",
        'def f(m: FastMCP): m.tool(g, name="a")',
        'def f(m: Server): m.add_tool(g, name="a")',
    ),
    (
        "from fastmcp import FastMCP",
        'def f(m: FastMCP): m.resource("a://{p*}")',
        'def f(m: Server): m.resource("a://{+p}")',
    ),
    ("from fastmcp import Context", "def f(c: Context): c.fastmcp", "def f(c: Context): c.server"),
    (
        "from mcp.server.fastmcp import Context",
        "def f(c: Context): c.request_context.lifespan_context.db",
        "def f(c: Context): c.server.lifespan_state.db",
    ),
    (
        "from fastmcp import Context",
        'def f(c: Context): c.log("a", level="info")',
        'def f(c: Context): c.log("info", "a")',
    ),
    (
        "from fastmcp import Context",
        "def f(c: Context): c.elicit('a', response_type=M)",
        "def f(c: Context): c.elicit('a', schema=M)",
    ),
    ("from fastmcp import Client", "c = Client(url)", "c = connect(url)"),
    ("from fastmcp.exceptions import ToolError", "raise ToolError", "raise ToolError"),
    ("from fastmcp.dependencies import Depends", "x = Depends(f)", "x = Depends(f)"),
    ("from fastmcp.utilities.types import Image", 'i = Image(data=d, format="png")', 'i = image(d, "image/png")'),
    (
        "from mcp.server import MCPServer",
        "def f(m: MCPServer): m.streamable_http_app(host=h)",
        "def f(m: Server): m.asgi(host=h)",
    ),
    ("from mcp.types import INVALID_PARAMS", "code = INVALID_PARAMS", "code = CODE_INVALID_PARAMS"),
    ("import mcp.types as t", "code = t.INTERNAL_ERROR", "code = CODE_INTERNAL"),
    ("from fastmcp.utilities.logging import get_logger", "log = get_logger(n)", "log = getLogger(n)"),
    ("from fastmcp.prompts import Message", 'm = Message("a", role="assistant")', 'm = assistant_message("a")'),
    (
        "from fastmcp import FastMCP",
        "m = FastMCP(\n    'x',\n    mask_error_details=False,\n)",
        "m = Server(\n    'x',\n    expose_internal_errors=True,\n)",
    ),
    ("from fastmcp import FastMCP", "def f(m: FastMCP): m.tool(enabled=True)", "def f(m: Server): m.tool()"),
    ("from mcp.server import MCPServer", "def f(m: MCPServer[State]): pass", "def f(m: Server): pass"),
    (
        "from fastmcp import Context",
        "async def f(c: Context):\n    answer = await c.elicit('a', response_type=M)\n    return answer.data.x",
        "async def f(c: Context):\n    answer = await c.elicit('a', schema=M)\n    return answer.content.x",
    ),
    (
        "from mcp.server.fastmcp import Context",
        "async def f(c: Context): await c.session.send_tool_list_changed()",
        "async def f(c: Context): c.server.notify.tools_changed()",
    ),
    (
        "from mcp.server.fastmcp import Context",
        "async def f(c: Context): await c.request_context.session.send_resource_updated(AnyUrl(u))",
        "async def f(c: Context): c.server.notify.resource_updated(str(AnyUrl(u)))",
    ),
    (
        "from mcp.server.fastmcp import Context",
        "async def f(c: Context): await c.session.send_log_message(level='info', data=d, related_request_id=i)",
        "async def f(c: Context): await c.log(level='info', data=d)",
    ),
    (
        "from fastmcp import Client",
        "async def f():\n    async with Client(m) as c:\n        r = await c.call_tool('a', {})\n        r.structured_content\n"
        "        text = (await c.read_resource(u))[0].text\n        await c.list_tools()",
        "async def f():\n    async with connect(m) as c:\n        r = await c.call_tool('a', {}, raise_on_error=True)\n        r.structured\n"
        "        text = (await c.read_resource(u)).contents[0].text\n        await c.list_tools_all()",
    ),
    (
        "from fastmcp.tools.tool import ToolResult",
        "def f() -> ToolResult: return ToolResult(content=[t], structured_content=d)",
        "def f() -> CallToolResult: return CallToolResult(content=[t], structured_content=d)",
    ),
    (
        "from mcp.types import ResourceTemplateReference",
        "def f(r: ResourceTemplateReference): pass",
        "def f(r: ResourceReference): pass",
    ),
    ("from mcp import types", 't = types.Tool(name="a", inputSchema={})', 't = types.Tool(name="a", input_schema={})'),
]


@pytest.mark.parametrize(("line", "before", "after"), BODIES)
def test_each_name_and_call_becomes_ours(line: str, before: str, after: str) -> None:
    migration = migrate_source(f"{line}\n\n{before}\n")
    assert migration.left == []
    imports, _, body = migration.code.partition("\n\n")
    assert body == after + "\n"
    assert "fastmcp" not in imports and "mcp." not in imports and "import" in imports
    compile(migration.code, "migrated.py", "exec")


LEFT = [
    ("from fastmcp import FastMCP", 'm = FastMCP("x", auth=a)', "auth=a: pass a provider of trimaran.auth"),
    ("from fastmcp import FastMCP", "def f(m: FastMCP): m.add_middleware(x)", "m.add_middleware: write a function"),
    ("from fastmcp import FastMCP", "m = FastMCP.from_openapi(x)", "FastMCP.from_openapi: write Server.from_openapi"),
    ("from fastmcp import FastMCP", "def f(m: FastMCP): m.run(transport=t)", "the transport must be"),
    ("from fastmcp import Context", "def f(c: Context): c.session", "c.session: use ctx.sample"),
    ("from mcp.server import MCPServer", "def f(m: MCPServer): m._tool_manager.get_tool(n)", "_tool_manager: private"),
    ("from fastmcp import FastMCP", "def f(a): a.server._mcp_server", "_mcp_server: private"),
    ("from fastmcp import *", "m = 1", "from fastmcp import *: import each name by itself"),
    ("from fastmcp.utilities.types import Image", 'i = Image(path="a.png")', "write image(data, mime_type)"),
    ("from mcp import ClientSession", "x: ClientSession", "ClientSession: the client: use trimaran.connect"),
    (
        "from mcp.server.transport_security import TransportSecuritySettings",
        "s = TransportSecuritySettings()",
        "TransportSecuritySettings: use allowed_hosts= and allowed_origins=",
    ),
    ("from mcp.server.context import CallNext", "c: CallNext", "CallNext: middleware: write a function"),
    ("from fastmcp import FastMCP", "m = FastMCP.as_proxy(url)", "FastMCP.as_proxy: write Server.proxy(target)"),
    (
        "from fastmcp.tools.tool import ToolResult",
        "def f(): return ToolResult(content='a')",
        "write trimaran.content.structured",
    ),
    (
        "from fastmcp import Context",
        "def f(c: Context): c.session.list_roots()",
        "c.session.list_roots: write ctx.roots()",
    ),
    (
        "from fastmcp.exceptions import ResourceError",
        "raise ResourceError",
        "ResourceError: raise trimaran.ProtocolError",
    ),
    (
        "from fastmcp.server.dependencies import get_http_headers",
        "get_http_headers()",
        "get_http_headers: take `ctx: Context` as a parameter; ctx.header(name)",
    ),
    ("from fastmcp import FastMCP", "m = FastMCP('x', auth=A(\n    b))", "auth=A( b): pass a provider"),
    ("from mcp.server.lowlevel import Server", 's = Server("x")', "Server: the low-level server"),
]


@pytest.mark.parametrize(("line", "body", "text"), LEFT)
def test_the_rest_is_left_with_its_line_and_a_reason(line: str, body: str, text: str) -> None:
    migration = migrate_source(f"{line}\n\n{body}\n")
    (leftover,) = migration.left
    assert text in leftover.text
    assert leftover.line == (1 if "*" in line else 3)


def test_authentication_is_never_dropped() -> None:
    """A server that was closed must not become open because a program rewrote it."""
    code = migrate_source('from fastmcp import FastMCP\nm = FastMCP("x", auth=provider)\n').code
    assert "auth=provider" in code


def test_a_program_on_the_low_level_server_stays_whole() -> None:
    source = 'from mcp import types\nfrom mcp.server.lowlevel import Server\n\ns = Server("x")\nt = types.TextContent\n'
    assert migrate_source(source).code == source


@pytest.mark.parametrize("source", [SDK, *(f"{line}\n\n{body}\n" for line, body, _ in (*BODIES, *LEFT))])
def test_a_second_run_changes_nothing(source: str) -> None:
    once = migrate_source(source).code
    assert migrate_source(once).code == once


def test_other_programs_are_left_alone() -> None:
    source = "import mcp_tools\nfrom .fastmcp import FastMCP\nmcp = FastMCP('x')\nmcp.run(transport='sse')\n"
    assert migrate_source(source)[:2] == (source, [])


def test_the_command_shows_a_diff_and_writes_only_when_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.py"
    file.write_text(SDK)
    assert main(["migrate", str(file)]) == 0
    assert "+from trimaran import Context, Server\n" in capsys.readouterr().out
    assert file.read_text() == SDK
    assert main(["migrate", "--write", str(file)]) == 0
    assert file.read_text() == SDK_AFTER


def test_the_exit_code_says_that_something_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.py"
    file.write_text("from mcp import ClientSession\nx = ClientSession\n")
    assert main(["migrate", str(file)]) == 1
    assert (
        f"{file}:2: ClientSession: the client: use trimaran.connect(target)\n1 left to you" in capsys.readouterr().err
    )
    file.write_text("def (:\n")
    assert main(["migrate", str(file)]) == 2
    assert "cannot be read as Python" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    ["x = " + "(" * 5000, "x = " + "-" * 20_000 + "1", "x = " + "[" * 150 + "]" * 150, "x = " + "1+" * 20_000 + "1"],
    ids=["brackets", "signs", "lists", "sums"],
)
def test_what_nests_too_deeply_is_refused_and_ends_no_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    file = tmp_path / "server.py"
    file.write_text(f"from mcp.server.fastmcp import FastMCP\n{line}\n")
    assert main(["migrate", str(file)]) == 2
    assert "it nests deeper than 120 levels" in capsys.readouterr().err


def test_without_libcst_the_message_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "libcst", None)
    monkeypatch.delitem(sys.modules, "trimaran.apps.cli.migrate.rewrite")
    file = tmp_path / "server.py"
    file.write_text(SDK)
    assert main(["migrate", str(file)]) == 2
    assert 'pip install "trimaran[migrate]"' in capsys.readouterr().err


LOW_LEVEL = """
from mcp.server.lowlevel import Server

from .tools import TOOLS

app = Server("app")
"""
TYPES_ALONE = """
import mcp.types as types

TOOLS = [types.Tool(name="a", inputSchema={"type": "object"})]
"""


def test_the_types_of_a_program_stay_when_its_low_level_server_stays() -> None:
    program = migrate_program({"server.py": LOW_LEVEL, "tools.py": TYPES_ALONE, "other.py": "x = 1\n"})
    assert program["tools.py"].code == TYPES_ALONE
    assert "server.py" in program["tools.py"].left[0].text
    assert program["other.py"].left == []


def test_the_types_of_a_program_become_ours_when_one_of_its_servers_does() -> None:
    serves = "from mcp.server import FastMCP\n\nmcp = FastMCP('a')\n"
    program = migrate_program({"low.py": LOW_LEVEL, "tools.py": TYPES_ALONE, "server.py": serves})
    assert "input_schema" in program["tools.py"].code
    assert "from trimaran import Server" in program["server.py"].code


def test_content_that_comes_through_another_module_of_theirs_becomes_ours() -> None:
    source = "from fastmcp.tools.tool import TextContent, ToolResult\n\nx = ToolResult(content=[TextContent(type='text', text='a')])\n"
    migration = migrate_source(source)
    assert "from trimaran.types import CallToolResult, TextContent" in migration.code
    assert "TextContent(text='a')" in migration.code
    assert migration.left == []


def test_a_folder_is_the_python_files_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "package"
    for folder in ("inner", ".venv"):
        (package / folder).mkdir(parents=True)
        (package / folder / "server.py").write_text("from fastmcp import FastMCP\n\nmcp = FastMCP('a')\n")
    assert main(["migrate", "--write", str(package)]) == 0
    assert "trimaran" in (package / "inner" / "server.py").read_text()
    assert "trimaran" not in (package / ".venv" / "server.py").read_text()
    capsys.readouterr()


def test_nothing_is_written_when_a_file_of_the_program_is_no_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("from fastmcp import FastMCP\n")
    (tmp_path / "b.py").write_text("def (:\n")
    assert main(["migrate", "--write", str(tmp_path / "a.py"), str(tmp_path / "b.py")]) == 2
    assert (tmp_path / "a.py").read_text() == "from fastmcp import FastMCP\n"
    assert "b.py cannot be read as Python" in capsys.readouterr().err
