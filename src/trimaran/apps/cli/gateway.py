"""`trimaran gateway`: the servers of an `mcp.toml` behind one port. The work is done in `trimaran.apps.gateway`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from .arguments import FILE
from .serve import LEVELS

if TYPE_CHECKING:
    from trimaran.host import HostConfig

_NEARBY: Final = Path("mcp.toml")


@click.command("gateway", short_help="Serve the servers of an mcp.toml behind one port, for many callers.")
@click.argument("file", type=FILE, required=False)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one.")
@click.option("--store", metavar="URL", help="Where several gateways share their state, in place of the file's.")
@click.option("--tls-cert", type=FILE, metavar="FILE", help="The certificate chain, PEM; with --tls-key.")
@click.option("--tls-key", type=FILE, metavar="FILE", help="The certificate's private key, PEM.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="The level of the log on stderr.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    file: Path | None,
    host: str,
    port: int,
    store: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    log_level: str,
    log_format: Literal["text", "json"],
) -> int:
    """Serve all servers of an mcp.toml behind one port: many callers, both eras, any transport behind.

    \b
      trimaran gateway                        mcp.toml here, or the user's
      trimaran gateway mcp.toml --port 8080
      trimaran gateway mcp.toml --store redis://localhost    one of several processes

    \b
      /mcp                 all servers as one catalog; names begin with the server's
      /servers/NAME/mcp    each by itself
      /views/NAME/mcp      a part of them, as [view.NAME] says
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together: give both, or neither")
    from trimaran.apps.gateway.logs import log_to_stderr
    from trimaran.apps.gateway.run import run_gateway

    formatter = log_to_stderr(log_level, log_format)

    tls: Any = None if tls_cert is None else (tls_cert, tls_key)
    run_gateway(lambda: _load(file), formatter, host=host, port=port, tls=tls, store=store)
    return 0


def _load(file: Path | None) -> HostConfig:
    from trimaran.host.config import load_config

    return load_config(file or (_NEARBY if _NEARBY.exists() else None))
