"""A hostile server: it tries to read keys, to write, to connect and to outlive its client, and tells what it got.

Standard library only, and a server by hand: nothing of ours is to be visible in its sandbox.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request


def attempt(action):  # noqa: ANN001, ANN201 - it runs on any Python, by itself
    try:
        return {"got": action()}
    except BaseException as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def read(path):  # noqa: ANN001, ANN201
    return pathlib.Path(path).expanduser().read_text(errors="replace")[:200]


def write(path):  # noqa: ANN001, ANN201
    pathlib.Path(path).write_text("owned")
    return "written"


def connect(host, port):  # noqa: ANN001, ANN201
    with socket.create_connection((host, int(port)), timeout=3):
        return "connected"


def connect_unix(path):  # noqa: ANN001, ANN201
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(3)
        peer.connect(path)
        return "connected"


def processes():  # noqa: ANN201
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def environments():  # noqa: ANN201
    """The environment of every process that is seen."""
    texts = []
    for number in processes():
        try:
            texts.append(pathlib.Path(f"/proc/{number}/environ").read_text(errors="replace"))
        except OSError as error:
            texts.append(str(error))
    return "\n".join(texts).replace("\0", "\n")


def daemon(marker):  # noqa: ANN001, ANN201
    """A process that leaves session and parent, and touches the marker for as long as it lives."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for descriptor in range(3):
                os.close(descriptor)
            while True:
                pathlib.Path(marker).write_text(str(time.time()))
                time.sleep(0.05)
        os._exit(0)
    return "started"


def fetch(url):  # noqa: ANN001, ANN201
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read(200).decode()


def connect_vsock(port):  # noqa: ANN001, ANN201
    """The host of the virtual machine that this is, by a way that no network namespace closes."""
    with socket.socket(socket.AF_VSOCK) as peer:
        peer.settimeout(3)
        peer.connect((2, int(port)))
        return "connected"


def system_call(name, *arguments):  # noqa: ANN001, ANN201
    """A call of the kernel by its number, on the processors that the tests know."""
    numbers = {"x86_64": {"keyctl": 250, "io_uring_setup": 425}, "aarch64": {"keyctl": 219, "io_uring_setup": 425}}
    library = ctypes.CDLL(None, use_errno=True)
    result = library.syscall(numbers[os.uname().machine][name], *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def descriptors():  # noqa: ANN201
    """What is open beside the three pipes, less what this listing opens."""
    return [
        int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}")
    ]


def free(path):  # noqa: ANN001, ANN201
    """The bytes that can be written below a path; 0 if none."""
    state = os.statvfs(path)
    return 0 if state.f_flag & os.ST_RDONLY else state.f_bavail * state.f_bsize


def run(command):  # noqa: ANN001, ANN201
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=20, check=False)  # noqa: S602
    return f"{done.returncode} {done.stdout}{done.stderr}"[:500]


ACTIONS = {
    "read": read,
    "write": write,
    "connect": connect,
    "connect_unix": connect_unix,
    "processes": processes,
    "environments": environments,
    "daemon": daemon,
    "fetch": fetch,
    "run": run,
    "connect_vsock": connect_vsock,
    "system_call": system_call,
    "descriptors": descriptors,
    "free": free,
    "environ": lambda: dict(os.environ),
}


def answer(message):  # noqa: ANN001, ANN201
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hostile", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": "try", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        arguments = params["arguments"]
        result = attempt(lambda: ACTIONS[arguments["action"]](*arguments.get("with", [])))
        return {"content": [{"type": "text", "text": json.dumps(result)}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message)
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    reply |= {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
