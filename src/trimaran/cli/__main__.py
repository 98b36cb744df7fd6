"""`python -m trimaran.cli` is `trimaran`."""

import sys

from trimaran.cli import main

if __name__ == "__main__":
    sys.exit(main())
