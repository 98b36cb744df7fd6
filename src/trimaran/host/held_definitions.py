"""Definitions that changed, or are new at a known server: kept from the model until a person agrees to them.

`trust/review.py` holds them back, `pin_settings.py` says which servers are pinned and how. Here a person is asked about them, and
the answer takes effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, final

from trimaran.errors import Error

from .consent import ConsentBridge, ConsentLost, Question
from .pin_settings import PinPolicy
from .server_table import ServerTable
from .supervise import SupervisedServer
from .tool_catalog import ToolCatalog
from .trust.review import CatalogReview, DefinitionHeld, HeldDefinition, PinSetting

log: Final = logging.getLogger("trimaran.host")


@final
class HeldDefinitions:
    """The held definitions of one host.

    A person gets one question for each server at a time, with everything that is held there.
    """

    def __init__(
        self,
        servers: ServerTable,
        catalog: ToolCatalog,
        review: CatalogReview,
        policy: PinPolicy,
        bridge: ConsentBridge | None,
    ) -> None:
        self._servers = servers
        self._catalog = catalog
        self._review = review
        self._policy = policy
        self._bridge = bridge
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._declined: dict[str, frozenset[tuple[str, str]]] = {}
        """For each server, what the person said no to: definitions and digests. It is not questioned again by itself."""

    def _setting(self, name: str) -> PinSetting | None:
        return self._policy.setting(self._servers.plans.get(name))

    def _of(self, name: str | None) -> list[SupervisedServer]:
        return list(self._servers.values()) if name is None else [self._servers.require(name)]

    def get(self, name: str | None = None) -> list[HeldDefinition]:
        """The held definitions of a server; of all servers for None."""
        return [definition for server in self._of(name) for definition in server.withheld.values()]

    async def accept(self, name: str, definitions: Iterable[HeldDefinition]) -> None:
        """Pin definitions as a person agreed to them, and offer them again.

        Raises:
            ConfigError: the pins cannot be written; nothing was changed.
        """
        await self._review.accept(name, list(definitions))
        server = self._servers.get(name)
        if server is not None:
            await server.look_again()

    def refuse(self, name: str) -> None:
        """Raise DefinitionHeld if the name is that of a held tool."""
        for definition in self.get():
            server = definition.server
            if name in self._catalog.names_for(server, definition.name):
                setting = self._setting(server)
                where = f": {setting.store.diff_command(server)}" if setting is not None else ""
                raise DefinitionHeld(
                    f"{name} was not called: {definition}. A person has to look at the difference and agree{where}"
                )

    # --- questions ---------------------------------------------------------------------------------------------------

    def ask_again(self, name: str | None) -> None:
        """Ask in the background, also about what was declined before."""
        for server in self._of(name):
            self._ask(server, again=True)

    def ask_about(self, server: SupervisedServer) -> None:
        """Ask in the background, if the server's pins are to be asked about and the person was not asked just this."""
        setting = self._setting(server.name) if server.withheld else None
        if setting is not None and setting.mode == "ask":
            self._ask(server, again=False)

    def _ask(self, server: SupervisedServer, *, again: bool) -> None:
        name, items = server.name, list(server.withheld.values())
        questioned = frozenset((item.key, item.new.digest) for item in items)
        is_declined = not again and questioned <= self._declined.get(name, frozenset())
        if not items or is_declined or name in self._asking or self._bridge is None or not self._bridge.is_attended:
            return
        task = asyncio.ensure_future(self._put(self._bridge, name, items, questioned))
        self._asking[name] = task
        task.add_done_callback(lambda done: self._asking.pop(name, None))

    async def _put(
        self, bridge: ConsentBridge, server: str, items: list[HeldDefinition], questioned: frozenset[tuple[str, str]]
    ) -> None:
        count = len(items)
        text = f"{count} definition{'' if count == 1 else 's'} of {server} changed or new: use as listed now?"
        try:
            question = await bridge.ask(Question("definition", server, text, held=items))
            if question.reply == "accept":
                await self.accept(server, items)
            elif not question.note:
                self._declined[server] = questioned
        except ConsentLost:
            return
        except Error as error:
            log.warning("the answer about definitions of %s was not kept: %s", server, error)

    async def close(self) -> None:
        tasks = tuple(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
