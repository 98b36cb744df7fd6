"""Skills (SEP-2640): folders of instructions for a model, served as resources and checked before they are used.

    server.enable_extension(Skills("skills/"))

    skills = SkillsClient(client)
    for skill in await skills.list(): ...
    manual = await skills.read(skill)

The format itself is that of Agent Skills: a folder with a SKILL.md, whose frontmatter says at least `name` and
`description`. The extension is a draft of the protocol.
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .client import Skill, SkillContent, SkillRejected, SkillsClient, SkillTampered
    from .entry import SKILLS_CAPABILITY, SKILLS_EXTENSION, SkillResource
    from .server import Skills

_HOMES = {
    "client": ("Skill", "SkillContent", "SkillRejected", "SkillTampered", "SkillsClient"),
    "entry": ("SKILLS_CAPABILITY", "SKILLS_EXTENSION", "SkillResource"),
    "server": ("Skills",),
}

__all__ = [
    "SKILLS_CAPABILITY",
    "SKILLS_EXTENSION",
    "Skill",
    "SkillContent",
    "SkillRejected",
    "SkillResource",
    "SkillTampered",
    "Skills",
    "SkillsClient",
]


def __getattr__(name: str) -> Any:
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
