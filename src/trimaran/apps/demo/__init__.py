"""The demo: a small harbour, served over MCP. `trimaran demo` runs it; `server.py` is meant to be read."""
