"""A folder of skills on disk: its content, and its changes.

    skills/                      skill://...
      git-workflow/SKILL.md        git-workflow/SKILL.md
      acme/billing/refunds/        acme/billing/refunds/SKILL.md, acme/billing/refunds/examples/email.md
        SKILL.md, examples/email.md

A folder with a SKILL.md is a skill; everything below it belongs to it, skills inside it too. Files whose name begins with a
dot, and `__pycache__`, belong to nobody: they are neither listed nor read. A link is followed only to a file inside the
folder. Files outside of every skill are not served.

A look at the folder makes a `Snapshot`, which never changes. Files are read again only if the file system says that they
were touched. Nothing here is async: the server calls it from its threads, one look at a time.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from msgspec import Struct

from trimaran.errors import DeclarationError
from trimaran.types import Resource

from .entry import (
    MANIFEST,
    MARKDOWN,
    MOST_BYTES,
    MOST_FILES,
    SkillEntry,
    SkillResource,
    describe_fault,
    digest_of,
    reserved_key,
    uri_of,
)
from .frontmatter import Frontmatter, Unreadable, read_frontmatter

DIRECTORY: Final = "inode/directory"

# Enough for a thousand skills of usual size; past it somebody named the wrong folder, and a walk would take seconds.
_MOST_ENTRIES: Final = 50_000
_DEEPEST: Final = 32

# Our own table, so that the same folder is described the same on every machine: `mimetypes` reads the system's.
_SUFFIXES: Final = {
    MARKDOWN: "md",
    "application/gzip": "gz",
    "application/json": "json",
    "application/pdf": "pdf",
    "application/sql": "sql",
    "application/toml": "toml",
    "application/x-sh": "sh",
    "application/xml": "xml",
    "application/yaml": "yaml yml",
    "application/zip": "zip",
    "audio/mpeg": "mp3",
    "audio/wav": "wav",
    "image/gif": "gif",
    "image/jpeg": "jpg jpeg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/webp": "webp",
    "text/css": "css",
    "text/csv": "csv",
    "text/html": "html htm",
    "text/javascript": "js mjs",
    "text/plain": "txt",
    "text/x-python": "py",
    "text/x-typescript": "ts",
    "video/mp4": "mp4",
}
_TYPES: Final = {suffix: kind for kind, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}

# Not every system has all of these.
_OPEN: Final = os.O_RDONLY | sum(getattr(os, f"O_{name}", 0) for name in ("BINARY", "CLOEXEC", "NOFOLLOW", "NONBLOCK"))

Stamp = tuple[int, int, int, int]


@final
class File(Struct, frozen=True):
    """One file as it was at the time of a look."""

    uri: str
    path: Path
    size: int
    digest: str
    mime_type: str
    is_text: bool
    stamp: Stamp


@final
class Snapshot(Struct, frozen=True):
    """The files to serve at one moment."""

    skills: dict[str, SkillEntry]
    """By URI, in the order of URIs."""
    files: dict[str, File]
    directories: dict[str, list[Resource]]
    """The entries of each folder, ordered by URI."""
    complaints: tuple[str, ...] = ()
    """The problems of the skills that were left out."""

    def changed_since(self, before: Snapshot) -> set[str]:
        """The URIs of files that came, went, or are no longer the same."""
        uris = self.files.keys() | before.files.keys()
        digests = {uri: file.digest for uri, file in self.files.items()}
        earlier = {uri: file.digest for uri, file in before.files.items()}
        return {uri for uri in uris if digests.get(uri) != earlier.get(uri)}


@final
class _Node:
    """A directory: its files and subdirectories by name, and its problems."""

    def __init__(self, path: Path, segments: tuple[str, ...]) -> None:
        self.path = path
        self.segments = segments
        self.files: dict[str, os.stat_result] = {}
        self.nodes: dict[str, _Node] = {}
        self.complaint: str | None = None

    def stamps(self) -> tuple[object, ...]:
        """Something that differs once anything here was touched."""
        return self.segments, self.complaint, tuple((name, _stamp(status)) for name, status in self.files.items())

    def below(self) -> Iterator[_Node]:
        """This directory and all inside it."""
        yield self
        for node in self.nodes.values():
            yield from node.below()


@final
class Folder:
    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root: Path = Path(root)
        if not self.root.is_dir():
            raise DeclarationError(f"{self.root} is not a folder; name the one that holds your skills")
        self._real = self.root.resolve()
        if (self._real / MANIFEST).exists():
            raise DeclarationError(
                f"{self.root} is a skill itself; name the folder that it is in: Skills({str(self.root.parent)!r})"
            )
        self._known: dict[str, File] = {}
        self._seen: dict[str, File] = {}
        self._last: tuple[object, Snapshot] | None = None

    def look(self, *, strict: bool = False, afresh: bool = False) -> Snapshot:
        """The current snapshot; the same object as last time if nothing changed.

        Args:
            strict: Raise DeclarationError for a skill that cannot be served, instead of leaving it out.
            afresh: Read every file, even if its times have not changed.
        """
        top = self._walk()
        stamps = [node.stamps() for node in top.below()]
        if self._last is not None and not afresh and self._last[0] == stamps:
            return self._last[1]
        self._known, self._seen = {} if afresh else self._seen, {}
        skills: dict[str, SkillEntry] = {}
        files: dict[str, File] = {}
        served: set[tuple[str, ...]] = set()
        complaints: list[str] = []
        for node in top.below():
            if MANIFEST not in node.files:
                continue
            try:
                entry, own = self._skill(node)
            except DeclarationError as error:
                if strict:
                    raise
                complaints.append(str(error))
                continue
            skills[entry.uri] = entry
            files.update(own)
            served.update(inner.segments for inner in node.below())
        directories = _directories(top, served, skills, files)
        snapshot = Snapshot(dict(sorted(skills.items())), files, directories, tuple(complaints))
        self._last = (stamps, snapshot)
        return snapshot

    def read(self, file: File) -> bytes | None:
        """The bytes of a file; None if they are no longer those of the snapshot."""
        try:
            data = self._bytes(file.path, file.size)
        except DeclarationError:
            return None
        return data if len(data) == file.size and digest_of(data) == file.digest else None

    # --- walking -----------------------------------------------------------------------------------------------------

    def _walk(self) -> _Node:
        top = _Node(self.root, ())
        waiting = [top]
        count = 0
        while waiting:
            node = waiting.pop()
            try:
                with os.scandir(node.path) as scan:
                    entries = sorted(scan, key=lambda entry: entry.name)
            except OSError as error:
                if node is top:
                    raise DeclarationError(f"{self.root} cannot be read: {error.strerror}") from None
                node.complaint = f"{node.path} cannot be read: {error.strerror}"
                continue
            count += len(entries)
            if count > _MOST_ENTRIES:
                raise DeclarationError(
                    f"{self.root} holds more than {_MOST_ENTRIES} files; is it the folder of your skills?"
                )
            for entry in entries:
                if not _is_hidden(entry.name):
                    node.complaint = self._enter(node, entry) or node.complaint
            waiting.extend(node.nodes.values())
        return top

    def _enter(self, node: _Node, entry: os.DirEntry[str]) -> str | None:
        """Take note of one thing in a directory, or say why it cannot be served."""
        path = node.path / entry.name
        try:
            entry.name.encode()
        except UnicodeEncodeError:
            return f"{path!r} has a name that is not UTF-8; rename it"
        try:
            if entry.is_symlink():
                node.files[entry.name] = self._follow(path)
            elif entry.is_dir(follow_symlinks=False):
                if len(node.segments) >= _DEEPEST:
                    return f"{path} is nested more than {_DEEPEST} folders deep"
                node.nodes[entry.name] = _Node(path, (*node.segments, entry.name))
            elif entry.is_file(follow_symlinks=False):
                node.files[entry.name] = entry.stat(follow_symlinks=False)
            else:
                return f"{path} is neither a file nor a folder; take it out"
        except DeclarationError as error:
            return str(error)
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        return None

    def _follow(self, path: Path) -> os.stat_result:
        """Where a link leads, if that is a file inside the folder."""
        target = self._inside(path)
        status = os.stat(target, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise DeclarationError(f"{path} is a link to something that is not a file; put a copy there instead")
        return status

    def _inside(self, path: Path) -> Path:
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: links in a circle
            raise DeclarationError(f"{path} is a link to nothing; remove it, or put a file there") from None
        if not target.is_relative_to(self._real):
            raise DeclarationError(f"{path} leads out of {self.root}; put a copy there instead of the link")
        if any(_is_hidden(name) for name in target.relative_to(self._real).parts):
            raise DeclarationError(f"{path} leads to a hidden file; put a copy there instead of the link")
        return target

    # --- skills ------------------------------------------------------------------------------------------------------

    def _skill(self, node: _Node) -> tuple[SkillEntry, dict[str, File]]:
        """The skill in this directory, with every file below it."""
        inner = list(node.below())
        for directory in inner:
            if directory.complaint is not None:
                raise DeclarationError(directory.complaint)
        count = sum(len(directory.files) for directory in inner)
        if count > MOST_FILES:
            raise DeclarationError(f"{node.path} has {count} files; a skill has at most {MOST_FILES}")
        size = sum(status.st_size for directory in inner for status in directory.files.values())
        if size > MOST_BYTES:
            raise DeclarationError(
                f"{node.path} holds {size} bytes; a skill holds at most {MOST_BYTES} ({MOST_BYTES // 2**20} MiB)"
            )
        files = {
            file.uri: file
            for directory in inner
            for name, status in directory.files.items()
            for file in (self._file(directory, name, status),)
        }
        uri = uri_of(*node.segments, MANIFEST)
        frontmatter = self._frontmatter(files[uri])
        resources = [SkillResource(uri=f.uri, digest=f.digest, size=f.size) for _, f in sorted(files.items())]
        entry = SkillEntry(uri=uri, frontmatter=frontmatter.values, resources=resources)
        fault = describe_fault(entry)
        if fault is not None:
            line = frontmatter.lines.get(fault[0] or "", 1)
            raise DeclarationError(f"{node.path / MANIFEST}:{line}: {fault[1]}")
        if (key := reserved_key(frontmatter.values)) is not None:
            line = frontmatter.lines["metadata"]
            raise DeclarationError(f"{node.path / MANIFEST}:{line}: the key {key!r} is reserved for MCP; take another")
        return entry, files

    def _frontmatter(self, file: File) -> Frontmatter:
        data = self._bytes(file.path, file.size)
        if digest_of(data) != file.digest:
            raise DeclarationError(f"{file.path} is being written to; look again when it is complete")
        try:
            return read_frontmatter(data.decode())
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise DeclarationError(f"{file.path}:{line}: the file is not UTF-8") from None
        except Unreadable as error:
            raise DeclarationError(f"{file.path}:{error.line}: {error.reason}") from None

    def _file(self, node: _Node, name: str, status: os.stat_result) -> File:
        uri = uri_of(*node.segments, name)
        stamp = _stamp(status)
        for known in (self._seen.get(uri), self._known.get(uri)):
            if known is not None and known.stamp == stamp:
                self._seen[uri] = known
                return known
        path = node.path / name
        data = self._bytes(path, MOST_BYTES)
        is_text = _is_text(data)
        file = File(uri, path, len(data), digest_of(data), _mime_type(name, is_text), is_text, stamp)
        self._seen[uri] = file
        return file

    def _bytes(self, path: Path, most: int) -> bytes:
        """The content of a file, which must not be a link by now, nor anything that could keep us waiting."""
        target = self._inside(path)
        try:
            descriptor = os.open(target, _OPEN)
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(errno.EINVAL, "it is no file")
                data = file.read(most + 1)
        except OSError as error:
            raise DeclarationError(f"{path} cannot be read: {error.strerror}") from None
        if len(data) > most:
            raise DeclarationError(f"{path} grew while it was read; look again when it is complete")
        return data


def describe(file: File, skills: dict[str, SkillEntry]) -> Resource:
    """A file as a resource; the SKILL.md of a skill has its name and description."""
    entry = skills.get(file.uri)
    if entry is None:
        return Resource(uri=file.uri, name=file.path.name, mime_type=file.mime_type, size=file.size)
    front = entry.frontmatter
    return Resource(
        uri=file.uri, name=front["name"], description=front["description"], mime_type=MARKDOWN, size=file.size
    )


def _directories(
    top: _Node, served: set[tuple[str, ...]], skills: dict[str, SkillEntry], files: dict[str, File]
) -> dict[str, list[Resource]]:
    """Every folder of every skill, and the folders that lead to skills."""
    parents = {segments[:length] for segments in served for length in range(1, len(segments) + 1)}
    listings: dict[str, list[Resource]] = {}
    for node in top.below():
        if node.segments not in parents:
            continue
        children = [_directory(inner.segments) for inner in node.nodes.values() if inner.segments in parents]
        if node.segments in served:
            children += [describe(files[uri_of(*node.segments, name)], skills) for name in node.files]
        listings[uri_of(*node.segments)] = sorted(children, key=lambda child: child.uri)
    return listings


def _directory(segments: tuple[str, ...]) -> Resource:
    return Resource(uri=uri_of(*segments), name=segments[-1], mime_type=DIRECTORY)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _mime_type(name: str, is_text: bool) -> str:
    suffix = name.lower().rpartition(".")[2] if "." in name else ""
    return _TYPES.get(suffix) or ("text/plain" if is_text else "application/octet-stream")


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
