"""The server that a command talks to: TARGET, and its options.

    https://boats.example/mcp        a URL
    boat.py                          a file, run by this Python (.js by node); by `trimaran serve` if nothing in it runs
    boat.py:server                   one of several servers in a file
    -- npx -y boat-server            a command: everything after --
    "npx -y boat-server"             the same, as one quoted word
    .mcp.json#boats                  an entry of a configuration file; also mcp.toml#boats
    boats                            the same, of a configuration file in the current directory

Only text and files are looked at here; nothing is started and nothing connected. Words that cannot be a target are refused with
what to write instead.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import click

from trimaran.client.sandbox_policy import Sandbox, read_sandbox
from trimaran.errors import ConfigError
from trimaran.files import read_file
from trimaran.host.terminal_text import in_one_line

from .exit_codes import EPILOG

_HEADER: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*[=:]\s*(.*)", re.DOTALL)
_REFERENCE: Final = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
# `localhost:9090/mcp`, `boats.example/mcp`: a URL with its beginning left off.
_BARE_URL: Final = re.compile(r"(localhost|\[[0-9a-fA-F:]+\]|[\w-]+(\.[\w-]+)+)(:\d+)?(/\S*)?")
_SCRIPTS: Final = {".py": "", ".js": "node", ".mjs": "node", ".cjs": "node"}
_TRANSPORTS: Final = {"http": "http", "streamable-http": "http", "streamableHttp": "http", "sse": "sse"}
_COMMAND: Final = "trimaran.command"
_LARGEST_SCRIPT: Final = 1024 * 1024  # bytes; one that is longer is run without a look at it
_RUNNERS: Final = frozenset({"asyncio", "anyio", "trio", "uvloop", "subprocess"})  # `run` is no server's here
_CONFIGS: Final = (".json", ".toml")
# Where servers of the current directory are looked up by name.
_NEARBY: Final = (".trimaran/mcp.toml", "mcp.toml", ".mcp.json")

FORMS: Final = (
    "a target is a URL (https://host/mcp), a file (server.py), a command after -- (-- npx -y some-server), "
    'a command in quotes ("npx -y some-server") or an entry of a configuration (.mcp.json#name, mcp.toml#name)'
)


class Target(NamedTuple):
    """A server: either `url` or `command` is set."""

    text: str
    """As it would be typed again."""
    url: str = ""
    transport: str = "http"
    headers: Mapping[str, str] = {}
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    inherit_env: bool = False
    cwd: str | None = None
    sandbox: Sandbox | None = None
    """The sandbox of its entry; no command starts it without."""

    @property
    def is_http(self) -> bool:
        return bool(self.url)


class Settings(NamedTuple):
    """The options every command that talks to a server has."""

    era: str = "auto"
    timeout: float | None = 30.0
    headers: Mapping[str, str] = {}
    bearer: str | None = None
    login: str | None = None
    """The name of the kept login to use; None for the only one, or the one that was given no name."""
    auth: Any = None
    """A grant, in place of all of these."""
    env: Mapping[str, str] = {}
    inherit_env: bool = False
    quiet: bool = False
    debug: bool = False
    answers: str = "ask"
    """The answer to the server's questions: `ask` the person, `yes`, or `decline`."""
    log_level: str = "info"


# --- options ---------------------------------------------------------------------------------------------------------

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

ERA: Final = click.option(
    "--era",
    type=click.Choice(["auto", "modern", "legacy"]),
    default="auto",
    metavar="ERA",
    help="The protocol to speak: modern (2026-07-28), legacy (before it), or auto, what the server speaks.  [auto]",
)
REACH_OPTIONS: Final = (
    click.option("--header", "headers", multiple=True, metavar="K=V", help="HTTP: send this header. Repeatable."),
    click.option(
        "--bearer",
        metavar="TOKEN",
        help="HTTP: send this token; the environment variable TRIMARAN_TOKEN does the same unseen.",
    ),
    click.option("--token-env", metavar="VAR", help="HTTP: send the token that this variable holds."),
    click.option("--login", metavar="NAME", help="HTTP: use the login of this name (trimaran auth login --name)."),
    click.option(
        "--env",
        multiple=True,
        metavar="K[=V]",
        help="Command: set this variable for it, or pass on the one that is set here. Repeatable.",
    ),
    click.option(
        "--inherit-env", is_flag=True, help="Command: pass on every variable that is set here, secrets included."
    ),
)
_DEBUG: Final = click.option("--debug", is_flag=True, help="Show the server's stderr, and tracebacks.")
_QUIET: Final = click.option("-q", "--quiet", is_flag=True, help="No progress and no log lines.")
_ANSWERS: Final = (
    click.option("--yes", is_flag=True, help="Accept what the server asks, with the defaults of its form."),
    click.option("--decline", is_flag=True, help="Decline what the server asks."),
    click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        metavar="LEVEL",
        help="The least of the server's log lines to show: debug, info, notice, warning, error, ...  [info]",
    ),
)

F = TypeVar("F", bound=Callable[..., Any])


def client_options(*, answers: bool = False, examines: bool = False, seconds: float = 30) -> Callable[[F], F]:
    """The options of every client command.

    `answers` adds those for what a server asks and says meanwhile; `examines` leaves out what a doctor has no use for.
    """
    timeout = click.option(
        "--timeout",
        type=float,
        default=seconds,
        metavar="SECONDS",
        help=f"How long to wait, to connect and for each answer; 0 is for ever.  [{seconds:g}]",
    )
    talking = () if examines else (ERA, _QUIET)
    options = (timeout, *REACH_OPTIONS, *talking, *(_ANSWERS if answers else ()), _DEBUG)

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def read_settings(target: Target, options: Mapping[str, Any]) -> Settings:
    """The settings from click's values; UsageError for options that do not go with the target or each other."""
    if options.get("yes") and options.get("decline"):
        raise click.UsageError("--yes and --decline contradict each other: give one")
    if not 0 <= options["timeout"] < float("inf"):
        raise click.UsageError(f"--timeout must be a number of seconds, or 0 for no limit, not {options['timeout']:g}")
    ways = [flag for flag in ("bearer", "token-env", "login") if options.get(flag.replace("-", "_"))]
    if len(ways) > 1:
        raise click.UsageError(f"--{ways[0]} and --{ways[1]} contradict each other: give one")
    of_http, of_commands = ("header", *ways), ("env", "inherit-env")
    for name, wants_http in (*((name, True) for name in of_http), *((name, False) for name in of_commands)):
        if options.get("headers" if name == "header" else name.replace("-", "_")) and target.is_http is not wants_http:
            rule = "goes with a URL, and this target is a command" if wants_http else "goes with a command, not a URL"
            raise click.UsageError(f"--{name} {rule}")
    return Settings(
        era=options.get("era", "auto"),
        timeout=options["timeout"] or None,
        headers=dict(_header(text) for text in options["headers"]),
        bearer=_bearer(target, options),
        login=options.get("login"),
        env=dict(_variable(text) for text in options["env"]),
        inherit_env=options.get("inherit_env", False),
        quiet=options.get("quiet", False),
        debug=options["debug"],
        answers="yes" if options.get("yes") else "decline" if options.get("decline") else "ask",
        log_level=options.get("log_level", "info"),
    )


def _bearer(target: Target, options: Mapping[str, Any]) -> str | None:
    if options["bearer"] or options.get("login") or not target.is_http:
        return options["bearer"]
    variable = options.get("token_env")
    # Read here, not by click: a token in the environment is no mistake when the target is a command.
    token = os.environ.get(variable or "TRIMARAN_TOKEN") or None
    if variable is not None and token is None:
        raise click.UsageError(f"--token-env {variable}: this variable is not set, or empty")
    return token


def _header(text: str) -> tuple[str, str]:
    match = _HEADER.fullmatch(text.strip())
    if match is None or "\n" in text or "\r" in text:
        raise click.UsageError(f"--header {text!r} is not a header: write --header X-Api-Key=value")
    return match[1], match[2]


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.UsageError(f"--env {text!r} is not a variable: write --env NAME=value")
    if equals:
        return name, value
    if name not in os.environ:
        raise click.UsageError(f"--env {name}: this variable is not set here; set it, or write --env {name}=value")
    return name, os.environ[name]


class ClientCommand(click.Command):
    """A command whose target may be everything after `--`; its help ends with the exit codes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("epilog", EPILOG)
        super().__init__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        words = list(args)  # click takes them away as it reads
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            at = words.index(error.option_name) if error.option_name in words else 0
            if at and shutil.which(words[at - 1]):
                message = f"{error.message} A command and its options stand behind --: -- {shlex.join(words[at - 1 :])}"
                raise click.NoSuchOption(error.option_name, message, error.possibilities, error.ctx) from None
            raise


def is_behind_dashes(ctx: click.Context) -> bool:
    """True if the target is everything after `--`."""
    return _COMMAND in ctx.meta


def split_words(ctx: click.Context, words: Sequence[str]) -> tuple[Target, list[str]]:
    """The target and the words after it, wherever the target stands: first, or behind `--`."""
    command: list[str] | None = ctx.meta.get(_COMMAND)
    if command is None:
        if not words:
            raise click.UsageError(f"TARGET is missing: {FORMS}{_list_nearby_servers()}")
        return parse_target(words[0]), list(words[1:])
    if not command:
        raise click.UsageError("there is no command after --: write -- npx -y some-server")
    return _of_command(command, f"-- {shlex.join(command)}"), list(words)


def missing_word(word: str, command: str, after: str = "") -> str:
    """A word beside the target is missing: where it stands, also beside a command behind `--`."""
    return f"{word} is missing: {command} TARGET {word}{after}, or {command} {word}{after} -- COMMAND"


# --- parsing ---------------------------------------------------------------------------------------------------------


def parse_target(text: str) -> Target:
    """Read one word as a target; UsageError says what to write instead."""
    if not text.strip():
        raise click.UsageError(f"TARGET is empty: {FORMS}")
    if re.match(r"[A-Za-z][\w+.-]*://", text):
        return _of_url(text)
    path = Path(text).expanduser()
    try:
        if path.is_dir():
            raise click.UsageError(f"{text!r} is a directory: name the file in it, such as {path / 'server.py'}")
        if path.is_file():
            return _of_file(text, path)
    except OSError:  # too long for a file's name: a command, then
        return _of_words(text)
    head, mark, name = text.rpartition("#")
    if mark and (head.endswith(_CONFIGS) or Path(head).expanduser().is_file()):
        return _of_config(text, Path(head).expanduser(), name)
    if path.suffix in (*_SCRIPTS, *_CONFIGS) and not any(c.isspace() for c in text):
        raise click.UsageError(_no_such_file(path))
    script, _, obj = text.rpartition(":")
    if script.endswith(".py") and obj.isidentifier():
        if not Path(script).expanduser().is_file():
            raise click.UsageError(_no_such_file(Path(script).expanduser()))
        return _served(text)
    return _of_words(text)


def _of_url(text: str) -> Target:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise click.UsageError(f"{text!r} is not a URL: {error}") from None
    if parts.scheme.lower() not in ("http", "https"):
        instead = f"not {parts.scheme}://" if parts.scheme else f"as in http://{text}"
        raise click.UsageError(f"{text!r}: MCP goes over http:// and https://, {instead}")
    if not host:
        raise click.UsageError(f"{text!r} has no host: write http://127.0.0.1:9090/mcp")
    if parts.username is not None:
        raise click.UsageError("a URL with a user or password in it would be kept in logs: use --bearer or --header")
    return Target(text, url=text)


def _of_file(text: str, path: Path) -> Target:
    if path.suffix in _CONFIGS:
        return _of_config(text, path, None)
    if path.suffix == ".py" and not _speaks_stdio(path):
        return _served(text)
    if path.suffix in _SCRIPTS:
        runner = _SCRIPTS[path.suffix] or sys.executable
        return Target(shlex.quote(text), command=(runner, str(path)))
    if not os.access(path, os.X_OK):
        raise click.UsageError(f"{text!r} is neither a script (.py, .js) nor executable: write -- COMMAND {text}")
    return _of_command([str(path.resolve())], shlex.quote(text))


def _served(text: str) -> Target:
    """A server that `trimaran serve` runs, on stdio."""
    return Target(shlex.quote(text), command=(sys.executable, "-P", "-m", "trimaran.apps.cli", "serve", text))


def _speaks_stdio(path: Path) -> bool:
    """False if the file imports us and, as a script, would serve nothing and end, or serve HTTP and never read its stdin."""
    try:
        tree = ast.parse(read_file(path, _LARGEST_SCRIPT))
        names = _reached_names(tree)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return True  # Python itself says best what is wrong with it
    modules = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    return "trimaran" not in modules or (bool(names & {"run", "serve"}) and not _serves_http(tree))


def _serves_http(tree: ast.Module) -> bool:
    """Whether each server that the file runs is written to serve HTTP: `server.run("http", ...)`, `uvicorn.run(app)`."""
    transports = [
        "http" if _name(node.func.value) == "uvicorn" else _first_text(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("run", "serve")
        and _name(node.func.value) not in _RUNNERS
    ]
    return bool(transports) and all(transport == "http" for transport in transports)


def _first_text(call: ast.Call) -> object:
    return call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _reached_names(tree: ast.Module) -> set[str]:
    """The names that the file uses as it runs: in a function only if something names the function, or decorates it."""
    names: set[str] = set()
    functions: dict[str, list[ast.AST]] = {}
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.decorator_list:
            functions.setdefault(node.name, []).extend(node.body)
            name = node.name if node.name in names else None
        else:
            waiting.extend(ast.iter_child_nodes(node))
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
        if name is not None:
            names.add(name)
            waiting.extend(functions.pop(name, ()))
    return names


def _of_words(text: str) -> Target:
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError as error:
        raise click.UsageError(f"{text!r} cannot be read as a command: {error}") from None
    if len(words) == 1 and shutil.which(words[0]) is None:
        if _BARE_URL.fullmatch(text):
            raise click.UsageError(f"{text!r} is neither a file nor a command: for a URL, write http://{text}")
        for file, names in _nearby():
            if text in names:
                return _of_config(text, file, text)
        raise click.UsageError(
            f"{text!r} is neither a URL, nor a file, nor a command that can be found: {FORMS}{_list_nearby_servers()}"
        )
    return _of_command(words, shlex.quote(text))


def _of_command(words: Sequence[str], text: str) -> Target:
    if re.match(r"https?://", words[0]):
        raise click.UsageError(f"a command follows --, not a URL: write {words[0]} without the --")
    if "=" in words[0] and not Path(words[0]).exists():
        raise click.UsageError(
            f"the command that starts the server follows --, not {words[0]!r}: arguments go before the --"
        )
    return Target(text, command=tuple(words))


def _no_such_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no file {str(path)!r}: the directory {str(path.parent)!r} does not exist"
    near = difflib.get_close_matches(path.name, sorted(p.name for p in path.parent.glob(f"*{path.suffix}")), n=1)
    if near:
        return f"there is no file {str(path)!r}; did you mean {str(path.parent / near[0])!r}?"
    return f"there is no file {str(path)!r} (looked in {path.parent.resolve()})"


# --- configuration files ---------------------------------------------------------------------------------------------


def _of_config(text: str, path: Path, name: str | None) -> Target:
    """A server of an mcpServers file (VS Code: servers); by name, or the only one."""
    if not path.is_file():
        raise click.UsageError(_no_such_file(path))
    entries = _entries(_read_config(path), path)
    if name is None:
        if len(entries) != 1:
            raise click.UsageError(
                f"{str(path)!r} has {len(entries)} servers: say which, as in "
                + " or ".join(f"{path}#{n}" for n in entries)
            )
        name = next(iter(entries))
    if name not in entries:
        near = difflib.get_close_matches(name, entries, n=1)
        raise click.UsageError(
            f"{str(path)!r} has no server {name!r}; "
            + (f"did you mean {path}#{near[0]}?" if near else f"it has {', '.join(entries)}")
        )
    return _of_entry(shlex.quote(text), entries[name], f"{path}#{name}")


def _read_config(path: Path) -> Any:
    # Imported here: most targets are no files.
    from trimaran.host.config.files import read_text
    from trimaran.host.config.jsontext import read_json
    from trimaran.host.config.model import ConfigUnusable
    from trimaran.host.config.tomltext import read_toml

    language, read = ("TOML", read_toml) if path.suffix == ".toml" else ("JSON", read_json)
    try:
        return read(read_text(path) or "", str(path))
    except ConfigUnusable as error:
        raise click.UsageError(f"{str(path)!r} cannot be read as {language}: {error}") from None


def _nearby() -> list[tuple[Path, list[str]]]:
    """The configuration files of the current directory, and the servers that each has. One that cannot be read has none."""
    files: list[tuple[Path, list[str]]] = []
    for file in map(Path, _NEARBY):
        if file.is_file():
            with contextlib.suppress(click.UsageError):
                files.append((file, list(_entries(_read_config(file), file))))
    return files


def names_nearby() -> list[str]:
    """The servers that can be named in the current directory."""
    return list(dict.fromkeys(name for _, names in _nearby() for name in names))


def _list_nearby_servers() -> str:
    """The servers in the configuration files of the current directory, as the end of an error message."""
    return "".join(
        f"; {file} has {', '.join(in_one_line(name, 60) for name in names[:12])}{', ...' if len(names) > 12 else ''}"
        for file, names in _nearby()
    )


def _entries(whole: Any, path: Path) -> dict[str, Any]:
    if isinstance(whole, dict):
        config = cast("dict[str, Any]", whole)
        for key in ("mcpServers", "servers", "server"):
            listed = config.get(key)
            if isinstance(listed, dict) and listed:
                return cast("dict[str, Any]", listed)
        if "command" in config or "url" in config:
            return {path.stem: config}
    example = '{"mcpServers": {"name": {"command": "npx", "args": ["-y", "server"]}}}'
    if path.suffix == ".toml":
        example = '[server.name], and below it command = "npx" and args = ["-y", "server"]'
    raise click.UsageError(f"{str(path)!r} names no server: write {example}")


def _of_entry(text: str, entry: Any, where: str) -> Target:
    if not isinstance(entry, dict):
        raise click.UsageError(f"{where} is not an object with a command or a url")
    fields = cast("dict[str, Any]", _expand(entry, where))
    url, command = fields.get("url", fields.get("serverUrl")), fields.get("command")
    if (url is None) == (command is None):
        raise click.UsageError(f"{where} needs either a command or a url")
    if url is not None:
        kind = fields.get("transport", fields.get("type", "http"))
        if not isinstance(kind, str) or kind not in _TRANSPORTS:
            raise click.UsageError(f"{where}: the transport {kind!r} does not go with a url; http and sse do")
        headers = _texts(fields.get("headers", {}), f"{where}: headers")
        return _of_url(str(url))._replace(text=text, transport=_TRANSPORTS[kind], headers=headers)
    arguments: Any = fields.get("args", [])
    words: list[Any] = [command, *cast("list[Any]", arguments)] if isinstance(arguments, list) else [None]
    if not all(isinstance(word, str) for word in words):
        raise click.UsageError(f"{where}: command must be a text, and args a list of texts")
    cwd = fields.get("cwd")
    env = _texts(fields.get("env", {}), f"{where}: env")
    inherits = fields.get("inherit_env", False)
    if not isinstance(inherits, bool):
        raise click.UsageError(f"{where}: inherit_env must be true or false")
    try:
        sandbox = read_sandbox(fields.get("sandbox"))
    except ConfigError as error:
        raise click.UsageError(f"{where}: {error}") from None
    folder = None if cwd is None else str(cwd)
    return Target(text, command=tuple(words), env=env, inherit_env=inherits, cwd=folder, sandbox=sandbox)


def _texts(value: Any, setting: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise click.UsageError(f"{setting} must be an object of texts")
    return {str(k): str(v) for k, v in cast("dict[Any, Any]", value).items()}


def _expand(value: Any, where: str) -> Any:
    """The value with ${NAME} and ${NAME:-default} replaced from the environment, as these files are used to."""

    def look_up(match: re.Match[str]) -> str:
        name = match[1]
        default: str | None = match[2]
        known = os.environ.get(name, default)
        if known is None:
            raise click.UsageError(f"{where} uses ${{{name}}}, which is not set: set it, or write ${{{name}:-default}}")
        return known

    if isinstance(value, str):
        return _REFERENCE.sub(look_up, value)
    if isinstance(value, list):
        return [_expand(item, where) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _expand(item, where) for key, item in cast("dict[str, Any]", value).items()}
    return value
