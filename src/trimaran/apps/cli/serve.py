"""`trimaran serve`: a server from a file, from an OpenAPI document, or a proxy of a URL or a command; on stdio or HTTP.

On stdio the protocol's channel is taken before the user's file is imported, so that nothing the file prints, not even at
import, reaches the client (P11). Nothing is announced on stdio; on HTTP one line on stderr says where (P54).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .arguments import FILE
from .completion import TargetWords
from .load import ServerFile, load, parse
from .logs import log_to_stderr
from .serve_mock import MockSource, is_mock
from .serve_openapi import OPENAPI, OpenApiSource, is_openapi, openapi_options
from .serve_proxy import REACH, ProxySource, is_remote, proxy_options
from .target import ClientCommand

if TYPE_CHECKING:
    from trimaran.server.server import Server

_ORIGIN_WORDS: Final[dict[tuple[str, ...], Any]] = {("any",): "any", ("*",): "any", ("none",): []}
_FLAGS: Final = {
    "origins": "allowed-origin",
    "headers": "header",
    "credentials": "credential",
    "forward_headers": "forward-header",
}
LEVELS: Final = ("debug", "info", "warning", "error")


@click.command(
    "serve", cls=ClientCommand, short_help="Serve a Python file, an HTTP API or another server, on stdio or HTTP."
)
@click.argument("words", metavar="FILE[:OBJ] | API.yaml | URL | -- COMMAND", nargs=-1, type=TargetWords())
@click.option("--stdio", "transport", flag_value="stdio", help="Speak over stdin and stdout: the default.")
@click.option("--http", "transport", flag_value="http", help="Speak HTTP; any of the HTTP options below says so too.")
@click.option("--host", metavar="ADDRESS", help="HTTP: where to listen.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="HTTP: the port; 0 takes a free one.  [9090]")
@click.option("--path", metavar="PATH", help="HTTP: the path of the endpoint.  [/mcp]")
@click.option("--workers", type=click.IntRange(1), help="HTTP: processes that share the port.  [1]")
@click.option("--store", metavar="URL", help="HTTP: where sessions live, for more than one worker.")
@click.option(
    "--tasks",
    type=click.Choice(["docket"]),
    help="HTTP: who runs tasks: processes of `trimaran worker FILE`, by way of a docket on the store.  [this process]",
)
@click.option("--tls-cert", type=FILE, metavar="FILE", help="HTTP: the certificate chain, PEM; with --tls-key.")
@click.option("--tls-key", type=FILE, metavar="FILE", help="HTTP: the certificate's private key, PEM.")
@click.option("--http2", "http2", flag_value="on", help="HTTP: insist on HTTP/2 beside HTTP/1.1; needs TLS.")
@click.option(
    "--no-http2", "http2", flag_value="off", help="HTTP: no HTTP/2, which TLS offers if its extra is installed."
)
@click.option(
    "--allowed-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="HTTP: a web origin that may call. Repeatable; `none`, or `any` to switch the check off.",
)
@click.option(
    "--allow-missing-origin", is_flag=True, help="HTTP: let in programs, which send no Origin, on a public address too."
)
@click.option(
    "--auth",
    metavar="SPEC",
    help="HTTP: who may call: NAME (in FILE), FILE.py:NAME, apikeys:PATH, jwt:ISSUER with --audience, or none.",
)
@click.option(
    "--audience", metavar="TEXT", help="HTTP: with jwt:ISSUER, whom tokens are made for; mostly this server's URL."
)
@click.option("--sse-path", metavar="PATH", help="HTTP: also serve the transport of 2024-11-05, with its stream here.")
@click.option("--per-caller", is_flag=True, help="Proxy: a connection, or child process, for each session or user.")
@proxy_options
@openapi_options
@click.option("--no-legacy", is_flag=True, help="Serve 2026-07-28 clients only, no earlier revisions.")
@click.option("--reload", is_flag=True, help="Start again when a .py file beside FILE changes (see above).")
@click.option("--debug", is_flag=True, help="Tell clients what went wrong inside a failed call.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="warning",
    show_default=True,
    help="The level of the log on stderr.",
)
@click.option("--behind-front", type=click.Path(path_type=Path), hidden=True)
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    *,
    per_caller: bool,
    transport: str | None,
    no_legacy: bool,
    reload: bool,
    debug: bool,
    log_level: str,
    behind_front: Path | None,
    **http: Any,
) -> int:
    """Serve the Server object of a Python file or module, an HTTP API, or another server.

    \b
      trimaran serve boat.py                     stdio, for Claude Desktop
      trimaran serve boat.py --port 9090         http://127.0.0.1:9090/mcp
      trimaran serve boat.py:harbour --http      this object
      trimaran serve fleet.boats:server --http   a module
      trimaran serve boat.py --auth apikeys:keys.txt --port 9090
      trimaran serve https://boats.example/mcp   HTTP there, stdio here
      trimaran serve --port 9090 -- npx -y some-server
      trimaran serve --port 9090 .mcp.json#boats an entry of a configuration
      trimaran serve recording.json              a mock of a session recorded by trimaran inspect
      trimaran serve api.yaml --base-url https://api.example.com --token-env API_TOKEN

    Without OBJ the file's only Server is served, or the one named server, mcp or app.

    With --reload the code is loaded in a process of its own, and a new one takes over once it has loaded; a version that
    fails to load changes nothing. On stdio the session goes on: the client is told that the lists changed, and calls
    caught in the middle are answered with an error. On HTTP the port is closed for a moment, well below a second, and
    legacy sessions begin again.
    """
    reach = {name: http.pop(name) for name in REACH}
    api = {name: http.pop(name) for name in OPENAPI}
    http_options = {
        name: value for name, value in http.items() if value is not None and value is not False and value != ()
    }
    if transport == "stdio" and http_options:
        raise click.UsageError(
            f"--{_flag(next(iter(http_options)))} is an option of HTTP; leave out --stdio, or the option"
        )
    transport = transport or ("http" if http_options else "stdio")
    _check_reach(http_options)
    if "tasks" in http_options and not str(http_options.get("store", "")).lower().startswith(("redis", "unix")):
        raise click.UsageError(
            "--tasks docket needs a store on Redis, the same for servers and workers: --store redis://localhost"
        )
    if "audience" in http_options and "auth" not in http_options:
        raise click.UsageError("--audience goes with --auth jwt:ISSUER")
    if ("tls_cert" in http_options) != ("tls_key" in http_options):
        raise click.UsageError("--tls-cert and --tls-key go together: give both, or neither")
    if http_options.get("http2") == "on" and "tls_cert" not in http_options:
        raise click.UsageError("--http2 needs TLS: give --tls-cert and --tls-key, too")
    log_to_stderr(log_level)
    where = _source(ctx, words, reach, api, per_caller=per_caller, debug=debug)
    if reload:
        if not isinstance(where, ServerFile):
            raise click.UsageError("--reload watches the Python files of a server, and this target has none")
        flags = [*(["--no-legacy"] if no_legacy else []), *(["--debug"] if debug else []), "--log-level", log_level]
        if http_options.get("port") == 0:  # the same one after each change
            from trimaran.serve import DEFAULT_HOST, free_port

            http_options["port"] = free_port(http_options.get("host", DEFAULT_HOST))
        return _serve_reloading(where, transport, [f"--{transport}", *_arguments(http_options), *flags])
    if transport == "stdio" and isinstance(where, ProxySource) and "--port" in where.target.command:
        click.echo(
            "trimaran: --port stands behind -- and goes to the command; to listen on it, write it before --", err=True
        )
    if transport == "stdio":
        _serve_stdio(where, debug=debug, legacy=not no_legacy)
    else:
        _serve_http(where, http_options, debug=debug, legacy=not no_legacy, behind_front=behind_front)
    return 0


def _check_reach(options: dict[str, Any]) -> None:
    """The library asks the same, in Python's words."""
    from trimaran.transports.guard import is_loopback

    host = options.get("host")
    if host is not None and not is_loopback(host) and "origins" not in options:
        raise click.UsageError(
            f"{host} can be reached from other machines, so say which web pages may call: --allowed-origin https://app.example.com, "
            "--allowed-origin none, or --allowed-origin any; programs that are not browsers need --allow-missing-origin"
        )


def _flag(name: str) -> str:
    return _FLAGS.get(name, name.replace("_", "-"))


def _arguments(options: dict[str, Any]) -> list[str]:
    """The options as they would be typed again."""
    words: list[str] = []
    for name, value in options.items():
        if value is True or name == "http2":
            words.append("--no-http2" if value == "off" else f"--{_flag(name)}")
            continue
        for item in value if isinstance(value, tuple) else (value,):  # pyright: ignore[reportUnknownVariableType]
            words += [f"--{_flag(name)}", str(item)]  # pyright: ignore[reportUnknownArgumentType]
    return words


def _source(
    ctx: click.Context,
    words: tuple[str, ...],
    reach: dict[str, Any],
    api: dict[str, Any],
    *,
    per_caller: bool,
    debug: bool,
) -> ServerFile | OpenApiSource | ProxySource | MockSource:
    """The target to serve: a file of ours, an HTTP API, a recorded session, or another server."""
    if is_openapi(ctx, words):
        if per_caller:
            raise click.UsageError("--per-caller goes with a proxy; calls of an HTTP API share its connections")
        return OpenApiSource.read(words, reach, api, debug=debug)
    if unfit := [name for name, value in api.items() if value]:
        raise click.UsageError(f"--{_flag(unfit[0])} goes with an OpenAPI document, such as api.yaml")
    if is_mock(ctx, words):
        return MockSource.read(words)
    if is_remote(ctx, words):
        return ProxySource.read(ctx, words, reach, per_caller=per_caller, debug=debug)
    if len(words) > 1:
        raise click.UsageError(
            f"one file is served, and {words[1]!r} comes after {words[0]!r}; a command stands behind --, and one in "
            "quotes counts as one"
        )
    if not words:
        raise click.UsageError(
            "say what to serve: a file (server.py), an OpenAPI document (api.yaml), a URL, or a command behind -- "
            "(-- npx -y some-server)"
        )
    unfit = [
        name for name, value in {**reach, "per_caller": per_caller}.items() if value not in (None, (), False, "auto")
    ]
    if unfit:
        raise click.UsageError(f"--{_flag(unfit[0])} goes with a URL or a command, and {words[0]} is served as a file")
    return parse(words[0])


def _loaded(where: ServerFile | OpenApiSource | ProxySource | MockSource, debug: bool) -> Server:
    server = load(where) if isinstance(where, ServerFile) else where.load()
    if debug:
        server.expose_internal_errors = True
    return server


def _serve_stdio(where: ServerFile | OpenApiSource | ProxySource | MockSource, *, debug: bool, legacy: bool) -> None:
    from trimaran.transports.stdio import take_stdio

    take_stdio()
    server = _loaded(where, debug)
    server.run("stdio", legacy=legacy)


def _serve_http(
    where: ServerFile | OpenApiSource | ProxySource | MockSource,
    flags: dict[str, Any],
    *,
    debug: bool,
    legacy: bool,
    behind_front: Path | None,
) -> None:
    options = {
        name: flags[name] for name in ("host", "port", "path", "workers", "store", "tasks", "sse_path") if name in flags
    }
    if "tls_cert" in flags:
        options["tls"] = (flags["tls_cert"], flags["tls_key"])
    if "http2" in flags:
        options["http2"] = flags["http2"] == "on"
    if "origins" in flags:
        options["allowed_origins"] = _ORIGIN_WORDS.get(flags["origins"], list(flags["origins"]))
    if "allow_missing_origin" in flags:
        options["allow_missing_origin"] = True
    if not legacy:
        options["legacy"] = False
    turn = None
    if behind_front is not None:
        from .reload import WorkerTurn

        turn = WorkerTurn()
    server = _loaded(where, debug)
    from .serve_auth import check_unused, provider

    if "auth" in flags:
        options["auth"] = provider(
            flags["auth"], flags.get("audience"), where if isinstance(where, ServerFile) else None
        )
    elif isinstance(where, ServerFile):
        check_unused(where)
    if turn is not None and behind_front is not None:
        turn.wait(behind_front)
    from trimaran.serve import announce

    server.run("http", on_ready=announce, **options)


def _serve_reloading(where: ServerFile, transport: str, options: Sequence[str]) -> int:
    from . import reload

    words = ["serve", where.text, *options]
    if transport == "stdio":
        return reload.StdioFront(words, where.directory).run()
    return reload.HttpFront(words, where.directory).run()
