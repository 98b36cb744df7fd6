"""The pins of a gateway's servers: definitions that are not as they were pinned are not served, or served with a warning.

Nobody answers a question here. `[gateway] pins` says what happens, a server's own `pins` counts more, and an operator agrees
with `trimaran pins accept`; after that, a reload of the gateway reads the lists again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast, final

from trimaran.host.config.model import PinMode
from trimaran.host.connect_plan import ConnectPlan
from trimaran.host.pin_settings import pin_target
from trimaran.host.trust.pins import Pins
from trimaran.host.trust.review import CatalogReview, DefinitionKind, HeldDefinition, PinSetting
from trimaran.types import Prompt, ResourceTemplate, Tool

from .settings import GatewaySettings

Definition = Tool | Prompt | ResourceTemplate


@final
class PinnedDefinitions:
    """Reviews what one server lists.

    Args:
        settings: The present ones; a reload changes them.
        note: Called with an event and its fields, for the audit log.
    """

    def __init__(self, plan: ConnectPlan, settings: Callable[[], GatewaySettings], note: Callable[..., object]) -> None:
        self._plan = plan
        self._settings = settings
        self._target: Final = pin_target(plan)
        self._review = CatalogReview(lambda server: self._setting(), note=note)
        self._withheld: dict[str, Mapping[str, HeldDefinition]] = {}

    @property
    def withheld(self) -> list[HeldDefinition]:
        """What is not served until an operator agrees."""
        return [item for items in self._withheld.values() for item in items.values()]

    def _setting(self) -> PinSetting | None:
        settings = self._settings()
        own: PinMode | None = self._plan.entry.pins if self._plan.entry is not None else None
        mode: PinMode = own or settings.pins
        if mode == "off" or self._target is None:
            return None
        return PinSetting(Pins(settings.pins_path), self._target, "refuse" if mode == "ask" else mode)

    async def review(self, kind: str, definitions: Sequence[Definition]) -> list[Definition]:
        """Those of the definitions that are served."""
        named = {_name(item): item for item in definitions}
        self._withheld[kind] = await self._review.hold(self._plan.name, cast("DefinitionKind", kind), named)
        return [item for item in definitions if _name(item) not in self._withheld[kind]]


def _name(definition: Definition) -> str:
    return definition.uri_template if isinstance(definition, ResourceTemplate) else definition.name
