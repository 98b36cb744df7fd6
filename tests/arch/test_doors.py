"""What comes from outside is read by the functions that have limits: `trimaran.files` for files, `trimaran.depth` for JSON.

A call of one of these that stands elsewhere is a door without a limit, unless it is in the table, with its reason.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "src" / "trimaran"

PATTERN = re.compile(r"(?<![\w.])(?:tomllib\.loads?|json\.loads?)\(|\.read_bytes\(|\.read_text\(")

# module -> why it may.
ALLOWED = {
    "auth/jwt_keys.py": "tokens, checked before: a second look for names that come twice",
    "apps/console/history.py": "checked before",
    "ext/apps/declare.py": "the server's own file, by its author",
    "host/context/search_terms.py": "the package's own table of words",
    "host/context/tokens.py": "the package's own list of words",
    "host/config/files.py": "the copy of a file that was just read within the limit",
    "host/config/jsontext.py": "checked before; or one word of it",
    "host/config/tomltext.py": "checked before; or one key of it",
    "schema/typed_values.py": "checked before",
    "testing/contract.py": "messages of the test itself",
    "testing/echo.py": "messages of the test itself",
    "transports/tls.py": "certificates that the operator names",
}


def test_files_and_json_from_outside_are_read_within_limits() -> None:
    """Whose rule: ours."""
    used = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if any(PATTERN.search(line) for line in path.read_text().splitlines())
    }
    assert used - ALLOWED.keys() == set(), "read it with trimaran.files.read_file and trimaran.depth.decode_json"
    assert ALLOWED.keys() - used == set(), "remove it from the table"
