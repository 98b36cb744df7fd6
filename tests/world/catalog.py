"""The lists of programs.toml, servers.toml and known.toml, read and checked: a misspelt key is an error."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from .install import Packages
from .sandbox import HERE


@dataclass(frozen=True)
class Program:
    """A program that is a client of our server: an agent, a framework, or a bridge."""

    kind: str
    title: str
    packages: Packages
    transports: tuple[str, ...] = ("stdio", "http")
    without: tuple[str, ...] = ()
    """Tools that our server leaves out for it."""
    because: str = ""

    @property
    def name(self) -> str:
        return self.packages.name


@dataclass(frozen=True)
class RealServer:
    """A server that our client is compared on with the official one."""

    packages: Packages
    command: tuple[str, ...]
    """The first word is a program of the install; `{sandbox}` is the folder of the run."""
    note: str = ""

    @property
    def name(self) -> str:
        return self.packages.name


def read_programs() -> list[Program]:
    document = _read("programs.toml")
    return [
        Program(
            kind,
            entry.pop("title"),
            transports=tuple(entry.pop("transports", ("stdio", "http"))),
            without=tuple(entry.pop("without", ())),
            because=entry.pop("because", ""),
            packages=_packages(entry),
        )
        for kind in ("agent", "framework", "bridge")
        for entry in document[kind]
    ]


@dataclass(frozen=True)
class Surroundings:
    """What every server finds: dummy variables, and files in its home folder. `{sandbox}` is the home folder."""

    variables: dict[str, str]
    files: dict[str, str]


def read_servers() -> tuple[list[RealServer], Surroundings]:
    document = _read("servers.toml")
    servers = [
        RealServer(command=tuple(entry.pop("command")), note=entry.pop("note", ""), packages=_packages(entry))
        for entry in document["server"]
    ]
    return servers, Surroundings(document["environment"], document["files"])


@dataclass(frozen=True)
class Known:
    """A fault of a program's own."""

    program: str
    fault: str
    """A regular expression, searched in the text of a fault."""
    reason: str


def read_known() -> list[Known]:
    return [Known(**entry) for entry in _read("known.toml").get("known", [])]


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


def _packages(entry: dict[str, Any]) -> Packages:
    lists = {key: tuple(entry.pop(key, ())) for key in ("npm", "pypi")}
    return Packages(**lists, **entry)
