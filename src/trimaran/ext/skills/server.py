"""`Skills`: a folder of skills, served by a server.

    server.enable_extension(Skills("skills/"))

It brings `skills/list`, `skills/get` and `resources/directory/read`, and makes every file of every skill a resource: each
SKILL.md is listed among the server's own, the rest is read by its URI. URIs are looked up whole in a table of what was found
on disk, so no path of a caller's ever reaches the file system.

The folder is looked at again whenever skills are asked for. It sends what the listing says: a file that changed since
the last look is noticed when it is read, by its digest, and the listing follows first. Listeners hear that the list
of resources changed. A skill that breaks while the server runs is left out and complained about in the log; one that is
broken at the start is a DeclarationError.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from trimaran.errors import DeclarationError, ProtocolError, ResourceMissing
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.methods import Method, extend
from trimaran.protocol.versions import V2025_11
from trimaran.server.access import require_scopes, scopes_of
from trimaran.server.context import Context
from trimaran.server.dispatch import Serve
from trimaran.types import BlobResourceContents, ListParams, TextResourceContents
from trimaran.types.wire import Params

from .entry import (
    DIRECTORY_READ,
    MANIFEST,
    SKILLS_EXTENSION,
    DirectoryParams,
    DirectoryResult,
    GetSkillResult,
    ListSkillsResult,
    SkillEntry,
    SkillParams,
)
from .folder import File, Folder, Snapshot, describe

if TYPE_CHECKING:
    from trimaran.server.server import Server

log: logging.Logger = logging.getLogger("trimaran.server")

# The size of a page. An entry is never split, and a thousand entries of 512 files each would be no message any client takes.
_PAGE_FILES: Final = 4096

_TEMPLATE: Final = "skill://{+path}"


@final
class Skills:
    """Serve the skills in a folder: `server.enable_extension(Skills("skills/"))`."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        directory_read: bool = True,
        cache_ttl: float | None = None,
        scopes: Sequence[str] = (),
    ) -> None:
        """Look at the folder.

        Args:
            folder: Where the skills are: every folder in it, at any depth, that has a SKILL.md.
            directory_read: Offer `resources/directory/read` too.
            cache_ttl: Seconds that a client may cache skills, instead of the server's own setting.
            scopes: Scopes that a caller needs to list or read skills.

        Raises:
            DeclarationError: a skill cannot be served; the message names the file, and the line if there is one.
        """
        self._folder = Folder(folder)
        self._snapshot = self._folder.look(strict=True)
        self._settings = {DIRECTORY_READ: True} if directory_read else {}
        self._cache_ttl = cache_ttl
        self._scopes = scopes_of(scopes, "Skills(...)")
        self._server: Server | None = None
        self._lock = threading.Lock()
        if not self._snapshot.skills:
            log.warning("there is no %s anywhere below %s", MANIFEST, self._folder.root)

    def __repr__(self) -> str:
        return f"<Skills in {self._folder.root}: {len(self._snapshot.skills)}>"

    def attach(self, server: Server) -> None:
        """Serve them there. `server.enable_extension` calls this."""
        if self._server is not None:
            raise DeclarationError("these skills are served already; make another Skills(...) for another server")
        if "skills/list" in server.runtime.dispatcher.rows():
            raise DeclarationError("this server has skills already; put all of them into one folder")
        server.add_resource(
            _TEMPLATE,
            self.read_file,
            name="skill-files",
            description="A file of one of the skills.",
            cache_ttl=self._cache_ttl,
            scopes=self._scopes,
        )
        self._server = server
        self._publish(server, Snapshot({}, {}, {}), replace=False)
        methods: list[tuple[Method, Serve]] = [
            (_row("skills/list", ListParams, cacheable=True), self._list),
            (_row("skills/get", SkillParams, cacheable=True), self._get),
        ]
        if self._settings:
            methods.append((_row("resources/directory/read", DirectoryParams), self._read_directory))
        server.enable_extension(SKILLS_EXTENSION, self._settings, methods)

    def refresh(self) -> bool:
        """Look at the folder now, from any thread; True if something changed. It also happens by itself, when asked for."""
        return self._refresh()

    def _refresh(self, *, afresh: bool = False) -> bool:
        with self._lock:
            before = self._snapshot
            try:
                now = self._folder.look(afresh=afresh)
            except DeclarationError as error:
                if before.complaints != (str(error),):
                    log.warning("the skills stay as they were: %s", error)
                self._snapshot = Snapshot(before.skills, before.files, before.directories, (str(error),))
                return False
            if now is before:
                return False
            self._snapshot = now
            for complaint in now.complaints:
                if complaint not in before.complaints:
                    log.warning("a skill is left out: %s", complaint)
            return self._server is not None and self._publish(self._server, before)

    # --- the server's resources --------------------------------------------------------------------------------------

    def _publish(self, server: Server, before: Snapshot, *, replace: bool = True) -> bool:
        """Update the server's list of resources, and notify listeners."""
        now = self._snapshot
        changed = now.changed_since(before)
        version = server.resources.version
        for uri in before.skills.keys() - now.skills.keys():
            with contextlib.suppress(DeclarationError):  # somebody else took it out
                server.remove_resource(uri)
        for uri in now.skills:
            if uri not in before.skills or uri in changed:
                self._list_resource(server, uri, replace=replace)
        if changed and server.resources.version == version:
            server.notify.resources_changed()
        for uri in sorted(changed):
            server.notify.resource_updated(uri)
        return bool(changed)

    def _list_resource(self, server: Server, uri: str, *, replace: bool) -> None:
        about = describe(self._snapshot.files[uri], self._snapshot.skills)
        server.add_resource(
            uri,
            self.read_manifest,
            replace=replace,
            name=about.name,
            description=about.description,
            mime_type=about.mime_type,
            size=about.size,
            cache_ttl=self._cache_ttl,
            scopes=self._scopes,
        )

    async def read_manifest(self, ctx: Context) -> TextResourceContents | BlobResourceContents:
        """Serve one SKILL.md."""
        return await self._read(ctx)

    async def read_file(self, path: str, ctx: Context) -> TextResourceContents | BlobResourceContents:
        """Serve any other file of a skill. It is found by its whole URI, not by this path."""
        return await self._read(ctx)

    async def _read(self, ctx: Context) -> TextResourceContents | BlobResourceContents:
        uri = ctx.uri or ""
        file, data = await self._home().runtime.threads.submit(self._fetch, {"uri": uri}, ctx._call.exchange)  # pyright: ignore[reportPrivateUsage]
        if file.is_text:
            return TextResourceContents(uri=uri, text=data.decode(), mime_type=file.mime_type)
        return BlobResourceContents(uri=uri, blob=b64encode(data).decode("ascii"), mime_type=file.mime_type)

    def _fetch(self, uri: str) -> tuple[File, bytes]:
        for attempt in (1, 2):
            file = self._snapshot.files.get(uri)
            data = None if file is None else self._folder.read(file)
            if file is not None and data is not None:
                return file, data
            if attempt == 1:
                # The file changed although its times did not: read it again.
                self._refresh(afresh=file is not None)
            elif file is not None:
                raise ProtocolError.internal_error(f"{uri[:500]} is being changed; ask again", {"uri": uri}, status=503)
        raise ResourceMissing(uri)

    # --- the extension's methods -------------------------------------------------------------------------------------

    def _home(self) -> Server:
        assert self._server is not None, "served by nobody"
        return self._server

    async def _look(self, call: IncomingCall) -> Snapshot:
        """The current snapshot, if the caller may see it."""
        server = self._home()
        if self._scopes:
            require_scopes(call, self._scopes)
        await server.runtime.threads.submit(self._refresh, {}, call.exchange)
        return self._snapshot

    def _hinted(self, result: Any) -> Any:
        return self._home().runtime.dispatcher.with_cache_hints(result, self._cache_ttl, is_private=bool(self._scopes))

    async def _list(self, call: IncomingCall) -> ListSkillsResult:
        skills = (await self._look(call)).skills
        start = _after(list(skills), call.params.cursor, "skill://")
        entries = list(skills.values())[start:]
        page = entries[: _fitting(entries, self._home().page_size)]
        cursor = page[-1].uri if len(page) < len(entries) else None
        return self._hinted(ListSkillsResult(skills=page, next_cursor=cursor))

    async def _get(self, call: IncomingCall) -> GetSkillResult:
        uri: str = call.params.uri
        entry = (await self._look(call)).skills.get(uri)
        if entry is None:
            raise ProtocolError.invalid_params(f"there is no skill {uri[:500]}", {"uri": uri})
        return self._hinted(GetSkillResult(skill=entry))

    async def _read_directory(self, call: IncomingCall) -> DirectoryResult:
        uri: str = call.params.uri
        children = (await self._look(call)).directories.get(uri)
        if children is None:
            raise ProtocolError.invalid_params(f"{uri[:500]} is not a folder of a skill", {"uri": uri})
        start = _after([child.uri for child in children], call.params.cursor, f"{uri}/")
        page = children[start : start + self._home().page_size]
        more = start + len(page) < len(children)
        return DirectoryResult(resources=page, next_cursor=page[-1].uri if more else None)


def _row(name: str, params: type[Params], *, cacheable: bool = False) -> Method:
    # Extensions are a word of 2025-11-25 and later; older clients read the files as the resources they are.
    return extend(name, params, since=V2025_11, capability="extensions", cacheable=cacheable)


def _after(uris: Sequence[str], cursor: str | None, prefix: str) -> int:
    """Where the page after a cursor begins. A cursor is the last URI of the page before, which may be gone by now."""
    if cursor is None:
        return 0
    if not cursor.startswith(prefix):
        raise ProtocolError.invalid_params(
            f"unknown cursor {cursor[:80]!r}: send the nextCursor of the page before, or none to start over"
        )
    return bisect_right(uris, cursor)


def _fitting(entries: Sequence[SkillEntry], most: int) -> int:
    """How many of these make a page: at least one."""
    files = 0
    for count, entry in enumerate(entries[:most]):
        files += len(entry.resources)
        if count and files > _PAGE_FILES:
            return count
    return most
