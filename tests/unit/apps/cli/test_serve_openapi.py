"""`trimaran serve api.yaml`: an HTTP API from the command line."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest

from trimaran.apps.cli.serve_openapi import is_openapi

from .conftest import Spawn

Run = Callable[..., subprocess.CompletedProcess[str]]

DOCUMENT = """
openapi: 3.1.0
info: {title: Pets, version: "1"}
servers: [{url: /v1}]
security: [{key: []}]
paths:
  /pets/{id}:
    get: {operationId: getPet, parameters: [{name: id, in: path, required: true, schema: {type: integer}}]}
    delete: {operationId: dropPet, parameters: [{name: id, in: path, required: true, schema: {type: integer}}]}
components: {securitySchemes: {key: {type: apiKey, in: header, name: X-Key}}}
"""


class Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        if self.path == "/docs/api.yaml":
            self._answer("application/yaml", DOCUMENT.encode())
        elif self.path.startswith("/v1/"):
            seen = {"path": self.path, "key": self.headers["X-Key"], "app": self.headers["X-App"]}
            self._answer("application/json", json.dumps(seen).encode())
        else:
            self.send_error(404)

    def _answer(self, media_type: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def api() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("is_fetched", [False, True])
def test_a_document_is_served_on_stdio(
    spawn: Spawn, api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fetched: bool
) -> None:
    monkeypatch.setenv("PETS_KEY", "secret")
    file = tmp_path / "api.yaml"
    file.write_text(DOCUMENT)
    where = [f"{api}/docs/api.yaml"] if is_fetched else [str(file), "--base-url", f"{api}/v1"]
    options = ["--credential", "key=PETS_KEY", "--header", "X-App=boats", "--exclude", "DELETE *"]
    child = spawn("serve", *where, *options)
    listed = child.call_modern(1, "tools/list", {})["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["getPet"]
    reply = child.call_modern(2, "tools/call", {"name": "getPet", "arguments": {"id": 3}})
    assert json.loads(reply["result"]["content"][0]["text"]) == {"path": "/v1/pets/3", "key": "secret", "app": "boats"}
    assert child.end_input() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["api.yaml"], "does not say where the API is"),
        (["api.yaml", "--base-url", "http://x", "--credential", "key"], "--credential is SCHEME=VAR"),
        (["api.yaml", "--base-url", "http://x", "--credential", "key=NO_SUCH"], "NO_SUCH is not set"),
        (["api.yaml", "--base-url", "http://x", "--credential", "key=PATH", "--token-env", "PATH"], "contradict"),
        (["api.yaml", "--login", "me"], "--login does not go with an OpenAPI document"),
        (["api.yaml", "--per-caller"], "--per-caller goes with a proxy"),
        (["api.yaml", "--base-url", "http://x", "--reload"], "--reload watches the Python files"),
        (["boat.py", "--forward-header", "x-tenant"], "--forward-header goes with an OpenAPI document"),
        (["http://127.0.0.1:9/api.yaml"], "cannot be fetched"),
        (["gone.yaml", "--base-url", "http://x"], "No such file"),
    ],
)
def test_what_cannot_be_served_is_said(trimaran: Run, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "api.yaml").write_text(DOCUMENT)
    (tmp_path / "boat.py").touch()
    done = trimaran("serve", *words, cwd=tmp_path)
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("api.yaml", True),
        ("https://x.example/openapi.json", True),
        ("https://x.example/mcp", False),
        ("server.py", False),
        ("openapi.json", True),
        ("config.json", False),
        ("broken.json", False),
    ],
)
def test_documents_are_told_from_other_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, expected: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("openapi.json").write_text('{"openapi": "3.0.0"}')
    Path("config.json").write_text('{"mcpServers": {}}')
    Path("broken.json").write_text("{")
    assert is_openapi(click.Context(click.Command("serve")), [word]) is expected
