"""Look at the words of a server: definitions, results, errors, questions, and the arguments that go out.

Pure. `scan_text` looks at one text by the table of `scan_rules.py`; `scan_tool` at every text of a definition; `clean_text` takes
out what nobody can see, and the pictures that would carry data away. Nothing is decided here: `scanner.py` remembers and
counts, `approvals.py` asks.

Each text is brought into a plain form once: hidden characters out, lookalike letters and case folded, blanks single. A text
over the limit is looked at from both ends, because an attacker chooses where to write.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final, cast, final

from msgspec import Raw, Struct, json, to_builtins
from msgspec.structs import replace

from trimaran.depth import decode_json
from trimaran.types import Json, Tool, as_object

from ..terminal_text import in_one_line
from .hidden_text import fold_lookalikes, has_invisible, strip_hidden
from .scan_rules import RULES, Place, ScannedText, ScanRule, Severity, leaking_images

_MOST_SCANNED: Final = (
    1024 * 1024
)  # characters of one text: what a model may be given of a result, and more than it reads
_PART: Final = 32_768  # characters that are looked at in one go; the slowest pattern takes 2 us for each
_OVERLAP: Final = 2048  # longer than what any pattern spans, but for encoded texts
_MOST_FINDINGS: Final = 100  # in one text; more say nothing new
_MOST_HITS: Final = 3  # of one rule in one text; a fourth says nothing new
_MOST_TEXTS: Final = (
    20_000  # of one definition; more cost than they tell, and such a definition is itself worth a finding
)
_DEEPEST: Final = 64  # levels of a schema, or of arguments
_EXCERPT: Final = 160  # characters
_SHORT: Final = 12  # characters; no rule about definitions has a hit in fewer, and most texts of a schema have fewer
_SHORTEST_SECRET: Final = 8  # characters
_NAME_PARTS: Final = re.compile(r"[_.-]+|(?<=[a-z])(?=[A-Z])")
_SECRET_NAME: Final = re.compile(
    r"(?:^|[._-])(?:bearer|password|passwd|api_?key|secret|access_token|private_key)$", re.I
)
_ARGUMENT_RULES: Final = {rule.id: rule for rule in RULES if "arguments" in rule.where}
_ACROSS_ARGUMENTS: Final = frozenset(
    {"override", "secrecy", "covert", "secret-files", "secret-place", "secret-value", "conversation-capture"}
)
"""The rules about one short thought; what others look for may stand in two arguments that have nothing to do with each other."""
_DEFINITIONS: Final = frozenset({"tool", "prompt", "resource"})
_RULES_BY_PLACE: Final[dict[Place, tuple[ScanRule, ...]]] = {
    place: tuple(rule for rule in RULES if place in rule.where)
    for place in cast(
        "tuple[Place, ...]", ("tool", "prompt", "resource", "result", "error", "elicitation", "sampling", "arguments")
    )
}


@final
class ScanFinding(Struct, frozen=True, kw_only=True):
    """One thing about a server's words that a person should know."""

    id: str
    """The rule; `[trust] allow` takes it."""
    severity: Severity
    place: Place
    server: str = ""
    subject: str = ""
    """The tool, prompt or resource."""
    where: str = ""
    """The part of it: `description`, `argument path: default`."""
    message: str = ""
    """The meaning of a hit of this rule."""
    remedy: str = ""
    excerpt: str = ""
    """The words that hit, with hidden characters spelled out. They are the server's own: show them as such."""

    def __str__(self) -> str:
        subject = " ".join(part for part in (self.subject, self.where and f"({self.where})") if part)
        quoted = f": “{self.excerpt}”" if self.excerpt else ""
        return f"{subject or self.place} {self.message} [{self.id}]{quoted}"

    def to_json(self) -> dict[str, Json]:
        return {field: getattr(self, field) for field in self.__struct_fields__}


def scan_text(
    text: str,
    place: Place = "result",
    *,
    server: str = "",
    subject: str = "",
    where: str = "",
    allow: Container[str] = (),
) -> list[ScanFinding]:
    """The findings in one text.

    Args:
        place: Where the text comes from, which decides what weighs how much.
        server, subject, where: For the findings.
        allow: Ids of rules to leave out.
    """
    if not text or (len(text) < _SHORT and place in _DEFINITIONS and text.isascii()):
        return []
    findings: list[ScanFinding] = []
    for part in _parts(text):
        looked_at = ScannedText(part, _plain(part))
        for rule in _RULES_BY_PLACE[place]:
            if rule.id not in allow:
                findings += (
                    ScanFinding(
                        id=rule.id,
                        severity=rule.where[place],
                        place=place,
                        server=server,
                        subject=subject,
                        where=where,
                        message=rule.message,
                        remedy=rule.remedy,
                        excerpt=in_one_line(excerpt, _EXCERPT),
                    )
                    for excerpt in _hits(rule, looked_at)
                )
        if len(findings) > _MOST_FINDINGS:
            break
    return list(dict.fromkeys(findings))


def _parts(text: str) -> Iterator[str]:
    """The text in parts that overlap: no other thread runs while a pattern does, so none may take long."""
    if len(text) > _MOST_SCANNED:
        text = f"{text[: _MOST_SCANNED // 2]}\n{text[-_MOST_SCANNED // 2 :]}"
    for start in range(0, max(len(text) - _OVERLAP, 1), _PART):
        yield text[start : start + _PART + _OVERLAP]


def _plain(text: str) -> str:
    return " ".join(fold_lookalikes(strip_hidden(text)).lower().split())


def _hits(rule: ScanRule, text: ScannedText) -> Iterator[str]:
    look = rule.look
    if rule.words and not any(word in text.plain for word in rule.words):
        return
    if rule.may_hit is not None and not rule.may_hit(text):
        return
    excerpts = (match[0] for match in look.finditer(text.plain)) if isinstance(look, re.Pattern) else look(text)
    for number, excerpt in enumerate(excerpts):
        if number == _MOST_HITS:
            return
        yield excerpt


# --- definitions -----------------------------------------------------------------------------------------------------


def scan_tool(tool: Tool, *, server: str = "", allow: Container[str] = ()) -> list[ScanFinding]:
    """The findings in a tool's name, title, description, schemas and annotations."""
    texts = [
        (where, _NAME_PARTS.sub(" ", text) if where.endswith("name") else text) for where, text in tool_texts(tool)
    ]
    # A sentence may go on in the next argument.
    arguments = [text for where, text in texts if where.startswith("argument") and not where.endswith("name")]
    if _is_clean([text for _, text in texts], " ".join(arguments)):
        return []
    findings: list[ScanFinding] = []
    for where, text in texts:
        findings += scan_text(text, "tool", server=server, subject=tool.name, where=where, allow=allow)
    if len(arguments) > 1:
        known = {finding.id for finding in findings}
        findings += (
            finding
            for finding in scan_text(
                " ".join(arguments), "tool", server=server, subject=tool.name, where="arguments together", allow=allow
            )
            if finding.id in _ACROSS_ARGUMENTS and finding.id not in known
        )
    return findings


def _is_clean(texts: list[str], arguments: str) -> bool:
    """Whether there is nothing to find in a definition, which holds for nearly all: found out at a third of the cost.

    A pattern stays within its line, so all texts are looked at as the lines of one. A rule that looks at so much of a text and
    no further gets each text by itself: filling one would hide another.
    """
    texts = [text for text in texts if len(text) >= _SHORT or not text.isascii()]
    if sum(map(len, texts)) > _PART or any(map(has_invisible, texts)):
        return False  # invisible characters are honest beside some letters, which may be those of the next text
    each = [ScannedText(text, _plain(text)) for text in texts]
    lines = ScannedText("\n".join(texts), "\n".join(text.plain for text in each))
    together = ScannedText(arguments, _plain(arguments))
    return not any(
        next(_hits(rule, text), None) is not None
        for rule in _RULES_BY_PLACE["tool"]
        for text in ((lines,) if rule.may_hit is None else each if rule.may_hit(lines) else ())
    ) and not any(
        next(_hits(rule, together), None) is not None
        for rule in _RULES_BY_PLACE["tool"]
        if rule.id in _ACROSS_ARGUMENTS
    )


def tool_texts(tool: Tool) -> Iterator[tuple[str, str]]:
    """Every text of a definition that a model or a person may read, with the place of each."""
    yield "name", tool.name
    if tool.title:
        yield "title", tool.title
    if tool.description:
        yield "description", tool.description
    if (title := _annotated_title(tool)) is not None:
        yield "annotations", title
    count = 0
    for label, schema in (("argument", tool.input_schema), ("output", tool.output_schema)):
        for where, text in _schema_texts(schema, label, 0):
            count += 1
            if count > _MOST_TEXTS:
                return
            yield where, text


def _annotated_title(tool: Tool) -> str | None:
    title = (as_object(tool.annotations) or as_object(to_builtins(tool.annotations)) or {}).get("title")
    return title if isinstance(title, str) else None


def _schema_texts(node: object, where: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        return
    if isinstance(node, Raw):
        node = decode_json(bytes(node))
    if isinstance(node, str):
        yield where, node
    elif isinstance(node, Mapping):
        for key, value in cast("Mapping[str, Any]", node).items():
            if key == "properties" and isinstance(value, Mapping):
                for name, inner in cast("Mapping[str, Any]", value).items():
                    yield f"{where} name", name
                    yield from _schema_texts(inner, f"{where} {in_one_line(name, 60)}", depth + 1)
            elif key in ("$schema", "$id", "$ref", "type", "format", "pattern", "required", "mimeType"):
                continue
            else:
                yield from _schema_texts(
                    value, where if isinstance(value, (Mapping, list)) else f"{where}: {key}", depth + 1
                )
    elif isinstance(node, list):
        for item in cast("list[Any]", node):
            yield from _schema_texts(item, where, depth + 1)


# --- arguments -------------------------------------------------------------------------------------------------------


def scan_arguments(
    arguments: Mapping[str, object], *, server: str = "", subject: str = "", allow: Container[str] = ()
) -> list[ScanFinding]:
    """The findings in the arguments of a call, before they are sent."""
    findings: list[ScanFinding] = []
    for number, (where, text) in enumerate(_argument_texts(arguments, "", 0)):
        if number == _MOST_TEXTS:
            break
        findings += scan_text(text, "arguments", server=server, subject=subject, where=where, allow=allow)
        named = _named_finding(where.removeprefix("argument "), text)
        if named is not None and named not in allow and all(item.id != named for item in findings):
            rule = _ARGUMENT_RULES[named]
            findings.append(
                ScanFinding(
                    id=named,
                    severity="ask",
                    place="arguments",
                    server=server,
                    subject=subject,
                    where=where,
                    message=rule.message,
                    remedy=rule.remedy,
                    excerpt=in_one_line(text, _EXCERPT) if named == "path-escape" else "",
                )
            )
    return findings


def _named_finding(name: str, text: str) -> str | None:
    """The rule that an argument's name and its text together break."""
    if len(text) >= _SHORTEST_SECRET and _SECRET_NAME.search(name):
        return "secret-argument"
    return "path-escape" if text.startswith("..") and "relative" in name.lower() else None


def _argument_texts(node: object, where: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        return
    if isinstance(node, str):
        yield f"argument {where}", node
    elif isinstance(node, Mapping):
        for key, value in cast("Mapping[str, Any]", node).items():
            yield from _argument_texts(value, f"{where}.{key}" if where else str(key), depth + 1)
    elif isinstance(node, (list, tuple)):
        for item in cast("list[Any]", node):
            yield from _argument_texts(item, where, depth + 1)


# --- what the model gets ---------------------------------------------------------------------------------------------


def clean_text(text: str) -> str:
    """The text without what nobody can see, and without pictures whose address would carry data away."""
    text = strip_hidden(text)
    if not _may_have_picture(text):
        return text
    for match in reversed(list(leaking_images(text))):
        text = f"{text[: match.start()]}[picture left out: its address carries data]{text[match.end() :]}"
    return text


def _may_have_picture(text: str) -> bool:
    return "](" in text or "<img" in text.lower()


def clean_json(value: Any) -> Any:
    """The value with every text in it cleaned, keys too; the same object if there is nothing to clean."""
    return _cleaned(value, 0)


def _cleaned(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        cleaned_text = clean_text(value)
        return value if cleaned_text == value else cleaned_text
    if depth > 4 * _DEEPEST:
        return value
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        cleaned = {strip_hidden(key): _cleaned(item, depth + 1) for key, item in table.items()}
        is_same = len(cleaned) == len(table) and all(cleaned.get(key) is item for key, item in table.items())
        return table if is_same else cleaned
    if isinstance(value, list):
        items = cast("list[Any]", value)
        cleaned_items = [_cleaned(item, depth + 1) for item in items]
        return items if all(new is old for new, old in zip(cleaned_items, items, strict=True)) else cleaned_items
    return value


def clean_tool(tool: Tool) -> Tool:
    """The definition as a model gets it. The names of the tool and of its arguments stay: the server knows no others."""
    whole = json.encode(tool).decode()
    if not (has_invisible(whole) or _may_have_picture(whole)):
        return tool
    changes: dict[str, Any] = {}
    for field in ("title", "description"):
        text = getattr(tool, field)
        if isinstance(text, str) and (cleaned := clean_text(text)) != text:
            changes[field] = cleaned
    for field in ("input_schema", "output_schema"):
        schema = getattr(tool, field)
        if isinstance(schema, Raw):
            continue  # our own server's, encoded beforehand; a client decodes what it reads
        if (cleaned_schema := _cleaned_schema(schema, 0)) is not schema:
            changes[field] = cleaned_schema
    title = _annotated_title(tool)
    if title is not None and (cleaned_title := clean_text(title)) != title:
        changes["annotations"] = {**to_builtins(tool.annotations), "title": cleaned_title}
    return replace(tool, **changes) if changes else tool


def _cleaned_schema(value: Any, depth: int) -> Any:
    """As `clean_json`, but for keys, and for the values that arguments must have to the letter."""
    if isinstance(value, str):
        cleaned_text = clean_text(value)
        return value if cleaned_text == value else cleaned_text
    if depth > _DEEPEST:
        return value
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        cleaned = {
            key: item if key in ("enum", "const", "required", "pattern") else _cleaned_schema(item, depth + 1)
            for key, item in table.items()
        }
        return table if all(cleaned[key] is item for key, item in table.items()) else cleaned
    if isinstance(value, list):
        items = cast("list[Any]", value)
        cleaned_items = [_cleaned_schema(item, depth + 1) for item in items]
        return items if all(new is old for new, old in zip(cleaned_items, items, strict=True)) else cleaned_items
    return value
