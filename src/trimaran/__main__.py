"""`python -m trimaran` is the command `trimaran`."""

from __future__ import annotations

import sys

from trimaran.apps.cli import main

if __name__ == "__main__":
    sys.exit(main())
