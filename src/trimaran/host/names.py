"""Names for the tools of many servers: one for each, that a provider accepts, and back to server and tool.

Pure: no I/O, no clock. A `Names` is made of every server's tools and does not change; `renewed` makes the next one.

People call their servers what they like: `GitHub`, `awslabs.aws-docs`, `@scope/pkg`, `My files`. A server is shown and
configured under that name. Where a name must be plain, in rules and for models, its safe name stands for it:

    github, GitHub, my_files    the name itself, if it is 1 to 40 of [A-Za-z0-9_-]
    awslabs_aws-docs            else accents go and each run of other characters becomes one "_"
    my_very_long_1a2b3c4d       with a digest where that is too long, empty, or another server's

The name of a tool is a function of its server, itself and the other tools of that server, never of the order in which
servers came (C28, R271):

    mcp__server__tool           the safe name of the server, and the tool's own characters, those outside [A-Za-z0-9_-]
                                replaced by "_"
    mcp__server__too_1a2b3c4d   the same with a digest of server and tool, where the plain name would not do:
                                longer than the limit; taken by a tool of exactly that name; two tools that differ only in
                                replaced characters

The name of a server holds no "__" and does not end with "_". So the first "__" behind "mcp__" ends it, and a rule for the
server `a`, `mcp__a__*`, is about no other: neither about `a__b` nor about `a_`, of which there are none.

A tool keeps its name: `renewed` never gives a name to one tool that another had before, so that a model that read an
older list does not call something else.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, Self, TypeAlias, final

from trimaran.errors import ConfigError, Error

__all__ = [
    "MAX_NAME",
    "PREFIX",
    "Address",
    "Names",
    "UnknownName",
    "check_server_name",
    "join_name",
    "name_problem",
    "rule_name",
    "safe_name",
    "safe_names",
    "split_name",
]

PREFIX: Final = "mcp__"
_BETWEEN: Final = "__"
# Names that Anthropic, OpenAI and Gemini all accept: ^[a-zA-Z0-9_-]{1,64}$, and for Gemini a letter or "_" first.
MAX_NAME: Final = 64
_MOST_SERVER: Final = 200  # characters of a server's name; it stands in every line about the server
# Of its safe name: with "mcp__" and "__" around it, 17 characters are left for the tool, and most tools need no more.
_MOST_SAFE: Final = 40
_SAFE: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{_MOST_SAFE}}}")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST: Final = 8
# A tool may really be called so; it then gets a digest of its own, and no plain name can be mistaken for one with a digest.
_LOOKS_DIGESTED: Final = re.compile(rf"_[0-9a-f]{{{_DIGEST},}}$")
# Names of tools that are gone, remembered so that no other tool takes them. A server that renames its tools all the time
# would otherwise fill the memory.
_MOST_REMEMBERED: Final = 10_000
# The sum over these names: real ones have some dozens each, and a server may have called a tool by a name of megabytes.
_MOST_CHARACTERS: Final = 4_000_000

Reason: TypeAlias = Literal["no_separator", "unknown_server", "unknown_tool"]


class UnknownName(Error):
    """No tool has this name. `reason` says how far it could be read: no_separator, unknown_server, unknown_tool."""

    kind = "unknown_name"

    def __init__(self, message: str, *, name: str, reason: Reason) -> None:
        super().__init__(message)
        self.name = name
        self.reason: Reason = reason


class Address(NamedTuple):
    """A tool, as the server that has it calls it."""

    server: str
    tool: str


def name_problem(name: str) -> str:
    """Why a server cannot be called so; empty if it can (R226)."""
    if not name:
        return "a server needs a name, and this one is empty"
    if len(name) > _MOST_SERVER:
        return f"the name of a server has at most {_MOST_SERVER} characters, and this one has {len(name)}"
    if not name.isprintable():
        at, character = next((at, letter) for at, letter in enumerate(name) if not letter.isprintable())
        return (
            f"the name of a server cannot hold a character that is not seen, and {name[:60]!r} has "
            f"U+{ord(character):04X} as its character {at + 1}"
        )
    if name != name.strip():
        return f"the name of a server neither begins nor ends with a blank: write {name.strip()[:60]!r}"
    if _BETWEEN in name or name.endswith("_"):
        better = re.sub(r"_{2,}", "-", name).strip("_-")
        write = f": write {better[:60]!r}" if better else ""
        return (
            f"the name of a server holds no '__' and does not end with '_', and {name[:60]!r} does: rules and models know its "
            f"tools as mcp__SERVER__TOOL, and a rule for one server would be about another{write}"
        )
    return ""


def check_server_name(name: str) -> str:
    """The name, if a server may be called so.

    Raises:
        ConfigError: it may not; says why.
    """
    if problem := name_problem(name):
        raise ConfigError(problem)
    return name


def safe_name(server: str) -> str:
    """The name of a server in rules and for models: its own name, or one derived from it."""
    if _SAFE.fullmatch(server):
        return server
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", server) if not unicodedata.combining(letter))
    candidate = re.sub(r"_{2,}", "_", _OTHER.sub("_", plain)).strip("_")
    return candidate if _SAFE.fullmatch(candidate) else _with_digest(candidate or "server", server)


def safe_names(servers: Iterable[str], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """The safe name of each server, no two alike, in whatever order they come.

    Args:
        known: Servers that have theirs already, and keep it.
    """
    names = dict(known or {})
    used = set(names.values())
    claims: dict[str, list[str]] = {}
    for server in sorted(set(servers) - names.keys()):
        claims.setdefault(safe_name(server), []).append(server)
    for name, claimants in claims.items():
        # A server of exactly this name has it before those whose names were changed.
        owner = name if name in claimants else claimants[0] if len(claimants) == 1 else None
        if owner is not None and name not in used:
            names[owner] = name
            used.add(name)
    for name, claimants in claims.items():
        for server in claimants:
            if server not in names:
                names[server] = _with_digest(name, server, used)
                used.add(names[server])
    return names


def _with_digest(name: str, server: str, used_names: Container[str] = ()) -> str:
    digest = hashlib.sha256(server.encode("utf-8", "surrogatepass")).hexdigest()
    for length in range(_DIGEST, _MOST_SAFE - 1):
        candidate = f"{name[: _MOST_SAFE - length - 1].rstrip('_')}_{digest[:length]}"
        if candidate not in used_names:
            return candidate
    raise ConfigError(f"no free name is left for the server {server!r}: rename it")


def rule_name(server: str, tool: str) -> str:
    """The name of a tool in permission rules: never shortened, so that `mcp__X__<glob>` means what it says (R238).

    Args:
        server: Its safe name.
    """
    return f"{PREFIX}{server}{_BETWEEN}{_OTHER.sub('_', tool)}"


def join_name(server: str, tool: str, separator: str = ":") -> str:
    """Server and tool in one name (R219)."""
    return f"{server}{_checked(separator)}{tool}"


def split_name(name: str, servers: Iterable[str] | None = None, separator: str = ":") -> Address:
    """Server and tool of a joined name, split at the first separator (R221).

    Args:
        name: A name that `join_name` made.
        servers: The servers there are. The split is then the first one that leaves the name of one of them.
        separator: The text between the two.

    Raises:
        UnknownName: there is no separator, or no such server.
    """
    _checked(separator)
    position = name.find(separator)
    if position < 0:
        raise UnknownName(
            f"{name!r} names no server: expected a server's name, {separator!r} and a tool's name",
            name=name,
            reason="no_separator",
        )
    first = Address(name[:position], name[position + len(separator) :])
    if servers is None:
        return first
    known = set(servers)
    while position >= 0:
        if name[:position] in known:
            return Address(name[:position], name[position + len(separator) :])
        position = name.find(separator, position + 1)
    raise UnknownName(
        f"{name!r}: there is no server {first.server!r}; {_listed(known)}", name=name, reason="unknown_server"
    )


def _checked(separator: str) -> str:
    if not separator:
        raise ConfigError('the separator between server and tool is empty: use ":" or leave it out')
    return separator


def _listed(servers: Iterable[str]) -> str:
    names = sorted(servers)
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"the servers are {', '.join(names[:10])}{more}" if names else "there are no servers"


def _newest(before: Mapping[str, Address], now: Mapping[Address, str]) -> dict[str, Address]:
    """The owners of names before and now, as far back as there is room."""
    owners = {**before, **{name: address for address, name in now.items()}}
    newest: list[tuple[str, Address]] = []
    room = _MOST_CHARACTERS
    for name in itertools.islice(reversed(owners), _MOST_REMEMBERED):
        size = len(name) + len(owners[name].tool)
        if size <= room:
            room -= size
            newest.append((name, owners[name]))
    return dict(reversed(newest))


@final
class Names:
    """The names of every server's tools, both ways.

    Args:
        tools: For each server, what it calls its tools.
        safe: The safe names of the servers; those of `safe_names` by default.
        separator: The text between server and tool in the host's own catalog, as in `github:search`; without, the catalog
            uses the names made for providers.
        length: How long a name for a provider may be.

    Raises:
        ConfigError: a server's name is not one, or the length leaves no room.
    """

    __slots__ = (
        "_address",
        "_catalog",
        "_length",
        "_provider",
        "_remembered",
        "_safe",
        "_separator",
        "_servers",
        "_spoken",
    )

    def __init__(
        self,
        tools: Mapping[str, Iterable[str]],
        *,
        safe: Mapping[str, str] | None = None,
        separator: str | None = None,
        length: int = MAX_NAME,
    ) -> None:
        if length < 32:
            raise ConfigError(f"names of at most {length} characters leave no room for a digest: allow 32 or more")
        if separator is not None:
            _checked(separator)
        self._separator = separator
        self._length = length
        self._remembered: dict[str, Address] = {}
        self._spoken: dict[str, Address] = {}
        self._safe: Mapping[str, str] = {}
        self._assign(tools, safe)

    def renewed(self, tools: Mapping[str, Iterable[str]], safe: Mapping[str, str] | None = None) -> Self:
        """The names for what the servers have now. Tools that are still there keep theirs."""
        successor = object.__new__(type(self))
        successor._separator = self._separator
        successor._length = self._length
        successor._remembered = _newest(self._remembered, self._provider)
        successor._spoken = {} if self._separator is None else _newest(self._spoken, self._catalog)
        successor._safe = self._safe
        successor._assign(tools, safe)
        return successor

    def _assign(self, tools: Mapping[str, Iterable[str]], safe: Mapping[str, str] | None) -> None:
        listed = {check_server_name(server): sorted(set(names)) for server, names in sorted(tools.items())}
        self._servers = frozenset(listed)
        if safe is None:
            safe = safe_names(listed, {server: name for server, name in self._safe.items() if server in listed})
        self._safe = safe
        self._provider: dict[Address, str] = {}
        addresses = [Address(server, tool) for server, names in listed.items() for tool in names]
        had = {address: name for name, address in self._remembered.items()}
        for address in addresses:
            if address in had:
                self._provider[address] = had[address]
        owners = {**self._remembered}
        plain = self._plain_names(listed)
        # Plain names first: they are nobody else's by construction, while a digest may have to grow to be free.
        for address in sorted(
            set(addresses) - self._provider.keys(), key=lambda address: (address not in plain, address)
        ):
            name = plain.get(address)
            if name is None or name in owners:
                name = self._digested(address, owners)
            owners[name] = address
            self._provider[address] = name
        self._address: dict[str, Address] = {name: address for address, name in self._provider.items()}
        self._catalog = dict(self._provider) if self._separator is None else self._joined(addresses, self._separator)
        for address, name in self._catalog.items():
            self._address.setdefault(name, address)

    def _base(self, address: Address) -> str:
        cleaned = _OTHER.sub("_", address.tool)
        return f"{PREFIX if self._separator is None else ''}{self._safe[address.server]}{_BETWEEN}{cleaned}"

    def _plain_names(self, listed: Mapping[str, list[str]]) -> dict[Address, str]:
        """The tools that can be called by the plain name: at most one for each name."""
        plain: dict[Address, str] = {}
        for server, names in listed.items():
            claims: dict[str, list[Address]] = {}
            for tool in names:
                address = Address(server, tool)
                base = self._base(address)
                fits = len(base) <= self._length and not _LOOKS_DIGESTED.search(base)
                if fits and (base[0].isalpha() or base[0] == "_"):
                    claims.setdefault(base, []).append(address)
            for base, claimants in claims.items():
                exact = [claimant for claimant in claimants if _OTHER.search(claimant.tool) is None]
                if exact or len(claimants) == 1:
                    plain[(exact or claimants)[0]] = base
        return plain

    def _digested(self, address: Address, used_names: Mapping[str, Address]) -> str:
        digest = hashlib.sha256(f"{address.server}\0{address.tool}".encode("utf-8", "surrogatepass")).hexdigest()
        base = self._base(address)
        base = base if base[0].isalpha() or base[0] == "_" else f"_{base}"
        for length in range(_DIGEST, self._length - 1):
            name = f"{base[: self._length - length - 1]}_{digest[:length]}"
            if name not in used_names:
                return name
        raise ConfigError(f"no free name is left for {address.tool!r} of the server {address.server!r}")

    def _joined(self, addresses: list[Address], separator: str) -> dict[Address, str]:
        joined: dict[Address, str] = {}
        owners: dict[str, Address] = {}
        # If two join to the same name, the one that `split_name` would find has it; the other keeps its own.
        for address in sorted(addresses, key=lambda address: (len(address.server), address)):
            name = join_name(*address, separator=separator)
            is_free = all(known.get(name, address) == address for known in (owners, self._address, *self._before()))
            if is_free:
                owners[name] = address
            joined[address] = name if is_free else self._provider[address]
        return joined

    def _before(self) -> tuple[Mapping[str, Address], ...]:
        """The owner of each name, in either form: it is not given to another."""
        return self._remembered, self._spoken

    # --- asking -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._provider)

    def __iter__(self) -> Iterator[Address]:
        return iter(sorted(self._provider))

    def __contains__(self, name: object) -> bool:
        return name in self._address

    def provider(self, server: str, tool: str) -> str:
        """The name of this tool for a model's provider."""
        return self._named(self._provider, Address(server, tool))

    def catalog(self, server: str, tool: str) -> str:
        """The name of this tool in the host's catalog."""
        return self._named(self._catalog, Address(server, tool))

    def find(self, name: str) -> Address:
        """The tool of this name, given in either form.

        Raises:
            UnknownName: there is none.
        """
        address = self._address.get(name)
        if address is not None:
            return address
        separator, body = self._separator or _BETWEEN, name
        if self._separator is None:
            if not name.startswith(PREFIX):
                raise UnknownName(
                    f"{name!r} is no tool's name here: they begin with {PREFIX!r}", name=name, reason="no_separator"
                )
            body = name.removeprefix(PREFIX)
        elif separator not in name and _BETWEEN in name:
            separator = _BETWEEN
        servers = {self._safe[server]: server for server in self._servers} | {
            known_server: known_server for known_server in self._servers
        }
        server, tool = split_name(body, servers, separator)
        raise self._unknown(name, Address(servers[server], tool))

    def similar(self, name: str) -> list[str]:
        """Up to three names for providers that are like this one. Models often leave out the server, so those come first."""
        own = [full for address, full in self._provider.items() if address.tool == name]
        near = difflib.get_close_matches(name, self._provider.values(), n=3)
        return list(dict.fromkeys([*own, *near]))[:3]

    def _named(self, names: Mapping[Address, str], address: Address) -> str:
        if (name := names.get(address)) is not None:
            return name
        if address.server not in self._servers:
            raise UnknownName(
                f"there is no server {address.server!r}; {_listed(self._servers)}",
                name=address.server,
                reason="unknown_server",
            )
        raise self._unknown(address.tool, address)

    def _unknown(self, name: str, address: Address) -> UnknownName:
        return UnknownName(
            f"{name!r}: the server {address.server!r} has no tool {address.tool!r}",
            name=name,
            reason="unknown_tool",
        )
