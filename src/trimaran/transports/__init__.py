"""The only sockets, pipes and processes: HTTP (an engine, our own server with TLS and HTTP/2, an ASGI binding), stdio, memory."""
