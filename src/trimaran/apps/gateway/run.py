"""The process of a gateway: it serves until SIGTERM or Ctrl-C, and then lets calls finish for a moment.

It reads the configuration again on SIGHUP, and when one of its files has changed. A configuration that cannot be used is
logged, and the one before stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from trimaran.errors import Error
from trimaran.host.config.model import HostConfig
from trimaran.protocol.mask import Mask
from trimaran.serve import run_loop
from trimaran.transports.stop_signals import ENDS, hear

from .gateway import Gateway
from .logs import LogFormatter

log: Final = logging.getLogger("trimaran.gateway")

# Seconds between two looks at the files. Editors write them in several steps, and a person does not notice a second.
_LOOK_SECONDS: Final = 1.0


def run_gateway(load: Callable[[], HostConfig], formatter: LogFormatter, **options: Any) -> None:
    """Serve until the end. Blocks; stderr shows the URL.

    Args:
        load: Reads the configuration.
        formatter: Writes the log; it learns what to keep out of it.
        options: Those of `Gateway`.
    """

    async def main() -> None:
        stopping = asyncio.Event()
        hear(ENDS, stopping.set)
        config = load()
        gateway = Gateway(config, **options)
        formatter.mask = Mask(secrets=gateway.secrets())
        async with gateway:
            announce(gateway, [source.file for source in config.sources], formatter)
            reloader = Reloader(gateway, load, config, formatter)
            hangup = getattr(signal, "SIGHUP", None)
            if hangup is not None:
                hear((hangup,), reloader.wake)
            watching = asyncio.ensure_future(reloader.run())
            try:
                await stopping.wait()
            finally:
                watching.cancel()
                await asyncio.wait((watching,))

    run_loop(main())


def announce(gateway: Gateway, files: Sequence[str], formatter: LogFormatter) -> None:
    """Tell whoever started it where the gateway is, on stderr."""
    down = [served.name for served in gateway.served.values() if not served.is_up]
    rest = f"; not reached yet: {', '.join(down)}" if down else ""
    count = len(gateway.served)
    servers = "1 server is" if count == 1 else f"{count} servers are"
    lines = [f"{servers} served at {gateway.url}{rest} (Ctrl-C ends it)"]
    if count == 0 and files:
        lines.append(f"{' and '.join(files)}: no server to serve; add [server.NAME] with a command or a url")
    elif count == 0:
        lines.append("there is no mcp.toml here, and none of the user's; name a file: trimaran gateway FILE")
    sys.stderr.write("".join(f"{formatter.notice(line)}\n" for line in lines))
    sys.stderr.flush()


@final
class Reloader:
    """Reads the configuration again when it is told to, or when a file has changed."""

    def __init__(
        self,
        gateway: Gateway,
        load: Callable[[], HostConfig],
        config: HostConfig,
        formatter: LogFormatter | None = None,
    ) -> None:
        self._gateway = gateway
        self._load = load
        self._formatter = formatter
        self._files = [source.file for source in config.sources]
        self._stamps = self._look()
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Reload now, whether or not a file has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Look and reload until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                if await asyncio.to_thread(self._look) == self._stamps:
                    continue
            self._wake.clear()
            await self.reload()

    async def reload(self) -> bool:
        """Read the files and apply them. False if they cannot be used; the log says why."""
        self._stamps = self._look()  # before they are read: a change that comes meanwhile is seen the next time
        try:
            config = await asyncio.to_thread(self._load)
            await self._gateway.reload(config)
        except Error as error:
            log.error("the configuration was not reloaded, and the previous one stays in use: %s", error)
            return False
        files = [source.file for source in config.sources]
        if files != self._files:
            self._files = files
            self._stamps = self._look()
        if self._formatter is not None:
            self._formatter.mask = Mask(secrets=self._gateway.secrets())
        log.info("the configuration was reloaded: %d servers", len(self._gateway.served))
        return True

    def _look(self) -> list[tuple[int, int, int] | None]:
        """What tells one version of each file from the next."""
        stamps: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                stat = os.stat(file)
            except OSError:
                stamps.append(None)
            else:
                stamps.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return stamps
