"""A server that says what it is told."""

from __future__ import annotations

from trimaran import Server


def make_echo(description: str = "Say it.") -> Server:
    server = Server("echo", version="1")
    server.add_tool(lambda text: text, name="say", description=description)
    return server
