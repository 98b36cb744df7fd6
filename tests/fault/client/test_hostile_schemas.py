"""Schemas that a server sends cannot keep its client busy: results, forms, and what is made of them for a model."""

from __future__ import annotations

import logging

import pytest
from tests.support.until import soon

from trimaran.client import Elicitation
from trimaran.errors import InvalidOutput
from trimaran.host.form_fields import Form
from trimaran.types import ElicitResult

from .evil import doubling
from .peers import ERAS, WIRES, Dock, assert_usable


@ERAS
@WIRES
async def test_a_result_whose_schema_doubles_per_level_is_given_unchecked(
    dock: Dock, wire: str, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with dock.open(wire, era) as (client, _):
        with caplog.at_level(logging.WARNING, "trimaran.client"):
            for _ in range(2):
                assert (await soon(client.call_tool("doubles"))).text == "checked"
        mentions = [record for record in caplog.records if "doubles" in record.getMessage()]
        assert len(mentions) == 1
        assert "cannot be checked" in mentions[0].getMessage()


async def test_in_strict_mode_such_a_result_is_refused(dock: Dock) -> None:
    async with dock.open("json", "modern", schema_check="strict") as (client, _):
        with pytest.raises(InvalidOutput, match="cannot be checked"):
            await soon(client.call_tool("doubles"))
        await assert_usable(client)


@ERAS
@WIRES
async def test_a_form_whose_schema_doubles_per_level_is_answered_unchecked(dock: Dock, wire: str, era: str) -> None:
    async def accept(ask: Elicitation) -> ElicitResult:
        return ask.accept({"name": "Ada"})

    if (wire, era) == ("json", "legacy"):
        wire = "sse"  # the question needs a stream
    async with dock.open(wire, era, on_elicit=accept) as (client, _):
        assert (await soon(client.call_tool("ask_doubling"))).text == "asked"
        await assert_usable(client)


def test_a_form_and_a_question_whose_schema_doubles_take_an_answer() -> None:
    schema = {**doubling(40), "properties": {"name": doubling(40) | {"type": "string"}}}
    content, problems = Form(schema).read({"name": "Ada"})
    assert (content, problems) == ({"name": "Ada"}, {})
