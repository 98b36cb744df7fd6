"""Errors for a person: one block that says what happened, why, and what to do in the console.

The library's errors speak of its own functions (`host.reload(...)`). Here the same is done with keys and commands, so what
to do is said in those. Nothing is a traceback: an exception that is none of ours is a mistake in this program, and says so.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from rich.text import Text

from trimaran.errors import Error, LocalProtocolError, TimedOut, Unauthorized
from trimaran.host import (
    ConsentLost,
    PermissionDenied,
    ServerStatus,
    ServerUnavailable,
    UnknownName,
)
from trimaran.host.terminal_text import in_one_line, safe
from trimaran.host.trust import UNTRUSTED

if TYPE_CHECKING:
    from trimaran.host import Host

_MOST: Final = 4000  # characters of one error: a server may put a whole page into it


def show_fault(error: BaseException, host: Host | None = None) -> Text:
    title, reason, advice = _describe_error(error, host)
    if len(reason) > _MOST:
        reason = f"{reason[:_MOST]}..."
    text = Text(f"✗ {title}", style="bold red")
    text.append(f"\n{safe(reason)}", style="not bold default")
    if advice:
        text.append(f"\n{advice}", style="not bold default dim")
    return text


def _describe_error(error: BaseException, host: Host | None) -> tuple[str, str, str]:
    message = str(error) or type(error).__name__
    match error:
        case PermissionDenied():
            return (
                "Not allowed",
                message,
                f"/explain {in_one_line(error.decision.act.name, 100)} shows every rule about it.",
            )
        case ServerUnavailable():
            status = error.status
            return "Not available", f"the server {status.name!r} cannot be used now: {status.text}", what_to_do(status)
        case UnknownName():
            return "Unknown name", message, _nearest(error.name, host)
        case TimedOut():
            return "No answer in time", message, 'More time: timeout = "5m" under [server.NAME] in mcp.toml.'
        case Unauthorized():
            return "Not authorized", message, "/mcp, then a on the server, logs you in."
        case ConsentLost():
            return "Not answered", message, ""
        case LocalProtocolError():
            return "Not sent", message, ""
        case Error():
            return "Failed", message, ""
        case _:
            return "A mistake in trimaran itself", f"{type(error).__name__}: {message}", "Please tell us what you did."


def what_to_do(status: ServerStatus) -> str:
    """Advice about a server that is not connected."""
    match status.state:
        case "starting":
            return (
                "It is still starting: its tools appear when it is ready. /mcp, then s on the server, shows its stderr."
            )
        case "needs_auth":
            return "Log in: /mcp, then a on the server."
        case "idle":
            return "It starts when it is needed: call one of its tools, or /mcp, then e on the server."
        case "disabled" if status.reason.startswith(UNTRUSTED):
            return "To trust it: /mcp, then e on the server."
        case "disabled":
            return "Enable it: /mcp, then e on the server."
        case "failed":
            if status.retries:
                return "It is tried again in the background. To try now: /mcp, then r on the server."
            return "Fix that, then reload it: /mcp, then r on the server."
        case _:
            return ""


def _nearest(name: str, host: Host | None) -> str:
    known = [tool.name for tool in host.tools()] if host is not None else []
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return safe(f"Did you mean {' or '.join(near)}?") if near else "/tools lists what there is."
