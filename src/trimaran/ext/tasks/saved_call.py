"""How a task came about, written down: enough to make its call again in another process.

A value that cannot be written is not guessed. A caller is known again by its `Principal`, or by the subject, issuer and scopes of an
authenticator's own object; a caller that has none of these would come back as a stranger, so its tasks are not run again.
Headers do not come back, nor what middleware left on the call: middleware runs again, around the whole of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from trimaran.auth.principal import FrozenDict, Principal
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.meta import MetaReader, Peer
from trimaran.protocol.methods import METHODS
from trimaran.server.seams import CallSession
from trimaran.types import CallToolParams, Implementation

if TYPE_CHECKING:
    from trimaran.state.contracts import TaskRecord


@final
class SavedCall(Struct, frozen=True, omit_defaults=True):
    """The caller of a task, and the envelope of its call."""

    version: str
    capabilities: dict[str, Any]
    client: Implementation | None = None
    meta: Raw | UnsetType = UNSET
    principal: Any = None
    """A Principal as a mapping, or a plain value; None if anonymous."""
    is_known: bool = True
    """Whether the caller can be restored from this."""


@final
class RunnerNotes(Struct, frozen=True, omit_defaults=True):
    """Data that the runners of a task store in its record."""

    starts: int = 1
    """How often its body may have begun, since it last got further."""
    is_host: bool = False
    """It has no body: the host ends it."""
    is_mortal: bool = False
    """Does its time to live end it while it works? Its client asked for that."""
    origin: SavedCall | None = None


_decode: Final = msgspec.json.Decoder(RunnerNotes).decode
_reader: Final = MetaReader()
_PLAIN: Final = (str, int, float, bool)


def write_extra(extra: RunnerNotes) -> bytes:
    return msgspec.json.encode(extra)


def read_extra(data: bytes) -> RunnerNotes:
    """The stored data. Unreadable data, such as another version's, counts as missing, and then nothing runs."""
    try:
        return _decode(data) if data else RunnerNotes()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return RunnerNotes()


def started(record: TaskRecord, starts: int) -> TaskRecord:
    """The record with the number of starts."""
    extra = read_extra(record.extra)
    return record if extra.starts == starts else replace(record, extra=write_extra(replace(extra, starts=starts)))


def write_origin(call: IncomingCall) -> SavedCall:
    peer: Peer = call.peer
    principal, is_known = _write_principal(call.principal)
    return SavedCall(
        version=peer.version,
        capabilities=dict(peer.capabilities),
        client=peer.info,
        meta=call.raw_meta,
        principal=principal,
        is_known=is_known,
    )


def _write_principal(principal: Any) -> tuple[Any, bool]:
    if principal is None or isinstance(principal, _PLAIN):
        return principal, True
    if type(principal) is not Principal:
        subject = getattr(principal, "subject", None)
        if subject is None:
            return None, False
        scopes = cast("Any", getattr(principal, "scopes", None) or ())
        issuer = getattr(principal, "issuer", None)
        principal = Principal(
            subject=str(subject),
            issuer=None if issuer is None else str(issuer),
            scopes=frozenset(scope for scope in scopes if isinstance(scope, str)),
        )
    whole = msgspec.structs.asdict(principal)
    for name in ("claims", "metadata"):  # the author's own, so they may hold anything
        try:
            whole[name] = msgspec.json.decode(msgspec.json.encode(dict(whole[name])))
        except (TypeError, ValueError, OverflowError, RecursionError):
            whole[name] = {}
    return whole, True


def _read_principal(principal: Any) -> Any:
    if not isinstance(principal, Mapping):
        return principal
    restored = msgspec.convert(principal, Principal)
    return replace(restored, claims=FrozenDict(restored.claims), metadata=FrozenDict(restored.metadata))


def rebuild(record: TaskRecord, origin: SavedCall, session: CallSession | None) -> IncomingCall:
    """The call that a task began with."""
    params = CallToolParams(name=record.name, arguments=Raw(record.arguments), meta=origin.meta)
    peer = Peer(origin.version, origin.capabilities, origin.client)
    call = IncomingCall(
        record.id, record.method, METHODS[record.method], params, peer, origin.meta, _reader.read(origin.meta), None
    )
    call.principal = _read_principal(origin.principal)
    call.session = session
    return call
