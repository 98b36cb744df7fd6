"""The wire types of skills: entries, params and results of the methods, and the rules of names and sizes.

Pure. An entry is a complete manifest: the frontmatter of a SKILL.md, and every file with its digest and size.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal
from urllib.parse import quote, unquote

from msgspec import Raw, field

from trimaran.types import Json, Resource
from trimaran.types.wire import Params, Uri, Value, Wire

SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
SKILLS_CAPABILITY: Final[dict[str, Json]] = {"extensions": {SKILLS_EXTENSION: {}}}
"""For `connect(capabilities=SKILLS_CAPABILITY)`: tells the server that this client knows of skills."""

DIRECTORY_READ: Final = "directoryRead"
MANIFEST: Final = "SKILL.md"
MARKDOWN: Final = "text/markdown"

# The extension's own limits, which every host must accept. Hosts may refuse larger skills, so we serve and accept none.
MOST_FILES: Final = 512
MOST_BYTES: Final = 16 * 1024 * 1024
LONGEST_DESCRIPTION: Final = 1024  # by the Agent Skills specification, as the rule of names is

_NAME: Final = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_RESERVED: Final = "io.modelcontextprotocol/"


class SkillResource(Value, frozen=True):
    """One file of a skill: its URI, and the size and digest of its content."""

    uri: str
    digest: str
    """`sha256:` and 64 lower-case hexadecimal digits, of the file's bytes."""
    size: int
    """In bytes."""


class SkillEntry(Value, frozen=True):
    uri: str
    frontmatter: dict[str, Json]
    resources: list[SkillResource] | Literal["dynamic"]


class SkillParams(Params, frozen=True, kw_only=True):
    """Params of `skills/get`."""

    uri: Uri


class DirectoryParams(Params, frozen=True, kw_only=True):
    """Params of `resources/directory/read`."""

    uri: Uri
    cursor: Uri | None = None


class ListSkillsResult(Wire):
    skills: list[SkillEntry]
    next_cursor: str | None = None
    result_type: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)


class GetSkillResult(Wire):
    skill: SkillEntry
    result_type: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)


class DirectoryResult(Wire):
    resources: list[Resource]
    next_cursor: str | None = None
    result_type: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def uri_of(*segments: str) -> str:
    """The URI of a file or folder, from the names on the way to it."""
    return "skill://" + "/".join(quote(segment, safe="") for segment in segments)


def is_inside(uri: str, root: str) -> bool:
    """Whether a URI lies below another one, and its path leads nowhere else after decoding."""
    if not uri.startswith(root + "/") or re.search(r"[?#\\]", uri):
        return False
    names = [unquote(segment) for segment in uri[len(root) + 1 :].split("/")]
    return all(name not in ("", ".", "..") and not re.search(r"[/\\\x00]", name) for name in names)


def describe_fault(entry: SkillEntry) -> tuple[str | None, str] | None:
    """The first rule of the specification that an entry breaks: the frontmatter key at fault, if it is one, and how.

    Sizes and dynamic content are no faults here: such an entry is well formed, and whether to take it is a choice.
    """
    fault = _frontmatter_fault(entry.frontmatter)
    if fault is not None:
        return fault
    root, _, last = entry.uri.rpartition("/")
    if last != MANIFEST or "://" not in root or re.search(r"[?#]", entry.uri):
        return None, f"its URI does not end in /{MANIFEST}"
    if unquote(root.rpartition("/")[2]) != entry.frontmatter["name"]:
        return "name", f"the name is {entry.frontmatter['name']!r}, and the folder's is not; they must be the same"
    return None if entry.resources == "dynamic" else _manifest_fault(entry.uri, root, entry.resources)


def _frontmatter_fault(frontmatter: dict[str, Json]) -> tuple[str, str] | None:
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "name", "the name is 1 to 64 of a-z, 0-9 and single hyphens, with none at either end"
    if not isinstance(description, str) or not description.strip() or len(description) > LONGEST_DESCRIPTION:
        return "description", f"the description is a text of 1 to {LONGEST_DESCRIPTION} characters"
    return None


def _manifest_fault(uri: str, root: str, resources: list[SkillResource]) -> tuple[None, str] | None:
    seen: set[str] = set()
    for file in resources:
        if file.uri in seen:
            return None, f"{file.uri[:200]} is listed twice"
        seen.add(file.uri)
        if not is_inside(file.uri, root):
            return None, f"{file.uri[:200]} is not inside the skill's folder"
        if not _DIGEST.fullmatch(file.digest):
            return None, f"the digest of {file.uri[:200]} is not sha256: and 64 lower-case hexadecimal digits"
        if file.size < 0:
            return None, f"the size of {file.uri[:200]} is negative"
    return None if uri in seen else (None, f"the list of its files lacks the {MANIFEST} itself")


def reserved_key(frontmatter: dict[str, Json]) -> str | None:
    """A key of `metadata` that only extensions of the protocol may define; none does so far."""
    metadata = frontmatter.get("metadata")
    keys: list[str] = list(metadata) if isinstance(metadata, dict) else []  # pyright: ignore[reportUnknownArgumentType]
    return next((key for key in keys if key.startswith(_RESERVED)), None)
