"""`python -m trimaran.apps.cli` is `trimaran`."""

import sys

from trimaran.apps.cli import main

if __name__ == "__main__":
    sys.exit(main())
