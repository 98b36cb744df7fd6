"""A calculator on stdio: four operations, a history to read, a prompt to start from.

Run it by hand, or let the Inspector run it:

    python examples/calculator.py
    npx @modelcontextprotocol/inspector python examples/calculator.py

Add it to Claude Code (absolute paths are safest, since Claude starts it from anywhere):

    claude mcp add calculator -- python /path/to/examples/calculator.py
"""

from __future__ import annotations

import math

from trimaran import Server, ToolError

server = Server("calculator", version="1.0.0", instructions="Use these tools for arithmetic instead of guessing.")

history: list[str] = []


def note(line: str, result: float) -> float:
    history.append(f"{line} = {result:g}")
    server.notify.resource_updated("calculator://history")
    return result


@server.tool(annotations={"readOnlyHint": True})
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return note(f"{a:g} + {b:g}", a + b)


@server.tool(annotations={"readOnlyHint": True})
def subtract(a: float, b: float) -> float:
    """Subtract b from a."""
    return note(f"{a:g} - {b:g}", a - b)


@server.tool(annotations={"readOnlyHint": True})
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return note(f"{a:g} * {b:g}", a * b)


@server.tool(annotations={"readOnlyHint": True})
def divide(a: float, b: float) -> float:
    """Divide a by b.

    Args:
        a: The dividend.
        b: The divisor, not zero.
    """
    if b == 0:
        raise ToolError("Division by zero has no result. Pass a divisor that is not 0.")
    result = a / b
    if not math.isfinite(result):
        raise ToolError(f"{a:g} / {b:g} is too large for a floating-point number.")
    return note(f"{a:g} / {b:g}", result)


@server.resource("calculator://history", name="history", mime_type="text/plain")
def read_history() -> str:
    """Every calculation so far, one per line."""
    return "\n".join(history) or "nothing yet"


@server.prompt
def word_problem(problem: str) -> str:
    """Solve a word problem with the calculator.

    Args:
        problem: The problem, in words.
    """
    return f"Solve this step by step, using the calculator tools for every operation:\n\n{problem}"


if __name__ == "__main__":
    server.run()
