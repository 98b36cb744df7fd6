"""Gateways of a test's own: the text of an `mcp.toml` in, a gateway on a free port out."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from trimaran.apps.gateway.gateway import Gateway
from trimaran.host.config import HostConfig, Source
from trimaran.host.config.load import read_config
from trimaran.host.config.machine import Machine

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[3]
ODD_SERVER = ROOT / "tests" / "support" / "odd_server.py"


def read(text: str, **variables: str) -> HostConfig:
    return read_config([(Source("mcp.toml", "file"), text)], machine(**variables))


def machine(**variables: str) -> Machine:
    return msgspec.structs.replace(Machine.here(), environ=variables)


def child(name: str, script: str = "boats.py", *words: str) -> str:
    """The table of a server that runs as a child process."""
    listed = ", ".join(f'"{word}"' for word in (str(FOLDER / script), *words))
    return f'[server.{name}]\ncommand = "{sys.executable}"\nargs = [{listed}]\nstartup_timeout = 30\n'


def remote(name: str, url: str) -> str:
    return f'[server.{name}]\ntransport = "http"\nurl = "{url}"\noauth = "off"\n'


@contextlib.asynccontextmanager
async def gateway_of(text: str, *, variables: dict[str, str] | None = None, **options: Any) -> AsyncIterator[Gateway]:
    variables = variables or {}
    async with Gateway(read(text, **variables), port=0, machine=machine(**variables), **options) as gateway:
        yield gateway


def url_of(gateway: Gateway, path: str) -> str:
    return f"http://127.0.0.1:{gateway.http.port}{path}"


async def fetch(url: str, **headers: str) -> tuple[int, str]:
    """Status and body of a GET."""

    def get() -> tuple[int, str]:
        request = urllib.request.Request(url, headers={name.replace("_", "-"): text for name, text in headers.items()})
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(get)
