"""Folders of skills for the tests."""

from __future__ import annotations

from pathlib import Path

PDF = "skill://pdf-processing/SKILL.md"
FORMS = "skill://pdf-processing/references/FORMS.md"
REFUNDS = "skill://acme/billing/refunds/SKILL.md"
PNG = b"\x89PNG\r\n\x1a\n\0\xff"


def manifest(name: str, description: str = "What it is for.", more: str = "", body: str = "Do it well.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n\n{body}\n"


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def skills_in(root: Path) -> Path:
    """Two skills, one of them below two folders that are none; text and bytes; and a file that belongs to nobody."""
    return write(
        root / "skills",
        {
            "README.md": "Not of any skill.",
            "pdf-processing/SKILL.md": manifest("pdf-processing", more="license: MIT\n"),
            "pdf-processing/references/FORMS.md": "Fill all fields.\r\n",
            "pdf-processing/assets/pixel.png": PNG,
            "acme/billing/refunds/SKILL.md": manifest("refunds"),
        },
    )
