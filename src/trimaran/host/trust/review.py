"""Look at what a server lists before anything of it is offered: definitions in, verdict out.

`supervise.py` awaits the review with the raw definitions each time a list is read, so a host offers and calls nothing that
did not pass here. Two reviews meet, in this order:

    pins    every definition as the server sent it, hidden characters and all, against what a person agreed to (`pins.py`)
    scan    the words of what passed

What differs from its pin, and what is new at a server that is known, is held: it is neither offered nor called until a person
has seen the difference and agreed. The first list of a server is pinned as it is (trust on first use): the person has just
named the server, or trusted the project that names it. A server whose pins cannot be believed has no first use: all is held.

    ask       a person is asked; while nobody is there, it is held
    refuse    it is held
    warn      it is offered, with a warning
    off       nothing is pinned
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, final

from msgspec import Struct
from msgspec.structs import replace

from trimaran.errors import Error
from trimaran.protocol.definition_digests import META_KEY, definition_of
from trimaran.state import StoreUnusable
from trimaran.types import Prompt, ResourceTemplate, Tool

from ..config.model import PinMode
from ..terminal_text import in_one_line
from .pins import Pin, PinnedServer, Pins, PinsDamaged, PinsUnwritable, PinTarget, pin_of
from .pins_diff import MOST_FIELDS, FieldChange, diff_text, difference, plain_text

if TYPE_CHECKING:
    from .scanner import Scanned

log: Final = logging.getLogger("trimaran.host")

DefinitionKind: TypeAlias = Literal["tool", "prompt", "template"]
HeldState: TypeAlias = Literal["changed", "new", "unverified"]
Definition: TypeAlias = Tool | Prompt | ResourceTemplate

_TOLD: Final = 5  # names in one warning
_MOST_TOLD: Final = 50_000  # differences that are remembered as told; a server can make up new ones all day
_MANY: Final = 100  # definitions whose digests take some 10 ms; of more the event loop should not wait


class DefinitionHeld(Error):
    """A definition has changed, or is new, and nobody has agreed to it yet. Nothing was sent."""

    kind = "definition_held"


class PinSetting(NamedTuple):
    """How the definitions of a server are pinned."""

    store: Pins
    target: PinTarget
    mode: PinMode


@final
class HeldDefinition(Struct, frozen=True, kw_only=True):
    """A definition that is neither offered nor used until a person agrees to it."""

    server: str
    kind: DefinitionKind
    name: str
    state: HeldState
    """changed; new at a server that is known; or unverified, because the pins of the server cannot be believed."""
    new: Pin
    old: Pin | None = None
    problem: str = ""
    """Why the pins cannot be believed."""

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def difference(self) -> list[FieldChange]:
        """The fields that differ, word by word; all of them where the old ones are not kept, none where the new ones are not.

        If there are more than 500, the last change says how many are left out; `changes(None)` has them all.
        """
        return self.changes(MOST_FIELDS)

    def changes(self, most: int | None) -> list[FieldChange]:
        """The same, up to so many fields; None for all."""
        if self.new.definition is None:
            return []
        if self.old is None or self.old.definition is None:
            return plain_text(self.new.definition, most=most)
        return difference(self.old.definition, self.new.definition, most=most)

    def text(self) -> str:
        """The difference as plain text."""
        if self.new.definition is None:
            return f"(the definition has {self.new.size:,} bytes, too many to keep and show; its digest differs)"
        words = diff_text(self.difference)
        is_unknown = self.old is not None and self.old.definition is None
        return f"(too long to keep as it was; as it is now:)\n{words}" if is_unknown else words

    def __str__(self) -> str:
        return f"the {self.kind} {in_one_line(self.name, 80)!r} of the server {self.server!r} is {_STATES[self.state]}"


_STATES: Final[Mapping[HeldState, str]] = {
    "changed": "not as you agreed to it",
    "new": "new, and you have not agreed to it",
    "unverified": "not known to be as you agreed to it, because its pins cannot be believed",
}


@final
class Reviewed(Struct, frozen=True, kw_only=True):
    """The verdict about one list of a server."""

    tools: Mapping[str, Tool]
    """The offered definitions, by the server's own names, in the server's order."""
    withheld: Mapping[str, HeldDefinition] = {}
    """The definitions that are neither offered nor called until a person agrees, by the server's own names."""
    reasons: Mapping[str, tuple[str, ...]] = {}
    """Why a call of a tool asks, in plain sentences."""


@final
class CatalogReview:
    """Reviews the lists of a host's servers.

    Args:
        setting: How a server's definitions are pinned; None if they are not.
        note: Called with an event and its fields, for the audit log.
        others: The (server, tool) names of a server's neighbours.
        scan: Looks at the words of what passed: called with the server, its tools and the names of the others'.
        clock: The present time in UTC.
    """

    def __init__(
        self,
        setting: Callable[[str], PinSetting | None],
        *,
        note: Callable[..., object] | None = None,
        others: Callable[[str], Sequence[tuple[str, str]]] = lambda server: (),
        scan: Callable[[str, Mapping[str, Tool], Sequence[tuple[str, str]]], Awaitable[Scanned]] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._scan = scan
        self._setting = setting
        self._note: Callable[..., object] = note or _ignore
        self._others = others
        self._clock = clock
        self._announced: set[tuple[str, str, str]] = set()
        """The warnings so far: server, definition, digest."""

    async def tools(self, server: str, tools: Mapping[str, Tool]) -> Reviewed:
        """The verdict about the tools that a server lists."""
        withheld = await self.hold(server, "tool", tools)
        passed = {name: tool for name, tool in tools.items() if name not in withheld}
        if self._scan is None:
            return Reviewed(tools=passed, withheld=withheld)
        scanned = await self._scan(server, passed, self._others(server))
        return Reviewed(tools=scanned.tools, withheld=withheld, reasons=scanned.reasons)

    # --- pins --------------------------------------------------------------------------------------------------------

    async def hold(
        self, server: str, kind: DefinitionKind, definitions: Mapping[str, Definition]
    ) -> dict[str, HeldDefinition]:
        """Those of the definitions that may not be used, by name."""
        setting = self._setting(server)
        if setting is None or setting.mode == "off":
            return {}
        if len(self._announced) > _MOST_TOLD:
            self._announced.clear()
        is_long = len(definitions) > _MANY
        pins, wrong = await asyncio.to_thread(_digests, definitions) if is_long else _digests(definitions)
        withheld = await self._compare(setting, kind, pins)
        for name, pin in wrong.items():
            withheld[name] = HeldDefinition(
                server=server, kind=kind, name=name, state="unverified", new=pin, problem="it is no JSON"
            )
        self._tell(server, setting, withheld)
        self._check_claims(server, definitions, pins)
        return {} if setting.mode == "warn" else withheld

    async def _compare(
        self, setting: PinSetting, kind: DefinitionKind, pins: Mapping[str, Pin]
    ) -> dict[str, HeldDefinition]:
        store, target = setting.store, setting.target
        try:
            known = await store.load(target)
            if known is None or kind not in known.kinds or _pending(known, kind) != _differing(known, kind, pins):
                known = await store.update(target, lambda before: self._renewed(target, kind, before, pins))
        except PinsUnwritable as error:
            log.warning("the definitions of the server %r are not pinned: %s", target.name, error)
            known = await _try_load(store, target)
        except (PinsDamaged, StoreUnusable) as error:
            return {
                name: HeldDefinition(
                    server=target.name, kind=kind, name=name, state="unverified", new=pin, problem=str(error)
                )
                for name, pin in pins.items()
            }
        if known is None:
            return {}
        return {
            name: HeldDefinition(
                server=target.name,
                kind=kind,
                name=name,
                state="new" if (old := known.pins.get(f"{kind}:{name}")) is None else "changed",
                new=pins[name],
                old=old,
            )
            for name in (key.partition(":")[2] for key in _differing(known, kind, pins))
        }

    def _renewed(
        self, target: PinTarget, kind: DefinitionKind, before: PinnedServer | None, pins: Mapping[str, Pin]
    ) -> PinnedServer:
        """The record after this list: the first of its kind is pinned, of a later one the differences are pending."""
        now = self._now()
        record = before or PinnedServer(
            name=target.name, address=target.address, fingerprint=target.fingerprint, first_seen=now
        )
        if kind not in record.kinds:
            self._note("pinned", server=target.name, kind=kind, count=len(pins))
            first = {f"{kind}:{name}": pin for name, pin in pins.items()}
            return replace(record, kinds=(*record.kinds, kind), pins={**record.pins, **first})
        differing = _differing(record, kind, pins)
        if differing == _pending(record, kind):
            return record
        rest = {key: pin for key, pin in record.pending.items() if not key.startswith(f"{kind}:")}
        return replace(record, pending={**rest, **differing})

    def _now(self) -> str:
        return self._clock().isoformat(timespec="seconds").replace("+00:00", "Z")

    def _tell(self, server: str, setting: PinSetting, held: Mapping[str, HeldDefinition]) -> None:
        """Log and audit each difference once."""
        untold = [item for item in held.values() if (server, item.key, item.new.digest) not in self._announced]
        if not untold:
            return
        self._announced.update((server, item.key, item.new.digest) for item in untold)
        for item in untold:
            self._note(
                "definition_held" if setting.mode != "warn" else "definition_changed",
                server=server,
                definition=item.key[:300],
                state=item.state,
                digest=item.new.digest,
                pinned=item.old.digest if item.old is not None else None,
            )
        names = ", ".join(f"{in_one_line(item.name, 60)} ({item.state})" for item in untold[:_TOLD])
        more = f" and {len(untold) - _TOLD} more" if len(untold) > _TOLD else ""
        outcome = (
            "are offered to the model anyway"
            if setting.mode == "warn"
            else "are not offered to the model until a person agrees"
        )
        problem = next((f" {item.problem}" for item in untold if item.problem), "")
        log.warning(
            "definitions of the server %r are not as they were pinned, and %s: %s%s.%s See `%s`",
            server,
            outcome,
            names,
            more,
            problem,
            setting.store.diff_command(server),
        )

    def _check_claims(self, server: str, definitions: Mapping[str, Definition], pins: Mapping[str, Pin]) -> None:
        """Report a server whose digests contradict its definitions."""
        for name, definition in definitions.items():
            claimed: Any = (definition.meta or {}).get(META_KEY)
            pin = pins.get(name)
            if pin is None or not isinstance(claimed, str) or not claimed.startswith("sha256:"):
                continue
            if claimed != pin.digest and (server, name, claimed) not in self._announced:
                self._announced.add((server, name, claimed))
                self._note("digest_mismatch", server=server, definition=name[:300], claimed=claimed[:100])
                log.warning(
                    "the server %r says that %s has the digest %s, but what it lists has %s",
                    server,
                    in_one_line(name, 60),
                    in_one_line(claimed, 80),
                    pin.digest,
                )

    async def accept(self, server: str, definitions: Sequence[HeldDefinition]) -> None:
        """Pin exactly these definitions, for a person who has seen them.

        Raises:
            PinsUnwritable, StoreUnusable: that cannot be kept; nothing was changed.
        """
        setting = self._setting(server)
        definitions = [item for item in definitions if item.new.digest]
        if setting is None or not definitions:
            return
        store, target = setting.store, setting.target
        if any(item.state == "unverified" for item in definitions):
            await store.prepare()
            await store.forget(store.path / target.file_name)
        agreed = {item.key: item.new for item in definitions}
        kinds = tuple(dict.fromkeys(item.kind for item in definitions))

        def change(before: PinnedServer | None) -> PinnedServer:
            now = self._now()
            record = before or PinnedServer(
                name=target.name, address=target.address, fingerprint=target.fingerprint, first_seen=now, kinds=kinds
            )
            rest = {key: pin for key, pin in record.pending.items() if key not in agreed}
            return replace(record, pins={**record.pins, **agreed}, pending=rest, changed=now)

        await store.update(target, change)
        for item in definitions:
            self._note("definition_accepted", server=server, definition=item.key[:300], digest=item.new.digest)


def _ignore(event: str, **fields: object) -> None:
    """There is no audit log."""


def _digests(definitions: Mapping[str, Definition]) -> tuple[dict[str, Pin], dict[str, Pin]]:
    """The pin of each definition, and of those that have none an empty one."""
    pins: dict[str, Pin] = {}
    wrong: dict[str, Pin] = {}
    for name, definition in definitions.items():
        try:
            pins[name] = pin_of(definition_of(definition))
        except (ValueError, RecursionError):
            wrong[name] = Pin("")
    return pins, wrong


def _differing(known: PinnedServer, kind: DefinitionKind, pins: Mapping[str, Pin]) -> dict[str, Pin]:
    """The definitions that are not as they were pinned, by kind and name."""
    named = {f"{kind}:{name}": pin for name, pin in pins.items()}
    return {key: pin for key, pin in named.items() if key not in known.pins or known.pins[key].digest != pin.digest}


def _pending(known: PinnedServer, kind: DefinitionKind) -> dict[str, Pin]:
    return {key: pin for key, pin in known.pending.items() if key.startswith(f"{kind}:")}


async def _try_load(store: Pins, target: PinTarget) -> PinnedServer | None:
    try:
        return await store.load(target)
    except Error:
        return None
