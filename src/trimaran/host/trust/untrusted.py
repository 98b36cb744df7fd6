"""A summary of what a project's `mcp.toml` does once it is trusted, for the question to the person; and its digest.

Pure. A command is shown as it is written and not masked: what looks like a secret may be what it is all about,
`--auth-hook ./steal.sh`. So is the host of a URL. Variables stay `${NAME}`; a secret that stands in the file itself is no
secret of the person's.

A project chooses the names of its servers, and names have a past: rules of the user's own that allow something, a login, a
server of the user's that goes by the same name. What a server would inherit and replace by its name is part of the question
and of the digest. So a rule that the user adds later does not reach into a project that was trusted without it.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, cast, final

from msgspec import Struct

from trimaran.client.sandbox_policy import read_sandbox
from trimaran.errors import ConfigError

from ..config.entry import read_rules
from ..config.mask import MASK, is_secret_key, mask_text, mask_url
from ..config.model import FailedEntry, HostConfig, RuleEntry, ServerEntry, Source
from ..names import safe_names
from ..permissions.from_config import read_config_rules
from ..permissions.rules import Rule
from ..terminal_text import visible

_INHERITS_ALL: Final = "every variable that is set here, secrets included (inherit_env = true)"
_AUTHORITY: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^/?#\\]*)")

Entry = ServerEntry | FailedEntry


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
    """The variables of the process, `NAME=value` as written; and whether it gets the whole environment."""
    headers: tuple[str, ...] = ()
    """The headers of each request, and the login of `oauth`: names, and the variables in the values."""
    cwd: str = ""
    sandbox: str = ""
    """The sandbox of the process, as written; empty if it runs with all your rights."""
    inherits: tuple[str, ...] = ()
    """Rights of the user's own server that this one would get by its name: rules that allow, standing answers, a login."""
    replaces: str = ""
    """The user's own server of the same name, which would not be used here."""
    alike: str = ""
    """The servers that its name resembles."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings beyond the file itself. Show them prominently."""
        return (
            *((f"replaces {self.replaces}",) if self.replaces else ()),
            *(f"inherits {item}" for item in self.inherits),
            *((self.alike,) if self.alike else ()),
        )

    def __str__(self) -> str:
        if self.kind == "rule":
            return f"allow {self.what}{f' of {self.name}' if self.name else ''} ({self.where})"
        more = "".join(f", with {item}" for item in (*self.env, *self.headers)) + (
            f", in {self.cwd}" if self.cwd else ""
        )
        more += f", in a sandbox ({self.sandbox})" if self.sandbox else ""
        return f"{self.name}: {self.what}{more} ({self.where})" + "".join(f"\n    {item}" for item in self.warnings)


def untrusted_in(
    config: HostConfig, sources: tuple[Source, ...], *, rules: Iterable[Rule] | None = None, logins: Container[str] = ()
) -> tuple[Untrusted, ...]:
    """Everything that these files of a configuration start and allow.

    Also what is disabled, or cannot be used as things are: it can once a variable is set, and the file is the same then.

    Args:
        rules: All rules that hold; None for those of the configuration.
        logins: The servers for which a login is stored.
    """
    servers: list[Untrusted] = []
    allowed = [
        _rule(entry_rule)
        for entry_rule in config.rules
        if entry_rule.source in sources and entry_rule.action == "allow"
    ]
    granted = _grants(read_config_rules(config).rules if rules is None else rules)
    names = configured_names(config)
    for entry in _entries(config, sources):
        servers.append(
            _server(
                entry,
                inherits=(
                    *(
                        f"your rule: allow {rule.text} ({rule.source})"
                        for rule in _inherited(entry.name, granted, names)
                    ),
                    *(("your login for this URL",) if entry.name in logins else ()),
                ),
                replaces=_replaced(config.replaced.get(entry.name)),
                alike=_alike(entry.name, [name for name in names if name not in _names_of(config, sources)], names),
            )
        )
        permissions = entry.permissions if isinstance(entry, ServerEntry) else _permissions(entry)
        allowed += [_rule(entry_rule, entry.name) for entry_rule in permissions if entry_rule.action == "allow"]
    return (*servers, *allowed)


def trust_digest(config: HostConfig, source: Source) -> str:
    """The digest of this file's text and of the settings that its servers inherit and replace; empty if the text is unknown."""
    text = config.digests.get(source.file, "")
    granted, names = _grants(read_config_rules(config).rules), configured_names(config)
    past: list[str] = []
    for entry in _entries(config, (source,)):
        past += [f"{entry.name}\0{rule.text}" for rule in _inherited(entry.name, granted, names)]
        past += [f"{entry.name}\0replaces"] if entry.name in config.replaced else []
    if not text or not past:
        return text
    return hashlib.sha256("\n".join([text, *sorted(past)]).encode("utf-8", "surrogatepass")).hexdigest()


def configured_names(config: HostConfig) -> dict[str, str]:
    """The safe name of each server: the user's own choose first, so that a project cannot take a name that rules know."""
    entries = (*config.servers.values(), *config.failed.values())
    own = [entry.name for entry in entries if entry.source.level != "project"]
    return safe_names([*config.servers, *config.failed], safe_names(own))


def _entries(config: HostConfig, sources: tuple[Source, ...]) -> list[Entry]:
    return [entry for entry in (*config.servers.values(), *config.failed.values()) if entry.source in sources]


def _names_of(config: HostConfig, sources: tuple[Source, ...]) -> set[str]:
    return {entry.name for entry in _entries(config, sources)}


def _grants(rules: Iterable[Rule]) -> list[Rule]:
    """The rules that allow, of anybody but a project, about servers in general."""
    return [rule for rule in rules if rule.action == "allow" and rule.server is None and rule.source.kind != "project"]


def _inherited(server: str, granted: list[Rule], names: Mapping[str, str]) -> list[Rule]:
    return [rule for rule in granted if rule.pattern.may_be_of(server, names[server])]


def _replaced(entry: Entry | None) -> str:
    if entry is None:
        return ""
    rules = entry.permissions if isinstance(entry, ServerEntry) else _permissions(entry)
    lost = "".join(f", {rule.action} {rule.pattern}" for rule in rules)
    before = _server(entry)
    return visible(f"your server {before.name}: {before.what} ({before.where}{lost and f'; its rules{lost} too'})")


def _alike(name: str, others: Iterable[str], names: Mapping[str, str]) -> str:
    """The servers that a person could mistake this one for. Letters that look like others are found by not being ASCII."""
    near = next((other for other in others if other != name and _skeleton(other) == _skeleton(name)), None)
    if near is not None:
        return visible(f"is not your server {near}, though its name is much like it; rules know it as {names[name]}")
    if not name.isascii():
        return visible(f"has a name with other letters than A to Z ({name!a}); rules know it as {names[name]}")
    return ""


def _skeleton(name: str) -> str:
    return re.sub(r"[\s._-]+", "", unicodedata.normalize("NFKC", name)).casefold()


def _permissions(failed: FailedEntry) -> tuple[RuleEntry, ...]:
    """The rules of a server that cannot be used as things are."""
    table = _table(failed.table.get("permissions"))
    return read_rules(table, failed.source, lambda key, message: None, lambda key: failed.line)


def _server(entry: Entry, inherits: tuple[str, ...] = (), replaces: str = "", alike: str = "") -> Untrusted:
    """As it is written, be it right or wrong."""
    table, where = entry.table, entry.where() if isinstance(entry, ServerEntry) else _at(entry.source, entry.line)
    transport: Any = table.get("transport", table.get("type", "http" if "url" in table else "stdio"))
    command, url = table.get("command"), table.get("url")
    words: list[str] = []
    if command is not None or url is None:
        words.append(shlex.join(map(str, [command or "", *_list(table.get("args"))])))
    if url is not None:
        words.append(_url(str(url)))
    return Untrusted(
        kind="server",
        name=entry.name,
        what=visible(" ".join(words)),
        where=where,
        transport=visible(str(transport)),
        env=(
            *((_INHERITS_ALL,) if table.get("inherit_env") else ()),
            *(visible(f"{key}={value}") for key, value in _table(table.get("env")).items()),
        ),
        headers=(
            *(visible(f"{key}: {mask_text(str(value))}") for key, value in _table(table.get("headers")).items()),
            *(visible(f"oauth {key}: {_detail(key, value)}") for key, value in _oauth(table)),
        ),
        cwd=visible(str(table.get("cwd") or "")),
        sandbox=_sandbox(table.get("sandbox")),
        inherits=tuple(map(visible, inherits)),
        replaces=replaces,
        alike=alike,
    )


def _sandbox(written: Any) -> str:
    """The policy in words; what cannot be read as one, as it is written."""
    try:
        policy = read_sandbox(written)
    except ConfigError:
        return visible(str(written))
    return "" if policy is None else visible(str(policy))


def _url(text: str) -> str:
    """As `mask_url` has it, but for the host: one can be made to look like a token."""
    match = _AUTHORITY.match(text)
    if match is None:
        return mask_url(text)
    scheme, host = match.groups()
    return f"{scheme}{f'{MASK}@' if '@' in host else ''}{host.rpartition('@')[2]}{mask_url(text[match.end() :])}"


def _oauth(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The place of a login, and the data sent there."""
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
