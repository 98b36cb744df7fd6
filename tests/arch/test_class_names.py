"""No two public classes share a name: a reader who meets one knows which it is."""

from __future__ import annotations

import ast
from collections import defaultdict

from .test_layers import MODULES, ROOT


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    shared = {name: files for name, files in homes.items() if len(files) > 1}
    assert not shared, f"give each of these a name of its own: {shared}"
