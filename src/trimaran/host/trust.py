"""Which projects' `mcp.toml` a person has read, and trusts.

A project's file starts programs with the rights of whoever opens the project, and may allow a model to use them. Where
somebody else wrote it, a person has to say yes first; `Host(trust=Trust())` waits for that. What is trusted is one text in
one place: the file's path and the SHA-256 of what it said. A file that was changed, by whomever, is a new one.

It is kept as `{"version": 1, "files": {path: digest}}`, mode 0600, replaced as a whole. What is no such file, what others
could have written to, and what cannot be read is trust in nothing: the worst that happens is that a person is asked again.
So two processes that write at the same time need no lock.

The place is the project's directory, however it was come by, and the file's name in it. Links inside the project are not
followed: whoever wrote it could lead one to a file that is trusted elsewhere, whose `./server` would be another one here.

`Untrusted` is for the question. A command is shown as it is written and not masked: what looks like a secret may be what it
is all about, `--auth-hook ./steal.sh`. So is the host of a URL. Variables stay `${NAME}`; a secret that stands in the file
itself is no secret of the person's.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast, final

import msgspec
from msgspec import Struct

from trimaran.errors import ConfigError

from .config.entry import read_rules
from .config.files import write_whole
from .config.machine import Machine
from .config.mask import MASK, is_secret_key, mask_text, mask_url
from .config.model import FailedEntry, HostConfig, RuleEntry, ServerEntry, Source
from .plain import visible

__all__ = ["UNTRUSTED", "Trust", "Untrusted", "untrusted_in"]

log: Final = logging.getLogger("trimaran.host")

UNTRUSTED: Final = "the project's mcp.toml is not trusted yet"
INHERITS: Final = "every variable that is set here, secrets included (inherit_env = true)"
_LARGEST: Final = 1024 * 1024  # bytes; some 5000 projects
_AUTHORITY: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^/?#\\]*)")
_MOST: Final = 2000  # files; the oldest are forgotten first, and asked about again


@final
class Trust:
    """The files that a person trusts, in a file of the person's own.

    Args:
        path: Where; None for `$XDG_DATA_HOME/trimaran/trusted.json` (`~/.local/share`; on Windows `%LOCALAPPDATA%`).
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path: Final = Path(Machine.here().trust_file) if path is None else Path(path).expanduser().absolute()

    def __repr__(self) -> str:
        return f"Trust({str(self.path)!r})"

    def is_trusted(self, file: str, digest: str) -> bool:
        """Does the person trust this file with this content, as `HostConfig.digests` has it?"""
        return bool(digest) and self.files().get(_place(file)) == digest

    def add(self, file: str, digest: str) -> None:
        """Trust this file, as long as it says what it says now.

        Raises:
            ConfigError: that cannot be kept.
        """
        known = self.files()
        known.pop(_place(file), None)
        self._write({**known, _place(file): digest})

    def remove(self, file: str) -> bool:
        """Trust this file no more; was it trusted, with whatever content?

        Raises:
            ConfigError: that cannot be kept.
        """
        known = self.files()
        if known.pop(_place(file), None) is None:
            return False
        self._write(known)
        return True

    def files(self) -> dict[str, str]:
        """The files that are trusted, and the digest of what each said."""
        try:
            found = os.stat(self.path)
            if wrong := _suspicion(found):
                log.warning("%s is not believed: %s; no project is trusted", self.path, wrong)
                return {}
            kept: Any = msgspec.json.decode(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            log.warning("%s cannot be read, so no project is trusted: %s", self.path, error)
            return {}
        files: Any = cast("dict[str, Any]", kept).get("files") if isinstance(kept, dict) else None
        if not isinstance(files, dict):
            log.warning("%s is not a list of trusted files, so no project is trusted", self.path)
            return {}
        return {file: digest for file, digest in cast("dict[str, Any]", files).items() if isinstance(digest, str)}

    def _write(self, files: dict[str, str]) -> None:
        kept = dict(list(files.items())[-_MOST:])
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = msgspec.json.format(msgspec.json.encode({"version": 1, "files": kept}))
            write_whole(self.path, text + b"\n")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"which projects are trusted cannot be kept in {self.path}: {why}") from None


def _place(file: str) -> str:
    """One name for a project's file, `<project>/.trimaran/mcp.toml`, however the project was come by."""
    folder, name = os.path.split(Path(file).absolute())
    project, inner = os.path.split(folder)
    inside = os.path.join(os.path.realpath(project), inner) if inner != os.pardir else os.path.realpath(folder)
    return os.path.normcase(os.path.join(inside, name))


def _suspicion(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "it is not a file"
    if found.st_size > _LARGEST:
        return f"it is larger than {_LARGEST >> 20} MiB"
    if sys.platform != "win32":
        if found.st_uid != os.geteuid():
            return f"it belongs to another user (uid {found.st_uid})"
        if stat.S_IMODE(found.st_mode) & 0o022:
            return "others may write to it (chmod 600 it, if it is as you left it)"
    return ""


# --- what is asked about ---------------------------------------------------------------------------------------------


@final
class Untrusted(Struct, frozen=True, kw_only=True):
    """One thing that a project's file does once it is trusted."""

    kind: Literal["server", "rule"]
    """A server that is started, or reached; or a rule that allows something without asking."""
    name: str
    """The server's name; of a global rule, nothing."""
    what: str
    """The whole command line as it is written, the masked URL, or the rule's pattern."""
    where: str
    """`file:line`."""
    transport: str = ""
    env: tuple[str, ...] = ()
    """What is set for the process, `NAME=value` as it is written; and whether it gets the whole environment."""
    headers: tuple[str, ...] = ()
    """What is sent with each request, and what `oauth` says of a login: names, and the variables in the values."""
    cwd: str = ""

    def __str__(self) -> str:
        if self.kind == "rule":
            return f"allow {self.what}{f' of {self.name}' if self.name else ''} ({self.where})"
        more = "".join(f", with {one}" for one in (*self.env, *self.headers)) + (f", in {self.cwd}" if self.cwd else "")
        return f"{self.name}: {self.what}{more} ({self.where})"


def untrusted_in(config: HostConfig, sources: tuple[Source, ...]) -> tuple[Untrusted, ...]:
    """All that these files of a configuration start, and what they allow.

    Also what is disabled, or cannot be used as things are: it can once a variable is set, and the file is the same then.
    """
    servers: list[Untrusted] = []
    rules = [_rule(one) for one in config.rules if one.source in sources and one.action == "allow"]
    for entry in (*config.servers.values(), *config.failed.values()):
        if entry.source in sources:
            where = entry.where() if isinstance(entry, ServerEntry) else _at(entry.source, entry.line)
            servers.append(_server(entry.name, entry.table, where))
            permissions = entry.permissions if isinstance(entry, ServerEntry) else _permissions(entry)
            rules += [_rule(one, entry.name) for one in permissions if one.action == "allow"]
    return (*servers, *rules)


def _permissions(failed: FailedEntry) -> tuple[RuleEntry, ...]:
    """The rules of a server that cannot be used as things are."""
    table = _table(failed.table.get("permissions"))
    return read_rules(table, failed.source, lambda key, message: None, lambda key: failed.line)


def _server(name: str, table: Mapping[str, Any], where: str) -> Untrusted:
    """As it is written, be it right or wrong."""
    said: Any = table.get("transport", table.get("type", "http" if "url" in table else "stdio"))
    command, url = table.get("command"), table.get("url")
    what: list[str] = []
    if command is not None or url is None:
        what.append(shlex.join(map(str, [command or "", *_list(table.get("args"))])))
    if url is not None:
        what.append(_url(str(url)))
    return Untrusted(
        kind="server",
        name=name,
        what=visible(" ".join(what)),
        where=where,
        transport=visible(str(said)),
        env=(
            *((INHERITS,) if table.get("inherit_env") else ()),
            *(visible(f"{key}={value}") for key, value in _table(table.get("env")).items()),
        ),
        headers=(
            *(visible(f"{key}: {mask_text(str(value))}") for key, value in _table(table.get("headers")).items()),
            *(visible(f"oauth {key}: {_detail(key, value)}") for key, value in _oauth(table)),
        ),
        cwd=visible(str(table.get("cwd") or "")),
    )


def _url(text: str) -> str:
    """As `mask_url` has it, but for the host: one can be made to look like a token."""
    found = _AUTHORITY.match(text)
    if found is None:
        return mask_url(text)
    scheme, host = found.groups()
    return f"{scheme}{f'{MASK}@' if '@' in host else ''}{host.rpartition('@')[2]}{mask_url(text[found.end() :])}"


def _oauth(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Where a login leads, and what is told there."""
    for key in ("oauth", "oauth_config"):
        yield from _table(table.get(key)).items()


def _detail(key: str, value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, cast("list[Any]", value)))
    text = str(value)
    return mask_text(text) if is_secret_key(key) else _url(text) if "://" in text else text


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]


def _table(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _rule(rule: RuleEntry, server: str = "") -> Untrusted:
    return Untrusted(kind="rule", name=server, what=visible(rule.pattern), where=_at(rule.source, rule.line))


def _at(source: Source, line: int | None) -> str:
    return source.file if line is None else f"{source.file}:{line}"
