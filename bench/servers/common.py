"""What every bench server shares: its command line, and the typed tools that fill a big registry.

Runs inside each rival's own venv, so it imports the standard library only.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

Filler = Callable[[str, int, list[str] | None], Awaitable[str]]


def parse(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--stdio", action="store_true", help="serve stdio instead of HTTP")
    parser.add_argument(
        "--tools", type=int, default=0, metavar="N", help="register N typed tools beside the usual ones"
    )
    parser.add_argument(
        "--stateless", action="store_true", help="legacy era without sessions, where the rival has that switch"
    )
    parser.add_argument("--auth", default="none", metavar="KIND", help="who may call, by BENCH_AUTH")
    parser.add_argument("--tls", default="", metavar="DIRECTORY", help="serve TLS with cert.pem and key.pem of it")
    parser.add_argument("--upstream", default="", metavar="URL", help="the server that a proxy stands for")
    parser.add_argument("--servers", type=int, default=1, metavar="N", help="of a gateway: that server, N times")
    parser.add_argument("--time-registration", action="store_true", help="register, print the seconds as JSON, exit")
    return parser.parse_args()


def certificate(directory: str) -> tuple[str, str] | None:
    """The files of a certificate and its key, if TLS is to be served."""
    return (f"{directory}/cert.pem", f"{directory}/key.pem") if directory else None


def auth_facts() -> dict[str, str]:
    """What the `auth` section made for this run: issuer, audience, scope, secret, public_key (PEM), api_key."""
    return json.loads(os.environ["BENCH_AUTH"])


def fillers(count: int) -> Iterator[Filler]:
    """Yield `count` distinct functions of one realistic signature."""
    for number in range(count):
        yield _filler(number)


def _filler(number: int) -> Filler:
    async def tool(query: str, limit: int = 10, tags: list[str] | None = None) -> str:
        """Search the archive and return the best match."""
        return f"{number}:{query}:{limit}:{tags}"

    tool.__name__ = tool.__qualname__ = f"search_{number:05d}"
    return tool


def report_registration(count: int, register: Callable[[Filler], object]) -> None:
    """Print how long registering `count` typed tools takes."""
    functions = list(fillers(count))
    started = time.perf_counter()
    for function in functions:
        register(function)
    json.dump({"tools": count, "seconds": time.perf_counter() - started}, sys.stdout)
