"""The server the official conformance suite is run against: `python tests/conformance/server.py --port 3001`.

Written by the public API alone; the names and texts of tools, resources and prompts are the suite's.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import struct
import zlib
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from trimaran import Context, ProtocolError, Server, ToolError
from trimaran import content as c
from trimaran.ext import Skills


def _png() -> bytes:
    """A red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
        + chunk(b"IEND", b"")
    )


def _wav() -> bytes:
    """A moment of silence."""
    samples = b"\0\0" * 80
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        36 + len(samples),
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        8000,
        16000,
        2,
        16,
        b"data",
        len(samples),
    )
    return head + samples


PNG, WAV = _png(), _wav()
server = Server("trimaran-conformance", version="1.0.0", instructions="Fixtures of the official suite.")


# Tools


@server.tool
async def test_simple_text() -> str:
    """Returns a simple text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> Any:
    """Returns an image."""
    return c.image(PNG, "image/png")


@server.tool
async def test_audio_content() -> Any:
    """Returns a sound."""
    return c.audio(WAV, "audio/wav")


@server.tool
async def test_embedded_resource() -> Any:
    """Returns a resource, embedded."""
    return c.embedded(c.text_resource("test://embedded-resource", "This is an embedded resource content."))


@server.tool
async def test_multiple_content_types() -> Any:
    """Returns text, an image and a resource."""
    resource = c.text_resource("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    return [c.text("Multiple content types test:"), c.image(PNG, "image/png"), c.embedded(resource)]


@server.tool
async def test_error_handling() -> str:
    """Always fails."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports progress while it works."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return "Tool with progress completed"


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Logs while it works."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.log("info", message)
        await asyncio.sleep(0.05)
    return "Tool with logging executed successfully"


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer.text}"


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the person."""
    form = {
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        },
        "required": ["username", "email"],
    }
    answer = await ctx.elicit(message, form)
    return f"User response: action={answer.action}, content={answer.content}"


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks with defaults for every kind of field."""
    form = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        },
    }
    answer = await ctx.elicit("Please review the defaults", form)
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks with every kind of choice."""
    titled = [{"const": f"value{i}", "title": f"Option {i}"} for i in (1, 2, 3)]
    plain = ["option1", "option2", "option3"]
    legacy = ["opt1", "opt2", "opt3"]
    form = {
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {"type": "string", "enum": legacy, "enumNames": ["Option 1", "Option 2", "Option 3"]},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        },
    }
    answer = await ctx.elicit("Please choose", form)
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


@server.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
async def json_schema_2020_12_tool(arguments: dict[str, Any]) -> str:
    """Has a schema with everything 2020-12 offers."""
    return f"JSON Schema 2020-12 tool called with: {arguments}"


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Lets go of its stream before it is done; the client comes back for the result."""
    await ctx.release_stream()
    await asyncio.sleep(0.1)
    return "Reconnection test completed successfully."


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Needs a client that samples."""
    return (await ctx.sample("Are you there?")).text


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Asks on a stream."""
    answer = await ctx.elicit("Go on?", {"type": "object", "properties": {"ok": {"type": "boolean"}}})
    return answer.action


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Logs once."""
    await ctx.log("info", "one log message")
    return "logged"


@server.tool
async def test_trigger_tool_change() -> str:
    """Tells listeners that the tools changed."""
    server.notify.tools_changed()
    return "told"


@server.tool
async def test_trigger_prompt_change() -> str:
    """Tells listeners that the prompts changed."""
    server.notify.prompts_changed()
    return "told"


@server.tool
async def test_x_mcp_header(
    region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})], query: str = ""
) -> str:
    """Has an argument that a header repeats."""
    return f"region {region}"


# Input rounds

NAME_FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
CONFIRM_FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
CAPITAL = "What is the capital of France?"


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Asks for a name."""
    answer = await ctx.elicit("What is your name?", NAME_FORM, key="user_name", early=True)
    return f"Hello, {answer.content['name'] if answer.accepted else 'stranger'}!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Asks the model."""
    return (await ctx.sample(CAPITAL, max_tokens=100, key="capital_question")).text


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Asks for the roots."""
    return ", ".join(r.uri for r in await ctx.roots(key="client_roots"))


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Asks, and needs its state back."""
    answer = await ctx.elicit("Please confirm", CONFIRM_FORM, key="confirm")
    return f"state-ok: {answer.action}"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Asks three things at once."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", NAME_FORM, key="user_name"),
        ctx.sample("Generate a greeting", max_tokens=50, key="greeting"),
        ctx.roots(key="client_roots"),
    )
    return f"{greeting.text} {name.action} {len(roots)}"


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Asks twice, one after the other."""
    name = await ctx.elicit("Step 1: What is your name?", NAME_FORM, key="step1")
    colour = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    chosen = await ctx.elicit("Step 2: What is your favorite color?", colour, key="step2")
    return f"{name.content} {chosen.content}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Refuses a state that was changed."""
    answer = await ctx.elicit("Please confirm", CONFIRM_FORM, key="confirm")
    return f"state-ok: {answer.action}"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Asks only what the client can answer."""
    asks: list[Any] = []
    if ctx.peer.supports("sampling"):
        asks.append(ctx.sample(CAPITAL, max_tokens=100, key="capital_question"))
    if ctx.peer.supports("elicitation"):
        asks.append(ctx.elicit("What is your name?", NAME_FORM, key="user_name"))
    return f"{len(await asyncio.gather(*asks))} answers"


# Tasks


@server.tool
async def greet(name: str) -> str:
    """Is quick, and so never a task."""
    return f"Hello, {name}!"


@server.tool(long_running=True)
async def slow_compute(seconds: float, label: str = "") -> str:
    """Takes as long as it is told."""
    await asyncio.sleep(seconds)
    return f"{label or 'computed'}: {seconds:g} s"


@server.tool(long_running="required")
async def failing_job() -> str:
    """Fails after a while, as tools do."""
    await asyncio.sleep(0.2)
    raise ToolError("the job failed, as it always does")


@server.tool(long_running=True)
async def protocol_error_job() -> str:
    """Fails with an error of the protocol."""
    raise ProtocolError(-32000, "the job met a protocol error")


@server.tool(long_running=True)
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Asks before it deletes."""
    form = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}
    answer = await ctx.elicit(f"Delete {filename}?", form)
    return f"deleted {filename}" if answer.accepted and answer.content["confirm"] else f"kept {filename}"


@server.tool(long_running=True)
async def multi_input(ctx: Context) -> str:
    """Asks two things at once."""
    one, two = await asyncio.gather(
        ctx.elicit("What is your name?", NAME_FORM, key="first"),
        ctx.elicit("And the other name?", NAME_FORM, key="second"),
    )
    return f"{one.action} {two.action}"


@server.tool(long_running="on_detach")
async def test_tool_with_task(ctx: Context) -> str:
    """Asks first, and goes on as a task."""
    answer = await ctx.elicit("What is your name?", NAME_FORM, key="user_name")
    await ctx.detach()
    return f"Hello, {answer.content['name'] if answer.accepted else 'stranger'}!"


# Resources


@server.resource("test://static-text", name="Static Text", description="A static text.", mime_type="text/plain")
async def static_text() -> str:
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="Static Binary", description="A static image.", mime_type="image/png")
async def static_binary() -> bytes:
    return PNG


@server.resource("test://template/{id}/data", name="Template", description="Data by id.", mime_type="application/json")
async def template_data(id: str) -> dict[str, Any]:
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@server.resource("test://watched-resource", name="Watched", description="A resource to watch.", mime_type="text/plain")
async def watched() -> str:
    return "Watched resource content"


# Skills

server.enable_extension(Skills(Path(__file__).with_name("skills")))


# Prompts


@server.prompt
async def test_simple_prompt() -> str:
    """A simple prompt."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> Any:
    """A prompt with a resource in it."""
    return [
        c.embedded(c.text_resource(resourceUri, "Embedded resource content for testing.")),
        "Please process the resource above.",
    ]


@server.prompt
async def test_prompt_with_image() -> Any:
    """A prompt with an image in it."""
    return [c.image(base64.b64encode(PNG).decode(), "image/png"), "Please analyze the image above."]


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks first."""
    form = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
    answer = await ctx.elicit("What context should the prompt use?", form, key="user_context")
    return f"Use this context: {answer.content}"


@server.completion(prompt="test_prompt_with_arguments", argument="arg1")
async def complete_arg1(value: str) -> list[str]:
    return [v for v in ("paris", "park", "party") if v.startswith(value)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=3001)
    parser.add_argument("--store", help="the same on a store, as one of several processes would be")
    options = parser.parse_args()
    server.run("http", port=options.port, store=options.store)
