"""`read_output`: a model's way to the rest of a result that was cut, in pages.

A page is bounded in tokens as every result is, and says where the next one begins.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trimaran.errors import ConfigError
from trimaran.types import Tool

from .own_tools import own_result

if TYPE_CHECKING:
    from trimaran.client.results import ToolResult

    from ..output_limits import OutputLimits, OutputStore

READ_OUTPUT: Final = "read_output"
READ_OUTPUT_TOOL: Final = Tool(
    name=READ_OUTPUT,
    description="Read on in a result that was cut. The notice at its end has the id and the offset.",
    input_schema={
        "type": "object",
        "properties": {"id": {"type": "string"}, "offset": {"type": "integer", "minimum": 0, "default": 0}},
        "required": ["id"],
    },
)
_PAGE: Final = 20_000  # characters: of prose, half of what a result may have
_LEAST_PAGE: Final = 200


def output_folder(outputs: bool | str | os.PathLike[str] | None, variables: Mapping[str, str]) -> Path | None:
    """The directory for outputs, if they are kept on disk.

    Raises:
        ConfigError: there is no home directory to have a default in.
    """
    if outputs is None or outputs is False:
        return None
    if outputs is not True:
        return Path(outputs)
    named, home = variables.get("XDG_CACHE_HOME", ""), variables.get("HOME") or variables.get("LOCALAPPDATA") or ""
    if os.path.isabs(named):
        return Path(named, "trimaran", "outputs")
    if not home:
        raise ConfigError("there is no home directory for outputs: set HOME or XDG_CACHE_HOME, or give a directory")
    return Path(home, ".cache", "trimaran", "outputs")


async def run_read_output(
    arguments: Mapping[str, Any], shelf: OutputStore, owner: str, limits: OutputLimits
) -> ToolResult:
    """The page that a model asks for, or a sentence that says why there is none."""
    from ..output_limits import OutputMissing

    output_id, offset = arguments.get("id"), arguments.get("offset", 0)
    if not isinstance(output_id, str) or not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        return own_result("give the id of an output, and an offset of 0 or more", is_error=True)
    size = _PAGE
    try:
        page = await asyncio.to_thread(shelf.page, output_id, owner=owner, offset=offset, limit=size)
        while limits.tokens is not None and size > _LEAST_PAGE and limits.count(page.text) > limits.tokens:
            size //= 2
            page = await asyncio.to_thread(shelf.page, output_id, owner=owner, offset=offset, limit=size)
    except OutputMissing as error:
        return own_result(str(error), is_error=True)
    rest = "the end" if page.next_offset is None else f"go on at offset {page.next_offset}"
    return own_result(
        f"{page.text}\n[characters {page.offset} to {page.offset + len(page.text)} of {page.total}; {rest}]"
    )
