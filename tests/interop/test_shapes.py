"""Every shape the schema layer knows, held against its schema by the clients that people have.

Each of them compiles every output schema when it lists the tools, or at the call, and checks every result: one schema it
cannot read costs it the whole server, one value that its schema refuses costs it the call.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.shapes import PATTERNS, SHAPES, WRITTEN

from trimaran.protocol.envelope import is_object, legacy_output
from trimaran.schema import schema_of
from trimaran.server.results import encode

from .harness import DEADLINE, HERE, MODULES, NODE, TOOLS, need, run

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]

SERVER = [sys.executable, str(HERE.parent / "support" / "shapes.py")]
COUNTS = {name: len(values) for name, (_, values) in {**SHAPES, **WRITTEN}.items()}
TYPESCRIPT = [NODE, HERE / "shapes_client.mjs"]


def python(peer: str) -> list[Path]:
    return [TOOLS / "peers" / peer / "bin" / "python", HERE / "shapes_client.py"]


@pytest.mark.parametrize(
    ("driver", "mode"),
    [
        ([*TYPESCRIPT, "v1"], "legacy"),
        ([*TYPESCRIPT, "v2"], "legacy"),
        ([*TYPESCRIPT, "v2"], "2026-07-28"),
        (python("sdk-1.10"), "legacy"),
        (python("sdk-1.28"), "legacy"),
        (python("sdk"), "legacy"),
        (python("sdk"), "2026-07-28"),
    ],
    ids=["typescript 1", "typescript 2 legacy", "typescript 2", "mcp 1.10", "mcp 1.28", "mcp 2 legacy", "mcp 2"],
)
def test_a_client_finds_every_result_as_it_was_promised(driver: list[Any], mode: str) -> None:
    need(driver[0])
    done = run([*driver, json.dumps(COUNTS), mode, *SERVER, "--written"])
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["failures"] == {}
    assert (report["tools"], report["calls"]) == (2 * len(SHAPES) + len(WRITTEN), sum(COUNTS.values()))


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_has_nothing_to_say_about_any_schema(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `--strict` names what some client cannot read, in input and output schemas."""
    need(NODE, MODULES / ".bin" / "mcp-inspector")
    monkeypatch.setenv("HOME", str(tmp_path))  # it keeps a catalog of servers there
    inspector = [NODE, MODULES / ".bin" / "mcp-inspector", "--cli", *SERVER, "--protocol-era", era, "--format", "json"]
    done = run([*inspector, "--method", "tools/list", "--strict"])
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert "schemaFindings" not in answer
    assert len(answer["result"]["tools"]) == 2 * len(SHAPES)


# What a client without formats, or of an older draft in strict mode, reads of an input schema is less: dates, tuples.
INPUT_KINDS = ["TypeScript SDK 1.x", "strict Ajv 2020"]


def test_every_schema_compiles_under_ajv_however_strict_and_takes_its_values(tmp_path: Path) -> None:
    need(NODE)
    schemas: list[dict[str, Any]] = []
    for name, (annotation, values) in SHAPES.items():
        plain = [msgspec.json.decode(encode(value)) for value in values]
        output = schema_of(annotation, mode="output")
        travels = plain if is_object(output) else [{"result": value} for value in plain]
        schemas += [
            {"name": f"{name}, output", "schema": output, "values": plain},
            {"name": f"{name}, legacy output", "schema": legacy_output(output, name), "values": travels},
            {"name": f"{name}, input", "schema": schema_of(annotation), "values": plain, "kinds": INPUT_KINDS},
        ]
    patterns = [pattern for pattern in PATTERNS.values() if pattern is not None]
    for pattern in patterns:
        re.compile(pattern)  # clients in Python do this
    (tmp_path / "schemas.json").write_text(json.dumps({"schemas": schemas, "patterns": patterns}))
    done = run([NODE, HERE / "ajv.mjs", tmp_path / "schemas.json"])
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == []
