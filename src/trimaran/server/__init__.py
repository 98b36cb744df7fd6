"""The server hull: what authors declare things on, and what serves a decoded call. No sockets, no HTTP, no revision."""
