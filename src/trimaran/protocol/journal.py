"""The questions and steps of a call, so that its body can run again and get the same answers.

On 2026-07-28 a call that needs input ends as `input_required` and comes back as a new request; the body runs from its
beginning. The journal is what it meets there:

    asked      every ask that was sent, by key, with a digest of its content
    answers    the client's results for asks, by the same key
    steps      the results of side effects that are done, by name, so that they are not done twice

An ask is answered once: a key that has its answer keeps it, since the body has already acted on it. A body that asks
something else under a known key is not the body that was interrupted, and that is an error, never a guess.

Pure data: sealing it is `seal.py`, running the body again is the server's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, cast, final

import msgspec

from trimaran.errors import Error, ProtocolError, StateRejected

# Sealed and in base64 it grows by a third, to `seal.MAX_TEXT`.
MAX_JOURNAL_BYTES: Final = 48 * 1000

_KINDS: Final = {"elicitation/create": "elicit", "sampling/createMessage": "sample", "roots/list": "roots"}


@final
class InputRequest(msgspec.Struct, frozen=True):
    """One request for input, as it went out."""

    key: str
    method: str
    digest: str
    """See `digest`: tells one ask from another without keeping either."""


@final
class Journal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The questions and steps of one call so far. Change it with `msgspec.structs.replace`."""

    answers: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    asked: dict[str, InputRequest] = {}
    offered: dict[str, Any] = {}
    """Answers to questions that were never asked. Only a question with `early=True` takes one. Not written either."""
    stateless: bool = False
    """Answers came without the state of their call: the earlier steps of the body are not known.

    It speaks of this request only and is not written.
    """


_reader: Final = msgspec.msgpack.Decoder(Journal)


def ask_key(order: int, method: str, name: str | None = None) -> str:
    """Name an ask: by its explicit name, or by its kind and its place among the asks of that kind, from 1."""
    return name if name is not None else f"{_KINDS.get(method, method)}-{order}"


def digest(method: str, params: Any) -> str:
    """The digest of an ask's content; the order of keys does not count."""
    content = method.encode() + b"\0" + msgspec.json.encode(params, order="sorted")
    return hashlib.sha256(content).hexdigest()[:16]


def read_journal(data: bytes) -> Journal:
    """Read a journal written by `write_journal`.

    Raises:
        StateRejected: it is not one, as when another version of this library wrote it.
    """
    try:
        return _reader.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise StateRejected("the state does not hold a journal of this version; start the call again") from None


def write_journal(journal: Journal) -> bytes:
    """Write a journal, ready to be sealed.

    Raises:
        Error: the journal is too large to travel, or a step's result is no plain data.
    """
    try:
        data = msgspec.msgpack.encode(msgspec.structs.replace(journal, stateless=False))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Error(_unwritable(journal)) from error
    if len(data) > MAX_JOURNAL_BYTES:
        raise Error(
            f"the journal of this call has grown to {len(data)} bytes, and {MAX_JOURNAL_BYTES} can travel: "
            f"{_largest(journal)}; keep the results of steps small, return a handle and store the rest"
        )
    return data


def merge_responses(journal: Journal | None, responses: Mapping[str, Any]) -> Journal:
    """Add the client's `inputResponses`. Answers to no question are ignored.

    Without a journal (the client sent no `requestState`) nothing was asked that we know of, so nothing is answered: the
    body asks. A client could else answer a question that it never saw, and that would say something else today.

    Raises:
        ProtocolError: a response is not an object (-32602).
    """
    for key, response in responses.items():
        if journal is None or key in journal.asked:
            require_answer(key, response)
    if journal is None:
        return Journal(offered=dict(responses), stateless=True)
    new = {key: response for key, response in responses.items() if key in journal.asked and key not in journal.answers}
    return msgspec.structs.replace(journal, answers={**journal.answers, **new}, stateless=False)


def check_same_ask(journal: Journal, ask: InputRequest) -> None:
    """Check that the body, run again, asks the same question under this key.

    Raises:
        ProtocolError: it asks something else (-32603).
    """
    before = journal.asked.get(ask.key)
    if before is None or before == ask:
        return
    raise ProtocolError.internal_error(
        f"the call was resumed but asked something else: {ask.key!r} was {before.method} ({before.digest}) and is now "
        f"{ask.method} ({ask.digest}); ask in the same order with the same content each time the body runs, "
        f"name asks that may be skipped, and put time, randomness and I/O inside a step"
    )


def require_answer(key: str, response: Any) -> None:
    """Refuse an answer that is invalid for any question."""
    if not isinstance(response, Mapping):
        kind = "null" if response is None else type(cast("object", response)).__name__
        raise ProtocolError.invalid_params(f"inputResponses[{key!r}] must be a result object, not {kind}")


def _unwritable(journal: Journal) -> str:
    for name, result in journal.steps.items():
        try:
            msgspec.msgpack.encode(result)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return f"the result of step {name!r} cannot be stored: return plain data from a step"
    return "the journal of this call cannot be written: return plain data from steps"


def _largest(journal: Journal) -> str:
    entries = {f"step {name!r}": value for name, value in journal.steps.items()}
    entries |= {f"answer {key!r}": value for key, value in journal.answers.items()}
    sizes = {label: len(msgspec.msgpack.encode(value)) for label, value in entries.items()}
    if not sizes:
        return "it holds too many asks"
    label = max(sizes, key=sizes.__getitem__)
    return f"{label} takes {sizes[label]} of them"
