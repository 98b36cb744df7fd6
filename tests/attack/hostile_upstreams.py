"""What hostile servers do to whoever stands before them: to a proxy, to a gateway, to a server that reads its keys from them.

The attacker is a caller, who makes the proxy meet the hostile server over and over; the bystander calls an honest one behind
the same proxy. What the hostile server answers is in `hostile_servers.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from typing import Any, Final

from tests.support.faults import call, encode, http, modern_headers
from tests.support.issuer import Person

from trimaran import connect
from trimaran.errors import Error
from trimaran.types import as_object

from .hostile_clients import Kind, Link, Peer, attack, token
from .hostile_servers import TIMEOUT
from .target import AUDIENCE, ISSUER

CALLERS: Final = 3
MEETINGS: Final = (
    15  # per second: each is a connection and ten requests or more, and costs the attacker more than the gateway
)
HOWS: Final = ("without end", "in gzip without end", "that is deep", ", byte by byte")
ANSWERS: Final = (
    "a schema that doubles",
    "a schema that doubles visits",
    "a deep schema",
    "a schema that refers to itself",
    "a schema with a slow pattern",
    "interim answers without end",
    "gzip without end",
    "progress without end",
    "a deep answer",
)


async def meet(peer: Peer, tool: str, **options: Any) -> None:
    """Have the proxy call the hostile server, in both eras and each time as another caller, until the time is up."""
    logging.disable(logging.CRITICAL)
    numbers = itertools.count()
    link = Link(MEETINGS)
    url = f"http://127.0.0.1:{peer.port}/mcp"
    limits: dict[str, Any] = {"timeout": TIMEOUT, "max_timeout": TIMEOUT}

    async def worker() -> None:
        for era in itertools.cycle(("modern", "legacy")):
            await link.carry()
            if not peer.goes_on:
                return
            payload = {"iss": ISSUER, "aud": AUDIENCE, "sub": f"caller {next(numbers)}", "exp": time.time() + 3600}
            headers = {"Authorization": f"Bearer {token(payload=payload)}"}
            try:
                async with connect(url, era=era, headers=headers, **limits, **options) as client:
                    result = await client.call_tool(tool, {})
                    peer.answers["an error of the tool" if result.is_error else "a result"] += 1
            except (Error, OSError) as error:
                said = (as_object(getattr(error, "data", None)) or {}).get("kind")
                peer.answers[str(said or type(error).__name__)] += 1

    await peer.crowd(worker, CALLERS)


async def call_hostile(peer: Peer) -> None:
    await meet(peer, "hostile_run")


async def log_in_through_gateway(peer: Peer) -> None:
    """A caller presses the button of the login page, if it comes to a page."""

    async def press(question: Any) -> str:
        await asyncio.to_thread(Person().open, question.url, b"")
        return "accept"

    await meet(peer, "hostile_login", on_elicit=press)


async def show_unknown_keys(peer: Peer) -> None:
    """Tokens that name keys which nobody knows: the issuer is asked for them, by us."""
    message = call("add", {"a": 2, "b": 3})

    def request(number: int) -> bytes:
        payload = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 3600}
        forged = token({"alg": "RS256", "kid": f"key {number}"}, payload)
        return http(encode(message), {**modern_headers(message), "Authorization": f"Bearer {forged}"})

    await peer.repeat(request(number) for number in itertools.count())
    peer.answers["SERVED"] += peer.answers.pop("200", 0)


def register(name: str, run: Any, server: Kind, upstream: str) -> None:
    attack(name, server, upstream)(run)


for _name in ANSWERS:
    register(f"through a proxy: {_name}", call_hostile, "proxy", _name)
    register(f"through a gateway: {_name}", call_hostile, "gateway", _name)
for _how in HOWS:
    _gap = "" if _how.startswith(",") else " "
    for _what in ("a login document", "an issuer's metadata", "an answer with tokens"):
        _name = f"{_what}{_gap}{_how}"
        register(f"login at a gateway: {_name}", log_in_through_gateway, "gateway", _name)
    register(f"signing keys{_gap}{_how}", show_unknown_keys, "keys", f"a login document{_gap}{_how}")
