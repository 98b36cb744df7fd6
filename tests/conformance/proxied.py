"""The conformance server behind a proxy of ours: `python proxied.py --port N [--era modern|legacy]`.

The proxy and the server talk HTTP. `--era` is what they speak with each other, whatever the suite speaks with the proxy.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from trimaran import Server

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--era", default="auto")
    options, rest = parser.parse_known_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        far = probe.getsockname()[1]
    target = subprocess.Popen([sys.executable, str(HERE / "server.py"), "--port", str(far), *rest])
    try:
        wait_for(far)
        Server.proxy(f"http://127.0.0.1:{far}/mcp", era=options.era).run("http", port=options.port)
    finally:
        target.terminate()
        target.wait()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()
