"""Our gateway before another server, from a configuration as an operator writes it."""

import os
import sys
import tempfile
from pathlib import Path

from common import parse


def main() -> None:
    options = parse(__doc__ or "")
    folder = Path(tempfile.mkdtemp())
    (folder / "mcp.toml").write_text(f'[server.bench]\ntransport = "http"\nurl = "{options.upstream}"\n')
    command = [sys.executable, "-m", "trimaran", "gateway", str(folder / "mcp.toml"), "--port", str(options.port)]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
