"""`connect` and `open_client`: make a client for a target.

    "https://example.com/mcp"            HTTP; the client and the server negotiate the revision
    ["npx", "-y", "some-server"]         a child process
    "server.py"                          a script, run by this Python (`.js`, `.mjs`: by node)
    server                               a Server in this process
    {"command": ..., "args": [...]}      an entry of an mcp.json, or the file's content with one entry; options may
    {"url": ..., "auth": ...}            stand in it beside the target
    channel                              anything with open, send and close: see trimaran.client.link.Channel

Only this module knows all transports; it loads the one that is needed. No server code is loaded for a remote server.

A URL or a command may hold secrets. `describe` names the target without them, and `mask` removes them from other messages.
`key` holds them: it is only for the memory of eras.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, Union, Unpack, cast, final
from urllib.parse import urlsplit

from trimaran import legacy_seam
from trimaran.client.client import Client
from trimaran.client.connection import Connection
from trimaran.client.dialect import Dialect, ModernDialect
from trimaran.client.link import Channel, Inbox, Link
from trimaran.client.negotiation import Dialer, EraMemory, Manner
from trimaran.client.options import Options
from trimaran.client.pipeline import Pipeline
from trimaran.client.sandbox_policy import read_sandbox
from trimaran.client.server_requests import ServerRequests
from trimaran.errors import ConfigError
from trimaran.protocol.mask import Mask, mask_arguments, mask_command, mask_url, secrets_in

if TYPE_CHECKING:
    from trimaran.connect_options import ConnectOptions
    from trimaran.oauth import Flow, UserAgent
    from trimaran.server.server import Server
    from trimaran.transports.http_auth import HttpAuth

__all__ = ["Target", "connect", "open_client", "run_flow", "take_apart"]

T = TypeVar("T")

Target: TypeAlias = Union[str, os.PathLike[str], Sequence[str], Mapping[str, object], Channel, "Server"]

_SCRIPTS: Final = {".py": None, ".js": "node", ".mjs": "node", ".cjs": "node"}
_STDIO_KEYS: Final = frozenset({"command", "args", "env", "inherit_env", "cwd", "sandbox"})
_HTTP_KEYS: Final = frozenset({"url", "headers"})
# `timeout` is in this list and no option: other programs write milliseconds there.
_OTHER_KEYS: Final = frozenset({"transport", "type", "timeout", "description", "disabled", "name"})
_OPTION_KEYS: Final = Options.names() - _STDIO_KEYS - _HTTP_KEYS - _OTHER_KEYS

_memory = EraMemory()


def connect(target: Target, **options: Unpack[ConnectOptions]) -> Client:
    """A client of `target`, to be opened by `async with connect(target) as client:`.

    Raises:
        ConfigError: the target or an option cannot be right; the message says what would be.
    """
    bare, beside = take_apart(target)
    dialer, checked = _resolve(bare, {**beside, **options})
    from trimaran import __version__

    asks = ServerRequests(checked)
    connection = Connection(dialer, checked, asks, _Dialects(checked, asks, __version__), _memory, dialer.mask)
    return Client(connection, (target, options))


def take_apart(target: Target) -> tuple[Target, dict[str, Any]]:
    """The target, and the options that stand beside it in the same mapping: `{"url": ..., "auth": ...}`."""
    if not isinstance(target, Mapping):
        return target, {}
    options = {key: value for key, value in target.items() if key in _OPTION_KEYS}
    return {key: value for key, value in target.items() if key not in options}, options


async def open_client(target: Target, **options: Unpack[ConnectOptions]) -> Client:
    """A client of `target`, open. Close it with `await client.close()`, from any task."""
    return await connect(target, **options).open()


async def run_flow(flow: Flow[T], *, login: UserAgent | None = None, allow_private: bool = False) -> T:
    """Run a flow of `trimaran.oauth` to its end: `await run_flow(discover_protected_resource(url))`.

    Requests to private addresses are refused unless `allow_private`.

    Raises:
        AuthorizationFailed: a step failed; says which, where, and what to do.
    """
    from trimaran.transports.fetch import Fetcher
    from trimaran.transports.oauth_driver import perform

    fetch = Fetcher(allow_private=allow_private)
    try:
        return await perform(flow, fetch, login)
    finally:
        await fetch.close()


@final
class _Dialects:
    """Makes the dialect for a manner of speaking."""

    def __init__(self, options: Options, asks: ServerRequests, version: str) -> None:
        self._asks = asks
        info = options.client_info
        self._info = {"name": "trimaran", "version": version} if info is None else dict(info)
        if not isinstance(self._info.get("name"), str) or not isinstance(self._info.get("version"), str):
            raise ConfigError('client_info needs a name and a version: {"name": "my-agent", "version": "1.0"}')

    def __call__(self, manner: Manner, version: str | None) -> Dialect:
        if manner == "modern":
            return ModernDialect(self._info, self._asks.capabilities(modern=True))
        return legacy_seam.dialect(self._info, self._asks.capabilities(modern=False), version)


# --- targets ---------------------------------------------------------------------------------------------------------


def _resolve(target: Any, options: dict[str, Any]) -> tuple[_Dialer, Options]:
    if isinstance(target, Mapping):
        return _from_config(dict(cast("Mapping[str, Any]", target)), options)
    checked = Options.make(options)
    if isinstance(target, (str, os.PathLike)):
        text = os.fspath(cast("str", target))
        if "://" in text:
            return _HttpDialer(text, checked), checked
        return _ChildDialer(_script(text), checked), checked
    if isinstance(target, (bytes, bytearray)):
        raise ConfigError("the target is bytes; give a URL or a path as text, or a command as a list of texts")
    if isinstance(target, Sequence):
        command: list[str] = [str(part) for part in cast("Sequence[Any]", target)]
        if not command or not command[0].strip():
            raise ConfigError("the command is empty; give the program and its arguments: ['python', 'server.py']")
        return _ChildDialer(command, checked), checked
    # A server is recognised without loading its module: if it was not loaded, the target cannot be one.
    module = sys.modules.get("trimaran.server.server")
    if module is not None and isinstance(target, module.Server):
        return _MemoryDialer(target, checked), checked
    if isinstance(target, Channel):
        return _ChannelDialer(target, checked), checked
    raise ConfigError(
        f"{type(target).__name__} is nothing to connect to; give a URL, a command as a list, a script's path, "
        "a Server, a channel, or a config dict"
    )


def _script(text: str) -> list[str]:
    path = Path(text).expanduser()
    words = mask_arguments(text.split())
    masked = Mask(command=text.split())(text)
    if path.suffix not in _SCRIPTS:
        hint = f"a command is a list: {words!r}" if " " in text else "a URL begins with http://"
        raise ConfigError(f"{masked!r} is neither a URL nor a script (.py, .js); {hint}")
    if not path.is_file():
        if " " in text:
            raise ConfigError(f"there is no file {masked!r}; if it is a command, give a list: {words!r}")
        raise ConfigError(f"there is no file {text!r}; relative paths start at {Path.cwd()}")
    return [_SCRIPTS[path.suffix] or sys.executable, str(path)]


def _several(servers: Mapping[str, Any]) -> ConfigError:
    names = ", ".join(map(str, servers)) or "none"
    return ConfigError(
        f"the config holds {len(servers)} servers ({names}), and connect talks to one: give one of its entries, "
        "or all of them to Host, by name"
    )


def _from_config(entry: dict[str, Any], options: dict[str, Any]) -> tuple[_Dialer, Options]:
    servers = entry.get("mcpServers", entry.get("servers"))
    if isinstance(servers, Mapping):
        named = cast("Mapping[str, Any]", servers)
        if len(named) != 1:
            raise _several(named)
        entry = dict(_mapping("the server's entry", next(iter(named.values()))))
    elif len(entry) > 1 and not entry.keys() & (_STDIO_KEYS | _HTTP_KEYS | _OTHER_KEYS):
        raise _several(entry)
    for key in entry:
        if key not in _STDIO_KEYS | _HTTP_KEYS | _OTHER_KEYS:
            raise ConfigError(
                f"the config has the unknown key {key!r}; known are {', '.join(sorted(_STDIO_KEYS | _HTTP_KEYS))}, "
                "and the options of connect"
            )
    transport = entry.get("transport", entry.get("type"))
    if transport is None:
        if "url" in entry and "command" in entry:
            raise ConfigError("the config has a command and a url, and a server has one of them: leave the other out")
        transport = "http" if "url" in entry else "stdio"
    if transport in ("http", "streamable-http", "streamableHttp", "sse"):
        url = entry.get("url")
        if not isinstance(url, str):
            raise ConfigError(f"a config with transport {transport!r} needs a url")
        headers = {**_mapping("headers", entry.get("headers")), **_mapping("headers", options.get("headers"))}
        checked = Options.make({**options, "headers": headers})
        return _HttpDialer(url, checked, sse=transport == "sse"), checked
    if transport != "stdio":
        raise ConfigError(f"transport {transport!r} is not one of 'stdio', 'http', 'sse'")
    command = entry.get("command")
    if not isinstance(command, str) or not command:
        raise ConfigError("a config for a child process needs a command")
    env = {**_mapping("env", entry.get("env")), **_mapping("env", options.get("env"))}
    arguments: Any = entry.get("args") or []
    if not isinstance(arguments, (list, tuple)):
        raise ConfigError(f"args must be a list, not {arguments!r}")
    place = {
        "env": env or None,
        "cwd": options.get("cwd") or entry.get("cwd"),
        "sandbox": options.get("sandbox") if options.get("sandbox") is not None else entry.get("sandbox"),
    }
    checked = Options.make({"inherit_env": entry.get("inherit_env", False), **options, **place})
    return _ChildDialer([command, *map(str, cast("Sequence[Any]", arguments))], checked), checked


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be a mapping, not {type(value).__name__}")
    return cast("Mapping[str, Any]", value)


# --- dialers ---------------------------------------------------------------------------------------------------------


class _Dialer(Dialer, Protocol):
    mask: Mask


@final
class _HttpDialer:
    def __init__(self, url: str, options: Options, *, sse: bool = False) -> None:
        try:
            parts = urlsplit(url)
            is_reachable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError as error:
            raise ConfigError(f"{mask_url(url)!r} is not a URL: {error}") from None
        if parts.username or parts.password:
            masked = mask_url(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
            raise ConfigError(
                f"the URL of {masked} holds credentials, which would end up in logs; give auth= or headers="
            )
        if not is_reachable:
            raise ConfigError(f"{mask_url(url)!r} is not an http:// or https:// URL with a host")
        if hasattr(options.auth, "subject"):
            raise ConfigError(
                "auth is a Principal, which only a server in this process believes; give a token or a grant"
            )
        self._url = url
        self._options = options
        self.mask = Mask(url, secrets=secrets_in(options.headers))
        self._authority: HttpAuth | None = None
        if hasattr(options.auth, "acquire"):  # a grant that cannot work here is told of here
            self._authority = self._make_authority()
        # The whole endpoint, not just the origin: one host may carry servers of several years side by side.
        self.key = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self.manners: tuple[Manner, ...] = ("sse",) if sse else ("modern", "legacy", "sse")

    def describe(self) -> str:
        return mask_url(self._url)

    def _make_authority(self) -> HttpAuth | None:
        from trimaran.transports.http_auth import authority_for

        try:
            return authority_for(self._options.auth, self._url, self._options.ssl)
        except ConfigError as error:
            error.args = (self.mask(str(error)),)
            raise

    async def dial(self, manner: Manner, inbox: Inbox, reuse: Link | None) -> Link:
        from trimaran.transports.http_client import HttpLink, HttpWire

        options = self._options
        if reuse is not None:
            await reuse.close()
        if self._authority is None:
            self._authority = self._make_authority()
        wire = HttpWire(
            self._url,
            headers=options.headers,
            auth=self._authority,
            ssl=options.ssl,
            max_bytes=options.max_message_bytes,
            cookies=manner != "modern",
            tap=options.tap,
        )
        wire.open()
        if manner == "modern":
            return HttpLink(wire, inbox, options.tap)
        if manner == "legacy":
            return legacy_seam.http_link(wire, inbox, options.tap)
        return await _piped(legacy_seam.sse_channel(wire), inbox, options)

    def newest_revision(self) -> None: ...

    async def close(self) -> None:
        if self._authority is not None:
            await self._authority.close()


@final
class _ChildDialer:
    manners: tuple[Manner, ...] = ("modern", "legacy")

    def __init__(self, command: Sequence[str], options: Options) -> None:
        _refuse_auth(options, "a child process takes its credentials from its environment: give env=")
        self._command = list(command)
        self._options = options
        self.mask = Mask(command=self._command, secrets=secrets_in(options.env))
        # Where it runs is part of it: `python server.py` is another server in another folder.
        self.key = "\0".join([*self._command, os.path.abspath(options.cwd or "")])

    def newest_revision(self) -> str | None:
        from trimaran.transports.old_sdk import newest_revision

        return newest_revision(self._command, self._options.env, self._options.cwd)

    async def close(self) -> None: ...

    def describe(self) -> str:
        return mask_command(self._command)

    async def dial(self, manner: Manner, inbox: Inbox, reuse: Link | None) -> Link:
        if reuse is not None:
            return reuse
        from trimaran.transports.process import ChildChannel

        options = self._options
        channel = ChildChannel(
            self._command,
            env=options.env,
            inherit_env=options.inherit_env,
            cwd=options.cwd,
            sandbox=read_sandbox(options.sandbox),
            max_message_bytes=options.max_message_bytes,
            grace=options.grace,
            on_stderr=options.on_stderr,
        )
        return await _piped(channel, inbox, options)


@final
class _MemoryDialer:
    manners: tuple[Manner, ...] = ("modern", "legacy")

    def __init__(self, server: Server, options: Options) -> None:
        if options.auth is not None and not hasattr(options.auth, "subject"):
            raise ConfigError(
                "nothing is authenticated in memory: say who is calling with auth=Principal(subject=..., scopes=...)"
            )
        self._server = server
        self._options = options
        self.mask = Mask()
        self.key = ""
        self._is_holding = False

    def newest_revision(self) -> None: ...

    async def close(self) -> None:
        if self._is_holding:
            self._is_holding = False
            await self._server.runtime.release()

    def describe(self) -> str:
        return f"the server {self._server.info.name!r}"

    async def dial(self, manner: Manner, inbox: Inbox, reuse: Link | None) -> Link:
        from trimaran.transports.memory import MemoryLink, ServerChannel

        if not self._is_holding:
            self._is_holding = True
            self._server.runtime.hold()
        if reuse is not None:
            await reuse.close()
        if manner == "modern":
            return MemoryLink(self._server, inbox, self._options.tap, principal=self._options.auth)
        return await _piped(
            ServerChannel(self._server, legacy=legacy_seam.duplex_half(), principal=self._options.auth),
            inbox,
            self._options,
        )


@final
class _ChannelDialer:
    """A channel that the user brings. It is opened again after a loss, if it allows that."""

    manners: tuple[Manner, ...] = ("modern", "legacy")

    def __init__(self, channel: Channel, options: Options) -> None:
        _refuse_auth(options, "a channel carries no headers: let it authenticate by itself")
        self._channel = channel
        self._options = options
        self.mask = Mask()
        self.key = ""

    def newest_revision(self) -> None: ...

    async def close(self) -> None: ...

    def describe(self) -> str:
        return self._channel.describe()

    async def dial(self, manner: Manner, inbox: Inbox, reuse: Link | None) -> Link:
        return reuse if reuse is not None else await _piped(self._channel, inbox, self._options)


def _refuse_auth(options: Options, why: str) -> None:
    if options.auth is not None:
        raise ConfigError(f"auth= is for HTTP servers; {why}")


async def _piped(channel: Channel, inbox: Inbox, options: Options) -> Link:
    link = Pipeline(channel, inbox, options.tap)
    inbox.attach(link)  # the other end may speak before it is spoken to
    try:
        await link.open()
    except BaseException:
        await link.close()
        raise
    return link
