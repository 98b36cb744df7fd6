"""Skills (SEP-2640): folders of instructions for a model, served as resources and checked before they are used.

    server.enable_extension(Skills("skills/"))

    skills = SkillsClient(client)
    for skill in await skills.list(): ...
    manual = await skills.read(skill)

The format itself is that of Agent Skills: a folder with a SKILL.md, whose frontmatter says at least `name` and
`description`. The extension is a draft of the protocol.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .client import (
        Skill as Skill,
        SkillContent as SkillContent,
        SkillRejected as SkillRejected,
        SkillsClient as SkillsClient,
        SkillTampered as SkillTampered,
    )
    from .entry import (
        SKILLS_CAPABILITY as SKILLS_CAPABILITY,
        SKILLS_EXTENSION as SKILLS_EXTENSION,
        SkillResource as SkillResource,
    )
    from .server import Skills as Skills
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "client": "Skill SkillContent SkillRejected SkillTampered SkillsClient",
            "entry": "SKILLS_CAPABILITY SKILLS_EXTENSION SkillResource",
            "server": "Skills",
        },
    )
