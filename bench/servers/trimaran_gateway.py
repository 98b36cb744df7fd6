"""Our gateway before another server, from a configuration as an operator writes it."""

import os
import sys
import tempfile
from pathlib import Path

from common import parse


def main() -> None:
    options = parse(__doc__ or "")
    folder = Path(tempfile.mkdtemp())
    names = ["bench", *(f"bench{number}" for number in range(1, options.servers))]
    entries = [f'[server.{name}]\ntransport = "http"\nurl = "{options.upstream}"\n' for name in names]
    (folder / "mcp.toml").write_text("\n".join(entries))
    command = [sys.executable, "-m", "trimaran", "gateway", str(folder / "mcp.toml"), "--port", str(options.port)]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
