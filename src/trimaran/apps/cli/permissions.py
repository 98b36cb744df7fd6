"""`trimaran permissions`: what a model may do by the rules of `mcp.toml`, and why (R240). Nothing is connected to or called."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from trimaran.depth import decode_json

from .arguments import read_args, read_words
from .command_groups import CommandGroup
from .exit_codes import Exit
from .output import Screen

if TYPE_CHECKING:
    from trimaran.host.config import HostConfig
    from trimaran.host.config.model import Touch
    from trimaran.host.permissions import RuleProblem, RulesRead, Subject

_NAMES: Final = "Name a tool, mcp__SERVER__TOOL, or what a server asks the person, Elicit(SERVER)."


@click.group("permissions", cls=CommandGroup, short_help="Say what a tool may do, and which rule says so.")
def command() -> None:
    """Say what a model may do, by the rules of mcp.toml: those of the user, of the project, and of each server."""


def _rule_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for action in ("ask", "deny", "allow"):
        function = click.option(
            f"--{action}", multiple=True, metavar="RULE", help=f"Add a rule that says {action}; repeatable."
        )(function)
    return click.option(
        "--config", metavar="FILE", help="Read this mcp.toml alone.  [those of the user and the project]"
    )(function)


@command.command("explain", short_help="Which rule decides about a tool, and what the others say.")
@click.argument("name", metavar="NAME")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--args", "args", metavar="JSON", help="The arguments of a call as a JSON object, @FILE, or - for stdin.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@_rule_options
def explain_command(name: str, words: Sequence[str], args: str | None, as_json: bool, **options: Any) -> int:
    """Say what happens when a model wants to call a tool: allow, ask or deny; and why.

    \b
      trimaran permissions explain mcp__github__create_issue
      trimaran permissions explain mcp__fs__write_file path=/etc/hosts
      trimaran permissions explain mcp__fs__write_file --args '{}' --deny 'mcp__fs__*'
      trimaran permissions explain 'Elicit(github)'

    Without arguments it is about the tool as such, and rules that look at arguments are shown as what they would say.
    """
    from trimaran.host.permissions import Policy, explain

    arguments = _arguments(words, args)
    config, reading = _read(**options)
    act = _act(name, config)
    concerning = [problem for problem in reading.errors if problem.server in (None, act.server)]
    _tell(problem for problem in reading.problems if problem not in concerning)
    if concerning:
        _tell(concerning)
        print("trimaran: rules that cannot be read might be the ones that decide: fix them first", file=sys.stderr)
        return Exit.USAGE
    explanation = explain(Policy(reading.rules), act, arguments)
    screen = Screen()
    if as_json:
        touches = sorted(_touches(name, act, config)) if act.kind == "tool" else []
        screen.raw({**explanation.to_json(), "touches": touches})
    else:
        screen.text(explanation.text())
        if act.kind == "tool":
            screen.text(_flow_text(name, act, config))
    return Exit.OK


def _touches(name: str, act: Subject, config: HostConfig) -> frozenset[Touch]:
    """The sources on a tool without its server: the configuration, common servers, and its name."""
    from trimaran.host.trust.touches import touches_of
    from trimaran.types import Tool

    entry = config.servers.get(act.server)
    tool = act.own.rpartition("__")[2] or name
    if entry is None:
        return touches_of(Tool(name=tool, input_schema={}))
    settings = entry.tools.get(tool)
    configured = settings.touches if settings is not None and settings.touches is not None else entry.trust.touches
    return touches_of(
        Tool(name=tool, input_schema={}), configured=configured, hints=[entry.command, *entry.args, entry.url]
    )


def _flow_text(name: str, act: Subject, config: HostConfig) -> str:
    touches = _touches(name, act, config)
    entry = config.servers.get(act.server)
    mode = entry.trust.flow if entry is not None else None
    known = f"It touches {', '.join(sorted(touches))}" if touches else "Nobody has said what it touches"
    lines = ["", f"{known}; its server may say more when it is connected."]
    if "outside" in touches and mode != "off":
        verb = {"refuse": "is refused", "warn": "is logged", "ask": "asks, and is refused where nobody is"}.get(
            mode or "", "asks, and is logged where nobody is"
        )
        lines.append(f"Once private data and words of strangers are in a conversation, a call {verb}.")
    return "\n".join(lines)


@command.command("check", short_help="Find rules that cannot be read, and rules that can have no effect.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@_rule_options
def check_command(as_json: bool, **options: Any) -> int:
    """Find rules that cannot be read or can never match, and rules that an earlier one always forestalls.

    It ends with 1 if a rule cannot be read.
    """
    from trimaran.host.permissions import check

    _, reading = _read(**options)
    problems = [*reading.problems, *check(reading.rules)]
    screen = Screen()
    if as_json:
        screen.raw([problem.to_json() for problem in problems])
    else:
        for problem in problems:
            screen.text(f"{problem.severity}: {problem}")
        count = len(reading.rules)
        screen.note(f"{count} rule{'' if count == 1 else 's'} read, {len(problems) or 'nothing'} to remark.")
    return 1 if reading.errors else 0


def _read(config: str | None, **options: Sequence[str]) -> tuple[HostConfig, RulesRead]:
    from trimaran.host.config import load_config
    from trimaran.host.permissions import read_config_rules, read_options

    loaded = load_config(config, nearby=True)
    for problem in loaded.problems:
        print(f"trimaran: {problem}", file=sys.stderr)
    return loaded, read_options(**options) + read_config_rules(loaded)


def _arguments(words: Sequence[str], args: str | None) -> dict[str, Any] | None:
    if not words and args is None:
        return None
    arguments = read_args(args)
    for word in read_words(words):
        arguments[word.key] = _value(word.key, word.text) if word.is_json else word.text
    return arguments


def _value(key: str, text: str) -> Any:
    try:
        return decode_json(text)
    except ValueError as error:
        raise click.UsageError(f"{key}:={text!r} is not JSON: {error}") from None


def _act(name: str, config: HostConfig) -> Subject:
    """The subject that a name stands for."""
    from trimaran.host.permissions import RuleError, Subject, parse_pattern
    from trimaran.host.trust.untrusted import configured_names

    safe = configured_names(config)
    known = {name: server for server, name in safe.items()}
    try:
        pattern = parse_pattern(name)
    except RuleError as error:
        raise click.UsageError(f"{name!r} is not the full name of a tool.\n{error}\n{_NAMES}") from None
    if pattern.kind == "all" or pattern.has_conditions or not pattern.name.is_plain:
        raise click.UsageError(f"{name!r} is a rule for several things, and this explains one. {_NAMES}")
    if pattern.kind == "elicit":
        named = "".join(map(str, pattern.name.pieces))
        server = named if named in safe else known.get(named, named)
        act = Subject.elicit(server, safe=safe.get(server, ""))
    else:
        word = name.removeprefix("mcp__").partition("__")[0]
        server = known.get(word, word)
        act = Subject.tool(server, name.removeprefix(f"mcp__{word}__"), safe=safe.get(server, ""))
    if server in config.failed:
        print(f"trimaran: {server} cannot be used as it is configured, and its own rules are not read", file=sys.stderr)
    elif server not in safe:
        print(f"trimaran: no server is called {server} in the configuration", file=sys.stderr)
    return act


def _tell(problems: Iterable[RuleProblem]) -> None:
    for problem in problems:
        print(f"trimaran: {problem}", file=sys.stderr)
