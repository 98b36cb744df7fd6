"""Rules and where they come from: plain parsed data in, `Rule`s and `RuleProblem`s out.

Pure: whoever loads `mcp.toml` hands its tables over, with a label that names file and key. Two tables hold rules:

    [permissions]                     everywhere: the whole grammar          deny = ["mcp__fs__write(/etc/**)"]
    [server.X.permissions]            one server: globs over its tools       ask = ["delete_*"]

An entry is a text, or a table when there is more to say: { pattern = "...", reason = "...", comment = "..." } (R244). What
cannot be read is never dropped in silence, nor taken for something wider (R243): it becomes a `RuleProblem`, and so does
what is surely a slip. A reading with errors in it is not to be used: the rule that was lost might be the one that denies.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, Literal, cast, get_args

from msgspec import Struct

from trimaran.errors import ConfigError
from trimaran.types import Json

from ..terminal_text import visible
from .callers import split_callers
from .patterns import Pattern, RuleError, parse_pattern, parse_tool_glob, pointed_at
from .subjects import Subject

Action = Literal["allow", "ask", "deny"]
ACTIONS: Final[tuple[Action, ...]] = ("allow", "ask", "deny")

SourceKind = Literal["session", "cli", "file", "project", "user", "code", "built-in"]

# The order within a tier (R244). A tier has one decision, so the order says which rule and reason are reported.
_RANKS: Final[dict[SourceKind, int]] = {kind: rank for rank, kind in enumerate(get_args(SourceKind))}
_FIELDS: Final = ("pattern", "comment", "reason", "expires_at")


class RuleSource(Struct, frozen=True):
    """Where a rule is written."""

    kind: SourceKind
    where: str = ""
    """The file, or the option."""
    key: str = ""
    """The place within the file, such as `permissions.deny[0]`."""

    @property
    def rank(self) -> int:
        return _RANKS[self.kind]

    def at(self, *steps: str | int) -> RuleSource:
        """A place further in."""
        key = self.key
        for step in steps:
            key += f"[{step}]" if isinstance(step, int) else f"{'.' if key else ''}{step}"
        return RuleSource(self.kind, self.where, key)

    def __str__(self) -> str:
        return ", ".join(part for part in (self.where or self.kind, self.key) if part)


class Rule(Struct, frozen=True):
    """One rule: an action, a pattern, and the source."""

    action: Action
    pattern: Pattern
    source: RuleSource = RuleSource("code")
    server: str | None = None
    """The server of the rule; None for a global rule."""
    written: str = ""
    """As it stands in the file."""
    comment: str = ""
    reason: str = ""
    """Told to the model when the rule denies (R244)."""
    expires_at: str = ""
    """Reserved (R244): stored, without effect."""
    callers: tuple[str, ...] = ()
    """Whom it is for (`to group:dev`); empty for everybody."""

    @classmethod
    def of(cls, action: Action, text: str, *, server: str | None = None, source: RuleSource | None = None) -> Rule:
        """A rule of a program's own. RuleError, where the text is none.

        `Rule.of("deny", "mcp__fs__write(/etc/**)")`, and of one server: `Rule.of("ask", "delete_*", server="fs")`.
        """
        bare, callers = split_callers(text)
        pattern = parse_pattern(bare) if server is None else parse_tool_glob(bare, server)
        return cls(action, pattern, source or RuleSource("code"), server, text, callers=callers)

    def fits_name(self, act: Subject) -> bool:
        """Whether its names match this act. A server's own rule never matches another server."""
        if self.server is None:
            return self.pattern.fits_name(act)
        return self.server == act.server and self.pattern.fits_own(act)

    @property
    def text(self) -> str:
        """The rule as written; a server's own rule also in its compiled form."""
        return self.written or str(self.pattern)


class RuleProblem(Struct, frozen=True):
    """A problem for the author of the rules. After an "error" the rule is ignored; after a "warning" it works as written."""

    severity: Literal["error", "warning"]
    source: RuleSource
    message: str
    text: str = ""
    at: int | None = None
    """Which character of the text is meant, from 0."""
    hint: str = ""
    server: str | None = None
    """The server whose rules have the problem, if they are a server's own."""

    @property
    def kind(self) -> Literal["invalid_rule", "rule_without_effect"]:
        """The kind of problem, for programs (R280)."""
        return "invalid_rule" if self.severity == "error" else "rule_without_effect"

    def __str__(self) -> str:
        lines = [visible(f"{self.source}: {self.message}")]  # the file may be somebody else's
        if self.text:
            pointed = pointed_at(self.text, self.at or 0)
            lines += pointed if self.at is not None else pointed[:1]
        if self.hint:
            lines.append(f"  {visible(self.hint)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Json]:
        return {
            "kind": self.kind,
            "severity": self.severity,
            "source": {"kind": self.source.kind, "where": self.source.where, "key": self.source.key},
            "message": self.message,
            "text": self.text,
            "at": self.at,
            "hint": self.hint,
            "server": self.server,
        }


class RulesRead(Struct, frozen=True):
    """The rules and problems of one place or several; `+` joins them."""

    rules: tuple[Rule, ...] = ()
    problems: tuple[RuleProblem, ...] = ()

    @property
    def errors(self) -> tuple[RuleProblem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")

    def __add__(self, other: RulesRead) -> RulesRead:
        return RulesRead(self.rules + other.rules, self.problems + other.problems)

    def checked(self) -> tuple[Rule, ...]:
        """The rules; ConfigError with all that is wrong, if anything is."""
        if self.errors:
            raise ConfigError("\n".join(map(str, self.errors)))
        return self.rules


def read_rules(table: object, source: RuleSource, *, server: str | None = None) -> RulesRead:
    """Read a permissions table, with lists under `allow`, `ask` and `deny`.

    Args:
        source: the table itself; each rule gets its own key under it.
        server: the server of the table, if its rules are globs over that server's tools (R238).
    """
    collected = _Collected(server)
    if not isinstance(table, Mapping):
        collected.error(source, f"a table is expected, not {_kind(table)}")
        return collected.reading()
    for key, entries in cast("Mapping[str, Any]", table).items():
        place = source.at(str(key))
        if key not in ACTIONS:
            collected.error(place, f"no such key: {key}", hint=_meant(key, ACTIONS))
        elif isinstance(entries, str):
            collected.error(place, "a list is expected", entries, hint=f'Write {key} = ["{entries}"]')
        elif not isinstance(entries, list):
            collected.error(place, f"a list of rules is expected, not {_kind(entries)}")
        else:
            for number, entry in enumerate(cast("list[Any]", entries)):
                collected.add(key, entry, place.at(number))
    return collected.reading()


def read_entries(entries: Iterable[tuple[Action, object, RuleSource]], *, server: str | None = None) -> RulesRead:
    """Read rules that are known one by one: action, text or table, place."""
    collected = _Collected(server)
    for action, entry, place in entries:
        collected.add(action, entry, place)
    return collected.reading()


def read_options(*, allow: Iterable[str] = (), ask: Iterable[str] = (), deny: Iterable[str] = ()) -> RulesRead:
    """Read the rules of `--allow`, `--ask` and `--deny`."""
    by_action: dict[Action, Iterable[str]] = {"allow": allow, "ask": ask, "deny": deny}
    return read_entries(
        (action, text, RuleSource("cli", f"--{action}")) for action, texts in by_action.items() for text in texts
    )


class _Collected:
    """Rules and problems of one table."""

    def __init__(self, server: str | None) -> None:
        self._server = server
        self._rules: list[Rule] = []
        self._problems: list[RuleProblem] = []

    def reading(self) -> RulesRead:
        return RulesRead(tuple(self._rules), tuple(self._problems))

    def error(self, place: RuleSource, message: str, text: str = "", at: int | None = None, hint: str = "") -> None:
        self._problems.append(RuleProblem("error", place, message, text, at, hint, self._server))

    def warn(self, place: RuleSource, message: str, text: str = "", at: int | None = None, hint: str = "") -> None:
        self._problems.append(RuleProblem("warning", place, message, text, at, hint, self._server))

    def add(self, action: Action, entry: object, place: RuleSource) -> None:
        fields = dict(cast("Mapping[str, Any]", entry)) if isinstance(entry, Mapping) else {"pattern": entry}
        text: Any = fields.get("pattern")
        if not isinstance(text, str):
            description = _kind(entry) if not isinstance(entry, Mapping) else "a table without one"
            hint = 'Write "mcp__github__search", or { pattern = "mcp__github__search", reason = "..." }'
            self.error(place, f"a rule is expected, not {description}", hint=hint)
            return
        for key in fields:
            if key not in _FIELDS:
                self.error(place.at(str(key)), f"no such key: {key}", hint=_meant(key, _FIELDS))
        texts = {key: self._read_text(key, fields.get(key), place.at(key)) for key in _FIELDS[1:]}
        if texts["expires_at"]:
            self.warn(place.at("expires_at"), "nothing acts on expires_at yet: the rule stays in force")
        if texts["reason"] and action != "deny":
            self.warn(place.at("reason"), f"only a deny tells its reason, and this is {action}")
        try:
            bare, callers = split_callers(text)
            pattern = parse_pattern(bare) if self._server is None else parse_tool_glob(bare, self._server)
        except RuleError as error:
            self.error(place, error.problem, error.text, error.at, error.hint)
            return
        except ConfigError as error:
            self.error(place, str(error), text)
            return
        self._look_for_slips(bare, pattern, place)
        self._rules.append(Rule(action, pattern, place, self._server, text, **texts, callers=callers))

    def _read_text(self, key: str, value: Any, place: RuleSource) -> str:
        if key == "expires_at" and isinstance(value, (date, datetime)):
            return value.isoformat()
        if value is None or isinstance(value, str):
            return value or ""
        self.error(place, f"a text is expected, not {_kind(value)}")
        return ""

    def _look_for_slips(self, text: str, pattern: Pattern, place: RuleSource) -> None:
        """A warning about a rule that is valid but probably a mistake."""
        unseen = next((at for at, c in enumerate(text) if unicodedata.category(c) in ("Cf", "Cc")), None)
        if unseen is not None:
            message = f"the rule holds a character that cannot be seen, U+{ord(text[unseen]):04X}"
            self.warn(place, message, text, unseen)
        if self._server is not None:
            if sign := re.search(r"[(:=]", text):
                hint = f"A rule about arguments belongs under [permissions]: mcp__{self._server}__{text}"
                message = f"these are names of tools, in which {sign[0]} is read as _"
                self.warn(place, message, text, sign.start(), hint)
        elif pattern.main is not None and (sign := re.match(r"([^:(]*)\(([\w.-]+=)", text)):
            hint = f"For the argument of that name, write {sign[1]}:{text[sign.start(2) : -1]}"
            self.warn(place, "within parentheses = is an ordinary character", text, sign.end() - 1, hint)


def _meant(key: object, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
    return f"Did you mean {close[0]}?" if close else f"There are {', '.join(known)}."


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case Mapping():
            return "a table"
        case list():
            return "a list"
        case None:
            return "nothing"
        case _:
            return f"a {type(value).__name__}"
