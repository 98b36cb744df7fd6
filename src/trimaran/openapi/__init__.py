"""Tools from an OpenAPI document: each operation of an HTTP API becomes a tool. `Server.from_openapi` is the way in."""
