"""The ends of URL elicitations, which servers of 2025-11-25 tell by a notification, mostly long after the call.

Each is told to the session whose call was asked to open the page, or was refused until somebody has been there (-32042), and
to nobody else. No other revision has this notification.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from trimaran.client.client import Client
from trimaran.client.relaying import hear_notices
from trimaran.errors import CODE_URL_ELICITATION_REQUIRED, CallError, Error
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.versions import V2025_11
from trimaran.types import as_object

_COMPLETE: Final = "notifications/elicitation/complete"
_MAX_OPEN: Final = 1000
"""Pages that a target may have open at a time; of older ones the end is not told."""
_sessions: Final[WeakKeyDictionary[Client, WeakValueDictionary[str, Any]]] = WeakKeyDictionary()
"""By the client of a target and the id of the elicitation: who was asked."""


def note_question(client: Client, call: IncomingCall, params: Mapping[str, Any]) -> None:
    """Remember whom the target asks to open a page."""
    if params.get("mode") == "url":
        _note(client, call, params.get("elicitationId"))


def note_refusal(client: Client, call: IncomingCall, error: Error) -> None:
    """Remember whom the target refused until somebody has been to its pages."""
    if isinstance(error, CallError) and error.code == CODE_URL_ELICITATION_REQUIRED:
        pages: Any = (as_object(error.data) or {}).get("elicitations")
        for page in cast("list[Any]", pages) if isinstance(pages, list) else ():
            _note(client, call, (as_object(page) or {}).get("elicitationId"))


def _note(client: Client, call: IncomingCall, id: object) -> None:
    session = cast("Any", call.session)
    if session is None or session.peer.version != V2025_11 or not isinstance(id, str):
        return
    known = _sessions.get(client)
    if known is None:
        known = _sessions[client] = WeakValueDictionary()
        hear_notices(client, partial(_hear, known))
    while len(known) >= _MAX_OPEN:
        del known[next(iter(known))]
    known[id] = session


def _hear(known: WeakValueDictionary[str, Any], method: str, params: Mapping[str, Any]) -> None:
    id = params.get("elicitationId")
    session = known.pop(id, None) if method == _COMPLETE and isinstance(id, str) else None
    if session is not None:
        session.send(_COMPLETE, {"elicitationId": id})
