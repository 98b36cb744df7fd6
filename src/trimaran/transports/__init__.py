"""The only sockets, pipes and processes: HTTP (an engine with ASGI and RSGI bindings), stdio, memory."""
