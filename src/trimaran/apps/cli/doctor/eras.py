"""Meet the server as a client does, once in each era, and use it a little."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from trimaran.errors import Error, Unsupported
from trimaran.protocol.versions import LATEST_LEGACY, MODERN
from trimaran.types import as_object

from ..exit_codes import in_our_words
from ..output import in_one_line, safe
from ..run import connect_options, connect_target
from ..target import Settings, Target
from .lint import lint_tools
from .report import Report

if TYPE_CHECKING:
    from trimaran import Client

_TRIALS: Final = 5
_MAX_PAGES: Final = 100
_SLOW: Final = 1.0  # seconds: a model waits for lists at the start of every conversation


class EraSupport(Struct):
    """The server's answer to each era."""

    modern: bool = False
    legacy: bool = False


async def meet_both(report: Report, target: Target, settings: Settings, *, not_modern: str = "") -> EraSupport:
    """Connect in both eras, report on each, then list and time with the newer one that works.

    `not_modern`: why the modern era need not be tried, where that is known.
    """
    met = EraSupport()
    async with contextlib.AsyncExitStack() as stack:
        clients: dict[str, Client] = {}
        errors: dict[str, Error] = {}
        seconds: dict[str, float] = {}
        for era in ("modern", "legacy"):
            begun = time.perf_counter()
            if era == "modern" and not_modern:
                errors[era] = Error(not_modern)
                continue
            try:
                clients[era] = await _open(target, settings._replace(era=era), stack)
            except Error as error:
                errors[era] = error
            seconds[era] = time.perf_counter() - begun
        report.section("Protocol")
        for era in ("modern", "legacy"):
            if era in clients:
                report.ok(era, _describe(clients[era], seconds[era]))
            else:
                _report_absence(report, era, errors[era], other_works=bool(clients))
        met.modern, met.legacy = "modern" in clients, "legacy" in clients
        client = clients.get("modern") or clients.get("legacy")
        if client is not None:
            await _about(report, client)
            await _time(report, client, clients.get("legacy"))
            await _tools(report, client)
    return met


async def _open(target: Target, settings: Settings, stack: contextlib.AsyncExitStack) -> Client:
    from trimaran import connect

    options: dict[str, Any] = {**connect_options(target, settings), "cache": False, "retries": 0}
    return await stack.enter_async_context(connect(connect_target(target), **options))


def _describe(client: Client, seconds: float) -> str:
    offered = ", ".join(sorted(client.server_capabilities)) or "nothing"
    return f"speaks {client.version}, ready after {seconds:.2f} s; offers {in_one_line(offered)}"


def _report_absence(report: Report, era: str, error: Error, *, other_works: bool) -> None:
    # A page of HTML in the middle of a sentence is unreadable.
    summary, *more = in_our_words(error).partition(": <")[0].splitlines()
    summary, details = safe(summary), [safe(line.strip()) for line in more]
    if not other_works:
        report.fail(
            era,
            summary,
            "No client can use the server.",
            "See the checks around this one; the first failure is usually the cause.",
            details=details,
        )
    elif era == "modern":
        report.warn(
            era,
            f"not spoken: {summary}",
            f"Clients that speak only {MODERN} cannot use the server; others fall back.",
            "Update the library the server is built with.",
            details=details,
        )
    else:
        report.warn(
            era,
            f"not spoken: {summary}",
            f"Clients that speak {LATEST_LEGACY} or older cannot use the server, and most hosts still do.",
            "Let the server answer `initialize` too, if such clients matter to you.",
            details=details,
        )


async def _about(report: Report, client: Client) -> None:
    info = client.server_info
    if info is None:
        report.warn(
            "identity",
            "the server does not say its name",
            "People see the name in logs and menus.",
            "Send serverInfo with a name and a version.",
        )
    else:
        report.ok("identity", f"{in_one_line(info.name, 80)} {in_one_line(info.version, 40)}")


async def _time(report: Report, client: Client, legacy: Client | None) -> None:
    report.section("Timing")
    ways: list[tuple[str, Callable[[], Awaitable[Any]]]] = []
    if legacy is not None:
        ways.append(("time-ping", legacy.ping))
    if "tools" in client.server_capabilities:
        ways.append(("time-list", lambda: client.request("tools/list")))
    for key, call in ways:
        durations: list[float] = []
        try:
            for _ in range(_TRIALS):
                begun = time.perf_counter()
                await call()
                durations.append(time.perf_counter() - begun)
        except Error as error:
            report.fail(
                key,
                safe(in_our_words(error)),
                "Every client calls this.",
                "Look into the server's log.",
            )
            continue
        median = statistics.median(durations)
        seen = f"{1000 * median:,.1f} ms (median of {_TRIALS})"
        if median > _SLOW:
            report.warn(
                key,
                seen,
                "Hosts list tools before every conversation, and people wait for it.",
                "Find out what the server does meanwhile; a list should come from memory.",
            )
        else:
            report.ok(key, seen)


async def _tools(report: Report, client: Client) -> None:
    report.section("Tools")
    if "tools" not in client.server_capabilities:
        report.skip("tools", "the server offers none")
        return
    tools: list[Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    try:
        for _ in range(_MAX_PAGES):
            page = await client.request("tools/list", {} if cursor is None else {"cursor": cursor})
            listed: Any = as_object(page) or {}
            tools += listed.get("tools") or []
            cursor = listed.get("nextCursor")
            if cursor is None or cursor in seen:
                break
            seen.add(cursor)
    except (Error, Unsupported) as error:
        report.fail(
            "tools",
            safe(in_our_words(error)),
            "No client can find the tools.",
            "Look into the server's log.",
        )
        return
    if cursor is not None:
        report.fail(
            "tools-pages",
            f"the list does not end: cursor {in_one_line(cursor, 60)!r} came twice, or after {_MAX_PAGES} pages",
            "A client that follows the cursors never gets to work.",
            "Leave nextCursor out on the last page.",
        )
    lint_tools(report, tools)
