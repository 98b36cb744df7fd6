"""The option `sandbox`, read and put into words: what a sandboxed server may reach.

Pure. `transports/sandbox.py` turns a policy into the command of bubblewrap or sandbox-exec.

    "strict"                                     nothing of yours: no file, no network, no variable
    {read = [...], write = [...], net = false | ["host"], env = [...]}      and these
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, TypedDict, cast, final

from msgspec import Struct

from trimaran.errors import ConfigError

_KEYS: Final = ("read", "write", "net", "env")
_HOST: Final = re.compile(
    r"(\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?(?::\d{1,5})?|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?"
)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SandboxTable(TypedDict, total=False):
    """The table form of the option."""

    read: list[str]
    write: list[str]
    net: bool | list[str]
    env: list[str]


@final
class Sandbox(Struct, frozen=True, kw_only=True):
    """The reach of a server's process, and of every process that it starts, beyond its own program and the system's libraries."""

    read: tuple[str, ...] = ()
    """Files and folders to read."""
    write: tuple[str, ...] = ()
    """Files and folders to read and write."""
    net: bool | tuple[str, ...] = False
    """False: no network at all. Hosts: only these, over HTTP and HTTPS, by a proxy. True: all of it."""
    env: tuple[str, ...] = ()
    """Names of variables that are passed on from the host's environment."""

    def __str__(self) -> str:
        hosts = "the whole network" if self.net is True else ", ".join(self.net) if self.net else "no network"
        parts = [
            f"reads {', '.join(self.read)}" if self.read else "",
            f"writes {', '.join(self.write)}" if self.write else "writes nothing",
            hosts if self.net is True or not self.net else f"reaches {hosts}",
            f"gets {', '.join(self.env)}" if self.env else "",
        ]
        return "; ".join(part for part in parts if part)


SandboxOption: TypeAlias = Literal["strict"] | SandboxTable | Sandbox


def read_sandbox(value: Any) -> Sandbox | None:
    """The policy that an option means; None for no sandbox.

    Raises:
        ConfigError: it is no policy; says which part, and what is expected.
    """
    if value is None or isinstance(value, Sandbox):
        return value
    if value == "strict":
        return Sandbox()
    if not isinstance(value, Mapping):
        raise ConfigError(f'sandbox is "strict", or a table with {", ".join(_KEYS)}; not {value!r}')
    table = cast("Mapping[str, Any]", value)
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"sandbox has no key {key!r}; known are {', '.join(_KEYS)}")
    policy = Sandbox(
        read=_texts(table, "read"),
        write=_texts(table, "write"),
        net=_net(table.get("net", False)),
        env=_texts(table, "env"),
    )
    for name in policy.env:
        if not _VARIABLE.fullmatch(name):
            raise ConfigError(f"sandbox.env lists names of variables, and {name!r} is none; values stand in env")
    return policy


def _texts(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    listed = table.get(key, ())
    if not isinstance(listed, (list, tuple)) or not all(
        isinstance(item, str) and item and "\0" not in item for item in cast("list[Any]", listed)
    ):
        raise ConfigError(f'sandbox.{key} must be a list of texts, ["..."], not {listed!r}')
    return tuple(cast("list[str]", listed))


def _net(value: Any) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    hosts = _texts({"net": value}, "net")
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ConfigError(
                f'sandbox.net lists hosts, "api.example.com" or "*.example.com:8443", and {host!r} is none'
            )
    return hosts or False
