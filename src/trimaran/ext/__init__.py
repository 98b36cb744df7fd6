"""Protocol extensions: off until enabled on a server, used by a client only where the server offers them.

Each has a module of its own; the names here are the ones to begin with.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .apps import Apps as Apps, supports_ui as supports_ui, ui_tool as ui_tool
    from .otel import AccessLog as AccessLog, Telemetry as Telemetry
    from .skills import (
        SKILLS_CAPABILITY as SKILLS_CAPABILITY,
        SkillRejected as SkillRejected,
        Skills as Skills,
        SkillsClient as SkillsClient,
        SkillTampered as SkillTampered,
    )
    from .tasks import Runner as Runner, Tasks as Tasks
    from .tasks.docket import Docket as Docket
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "apps": "Apps supports_ui ui_tool",
            "otel": "AccessLog Telemetry",
            "skills": "SKILLS_CAPABILITY SkillRejected SkillTampered Skills SkillsClient",
            "tasks": "Runner Tasks",
            "tasks.docket": "Docket",
        },
    )
