"""The grammar of rules: text in, `Pattern` out, and back (R242).

Pure. Nothing is guessed: a text that is not a rule is a `RuleError` that points at the place (R243).

    rule      =  name  |  name ":" glob  |  name "(" glob ")"  |  name ":" key "=" glob { "," key "=" glob }  |  "*"
    name      =  mcp__<server>__<tool>, with * and ? in it, <server> by its safe name  |  "Elicit"
    key       =  the name of an argument; with dots, of one inside another

A colon before the first "(" selects the colon form; the parentheses reach from the first "(" to the last ")". `Elicit`
takes the glob over names of servers, as they are or safe, in either form. Alone, `*` is everything there is.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from trimaran.errors import ConfigError

from ..names import safe_name
from .arguments import fit_key, fit_main
from .globs import Glob, Match, Wildcard, many, meets, one
from .subjects import NAME_CHARACTERS, Subject, plain_name

_MOST: Final = 1000  # characters; no person reads a longer rule
_MOST_STEPS: Final = 16  # of a dotted key
_ESCAPABLE: Final = frozenset("\\*?[]{}(),=:")
_NOT_IN_KEYS: Final = frozenset("*?()[]{}\\:/\"'")

_ANY: Final = (one(NAME_CHARACTERS), many(NAME_CHARACTERS))
_ANY_NAME: Final = (*map(one, "mcp__"), *_ANY, *map(one, "__"), *_ANY)

_EVERYTHING: Final = Glob([Wildcard.RUN])


class RuleError(ConfigError):
    """A text that is not a rule, or one that can never match. `at` counts its characters from 0."""

    kind = "invalid_rule"

    def __init__(self, problem: str, text: str, at: int, hint: str = "") -> None:
        self.problem = problem
        self.text = text
        self.at = at
        self.hint = hint
        super().__init__("\n".join([problem, *pointed_at(text, at), *([f"  {hint}"] if hint else [])]))


def pointed_at(text: str, at: int) -> list[str]:
    """Two lines: the text with invisible characters escaped, and a mark under one character."""

    def printable(part: str) -> str:
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in part)

    first = max(0, at - 60)
    last = min(len(text), at + 60)
    before = ("..." if first else "") + printable(text[first:at])
    return [f"    {before}{printable(text[at:last])}{'...' if last < len(text) else ''}", f"    {' ' * len(before)}^"]


class Pattern(Struct, frozen=True):
    """The pattern of a rule. `str` writes it in its canonical form."""

    kind: Literal["all", "tool", "elicit"]
    name: Glob
    """Over `mcp__<server>__<tool>`; of "elicit", over names of servers."""
    main: Glob | None = None
    """Over the tool's main argument."""
    keys: tuple[tuple[str, Glob], ...] = ()
    """Over arguments by name; all of them must fit."""

    @property
    def has_conditions(self) -> bool:
        """Whether it depends on arguments."""
        return self.main is not None or bool(self.keys)

    def fits_name(self, act: Subject) -> bool:
        if self.kind == "all":
            return act.kind == "tool" or not self.has_conditions
        return self.kind == act.kind and any(self.name.fits_loosely(name) for name in act.names)

    def fit_arguments(self, act: Subject, arguments: Mapping[str, object]) -> Match:
        """YES where it has nothing to say about them."""
        verdict = Match.YES if self.main is None else fit_main(self.main, act.main, arguments)
        for key, glob in self.keys:
            if verdict is Match.NO:
                break
            verdict = min(verdict, fit_key(glob, key, arguments))
        return verdict

    def fits_own(self, act: Subject) -> bool:
        """As `fits_name`, for a rule of the server that the act is of."""
        return act.kind == "tool" and self.name.fits_loosely(act.own or act.names[-1])

    def may_be_of(self, server: str, safe: str = "") -> bool:
        """Whether it could match a tool of this server, or its questions.

        Args:
            safe: its safe name, where that is not `safe_name(server)`.
        """
        safe = safe or safe_name(server)
        if self.kind == "elicit":
            return self.name.fits_loosely(server) or self.name.fits_loosely(safe)
        return self.kind == "all" or meets(self.name, (*map(one, f"mcp__{safe}__"), *_ANY))

    def __str__(self) -> str:
        name = "Elicit" if self.kind == "elicit" else str(self.name)
        if self.kind == "elicit":
            return name if self.name.is_everything else f"{name}({self.name})"
        if self.main is not None:
            return f"{name}({self.main.text('=')})"
        if self.keys:
            return f"{name}:" + ",".join(f"{key}={glob.text(',=')}" for key, glob in self.keys)
        return name

    def covers(self, other: Pattern) -> bool:
        """Whether it matches everything that the other matches. False if unknown."""
        if self.has_conditions and (self.main, self.keys) != (other.main, other.keys):
            return False
        if self.kind == "all":
            return not self.has_conditions or other.kind != "elicit"
        return self.kind == other.kind and self.name.covers(other.name)


class _Mark(NamedTuple):
    """A character of a rule; an escaped one means itself."""

    character: str
    is_escaped: bool
    at: int

    def is_(self, characters: str) -> bool:
        return not self.is_escaped and self.character in characters


class _Reader:
    """One rule being read."""

    def __init__(self, text: str) -> None:
        self.text = text

    def error(self, problem: str, at: int, hint: str = "") -> RuleError:
        return RuleError(problem, self.text, at, hint)

    def read(self) -> Pattern:
        text = self.text
        if not text:
            raise self.error("the rule is empty", 0, "Name a tool, such as mcp__github__search, or write * for all.")
        if len(text) > _MOST:
            raise self.error(f"a rule has at most {_MOST} characters, this one {len(text)}", _MOST)
        for at in (0, len(text) - 1):
            if text[at].isspace():
                raise self.error("a rule neither begins nor ends with a blank", at)
        colon, parenthesis = text.find(":"), text.find("(")
        if colon >= 0 and (parenthesis < 0 or colon < parenthesis):
            return self._with_name(colon, colon + 1, len(text), is_colon=True)
        if parenthesis < 0:
            return self._with_name(len(text), len(text), len(text), is_colon=False)
        closing = text.rfind(")")
        if closing < parenthesis:
            hint = f"Write {text})" if parenthesis < len(text) - 1 else ""
            raise self.error("the parenthesis that opens here is never closed", parenthesis, hint)
        if closing != len(text) - 1:
            raise self.error("nothing can follow the parenthesis that closes", closing + 1)
        return self._with_name(parenthesis, parenthesis + 1, closing, is_colon=False)

    def _with_name(self, name_end: int, start: int, end: int, *, is_colon: bool) -> Pattern:
        name = self.text[:name_end]
        if not name:
            raise self.error(
                "the name of the tool is missing", 0, "Write * before it to mean every tool: *" + self.text
            )
        condition = self._marks(start, end) if start > name_end else None
        if condition == []:
            raise self.error("the glob is empty", start, f"To match anything, write {name}, without it.")
        if name == "Elicit":
            return self._elicitation(condition, start)
        glob = self._name(name)
        kind: Literal["all", "tool"] = "all" if glob == _EVERYTHING else "tool"
        if condition is None:
            return Pattern(kind, glob)
        if is_colon and any(mark.is_("=") for mark in condition):
            return Pattern(kind, glob, None, self._pairs(condition, end))
        return Pattern(kind, glob, self._glob(condition))

    def _elicitation(self, condition: list[_Mark] | None, start: int) -> Pattern:
        if condition is None:
            return Pattern("elicit", _EVERYTHING)
        for mark in condition:
            if not mark.character.isprintable() or mark.is_("="):  # `Elicit:key=...` would be about an argument
                raise self.error(
                    _strange(mark.character, "of a server"), mark.at, "It is about a server: Elicit(github)"
                )
        glob = _as_runs(self._glob(condition))
        return Pattern("elicit", _EVERYTHING if glob.is_everything else glob)

    def _name(self, name: str) -> Glob:
        for at, character in enumerate(name):
            if character not in NAME_CHARACTERS and character not in "*?":
                hint = (
                    f"In rules, characters of a name other than A-Z, a-z, 0-9, _ and - are written _: {_mended(name)}"
                )
                if character.isalpha():
                    hint = f"It may look like another letter: then type that one. {hint}"
                raise self.error(_strange(character, "in a rule"), at, hint)
        glob = _as_runs(self._glob(self._marks(0, len(name))))
        if glob != _EVERYTHING and not meets(glob, _ANY_NAME):
            raise self.error(f"no tool can have this name, so the rule can never match: {name}", 0, _advice(name))
        return glob

    def _marks(self, start: int, end: int) -> list[_Mark]:
        marks: list[_Mark] = []
        at = start
        while at < end:
            character = self.text[at]
            if character != "\\":
                marks.append(_Mark(character, False, at))
                at += 1
                continue
            if at + 1 >= end or self.text[at + 1] not in _ESCAPABLE:
                raise self.error(
                    "a backslash makes one of \\ * ? [ ] { } ( ) , = : an ordinary character, and none follows",
                    at,
                    "Write \\\\ for a backslash itself.",
                )
            marks.append(_Mark(self.text[at + 1], True, at))
            at += 2
        return marks

    def _glob(self, marks: Sequence[_Mark]) -> Glob:
        pieces: list[str | Wildcard] = []
        at = 0
        while at < len(marks):
            mark = marks[at]
            at += 1
            if mark.is_("?"):
                pieces.append(Wildcard.ONE)
            elif mark.is_("*"):
                stars = 1
                while at < len(marks) and marks[at].is_("*"):
                    stars, at = stars + 1, at + 1
                if stars > 2:
                    raise self.error(f"{'*' * stars} is no glob: * or ** is", mark.at)
                pieces.append(Wildcard.RUN if stars == 1 else Wildcard.DEEP)
            elif mark.is_("[]{}"):
                raise self.error(
                    f"{mark.character} is not part of a glob here: use * and ** and ?",
                    mark.at,
                    f"Write \\{mark.character} for the character itself.",
                )
            else:
                pieces.append(mark.character)
        try:
            return Glob(pieces)
        except ValueError as error:
            raise self.error(str(error), marks[0].at) from None

    def _pairs(self, marks: Sequence[_Mark], end: int) -> tuple[tuple[str, Glob], ...]:
        pairs: list[tuple[str, Glob]] = []
        parts: list[list[_Mark]] = [[]]
        ends: list[int] = []
        for mark in marks:
            if mark.is_(","):
                ends.append(mark.at)
                parts.append([])
            else:
                parts[-1].append(mark)
        for part, part_end in zip(parts, [*ends, end], strict=True):
            pairs.append(self._pair(part, part_end))
        return tuple(pairs)

    def _pair(self, part: Sequence[_Mark], end: int) -> tuple[str, Glob]:
        equals = next((at for at, mark in enumerate(part) if mark.is_("=")), None)
        start = part[0].at if part else end
        if equals is None:
            raise self.error(
                "here key=glob is expected", start, "Write \\, for a comma in a glob, and \\= for an equals sign."
            )
        if equals == 0:
            raise self.error("the name of the argument is missing", start)
        for mark in part[:equals]:
            if (
                mark.is_escaped
                or mark.character in _NOT_IN_KEYS
                or not mark.character.isprintable()
                or mark.character == " "
            ):
                raise self.error(
                    f"the name of an argument cannot hold {mark.character!r}",
                    mark.at,
                    "If = belongs to the glob, write \\=.",
                )
        key = "".join(mark.character for mark in part[:equals])
        if "" in key.split("."):
            raise self.error("a dotted key has a name before and after each dot", start)
        if key.count(".") >= _MOST_STEPS:
            raise self.error(f"a dotted key has at most {_MOST_STEPS} names", start)
        if equals + 1 == len(part):
            raise self.error("the glob is empty", end, f"To match any text, write {key}=**")
        return key, self._glob(part[equals + 1 :])


def parse_pattern(text: str) -> Pattern:
    """Read a rule; RuleError points at the fault."""
    return _Reader(text).read()


def parse_tool_glob(text: str, server: str) -> Pattern:
    """Read a glob over the tools of one server, as `[server.X.permissions]` holds them (R238).

    Characters that names cannot hold become `_`, as they do in the names of tools; `*` and `?` are kept.
    """
    reader = _Reader(text)
    if not text:
        raise reader.error("the glob is empty", 0, "Name a tool, such as search, or write * for all.")
    if len(text) > _MOST:
        raise reader.error(f"a glob has at most {_MOST} characters, this one {len(text)}", _MOST)
    marks = [_Mark(c, False, at) for at, c in enumerate("".join(c if c in "*?" else plain_name(c) for c in text))]
    return Pattern("tool", Glob([f"mcp__{safe_name(server)}__", *_as_runs(reader._glob(marks)).pieces]))  # pyright: ignore[reportPrivateUsage]


def _as_runs(glob: Glob) -> Glob:
    """In a name `**` is `*`."""
    return Glob([Wildcard.RUN if piece is Wildcard.DEEP else piece for piece in glob.pieces])


def _strange(character: str, whose: str) -> str:
    if character.isascii() and character.isprintable():
        return f"the name {whose} cannot hold {character!r}"
    called = unicodedata.name(character, "")
    return f"the name {whose} cannot hold U+{ord(character):04X}{f' {called}' if called else ''}"


def _mended(name: str) -> str:
    """The name as a rule can hold it: the server by its safe name, the tool with `_` for other characters."""
    server, between, tool = name.removeprefix("mcp__").partition("__")
    tool = "".join(c if c in "*?" else plain_name(c) for c in tool)
    if not between or set(server) & set("*?"):
        return "".join(c if c in "*?" else plain_name(c) for c in name)
    return f"mcp__{safe_name(server)}__{tool}"


def _advice(name: str) -> str:
    if difflib.get_close_matches(name, ["Elicit"], cutoff=0.6):
        return "For what servers ask, write Elicit(server)."
    if not name.startswith("mcp__"):
        return f"Names are mcp__<server>__<tool>: write mcp__*__{name} for a tool of any server."
    server, _, tool = name[5:].partition("__")
    if not tool and server:
        return f"For all tools of a server, write mcp__{server}__*"
    return "Names are mcp__<server>__<tool>."
