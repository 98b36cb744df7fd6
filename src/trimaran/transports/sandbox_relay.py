"""Run inside a sandbox: lead connections to a port on loopback to the proxy's socket, and become the server.

    python -I -S sandbox_relay.py SOCKET -- COMMAND...

Programs know proxies by a host and a port, and the sandbox has a network of its own with nothing on it. So a child of this
process listens on its loopback and passes bytes on to the socket, which `sandbox_proxy.py` serves outside; this process sets
HTTP_PROXY and the like, and then is the server. It uses nothing but the standard library, and reads none of our files.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading

_CHUNK = 65536
_BACKLOG = 64  # connections that wait; a server has a few


def main(arguments: list[str]) -> None:
    path, command = arguments[0], arguments[2:]
    listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    port = listener.getsockname()[1]
    if os.fork() == 0:
        _leave_pipes()
        _serve(listener, path)
        os._exit(0)
    listener.close()
    address = f"http://127.0.0.1:{port}"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        os.environ[name] = os.environ[name.lower()] = address
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = ""
    os.environ["NODE_USE_ENV_PROXY"] = "1"  # Node asks for this since 24
    os.execvp(command[0], command)  # noqa: S606 - the server that the user configured


def _leave_pipes() -> None:
    """Let go of the server's pipes: an open copy would hide that it has ended."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _serve(listener: socket.socket, path: str) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_lead, args=(connection, path), daemon=True).start()


def _lead(connection: socket.socket, path: str) -> None:
    with connection, socket.socket(socket.AF_UNIX) as proxy:
        try:
            proxy.connect(path)
            _pass_on(connection, proxy)
        except OSError:
            return


def _pass_on(one_end: socket.socket, other_end: socket.socket) -> None:
    """Pass bytes on in both directions, until both ends have said that they are done."""
    ends = {one_end: other_end, other_end: one_end}
    open_ends = [one_end, other_end]
    while open_ends:
        for source in select.select(open_ends, [], [])[0]:
            data = source.recv(_CHUNK)
            if data:
                ends[source].sendall(data)
            else:
                open_ends.remove(source)
                ends[source].shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(sys.argv[1:])
