"""Text that JSON cannot carry, such as the name of a file that is not UTF-8, spoils one character and not the answer."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pydantic
import pytest

from trimaran import Context, Server, ToolError, connect
from trimaran.protocol.surrogates import encode_repaired
from trimaran.schema import enc_hook

NAME = os.fsdecode(b"caf\xe9.txt")
REPAIRED = "caf\N{REPLACEMENT CHARACTER}.txt"


@dataclass(frozen=True)
class File:
    name: str
    tags: set[str] = field(default_factory=set[str])
    built: int = field(default=0, init=False)


class Listed(msgspec.Struct, rename="camel"):
    file_name: str


class Model(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (NAME, REPAIRED),
        ([NAME, 1], [REPAIRED, 1]),
        ({NAME: (NAME,)}, {REPAIRED: [REPAIRED]}),
        (File(NAME, {NAME}), {"name": REPAIRED, "tags": [REPAIRED], "built": 0}),
        (Listed(NAME), {"fileName": REPAIRED}),
        (Model(name=NAME), {"name": REPAIRED}),
        ([msgspec.Raw(b'{"a":1}'), NAME], [{"a": 1}, REPAIRED]),
        ("\ud83d\ude00 \ud83d", "\N{GRINNING FACE} \N{REPLACEMENT CHARACTER}"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_lone_surrogate_becomes_the_replacement_character(value: Any, expected: Any) -> None:
    assert msgspec.json.decode(encode_repaired(value, enc_hook)) == expected


server = Server("files", version="1")


@server.tool
def text() -> str:
    """One name."""
    return NAME


@server.tool
def listed() -> list[File]:
    """Several names."""
    return [File(NAME)]


@server.tool
def anything() -> dict[str, Any]:
    """Names without a promise."""
    return {"names": [NAME]}


@server.tool
async def refused(ctx: Context) -> str:
    """Fail with a name, after saying it."""
    await ctx.log("info", NAME)
    await ctx.progress(1, message=NAME)
    raise ToolError(f"no such file: {NAME}")


@server.resource("files://one")
def contents() -> str:
    """A text."""
    return NAME


@server.prompt
def asked() -> str:
    """A prompt."""
    return NAME


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_every_answer_arrives(version: str) -> None:
    async with connect(server, version=version) as client:
        for tool in ("text", "listed", "anything"):
            assert REPAIRED in (await client.call_tool(tool)).text
        failed = await client.call_tool("refused", raise_on_error=False)
        assert failed.is_error
        assert failed.text == f"no such file: {REPAIRED}"
        assert (await client.read_resource("files://one")).text == REPAIRED
        assert REPAIRED in repr((await client.get_prompt("asked")).messages)
