"""`_meta.ui`: the declaration of a tool about its view, and of a view about itself.

Two readers of one shape. A server's author hears at once what is wrong (`DeclarationError`). A host must live with what
a server sent: `ui_of` reads the valid parts and decides doubtful cases against the view. A tool with an invalid visibility
can be called by neither the model nor the view.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast, final

from msgspec import Struct

from trimaran.errors import DeclarationError
from trimaran.types import Json, Tool, as_object

from .policy import PERMISSIONS, Csp

IDENTIFIER: Final = "io.modelcontextprotocol/ui"
"""The extension's name among the capabilities."""
MIME_TYPE: Final = "text/html;profile=mcp-app"
"""The only type of a view there is so far, spelt exactly so."""

Visibility: TypeAlias = Literal["model", "app"]

_EVERYONE: Final = frozenset({"model", "app"})
_FLAT_KEY: Final = "ui/resourceUri"  # of the drafts; deprecated, still seen
_URI: Final = re.compile(r"ui://[!-~]+")
_URI_LENGTH: Final = 2048  # a length that all software can handle
# Hosts have their own rules; all of them can put these characters into a URL.
_DOMAIN: Final = re.compile(r"[a-z0-9](?:[a-z0-9.\-]{0,251}[a-z0-9])?", re.IGNORECASE)


def check_view_uri(uri: object) -> str:
    """The URI of a view; DeclarationError if it cannot be one."""
    if not isinstance(uri, str) or len(uri) > _URI_LENGTH or not _URI.fullmatch(uri):
        raise DeclarationError(
            f'a view has a URI like "ui://weather/dashboard": the scheme ui, no spaces; not {str(uri)[:80]!r}'
        )
    return uri


def ui_tool(
    resource_uri: str | None = None,
    visibility: Iterable[Visibility] = ("model", "app"),
    *,
    meta: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """The `meta` of a tool that belongs to a view: `@server.tool(meta=ui_tool("ui://weather/dashboard"))`.

    Args:
        resource_uri: The view that shows the tool's results; None for a tool that a view only calls.
        visibility: The permitted callers: the model, the app (the view), or both.
        meta: Other members of the tool's `_meta`.
    """
    if isinstance(visibility, str):
        raise DeclarationError(f"visibility must be a list: write visibility=[{visibility!r}]")
    roles = frozenset(str(role) for role in visibility)
    if not roles or roles - _EVERYONE:
        raise DeclarationError(f'visibility must be ["model"], ["app"] or both, not {sorted(roles)!r}')
    if resource_uri is None and roles == _EVERYONE:
        raise DeclarationError('ui_tool needs the URI of a view, or a visibility: ui_tool("ui://weather/dashboard")')
    if meta and ("ui" in meta or _FLAT_KEY in meta):
        raise DeclarationError('the "ui" of a tool\'s meta is what ui_tool makes; give it no other')
    ui: dict[str, Json] = {} if resource_uri is None else {"resourceUri": check_view_uri(resource_uri)}
    if "{" in ui.get("resourceUri", ""):
        raise DeclarationError(f"a tool has one view, and {resource_uri!r} is a template; fill in its variables")
    if roles != _EVERYONE:
        ui["visibility"] = sorted(roles)
    return {**(meta or {}), "ui": ui}


@final
class UiTool(Struct, frozen=True):
    """The `_meta.ui` of a tool."""

    resource_uri: str | None = None
    visibility: frozenset[str] = _EVERYONE
    problems: tuple[str, ...] = ()
    """The parts that could not be used, and why."""


def ui_of(tool: Tool | Mapping[str, Json]) -> UiTool:
    """The `_meta.ui` of a listed tool. An invalid part counts as "no": no view, or no caller."""
    meta = as_object(tool.get("_meta") if isinstance(tool, Mapping) else tool.meta) or {}
    ui = meta.get("ui")
    settings = as_object(ui)
    problems: list[str] = [] if settings is not None or ui is None else ["_meta.ui is not an object"]
    settings = settings or {}
    uri: Any = settings.get("resourceUri", meta.get(_FLAT_KEY))
    if uri is not None:
        try:
            uri = check_view_uri(uri)
        except DeclarationError as error:
            problems.append(str(error))
            uri = None
    visibility = _EVERYONE
    if "visibility" in settings:
        listed: Any = settings["visibility"]
        if isinstance(listed, list) and all(isinstance(role, str) for role in cast("list[object]", listed)):
            visibility = frozenset(cast("list[str]", listed)) & _EVERYONE
        else:
            problems.append("_meta.ui.visibility is not a list of names")
            visibility = frozenset[str]()
    return UiTool(uri, visibility, tuple(problems))


@final
class ViewMeta(Struct, frozen=True, kw_only=True):
    """The `_meta.ui` of a view."""

    csp: Csp | None = None
    permissions: tuple[str, ...] = ()
    domain: str | None = None
    """A dedicated origin; its form depends on the host."""
    prefers_border: bool | None = None

    @classmethod
    def read(cls, value: object) -> tuple[ViewMeta, list[str]]:
        """The usable parts of `_meta.ui`, and the problems of the others."""
        settings = as_object(value)
        if settings is None:
            return cls(), [] if value is None else ["_meta.ui is not an object"]
        problems: list[str] = []
        csp: Csp | None = None
        if settings.get("csp") is not None:
            csp, problems = Csp.read(settings["csp"])
        permissions, wrong = _permissions(settings.get("permissions"))
        problems += wrong
        domain, border = settings.get("domain"), settings.get("prefersBorder")
        if domain is not None and not (isinstance(domain, str) and _DOMAIN.fullmatch(domain)):
            problems.append(f'domain is a host name like "a904.example.com", not {str(domain)[:80]!r}')
            domain = None
        if border is not None and not isinstance(border, bool):
            problems.append(f"prefersBorder is true or false, not {str(border)[:80]!r}")
            border = None
        return cls(csp=csp, permissions=permissions, domain=domain, prefers_border=border), problems

    @classmethod
    def declare(
        cls,
        label: str,
        *,
        csp: Csp | Mapping[str, Sequence[str]] | None,
        permissions: Iterable[str],
        domain: str | None,
        prefers_border: bool | None,
    ) -> ViewMeta:
        """The same from a server's author. A problem is a DeclarationError."""
        if isinstance(permissions, str):
            raise DeclarationError(f"{label}: permissions must be a list: write permissions=[{permissions!r}]")
        requested: dict[str, Json] = {name: {} for name in permissions}
        view_meta, problems = cls.read(
            {"csp": csp, "permissions": requested, "domain": domain, "prefersBorder": prefers_border}
        )
        if problems:
            raise DeclarationError(f"{label}: {problems[0]}")
        return view_meta

    def to_json(self) -> dict[str, Json]:
        """As it stands in `_meta.ui`."""
        fields: dict[str, Json] = {} if self.csp is None else {"csp": self.csp.to_json()}
        if self.permissions:
            fields["permissions"] = {name: {} for name in self.permissions}
        if self.domain is not None:
            fields["domain"] = self.domain
        if self.prefers_border is not None:
            fields["prefersBorder"] = self.prefers_border
        return fields


def _permissions(value: object) -> tuple[tuple[str, ...], list[str]]:
    if value is None:
        return (), []
    listed = as_object(value)
    if listed is None:
        return (), [f"permissions is a mapping, not {type(value).__name__}"]
    unknown = [str(name)[:80] for name in listed if name not in PERMISSIONS]
    problems = [f"there is no permission {name!r}; there are {', '.join(PERMISSIONS)}" for name in unknown]
    # Only an object asks for a permission; `false` and `null` do not.
    return tuple(name for name in PERMISSIONS if as_object(listed.get(name)) is not None), problems
