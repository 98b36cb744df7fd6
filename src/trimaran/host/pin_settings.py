"""Which servers of a host are pinned, and how.

`trust/pins.py` keeps pins, `trust/review.py` compares, `held_definitions.py` asks a person. The host pins the servers of
configuration files, because they are programs and URLs that a person named; and with `pins=` also those that a program names.
A `Server` object in the same process is the program itself, and is never pinned.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, Final, cast, final

from trimaran.errors import ConfigError
from trimaran.protocol.definition_digests import canonical_json
from trimaran.protocol.mask import mask_command

from .config.mask import mask_url
from .config.model import PIN_MODES, PinMode, ServerEntry
from .connect_plan import ConnectPlan
from .terminal_text import visible
from .trust.pins import Pins, PinTarget
from .trust.review import PinSetting


@final
class PinPolicy:
    """Which servers of a host are pinned, and what happens to what changed.

    Args:
        store: None for the user's own, which is opened when it is needed.
        mode: For the servers that do not say it themselves; "off" is for all servers, whatever they say.
        covers_all: Also pin servers that a program names, not only those of configuration files.
    """

    def __init__(self, store: Pins | None, mode: PinMode, *, covers_all: bool) -> None:
        self._store = store
        self._mode: Final = mode
        self._covers_all = covers_all

    def setting(self, plan: ConnectPlan | None) -> PinSetting | None:
        """How the definitions of a server are pinned; None if they are not."""
        if self._mode == "off" or plan is None or (plan.entry is None and not self._covers_all):
            return None
        mode = plan.entry.pins if plan.entry is not None and plan.entry.pins is not None else self._mode
        target = pin_target(plan) if mode != "off" else None
        if target is None:
            return None
        if self._store is None:
            self._store = Pins()
        return PinSetting(self._store, target, mode)


def read_pins(option: Pins | PinMode | bool | None) -> PinPolicy:
    """The policy that the option `pins` of a host asks for.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(option, Pins):
        return PinPolicy(option, "ask", covers_all=True)
    if option is False or option == "off":
        return PinPolicy(None, "off", covers_all=False)
    if option is None or option is True:
        return PinPolicy(None, "ask", covers_all=option is True)
    if option in PIN_MODES:
        return PinPolicy(None, option, covers_all=True)
    known = ", ".join(f'"{mode}"' for mode in PIN_MODES)
    raise ConfigError(f"pins is a Pins, True, False or one of {known}, not {option!r}")


def pin_target(plan: ConnectPlan) -> PinTarget | None:
    """The server as pins know it; None for a server in this process."""
    table = _as_table(plan.target)
    if url := table.get("url"):
        identity: list[Any] = ["url", str(url), _issuer(plan.entry)]
        return PinTarget(plan.name, visible(mask_url(str(url))), _fingerprint(identity))
    if not (command := table.get("command")):
        return None
    words = [str(command), *map(str, table.get("args") or ())]
    cwd: Any = plan.options.get("cwd") or table.get("cwd")
    folder = os.path.abspath(str(cwd)) if cwd else ""
    if os.path.dirname(words[0]):
        words[0] = os.path.join(folder or os.getcwd(), words[0])
    return PinTarget(plan.name, visible(mask_command(words)), _fingerprint(["command", words, folder]))


def _as_table(target: Any) -> Mapping[str, Any]:
    if isinstance(target, Mapping):
        return cast("Mapping[str, Any]", target)
    if isinstance(target, str) and "://" in target:
        return {"url": target}
    if isinstance(target, (str, os.PathLike)):
        return {"command": os.fspath(cast("str", target))}
    if isinstance(target, (list, tuple)) and target:
        words = cast("list[Any]", target)
        return {"command": words[0], "args": words[1:]}
    return {}


def _issuer(entry: ServerEntry | None) -> str:
    details = entry.oauth_config if entry is not None else None
    return "" if details is None else (details.issuer or details.token_url or details.auth_url or "")


def _fingerprint(identity: list[Any]) -> str:
    return hashlib.sha256(canonical_json(identity)).hexdigest()
