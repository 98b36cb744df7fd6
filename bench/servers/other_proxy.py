"""Somebody else's proxy before our server: `other_proxy.py NAME --port N --upstream URL` (see scripts/setup-proxies).

Those that stand before commands get our server on stdio; ContextForge gets it over HTTP. Each is set up as its own
documentation says, without authentication and with little logging.
"""

import json
import os
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from common import parse

HERE = Path(__file__).resolve().parent
PROXIES = HERE.parents[1] / ".tools" / "proxies"
NODE = PROXIES / "node" / "node_modules" / ".bin"


def main() -> None:
    name = sys.argv.pop(1)
    options = parse(__doc__ or "")
    command = shlex.split(os.environ.get("BENCH_COMMAND", "")) or _stdio_server()
    if name == "contextforge":
        run_contextforge(options.port, options.upstream)
    else:
        words = COMMANDS[name](str(options.port), command)
        if not Path(words[0]).exists():
            raise SystemExit(f"{name} is not installed: run scripts/setup-proxies")
        os.execv(words[0], words)


def _stdio_server() -> list[str]:
    return [os.environ.get("BENCH_PYTHON", sys.executable), str(HERE / "trimaran_server.py"), "--stdio"]


COMMANDS = {
    "trimaran": lambda port, command: [sys.executable, "-m", "trimaran", "serve", "--port", port, "--", *command],
    "mcp-proxy": lambda port, command: [
        str(PROXIES / "mcp-proxy" / "bin" / "mcp-proxy"),
        *("--pass-environment", "--log-level", "ERROR", "--port", port, "--", *command),
    ],
    "npm-mcp-proxy": lambda port, command: [
        str(NODE / "mcp-proxy"),
        *("--host", "127.0.0.1", "--port", port, "--server", "stream", "--", *command),
    ],
    "supergateway": lambda port, command: [
        str(NODE / "supergateway"),
        *("--stdio", shlex.join(command), "--outputTransport", "streamableHttp", "--stateful"),
        *("--port", port, "--logLevel", "none"),
    ],
}


def run_contextforge(port: int, upstream: str) -> None:
    """It keeps its servers in a database, which is filled by one run and served by the next."""
    folder = Path(tempfile.mkdtemp())
    if not PROXIES.exists():
        raise SystemExit("ContextForge is not installed: run scripts/setup-proxies")
    program = PROXIES / "contextforge" / "bin" / "mcpgateway"
    secret = secrets.token_hex(32)
    settings = {
        "DATABASE_URL": f"sqlite:///{folder / 'mcp.db'}",
        "CACHE_TYPE": "memory",
        "MCP_REQUIRE_AUTH": "false",  # callers need no token; whoever registers a server does
        "SSRF_ALLOW_LOCALHOST": "true",
        "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
        "RATE_LIMITING_ENABLED": "false",
        "JWT_SECRET_KEY": secret,
        "AUTH_ENCRYPTION_SECRET": secret,
        "MCPGATEWAY_UI_ENABLED": "false",
        "MCPGATEWAY_ADMIN_API_ENABLED": "false",
        "PLUGINS_ENABLED": "false",
        "LOG_LEVEL": "ERROR",
        "TEMPLATES_AUTO_RELOAD": "false",
        "HOME": str(folder),
    }
    environment = {**os.environ, **settings}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        early = probe.getsockname()[1]
    command = [str(program), "--host", "127.0.0.1", "--log-level", "error"]
    first = subprocess.Popen([*command, "--port", str(early)], env=environment, cwd=folder)
    try:
        register(early, upstream, token(environment), first)
    finally:
        first.terminate()
        first.wait()
    os.chdir(folder)
    os.execve(program, [*command, "--port", str(port)], environment)


def token(environment: dict[str, str]) -> str:
    """Of its administrator."""
    python = PROXIES / "contextforge" / "bin" / "python"
    words = ["-m", "mcpgateway.utils.create_jwt_token", "--username", "admin@example.com", "--admin"]
    words += ["--secret", environment["JWT_SECRET_KEY"]]
    done = subprocess.run([python, *words], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


def register(port: int, upstream: str, token: str, process: "subprocess.Popen[bytes]") -> None:
    about = {"name": "bench", "url": upstream, "transport": "STREAMABLEHTTP", "visibility": "public"}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    deadline = time.monotonic() + 90
    while True:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/gateways", json.dumps(about).encode(), headers)
            with urllib.request.urlopen(request, timeout=30):
                return
        except urllib.error.HTTPError as error:
            raise SystemExit(f"ContextForge refuses the server: {error.code} {error.read()[:300]!r}") from None
        except OSError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit("ContextForge did not start") from None
            time.sleep(0.2)


if __name__ == "__main__":
    main()
