"""tools/call over HTTP/1.1 and TLS, 16 connections, one worker, and what TLS adds to a call."""

import subprocess
import tempfile
from collections.abc import Callable

import contenders as who
from plan import CONNECTIONS, Plan, call_rate, rounds, serve_all
from report import Section, Series, best, compare

ECHOES = (who.ECHO_UVICORN, who.ECHO_GRANIAN)
SERVED = (who.OURS, who.SDK, *ECHOES)


def run(plan: Plan) -> Section:
    section = Section("tls", f"HTTP tools/call over TLS, modern, 1 worker, {CONNECTIONS} connections")
    costs: dict[str, list[float]] = {}
    measures: dict[str, tuple[str, Callable[[], float]]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_all((who.OURS,), plan) as plain,
    ):
        _make_certificate(folder)
        with serve_all(SERVED, plan, "--tls", folder) as live:
            for contender in SERVED:
                cost = costs[contender.key] = []
                rate = call_rate(live[contender.key], plan, "add", "modern", cost, tls=True)
                measures[contender.key] = (contender.label, rate)
            costs["plain"] = []
            measures["plain"] = (
                "trimaran without TLS",
                call_rate(plain["ours"], plan, "add", "modern", costs["plain"]),
            )
            series = rounds(plan.rounds, measures)
    for key, values in costs.items():
        series[f"{key} cpu"] = Series(series[key].label, values, series[key].failure)
    echo = best([series[one.key] for one in ECHOES])
    echo_key = next(one.key for one in ECHOES if series[one.key] is echo)
    section.series = series
    section.rows += [
        compare("calls over TLS", series["sdk"], series["ours"], unit="req/s", at_least=5),
        compare("calls over TLS", echo, series["ours"], unit="req/s", at_least=0.8),
        compare("server processor time per call", series["sdk cpu"], series["ours cpu"], unit="us"),
        compare("server processor time per call", series[f"{echo_key} cpu"], series["ours cpu"], unit="us"),
        compare("server processor time per call", series["plain cpu"], series["ours cpu"], unit="us"),
    ]
    section.notes.append(
        "HTTP/1.1 for all: an echo on uvicorn (uvloop's TLS) and on Granian (rustls), the better is the anchor."
    )
    return section


def _make_certificate(folder: str) -> None:
    """One for 127.0.0.1, with a P-256 key; nobody here looks at it."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    subprocess.run(
        [*command.split(), "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"],
        check=True,
        capture_output=True,
        timeout=30,
    )
