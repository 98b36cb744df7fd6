"""A child process that sends back each line it gets: `python -m trimaran.testing.echo`, the far end for `check_channel`.

Ends at `testing/hang-up` and at the end of its input; does not read for a while at `testing/pause`. Uses nothing but the
standard library, so that it starts at once.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main() -> None:
    for line in sys.stdin.buffer:
        # Only short lines are commands; a large one is not decoded for nothing.
        command: Any = json.loads(line) if len(line) < 1000 else {}
        if command.get("method") == "testing/hang-up":
            return
        if command.get("method") == "testing/pause":
            time.sleep(command["params"]["seconds"])
            continue
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
