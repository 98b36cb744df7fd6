"""Who is measured, where each one's Python lives, and how each one's server is started.

Rivals live in venvs of their own: `.tools/peers/sdk` and `.tools/peers/fastmcp` (made by `scripts/setup-peers`), or under
the directory named by TRIMARAN_PEERS. A rival that is not there is reported as such in every table.
"""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from procs import UnavailableError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SERVERS = HERE / "servers"
PROBES = HERE / "probes"
PEERS = Path(os.environ.get("TRIMARAN_PEERS") or ROOT / ".tools" / "peers")
OURS_PYTHON = Path(sys.executable)


def peer_python(*names: str) -> Path:
    for name in names:
        python = PEERS / name / "bin" / "python"
        if python.exists():
            return python
    return PEERS / names[0] / "bin" / "python"


@dataclass(frozen=True)
class Contender:
    key: str
    label: str
    python: Path
    script: str
    package: str
    """The distribution whose version names this contender."""
    flags: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        if not self.python.exists():
            raise UnavailableError(f"{self.python} is missing: run scripts/setup-peers or set TRIMARAN_PEERS")

    def command(self, *extra: str) -> list[str]:
        self.check()
        return [str(self.python), str(SERVERS / self.script), *self.flags, *extra]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **self.env}

    def version(self) -> str:
        """Ask the contender's own Python for the installed version."""
        code = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        try:
            self.check()
            done = subprocess.run([self.python, "-c", code], capture_output=True, text=True, timeout=30, check=True)
        except (UnavailableError, subprocess.SubprocessError) as error:
            return f"unknown ({error.__class__.__name__})"
        return done.stdout.strip()


def _site_packages(python: Path) -> str:
    found = sorted(python.parent.parent.glob("lib/python3*/site-packages"))
    return str(found[0]) if found else ""


_SDK = peer_python("sdk")
_FASTMCP = peer_python("fastmcp", "fm")
_QUIET = {"FASTMCP_LOG_LEVEL": "ERROR", "FASTMCP_CHECK_FOR_UPDATES": "off", "FASTMCP_SHOW_SERVER_BANNER": "false"}

OURS = Contender("ours", "trimaran", OURS_PYTHON, "trimaran_server.py", "trimaran")
FLEET = Contender("fleet", "trimaran", OURS_PYTHON, "trimaran_fleet.py", "trimaran")
SDK = Contender("sdk", "mcp", _SDK, "sdk.py", "mcp")
FASTMCP = Contender("fastmcp", "FastMCP", _FASTMCP, "fastmcp_server.py", "fastmcp", env=_QUIET)
SDK_STATELESS = Contender("sdk-stateless", "mcp (stateless)", _SDK, "sdk.py", "mcp", ("--stateless",))
FASTMCP_STATELESS = Contender(
    "fastmcp-stateless", "FastMCP (stateless)", _FASTMCP, "fastmcp_server.py", "fastmcp", ("--stateless",), _QUIET
)
PROXY = Contender("proxy", "trimaran, proxy", OURS_PYTHON, "trimaran_proxy.py", "trimaran")
GATEWAY = Contender("gateway", "trimaran, gateway", OURS_PYTHON, "trimaran_gateway.py", "trimaran")
RELAY_RAW = Contender("relay-raw", "raw relay of bytes", OURS_PYTHON, "relay_raw.py", "uvloop")
FASTMCP_PROXY = Contender("fastmcp-proxy", "FastMCP, proxy", _FASTMCP, "fastmcp_proxy.py", "fastmcp", (), _QUIET)
GATEWAY_OF_50 = Contender(
    "gateway-50", "trimaran, gateway of 50", OURS_PYTHON, "trimaran_gateway.py", "trimaran", ("--servers", "50")
)


def _other_proxy(name: str, label: str) -> Contender:
    return Contender(name, label, OURS_PYTHON, "other_proxy.py", "trimaran", (name,))


# Proxies that stand before commands, ours first, and a gateway. scripts/setup-proxies installs them.
PROXY_OF_COMMAND = _other_proxy("trimaran", "trimaran, serve -- COMMAND")
OTHER_PROXIES = (
    _other_proxy("mcp-proxy", "mcp-proxy 0.13 (PyPI)"),
    _other_proxy("npm-mcp-proxy", "mcp-proxy 6.7 (npm)"),
    _other_proxy("supergateway", "supergateway 4, stateful"),
    _other_proxy("contextforge", "ContextForge 1.0"),
)
# Our own venv has uvicorn but not httptools; the SDK's has, built for the same Python.
ECHO_UVICORN = Contender(
    "echo-uvicorn",
    "ASGI echo (uvicorn)",
    OURS_PYTHON,
    "echo_asgi.py",
    "uvicorn",
    ("--server", "uvicorn", "--extra-path", _site_packages(_SDK)),
)
ECHO_GRANIAN = Contender(
    "echo-granian", "ASGI echo (granian)", OURS_PYTHON, "echo_asgi.py", "granian", ("--server", "granian")
)
ECHO_RAW = Contender("echo-raw", "raw protocol echo", OURS_PYTHON, "echo_raw.py", "uvloop")

ALL = (OURS, SDK, FASTMCP, ECHO_UVICORN, ECHO_GRANIAN, ECHO_RAW)
