"""Problems that a provider would find in tools, each with the tool, the place and the remedy (P25)."""

from __future__ import annotations

import re

from msgspec.structs import replace

from .definitions import AnyTools, Definition, read_tools
from .fit import Fit, fit_up_to
from .profiles import Profile, profile_named
from .rules import Finding


def lint(tools: AnyTools, profile: str | Profile, *, fit: Fit = None) -> list[Finding]:
    """Problems that the provider would find in these tools; an empty list if there are none.

    Args:
        tools: One tool or several.
        profile: The rules: a name in `PROFILES`, or a profile of your own.
        fit: Judge the tools as they are (None), or as they would be declared: "exact", "loose" or "auto". Paths are then those of
            the changed schema.
    """
    chosen = profile_named(profile)
    definitions = read_tools(tools)
    findings: list[Finding] = []
    if chosen.most_tools is not None and len(definitions) > chosen.most_tools:
        findings.append(
            Finding(
                path="tools",
                rule="size",
                problem=f"{len(definitions)} tools, and at most {chosen.most_tools} are taken",
                remedy="offer fewer at a time",
                profile=chosen.name,
            )
        )
    for definition in definitions:
        findings += _lint_one(definition, chosen, fit)
    findings += _twins(definitions, chosen)
    return findings


def _lint_one(definition: Definition, profile: Profile, fit: Fit) -> list[Finding]:
    name, description, schema = definition
    findings: list[Finding] = []
    if not re.fullmatch(profile.name_pattern, name):
        findings.append(
            Finding(
                path="name",
                rule="name",
                problem=f"the name does not match {profile.name_pattern}",
                remedy="give the tool another name; a host's names are made to fit",
            )
        )
    if profile.most_description is not None and len(description) > profile.most_description:
        findings.append(
            Finding(
                path="description",
                rule="size",
                problem=f"{len(description)} characters, and some models take at most {profile.most_description}",
                remedy="shorten it" if fit is None else "it is cut; shorten it so that it ends where it should",
                weight="refused" if fit is None else "ignored",
            )
        )
    findings += fit_up_to(schema, profile, fit).left
    return [replace(finding, tool=name, profile=profile.name) for finding in findings]


def _twins(definitions: list[Definition], profile: Profile) -> list[Finding]:
    seen: set[str] = set()
    twice = [name for name, _, _ in definitions if name in seen or seen.add(name)]
    return [
        Finding(
            tool=name,
            path="name",
            rule="name",
            problem="another tool has the same name",
            remedy="rename one of them",
            profile=profile.name,
        )
        for name in dict.fromkeys(twice)
    ]
