"""Answer a model's reply: run every call in it at the same time, and write one result for each.

`Host.answer` is the only caller. An agent loop must not end because a model erred, so nothing about a single call raises:
an unknown tool, unreadable arguments, a refusal, a timeout and a failure all become results that the model can read. Only
a reply that is no reply, a closed host and cancellation raise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trimaran.client.results import ToolResult
from trimaran.errors import CallCancelled, Error, LocalProtocolError
from trimaran.types import ImageContent, Json

from .names import UnknownName
from .options import AnswerOptions

if TYPE_CHECKING:
    from trimaran.format import Format, ToolCall

    from .host import Host

log: Final = logging.getLogger("trimaran.host")

_BROKEN: Final = "the call failed inside the host; its log says why"
_CUT_OFF: Final = "was not called: the reply ended at its token limit, so the call may be incomplete; repeat it with shorter arguments"


class _Outcome(NamedTuple):
    call: ToolCall
    result: ToolResult | Error


async def answer_reply(
    host: Host,
    reply: Any,
    format: Format | None,
    options: AnswerOptions,
    *,
    suggest: Callable[[str], list[str]],
) -> dict[str, Json] | list[dict[str, Json]] | None:
    """The message, or messages, with a result for every call of the reply; None if it has no call.

    Args:
        options: As for `Host.answer`.
        suggest: The names of tools that are like an unknown one.
    """
    from trimaran.format.openai import media_to_openai
    from trimaran.format.providers import detect_format, is_cut_off, reply_blocks, wrap_results

    format = detect_format(reply) if format is None else format
    blocks = reply_blocks(reply, format)
    if not blocks:
        return None
    incomplete = blocks[-1] if is_cut_off(reply) else None
    outcomes = await asyncio.gather(
        *(_run(host, block, format, options, suggest, is_incomplete=block is incomplete) for block in blocks)
    )
    results = [outcome.result for outcome in outcomes if isinstance(outcome.result, ToolResult)]
    pictures = media_to_openai(*results) if options.get("media") and format == "openai" else None
    # Scaling a picture takes up to a second.
    shapes = [
        await asyncio.to_thread(_write, host, outcome, format, media_follows=pictures is not None)
        if _has_picture(outcome.result)
        else _write(host, outcome, format, media_follows=pictures is not None)
        for outcome in outcomes
    ]
    return wrap_results([*shapes, pictures] if pictures is not None else shapes, format)


async def _run(
    host: Host,
    block: Any,
    format: Format,
    options: AnswerOptions,
    suggest: Callable[[str], list[str]],
    *,
    is_incomplete: bool,
) -> _Outcome:
    from trimaran.format.providers import unread_call

    call = unread_call(block)
    try:
        if is_incomplete:
            raise LocalProtocolError.invalid_request(f"{call.name} {_CUT_OFF}")
        call = host.from_call(block, format)
        timeout, conversation = options.get("timeout"), options.get("conversation", "")
        return _Outcome(call, await host.call(call.name, call.arguments, timeout=timeout, conversation=conversation))
    except UnknownName as error:
        similar = suggest(call.name)
        return _Outcome(call, Error(f"{error}; similar names: {', '.join(similar)}") if similar else error)
    except Error as error:
        return _Outcome(call, error)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _Outcome(call, CallCancelled(f"the call of {call.name} was cancelled"))  # by its own server's end
    except Exception:
        log.exception("a call of the tool %s failed inside the host", call.name)
        return _Outcome(call, Error(_BROKEN))


def _has_picture(result: ToolResult | Error) -> bool:
    return isinstance(result, ToolResult) and any(isinstance(block, ImageContent) for block in result.content)


def _write(host: Host, outcome: _Outcome, format: Format, *, media_follows: bool) -> dict[str, Json]:
    try:
        return host.to_result(outcome.result, outcome.call, format, media_follows=media_follows)
    except Exception:
        log.exception("the result of the tool %s has no form for %s", outcome.call.name, format)
        return host.to_result(Error(_BROKEN), outcome.call, format)
