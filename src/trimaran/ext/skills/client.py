"""`SkillsClient`: the skills of one server, checked before anybody uses them.

    skills = SkillsClient(client, label="docs")
    for skill in await skills.list(): ...             nothing is fetched beyond the list
    manual = await skills.read(skill)                 SKILL.md: size, digest, frontmatter
    forms = await skills.read(skill, "references/FORMS.md")

A file is read when it is asked for and not before, only if the skill's entry lists it, and only from the server that listed
it. It is handed out if its size and digest are those of the entry, and for the SKILL.md itself if its frontmatter says what
the entry says; else the read raises and the content is dropped.

This proves that the content is what was listed, and so what somebody approved: not that it is harmless. It is text
of the server's, for a model to distrust. No field of it grants anything here; `allowed-tools` is a wish.
"""

from __future__ import annotations

import builtins
import hashlib
import logging
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast, final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from trimaran.client.client import Client
from trimaran.errors import (
    CODE_INVALID_REQUEST,
    LocalProtocolError,
    RemoteProtocolError,
    TooManyPages,
    Unsupported,
)
from trimaran.types import Json, Resource, as_object

from .entry import (
    DIRECTORY_READ,
    MOST_BYTES,
    MOST_FILES,
    SKILLS_EXTENSION,
    SkillEntry,
    SkillResource,
    describe_fault,
    digest_of,
)
from .frontmatter import Unreadable, read_frontmatter, same

log: logging.Logger = logging.getLogger("trimaran.client")

Reason: TypeAlias = Literal["digest", "size", "frontmatter", "unlisted", "contents"]

_MAX_PAGES: Final = 1000


class SkillRejected(RemoteProtocolError):
    """This skill is not used: its entry breaks the rules, is too large, or offers nothing to check it by."""

    def __init__(self, uri: str, message: str) -> None:
        super().__init__(CODE_INVALID_REQUEST, message)
        self.uri = uri
        """The skill, or the file of it."""


class SkillTampered(SkillRejected):
    """The content differs from the skill's entry, or the entry does not list it. The content was dropped.

    The skill may simply have changed: `get` returns its current entry, which must be approved again.
    """

    def __init__(self, uri: str, reason: Reason, message: str) -> None:
        super().__init__(uri, message)
        self.reason: Reason = reason
        """The difference: digest, size, frontmatter, unlisted (not part of the entry) or contents (not one file)."""


@final
class SkillContent(Struct, frozen=True):
    """A file of a skill, as listed. The content is the server's and not to be trusted."""

    uri: str
    data: bytes
    digest: str
    mime_type: str | None
    """As the server says."""
    origin: str | None
    """The label of its server. Show it to a model beside the content."""

    @property
    def text(self) -> str:
        """The content as UTF-8; invalid bytes become replacement characters."""
        return self.data.decode(errors="replace")


@final
class Skill:
    """A skill as a server listed it at one moment. To refresh it, `get` it again."""

    __slots__ = ("_files", "_owner", "frontmatter", "origin", "resources", "uri")

    def __init__(self, entry: SkillEntry, owner: SkillsClient) -> None:
        self._owner = owner
        self.uri: str = entry.uri
        """Of its SKILL.md. With the server it came from, this is what identifies the skill; a name may occur twice."""
        self.frontmatter: Mapping[str, Json] = entry.frontmatter
        """The frontmatter of SKILL.md. It grants no permission."""
        self.resources: tuple[SkillResource, ...] | None = None
        """Every file, the SKILL.md included; None for a skill that is made on demand, which this client does not read."""
        if entry.resources != "dynamic":
            self.resources = tuple(entry.resources)
        self.origin: str | None = owner.label
        """The label of its SkillsClient."""
        self._files = {file.uri: file for file in self.resources or ()}

    @property
    def name(self) -> str:
        return self.frontmatter["name"]

    @property
    def description(self) -> str:
        return self.frontmatter["description"]

    @property
    def root(self) -> str:
        """The URI of its folder."""
        return self.uri.rpartition("/")[0]

    @property
    def fingerprint(self) -> str:
        """Changes when any file of the skill does. Bind an approval to it, together with the server and the URI."""
        listed = sorted((file.uri, file.digest, file.size) for file in self.resources or ())
        return "sha256:" + hashlib.sha256(msgspec.json.encode([self.uri, listed])).hexdigest()

    @property
    def refusal(self) -> str | None:
        """Why this client will not read it; None if it will."""
        if self.resources is None:
            return "its content is made on demand, so there is nothing to check it by"
        if len(self.resources) > MOST_FILES:
            return f"it has {len(self.resources)} files; {MOST_FILES} is the most a skill may have"
        size = sum(file.size for file in self.resources)
        if size > MOST_BYTES:
            return f"it holds {size} bytes; {MOST_BYTES} is the most a skill may hold"
        return None

    def locate(self, reference: str) -> str:
        """The URI of a file, from its URI or from a path as the SKILL.md would write it: `references/FORMS.md`."""
        if "://" in reference:
            return reference
        return f"{self.root}/{quote(reference.removeprefix('./'))}"

    def file(self, uri: str) -> SkillResource | None:
        """The entry of a file; None if the skill does not list it."""
        return self._files.get(uri)

    def __repr__(self) -> str:
        return f"<Skill {self.uri}>"


@final
class SkillsClient:
    """The skills of the server that a client is connected to, and of no other."""

    def __init__(self, client: Client, *, label: str | None = None) -> None:
        """Fetches nothing.

        Args:
            client: A connected client.
            label: The program's own name for this server. Do not use the name that the server sends: it can be anything.
        """
        self._client = client
        self.label = label

    async def list(self, *, max_pages: int = _MAX_PAGES) -> builtins.list[Skill]:
        """The skills that the server lists. It may serve others to clients that know their URI.

        Entries that break the rules are left out, with a warning in the log.

        Raises:
            Unsupported: the server has no skills.
            TooManyPages: the list goes on for more than `max_pages`.
        """
        self._require("skills/list")
        skills: list[Skill] = []
        for entry in await self._pages("skills/list", {}, "skills", max_pages):
            try:
                skills.append(self._accept(entry))
            except SkillRejected as error:
                log.warning("a skill was left out of the list: %s", error.message)
        return skills

    async def get(self, uri: str) -> Skill:
        """The current entry of one skill, listed or not, by the URI of its SKILL.md.

        Raises:
            Unsupported: the server has no skills.
            CallError: it serves no such skill (-32602).
            SkillRejected: its entry breaks the rules.
        """
        self._require("skills/get")
        result = await self._client.request("skills/get", {"uri": uri}, idempotent=True)
        skill = self._accept(result.get("skill"))
        if skill.uri != uri:
            raise SkillRejected(uri, f"the server was asked for {uri[:200]} and answered with {skill.uri[:200]}")
        return skill

    async def read(self, skill: Skill, uri: str | None = None) -> SkillContent:
        """One file of a skill, its SKILL.md by default: checked, or not at all.

        Args:
            skill: From `list` or `get` of this very object.
            uri: The file, by its URI or by its path inside the skill.

        Raises:
            SkillTampered: it is not what the skill's entry lists, or not listed. The content is dropped.
            SkillRejected: this skill is not read; `skill.refusal` says why.
            CallError: the server could not read it.
        """
        if skill._owner is not self:  # pyright: ignore[reportPrivateUsage]
            raise LocalProtocolError.invalid_request(
                f"{skill.uri[:200]} was listed by another server; read it through the SkillsClient that it came from"
            )
        if skill.refusal is not None:
            raise SkillRejected(skill.uri, f"{skill.uri[:200]} is not read: {skill.refusal}")
        target = skill.uri if uri is None else skill.locate(uri)
        listed = skill.file(target)
        if listed is None:
            raise SkillTampered(
                target,
                "unlisted",
                f"{target[:200]} is not a file of {skill.uri[:200]}, as it was listed; `get` the skill to see its files now",
            )
        # Not from the cache: it may hold the skill before its change.
        result = await self._client.read_resource(target, fresh=True)
        if len(result.contents) != 1 or result.contents[0].uri != target:
            raise SkillTampered(target, "contents", f"the server answered with something else than {target[:200]}")
        content = SkillContent(
            uri=target,
            data=result.blob,
            digest=listed.digest,
            mime_type=result.contents[0].mime_type,
            origin=self.label,
        )
        _check(content, listed)
        if target == skill.uri:
            _check_frontmatter(content, skill)
        return content

    async def directory(self, uri: str, *, max_pages: int = _MAX_PAGES) -> builtins.list[Resource]:
        """The server's current listing of a folder, for display only: `read` trusts the skill's entry alone.

        Raises:
            Unsupported: the server offers no such look.
            CallError: there is no such folder (-32602).
        """
        if self._require("resources/directory/read").get(DIRECTORY_READ) is not True:
            raise Unsupported(
                "the server does not offer to look into the folders of its skills; use `skill.resources`",
                method="resources/directory/read",
            )
        entries = await self._pages("resources/directory/read", {"uri": uri}, "resources", max_pages)
        try:
            return msgspec.convert(entries, list[Resource])
        except msgspec.ValidationError as error:
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, f"the result of resources/directory/read is malformed: {error}"
            ) from None

    # --- inside ------------------------------------------------------------------------------------------------------

    def _require(self, method: str) -> dict[str, Json]:
        """The settings the server declared the extension with; nothing is asked of one that did not."""
        declared = as_object(self._client.server_capabilities.get("extensions")) or {}
        settings = as_object(declared.get(SKILLS_EXTENSION))
        if settings is None:
            raise Unsupported(f"the server does not offer skills, so it does not answer {method}", method=method)
        return settings

    def _accept(self, value: Any) -> Skill:
        try:
            entry = msgspec.convert(value, SkillEntry)
        except msgspec.ValidationError as error:
            uri = (as_object(value) or {}).get("uri")
            raise SkillRejected(
                uri if isinstance(uri, str) else "", f"the entry of {str(uri)[:200]} is malformed: {error}"
            ) from None
        fault = describe_fault(entry)
        if fault is not None:
            raise SkillRejected(entry.uri, f"the entry of {entry.uri[:200]} breaks the rules: {fault[1]}")
        return Skill(entry, self)

    async def _pages(self, method: str, params: Mapping[str, Any], key: str, most: int) -> builtins.list[Any]:
        collected: list[Any] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(most):
            page_params = dict(params) if cursor is None else {**params, "cursor": cursor}
            result = await self._client.request(method, page_params, idempotent=True)
            items, following = result.get(key), result.get("nextCursor")
            if not isinstance(items, list) or not (following is None or isinstance(following, str)):
                raise RemoteProtocolError(CODE_INVALID_REQUEST, f"the result of {method} has no list")
            collected.extend(cast("list[Any]", items))
            if following is None:
                return collected
            cursor = following
            if cursor in seen:
                raise RemoteProtocolError(
                    CODE_INVALID_REQUEST, f"{method} goes in circles: the cursor {cursor[:80]!r} came twice"
                )
            seen.add(cursor)
        raise TooManyPages(f"{method} has more than {most} pages; allow more with max_pages")


def _check(content: SkillContent, listed: SkillResource) -> None:
    if len(content.data) != listed.size:
        raise SkillTampered(
            content.uri,
            "size",
            f"{content.uri[:200]} has {len(content.data)} bytes, and {listed.size} were listed; it is not used",
        )
    if digest_of(content.data) != listed.digest:
        raise SkillTampered(
            content.uri,
            "digest",
            f"{content.uri[:200]} is not the file that was listed: another digest; it is not used",
        )


def _check_frontmatter(content: SkillContent, skill: Skill) -> None:
    try:
        written = read_frontmatter(content.data.decode()).values
    except (Unreadable, UnicodeDecodeError) as error:
        raise SkillTampered(
            content.uri,
            "frontmatter",
            f"the frontmatter of {content.uri[:200]} cannot be read, so it cannot be compared: {error}; it is not used",
        ) from None
    for key in sorted(written.keys() | skill.frontmatter.keys()):
        if key not in written or key not in skill.frontmatter or not same(written[key], skill.frontmatter[key]):
            raise SkillTampered(
                content.uri,
                "frontmatter",
                f"the frontmatter of {content.uri[:200]} is not what was listed: {key[:80]!r} differs; it is not used",
            )
