"""What a driver in Python fills in and prints: one JSON object, an item per check, `{"ok": value}` or `{"error": {...}}`.

Run by the peers' interpreters, beside the driver: nothing but the standard library may be imported here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any


class Report:
    def __init__(self) -> None:
        self.items: dict[str, Any] = {}

    async def item(self, name: str, check: Callable[[], Awaitable[Any]]) -> None:
        """Do one check; its failure is its own and does not stop the others."""
        try:
            self.items[name] = {"ok": await check()}
        except Exception as error:
            self.items[name] = {"error": describe(error)}

    def print(self) -> None:
        json.dump(self.items, sys.stdout)
        sys.stdout.write("\n")


def describe(error: BaseException) -> dict[str, Any]:
    found: dict[str, Any] = {"type": type(error).__name__, "message": str(error)[:2000]}
    if isinstance(error, BaseExceptionGroup):
        found["inner"] = [describe(e) for e in error.exceptions]
    for holder in (getattr(error, "error", None), error):
        if isinstance(code := getattr(holder, "code", None), int):
            return {**found, "code": code, "data": getattr(holder, "data", None)}
    return found


def plain(model: Any) -> Any:
    """A pydantic model as it looked on the wire."""
    if isinstance(model, list):
        return [plain(m) for m in model]
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def tool_result(result: Any) -> dict[str, Any]:
    return {
        "content": plain(result.content),
        "structured": result.structured_content,
        "isError": bool(result.is_error),
    }


def measured(result: Any) -> dict[str, Any]:
    """A large text as its length and its ends: the report itself stays small."""
    text = result.content[0].text
    return {"length": len(text), "start": text[:16], "end": text[-16:]}


def answer(message: str, properties: Any) -> tuple[str, dict[str, Any] | None]:
    """What the person at this client says to the questions of the tool `order`."""
    if "nothing" in message:
        return "decline", None
    if "street" in properties:
        return "accept", {"street": "Elm 1", "floor": 3}
    return "accept", {"pay": "cash"}


def listing(tools: list[dict[str, Any]]) -> dict[str, Any]:
    """A tool list, told by what the checks look at."""
    byname = {tool["name"]: tool for tool in tools}
    return {
        "count": len(tools),
        "names": [tool["name"] for tool in tools if not tool["name"].startswith("filler_")],
        "fillers": sum(tool["name"].startswith("filler_") for tool in tools),
        "add": byname.get("add"),
        "weather": byname.get("weather"),
        "fifty": len(byname["fifty"]["inputSchema"]["properties"]),
    }
